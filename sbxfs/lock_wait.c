/* SPDX-License-Identifier: MIT */
/* Who waits for a lock. The request is parked, and no thread waits with it; the sandbox tells by a push
 * when it has the lock. Who is interrupted is answered at once; then the sandbox is told, and a lock that
 * was given meanwhile goes back. When the connection is lost all ask again. */
#include "sbxfs/fs1_priv.h"
#include "sbxfs/locks.h"
#include "sbxfs/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum waiting {
	ASKING, /* a thread is at it */
	PARKED, /* in nobody's hands */
	TOLD,   /* while it was asking */
	TAKEN,  /* out of the list: somebody answers it */
};
struct waiter {
	struct waiter *next;
	/* fixed */
	struct lock_waits *all;
	struct req q;
	struct tree_file *f; /* referenced */
	struct files_req r;
	/* under the lock of all */
	uint32_t number; /* what it was asked under last */
	enum waiting state;
	bool interrupted;
	bool lost; /* a connection of this sandbox has ended */
	int64_t value;
	struct files_attr attr;
};
struct lock_waits {
	struct mount *m;
	pthread_mutex_t lock;
	/* under lock */
	struct waiter *list;
	uint32_t numbers;
	bool stopping;
};

int lock_waits_new(struct mount *m, struct lock_waits **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->m = m;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

/* --- lock held --- */

/* Whoever takes it out answers it. */
static void take(struct waiter *x)
{
	struct waiter **at = &x->all->list;

	x->state = TAKEN;

	while (*at && *at != x)
		at = &(*at)->next;
	if (*at)
		*at = x->next;
}

/* Numbers are the mount's, and each sandbox speaks of its own alone. */
static struct waiter *find(struct lock_waits *w, const char *box, uint32_t number)
{
	struct waiter *x = w->list;

	while (x && (x->number != number || strcmp(x->f->h->inode->box, box)))
		x = x->next;
	return x;
}

/* --- not held --- */

static void waiter_free(struct waiter *x)
{
	atomic_fetch_sub(&x->q.m->stats.parked, 1);
	tree_file_put(x->q.m, x->f);
	free(x);
}

/* Out of the list. The interrupt's function may run until it is taken off, and looks at x. */
static void answer(struct waiter *x, int rc)
{
	fuse_req_interrupt_func(x->q.fr, NULL, NULL);
	if (rc < 0)
		req_fail(&x->q, rc);
	else
		fuse_reply_err(x->q.fr, 0);
	waiter_free(x);
}

static void had(struct waiter *x)
{
	struct tree_attr a = { .target = NULL };
	int rc = x->value < 0 ? fs1_errno(x->value) : 0;

	if (rc == 0) {
		atomic_store(&x->f->locked, true);
		frame_attr(x->q.m, &x->attr, &a);
		lock_taken(&x->q, x->f, &a);
	}
	answer(x, rc);
}

static void had_later(void *arg)
{
	had(arg);
}

/* It is answered: the sandbox shall not keep a lock, or a place in the row, for nobody. */
static void clean(void *arg)
{
	struct waiter *x = arg;
	struct fs1_call c = { .op = FILES_UNWAIT, .r.handle = x->number };
	int rc;

	x->q.fr = NULL;
	x->q.patient = false;
	rc = fs1_call(&x->q, x->f->h->inode->box, &c);
	if (rc != 0) /* it stood in no row: it has the lock, or had it */
		lock_undo(&x->q, x->f, &x->r);
	waiter_free(x);
}

/* The interrupt's thread holds the request's own lock here. */
static void on_interrupt(fuse_req_t fr, void *arg)
{
	struct waiter *x = arg;
	struct lock_waits *w = x->all;
	bool mine;

	pthread_mutex_lock(&w->lock);
	mine = x->state == PARKED;
	x->interrupted = true;
	if (mine)
		take(x);
	pthread_mutex_unlock(&w->lock);
	if (!mine)
		return;
	fuse_reply_err(fr, EINTR);
	if (pool_run(x->q.m->pool, clean, x) < 0)
		waiter_free(x); /* what it gets ends with its file */
}

static int ask(struct waiter *x, struct lock_ask *a)
{
	struct lock_waits *w = x->all;

	pthread_mutex_lock(&w->lock);
	if (!++w->numbers)
		++w->numbers;
	x->number = w->numbers;
	x->state = ASKING;
	x->lost = false;
	pthread_mutex_unlock(&w->lock);
	a->r = x->r;
	a->r.mode |= FILES_LOCK_WAIT;
	a->r.gid = x->number;
	return lock_ask(&x->q, x->f, a);
}

enum next { ANSWER, HAD, GIVE_UP, AGAIN, PARK };

static enum next decide(struct waiter *x, int rc, const struct lock_ask *a)
{
	enum next n = PARK;

	pthread_mutex_lock(&x->all->lock);
	if (rc == -EINTR || rc == -ETIMEDOUT)
		n = GIVE_UP; /* and nobody knows what came of it */
	else if (rc < 0 || a->value == 0)
		n = ANSWER;
	else if (x->state == TOLD)
		n = HAD;
	else if (x->interrupted || x->all->stopping)
		n = GIVE_UP;
	else if (x->lost)
		n = AGAIN;
	if (n == PARK)
		x->state = PARKED;
	else if (n != AGAIN)
		take(x);
	pthread_mutex_unlock(&x->all->lock);
	return n;
}

static void give_up(struct waiter *x, int rc)
{
	fuse_req_interrupt_func(x->q.fr, NULL, NULL);
	req_fail(&x->q, rc < 0 ? rc : -EINTR);
	clean(x);
}

/* In the kernel's thread, and again in one of the pool. Parked, it is not ours any more. */
static void wait_on(void *arg)
{
	struct waiter *x = arg;
	struct lock_ask a = { .value = 0 };
	enum next n;
	int rc;

	do {
		rc = ask(x, &a);
		n = decide(x, rc, &a);
	} while (n == AGAIN);
	if (n == HAD)
		had(x);
	else if (n == GIVE_UP)
		give_up(x, rc);
	else if (n == ANSWER && rc == 0)
		lock_taken(&x->q, x->f, &a.attr);
	if (n == ANSWER)
		answer(x, rc);
}

void lock_wait(struct req *q, struct tree_file *f, const struct files_req *r)
{
	struct lock_waits *w = q->m->lock_waits;
	struct waiter *x = calloc(1, sizeof(*x));

	if (!x) {
		req_fail(q, -ENOMEM);
		return;
	}
	x->all = w;
	x->q = *q;
	x->q.patient = true;
	x->f = f;
	x->r = *r;
	pthread_mutex_lock(&f->h->inode->tree_lock);
	f->refs++;
	pthread_mutex_unlock(&f->h->inode->tree_lock);
	atomic_fetch_add(&q->m->stats.parked, 1);
	fuse_req_interrupt_func(q->fr, on_interrupt, x);
	pthread_mutex_lock(&w->lock);
	x->next = w->list;
	w->list = x;
	pthread_mutex_unlock(&w->lock);
	wait_on(x);
}

int lock_granted(struct fs1_conn *c, const struct fs_frame *f, const struct files_rep *rep)
{
	struct lock_waits *w = c->m->lock_waits;
	struct waiter *x;

	if (f->value >= 0 && !fs1_attr_ok(&rep->attr))
		return -EPROTO;
	pthread_mutex_lock(&w->lock);
	x = rep->handle <= UINT32_MAX ? find(w, c->box, (uint32_t)rep->handle) : NULL;
	if (x && x->state != TOLD) {
		x->value = f->value;
		x->attr = rep->attr;
	}
	if (x && x->state == PARKED) {
		take(x);
	} else if (x) {
		x->state = TOLD; /* who asks will see it */
		x = NULL;
	}
	pthread_mutex_unlock(&w->lock);
	if (x && pool_run(c->m->pool, had_later, x) < 0)
		answer(x, -ENOLCK);
	return 0;
}

/* Lock held. One whose place in the row is lost. */
static struct waiter *parked(struct lock_waits *w, const char *box)
{
	struct waiter *x = w->list;

	while (x && !(x->state == PARKED && (!box || !strcmp(x->f->h->inode->box, box))))
		x = x->next;
	return x;
}

/* --- who holds locks must be heard from, though it may ask nothing for long --- */

#define HEARD_MS 500
#define HEARD_TIMES 60

struct holder {
	struct mount *m;
	char box[SBX_ID_MAX];
};

static bool holds_locks(struct mount *m, const char *box)
{
	struct handle *h;

	pthread_mutex_lock(&m->lock);
	for (h = m->handles; h; h = h->next)
		if (h->file && atomic_load(&h->file->locked) && !strcmp(h->inode->box, box))
			break;
	pthread_mutex_unlock(&m->lock);
	return h != NULL;
}

/* Until there is a connection again, by which we are heard from all the time. */
static void be_heard(void *arg)
{
	const struct timespec ts = { .tv_nsec = HEARD_MS * 1000000 };
	struct holder *o = arg;

	for (int n = 0; n < HEARD_TIMES && !atomic_load(&o->m->stopping) && holds_locks(o->m, o->box); n++) {
		struct req q = { .m = o->m, .op = "alive", .start_ms = now_ms(), .aside = true };
		struct tree_attr a = { .target = NULL };

		if (wire_stat(&q, o->box, "/", &a) == 0)
			tree_attr_fini(&a);
		if (fs1_epoch(o->m, o->box))
			break;
		(void)nanosleep(&ts, NULL);
	}
	free(o);
}

static void hold_on(struct mount *m, const char *box)
{
	struct holder *o = holds_locks(m, box) ? malloc(sizeof(*o)) : NULL;

	if (!o)
		return;
	o->m = m;
	memcpy(o->box, box, sizeof(o->box));
	if (pool_run(m->pool, be_heard, o) < 0)
		free(o);
}

void lock_conn_end(struct mount *m, const char *box)
{
	struct lock_waits *w = m->lock_waits;
	struct waiter *x;

	pthread_mutex_lock(&w->lock);
	for (x = w->list; x; x = x->next)
		x->lost |= !strcmp(x->f->h->inode->box, box);
	pthread_mutex_unlock(&w->lock);
	if (atomic_load(&m->stopping))
		return; /* whoever stops us answers all */
	hold_on(m, box);
	for (;;) {
		pthread_mutex_lock(&w->lock);
		x = parked(w, box);
		if (x)
			x->state = ASKING;
		pthread_mutex_unlock(&w->lock);
		if (!x)
			return;
		if (pool_run(m->pool, wait_on, x) == 0)
			continue;
		pthread_mutex_lock(&w->lock);
		take(x);
		pthread_mutex_unlock(&w->lock);
		answer(x, -ENOLCK);
	}
}

void lock_waits_stop(struct lock_waits *w)
{
	struct waiter *x;

	if (!w)
		return;
	do {
		pthread_mutex_lock(&w->lock);
		w->stopping = true;
		x = parked(w, NULL);
		if (x)
			take(x);
		pthread_mutex_unlock(&w->lock);
		if (x)
			answer(x, -EINTR);
	} while (x);
}

void lock_waits_free(struct lock_waits *w)
{
	if (!w)
		return;
	lock_waits_stop(w);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
