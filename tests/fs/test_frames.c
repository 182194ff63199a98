/* SPDX-License-Identifier: MIT */
/* A peer of sbx-fs/1 that lies: each row answers one question of the mount with frames of its own. What
 * breaks a rule ends the connection, and the plain way answers; what is well formed and impossible is
 * an error. Nothing hangs and nothing is believed. No kernel is needed. */
#include "sbxfs/fs1.h"
#include "sbxfs/treefs.h"

#include "common/sys/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/support/peer.h"

#define BOX "sbx_0123456789abcdef"
#define PLAIN_SIZE 77
#define FRAME_SIZE 12

/* What is wrong with the answer to a STAT. */
struct lie {
	const char *name;
	int want;      /* of wire_stat */
	off_t size;    /* of what it gave */
	int64_t value; /* the answer's */
	uint64_t tag_more, size_more;
	int op_more, flags, len_more, data_more, nsec, mode;
	bool cut, silent_close;
	unsigned version, hello_less;
	const char *push; /* before the answer */
	size_t push_len;
};
struct rig {
	const struct lie *lie;
	struct peer *peer;
	struct sbx *sbx;
	struct mount m;
	struct req q;
	int asked;
};

static void put(int fd, const void *buf, size_t len)
{
	(void)fd_send_full(fd, buf, len, 5000);
}

static bool get_request(int fd, struct fs_frame *f, struct files_req *r)
{
	char rest[FILES_PATH_MAX * 2];

	return recv(fd, f, sizeof(*f), MSG_WAITALL) == (ssize_t)sizeof(*f) &&
		recv(fd, r, sizeof(*r), MSG_WAITALL) == (ssize_t)sizeof(*r) &&
		(f->len == sizeof(*r) ||
			recv(fd, rest, f->len - sizeof(*r), MSG_WAITALL) == (ssize_t)(f->len - sizeof(*r)));
}

static void hello(int fd, const struct lie *l)
{
	struct fs_hello h = { .data_max = FILES_DATA_MAX, .inflight_max = 128 };
	struct files_rep rep = { .data_len = sizeof(h) - l->hello_less };
	struct fs_frame f = { .len = (uint32_t)sizeof(rep) + rep.data_len, .op = FILES_HELLO, .tag = 1,
		.value = l->version ? l->version : FS_VERSION };

	put(fd, &f, sizeof(f));
	put(fd, &rep, sizeof(rep));
	put(fd, &h, rep.data_len);
}

static void push(int fd, const struct lie *l)
{
	struct files_rep rep = { .data_len = (uint32_t)l->push_len };
	struct fs_frame f = { .len = (uint32_t)(sizeof(rep) + l->push_len), .op = FILES_INVAL, .value = 1 };

	put(fd, &f, sizeof(f));
	put(fd, &rep, sizeof(rep));
	put(fd, l->push, l->push_len);
}

static void answer(int fd, const struct lie *l, const struct fs_frame *q)
{
	struct files_rep rep = { .data_len = (uint32_t)l->data_more, .attr = { .mode = S_IFREG | 0644, .nlink = 1,
		.size = FRAME_SIZE + l->size_more, .ino = 7 } };
	struct fs_frame f = { .len = (uint32_t)((int)sizeof(rep) + l->data_more + l->len_more),
		.op = (uint16_t)(q->op + l->op_more), .flags = (uint16_t)l->flags, .tag = q->tag + l->tag_more,
		.value = l->value };
	char data[8192] = { 0 };

	if (l->mode)
		rep.attr.mode = (uint32_t)l->mode;
	rep.attr.mtime.nsec = (uint32_t)l->nsec;
	put(fd, &f, l->cut ? 7 : sizeof(f));
	if (l->cut)
		return;
	put(fd, &rep, sizeof(rep));
	put(fd, data, (size_t)l->data_more);
}

static void speak(int fd, struct rig *r)
{
	struct files_req req;
	struct fs_frame f;

	if (!get_request(fd, &f, &req))
		return;
	hello(fd, r->lie);
	while (get_request(fd, &f, &req)) {
		if (f.op != FILES_STAT)
			continue;
		r->asked++;
		if (r->lie->silent_close)
			return;
		if (r->lie->push)
			push(fd, r->lie);
		answer(fd, r->lie, &f);
		if (r->lie->cut)
			return;
	}
}

static void say(int fd, const char *body)
{
	char head[160];

	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 X\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n", strlen(body));
	peer_say(fd, head);
	peer_say(fd, body);
}

static void serve(int fd, int nth, void *arg)
{
	char buf[8192];

	(void)nth;
	while (peer_request(fd, buf, sizeof(buf))) {
		if (strstr(buf, "Upgrade: sbx-fs/1")) {
			peer_say(fd, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: sbx-fs/1\r\n\r\n");
			speak(fd, arg);
			return;
		}
		say(fd, strstr(buf, "/v1/capabilities") ?
			"{\"capabilities\":{\"fs_stat\":true,\"fs_stream\":true}}" :
			"{\"type\":\"file\",\"mode\":420,\"uid\":0,\"gid\":0,\"nlink\":1,\"size\":77,\"blocks\":8,"
			"\"ino\":7,\"dev\":1,\"gen\":1,\"atime\":\"1\",\"mtime\":\"1\",\"ctime\":\"1\",\"version\":\"v\"}");
	}
}

static void begin(struct rig *r, const struct lie *l, enum proto_mode proto)
{
	struct options o = { .max_threads = 1, .proto = proto };
	struct sbx_options so = { 0 };
	struct sbx_error e;

	memset(r, 0, sizeof(*r));
	r->lie = l;
	r->peer = peer_start(serve, r);
	so.endpoint = peer_endpoint(r->peer);
	assert_int_equal(sbx_open(&so, &r->sbx, &e), 0);
	assert_int_equal(mount_init(&r->m, &o, r->sbx), 0);
	r->q = (struct req){ .m = &r->m, .op = "test", .start_ms = now_ms() };
}

static void end(struct rig *r)
{
	mount_fini(&r->m);
	sbx_close(r->sbx);
	peer_stop(r->peer);
}

#define GIVES_FRAME .size = FRAME_SIZE
#define GIVES_PLAIN .size = PLAIN_SIZE
#define NAMES(s) .push = s, .push_len = sizeof(s) - 1

static const struct lie lies[] = {
	{ .name = "the truth", GIVES_FRAME },
	{ .name = "another version", GIVES_PLAIN, .version = 2 },
	{ .name = "a short hello", GIVES_PLAIN, .hello_less = 8 },
	{ .name = "a tag that was never given", GIVES_PLAIN, .tag_more = 128 },
	{ .name = "a tag of another slot", GIVES_PLAIN, .tag_more = 1 },
	{ .name = "another operation", GIVES_PLAIN, .op_more = 1 },
	{ .name = "frame flags", GIVES_PLAIN, .flags = 1 },
	{ .name = "a length that does not add up", GIVES_PLAIN, .len_more = 4 },
	{ .name = "a length below the least", GIVES_PLAIN, .len_more = -200 },
	{ .name = "more data than a link has", GIVES_PLAIN, .data_more = 8000 },
	{ .name = "a frame that is cut", GIVES_PLAIN, .cut = true },
	{ .name = "the end instead of an answer", GIVES_PLAIN, .silent_close = true },
	{ .name = "a push that is cut", GIVES_PLAIN, NAMES("\1\0\0\0\0\0\0\0\1\0\0\0\377\377\0\0x") },
	{ .name = "a push about nothing we watch", GIVES_FRAME,
		NAMES("\1\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0..\0\0\0\0\0\0\0\0\20\0\0\0\0\0\0\0") },
	{ .name = "a size beyond all files", .want = EPROTO, .size_more = UINT64_C(1) << 63 },
	{ .name = "more than a second of nanoseconds", .want = EPROTO, .nsec = 1000000000 },
	{ .name = "a type that there is not", .want = EPROTO, .mode = 0xf000 },
	{ .name = "an errno", .want = ENOENT, .value = -ENOENT },
	{ .name = "an errno that would count for the whole mount", .want = EOPNOTSUPP, .value = -ENOSYS },
	{ .name = "an errno that the kernel would repeat", .want = EIO, .value = -512 },
	{ .name = "no errno at all", .want = EIO, .value = INT64_MIN },
	{ .name = "a refusal of its own", .want = EPERM, .value = -FILES_E_REFUSED },
};

static void lies_are_not_believed(void **state)
{
	(void)state;
	for (size_t n = 0; n < sizeof(lies) / sizeof(lies[0]); n++) {
		struct tree_attr a = { .target = NULL };
		struct rig r;

		begin(&r, &lies[n], PROTO_AUTO);
		int rc = wire_stat(&r.q, BOX, "/x", &a);
		if (rc != -lies[n].want || (rc == 0 && a.st.st_size != lies[n].size))
			fail_msg("%s: %s, size %lld", lies[n].name, strerror(-rc), (long long)a.st.st_size);
		tree_attr_fini(&a);
		end(&r);
	}
}

static void without_the_option_nothing_is_opened(void **state)
{
	struct tree_attr a = { .target = NULL };
	struct rig r;

	(void)state;
	begin(&r, &lies[0], PROTO_HTTP);
	assert_int_equal(wire_stat(&r.q, BOX, "/x", &a), 0);
	assert_int_equal(a.st.st_size, PLAIN_SIZE);
	assert_int_equal(r.asked, 0);
	tree_attr_fini(&a);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lies_are_not_believed),
		cmocka_unit_test(without_the_option_nothing_is_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
