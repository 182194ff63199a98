/* SPDX-License-Identifier: MIT */
/* The setting of an export: its rules, its forms. Messages name fields, never their values. */
#include "sandboxd/core/export.h"

#include "common/base/addr.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/strs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEADERS_MAX      16
#define HEADER_NAME_MAX  256
#define HEADER_VALUE_MAX 8192
#define ENDPOINT_MAX     2048
#define HOST_MAX         253
#define INTERVAL_SECS    60

static int bad(struct err *e, const char *what)
{
	return err_set(e, ERR_INVALID_REQUEST, "metrics_export.%s", what);
}

/* --- the endpoint ---------------------------------------------------------------------------- */

struct url { /* pieces of the text */
	bool plain;
	const char *host, *path;
	size_t host_len; /* brackets not counted */
};

static bool port_ok(const char *p, size_t len)
{
	return len > 0 && len <= 5 && strspn(p, "0123456789") >= len && atoi(p) > 0 &&
	       atoi(p) <= 65535;
}

static bool v6_ok(const char *host, size_t len)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr a;

	if (len >= sizeof(text))
		return false;
	memcpy(text, host, len);
	text[len] = '\0';
	return inet_pton(AF_INET6, text, &a) == 1;
}

static bool name_chars_ok(const char *host, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)host[i]) && !strchr(".-_", host[i]))
			return false;
	return len > 0 && len <= HOST_MAX && host[0] != '.' && host[0] != '-';
}

/* host[:port] up to `end`. */
static bool authority_ok(struct url *u, const char *p, const char *end)
{
	const char *colon;

	if (*p == '[') {
		u->host = p + 1;
		p = memchr(p, ']', (size_t)(end - p));
		if (!p || !v6_ok(u->host, u->host_len = (size_t)(p - u->host)))
			return false;
		p++;
		return p == end || (*p == ':' && port_ok(p + 1, (size_t)(end - p - 1)));
	}
	colon = memchr(p, ':', (size_t)(end - p));
	u->host = p;
	u->host_len = (size_t)((colon ? colon : end) - p);
	return name_chars_ok(u->host, u->host_len) &&
	       (!colon || port_ok(colon + 1, (size_t)(end - colon - 1)));
}

/* Printable ASCII without what ends or confuses a path. */
static bool path_ok(const char *p)
{
	for (; *p; p++) {
		if (*p <= ' ' || *p >= 0x7f || strchr("?#\\\"<>^`{|}", *p))
			return false;
		if (*p == '%' && (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2])))
			return false;
	}
	return true;
}

static bool url_read(const char *text, struct url *ret)
{
	const char *p = strstr(text, "://"), *end;

	*ret = (struct url){ .plain = !strncasecmp(text, "http:", 5) };
	if (!p || strlen(text) > ENDPOINT_MAX ||
		(!ret->plain && strncasecmp(text, "https:", 6) != 0) ||
		p != text + (ret->plain ? 4 : 5))
		return false;
	p += 3;
	end = p + strcspn(p, "/");
	ret->path = end;
	return authority_ok(ret, p, end) && path_ok(end);
}

static bool is_loopback(const struct url *u)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	char host[HOST_MAX + 1];

	if (u->host_len > HOST_MAX)
		return false;
	memcpy(host, u->host, u->host_len);
	host[u->host_len] = '\0';
	if (!strcasecmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &in.sin_addr) == 1)
		return addr_kind_of((struct sockaddr *)&in) == ADDR_LOOPBACK;
	return inet_pton(AF_INET6, host, &in6.sin6_addr) == 1 &&
	       addr_kind_of((struct sockaddr *)&in6) == ADDR_LOOPBACK;
}

static bool endpoint_ok(const struct core *c, const char *text)
{
	struct url u;

	if (!url_read(text, &u))
		return false;
	return !u.plain || (c->export_private && is_loopback(&u));
}

/* --- headers --------------------------------------------------------------------------------- */

static bool name_ok_for_header(const char *name)
{
	static const char *const ours[] = { "host", "content-type", "content-encoding",
		"content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
		"upgrade", "expect" };

	if (!*name || strlen(name) > HEADER_NAME_MAX)
		return false;
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p >= 0x80 ||
			(!isalnum((unsigned char)*p) && !strchr("!#$%&'*+-.^_`|~", *p)))
			return false;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (!strcasecmp(name, ours[i]))
			return false;
	return strncasecmp(name, "proxy-", 6) != 0;
}

static bool value_ok(const char *value)
{
	for (const char *p = value; *p; p++)
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			return false;
	return strlen(value) <= HEADER_VALUE_MAX;
}

static int check_headers(const struct strmap *h, struct err *e)
{
	if (h->n > HEADERS_MAX)
		return bad(e, "headers: at most 16");
	for (size_t i = 0; i < h->n; i++) {
		if (!name_ok_for_header(h->keys[i]))
			return bad(
				e, "headers: a name that is no header's, or that may not be set");
		if (!value_ok(h->values[i]))
			return bad(e,
				"headers: a value with a line break or another control character, or of "
				"more than 8192 bytes");
		for (size_t j = 0; j < i; j++)
			if (!strcasecmp(h->keys[i], h->keys[j]))
				return bad(e, "headers: the same name twice");
	}
	return 0;
}

int check_metrics_export(
	const struct core *c, const struct metrics_export_body *b, bool update, struct err *e)
{
	int64_t least = c->policy->limits.min_metrics_export_secs;
	bool stop = update && b->endpoint && !*b->endpoint;

	if (b->header_secrets)
		return bad(e, "header_secrets is for gateways only");
	if (!stop && (!b->endpoint || !endpoint_ok(c, b->endpoint)))
		return bad(e, "endpoint must be an https address without user, query and fragment");
	if (b->has_interval_secs && b->interval_secs != 0 &&
		(b->interval_secs < least || b->interval_secs > INT32_MAX))
		return err_set(e, ERR_INVALID_REQUEST,
			"metrics_export.interval_secs must be at least %lld", (long long)least);
	if (check_headers(&b->headers, e) < 0)
		return -1;
	return core_cap(c, CAP_METRICS_EXPORT)
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "this server lacks the capability for metrics_export");
}

/* --- the setting ----------------------------------------------------------------------------- */

static int64_t interval_of(const struct core *c, const struct metrics_export_body *b)
{
	int64_t least = c->policy->limits.min_metrics_export_secs;

	if (b->interval_secs > 0)
		return b->interval_secs;
	return least > INTERVAL_SECS ? least : INTERVAL_SECS;
}

/* What completes an endpoint: nothing where it has a path. */
static const char *missing_path(const char *path)
{
	if (!*path)
		return "/v1/metrics";
	return path[1] ? "" : "v1/metrics";
}

static struct export *make(
	struct core *c, const char *endpoint, int64_t interval, const struct strmap *headers)
{
	struct export *x = calloc(1, sizeof(*x));
	struct url u;

	if (!x || !url_read(endpoint, &u) || map_copy(headers, &x->headers) < 0) {
		free(x);
		return NULL;
	}
	map_sort(&x->headers);
	x->serial = __atomic_add_fetch(&c->export_serial, 1, __ATOMIC_RELAXED);
	x->interval_secs = interval;
	if (asprintf(&x->endpoint, "%s%s", endpoint, missing_path(u.path)) >= 0)
		return x;
	x->endpoint = NULL;
	export_free(x);
	return NULL;
}

int export_new(
	struct core *c, const struct metrics_export_body *b, struct export **ret, struct err *e)
{
	*ret = NULL;
	if (!*b->endpoint)
		return 0;
	*ret = make(c, b->endpoint, interval_of(c, b), &b->headers);
	return *ret ? 0 : err_oom(e);
}

void export_free(struct export *x)
{
	if (!x)
		return;
	map_free(&x->headers);
	free(x->endpoint);
	free(x);
}

json_t *export_plain_json(const struct export *x)
{
	json_t *o = json_object();

	json_object_set_new(o, "endpoint", json_string(x ? x->endpoint : ""));
	if (!x)
		return o;
	json_object_set_new(o, "interval_secs", json_integer(x->interval_secs));
	if (x->headers.n)
		json_object_set_new(o, "header_names", map_names_json(&x->headers));
	return o;
}

static void put_time(json_t *o, const char *key, int64_t wall_ns)
{
	char text[CLOCK_TEXT_LEN];

	if (!wall_ns)
		return;
	clock_text(wall_ns, text);
	json_object_set_new(o, key, json_string(text));
}

json_t *export_json(const struct export *x)
{
	json_t *o = export_plain_json(x);

	put_time(o, "last_push_at", x->last_push_ns);
	put_time(o, "failing_since", x->failing_since_ns);
	if (x->last_error[0])
		json_object_set_new(o, "last_error", json_string(x->last_error));
	return o;
}

/* Names without values: what an ended sandbox still shows. */
static int names_only(const json_t *names, struct strmap *ret)
{
	_cleanup_json_ json_t *o = json_object();

	for (size_t i = 0; i < json_array_size(names); i++)
		if (json_is_string(json_array_get(names, i)))
			json_object_set_new(
				o, json_string_value(json_array_get(names, i)), json_string(""));
	return map_from_json(o, ret);
}

int export_load(struct core *c, const json_t *plain, const json_t *headers, struct export **ret)
{
	const char *endpoint = json_string_value(json_object_get(plain, "endpoint"));
	int64_t interval = json_integer_value(json_object_get(plain, "interval_secs"));
	struct strmap map = { NULL, NULL, 0 };
	int rc;

	*ret = NULL;
	if (!plain)
		return 0;
	if (!endpoint || interval < 1 || interval > INT32_MAX)
		return -1;
	rc = json_is_object(headers) ? map_from_json(headers, &map)
				     : names_only(json_object_get(plain, "header_names"), &map);
	if (rc == 0)
		*ret = make(c, endpoint, interval, &map);
	map_free(&map);
	return *ret ? 0 : -1;
}
