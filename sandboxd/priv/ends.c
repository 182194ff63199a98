/* SPDX-License-Identifier: MIT */
/* Ending sandboxes in three steps. The guest is killed by control group, unless the front has done
 * so, and the answer goes out when none of its processes is left; that is quick, because the shim
 * still holds the namespaces. Then, a moment later so that it is not in the way of the next request
 * (the front has let it pass, where it has killed), the shim and the file worker are killed, and the
 * last of them unmounts on its way out. Groups, disk area and record are left to the janitor, a child
 * that does this one after another.
 *
 * A SWEEP is answered when nothing of what it ends runs any more and the janitor has it all: removing the files of a
 * full disk can take minutes, in which nobody need wait. What is left of such a sandbox nobody meets: its id is not
 * given again, and its block, by which quotas count, is taken until the janitor's word. So an area that nobody knows the
 * block of is waited for.
 */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define REST_AFTER_MS  15
#define CHECK_EVERY_MS 20

static struct job *find(const struct broker *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && strcmp(j->id, id) == 0)
			return j;
	return NULL;
}

bool ends_has(const struct broker *b, const char *id)
{
	return find(b, id) != NULL;
}

static struct job *find_block(struct broker *b, uint32_t block)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && j->has_block && j->block == block)
			return j;
	return NULL;
}

/* The group that has to become empty next: the guest's, then all of it. On v1 there is only one. */
static void group_of(const struct broker *b, const struct job *j, char name[BOX_NAME_MAX + 8])
{
	char group[BOX_NAME_MAX];

	box_group(group, j->block);
	snprintf(name, BOX_NAME_MAX + 8, "%s%s", group,
		j->guest_gone || b->env.cg.base2 < 0 ? "" : "/guest");
}

/* A builder that was killed is not dead yet: what it is about to make, it makes. Until then it is in no group; its
 * socket ends with it. */
static bool builder_lives(struct job *j)
{
	char word;
	ssize_t n;

	if (j->builder < 0)
		return false;
	do
		n = recv(j->builder, &word, sizeof(word), MSG_DONTWAIT);
	while (n > 0 || (n < 0 && errno == EINTR));
	if (n < 0 && errno == EAGAIN)
		return true;
	close_p(&j->builder);
	j->builder = -1;
	return false;
}

static bool populated(const struct broker *b, struct job *j)
{
	char group[BOX_NAME_MAX + 8];

	if (builder_lives(j))
		return true;
	if (!j->has_block)
		return false;
	group_of(b, j, group);
	return cg_populated(&b->env.cg, group);
}

static void kill_group(const struct broker *b, struct job *j)
{
	char group[BOX_NAME_MAX + 8];

	if (!j->has_block)
		return;
	group_of(b, j, group);
	close_p(&j->fd);
	j->fd = cg_events(&b->env.cg, group);
	(void)cg_kill(&b->env.cg, group);
}

static void answer_all(struct broker *b, struct job *j)
{
	broker_answer(b, j->op, j->tag, &j->fail, NULL);
	j->tag = 0;
	while (j->more) {
		struct waiter *w = j->more;
		broker_answer(b, PRIV_DESTROY, w->tag, NULL, NULL);
		j->more = w->next;
		free(w);
	}
	j->nmore = 0;
}

static void sweep_done(struct broker *b)
{
	b->phase = PHASE_RUN;
	while (b->keep) {
		struct keep *k = b->keep;
		b->keep = k->next;
		free(k);
	}
	b->nkeep = 0;
	works_sweep(b);
	broker_answer(b, PRIV_SWEEP, b->sweep_tag, NULL, NULL);
	b->sweep_tag = 0;
}

/* Nothing of it runs, and its block stays taken: a sweep need not wait for the rest. */
static bool is_left_over(const struct job *j)
{
	return j->clearing && j->has_block;
}

static void swept(struct broker *b, struct job *j)
{
	if (!j->sweep)
		return;
	j->sweep = false;
	if (--b->sweep_left == 0)
		sweep_done(b);
}

static void give_to_janitor(struct broker *b, struct job *j)
{
	struct janitor_job c = { .block = j->block, .has_block = j->has_block };

	close_p(&j->fd);
	j->fd = -1;
	memcpy(c.id, j->id, sizeof(c.id));
	/* A full queue must not block: the janitor may be waiting for us. ends_check tries again.
	 */
	if (send(b->janitor, &c, sizeof(c), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(c))
		return;
	j->clearing = true;
	if (is_left_over(j))
		swept(b, j);
}

/* Takes as many steps as can be taken now. */
static void advance(struct broker *b, struct job *j)
{
	if (!j->guest_gone && !populated(b, j)) {
		j->guest_gone = true;
		/* A failed create answers when nothing is left of it, a destroy now. */
		if (j->op == PRIV_DESTROY) {
			answer_all(b, j);
			if (!j->was_gone)
				j->rest_ms = broker_now_ms() + REST_AFTER_MS;
		}
		if (j->rest_ms) {
			close_p(&j->fd);
			j->fd = -1;
		} else {
			kill_group(b, j);
		}
	}
	if (j->rest_ms && broker_now_ms() >= j->rest_ms) {
		j->rest_ms = 0;
		kill_group(b, j);
	}
	if (j->rest_ms)
		return;
	/* A snapshot that is being taken is finished first. */
	if (j->guest_gone && !j->clearing && !works_seal(b, j->id) && !populated(b, j))
		give_to_janitor(b, j);
}

static void check_one(struct broker *b, struct job *j)
{
	if (j->clearing || j->done)
		return;
	advance(b, j);
	if (j->clearing || j->rest_ms)
		return;
	kill_group(b, j); /* pure v1, or one that was still being moved in */
	if (j->tag && j->op == PRIV_DESTROY && broker_now_ms() - j->since_ms > BROKER_END_MS) {
		struct fail f = { 0 };
		fail_set(&f, ETIMEDOUT, "processes of %.63s do not end", j->id);
		broker_answer(b, j->op, j->tag, &f, NULL);
		j->tag = 0; /* goes on trying */
	}
}

void ends_event(struct broker *b, struct job *j)
{
	if (!j->clearing)
		advance(b, j);
	if (j->fd >= 0)
		cg_events_read(j->fd);
}

bool ends_waited_for(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && !j->guest_gone)
			return true;
	return false;
}

bool ends_pending(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && !j->clearing)
			return true;
	return false;
}

/* One that died, and that could not be started again at once. */
static void replace_janitor(struct broker *b, int64_t now)
{
	struct fail f = { 0 };

	if (b->janitor >= 0 || now < b->janitor_ms)
		return;
	b->janitor_ms = now + CHECK_EVERY_MS;
	(void)janitor_start(b, &f);
}

/* Called in every round, of which there are many: each job is looked at now and then only. */
void ends_check(struct broker *b)
{
	int64_t now = broker_now_ms();

	replace_janitor(b, now);
	for (struct job *j = b->jobs; j; j = j->next) {
		if (j->kind != JOB_END || now < (j->rest_ms ? j->rest_ms : j->check_ms))
			continue;
		j->check_ms = now + CHECK_EVERY_MS;
		check_one(b, j);
	}
}

static void ended(struct broker *b, struct job *j)
{
	b->removed = true;
	if (j->has_block)
		box_block_free(&b->blocks, j->block);
	answer_all(b, j);
	j->done = true;
	swept(b, j);
}

void ends_janitor_event(struct broker *b)
{
	struct janitor_job c;
	ssize_t n = recv(b->janitor, &c, sizeof(c), MSG_DONTWAIT);
	struct job *j;

	if (n == sizeof(c)) {
		j = c.id[0] ? find(b, c.id) : find_block(b, c.block);
		if (j)
			ended(b, j);
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* It died: another one is given everything again. */
	close_p(&b->janitor);
	b->janitor = -1;
	for (j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END)
			j->clearing = false;
}

static bool wait_with(struct job *j, uint64_t tag)
{
	struct waiter *w = j->nmore < BROKER_WAITERS_MAX ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return false;
	w->tag = tag;
	w->next = j->more;
	j->more = w;
	j->nmore++;
	return true;
}

static struct job *new_end(struct broker *b, const char *id, bool has_block, uint32_t block)
{
	struct job *j = broker_job(b, JOB_END);

	if (!j)
		return NULL;
	snprintf(j->id, sizeof(j->id), "%s", id);
	j->has_block = has_block;
	j->block = block;
	j->check_ms = j->since_ms + CHECK_EVERY_MS;
	kill_group(b, j);
	return j;
}

/* builder: ours now */
void ends_block(struct broker *b, uint32_t block, int builder)
{
	struct job *j = new_end(b, "", true, block);

	if (!j) {
		close_p(&builder);
		return;
	}
	j->builder = builder;
	advance(b, j);
}

void ends_start(struct broker *b, const char *id, uint32_t op, uint64_t tag, const struct fail *f)
{
	struct job *j = find(b, id);
	struct fail none = { 0 };
	struct record box = { .block = 0 };
	bool known;
	int r;

	if (j && tag && !j->clearing) {
		if (wait_with(j, tag))
			return;
		fail_set(&none, EAGAIN, "wait for the end of %.63s", id);
		f = &none;
	}
	if (j) {
		broker_answer(b, op, tag, f, NULL);
		return;
	}
	r = record_read(b->env.boxes, id, &box);
	known = r == 0;
	if (record_unread(r)) {
		/* without its record it would lose its files and go on */
		fail_set(&none, r, "find %.63s", id);
		broker_answer(b, op, tag, &none, NULL);
		return;
	}
	j = new_end(b, id, known, known ? box.block : 0);
	if (!j) {
		fail_set(&none, ENOMEM, "end a sandbox");
		broker_answer(b, op, tag, &none, NULL);
		return;
	}
	j->op = op;
	j->tag = tag;
	if (f)
		j->fail = *f;
	j->was_gone = !populated(b, j);
	advance(b, j);
}

void op_destroy(struct broker *b, const struct priv_req *q, int fd)
{
	struct fail f = { 0 };

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id))) {
		fail_set(&f, EINVAL, "id");
		broker_answer(b, q->op, q->tag, &f, NULL);
		return;
	}
	creates_cancel(b, q->id);
	ends_start(b, q->id, q->op, q->tag, NULL);
}

/* --- sweep ----------------------------------------------------------------------------------- */

static bool kept(const struct broker *b, const char *id)
{
	for (const struct keep *k = b->keep; k; k = k->next)
		if (strcmp(k->id, id) == 0)
			return true;
	return false;
}

static void count_in(struct broker *b, struct job *j)
{
	if (!j || is_left_over(j))
		return;
	j->sweep = true;
	b->sweep_left++;
}

static void sweep_one(void *arg, const char *id)
{
	struct broker *b = arg;

	if (!name_is_id(id, PRIV_ID_MAX) || kept(b, id) || find(b, id))
		return;
	ends_start(b, id, PRIV_SWEEP, 0, NULL);
	count_in(b, find(b, id));
}

/* The blocks that a record names; read once, or hundreds of sandboxes cost a square of reads. */
struct owners {
	struct broker *b;
	bool has[BOX_BLOCKS];
	bool unsure; /* there is a record that cannot be read just now */
};

static void note_owner(void *arg, const char *id)
{
	struct owners *o = arg;
	struct record box;

	int r = record_read(o->b->env.boxes, id, &box);

	if (r == 0)
		o->has[box.block] = true;
	o->unsure = o->unsure || record_unread(r);
}

static bool being_built(const struct broker *b, uint32_t block)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_BUILD && !j->done && j->from.block == block)
			return true;
	return false;
}

/* Groups that no record names: of builders whose broker died. */
static void sweep_group(void *arg, uint32_t block)
{
	const struct owners *o = arg;

	if (block >= BOX_BLOCKS || o->has[block] || find_block(o->b, block) ||
		being_built(o->b, block))
		return;
	ends_block(o->b, block, -1);
	count_in(o->b, find_block(o->b, block));
}

static void sweep_groups(struct broker *b)
{
	struct owners *o = calloc(1, sizeof(*o));

	if (!o)
		return; /* the next start sweeps again */
	o->b = b;
	if (box_each(b->env.boxes, note_owner, o) == 0 && !o->unsure)
		cg_each(&b->env.cg, sweep_group, o);
	free(o);
}

void op_sweep(struct broker *b, const struct priv_req *q, int fd)
{
	(void)fd;
	if (b->sweep_tag) {
		struct fail f = { 0 };
		fail_set(&f, EBUSY, "sweep");
		broker_answer(b, q->op, q->tag, &f, NULL);
		return;
	}
	b->sweep_tag = q->tag;
	b->sweep_left = 1; /* this */
	box_each(b->env.boxes, sweep_one, b);
	area_each(&b->env.areas, sweep_one, b);
	sweep_groups(b);
	if (--b->sweep_left == 0)
		sweep_done(b);
}
