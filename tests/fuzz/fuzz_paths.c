/* SPDX-License-Identifier: MIT */
/* Guest paths and request paths. What passes is clean, and cleaning it again changes nothing. */
#include "tests/fuzz/fuzz.h"

#include "common/api/api.h"
#include "common/api/ids.h"

static void guest_path(const char *p, size_t len)
{
	char out[GUEST_PATH_MAX], again[GUEST_PATH_MAX], around[GUEST_PATH_MAX + 2];

	if (guest_path_clean(p, len, "path", out, NULL) < 0)
		return;
	promise(out[0] == '/' && strlen(out) < GUEST_PATH_MAX);
	promise(!strstr(out, "//") && (!out[1] || out[strlen(out) - 1] != '/'));
	snprintf(around, sizeof(around), "%s/", out);
	promise(!strstr(around, "/../") && (!out[1] || !strstr(around, "/./")));
	promise(guest_path_clean(out, strlen(out), "path", again, NULL) == 0 &&
		!strcmp(out, again));
}

static void request_path(const char *p)
{
	static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE",
		"TRACE" };
	struct route_match m;

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		memset(&m, 0, sizeof(m));
		if (!route_find(methods[i], p, &m))
			continue;
		promise(m.route && m.n <= ROUTE_PARAMS_MAX);
		for (size_t k = 0; k < m.n; k++)
			promise(memchr(m.value[k], 0, ROUTE_PARAM_LEN) &&
				route_param(&m, m.name[k]) == m.value[k]);
	}
}

static void escapes(const char *p, size_t len)
{
	char out[256], *back;
	size_t n, m;

	if (percent_decode(p, len, out, sizeof(out), &n) < 0)
		return;
	promise(n < sizeof(out));
	back = percent_encode(out, n, "");
	promise(back);
	char again[256];
	promise(percent_decode(back, strlen(back), again, sizeof(again), &m) == 0);
	promise(n == m && !memcmp(out, again, n));
	free(back);
}

int fuzz_paths(const uint8_t *data, size_t size)
{
	char *text = supply_text(data, size);

	guest_path(text, size);
	request_path(text);
	escapes(text, size);
	free(text);
	return 0;
}
