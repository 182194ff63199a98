/* SPDX-License-Identifier: MIT */
/* Look for the secret everywhere: answers, events, files of the state directory, modes of those
 * files. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define X "zq7secret"

static const char *needle;
static char found[4096];
static char open_file[512];

static bool holds(const char *path, const char *what)
{
	static char buf[1 << 20];
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	bool hit = false;
	ssize_t n;

	while (fd >= 0 && !hit && (n = read(fd, buf, sizeof(buf))) > 0)
		hit = memmem(buf, (size_t)n, what, strlen(what));
	if (fd >= 0)
		close(fd);
	return hit;
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)at;
	if (strstr(path, "/fake/")) /* the guest's own files */
		return 0;
	if (kind == FTW_F && S_ISREG(st->st_mode)) {
		if (st->st_mode & 077)
			snprintf(open_file, sizeof(open_file), "%s", path);
		if (holds(path, needle) && strlen(found) + strlen(path) + 2 < sizeof(found))
			strcat(strcat(found, " "), path);
	}
	return 0;
}

static void look(struct rig *r, const char *what)
{
	needle = what;
	found[0] = open_file[0] = '\0';
	nftw(r->state, visit, 16, FTW_PHYS);
}

static void secrets_stay_where_they_belong(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(
		rig_sandbox(r, "{\"env\":{\"DB_PASS\":\"" X "-1\"},\"labels\":{\"team\":\"a\"}}"));
	static const char *const bad[] = {
		"{\"env\":{\"LD_PRELOAD\":\"" X "-6\"}}",
		"{\"env\":{\"0A\":\"" X "-6\"}}",
		"{\"env\":{\"A\":[\"" X "-6\"]}}",
		"{\"registry_login\":{\"registry\":\"bad host\",\"username\":\"u\",\"password\":\"" X
		"-7\"}}",
		"{\"metrics_export\":{\"endpoint\":\"http://u:" X "-8@h/\",\"headers\":"
		"{\"Authorization\":\"" X "-9\"}}}",
		"{\"metrics_export\":{\"endpoint\":\"https://h/\",\"headers\":{\"A\":\"" X
		"-9\\n\"}}}",
	};
	struct answer a;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		a = rig_send(r, "POST", "/v1/sandboxes", NULL, NULL, bad[i], strlen(bad[i]));
		assert_true(a.status >= 400);
		assert_null(strstr(a.body, X));
		answer_free(&a);
	}
	json_decref(rig_json(r, "POST", rig_path("/v1/sandboxes/%s/run", id),
		"{\"argv\":[\"sh\",\"-c\",\"true\",\"x\"],\"env\":{\"T\":\"" X "-3\"},"
		"\"stdin\":\"enE3c2VjcmV0LTQ=\"}",
		200));
	a = rig_send(r, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, NULL, NULL, 0);
	assert_int_equal(a.status, 200);
	assert_null(strstr(a.body, X));
	answer_free(&a);
	/* the value given at create is in the records and nowhere else; no other was kept */
	look(r, X "-1");
	assert_non_null(strstr(found, "records.db"));
	assert_null(strstr(found, "audit"));
	assert_null(strstr(found, "/run/"));
	for (int i = 2; i < 10; i++) {
		char what[32];
		snprintf(what, sizeof(what), X "-%d", i);
		look(r, what);
		assert_string_equal(found, "");
	}
	assert_string_equal(open_file, "");
	json_decref(rig_json(r, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, 204));
	for (int i = 0; i < 3000; i++) {
		look(r, X);
		if (!*found)
			break;
		usleep(10000);
	}
	assert_string_equal(found, "");
	rig_free(r);
	free(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(secrets_stay_where_they_belong) };
	return run_table(tests);
}
