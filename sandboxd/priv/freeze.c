/* SPDX-License-Identifier: MIT */
/* Suspend and resume: a guest's processes are stopped, or set going, by their control group, and
 * the answer goes out when the kernel says that it is so for all of them. Those that do not come to
 * a stop in time are set going again, so that a refusal leaves the sandbox as it was. The shim, the
 * file worker and the egress process are in another group: they go on. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define FREEZE_MS 5000 /* for all processes to stop */
#define PROBE_MS  2000

/* The guest's group. On pure v1 there is only one, and only guest processes are in it. */
static void group_of(const struct broker *b, uint32_t block, char name[BOX_NAME_MAX + 8])
{
	char group[BOX_NAME_MAX];

	box_group(group, block);
	snprintf(name, BOX_NAME_MAX + 8, "%s%s", group, b->env.cg.base2 < 0 ? "" : "/guest");
}

/* 1: as wanted; 0: not yet; -errno. */
static int reached(const struct broker *b, uint32_t block, bool on)
{
	char group[BOX_NAME_MAX + 8];
	int r;

	group_of(b, block, group);
	r = cg_frozen(&b->env.cg, group);
	return r < 0 ? r : (r == 1) == on;
}

static int ask_for(const struct broker *b, uint32_t block, bool on)
{
	char group[BOX_NAME_MAX + 8];

	group_of(b, block, group);
	return cg_freeze(&b->env.cg, group, on);
}

static void finish(struct broker *b, struct job *j, int r)
{
	struct fail f = { 0 };

	if (r == -ETIMEDOUT)
		fail_set(&f, r, "the processes of %.63s do not %s", j->id,
			j->freeze ? "come to a stop" : "go on");
	else if (r < 0)
		fail_set(&f, r, "%s %.63s", j->freeze ? "freeze" : "thaw", j->id);
	broker_answer(b, j->op, j->tag, &f, NULL);
	j->done = true;
}

void freezes_event(struct broker *b, struct job *j)
{
	int r;

	if (j->fd >= 0)
		cg_events_read(j->fd); /* first, so that no change falls between */
	r = reached(b, j->block, j->freeze);
	if (r == 0 && broker_now_ms() - j->since_ms > FREEZE_MS) {
		(void)ask_for(b, j->block, false);
		r = -ETIMEDOUT;
	}
	if (r != 0)
		finish(b, j, r);
}

void freezes_check(struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_FREEZE && !j->done)
			freezes_event(b, j);
}

bool freezes_pending(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_FREEZE && !j->done)
			return true;
	return false;
}

static bool is_turning(const struct broker *b, const char *id)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_FREEZE && !j->done && strcmp(j->id, id) == 0)
			return true;
	return false;
}

static int start(struct broker *b, const struct priv_req *q, uint32_t block, struct fail *f)
{
	char group[BOX_NAME_MAX + 8];
	struct job *j = broker_job(b, JOB_FREEZE);
	int r;

	if (!j)
		return fail_set(f, ENOMEM, "freeze");
	memcpy(j->id, q->id, sizeof(j->id));
	j->block = block;
	j->freeze = q->kind == 1;
	j->op = q->op;
	j->tag = q->tag;
	group_of(b, block, group);
	j->fd = cg_events(&b->env.cg, group);
	r = ask_for(b, block, j->freeze);
	if (r < 0)
		finish(b, j, r);
	else
		freezes_event(b, j);
	return 0;
}

void op_freeze(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };
	struct record box;

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id)) || q->kind > 1)
		fail_set(&f, EINVAL, "freeze");
	else if (works_seal(b, q->id))
		fail_set(&f, EAGAIN, "a snapshot of %.63s is being taken", q->id);
	else if (is_turning(b, q->id))
		fail_set(&f, EAGAIN, "%.63s is being frozen or thawed", q->id);
	else if (broker_find(b, q->id, &box, &f) == 0)
		start(b, q, box.block, &f);
	if (f.sys)
		broker_answer(b, q->op, q->tag, &f, NULL);
}

/* At the start only, where nobody else waits for the broker. */
static bool turn_and_wait(const struct broker *b, uint32_t block, bool on)
{
	int64_t end = broker_now_ms() + PROBE_MS;
	int r = ask_for(b, block, on);

	while (r == 0 && (r = reached(b, block, on)) == 0 && broker_now_ms() < end)
		(void)poll(NULL, 0, 1);
	return r == 1;
}

bool freezes_work(const struct broker *b, uint32_t block)
{
	char group[BOX_NAME_MAX + 8];

	group_of(b, block, group);
	return cg_populated(&b->env.cg, group) && turn_and_wait(b, block, true) &&
	       turn_and_wait(b, block, false) && cg_populated(&b->env.cg, group);
}
