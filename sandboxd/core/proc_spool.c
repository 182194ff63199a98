/* SPDX-License-Identifier: MIT */
/* Spools from the front's side (proto/spool.h). Another process writes it while we read,
 * and it is not trusted: everything goes through pread, never through a mapping, as a file that is
 * cut short would end a mapping's reader with SIGBUS. Every number is cut to its bounds here. */
#include "sandboxd/core/proc_internal.h"

#include "common/json/json.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void spool_file_name(uint32_t num, char out[24])
{
	snprintf(out, 24, "spool%u", num / SPOOL_SLOTS);
}

off_t spool_at(uint32_t num)
{
	return (off_t)(num % SPOOL_SLOTS) * SPOOL_SIZE;
}

/* Exactly len bytes of a process's spool; what lies behind the file's end reads as zeros. */
static bool read_at(const struct proc *p, void *buf, size_t len, uint64_t offset)
{
	off_t at = spool_at(p->num) + (off_t)offset;
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(p->spool_fd, (char *)buf + got, len - got, at + (off_t)got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	memset((char *)buf + got, 0, len - got);
	return true;
}

static bool write_at(const struct proc *p, int fd, const void *buf, size_t len, uint64_t offset)
{
	return pwrite(fd, buf, len, spool_at(p->num) + (off_t)offset) == (ssize_t)len;
}

static char *meta_text(const struct proc *p, const char *cwd)
{
	_cleanup_json_ json_t *argv = json_array(), *o = NULL;

	for (char **a = p->argv; argv && *a; a++)
		if (json_array_append_new(argv, json_string(*a)) < 0)
			return NULL;
	o = json_pack("{s:O, s:s, s:b, s:s*, s:I}", "argv", argv, "cwd", cwd, "tty", p->tty, "name",
		p->name, "started_ns", (json_int_t)p->started_ns);
	return json_text(o);
}

/* The whole first page, and the record behind everything else when it is long. */
static bool write_record(const struct proc *p, int fd, const char *text, size_t len)
{
	struct spool_meta m = { .len = (uint32_t)len };
	bool near = len <= SPOOL_META_NEAR;
	char page[SPOOL_OUT] = "";

	memcpy(page + SPOOL_META, &m, sizeof(m));
	if (near)
		memcpy(page + SPOOL_META + sizeof(m), text, len);
	return write_at(p, fd, page, sizeof(page), 0) &&
	       (near || write_at(p, fd, text, len, SPOOL_META_FAR));
}

/* At the beginning of the process's spool: its position tells the shim where that is. */
static int open_slot(const struct proc *p, int flags)
{
	char name[24];
	int fd;

	spool_file_name(p->num, name);
	fd = openat(p->sandbox->run_dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
	if (fd >= 0)
		(void)lseek(fd, spool_at(p->num), SEEK_SET); /* cannot fail on a regular file */
	return fd;
}

int spool_create(const struct proc *p, const char *cwd, int *ret_fd, struct err *e)
{
	_cleanup_free_ char *text = meta_text(p, cwd);
	_cleanup_close_ int fd = -1;
	size_t len;

	if (!text)
		return err_oom(e);
	len = strlen(text);
	if (len > SPOOL_META_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "argv is too long");
	fd = open_slot(p, O_CREAT);
	if (fd < 0)
		return err_set_sys(e,
			errno == ENOSPC || errno == EMFILE || errno == ENFILE ? ERR_UNAVAILABLE
									      : ERR_INTERNAL,
			errno, "cannot make the output file");
	if (!write_record(p, fd, text, len))
		return err_set(e, ERR_UNAVAILABLE, "no room for the output file");
	*ret_fd = steal_fd(&fd);
	return 0;
}

void spool_clear(const struct proc *p)
{
	static const struct spool_meta none;

	if (p->spool_fd >= 0)
		(void)write_at(p, p->spool_fd, &none, sizeof(none), SPOOL_META);
}

static void free_blocks(const struct proc *p, uint64_t from, uint64_t to)
{
	/* Best effort: where it is not possible they go with the sandbox. */
	(void)fallocate(p->spool_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		spool_at(p->num) + (off_t)from, (off_t)(to - from));
}

void spool_free(const struct proc *p)
{
	spool_clear(p);
	free_blocks(p, 0, SPOOL_SIZE);
}

/* The kernel copies a page that somebody else is storing to, in no promised order. Two equal copies
 * in a row were not torn; and EXITED is the last store of all, so a copy made after it was seen is
 * final. A shim that changes its head faster than we can copy it twice is cut off after some tries.
 */
int spool_head_read(const struct proc *p, struct spool_head *ret)
{
	struct spool_head a, b;
	int tries = 100;

	if (!read_at(p, &a, sizeof(a), 0))
		return -1;
	do {
		b = a;
		if (!read_at(p, &a, sizeof(a), 0))
			return -1;
	} while (memcmp(&a, &b, sizeof(a)) && --tries > 0);
	if (a.magic != SPOOL_MAGIC)
		return -1;
	if (a.state > SPOOL_EXITED)
		a.state = SPOOL_RUNNING;
	for (size_t i = 0; i < 2; i++)
		if (a.kept[i] > SPOOL_CAP)
			a.kept[i] = SPOOL_CAP;
	if (a.runs > SPOOL_RUNS_MAX)
		a.runs = SPOOL_RUNS_MAX;
	*ret = a;
	return 0;
}

bool spool_order_read(const struct proc *p, uint32_t i, uint32_t *ret, uint32_t n)
{
	return i + n <= SPOOL_RUNS_MAX && read_at(p, ret, n * sizeof(*ret), SPOOL_ORDER + 4ull * i);
}

void spool_data_read(const struct proc *p, int stream, uint64_t offset, void *buf, size_t len)
{
	if (!read_at(p, buf, len, (stream ? SPOOL_ERR : SPOOL_OUT) + offset))
		memset(buf, 0, len);
}

int spool_meta_read(const struct proc *p, json_t **ret, uint32_t *ret_noted)
{
	_cleanup_free_ char *text = NULL;
	struct spool_meta m;

	if (!read_at(p, &m, sizeof(m), SPOOL_META) || m.len == 0 || m.len > SPOOL_META_MAX)
		return -1;
	text = malloc(m.len);
	if (!text || !read_at(p, text, m.len,
			     m.len <= SPOOL_META_NEAR ? SPOOL_META + sizeof(m) : SPOOL_META_FAR))
		return -1;
	*ret_noted = m.noted;
	return json_parse_any(text, m.len, SPOOL_META_MAX, ret, NULL);
}

void spool_note(const struct proc *p, uint32_t noted)
{
	/* Best effort: without it a restart logs the exit a second time. */
	(void)write_at(p, p->spool_fd, &noted, sizeof(noted),
		SPOOL_META + offsetof(struct spool_meta, noted));
}

void spool_drop_output(const struct proc *p)
{
	struct spool_head h;

	if (spool_head_read(p, &h) < 0)
		return;
	for (size_t i = 0; i < 2; i++) {
		h.dropped[i] += h.kept[i];
		h.kept[i] = 0;
	}
	h.runs = 0;
	(void)write_at(p, p->spool_fd, &h, sizeof(h), 0); /* the record says output_lost as well */
	free_blocks(p, SPOOL_OUT, SPOOL_META_FAR);
}

int proc_spool(struct proc *p)
{
	struct sandbox *s = p->sandbox;
	bool lost;
	int fd;

	pthread_mutex_lock(&s->lock);
	lost = p->output_lost;
	fd = lost ? -1 : p->spool_fd;
	pthread_mutex_unlock(&s->lock);
	if (fd >= 0 || lost)
		return fd;
	fd = open_slot(p, 0);
	if (fd < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	if (p->spool_fd < 0)
		p->spool_fd = steal_fd(&fd);
	int ret = p->spool_fd;
	pthread_mutex_unlock(&s->lock);
	close_p(&fd);
	return ret;
}

int proc_output_open(struct proc *p, struct err *e)
{
	errno = 0;
	if (proc_spool(p) >= 0 || !err_is_short(errno))
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "the server has no descriptor left for the output");
}
