/* SPDX-License-Identifier: MIT */
/* Locks of files. flock goes by the handle's own descriptor, which is what flock means. A lock of
 * bytes belongs to an owner of the client's, whatever handles it uses; it is taken as a lock of an
 * open file description, by the handle that the owner locked first. So the kernel decides between
 * that description, others, and the guest's processes. Owners that share a handle are told apart
 * here: the description holds what any of them holds. A lock ends with its handle. */
#include "sandboxd/worker/state.h"

#include "common/fs/ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

struct lock_owner {
	struct lock_owner *next;
	uint64_t client, id;
	dev_t dev;
	ino_t ino;
	struct handle *via; /* lock_handle_gone ends it before the handle goes */
	uint32_t who;
	struct ranges held; /* never none but while it is made or dropped */
};

/* A request, looked through. */
struct ask {
	uint64_t client, owner, from, to;
	dev_t dev;
	ino_t ino;
	uint32_t who;
	enum range_kind kind;
};

static int ask_of(const struct files_req *q, struct ask *a)
{
	if (q->mode & ~(unsigned)FILES_LOCK_ALL)
		return -EINVAL;
	if ((q->mode & FILES_LOCK_READ) && (q->mode & FILES_LOCK_WRITE))
		return -EINVAL;
	if ((q->mode & FILES_LOCK_TEST) && ((q->mode & (FILES_LOCK_FLOCK | FILES_LOCK_WAIT)) ||
						   !(q->mode & (FILES_LOCK_READ | FILES_LOCK_WRITE))))
		return -EINVAL;
	if (q->offset > INT64_MAX || q->length > (uint64_t)INT64_MAX - q->offset + 1)
		return -EINVAL;
	a->owner = q->offset2;
	a->from = q->offset;
	a->to = q->length ? q->offset + q->length - 1 : INT64_MAX;
	a->who = q->uid;
	a->kind = q->mode & FILES_LOCK_READ    ? RANGE_READ
		  : q->mode & FILES_LOCK_WRITE ? RANGE_WRITE
					       : RANGE_NONE;
	return 0;
}

/* --- owners; locks.lock held in all below ------------------------------------------------------ */

static struct lock_owner **bucket(struct worker *w, ino_t ino)
{
	return &w->locks.owners[ino % LOCK_BUCKETS];
}

static bool same_file(const struct lock_owner *o, const struct ask *a)
{
	return o->ino == a->ino && o->dev == a->dev;
}

static struct lock_owner *owner_find(struct worker *w, const struct ask *a)
{
	struct lock_owner *o = *bucket(w, a->ino);

	while (o && !(same_file(o, a) && o->client == a->client && o->id == a->owner))
		o = o->next;
	return o;
}

static void set_via(struct lock_owner *o, struct handle *h)
{
	if (o->via)
		__atomic_sub_fetch(&o->via->locked, 1, __ATOMIC_RELAXED);
	o->via = h;
	if (h)
		__atomic_add_fetch(&h->locked, 1, __ATOMIC_RELAXED);
}

static struct lock_owner *owner_new(struct worker *w, struct handle *h, const struct ask *a)
{
	struct lock_owner *o = calloc(1, sizeof(*o)), **at = bucket(w, a->ino);

	if (!o)
		return NULL;
	o->client = a->client;
	o->id = a->owner;
	o->dev = a->dev;
	o->ino = a->ino;
	set_via(o, h);
	o->next = *at;
	*at = o;
	return o;
}

static void owner_drop(struct worker *w, struct lock_owner *o)
{
	struct lock_owner **at = bucket(w, o->ino);

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	w->locks.nranges -= o->held.n;
	set_via(o, NULL);
	ranges_free(&o->held);
	free(o);
}

static void holds_now(struct worker *w, struct lock_owner *o, struct ranges *now)
{
	w->locks.nranges += now->n - o->held.n;
	ranges_free(&o->held);
	o->held = *now;
	if (!o->held.n)
		owner_drop(w, o);
}

/* The first bytes of from..to that another owner holds by the same descriptor. */
static const struct range *shared(
	struct worker *w, const struct lock_owner *mine, uint64_t from, uint64_t to, bool write)
{
	const struct range *first = NULL;

	for (struct lock_owner *o = *bucket(w, mine->ino); o; o = o->next) {
		const struct range *r =
			o != mine && o->via == mine->via ? ranges_find(&o->held, from, to, write) : NULL;
		if (r && (!first || r->from < first->from))
			first = r;
	}
	return first;
}

/* --- the kernel's side ------------------------------------------------------------------------- */

static struct flock flock_of(uint64_t from, uint64_t to, enum range_kind kind)
{
	return (struct flock){ .l_type = kind == RANGE_NONE ? F_UNLCK : kind == RANGE_READ ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)from,
		.l_len = to == INT64_MAX ? 0 : (off_t)(to - from + 1) };
}

static int kernel_set(const struct handle *h, uint64_t from, uint64_t to, enum range_kind kind)
{
	struct flock l = flock_of(from, to, kind);

	if (fcntl(h->fd, F_OFD_SETLK, &l) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* What others hold by the same descriptor stays: reading only, where `o` held something, too. */
static void kernel_drop(struct worker *w, const struct lock_owner *o, uint64_t from, uint64_t to)
{
	for (;;) {
		const struct range *r = shared(w, o, from, to, false);
		if (!r || r->from > from)
			(void)kernel_set(o->via, from, r ? r->from - 1 : to, RANGE_NONE);
		if (!r || r->to >= to)
			return;
		from = r->to + 1;
	}
}

/* Its handle only reads, so all that it holds is for reading, which two descriptions may at once. */
static int move(struct worker *w, struct lock_owner *o, struct handle *h)
{
	int r = 0;
	size_t n;

	if (!o->via->readable || !h->readable)
		return -EBADF;
	for (n = 0; n < o->held.n && r == 0; n++)
		r = kernel_set(h, o->held.v[n].from, o->held.v[n].to, RANGE_READ);
	if (r < 0) {
		while (n-- > 0)
			(void)kernel_set(h, o->held.v[n].from, o->held.v[n].to, RANGE_NONE);
		return r;
	}
	for (n = 0; n < o->held.n; n++)
		kernel_drop(w, o, o->held.v[n].from, o->held.v[n].to);
	set_via(o, h);
	return 0;
}

static bool may(const struct handle *h, enum range_kind kind)
{
	return kind == RANGE_READ ? h->readable : h->writable;
}

/* --- the three requests ------------------------------------------------------------------------ */

static int let_go(struct worker *w, struct lock_owner *o, const struct ask *a)
{
	struct ranges now;
	int r = ranges_with(&o->held, a->from, a->to, RANGE_NONE, &now);

	if (r < 0)
		return r;
	kernel_drop(w, o, a->from, a->to);
	holds_now(w, o, &now);
	wait_poke(w);
	return 0;
}

static int take(struct worker *w, struct lock_owner *o, struct handle *h, const struct ask *a)
{
	struct ranges now = { .v = NULL };
	int r = may(o->via, a->kind) ? 0 : move(w, o, h);

	if (r == 0 && shared(w, o, a->from, a->to, a->kind == RANGE_READ))
		r = -EAGAIN;
	if (r == 0)
		r = ranges_with(&o->held, a->from, a->to, a->kind, &now);
	if (r == 0 && now.n > o->held.n && w->locks.nranges + now.n - o->held.n > FS_LOCKS_MAX)
		r = -ENOLCK;
	if (r == 0)
		r = kernel_set(o->via, a->from, a->to, a->kind);
	if (r < 0) {
		ranges_free(&now);
		if (!o->held.n)
			owner_drop(w, o);
		return r;
	}
	o->who = a->who;
	holds_now(w, o, &now);
	wait_poke(w); /* it may be less than before */
	return 0;
}

static int set(struct worker *w, struct handle *h, const struct ask *a)
{
	struct lock_owner *o = owner_find(w, a);

	if (a->kind == RANGE_NONE)
		return o ? let_go(w, o, a) : 0;
	if (!may(h, a->kind))
		return -EBADF;
	if (!o)
		o = owner_new(w, h, a);
	return o ? take(w, o, h, a) : -ENOMEM;
}

static int test(struct worker *w, struct handle *h, const struct ask *a, struct files_locked *ret)
{
	struct lock_owner *mine = owner_find(w, a);
	struct flock l = flock_of(a->from, a->to, a->kind);

	for (struct lock_owner *o = *bucket(w, a->ino); o; o = o->next) {
		const struct range *r = o == mine || o->client != a->client || !same_file(o, a)
						? NULL
						: ranges_find(&o->held, a->from, a->to, a->kind == RANGE_READ);
		if (!r)
			continue;
		*ret = (struct files_locked){ .offset = r->from, .write = r->write, .who = o->who,
			.length = r->to == INT64_MAX ? 0 : r->to - r->from + 1 };
		return 1;
	}
	if (fcntl((mine ? mine->via : h)->fd, F_OFD_GETLK, &l) < 0)
		return -errno;
	if (l.l_type == F_UNLCK)
		return 0;
	*ret = (struct files_locked){ .offset = (uint64_t)l.l_start, .length = (uint64_t)l.l_len,
		.write = l.l_type == F_WRLCK };
	return 1;
}

/* One that turns a shared lock into an exclusive one has none while it cannot, as everywhere. */
static int flock_set(struct worker *w, struct handle *h, enum range_kind kind)
{
	int how = kind == RANGE_NONE ? LOCK_UN : kind == RANGE_READ ? LOCK_SH : LOCK_EX;
	int r = flock(h->fd, how | LOCK_NB) < 0 ? -errno : 0;
	bool has = r == 0 && kind != RANGE_NONE;

	if (r < 0 && r != -EWOULDBLOCK)
		return r;
	if (has != h->flocked) {
		__atomic_add_fetch(&h->locked, has ? 1u : -1u, __ATOMIC_RELAXED);
		h->flocked = has;
	}
	if (kind != RANGE_WRITE)
		wait_poke(w);
	return r == -EWOULDBLOCK ? -EAGAIN : r;
}

static int64_t ask_handle(struct worker *w, struct handle *h, const struct files_req *q, struct ask *a,
	struct files_locked *ret)
{
	struct stat st;

	if (!handle_is_open(w, h) || h->fd < 0)
		return -FILES_E_HANDLE;
	if (q->mode & FILES_LOCK_FLOCK)
		return flock_set(w, h, a->kind);
	if (h->dir)
		return -EISDIR;
	if (fstat(h->fd, &st) < 0)
		return -errno;
	a->dev = st.st_dev;
	a->ino = st.st_ino;
	return q->mode & FILES_LOCK_TEST ? test(w, h, a, ret) : set(w, h, a);
}

int64_t lock_ask(struct worker *w, uint64_t client, const struct files_req *q, struct files_rep *rep,
	struct files_locked *ret)
{
	struct ask a = { .client = client };
	struct handle *h;
	int64_t r = ask_of(q, &a);

	if (r < 0)
		return r;
	h = handle_get(w, client, q->handle);
	if (!h)
		return -FILES_E_HANDLE;
	r = ask_handle(w, h, q, &a, ret);
	if (r == 0)
		r = attr_get(w, h->fd, "", false, &rep->attr);
	if (__atomic_load_n(&h->locked, __ATOMIC_RELAXED))
		rep->flags |= FILES_REP_LOCKED;
	handle_put(w, h);
	return r;
}

int64_t op_lock(struct job *j)
{
	struct files_locked l = { .offset = 0 };
	int64_t r;

	if ((j->q.mode & FILES_LOCK_WAIT) && !j->stream)
		return -EINVAL;
	pthread_mutex_lock(&j->w->locks.lock);
	r = lock_ask(j->w, j->q.client, &j->q, &j->rep, &l);
	pthread_mutex_unlock(&j->w->locks.lock);
	if (r == 1) {
		memcpy(j->out, &l, sizeof(l));
		j->out_len = sizeof(l);
	}
	return r == -EAGAIN && (j->q.mode & FILES_LOCK_WAIT) ? wait_begin(j) : r;
}

void lock_handle_gone(struct worker *w, struct handle *h)
{
	struct lock_owner *o, *next;

	pthread_mutex_lock(&w->locks.lock); /* a request that was faster has counted its lock then */
	for (size_t b = 0; b < LOCK_BUCKETS && h->locked; b++)
		for (o = w->locks.owners[b]; o; o = next) {
			next = o->next;
			if (o->via == h)
				owner_drop(w, o);
		}
	pthread_mutex_unlock(&w->locks.lock);
}
