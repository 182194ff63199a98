/* SPDX-License-Identifier: MIT */
#include "tests/support/conform_internal.h"

#include "tests/support/rig.h"

#include <ctype.h>
#include <time.h>
#include <unistd.h>

static struct sbx *api;
static struct rig *rig;
static json_t *caps;
static const struct rig_conf *conf;

/* What this test was given and made. */
static json_t *values, *paths;
static void **blocks;
static size_t nblocks;

void *conform_keep(void *block)
{
	blocks = realloc(blocks, (nblocks + 1) * sizeof(*blocks));
	assert_non_null(blocks);
	assert_non_null(block);
	return blocks[nblocks++] = block;
}

json_t *conform_keep_json(json_t *v)
{
	if (v)
		assert_int_equal(json_array_append_new(values, v), 0);
	return v;
}

struct sbx *conform_api(void)
{
	return api;
}

/* --- the group ------------------------------------------------------------------------------- */

static int open_api(const char *endpoint)
{
	struct sbx_options opt = { .endpoint = endpoint,
		.ca_file = getenv("SANDBOX_CONFORMANCE_CA"),
		.timeout_ms = CONFORM_CALL_MS };
	struct sbx_error e;
	const char *token = getenv("SANDBOX_CONFORMANCE_TOKEN");

	if (token)
		setenv("SBX_TOKEN", token, 1);
	if (sbx_open(&opt, &api, &e) < 0) {
		fprintf(stderr, "conformance: %s\n", e.message);
		return -1;
	}
	return 0;
}

static int server_up(void **state)
{
	const char *endpoint = getenv("SANDBOX_CONFORMANCE_ENDPOINT");
	struct sbx_response r = { 0 };
	struct sbx_error e;

	(void)state;
	if (!endpoint) {
		rig = rig_new(conf);
		endpoint = rig->endpoint;
	}
	if (open_api(endpoint) < 0)
		return -1;
	if (sbx_call(api, &(struct sbx_request){ .method = "GET", .path = "/v1/capabilities" }, &r,
		    &e) < 0)
		return -1;
	caps = json_loadb(r.body, r.len, 0, NULL);
	sbx_response_free(&r);
	return caps ? 0 : -1;
}

static int server_down(void **state)
{
	(void)state;
	sbx_close(api);
	json_decref(caps);
	rig_free(rig);
	rig = NULL;
	return 0;
}

/* Limits so small that rows which wait for them can be run, and a policy that forbids something. */
static const char strict[] =
	"{\"limits\":{\"max_lifetime_secs\":7200,\"max_idle_timeout_secs\":3600,"
	"\"min_snapshot_every_secs\":2,\"max_snapshot_keep\":3},"
	"\"network\":{\"default\":{\"mode\":\"allowlist\",\"allow\":[\"github.com\"]},"
	"\"ceiling\":\"allowlist\",\"may_allow\":[\"*.example.com\"]}}";

int conform_run(const char *name, const struct CMUnitTest *tests, size_t n)
{
	static const struct rig_conf plain = { .linux_backend = true },
				     tight = { .linux_backend = true, .policy = strict };
	const struct rig_conf *const all[] = { &plain, &tight };
	size_t servers = getenv("SANDBOX_CONFORMANCE_ENDPOINT") ? 1 : ARRAY_LEN(all);
	int failed = 0;

	if (!getenv("SANDBOX_CONFORMANCE_ENDPOINT") && rig_linux_missing()) {
		printf("# skipped: %s\n", rig_linux_missing());
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	for (size_t i = 0; i < servers; i++) {
		conf = all[i];
		failed += _cmocka_run_group_tests(name, tests, n, server_up, server_down);
	}
	return failed;
}

int conform_each_begins(void **state)
{
	(void)state;
	values = json_array();
	paths = json_array();
	return values && paths ? 0 : -1;
}

int conform_each_ends(void **state)
{
	(void)state;
	for (size_t i = json_array_size(paths); i-- > 0;) {
		struct sbx_response r = { 0 };
		struct sbx_error e;
		struct sbx_request q = { .method = "DELETE",
			.path = json_string_value(json_array_get(paths, i)) };
		if (sbx_call(api, &q, &r, &e) == 0)
			sbx_response_free(&r);
	}
	json_decref(values);
	json_decref(paths);
	while (nblocks)
		free(blocks[--nblocks]);
	free(blocks);
	blocks = NULL;
	return 0;
}

json_t *conform_caps(void)
{
	return caps;
}

bool conform_can(const char *capability)
{
	return json_is_true(json_object_get(json_object_get(caps, "capabilities"), capability));
}

long conform_limit(const char *name)
{
	return num(json_object_get(caps, "limits"), name);
}

/* --- values ---------------------------------------------------------------------------------- */

json_t *J(const char *fmt, ...)
{
	json_error_t why;
	json_t *v;
	va_list ap;

	va_start(ap, fmt);
	v = json_vpack_ex(&why, 0, fmt, ap);
	va_end(ap);
	if (!v)
		fail_msg("%s: %s", fmt, why.text);
	return v;
}

json_t *argv_of(const char *first, ...)
{
	json_t *list = json_array();
	va_list ap;

	va_start(ap, first);
	for (const char *a = first; a; a = va_arg(ap, const char *))
		json_array_append_new(list, json_string(a));
	va_end(ap);
	return J("{s:o}", "argv", list);
}

json_t *with(json_t *object, const char *key, json_t *value)
{
	assert_int_equal(json_object_set_new(object, key, value), 0);
	return object;
}

const char *str(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

long num(const json_t *object, const char *key)
{
	return (long)json_integer_value(json_object_get(object, key));
}

const char *unused_name(void)
{
	static unsigned n;
	char *name = NULL;

	assert_true(asprintf(&name, "conf-%d-%u", (int)getpid(), ++n) > 0);
	return conform_keep(name);
}

void pause_ms(int ms)
{
	rig_pause(ms);
}

/* --- calls ----------------------------------------------------------------------------------- */

static int call(const char *method, const char *path, json_t *body, struct sbx_response *r,
	struct sbx_error *e)
{
	_cleanup_free_ char *text = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	struct sbx_request q = { .method = method,
		.path = path,
		.body = text,
		.body_len = text ? strlen(text) : 0,
		.timeout_ms = CONFORM_CALL_MS };

	json_decref(body);
	return sbx_call(api, &q, r, e);
}

json_t *ask(const char *method, const char *path, json_t *body)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	json_t *v = NULL;

	if (call(method, path, body, &r, &e) < 0)
		fail_msg("%s %s: %s: %s", method, path, e.code, e.message);
	if (r.len) {
		v = json_loadb(r.body, r.len, JSON_REJECT_DUPLICATES, NULL);
		if (!v)
			fail_msg("%s %s: not JSON: %s", method, path, r.body);
	}
	sbx_response_free(&r);
	return conform_keep_json(v);
}

const char *refused(const char *code, const char *method, const char *path, json_t *body)
{
	_cleanup_free_ char *sent = body ? json_dumps(body, JSON_ENCODE_ANY) : NULL;
	struct sbx_response r = { 0 };
	struct sbx_error e;

	if (call(method, path, body, &r, &e) == 0)
		fail_msg("%s %s %s: succeeded, wanted %s: %s", method, path, sent ? sent : "", code,
			r.body);
	if (!e.status || (*code && strcmp(e.code, code)))
		fail_msg("%s %s %s: %d %s (%s), wanted %s", method, path, sent ? sent : "",
			e.status, e.code, e.message, code);
	return conform_keep(strdup(e.message));
}

void refused_bytes(const char *code, const char *method, const char *path, const char *text)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	struct sbx_request q = { .method = method,
		.path = path,
		.body = text,
		.body_len = strlen(text),
		.body_type = "application/octet-stream" };

	if (sbx_call(api, &q, &r, &e) == 0)
		fail_msg("%s %s: succeeded, wanted %s", method, path, code);
	if (strcmp(e.code, code))
		fail_msg("%s %s: %s (%s), wanted %s", method, path, e.code, e.message, code);
}

void conform_escape(char **at, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (isalnum((unsigned char)text[i]) || (text[i] && strchr("-._~", text[i])))
			*(*at)++ = text[i];
		else
			*at += sprintf(*at, "%%%02X", (unsigned char)text[i]);
	**at = '\0';
}

const char *at(const char *fmt, ...)
{
	char *buf = conform_keep(calloc(1, 4096)), *to = buf;
	va_list ap;

	va_start(ap, fmt);
	while (*fmt) {
		if (!strncmp(fmt, "%s", 2)) {
			const char *s = va_arg(ap, const char *);
			conform_escape(&to, s, strlen(s));
			fmt += 2;
		} else if (!strncmp(fmt, "%ld", 3)) {
			to += sprintf(to, "%ld", va_arg(ap, long));
			fmt += 3;
		} else {
			*to++ = *fmt++;
		}
	}
	va_end(ap);
	return buf;
}

void later_delete(const char *path)
{
	assert_int_equal(json_array_append_new(paths, json_string(path)), 0);
}

/* --- sandboxes ------------------------------------------------------------------------------- */

json_t *box_made(json_t *spec)
{
	json_t *v = ask("POST", "/v1/sandboxes", spec ? spec : json_object());

	later_delete(at("/v1/sandboxes/%s", str(v, "id")));
	return v;
}

const char *box(json_t *spec)
{
	return str(box_made(spec), "id");
}

json_t *box_get(const char *ref)
{
	return ask("GET", at("/v1/sandboxes/%s", ref), NULL);
}

void box_end(const char *ref)
{
	ask("DELETE", at("/v1/sandboxes/%s", ref), NULL);
}

static json_t *listed(const char *id)
{
	json_t *s;
	size_t i;

	json_array_foreach (json_object_get(ask("GET", "/v1/sandboxes", NULL), "sandboxes"), i, s)
		if (!strcmp(str(s, "id"), id))
			return s;
	fail_msg("%s is not listed", id);
	return NULL;
}

void box_wait_ended(const char *ref, int ms, bool in_listing)
{
	for (int waited = 0; waited < patience_ms(30000); waited += ms) {
		json_t *s = in_listing ? listed(ref) : box_get(ref);
		if (!strcmp(str(s, "state"), "terminated"))
			return;
		pause_ms(ms);
	}
	fail_msg("%s has not ended in time", ref);
}
