/* SPDX-License-Identifier: MIT */
/* guestfs.c against a worker that lies: every row is one answer to one request, and each must end
 * as an error of ours, without a read behind a buffer and without waiting. */
#include "tests/support/test.h"

#include "common/sys/fd.h"
#include "sandboxd/backend/guestfs_check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct reply {
	uint32_t len; /* of the frame; 0: what fits */
	uint16_t op;  /* 0: the request's */
	uint64_t tag_add;
	int64_t value;
	struct files_rep rep;
	const void *data;
	size_t data_len;
	size_t cut; /* bytes left out at the end; then the connection is closed */
};
struct row {
	const char *name;
	enum files_op op;
	struct guestfs_args a;
	struct reply r;
	enum err_code code; /* ERR_NONE: the call succeeds */
};
struct peer {
	int fd;
	const struct row *row;
};

static void answer(int fd, const struct proto_frame *q, const struct reply *r)
{
	char buf[8192];
	struct proto_frame f = *q;
	struct files_rep rep = r->rep;
	size_t n = sizeof(f) + sizeof(rep) + r->data_len;

	f.len = r->len ? r->len : (uint32_t)(sizeof(rep) + r->data_len);
	f.op = r->op ? r->op : q->op;
	f.tag += r->tag_add;
	f.value = r->value;
	if (!rep.data_len)
		rep.data_len = (uint32_t)r->data_len;
	assert_true(n <= sizeof(buf));
	memcpy(buf, &f, sizeof(f));
	memcpy(buf + sizeof(f), &rep, sizeof(rep));
	if (r->data_len)
		memcpy(buf + sizeof(f) + sizeof(rep), r->data, r->data_len);
	(void)fd_send_full(fd, buf, n - r->cut, 1000);
}

static void *serve(void *arg)
{
	struct peer *p = arg;
	struct proto_frame f;
	char rest[8192];

	while (fd_recv_full(p->fd, &f, sizeof(f), 10000) == 0 && f.len <= sizeof(rest) &&
		fd_recv_full(p->fd, rest, f.len, 10000) == 0) {
		answer(p->fd, &f, &p->row->r);
		if (p->row->r.cut)
			break;
	}
	shutdown(p->fd, SHUT_RDWR);
	return NULL;
}

static int dial(void *arg, int *ret_fd, struct err *e)
{
	int *fd = arg;

	if (*fd < 0)
		return err_set(e, ERR_UNAVAILABLE, "no second connection");
	*ret_fd = *fd;
	*fd = -1;
	return 0;
}

static int ignore(void *arg, const struct guestfs_entry *en, struct err *e)
{
	(void)arg;
	(void)en;
	(void)e;
	return 0;
}

static int run(struct guestfs *fs, const struct row *row, struct err *e)
{
	struct guestfs_result res = { .data = NULL };
	struct guestfs_page page = { .cursor = 0 };
	char small[16];
	size_t n;

	if (row->op == FILES_LIST)
		return guestfs_list(fs, "/", &page, ignore, NULL, e);
	if (row->op == FILES_READ)
		return guestfs_read(fs, 0, 1, 0, small, sizeof(small), &n, e);
	if (guestfs_call(fs, row->op, &row->a, &res, e) < 0)
		return -1;
	guestfs_result_free(&res);
	return 0;
}

static void check_row(void **state)
{
	const struct row *row = *state;
	struct guestfs *fs;
	struct err e = ERR_NULL;
	int pair[2];
	pthread_t t;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	struct peer p = { .fd = pair[1], .row = row };
	assert_int_equal(pthread_create(&t, NULL, serve, &p), 0);
	assert_int_equal(guestfs_new_on(dial, &pair[0], &fs, NULL), 0);
	int r = run(fs, row, &e);
	guestfs_free(fs);
	pthread_join(t, NULL);
	close(p.fd);
	assert_int_equal(r, row->code == ERR_NONE ? 0 : -1);
	assert_int_equal(e.code, row->code);
}

#define ATTR                                                                                       \
	{                                                                                          \
		.mode = S_IFREG | 0644, .size = 3                                                  \
	}
/* Entries as a worker would pack them. */
struct packed_entry {
	struct files_entry head;
	char name[16];
} __attribute__((packed));
static const struct packed_entry
	slash = { { .attr = ATTR, .name_len = 3 }, "a/b" },
	dotdot = { { .attr = ATTR, .name_len = 2 }, ".." },
	dot = { { .attr = ATTR, .name_len = 1 }, "." },
	empty = { { .attr = ATTR, .name_len = 0 }, "" },
	nul = { { .attr = ATTR, .name_len = 3 }, "a\0b" },
	longer = { { .attr = ATTR, .name_len = 200 }, "abc" },
	endless = { { .attr = ATTR, .name_len = 0xffffffff }, "abc" },
	target = { { .attr = ATTR, .name_len = 3, .target_len = 0xfffffff0 }, "abc" },
	wide = { { .attr = { .size = UINT64_MAX }, .name_len = 3 }, "abc" },
	good = { { .attr = ATTR, .name_len = 3 }, "abc" };
#define ENTRY(x, n) .data = &(x), .data_len = sizeof(struct files_entry) + (n)
#define END                                                                                        \
	{                                                                                          \
		.flags = FILES_REP_END                                                             \
	}

#define A(...)                                                                                     \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define ROW(text, want, what, args, ...)                                                           \
	{                                                                                          \
		.name = text, .op = what, .a = args, .r = { __VA_ARGS__ }, .code = want            \
	}
#define STAT(text, want, ...) ROW(text, want, FILES_STAT, { .path = "/" }, __VA_ARGS__)
#define LIST(text, want, ...) ROW(text, want, FILES_LIST, { .path = "/" }, __VA_ARGS__)
static const struct row rows[] = {
	STAT("sound stat passes", ERR_NONE, .rep = { .attr = ATTR }),
	STAT("wrong tag", ERR_INTERNAL, .tag_add = 1),
	STAT("wrong operation", ERR_INTERNAL, .op = FILES_OPEN),
	STAT("frame shorter than its head", ERR_INTERNAL, .len = 8),
	STAT("frame of four gigabytes", ERR_INTERNAL, .len = 0xffffffff),
	STAT("frame larger than this answer may be", ERR_INTERNAL,
		.len = sizeof(struct files_rep) + 4097),
	STAT("data length beside the frame's", ERR_INTERNAL, .rep = { .data_len = 5 }),
	STAT("cut in the head", ERR_UNAVAILABLE, .cut = sizeof(struct files_rep) + 4),
	STAT("cut in the attributes", ERR_UNAVAILABLE, .cut = 4),
	STAT("cut in the data", ERR_UNAVAILABLE, .data = "abc", .data_len = 3, .cut = 2),
	STAT("error that is none", ERR_INTERNAL, .value = -5000),
	STAT("smallest number as error", ERR_INTERNAL, .value = INT64_MIN),
	STAT("refusal with data", ERR_INTERNAL, .value = -ENOENT, .data = "abc", .data_len = 3),
	STAT("sound refusal passes on", ERR_NOT_FOUND, .value = -ENOENT),
	STAT("not a regular file is 400", ERR_INVALID_REQUEST, .value = -FILES_E_NOTREG),
	STAT("system file is refused", ERR_REFUSED, .value = -FILES_E_REFUSED),
	STAT("raced path is a conflict", ERR_CONFLICT, .value = -FILES_E_RACED),
	STAT("size above 2^63", ERR_INTERNAL,
		.rep = { .attr = { .mode = S_IFREG, .size = UINT64_MAX } }),
	STAT("a second of 1e9 nanoseconds", ERR_INTERNAL,
		.rep = { .attr = { .mode = S_IFREG, .mtime = { .nsec = 1000000000 } } }),
	STAT("mode of 32 bits", ERR_INTERNAL, .rep = { .attr = { .mode = 0xffffffff } }),
	STAT("link text with NUL", ERR_INTERNAL, .data = "a\0b", .data_len = 3),
	LIST("sound page passes", ERR_NONE, .rep = END, ENTRY(good, 3)),
	LIST("name with a slash", ERR_INTERNAL, .rep = END, ENTRY(slash, 3)),
	LIST("name ..", ERR_INTERNAL, .rep = END, ENTRY(dotdot, 2)),
	LIST("name .", ERR_INTERNAL, .rep = END, ENTRY(dot, 1)),
	LIST("empty name", ERR_INTERNAL, .rep = END, ENTRY(empty, 0)),
	LIST("name with NUL", ERR_INTERNAL, .rep = END, ENTRY(nul, 3)),
	LIST("name longer than the page", ERR_INTERNAL, .rep = END, ENTRY(longer, 3)),
	LIST("name of four gigabytes", ERR_INTERNAL, .rep = END, ENTRY(endless, 3)),
	LIST("link text of four gigabytes", ERR_INTERNAL, .rep = END, ENTRY(target, 3)),
	LIST("entry's size above 2^63", ERR_INTERNAL, .rep = END, ENTRY(wide, 3)),
	LIST("half an entry", ERR_INTERNAL, .rep = END, .data = &good, .data_len = 20),
	LIST("page that neither ends nor goes on", ERR_INTERNAL, .value = 0),
	ROW("open without a handle", ERR_INTERNAL, FILES_OPEN, A(.path = "/"),
		.rep = { .attr = ATTR }),
	ROW("inline data that nobody wanted", ERR_INTERNAL, FILES_OPEN, A(.path = "/"),
		.rep = { .handle = 1, .attr = ATTR }, .data = "abc", .data_len = 3),
	ROW("more data than the buffer", ERR_INTERNAL, FILES_READ, A(.handle = 1),
		.data = "0123456789abcdef!", .data_len = 17),
	ROW("wrote more than was given", ERR_INTERNAL, FILES_WRITE,
		A(.handle = 1, .data = "x", .data_len = 1), .value = 2),
	ROW("copied more than was asked", ERR_INTERNAL, FILES_COPY,
		A(.handle = 1, .handle2 = 2, .length = 10), .value = 11),
	ROW("upload without a handle", ERR_INTERNAL, FILES_PUT_BEGIN, A(.path = "/"), .value = 0),
	ROW("half a statfs", ERR_INTERNAL, FILES_STATFS, A(.path = "/"), .data = "abc",
		.data_len = 3),
	ROW("count of bytes above 2^63", ERR_INTERNAL, FILES_CLOSE, A(.handle = 1),
		.rep = { .bytes_written = UINT64_MAX }),
};

/* A worker that keeps its silence when the client of a stream has gone does not keep our thread. */
struct silence {
	int worker;
	unsigned looks;
};

static bool give_in(void *arg)
{
	struct silence *s = arg;

	if (++s->looks == 20)
		shutdown(s->worker, SHUT_RDWR);
	return false;
}

static void a_stream_ends_with_its_client(void **state)
{
	int pair[2], client[2], conn;
	struct silence s = { .looks = 0 };
	struct guestfs_watch w = { .stop = give_in, .arg = &s };
	struct err e = ERR_NULL;
	struct guestfs *fs;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
	s.worker = pair[1];
	conn = pair[0];
	assert_int_equal(guestfs_new_on(dial, &conn, &fs, NULL), 0);
	assert_true(guestfs_stream_begin(fs));
	close(client[1]);
	assert_int_equal(guestfs_stream(fs, 1, client[0], &w, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	assert_true(s.looks < 20);
	guestfs_stream_end(fs);
	guestfs_free(fs);
	close(client[0]);
	close(pair[1]);
}

static void count_one(void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	(void)path;
	(void)read;
	(void)written;
	(void)flags;
	++*(unsigned *)arg;
}

/* The log is everybody's: one sandbox's worker gets a share of it, however much it tells of at a time. */
static void what_a_worker_tells_of_has_a_rate(void **state)
{
	enum { AT_A_TIME = 8192, TIMES = 40 };
	const size_t one = sizeof(struct files_closed);
	_cleanup_free_ char *data = calloc(AT_A_TIME, one);
	const struct guestfs_result r = { .data = data, .data_len = AT_A_TIME * one };
	unsigned told = 0, seen = 0;
	struct guestfs *fs;
	int none = -1;

	(void)state;
	assert_int_equal(guestfs_new_on(dial, &none, &fs, NULL), 0);
	for (int i = 0; i < TIMES; i++)
		seen += guestfs_tell_done(fs, &r, count_one, &told);
	guestfs_free(fs);
	assert_int_equal(seen, AT_A_TIME * TIMES);
	assert_in_range(told, 60000, 130000);
}

int main(void)
{
	struct CMUnitTest tests[ARRAY_LEN(rows) + 2] = {
		[ARRAY_LEN(rows)] = cmocka_unit_test(a_stream_ends_with_its_client),
		[ARRAY_LEN(rows) + 1] = cmocka_unit_test(what_a_worker_tells_of_has_a_rate),
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		tests[i] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func = check_row,
			.initial_state = (void *)(uintptr_t)&rows[i],
		};
	return run_table(tests);
}
