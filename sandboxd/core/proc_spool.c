/* SPDX-License-Identifier: MIT */
/* The spool file from the front's side (proto/spool.h). Another process writes it while we read,
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

static void spool_name(uint32_t num, char out[16])
{
	snprintf(out, 16, "p%u", num);
}

/* Exactly len bytes; what lies behind the file's end reads as zeros. */
static bool read_at(int fd, void *buf, size_t len, uint64_t offset)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, (char *)buf + got, len - got, (off_t)(offset + got));
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
static bool write_record(int fd, const char *text, size_t len)
{
	struct spool_meta m = { .len = (uint32_t)len };
	bool near = len <= SPOOL_META_NEAR;
	char page[SPOOL_OUT] = "";

	memcpy(page + SPOOL_META, &m, sizeof(m));
	if (near)
		memcpy(page + SPOOL_META + sizeof(m), text, len);
	return pwrite(fd, page, sizeof(page), 0) == (ssize_t)sizeof(page) &&
	       (near || pwrite(fd, text, len, SPOOL_META_FAR) == (ssize_t)len);
}

static int open_new(const struct sandbox *s, const char *name)
{
	return openat(s->run_dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* A new file can cost a file system milliseconds (ext4 looks for an inode that was not freed
 * lately), so the next process's file is made while this one runs, nameless, and only linked when
 * needed. Where that does not work it is made on the spot. */
void spool_prepare(struct sandbox *s)
{
	int fd;

	pthread_mutex_lock(&s->lock);
	bool wanted = !s->spool_spare && s->state == SBX_RUNNING;
	pthread_mutex_unlock(&s->lock);
	fd = wanted ? openat(s->run_dirfd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->spool_spare && s->state == SBX_RUNNING)
		s->spool_spare = steal_fd(&fd) + 1;
	pthread_mutex_unlock(&s->lock);
	close_p(&fd);
}

/* Lock held. */
void spool_drop_spare(struct sandbox *s)
{
	if (s->spool_spare)
		close(s->spool_spare - 1);
	s->spool_spare = 0;
}

static int take_spare(struct sandbox *s, const char *name)
{
	_cleanup_close_ int fd = -1;
	char path[40];

	pthread_mutex_lock(&s->lock);
	fd = s->spool_spare - 1;
	s->spool_spare = 0;
	pthread_mutex_unlock(&s->lock);
	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, path, s->run_dirfd, name, AT_SYMLINK_FOLLOW) < 0)
		return -1;
	return steal_fd(&fd);
}

int spool_create(const struct proc *p, const char *cwd, int *ret_fd, struct err *e)
{
	_cleanup_free_ char *text = meta_text(p, cwd);
	_cleanup_close_ int fd = -1;
	char name[16];
	size_t len;

	if (!text)
		return err_set(e, ERR_UNAVAILABLE, "out of memory");
	len = strlen(text);
	if (len > SPOOL_META_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "argv is too long");
	spool_name(p->num, name);
	fd = take_spare(p->sandbox, name);
	if (fd < 0)
		fd = open_new(p->sandbox, name);
	if (fd < 0)
		return err_set_sys(e,
			errno == ENOSPC || errno == EMFILE || errno == ENFILE ? ERR_UNAVAILABLE
									      : ERR_INTERNAL,
			errno, "cannot make the output file");
	if (!write_record(fd, text, len)) {
		spool_remove(p->sandbox, p->num);
		return err_set(e, ERR_UNAVAILABLE, "no room for the output file");
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

void spool_remove(const struct sandbox *s, uint32_t num)
{
	char name[16];

	spool_name(num, name);
	(void)unlinkat(s->run_dirfd, name, 0); /* gone already is as good */
}

/* The kernel copies a page that somebody else is storing to, in no promised order. Two equal copies
 * in a row were not torn; and EXITED is the last store of all, so a copy made after it was seen is
 * final. A shim that changes its head faster than we can copy it twice is cut off after some tries.
 */
int spool_head_read(int fd, struct spool_head *ret)
{
	struct spool_head a, b;
	int tries = 100;

	if (!read_at(fd, &a, sizeof(a), 0))
		return -1;
	do {
		b = a;
		if (!read_at(fd, &a, sizeof(a), 0))
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

bool spool_order_read(int fd, uint32_t i, uint32_t *ret, uint32_t n)
{
	return i + n <= SPOOL_RUNS_MAX &&
	       read_at(fd, ret, n * sizeof(*ret), SPOOL_ORDER + 4ull * i);
}

void spool_data_read(int fd, int stream, uint64_t offset, void *buf, size_t len)
{
	if (!read_at(fd, buf, len, (stream ? SPOOL_ERR : SPOOL_OUT) + offset))
		memset(buf, 0, len);
}

int spool_meta_read(int fd, json_t **ret, uint32_t *ret_noted)
{
	_cleanup_free_ char *text = NULL;
	struct spool_meta m;

	if (!read_at(fd, &m, sizeof(m), SPOOL_META) || m.len == 0 || m.len > SPOOL_META_MAX)
		return -1;
	text = malloc(m.len);
	if (!text || !read_at(fd, text, m.len,
			     m.len <= SPOOL_META_NEAR ? SPOOL_META + sizeof(m) : SPOOL_META_FAR))
		return -1;
	*ret_noted = m.noted;
	return json_parse_any(text, m.len, SPOOL_META_MAX, ret, NULL);
}

void spool_note(int fd, uint32_t noted)
{
	/* Best effort: without it a restart logs the exit a second time. */
	ssize_t n =
		pwrite(fd, &noted, sizeof(noted), SPOOL_META + offsetof(struct spool_meta, noted));
	(void)n;
}

void spool_drop_output(int fd)
{
	struct spool_head h;

	if (spool_head_read(fd, &h) < 0)
		return;
	for (size_t i = 0; i < 2; i++) {
		h.dropped[i] += h.kept[i];
		h.kept[i] = 0;
	}
	h.runs = 0;
	ssize_t n = pwrite(fd, &h, sizeof(h), 0);
	(void)n; /* the record says output_lost as well */
	(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SPOOL_OUT,
		SPOOL_META_FAR - SPOOL_OUT);
}

int proc_spool(struct proc *p)
{
	struct sandbox *s = p->sandbox;
	char name[16];
	int fd;

	pthread_mutex_lock(&s->lock);
	fd = p->output_lost ? -1 : p->spool_fd;
	pthread_mutex_unlock(&s->lock);
	if (fd >= 0 || p->output_lost)
		return fd;
	spool_name(p->num, name);
	fd = openat(s->run_dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
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
