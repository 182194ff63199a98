/* SPDX-License-Identifier: MIT */
/* A sandbox without a guest, and a hand that plays its shim: spool files are written as sbx-shim
 * would, or as it must never. For tests of the process module alone. */
#ifndef TESTS_UNIT_PROC_BOX_H
#define TESTS_UNIT_PROC_BOX_H

#include "tests/support/test.h"

#include "sandboxd/core/proc_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

struct box {
	struct sandbox s; /* first */
	char dir[64];
};

static inline struct box *box_new(void)
{
	struct box *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	strcpy(b->dir, "/tmp/sbx-proc-XXXXXX");
	assert_non_null(mkdtemp(b->dir));
	b->s.run_dirfd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(b->s.run_dirfd >= 0);
	strcpy(b->s.id, "sbx_0000000000000001");
	b->s.state = SBX_RUNNING;
	b->s.next_num = 1;
	pthread_mutex_init(&b->s.lock, NULL);
	pthread_cond_init(&b->s.changed, NULL);
	return b;
}

static inline void box_free(struct box *b)
{
	DIR *d;
	struct dirent *de;

	proc_free_all(&b->s);
	d = fdopendir(b->s.run_dirfd);
	rewinddir(d);
	while ((de = readdir(d)))
		if (de->d_name[0] != '.')
			unlinkat(dirfd(d), de->d_name, 0);
	closedir(d);
	rmdir(b->dir);
	free(b);
}

/* A process as it stands when its start has been answered; the table's reference only. */
static inline struct proc *box_proc_of(
	struct box *b, const char *name, bool tty, const char *arg)
{
	struct proc *p = proc_new(&b->s);

	assert_non_null(p);
	p->num = b->s.next_num++;
	p->tty = tty;
	p->name = name ? strdup(name) : NULL;
	p->argv = calloc(3, sizeof(char *));
	p->argv[0] = strdup("prog");
	p->argv[1] = strdup(arg);
	p->started_ns = 1700000000000000000;
	p->state = PROC_RUNNING;
	p->start_logged = true;
	assert_int_equal(spool_create(p, "/tmp", &p->spool_fd, NULL), 0);
	pthread_mutex_lock(&b->s.lock);
	assert_true(proc_insert(p));
	b->s.running_procs++;
	pthread_mutex_unlock(&b->s.lock);
	proc_unref(p);
	return p;
}

static inline struct proc *box_proc(struct box *b, const char *name, bool tty)
{
	return box_proc_of(b, name, tty, "an \"argument\"\n");
}

/* The shim's side. */
struct hand {
	int fd;
	off_t at;   /* of the spool in its file */
	int stream; /* of the last run */
	uint32_t run_len;
	struct spool_head h;
};

static inline void hand_write(const struct hand *w, const void *buf, size_t len, uint64_t at)
{
	assert_int_equal(pwrite(w->fd, buf, len, w->at + (off_t)at), len);
}

static inline void hand_head(const struct hand *w)
{
	hand_write(w, &w->h, sizeof(w->h), 0);
}

static inline struct hand hand_open(const struct box *b, const struct proc *p)
{
	char name[24];
	struct hand w = { .stream = -1, .at = spool_at(p->num) };

	spool_file_name(p->num, name);
	w.fd = openat(b->s.run_dirfd, name, O_RDWR | O_CLOEXEC);
	assert_true(w.fd >= 0);
	w.h = (struct spool_head){
		.magic = SPOOL_MAGIC, .state = SPOOL_RUNNING, .started_ns = 1700000000000000000u
	};
	hand_head(&w);
	return w;
}

static inline void hand_put(struct hand *w, int stream, const void *buf, size_t len)
{
	uint32_t entry;

	hand_write(w, buf, len, (stream ? SPOOL_ERR : SPOOL_OUT) + w->h.kept[stream]);
	w->run_len = w->stream == stream ? w->run_len + (uint32_t)len : (uint32_t)len;
	w->h.runs += w->stream != stream;
	w->stream = stream;
	entry = w->run_len | (stream ? 0x80000000u : 0);
	hand_write(w, &entry, sizeof(entry), SPOOL_ORDER + 4ull * (w->h.runs - 1));
	w->h.kept[stream] += len;
	hand_head(w);
}

static inline void hand_exit(struct hand *w, int code)
{
	w->h.exit_code = code;
	w->h.ended_ns = 1700000001500000000u;
	w->h.state = SPOOL_EXITED;
	hand_head(w);
	close(w->fd);
}

#endif
