/* SPDX-License-Identifier: MIT */
/* Limits of disks that have snapshots. The file system charges a sandbox for what it wrote as long
 * as anything uses it; what only snapshots hold any more must not count. So the limit is the size,
 * and what is charged without being in the sandbox's tree. That changes as the sandbox overwrites
 * its files and as snapshots go: whenever much has been charged since the last time, the tree is
 * measured again. What is deleted is not uncharged while a snapshot holds it, so where little is
 * left any change is a reason, too.
 * Other things are charged and in no file: files that have lost their names, the rest of what is overwritten in
 * part, tables. A guest can make any number of these; so what is added is at most what was charged when the last
 * snapshot was taken, for no snapshot can hold more. */
#include "sandboxd/priv/broker.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 1000
#define LITTLE  ((int64_t)4 << 20)
#define TRIES   10
#define TRY_MS  100
#define PART    8 /* of the size: so much may be charged before the tree is measured again */
#define REST    4 /* times as long as measuring took, where nothing was charged */

struct limited {
	struct limited *next;
	char id[PRIV_ID_MAX];
	int64_t size, used; /* bytes; charged when it was measured */
	int64_t changed;    /* area_usage's, then */
	int64_t began_ms, rest_ms;
};

/* --- in a child ------------------------------------------------------------------------------- */

/* Bytes that are charged and in no file of the tree, measured at a moment when little changed; of a
 * tree that never rests the smaller figure. */
static int measure_dead(const struct area_store *s, const char *id, int upper, int64_t *ret)
{
	struct area_usage before = { 0 }, after = { 0 };
	int64_t alive = 0;
	int r = 0;

	for (int tries = 0; tries < TRIES && r == 0; tries++) {
		r = area_usage(s, id, &before);
		if (r == 0)
			r = seal_measure(upper, &alive);
		if (r == 0)
			r = area_usage(s, id, &after);
		if (r == 0 && llabs(after.used - before.used) < LITTLE / 4)
			break;
		(void)poll(NULL, 0, TRY_MS);
	}
	if (after.used < before.used)
		before.used = after.used;
	*ret = before.used > alive ? before.used - alive : 0;
	return r;
}

int64_t limit_of(int64_t size, int64_t held, int64_t most)
{
	if (most < 0)
		most = 0;
	return size + (held < most ? held : most) + LIMIT_MARK;
}

/* At most so much of it is held by snapshots; -errno: nobody knows. */
static int64_t most_held(const struct build_env *env, const char *id)
{
	int64_t most = record_sealed(env->boxes, id);
	struct area_usage u;

	if (most != -ENOENT)
		return most;
	/* sealed by a broker that did not note it */
	if (area_usage(&env->areas, id, &u) < 0 || record_note_sealed(env->boxes, id, u.used) < 0)
		return 0;
	return u.used;
}

void limit_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	const struct area_store *s = &env->areas;
	_cleanup_close_ int mnt = -1;
	struct record box;
	int64_t dead = 0, size;
	int r = record_read(env->boxes, w->id, &box);

	fault_point("limit");
	if (r == 0)
		r = area_reopen(s, w->id, &mnt, &ret->fail);
	if (r < 0)
		return;
	_cleanup_close_ int upper = open_below(mnt, "upper", O_RDONLY | O_DIRECTORY, 0);
	size = box.disk_mb << 20;
	if (upper < 0 || size <= 0 || measure_dead(s, w->id, upper, &dead) < 0)
		return;
	(void)s->provider->limit(s, w->id, limit_of(size, dead, most_held(env, w->id)));
}

/* --- in the broker ---------------------------------------------------------------------------- */

static struct limited *find(const struct broker *b, const char *id)
{
	for (struct limited *l = b->limited; l; l = l->next)
		if (strcmp(l->id, id) == 0)
			return l;
	return NULL;
}

void limits_watch(struct broker *b, const char *id)
{
	struct area_usage u;
	struct record box;
	struct limited *l;

	if (!b->env.areas.provider->limit || area_usage(&b->env.areas, id, &u) < 0 ||
		record_read(b->env.boxes, id, &box) < 0)
		return;
	l = find(b, id);
	if (!l && !(l = calloc(1, sizeof(*l))))
		return;
	if (!l->id[0]) {
		snprintf(l->id, sizeof(l->id), "%s", id);
		l->next = b->limited;
		b->limited = l;
	}
	l->size = box.disk_mb << 20;
	l->used = u.used;
	l->changed = 0; /* what was deleted since the snapshot was made is not known */
}

/* A broker that starts finds those of the last one by their limit. */
static void find_one(void *arg, const char *id)
{
	struct broker *b = arg;
	struct area_usage u;
	struct record box;

	if (record_read(b->env.boxes, id, &box) == 0 && area_usage(&b->env.areas, id, &u) == 0 &&
		u.size != box.disk_mb << 20)
		limits_watch(b, id);
}

void limits_find(struct broker *b)
{
	if (b->env.areas.provider->limit)
		box_each(b->env.boxes, find_one, b);
}

static bool is_being_measured(const struct broker *b, const char *id)
{
	for (const struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_WORK && !j->done &&
			(j->op == WORK_LIMIT || j->op == PRIV_SNAPSHOT) &&
			strcmp(j->work.id, id) == 0)
			return true;
	return false;
}

static void measure(struct broker *b, struct limited *l, const struct area_usage *u)
{
	struct job *j = broker_job(b, JOB_WORK);

	if (!j)
		return;
	l->used = u->used;
	l->changed = u->changed;
	l->began_ms = broker_now_ms();
	j->op = j->work.op = WORK_LIMIT;
	memcpy(j->work.id, l->id, sizeof(j->work.id));
}

/* Much has changed; or a little where little is left. Less is charged when a snapshot is gone: then
 * the limit is too high. */
static bool is_due(const struct limited *l, const struct area_usage *u)
{
	int64_t more = u->used - l->used, left = u->size - u->used;

	if (more > l->size / PART || -more > l->size / PART)
		return true;
	if (left >= l->size / PART)
		return false;
	return more > LITTLE || (more > 0 && left < 4 * LITTLE) ||
	       (u->changed != l->changed && broker_now_ms() >= l->rest_ms);
}

/* false: the sandbox is gone. */
static bool look_at(struct broker *b, struct limited *l)
{
	struct area_usage u;

	if (area_usage(&b->env.areas, l->id, &u) < 0)
		return false;
	if (is_being_measured(b, l->id))
		l->rest_ms = broker_now_ms() + REST * (broker_now_ms() - l->began_ms);
	else if (is_due(l, &u))
		measure(b, l, &u);
	return true;
}

void limits_check(struct broker *b)
{
	struct limited **p = &b->limited;
	int64_t now = broker_now_ms();

	if (!b->limited || now < b->limits_ms)
		return;
	b->limits_ms = now + LOOK_MS;
	while (*p) {
		struct limited *l = *p;
		if (look_at(b, l)) {
			p = &l->next;
			continue;
		}
		*p = l->next;
		free(l);
	}
}

int limits_ms(const struct broker *b)
{
	int64_t left = b->limits_ms - broker_now_ms();

	if (!b->limited)
		return -1;
	return left < 1 ? 1 : left > LOOK_MS ? LOOK_MS : (int)left;
}
