/* SPDX-License-Identifier: MIT */
/* flock and fcntl on guest files. The kernel keeps no locks of its own then: each is asked of the
 * sandbox, under the number that the kernel gives the owner. Before a lock is let go what was written
 * under it is sent; when one was taken, what the kernel holds of a file that has changed meanwhile is
 * dropped. */
#include "sbxfs/locks.h"
#include "sbxfs/remote.h"
#include "sbxfs/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#define AGAIN_MS 20

static void nap(long ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static int ask_fn(struct req *q, struct tree_file *f, void *arg)
{
	bool locked = atomic_load(&f->locked);
	int rc = frame_lock(q, f->h->inode->box, f->handle, arg, &locked);

	if (rc == 0 || rc == -EAGAIN)
		atomic_store(&f->locked, locked);
	return rc;
}

int lock_ask(struct req *q, struct tree_file *f, struct lock_ask *a)
{
	uint64_t until = now_ms() + (uint64_t)mount_patience(q->m, LOCK_PATIENCE_MS);
	int rc;

	/* There is no plain way: it would not hold longer than the request. */
	while ((rc = tree_with_handle(q, f, ask_fn, a)) == FS1_PLAIN) {
		if (now_ms() > until)
			return refuse(q, ENOLCK, "locks need a connection to the sandbox's files, and there is none");
		if (remote_interrupted(q))
			return refuse(q, EINTR, "interrupted");
		nap(AGAIN_MS);
	}
	if (rc == -EAGAIN)
		memset(&q->err, 0, sizeof(q->err)); /* others have it: nothing to tell */
	return rc;
}

void lock_taken(struct req *q, struct tree_file *f, const struct tree_attr *a)
{
	struct inode *i = f->h->inode;
	bool stale;

	if (tree_file_lock(q, f) == 0) {
		tree_inline_drop(q->m, f);
		ahead_drop(q->m, f);
		pthread_mutex_unlock(&f->lock);
	}
	pthread_mutex_lock(&i->tree_lock);
	stale = !i->version[0] || strcmp(i->version, a->version) != 0;
	i->is_known = false;
	pthread_mutex_unlock(&i->tree_lock);
	if (!stale)
		return;
	/* First the pages go, then an open may find that they are of that version. */
	if (q->m->se)
		(void)fuse_lowlevel_notify_inval_inode(q->m->se, inode_nodeid(q->m, i), 0, 0);
	pthread_mutex_lock(&i->tree_lock);
	memcpy(i->version, a->version, sizeof(i->version));
	pthread_mutex_unlock(&i->tree_lock);
}

static bool lets_go(const struct files_req *r)
{
	return !(r->mode & (FILES_LOCK_READ | FILES_LOCK_WRITE));
}

void lock_undo(struct req *q, struct tree_file *f, const struct files_req *r)
{
	struct lock_ask a = { .r = *r };

	a.r.mode &= FILES_LOCK_FLOCK;
	(void)lock_ask(q, f, &a);
}

/* The kernel tells us of a close without waiting. So who asks for what another process of this host has
 * just let go by closing it may be faster than our word of it. */
#define CLOSING_MS 6
#define CLOSING_MAX_MS 200

static int ask_once(struct req *q, struct tree_file *f, struct lock_ask *a)
{
	uint64_t start = now_ms(), waited = 0;
	int rc;

	do {
		if (waited)
			nap(1);
		rc = lock_ask(q, f, a);
		waited = now_ms() - start + 1;
	} while (rc == -EAGAIN && (waited <= CLOSING_MS ||
		(atomic_load(&q->m->closing) && waited <= CLOSING_MAX_MS)));
	return rc;
}

static void set(struct req *q, struct tree_file *f, struct lock_ask *a, bool wait)
{
	int rc;

	tree_drain(q, f->h->inode);
	if (wait && !lets_go(&a->r)) {
		lock_wait(q, f, &a->r);
		return;
	}
	rc = ask_once(q, f, a);
	if (rc == 0 && !lets_go(&a->r))
		lock_taken(q, f, &a->attr);
	if (rc == 0)
		fuse_reply_err(q->fr, 0);
	else
		req_fail(q, rc);
}

/* Control files have no locks. */
static struct tree_file *file_of(struct req *q, struct handle *h)
{
	if (h && h->file)
		return h->file;
	req_fail(q, refuse(q, ENOLCK, "only files of a sandbox can be locked"));
	return NULL;
}

static unsigned mode_of(int type)
{
	return type == F_RDLCK ? FILES_LOCK_READ : type == F_WRLCK ? FILES_LOCK_WRITE : 0;
}

static struct lock_ask ask_of(const struct req *q, uint64_t owner, const struct flock *l)
{
	return (struct lock_ask){ .r = { .mode = mode_of(l->l_type), .offset = (uint64_t)l->l_start,
		.length = (uint64_t)l->l_len, .offset2 = owner, .uid = (uint32_t)(l->l_pid ? l->l_pid : q->pid) } };
}

void tree_setlk(struct req *q, struct handle *h, uint64_t owner, const struct flock *l, bool wait)
{
	struct tree_file *f = file_of(q, h);
	struct lock_ask a = ask_of(q, owner, l);

	if (!f)
		return;
	atomic_store(&h->inode->locks, true);
	set(q, f, &a, wait);
}

void tree_getlk(struct req *q, struct handle *h, uint64_t owner, struct flock *l)
{
	struct tree_file *f = file_of(q, h);
	struct lock_ask a = ask_of(q, owner, l);
	int rc;

	if (!f)
		return;
	a.r.mode |= FILES_LOCK_TEST;
	rc = lock_ask(q, f, &a);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	l->l_type = F_UNLCK;
	if (a.value) {
		l->l_type = a.other.write ? F_WRLCK : F_RDLCK;
		l->l_start = (off_t)a.other.offset;
		l->l_len = (off_t)a.other.length;
		l->l_pid = (pid_t)a.other.who;
	}
	fuse_reply_lock(q->fr, l);
}

void tree_flock(struct req *q, struct handle *h, int op)
{
	static const struct {
		int op;
		unsigned mode;
	} ways[] = { { LOCK_SH, FILES_LOCK_READ }, { LOCK_EX, FILES_LOCK_WRITE }, { LOCK_UN, 0 } };
	struct lock_ask a = { .r.mode = FILES_LOCK_FLOCK };
	struct tree_file *f = file_of(q, h);

	if (!f)
		return;
	for (size_t n = 0; n < sizeof(ways) / sizeof(ways[0]); n++)
		if ((op & ~LOCK_NB) == ways[n].op)
			a.r.mode |= ways[n].mode;
	set(q, f, &a, !(op & LOCK_NB));
}

void tree_closed(struct req *q, struct handle *h, uint64_t owner)
{
	struct lock_ask a = { .r.offset2 = owner };
	struct sbx_error saved = q->err;

	if (!atomic_load(&h->inode->locks) || !tree_has_handle(h->file))
		return;
	(void)lock_ask(q, h->file, &a);
	q->err = saved;
}
