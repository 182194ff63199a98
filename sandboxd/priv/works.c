/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/works.h"

#include "common/sys/mem.h"
#include "sandboxd/priv/broker.h"
#include "sandboxd/priv/child.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/pool.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SEALS_AT_ONCE 2
#define WORKS_AT_ONCE 6
#define LIMITS_AT_ONCE 2 /* how long these take is a guest's doing: they have places of their own */
#define POOL_MS       250
#define POOL_BUSY_MS  30
#define POOL_RETRY_MS 10000
#define RECLAIM_MS    1000

static void clear_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	(void)w;
	(void)ret;
	layers_clear(env);
}

static void grow_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	(void)w;
	(void)pool_grow(&env->areas, &ret->fail);
}

static void reclaim_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	(void)w;
	(void)ret;
	(void)pool_reclaim(&env->areas);
}

typedef void work_fn(const struct build_env *env, const struct work *w, struct work_result *ret);
static const struct {
	uint32_t op;
	work_fn *fn;
} table[] = {
	{ WORK_CLEAR, clear_work },
	{ WORK_UNMADE, layer_drop_work },
	{ WORK_GROW, grow_work },
	{ WORK_LIMIT, limit_work },
	{ WORK_RECLAIM, reclaim_work },
	{ PRIV_SNAPSHOT, seal_work },
	{ PRIV_LAYER_DROP, layer_drop_work },
	{ PRIV_VOLUME_MAKE, volume_make_work },
	{ PRIV_VOLUME_DROP, volume_drop_work },
	{ PRIV_EGRESS_ADD, egress_add_work },
};

static void child(struct broker *b, const struct work *w, int out, pid_t broker)
{
	struct work_result r = { .bytes = 0 };

	broker_leave(b, -1);
	drop_signals();
	child_bind(broker);
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (table[i].op == w->op)
			table[i].fn(&b->env, w, &r);
	(void)send(out, &r, sizeof(r), MSG_NOSIGNAL);
	_exit(0);
}

static void finish(struct broker *b, struct job *j, const struct work_result *r)
{
	struct priv_ans a = { .n = { r->bytes } };

	explicit_bzero(j->work.secret, sizeof(j->work.secret));
	broker_answer(b, j->op, j->tag, &r->fail, &a);
	j->done = true;
	if (j->op == PRIV_LAYER_DROP || j->op == PRIV_VOLUME_DROP)
		b->removed = true;
	if (j->op == PRIV_SNAPSHOT && !r->fail.sys)
		limits_watch(b, j->work.id);
	if (j->op == WORK_UNMADE && r->fail.sys)
		fprintf(stderr, "<warn> sbx-priv: %s\n", r->fail.text);
	if (j->op == WORK_GROW && r->fail.sys) {
		fprintf(stderr, "<warn> sbx-priv: %s\n", r->fail.text);
		b->pool_ms = broker_now_ms() + POOL_RETRY_MS;
	}
}

static void start(struct broker *b, struct job *j)
{
	struct work_result none = { .bytes = 0 };
	struct work w = j->work;
	pid_t me = getpid();
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0) {
		fail_set(&none.fail, errno, "make a socket pair");
		finish(b, j, &none);
		return;
	}
	j->fd = sv[0];
	j->pid = fork();
	if (j->pid == 0)
		child(b, &w, sv[1], me);
	close(sv[1]); /* a fork that failed shows as the end of the socket */
	j->pidfd = child_watch(j->pid);
}

static bool is_of_layer(const struct job *j, uint32_t op, uint32_t num)
{
	return j->kind == JOB_WORK && !j->done && j->op == op && j->work.num == num;
}

/* It is removed when nobody fills it, or removes it, any more. */
static bool is_busy(const struct broker *b, uint32_t num)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (is_of_layer(j, PRIV_SNAPSHOT, num) || is_of_layer(j, WORK_UNMADE, num))
			return true;
	return images_has(b, num);
}

static bool may_run(const struct broker *b, const struct job *j)
{
	int seals = 0, works = 0, limits = 0;

	if (j->op == PRIV_LAYER_DROP && is_busy(b, j->work.num))
		return false;
	for (const struct job *o = b->jobs; o; o = o->next) {
		if (o->kind != JOB_WORK || o->done || !o->pid)
			continue;
		limits += o->op == WORK_LIMIT;
		works += o->op != WORK_LIMIT;
		seals += o->op == PRIV_SNAPSHOT;
	}
	if (j->op == WORK_LIMIT)
		return limits < LIMITS_AT_ONCE;
	if (j->op == PRIV_EGRESS_ADD)
		return true; /* quick, and somebody waits */
	return works < WORKS_AT_ONCE && (j->op != PRIV_SNAPSHOT || seals < SEALS_AT_ONCE);
}

/* The list has the newest first. */
static struct job *oldest_waiting(const struct broker *b)
{
	struct job *found = NULL;

	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_WORK && !j->done && !j->pid && may_run(b, j))
			found = j;
	return found;
}

void works_next(struct broker *b)
{
	struct job *j;

	while ((j = oldest_waiting(b)))
		start(b, j);
}

void works_event(struct broker *b, struct job *j)
{
	struct work_result r = { .bytes = 0 };
	ssize_t n = recv(j->fd, &r, sizeof(r), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(r)) {
		memset(&r, 0, sizeof(r));
		fail_set(&r.fail, ECHILD, "the broker's helper ended early");
		close_p(&j->fd); /* that there is one for the recovery, always */
		j->fd = -1;
		if (j->op == PRIV_SNAPSHOT)
			seal_recover(&b->env, j->work.id);
	}
	r.fail.text[sizeof(r.fail.text) - 1] = 0;
	finish(b, j, &r);
}

void works_stop(struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->kind != JOB_WORK || j->done)
			continue;
		child_kill(j->pidfd);
		if (j->op == PRIV_SNAPSHOT)
			seal_recover(&b->env, j->work.id);
		j->done = true;
	}
}

bool works_seal(const struct broker *b, const char *id)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_WORK && !j->done && j->op == PRIV_SNAPSHOT &&
			strcmp(j->work.id, id) == 0)
			return true;
	return false;
}

bool works_layer(const struct broker *b, uint32_t num)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (is_of_layer(j, PRIV_SNAPSHOT, num) || is_of_layer(j, PRIV_LAYER_DROP, num) ||
			is_of_layer(j, WORK_UNMADE, num))
			return true;
	return false;
}

void works_unmade(struct broker *b, uint32_t num)
{
	struct job *j = broker_job(b, JOB_WORK);

	if (!j)
		return; /* the next start does it */
	j->op = j->work.op = WORK_UNMADE;
	j->work.num = num;
}

/* --- operations ------------------------------------------------------------------------------ */

static bool is_under_way(const struct broker *b, const struct priv_req *q)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_WORK && !j->done && j->op == q->op && j->work.num == q->num &&
			strcmp(j->work.id, q->id) == 0)
			return true;
	return false;
}

static void queue(struct broker *b, const struct priv_req *q, struct fail *f)
{
	struct job *j = NULL;

	if (!f->sys && is_under_way(b, q))
		fail_set(f, EBUSY, "number %u", q->num);
	if (!f->sys && !(j = broker_job(b, JOB_WORK)))
		fail_set(f, ENOMEM, "start a helper");
	if (!j) {
		broker_answer(b, q->op, q->tag, f, NULL);
		return;
	}
	j->op = q->op;
	j->tag = q->tag;
	j->work = (struct work){
		.op = q->op, .num = q->num, .disk_mb = q->disk_mb, .generation = q->generation
	};
	memcpy(j->work.secret, q->secret, sizeof(j->work.secret));
	memcpy(j->work.id, q->id, sizeof(j->work.id));
	works_next(b);
}

void op_snapshot(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };
	struct record box;

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id)) || q->num == 0)
		fail_set(&f, EINVAL, "snapshot");
	else if (works_seal(b, q->id))
		fail_set(&f, EEXIST, "a snapshot of %.63s", q->id);
	else if (works_layer(b, q->num) || images_has(b, q->num))
		fail_set(&f, EEXIST, "layer %u", q->num);
	else
		(void)broker_find(b, q->id, &box, &f);
	queue(b, q, &f);
}

void op_egress_add(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id)) || q->num != 0) /* one of a sandbox at a time */
		fail_set(&f, EINVAL, "id");
	else if (ends_has(b, q->id))
		fail_set(&f, ESRCH, "no runtime of %.63s", q->id);
	queue(b, q, &f);
}

void op_layer_drop(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (q->num == 0)
		fail_set(&f, EINVAL, "layer");
	else
		images_stop(b, q->num);
	creates_forget_layer(b, q->num);
	queue(b, q, &f);
}

void op_volume_make(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (q->num == 0 || q->num >= AREA_VOLUME_NUM || q->disk_mb <= 0 || q->disk_mb > 1 << 24)
		fail_set(&f, EINVAL, "volume");
	queue(b, q, &f);
}

void op_volume_drop(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (q->num == 0)
		fail_set(&f, EINVAL, "volume");
	queue(b, q, &f);
}

void op_usage(struct broker *b, const struct priv_req *q, int fd)
{
	struct area_usage u = { 0 };
	struct priv_ans a = { 0 };
	struct fail f = { 0 };
	char name[PRIV_ID_MAX];
	int r;

	(void)fd;
	if (q->num ? q->id[0] != 0 : !name_is_id(q->id, sizeof(q->id))) {
		fail_set(&f, EINVAL, "id or volume");
	} else {
		if (q->num)
			volume_name(name, q->num);
		else
			memcpy(name, q->id, sizeof(name));
		r = area_usage(&b->env.areas, name, &u);
		if (r < 0)
			fail_set(&f, r, "usage of %.63s", name);
	}
	a.n[0] = u.used;
	a.n[1] = u.size;
	broker_answer(b, q->op, q->tag, &f, &a);
}

static void keep(struct broker *b, const struct priv_req *q, struct keep_nums *k)
{
	struct fail f = { 0 };

	if (q->nchain > PRIV_CHAIN_MAX)
		fail_set(&f, EINVAL, "numbers");
	else if (keep_nums_add(k, q->chain, q->nchain) < 0)
		fail_set(&f, ENOMEM, "keep");
	broker_answer(b, q->op, q->tag, &f, NULL);
}

void op_keep_layers(struct broker *b, const struct priv_req *q, int fd)
{
	(void)fd;
	keep(b, q, &b->layers);
}

void op_keep_volumes(struct broker *b, const struct priv_req *q, int fd)
{
	(void)fd;
	keep(b, q, &b->volumes);
}

void works_sweep(struct broker *b)
{
	struct job *j;

	layers_sweep(&b->env, &b->layers, &b->volumes);
	keep_nums_free(&b->layers);
	keep_nums_free(&b->volumes);
	j = broker_job(b, JOB_WORK);
	if (!j)
		return; /* the next start does it */
	j->op = j->work.op = WORK_CLEAR;
	works_next(b);
}

/* --- the pool -------------------------------------------------------------------------------- */

static bool is_tended(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_WORK && !j->done &&
			(j->op == WORK_GROW || j->op == WORK_RECLAIM))
			return true;
	return false;
}

/* What sandboxes that are gone have left is used again before more is taken from the host. */
static uint32_t tend(struct broker *b)
{
	int64_t left;
	enum pool_state state = pool_look(&b->env.areas, &left);
	bool may_grow;

	/* Somebody writes: what is left may be gone before the next look. */
	if (b->pool_left - left > b->env.areas.unit / 64)
		b->pool_ms -= POOL_MS - POOL_BUSY_MS;
	b->pool_left = left;
	if (state == POOL_FINE)
		return 0;
	may_grow = pool_may_grow(&b->env.areas);
	if (may_grow && (state == POOL_URGENT || !b->removed))
		return WORK_GROW;
	if (!b->removed && !may_grow)
		b->pool_ms += RECLAIM_MS; /* a guest may have removed something */
	b->removed = false;
	return WORK_RECLAIM;
}

void works_pool(struct broker *b)
{
	int64_t now = broker_now_ms();
	struct job *j;
	uint32_t op;

	if (b->env.areas.pool < 0 || b->front < 0 || now < b->pool_ms)
		return;
	b->pool_ms = now + POOL_MS;
	if (is_tended(b)) {
		b->pool_ms = now + POOL_BUSY_MS;
		return;
	}
	op = tend(b);
	if (op && (j = broker_job(b, JOB_WORK)))
		j->op = j->work.op = op;
}

int works_pool_ms(const struct broker *b)
{
	int64_t left = b->pool_ms - broker_now_ms();

	if (b->env.areas.pool < 0)
		return -1;
	return left < 1 ? 1 : left > POOL_RETRY_MS ? POOL_RETRY_MS : (int)left;
}
