/* SPDX-License-Identifier: MIT */
/* What a server says, as the mount takes it: every refusal has its errno, and an answer that lies about
 * names, sizes or shape is dropped or refused, never believed. No kernel is needed. */
#include "sbxfs/box.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/peer.h"

#define BOX "sbx_0123456789abcdef"
#define ATTR "\"type\":\"file\",\"mode\":2541,\"uid\":1001,\"gid\":1001,\"nlink\":1,\"size\":%s,\"blocks\":8," \
	"\"ino\":7,\"dev\":1,\"gen\":1,\"atime\":\"1.5\",\"mtime\":\"-1.500000000\",\"ctime\":\"3.0\"," \
	"\"version\":\"v\""

/* What the peer answers to everything but the capabilities. */
struct script {
	int status;
	const char *body;
	bool cut; /* closes in the middle */
};

static void say(int fd, int status, const char *body, size_t announced)
{
	char head[256];

	(void)snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n", status, announced);
	peer_say(fd, head);
	peer_say(fd, body);
}

static void serve(int fd, int nth, void *arg)
{
	static const char caps[] = "{\"api_version\":\"v1\",\"capabilities\":{\"fs_stat\":true,"
		"\"fs_list\":true,\"fs_open\":true,\"fs_ops\":true,\"errno\":true}}";
	const struct script *s = arg;
	char buf[8192];

	(void)nth;
	while (peer_request(fd, buf, sizeof(buf))) {
		if (strstr(buf, "/v1/capabilities"))
			say(fd, 200, caps, strlen(caps));
		else if (!s->cut)
			say(fd, s->status, s->body, strlen(s->body));
		else {
			say(fd, s->status, s->body, strlen(s->body) + 10);
			return;
		}
	}
}

struct rig {
	struct peer *peer;
	struct sbx *sbx;
	struct mount m;
	struct req q;
};

static void rig_start(struct rig *r, struct script *s)
{
	struct options o = { .max_threads = 1 };
	struct sbx_options so = { 0 };
	struct sbx_error e;

	memset(r, 0, sizeof(*r));
	r->peer = peer_start(serve, s);
	assert_non_null(r->peer);
	so.endpoint = peer_endpoint(r->peer);
	assert_int_equal(sbx_open(&so, &r->sbx, &e), 0);
	assert_int_equal(mount_init(&r->m, &o, r->sbx), 0);
	r->q = (struct req){ .m = &r->m, .op = "test", .start_ms = now_ms() };
}

static void rig_stop(struct rig *r)
{
	mount_fini(&r->m);
	sbx_close(r->sbx);
	peer_stop(r->peer);
}

static void every_refusal_has_its_errno(void **state)
{
	static const struct {
		int status;
		const char *body;
		int want;
	} rows[] = {
#define REFUSAL(code, msg) "{\"error\":{\"code\":\"" code "\",\"message\":\"" msg "\"}}"
#define EXACT(code, sys) "{\"error\":{\"code\":\"" code "\",\"message\":\"m\",\"errno\":\"" sys "\"}}"
		{ 400, REFUSAL("invalid_request", "m"), EINVAL },
		{ 401, REFUSAL("unauthorized", "m"), EACCES },
		{ 403, REFUSAL("refused", "m"), EPERM },
		{ 403, REFUSAL("forbidden_origin", "m"), EACCES },
		{ 404, REFUSAL("not_found", "m"), ENOENT },
		{ 409, REFUSAL("conflict", "m"), EBUSY },
		{ 409, REFUSAL("conflict", "a read-only place"), EROFS },
		{ 409, REFUSAL("conflict", "sandbox is terminated, not running"), ESTALE },
		{ 413, REFUSAL("invalid_request", "m"), EFBIG },
		{ 415, REFUSAL("invalid_request", "m"), EPROTO },
		{ 500, REFUSAL("internal", "m"), EIO },
		{ 501, REFUSAL("unsupported", "m"), EOPNOTSUPP },
		{ 503, REFUSAL("unavailable", "m"), EAGAIN },
		{ 409, EXACT("conflict", "ENOTEMPTY"), ENOTEMPTY },
		{ 409, EXACT("conflict", "ENOSPC"), ENOSPC },
		{ 400, EXACT("invalid_request", "EISDIR"), EISDIR },
		{ 200, "[]", EPROTO },
		{ 200, "{\"id\":\"../../etc\"}", EPROTO },
		{ 200, "no json", EPROTO },
	};

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		struct script s = { .status = rows[n].status, .body = rows[n].body };
		struct rig r;
		json_t *o = NULL;

		rig_start(&r, &s);
		int rc = box_get(&r.q, BOX, &o);
		if (rc != -rows[n].want)
			fail_msg("%d %s: %s", rows[n].status, rows[n].body, strerror(-rc));
		assert_true(r.q.err.message[0] != '\0');
		rig_stop(&r);
	}
}

static void attributes_are_checked(void **state)
{
	static const struct {
		const char *size, *extra;
		bool ok;
	} rows[] = { { "12", "", true }, { "0", "", true }, { "-1", "", false }, { "1.5", "", false },
		{ "\"12\"", "", false }, { "9223372036854775807", "", true }, { "null", "", false } };

	(void)state;
	for (size_t n = 0; n < sizeof(rows) / sizeof(rows[0]); n++) {
		char body[1024];
		struct script s = { .status = 200, .body = body };
		struct tree_attr a = { .target = NULL };
		struct rig r;

		(void)snprintf(body, sizeof(body), "{" ATTR "}", rows[n].size);
		rig_start(&r, &s);
		int rc = wire_stat(&r.q, BOX, "/x", &a);
		assert_int_equal(rc, rows[n].ok ? 0 : -EPROTO);
		if (rc == 0) {
			/* set-id bits are not shown; half a second before -1 */
			assert_int_equal(a.st.st_mode, S_IFREG | 0755);
			assert_int_equal(a.st.st_mtim.tv_sec, -2);
			assert_int_equal(a.st.st_mtim.tv_nsec, 500000000);
		}
		tree_attr_fini(&a);
		rig_stop(&r);
	}
}

static int collect(void *arg, const char *name, struct tree_attr *attr)
{
	(void)attr;
	strcat(arg, name);
	strcat(arg, "|");
	return 0;
}

static int list(struct script *s, char *names)
{
	struct rig r;
	int rc;

	rig_start(&r, s);
	names[0] = '\0';
	rc = wire_list(&r.q, BOX, "/", collect, names, NULL);
	rig_stop(&r);
	return rc;
}

#define REST "\"type\":\"file\",\"mode\":420,\"uid\":0,\"gid\":0,\"nlink\":1,\"size\":1,\"blocks\":8,\"ino\":7," \
	"\"dev\":1,\"gen\":1,\"atime\":\"1\",\"mtime\":\"1\",\"ctime\":\"1\",\"version\":\"v\"}\n"
#define ENTRY(name) "{\"name\":" name "," REST

static void evil_names_are_dropped(void **state)
{
	struct script s = { .status = 200, .body = ENTRY("\"good\"") ENTRY("\"..\"") ENTRY("\".\"")
		ENTRY("\"\"") ENTRY("\"a/b\"") ENTRY("\"a\\u0000b\"") ENTRY("7")
		"{\"name\":\"x\",\"name_b64\":\"YgBj\"," REST /* a NUL inside */
		"{\"name\":\"x\",\"name_b64\":\"not base64\"," REST
		"{\"name\":\"x\",\"name_b64\":\"Yf8=\"," REST
		"{\"end\":true}\n" };
	char names[1000];

	(void)state;
	assert_int_equal(list(&s, names), 0);
	assert_string_equal(names, "good|a\xff|");
}

static void a_listing_that_is_cut_is_an_error(void **state)
{
	struct script whole = { .status = 200, .body = ENTRY("\"a\"") };
	struct script broken = { .status = 200, .body = ENTRY("\"a\"") "{\"name\":" };
	struct script cut = { .status = 200, .body = ENTRY("\"a\"") "{\"end\":true}\n", .cut = true };
	struct script late = { .status = 200, .body = ENTRY("\"a\"")
		"{\"error\":{\"code\":\"conflict\",\"message\":\"m\",\"errno\":\"ELOOP\"}}\n" };
	char names[1000];

	(void)state;
	assert_int_equal(list(&whole, names), -EIO);
	assert_int_equal(list(&broken, names), -EIO);
	assert_true(list(&cut, names) < 0);
	assert_int_equal(list(&late, names), -ELOOP);
}

static void an_endless_line_is_refused(void **state)
{
	char *body = malloc(300001), names[1000];
	struct script s = { .status = 200, .body = body };

	(void)state;
	memset(body, 'x', 300000);
	body[300000] = '\0';
	assert_int_equal(list(&s, names), -EPROTO);
	free(body);
}

static void without_a_server_the_second_try_costs_nothing(void **state)
{
	struct script s = { .status = 200, .body = "{}" };
	struct rig r;
	json_t *o;

	(void)state;
	rig_start(&r, &s);
	peer_stop(r.peer);
	assert_true(box_get(&r.q, BOX, &o) < 0);
	uint64_t before = now_ms();
	for (int n = 0; n < 100; n++)
		assert_int_equal(box_get(&r.q, BOX, &o), -EHOSTDOWN);
	assert_true(now_ms() - before < 5000);
	assert_true(remote_is_down(&r.m));
	r.peer = NULL;
	mount_fini(&r.m);
	sbx_close(r.sbx);
}

static void what_the_server_lacks_is_not_asked_for(void **state)
{
	struct script s = { .status = 200, .body = "{}" };
	struct rig r;

	(void)state;
	rig_start(&r, &s);
	assert_int_equal(remote_need(&r.q, CAP_SUSPEND, "suspend a sandbox"), -EOPNOTSUPP);
	assert_non_null(strstr(r.q.err.message, "suspend"));
	assert_true(remote_has(&r.q, CAP_FS_LIST));
	rig_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_refusal_has_its_errno),
		cmocka_unit_test(attributes_are_checked),
		cmocka_unit_test(evil_names_are_dropped),
		cmocka_unit_test(a_listing_that_is_cut_is_an_error),
		cmocka_unit_test(an_endless_line_is_refused),
		cmocka_unit_test(without_a_server_the_second_try_costs_nothing),
		cmocka_unit_test(what_the_server_lacks_is_not_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
