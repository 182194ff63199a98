/* SPDX-License-Identifier: MIT */
/* The loop, the dispatch and the small operations. A request that is not exactly as the table says
 * is answered with EINVAL and touches nothing. */
#include "sandboxd/priv/broker.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define JOBS_MAX 4096

typedef void op_fn(struct broker *b, const struct priv_req *q, int fd);
static const struct {
	int phase;
	size_t fds;
	op_fn *fn;
} ops[PRIV_OP_COUNT] = {
#define OP(name, p, n, f) [PRIV_##name] = { PHASE_##p, n, f },
#include "sandboxd/priv/ops.def"
#undef OP
};

int64_t broker_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void answer(struct broker *b, uint32_t op, uint64_t tag, const struct fail *f,
	const struct priv_ans *body, const int *fds, size_t nfds)
{
	struct priv_ans a = { 0 };

	if (!tag || b->front < 0)
		return;
	if (body)
		a = *body;
	a.magic = PRIV_MAGIC;
	a.op = op;
	a.tag = tag;
	if (f && f->sys) {
		a.error = f->sys;
		snprintf(a.text, sizeof(a.text), "%s", f->text);
	}
	(void)fd_send_msg(b->front, &a, sizeof(a), fds, nfds);
}

void broker_answer(struct broker *b, uint32_t op, uint64_t tag, const struct fail *f,
	const struct priv_ans *body)
{
	answer(b, op, tag, f, body, NULL, 0);
}

void broker_answer_grip(struct broker *b, uint32_t op, uint64_t tag, const struct priv_ans *body,
	const int grip[PRIV_GRIP_FDS])
{
	bool whole = grip[PRIV_FD_KILL] >= 0 && grip[PRIV_FD_EVENTS] >= 0;

	answer(b, op, tag, NULL, body, grip, whole ? PRIV_GRIP_FDS : 0);
}

void broker_grip(const struct broker *b, uint32_t block, int grip[PRIV_GRIP_FDS])
{
	char group[BOX_NAME_MAX], guest[BOX_NAME_MAX + 8];

	box_group(group, block);
	snprintf(guest, sizeof(guest), "%s/guest", group);
	grip[PRIV_FD_KILL] = cg_killer(&b->env.cg, guest);
	grip[PRIV_FD_EVENTS] = cg_events(&b->env.cg, guest);
}

struct job *broker_job(struct broker *b, enum job_kind kind)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->kind = kind;
	j->fd = -1;
	j->builder = j->pidfd = -1;
	j->since_ms = broker_now_ms();
	j->next = b->jobs;
	b->jobs = j;
	return j;
}

void broker_leave(struct broker *b, int keep)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->fd >= 0 && j->fd != keep)
			close(j->fd);
		close_p(&j->builder);
		close_p(&j->pidfd);
	}
	if (b->janitor >= 0 && b->janitor != keep)
		close(b->janitor);
	if (b->front >= 0)
		close(b->front);
}

/* --- small operations ------------------------------------------------------------------------ */

void op_hello(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (creates_probe(b, q->tag) < 0) {
		fail_set(&f, EAGAIN, "make a probe");
		broker_answer(b, q->op, q->tag, &f, NULL);
	}
}

void op_keep(struct broker *b, const struct priv_req *q, int fd)
{
	struct keep *k = b->nkeep < BOX_BLOCKS ? calloc(1, sizeof(*k)) : NULL;
	struct fail f = { 0 };

	(void)fd;
	if (!k || !name_is_id(q->id, sizeof(q->id))) {
		fail_set(&f, k ? EINVAL : ENOMEM, "keep");
		free(k);
	} else {
		memcpy(k->id, q->id, sizeof(k->id));
		k->next = b->keep;
		b->keep = k;
		b->nkeep++;
	}
	broker_answer(b, q->op, q->tag, &f, NULL);
}

/* The shim lingers when init has gone, so init is what has to be there. On v1 it is all there is.
 */
static bool guest_populated(const struct broker *b, uint32_t block)
{
	char group[BOX_NAME_MAX], guest[BOX_NAME_MAX + 8];

	box_group(group, block);
	snprintf(guest, sizeof(guest), "%s%s", group, b->env.cg.base2 < 0 ? "" : "/guest");
	return cg_populated(&b->env.cg, guest);
}

int broker_find(const struct broker *b, const char *id, struct record *ret, struct fail *f)
{
	int r = ends_has(b, id) ? -ESRCH : record_read(b->env.boxes, id, ret);

	if (record_unread(r))
		return fail_set(f, r, "find %.63s", id);
	return r < 0 ? fail_set(f, ESRCH, "no runtime of %.63s", id) : 0;
}

void op_alive(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };
	int grip[PRIV_GRIP_FDS];
	struct record box;

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id)))
		fail_set(&f, EINVAL, "id");
	else if (broker_find(b, q->id, &box, &f) == 0 &&
		 (box.generation != q->generation || !record_alive(&box, b->env.boot) ||
			 !guest_populated(b, box.block)))
		fail_set(&f, ESRCH, "no runtime of this sandbox");
	if (f.sys) {
		broker_answer(b, q->op, q->tag, &f, NULL);
		return;
	}
	broker_grip(b, box.block, grip);
	broker_answer_grip(b, q->op, q->tag, NULL, grip);
	close_p(&grip[PRIV_FD_KILL]);
	close_p(&grip[PRIV_FD_EVENTS]);
}

void op_disk_free(struct broker *b, const struct priv_req *q, int fd)
{
	struct priv_ans a = { 0 };
	struct fail f = { 0 };
	int r = area_space(&b->env.areas, &a.n[0], &a.n[1]);

	(void)fd;
	if (r < 0)
		fail_set(&f, r, "free disk space");
	a.n[0] >>= 20;
	a.n[1] >>= 20;
	broker_answer(b, q->op, q->tag, &f, &a);
}

/* --- loop ------------------------------------------------------------------------------------ */

/* What holds for all operations alike, so that none can forget it. */
static int check_form(const struct priv_req *q, size_t nfds, struct fail *f)
{
	if (q->magic != PRIV_MAGIC || q->op == PRIV_NONE || q->op >= PRIV_OP_COUNT)
		return fail_set(f, EINVAL, "request");
	if (nfds > ops[q->op].fds)
		return fail_set(f, EINVAL, "descriptors");
	if (q->nchain > PRIV_CHAIN_MAX || q->nvolumes > PRIV_VOLS_MAX)
		return fail_set(f, EINVAL, "layers or volumes");
	if ((q->id[0] && !name_is_id(q->id, sizeof(q->id))) ||
		(q->hostname[0] && !name_is_host(q->hostname, sizeof(q->hostname))))
		return fail_set(f, EINVAL, "id or host name");
	return 0;
}

static bool is_asked_too_much(const struct broker *b)
{
	int n = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		n += !j->done && j->tag;
	return n >= BROKER_ASKED_MAX;
}

static void dispatch(struct broker *b, const struct priv_req *q, int fd, size_t nfds)
{
	struct fail f = { 0 };

	if (!q->tag)
		return; /* nobody could be told what became of it */
	if (check_form(q, nfds, &f) == 0) {
		if (ops[q->op].phase > (int)b->phase)
			fail_set(&f, EAGAIN, "not before the first sweep");
		else if (is_asked_too_much(b))
			fail_set(&f, EAGAIN, "too many requests at a time");
	}
	if (f.sys)
		broker_answer(b, q->op, q->tag, &f, NULL);
	else
		ops[q->op].fn(b, q, fd);
}

/* 0, or -1 when the front has gone. A packet of another size is no request. */
static int from_front(struct broker *b)
{
	struct {
		struct priv_req q;
		char more;
	} p;
	int fds[2] = { -1, -1 };
	size_t n = ARRAY_LEN(fds);
	ssize_t len = fd_recv_msg(b->front, &p, sizeof(p.q) + 1, fds, &n);
	_cleanup_close_ int fd = n > 0 ? fds[0] : -1;

	if (n > 1)
		close(fds[1]);
	if (len == 0 || (len < 0 && len != -EAGAIN))
		return -1;
	if (len == sizeof(p.q))
		dispatch(b, &p.q, fd, n);
	return 0;
}

static void job_event(struct broker *b, struct job *j)
{
	static void (*const on[])(struct broker *, struct job *) = {
		[JOB_BUILD] = creates_event,
		[JOB_IMPORT] = images_event,
		[JOB_END] = ends_event,
		[JOB_WORK] = works_event,
		[JOB_FREEZE] = freezes_event,
	};

	on[j->kind](b, j);
}

static void drop_done(struct broker *b)
{
	struct job **p = &b->jobs;

	while (*p) {
		struct job *j = *p;
		if (!j->done) {
			p = &j->next;
			continue;
		}
		*p = j->next;
		close_p(&j->fd);
		close_p(&j->builder);
		close_p(&j->pidfd);
		while (j->more) {
			struct waiter *w = j->more;
			j->more = w->next;
			free(w);
		}
		free(j);
	}
}

static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* How long nothing may happen: -1, for ever. */
static int patience(const struct broker *b)
{
	if (b->front < 0)
		return ends_pending(b) || freezes_pending(b) ? 20 : 200;
	int ms = sooner(works_pool_ms(b), sooner(limits_ms(b), creates_refill_ms(b)));
	return ends_pending(b) || freezes_pending(b) ? sooner(ms, 20) : ms;
}

/* One poll over everything; only what goes on right now has a descriptor here. */
static int round_of(struct broker *b)
{
	static struct pollfd p[JOBS_MAX + 2];
	static struct job *who[JOBS_MAX + 2];
	nfds_t n = 0;

	p[n++] = (struct pollfd){ .fd = b->front, .events = POLLIN };
	p[n++] = (struct pollfd){ .fd = b->janitor, .events = POLLIN };
	for (struct job *j = b->jobs; j && n < JOBS_MAX; j = j->next) {
		if (j->fd < 0)
			continue;
		who[n] = j;
		p[n++] = (struct pollfd){ .fd = j->fd,
			.events = j->kind == JOB_END || j->kind == JOB_FREEZE ? POLLPRI : POLLIN };
	}
	if (poll(p, n, patience(b)) < 0 && errno != EINTR)
		return -1;
	for (nfds_t i = 2; i < n; i++)
		if (p[i].revents && !who[i]->done)
			job_event(b, who[i]);
	if (p[1].revents)
		ends_janitor_event(b);
	ends_check(b);
	freezes_check(b);
	if (p[0].revents && from_front(b) < 0)
		return -1;
	drop_done(b);
	works_pool(b);
	limits_check(b);
	works_next(b);
	creates_refill(b);
	return 0;
}

static bool ending(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END)
			return true;
	return false;
}

/* The front has gone: what was being ended is ended, what nobody has claimed goes. */
static void wind_up(struct broker *b)
{
	int64_t end = broker_now_ms() + BROKER_END_MS;

	close(b->front);
	b->front = -1;
	images_stop(b, 0);
	works_stop(b);
	creates_stop(b);
	while (ending(b) && broker_now_ms() < end && round_of(b) == 0)
		;
	/* The janitor outlives us and takes the empty groups away. */
	cg_leave(&b->env.cg);
}

int broker_run(struct broker *b)
{
	while (round_of(b) == 0)
		;
	wind_up(b);
	return 0;
}
