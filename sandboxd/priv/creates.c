/* SPDX-License-Identifier: MIT */
/* Creates: a builder that is ready and has the right shape is claimed, else one is started. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PROBE_LAYER ".probe"

static struct job *start_builder(struct broker *b, const struct build_shape *shape)
{
	struct job *j;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return NULL;
	j = broker_job(b, JOB_BUILD);
	if (!j || box_block_take(&b->blocks, &j->block) < 0) {
		if (j)
			j->done = true;
		close(sv[0]);
		close(sv[1]);
		return NULL;
	}
	j->shape = *shape;
	j->step = STEP_PREPARING;
	j->fd = sv[0];
	j->pid = fork();
	if (j->pid == 0) {
		uint32_t block = j->block;
		struct build_shape mine = *shape;
		broker_leave(b, -1);
		build_run(&b->env, &mine, block, sv[1]);
	}
	close(sv[1]);
	return j; /* a fork that failed shows as the end of the socket */
}

static void send_claim(struct job *j)
{
	j->step = STEP_CLAIMED;
	(void)send(j->fd, &j->claim, sizeof(j->claim), MSG_NOSIGNAL);
}

/* Unclaimed builders leave nothing but their area. */
static void forget_unclaimed(struct broker *b, struct job *j)
{
	char pool[32];

	if (j->pid > 0)
		kill(j->pid, SIGKILL);
	build_pool_name(pool, sizeof(pool), j->block);
	(void)area_remove(&b->env.areas, pool);
	box_block_free(&b->blocks, j->block);
	j->done = true;
}

static void probe_result(struct broker *b, struct job *j)
{
	struct priv_ans a = { .n = { PRIV_CAN_CREATE | PRIV_CAN_LIMIT | PRIV_CAN_DISK } };

	if (b->env.cg.base2 >= 0)
		a.n[0] |= PRIV_CAN_FREEZE;
	broker_answer(b, j->op, j->tag, &j->fail, &a);
	forget_unclaimed(b, j);
}

static void finished(struct broker *b, struct job *j)
{
	struct priv_ans a = { .n = { j->pid } };

	if (j->step == STEP_MADE && !j->fail.sys) {
		broker_answer(b, j->op, j->tag, NULL, &a);
		j->done = true;
		return;
	}
	if (!j->fail.sys)
		fail_set(&j->fail, ECHILD, "the builder ended early");
	if (j->probe) {
		probe_result(b, j);
		return;
	}
	if (!j->wanted) {
		fprintf(stderr, "<warn> spare sandbox: %s\n", j->fail.text);
		b->shape.layer[0] = 0; /* do not try again and again */
	} else if (j->step == STEP_PREPARING) {
		broker_answer(b, j->op, j->tag, &j->fail, NULL);
	} else {
		/* It may have a record, groups, a socket: end it like any other, then answer. */
		struct box box;
		bool recorded = box_read(b->env.boxes, j->claim.id, &box) == 0;
		kill(j->pid, SIGKILL);
		ends_start(b, j->claim.id, j->op, j->tag, &j->fail);
		if (recorded) {
			j->done = true;
			return;
		}
	}
	forget_unclaimed(b, j);
}

static void on_ready(struct broker *b, struct job *j)
{
	if (j->probe)
		probe_result(b, j);
	else if (j->wanted)
		send_claim(j);
	else
		j->step = STEP_SPARE;
}

void creates_event(struct broker *b, struct job *j)
{
	struct build_report r;
	ssize_t n = recv(j->fd, &r, sizeof(r), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != sizeof(r)) {
		finished(b, j);
		return;
	}
	r.fail.text[sizeof(r.fail.text) - 1] = 0;
	if (r.state == BUILD_READY)
		on_ready(b, j);
	else if (r.state == BUILD_MADE)
		j->step = STEP_MADE;
	else
		j->fail = r.fail;
}

static struct job *find_spare(struct broker *b, const struct build_shape *s)
{
	struct job *coming = NULL;

	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->kind != JOB_BUILD || j->done || j->wanted || j->probe ||
			memcmp(&j->shape, s, sizeof(*s)) != 0)
			continue;
		if (j->step == STEP_SPARE)
			return j;
		if (j->step == STEP_PREPARING)
			coming = j;
	}
	return coming;
}

static void drop_other_spares(struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_BUILD && !j->done && !j->wanted && !j->probe &&
			j->step == STEP_SPARE && memcmp(&j->shape, &b->shape, sizeof(b->shape)) != 0)
			forget_unclaimed(b, j);
}

/* Spares are made when nothing else is being built, so that they never slow a create down. */
void creates_refill(struct broker *b)
{
	int have = 0;

	if (!b->shape.layer[0] || b->phase != PHASE_RUN)
		return;
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->kind != JOB_BUILD || j->done)
			continue;
		if (j->step != STEP_SPARE)
			return;
		have++;
	}
	drop_other_spares(b);
	if (have < BROKER_SPARES)
		start_builder(b, &b->shape);
}

static int check(const struct broker *b, const struct priv_req *q, struct fail *f)
{
	if (!name_is_id(q->id, sizeof(q->id)) || !name_is_host(q->hostname, sizeof(q->hostname)) ||
		!name_is_image(q->layer, sizeof(q->layer)))
		return fail_set(f, EINVAL, "id, host name or layer");
	if (q->cpu_milli <= 0 || q->memory_mb <= 0 || q->disk_mb <= 0 || q->cpu_milli > 1 << 24 ||
		q->memory_mb > 1 << 24 || q->disk_mb > 1 << 24)
		return fail_set(f, EINVAL, "limits");
	if (faccessat(b->env.boxes, q->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return fail_set(f, EEXIST, "sandbox %.63s", q->id);
	for (const struct job *j = b->jobs; j; j = j->next)
		if (!j->done && ((j->kind == JOB_BUILD && j->wanted && strcmp(j->claim.id, q->id) == 0) ||
			(j->kind == JOB_END && strcmp(j->id, q->id) == 0)))
			return fail_set(f, EEXIST, "sandbox %.63s", q->id);
	return 0;
}

static void fill(struct job *j, const struct priv_req *q)
{
	memcpy(j->claim.id, q->id, sizeof(j->claim.id));
	memcpy(j->claim.hostname, q->hostname, sizeof(j->claim.hostname));
	memcpy(j->claim.secret, q->secret, sizeof(j->claim.secret));
	j->claim.generation = q->generation;
	j->claim.cpu_milli = q->cpu_milli;
	j->claim.memory_mb = q->memory_mb;
	j->wanted = true;
	j->op = q->op;
	j->tag = q->tag;
}

void op_create(struct broker *b, const struct priv_req *q, int fd)
{
	struct build_shape s = { .memory_mb = q->memory_mb, .disk_mb = q->disk_mb };
	struct fail f = { 0 };
	struct job *j = NULL;

	(void)fd;
	if (check(b, q, &f) == 0) {
		snprintf(s.layer, sizeof(s.layer), "%s", q->layer);
		j = find_spare(b, &s);
		if (!j)
			j = start_builder(b, &s);
		if (!j)
			fail_set(&f, EAGAIN, "start a builder");
	}
	if (!j) {
		broker_answer(b, q->op, q->tag, &f, NULL);
		return;
	}
	b->shape = s;
	fill(j, q);
	if (j->step == STEP_SPARE)
		send_claim(j);
}

int creates_probe(struct broker *b, uint64_t tag)
{
	struct build_shape s = { .layer = PROBE_LAYER, .memory_mb = 64, .disk_mb = 64 };
	struct job *j = start_builder(b, &s);

	if (!j)
		return -1;
	j->probe = true;
	j->op = PRIV_HELLO;
	j->tag = tag;
	return 0;
}
