/* SPDX-License-Identifier: MIT */
/* The front against a file worker that answers with the input's bytes: the first byte picks the
 * call, the second whether the frame's length is the input's or the true one, then come length and
 * value, then the rest of the answer. A call ends with a result within its bounds, or with an
 * error. */
#include "tests/fuzz/fuzz.h"

#include "sandboxd/backend/guestfs.h"

#include <sys/socket.h>
#include <unistd.h>

#define FILES_INPUT_MOST 100000 /* what a socket's buffer takes without a reader */

static int files_dial(void *arg, int *ret_fd, struct err *e)
{
	int *fd = arg;

	if (*fd < 0)
		return err_set(e, ERR_UNAVAILABLE, "no second connection");
	*ret_fd = *fd;
	*fd = -1;
	return 0;
}

static int files_entry(void *arg, const struct guestfs_entry *en, struct err *e)
{
	unsigned *n = arg;

	(void)e;
	promise(en->name_len > 0 && en->name_len <= 255 && strlen(en->name) == en->name_len);
	promise(!strchr(en->name, '/') && strcmp(en->name, ".") && strcmp(en->name, ".."));
	promise(!en->target ||
		(strlen(en->target) == en->target_len && en->target_len < FILES_PATH_MAX));
	promise(en->attr.size <= INT64_MAX);
	++*n;
	return 0;
}

static void files_expired(
	void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	(void)arg;
	(void)flags;
	promise(strlen(path) < FILES_PATH_MAX && read <= INT64_MAX && written <= INT64_MAX);
}

/* The answer in the socket's buffer, before anything is asked. */
static void files_say(int fd, enum files_op op, struct supply *s)
{
	bool own_len = supply_byte(s) & 1;
	struct proto_frame f = { .op = (uint16_t)op, .tag = 1 };

	for (int i = 0; i < 4; i++)
		f.len = f.len << 8 | supply_byte(s);
	for (int i = 0; i < 8; i++)
		f.value = (int64_t)((uint64_t)f.value << 8 | supply_byte(s));
	if (!own_len)
		f.len = (uint32_t)s->left;
	promise(send(fd, &f, sizeof(f), MSG_DONTWAIT) == (ssize_t)sizeof(f));
	if (s->left)
		promise(send(fd, s->p, s->left, MSG_DONTWAIT) == (ssize_t)s->left);
	shutdown(fd, SHUT_WR);
}

static void files_ask(struct guestfs *fs, enum files_op op)
{
	struct guestfs_args a = { .path = "/a",
		.path2 = "/b",
		.handle = op == FILES_CLOSE,
		.length = 4096,
		.data = "abc",
		.data_len = 3 };
	struct guestfs_result r = { .data = NULL };
	struct guestfs_page page = { .cursor = 0 };
	struct err e = ERR_NULL;
	unsigned seen = 0;
	char buf[4096];
	size_t n = 0;
	int rc;

	if (op == FILES_LIST) {
		rc = guestfs_list(fs, "/a", &page, files_entry, &seen, &e);
	} else if (op == FILES_READ) {
		rc = guestfs_read(fs, 0, 1, 0, buf, sizeof(buf), &n, &e);
		promise(n <= sizeof(buf));
	} else {
		rc = guestfs_call(fs, op, &a, &r, &e);
	}
	promise(rc == 0 || (e.code != ERR_NONE && e.msg[0]));
	promise(r.data_len <= 2 * 1024 * 1024 && r.attr.size <= INT64_MAX);
	guestfs_result_free(&r);
	guestfs_expired(fs, files_expired, NULL);
}

int fuzz_files(const uint8_t *data, size_t size)
{
	struct supply s = { data, size };
	enum files_op op = (enum files_op)(1 + supply_byte(&s) % (FILES_OP_COUNT - 1));
	struct guestfs *fs;
	int sv[2], far;

	if (size < 14 || size > FILES_INPUT_MOST)
		return 0;
	promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	far = sv[1];
	files_say(far, op, &s);
	promise(guestfs_new_on(files_dial, &sv[0], &fs, NULL) == 0);
	files_ask(fs, op);
	guestfs_free(fs);
	if (sv[0] >= 0)
		close(sv[0]);
	close(far);
	return 0;
}
