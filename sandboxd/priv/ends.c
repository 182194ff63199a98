/* SPDX-License-Identifier: MIT */
/* Ending sandboxes: kill by control group at once, answer when nothing runs any more, and leave the
 * rest (groups, disk area, record) to the janitor, a child that does this one after another. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* --- the janitor ----------------------------------------------------------------------------- */

static void clear_away(const struct build_env *env, const char *id)
{
	int r = cg_remove(&env->cg, id);

	if (r < 0)
		fprintf(stderr, "<warn> control groups of %s stay: %s\n", id, strerror(-r));
	r = area_remove(&env->areas, id);
	if (r < 0)
		fprintf(stderr, "<warn> disk area of %s stays: %s\n", id, strerror(-r));
	/* The record last: as long as anything is left, the next sweep finds it. */
	if (unlinkat(env->boxes, id, 0) < 0 && errno != ENOENT)
		fprintf(stderr, "<warn> record of %s stays: %s\n", id, strerror(errno));
}

static void janitor(const struct build_env *env, int sock)
{
	char id[PRIV_ID_MAX];
	ssize_t n;

	while ((n = recv(sock, id, sizeof(id), 0)) == sizeof(id) || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		clear_away(env, id);
		(void)send(sock, id, sizeof(id), MSG_NOSIGNAL);
	}
	_exit(0);
}

int ends_janitor_start(struct broker *b, struct fail *f)
{
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return fail_set(f, errno, "make a socket pair");
	pid = fork();
	if (pid < 0)
		return fail_set(f, errno, "start the janitor");
	if (pid == 0) {
		broker_leave(b, -1);
		close(sv[0]);
		janitor(&b->env, sv[1]);
	}
	close(sv[1]);
	b->janitor = sv[0];
	return 0;
}

/* --- jobs ------------------------------------------------------------------------------------ */

static struct job *find(struct broker *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && strcmp(j->id, id) == 0)
			return j;
	return NULL;
}

static void answer_all(struct broker *b, struct job *j)
{
	broker_answer(b, j->op, j->tag, &j->fail, NULL);
	j->tag = 0;
	for (struct waiter *w = j->more; w; w = w->next)
		broker_answer(b, PRIV_DESTROY, w->tag, NULL, NULL);
	while (j->more) {
		struct waiter *w = j->more;
		j->more = w->next;
		free(w);
	}
}

static void give_to_janitor(struct broker *b, struct job *j)
{
	close_p(&j->fd);
	j->fd = -1;
	/* A failed create answers when nothing is left of it; a destroy when nothing runs. */
	if (j->op == PRIV_DESTROY)
		answer_all(b, j);
	/* A full queue must not block: the janitor may be waiting for us. ends_check tries again. */
	if (send(b->janitor, j->id, sizeof(j->id), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(j->id))
		j->clearing = true;
}

static void check_one(struct broker *b, struct job *j)
{
	if (j->clearing || j->done)
		return;
	if (!cg_populated(&b->env.cg, j->id)) {
		give_to_janitor(b, j);
		return;
	}
	(void)cg_kill(&b->env.cg, j->id); /* pure v1, or one that was still being moved in */
	if (j->tag && j->op == PRIV_DESTROY && broker_now_ms() - j->since_ms > BROKER_END_MS) {
		struct fail f = { 0 };
		fail_set(&f, ETIMEDOUT, "processes of %.63s do not end", j->id);
		broker_answer(b, j->op, j->tag, &f, NULL);
		j->tag = 0; /* goes on trying */
	}
}

void ends_event(struct broker *b, struct job *j)
{
	if (!j->clearing && !cg_populated(&b->env.cg, j->id))
		give_to_janitor(b, j);
	else if (j->fd >= 0)
		cg_events_read(j->fd);
}

bool ends_pending(const struct broker *b)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && !j->done && !j->clearing)
			return true;
	return false;
}

void ends_check(struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END && broker_now_ms() - j->since_ms >= 20)
			check_one(b, j);
}

static void sweep_done(struct broker *b)
{
	b->phase = PHASE_RUN;
	while (b->keep) {
		struct keep *k = b->keep;
		b->keep = k->next;
		free(k);
	}
	images_clean(b);
	broker_answer(b, PRIV_SWEEP, b->sweep_tag, NULL, NULL);
	b->sweep_tag = 0;
}

static void ended(struct broker *b, struct job *j)
{
	if (j->wanted)
		box_block_free(&b->blocks, j->block);
	answer_all(b, j);
	j->done = true;
	if (j->sweep && --b->sweep_left == 0)
		sweep_done(b);
}

void ends_janitor_event(struct broker *b)
{
	char id[PRIV_ID_MAX];
	ssize_t n = recv(b->janitor, id, sizeof(id), MSG_DONTWAIT);
	struct fail f = { 0 };
	struct job *j;

	if (n == sizeof(id)) {
		id[sizeof(id) - 1] = 0;
		j = find(b, id);
		if (j)
			ended(b, j);
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* It died: start another and give it everything again. */
	close_p(&b->janitor);
	b->janitor = -1;
	if (ends_janitor_start(b, &f) < 0)
		return;
	for (j = b->jobs; j; j = j->next)
		if (j->kind == JOB_END)
			j->clearing = false;
}

static bool wait_with(struct job *j, uint64_t tag)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return false;
	w->tag = tag;
	w->next = j->more;
	j->more = w;
	return true;
}

void ends_start(struct broker *b, const char *id, uint32_t op, uint64_t tag, const struct fail *f)
{
	struct job *j = find(b, id);
	struct box box;

	if (j && tag && !j->clearing && wait_with(j, tag))
		return;
	if (j) {
		broker_answer(b, op, tag, f, NULL);
		return;
	}
	(void)cg_kill(&b->env.cg, id);
	j = broker_job(b, JOB_END);
	if (!j) {
		struct fail none = { 0 };
		fail_set(&none, ENOMEM, "end a sandbox");
		broker_answer(b, op, tag, &none, NULL);
		return;
	}
	snprintf(j->id, sizeof(j->id), "%s", id);
	j->op = op;
	j->tag = tag;
	if (f)
		j->fail = *f;
	/* `wanted` says here that the record named a block, which comes free at the end. */
	j->wanted = box_read(b->env.boxes, id, &box) == 0;
	j->block = j->wanted ? box.block : 0;
	j->fd = cg_events(&b->env.cg, id);
	if (j->fd < 0 || !cg_populated(&b->env.cg, id))
		give_to_janitor(b, j);
}

static void cancel_build(struct broker *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_BUILD && !j->done && j->wanted && strcmp(j->claim.id, id) == 0 &&
			j->step != STEP_PREPARING)
			kill(j->pid, SIGKILL); /* its end answers the create and clears away */
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
	cancel_build(b, q->id);
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

static void sweep_one(void *arg, const char *id)
{
	struct broker *b = arg;

	if (!name_is_id(id, PRIV_ID_MAX) || kept(b, id) || find(b, id))
		return;
	b->sweep_left++;
	ends_start(b, id, PRIV_SWEEP, 0, NULL);
	struct job *j = find(b, id);
	if (j)
		j->sweep = true;
	else
		b->sweep_left--;
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
	b->sweep_left = 0;
	cg_each(&b->env.cg, sweep_one, b);
	box_each(b->env.boxes, sweep_one, b);
	area_each(&b->env.areas, sweep_one, b);
	if (b->sweep_left == 0)
		sweep_done(b);
}
