/* SPDX-License-Identifier: MIT */
/* Snapshots, forks and schedules (node contract, 16 and 17) as the core decides about them, on a
 * backend whose snapshots can be held open and made to fail. */
#include "tests/support/double.h"

#include "sandboxd/core/clock.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/snapshots.h"
#include "sandboxd/core/volumes.h"

static struct double_rig *const rig = &double_rig;
static struct double_world *const w = &double_world;

#define NAME(s) ((char *)(uintptr_t)(s))

/* --- helpers --------------------------------------------------------------------------------- */

static enum err_code take(struct sandbox *s, char id[SNP_ID_MAX])
{
	struct err e = ERR_NULL;
	json_t *o = NULL;

	if (snapshot_take(s, true, &o, &e) < 0)
		return e.code;
	if (id)
		snprintf(id, SNP_ID_MAX, "%s", json_string_value(json_object_get(o, "id")));
	json_decref(o);
	return ERR_NONE;
}

struct taker { /* takes one on a thread of its own */
	struct sandbox *s;
	enum err_code code;
	char id[SNP_ID_MAX];
	pthread_t thread;
};

static void *take_thread(void *arg)
{
	struct taker *t = arg;

	t->code = take(t->s, t->id);
	return NULL;
}

static bool is_under_way(void *arg)
{
	unsigned n;

	pthread_mutex_lock(&w->lock);
	n = w->under_way;
	pthread_mutex_unlock(&w->lock);
	return n >= *(unsigned *)arg;
}

static void begin_take(struct taker *t, struct sandbox *s)
{
	unsigned one = 1;

	double_set(&w->hold, true);
	t->s = s;
	assert_int_equal(pthread_create(&t->thread, NULL, take_thread, t), 0);
	double_wait(is_under_way, &one);
}

static void end_take(struct taker *t)
{
	double_set(&w->hold, false);
	pthread_join(t->thread, NULL);
}

/* Snapshots of a sandbox, or of all; of the schedule, or all. */
static size_t count(const char *sandbox, bool scheduled)
{
	_cleanup_json_ json_t *all = snapshots_json(rig->core);
	json_t *o;
	size_t i, n = 0;

	json_array_foreach (all, i, o)
		n += (!sandbox ||
			     !strcmp(json_string_value(json_object_get(o, "sandbox")), sandbox)) &&
		     (!scheduled || json_is_true(json_object_get(o, "scheduled")));
	return n;
}

static json_t *shown(struct sandbox *s, const char *key) /* caller unrefs */
{
	_cleanup_json_ json_t *o = sandbox_json(s);

	return json_incref(json_object_get(o, key));
}

static unsigned layers(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < DOUBLE_MAX; i++)
		n += w->layers[i];
	pthread_mutex_unlock(&w->lock);
	return n;
}

static bool layers_are(void *arg)
{
	return layers() == *(unsigned *)arg;
}

static void wait_layers(unsigned n)
{
	double_wait(layers_are, &n);
}

static void end(struct sandbox *s)
{
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0);
	sandbox_unref(s);
}

static enum err_code schedule(struct sandbox *s, int64_t every, int64_t keep)
{
	struct schedule_body b = { every, keep };
	struct err e = ERR_NULL;

	if (schedule_check(rig->core, every, keep, &e) < 0 || schedule_set(s, &b, true, &e) < 0)
		return e.code;
	return ERR_NONE;
}

struct counted {
	const char *id;
	size_t n;
};

static bool has_taken(void *arg)
{
	const struct counted *c = arg;

	return double_events(rig, c->id, "snapshot.created", NULL, NULL) >= c->n;
}

static bool is_at_rest(void *arg)
{
	struct sandbox *s = arg;
	bool rest;

	pthread_mutex_lock(&s->lock);
	rest = !s->snapshot_queued && !s->taking.started_ns;
	pthread_mutex_unlock(&s->lock);
	return rest;
}

static void make_due(struct sandbox *s)
{
	pthread_mutex_lock(&s->lock);
	s->snapshot_due_ms = 1;
	schedule_look(s);
	pthread_mutex_unlock(&s->lock);
}

static enum err_code fork_of(const char *id, struct create_body b, struct sandbox **ret)
{
	struct err e = ERR_NULL;

	b.snapshot_id = NAME(id);
	return sandbox_create(rig->core, &b, NULL, NULL, ret, &e) < 0 ? e.code : ERR_NONE;
}

/* --- on request ------------------------------------------------------------------------------ */

static void a_snapshot_is_listed_with_all_that_is_known(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	char id[SNP_ID_MAX];
	_cleanup_json_ json_t *all = NULL;
	const json_t *o;

	(void)state;
	assert_int_equal(take(s, id), ERR_NONE);
	all = snapshots_json(rig->core);
	o = json_array_get(all, 0);
	assert_true(id_is_snapshot(id));
	assert_string_equal(json_string_value(json_object_get(o, "id")), id);
	assert_string_equal(json_string_value(json_object_get(o, "sandbox")), s->id);
	assert_string_equal(json_string_value(json_object_get(o, "image")), s->image);
	assert_string_equal(json_string_value(json_object_get(o, "kind")), "disk");
	assert_int_equal(json_integer_value(json_object_get(o, "bytes")), 4096);
	assert_null(json_object_get(o, "scheduled"));
	assert_int_equal(double_events(rig, s->id, "snapshot.created", "snapshot", id), 1);
	end(s);
	assert_int_equal(count(NULL, false), 1); /* it outlives its sandbox */
}

static void refusals_come_in_the_contracts_order(void **state)
{
	struct volume_body vb = { .name = NAME("v"), .size_mb = 1 };
	struct volume_mount_body m = { NAME("v"), NAME("/data"), true };
	struct create_body with = { .volumes = { &m, 1 } };
	struct sandbox *s;
	struct err e = ERR_NULL;
	json_t *v = NULL;

	(void)state;
	assert_int_equal(volumes_create(rig->core, &vb, &v, &e), 0);
	json_decref(v);
	s = double_sandbox(rig, &with);
	assert_int_equal(take(s, NULL), ERR_CONFLICT); /* volumes */
	assert_int_equal(schedule(s, 1, 1), ERR_CONFLICT);
	assert_int_equal(schedule(s, 0, 0), ERR_CONFLICT);
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0);
	assert_int_equal(take(s, NULL), ERR_CONFLICT); /* not running */
	assert_int_equal(schedule(s, 1, 1), ERR_CONFLICT);
	assert_int_equal(schedule(s, -1, 1), ERR_INVALID_REQUEST); /* looked at first */
	assert_int_equal(w->taken, 0);
	sandbox_unref(s);
	assert_int_equal(snapshot_delete(rig->core, "snp_0000000000000000", &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void one_at_a_time_and_its_progress_is_shown(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *other = double_sandbox(rig, NULL);
	struct taker t;
	json_t *p;

	(void)state;
	begin_take(&t, s);
	assert_int_equal(take(s, NULL), ERR_CONFLICT);
	p = shown(s, "snapshotting");
	assert_non_null(json_object_get(p, "started_at"));
	assert_string_equal(json_string_value(json_object_get(p, "phase")), "capture");
	assert_true(json_is_integer(json_object_get(p, "bytes")));
	assert_null(json_object_get(p, "scheduled"));
	json_decref(p);
	assert_int_equal(count(NULL, false), 0);
	assert_null(shown(other, "snapshotting"));
	end_take(&t);
	assert_int_equal(t.code, ERR_NONE);
	assert_null(shown(s, "snapshotting"));
	assert_int_equal(take(s, NULL), ERR_NONE);
	assert_int_equal(count(s->id, false), 2);
	end(s);
	end(other);
}

static void an_ended_sandbox_keeps_its_progress_to_the_end(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *fork;
	struct create_body none = { 0 };
	struct taker t;
	json_t *p;

	(void)state;
	begin_take(&t, s);
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0); /* does not wait */
	p = shown(s, "state");
	assert_string_equal(json_string_value(p), "terminated");
	json_decref(p);
	p = shown(s, "snapshotting");
	assert_non_null(p);
	json_decref(p);
	end_take(&t);
	assert_int_equal(t.code, ERR_NONE);
	assert_null(shown(s, "snapshotting"));
	assert_int_equal(count(s->id, false), 1);
	assert_int_equal(fork_of(t.id, none, &fork), ERR_NONE);
	end(fork);
	sandbox_unref(s);
}

static void one_that_fails_leaves_nothing(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	struct taker t;

	(void)state;
	w->fail_snapshots = 2;
	assert_int_equal(take(s, NULL), ERR_INTERNAL);
	assert_null(shown(s, "snapshotting"));
	begin_take(&t, s);
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0);
	end_take(&t);
	assert_int_equal(t.code, ERR_CONFLICT); /* it is gone, and that is why */
	assert_int_equal(count(NULL, false), 0);
	assert_int_equal(double_events(rig, s->id, "snapshot.created", NULL, NULL), 0);
	wait_layers(0);
	sandbox_unref(s);
}

static void the_idle_timeout_waits_for_a_snapshot(void **state)
{
	struct create_body b = { .idle_timeout_secs = 1 };
	struct sandbox *s = double_sandbox(rig, &b);
	struct taker t;

	(void)state;
	begin_take(&t, s);
	pthread_mutex_lock(&s->lock);
	s->uses = 0; /* as a scheduled one is no use */
	s->idle_since_ms = 1;
	assert_false(lifetime_is_idle(s));
	s->uses = 1;
	pthread_mutex_unlock(&s->lock);
	end_take(&t);
	end(s);
}

/* --- forks ----------------------------------------------------------------------------------- */

static void a_fork_is_checked_and_begins_with_the_originals_figures(void **state)
{
	struct create_body first = { .cpus = 2, .memory_mb = 300, .disk_mb = 200 };
	struct volume_mount_body m = { NAME("v"), NAME("/data"), true };
	struct sandbox *s = double_sandbox(rig, &first), *fork = NULL;
	char id[SNP_ID_MAX];
	const struct {
		const char *id;
		struct create_body body;
		enum err_code want;
	} rows[] = {
		{ "snp_0000000000000000", { 0 }, ERR_NOT_FOUND },
		{ "snp_0000000000000000", { .image = NAME("another:1") }, ERR_NOT_FOUND },
		{ "nonsense", { .name = NAME("Upper") }, ERR_NOT_FOUND },
		{ id, { .image = NAME("another:1") }, ERR_INVALID_REQUEST },
		{ id, { .image = NAME("another:1"), .name = NAME("Upper") }, ERR_INVALID_REQUEST },
		{ id, { .volumes = { &m, 1 } }, ERR_INVALID_REQUEST },
		{ id, { .gpus = 1 }, ERR_UNSUPPORTED },
		{ id, { .memory_mb = 1 << 20 }, ERR_INVALID_REQUEST },
	};

	(void)state;
	assert_int_equal(take(s, id), ERR_NONE);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (fork_of(rows[i].id, rows[i].body, &fork) != rows[i].want)
			fail_msg("row %zu", i);
	assert_int_equal(fork_of(id, (struct create_body){ .image = s->image }, &fork), ERR_NONE);
	assert_true(fork->cpus == 2);
	assert_int_equal(fork->memory_mb, 300);
	assert_int_equal(fork->disk_mb, 200);
	assert_string_not_equal(fork->id, s->id);
	assert_memory_not_equal(fork->secret, s->secret, sizeof(s->secret));
	assert_int_equal(double_events(rig, fork->id, "sandbox.created", "snapshot", id), 1);
	end(fork);
	assert_int_equal(fork_of(id, (struct create_body){ .memory_mb = 600 }, &fork), ERR_NONE);
	assert_int_equal(fork->memory_mb, 600);
	end(fork);
	end(s);
}

static void a_fork_of_a_fork_stands_on_both(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	char id[SNP_ID_MAX];

	(void)state;
	for (uint32_t depth = 1; depth <= 4; depth++) {
		struct sandbox *fork;
		assert_int_equal(take(s, id), ERR_NONE);
		assert_int_equal(fork_of(id, (struct create_body){ 0 }, &fork), ERR_NONE);
		assert_int_equal(w->depth, depth);
		assert_int_equal(w->top, fork->chain.layers[0]);
		end(s);
		s = fork;
	}
	end(s);
}

static void a_chain_that_is_full_is_said_so(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);

	(void)state;
	s->chain.n = BACKEND_CHAIN_MAX;
	assert_int_equal(take(s, NULL), ERR_CONFLICT);
	s->chain.n = 0;
	assert_int_equal(take(s, NULL), ERR_NONE);
	end(s);
}

static void layers_live_as_long_as_somebody_stands_on_them(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *fork, *none;
	char id[SNP_ID_MAX], second[SNP_ID_MAX];
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(take(s, id), ERR_NONE);
	assert_int_equal(fork_of(id, (struct create_body){ 0 }, &fork), ERR_NONE);
	assert_int_equal(take(fork, second), ERR_NONE);
	assert_int_equal(snapshot_delete(rig->core, id, &e), 0);
	assert_int_equal(snapshot_delete(rig->core, id, &e), -1);
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(double_events(rig, s->id, "snapshot.deleted", "reason", "request"), 1);
	assert_int_equal(fork_of(id, (struct create_body){ 0 }, &none), ERR_NOT_FOUND);
	sandbox_unref(s);
	sandbox_unref(fork);
	double_restart(rig, true, true); /* what nobody needs goes now at the latest */
	assert_int_equal(layers(), 2);
	assert_int_equal(snapshot_delete(rig->core, second, &e), 0);
	wait_layers(1); /* the fork's */
	double_restart(rig, false, true);
	wait_layers(0);
}

static void they_stay_below_one_that_could_not_be_ended(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *fork;
	char id[SNP_ID_MAX];

	(void)state;
	assert_int_equal(take(s, id), ERR_NONE);
	assert_int_equal(fork_of(id, (struct create_body){ 0 }, &fork), ERR_NONE);
	assert_int_equal(snapshot_delete(rig->core, id, NULL), 0);
	double_fail_ends(1000); /* it is tried again behind our back */
	assert_int_equal(sandbox_terminate(fork, "request", NULL), -1);
	/* what is cleaned up after an end is cleaned up by now, and a layer that nobody needs gone */
	assert_int_equal(take(s, id), ERR_NONE);
	assert_int_equal(snapshot_delete(rig->core, id, NULL), 0);
	wait_layers(1);
	double_fail_ends(0);
	assert_int_equal(sandbox_terminate(fork, "request", NULL), 0);
	wait_layers(0);
	sandbox_unref(fork);
	end(s);
}

/* Its guest is gone, which is what a delete waits for; what is left is the server's to take away. */
static void what_is_left_of_one_is_tried_again(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *fork;
	char id[SNP_ID_MAX];

	(void)state;
	assert_int_equal(take(s, id), ERR_NONE);
	w->gripped = true;
	assert_int_equal(fork_of(id, (struct create_body){ 0 }, &fork), ERR_NONE);
	w->gripped = false;
	assert_int_equal(snapshot_delete(rig->core, id, NULL), 0);
	w->fail_ends = 1;
	assert_int_equal(sandbox_terminate(fork, "request", NULL), 0);
	wait_layers(0);
	assert_int_equal(w->fail_ends, 0);
	sandbox_unref(fork);
	end(s);
}

#define FORKS 20
static struct sandbox *forks[FORKS];
static enum err_code codes[FORKS];
static char fork_from[SNP_ID_MAX];

static void *fork_thread(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;

	codes[i] = fork_of(fork_from, (struct create_body){ 0 }, &forks[i]);
	return NULL;
}

static void many_forks_at_once_while_the_snapshot_is_deleted(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	pthread_t t[FORKS];
	unsigned made = 0;

	(void)state;
	assert_int_equal(take(s, fork_from), ERR_NONE);
	for (size_t i = 0; i < FORKS; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, fork_thread, (void *)(uintptr_t)i), 0);
		if (i == FORKS / 2)
			assert_int_equal(snapshot_delete(rig->core, fork_from, NULL), 0);
	}
	for (size_t i = 0; i < FORKS; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < FORKS; i++) {
		assert_true(codes[i] == ERR_NONE || codes[i] == ERR_NOT_FOUND);
		made += codes[i] == ERR_NONE;
	}
	wait_layers(made ? 1 : 0);
	for (size_t i = 0; i < FORKS; i++)
		if (codes[i] == ERR_NONE)
			end(forks[i]);
	wait_layers(0);
	end(s);
}

/* --- schedules ------------------------------------------------------------------------------- */

static void where_none_may_be_kept_there_is_no_schedule(void **state)
{
	struct create_body b = { .snapshot_every_secs = 5 };
	struct sandbox *s = double_sandbox(rig, NULL);

	(void)state;
	rig->policy.limits.max_snapshot_keep = 0;
	assert_int_equal(schedule(s, 5, 0), ERR_INVALID_REQUEST);
	assert_int_equal(schedule(s, 5, 1), ERR_INVALID_REQUEST);
	assert_int_equal(schedule(s, 0, 0), ERR_NONE);
	double_refused(rig, &b, ERR_INVALID_REQUEST);
	sandbox_unref(s);
}

static void schedules_are_checked(void **state)
{
	static const struct {
		int64_t every, keep;
		enum err_code want;
		int64_t shown_every, shown_keep;
	} rows[] = {
		{ 5, 2, ERR_NONE, 5, 2 },
		{ 5, 0, ERR_NONE, 5, 1 },
		{ 0, 1, ERR_INVALID_REQUEST, 5, 1 },
		{ -1, 0, ERR_INVALID_REQUEST, 5, 1 },
		{ 5, -1, ERR_INVALID_REQUEST, 5, 1 },
		{ 5, 4, ERR_INVALID_REQUEST, 5, 1 },
		{ INT64_MAX, 1, ERR_INVALID_REQUEST, 5, 1 },
		{ 1, 3, ERR_NONE, 1, 3 },
		{ 0, 0, ERR_NONE, 0, 0 },
	};
	struct sandbox *s = double_sandbox(rig, NULL), *none;

	(void)state;
	rig->policy.limits.min_snapshot_every_secs = 1;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct create_body b = { .snapshot_every_secs = rows[i].every,
			.snapshot_keep = rows[i].keep };
		json_t *every, *keep;
		if (schedule(s, rows[i].every, rows[i].keep) != rows[i].want)
			fail_msg("row %zu", i);
		every = shown(s, "snapshot_every_secs");
		keep = shown(s, "snapshot_keep");
		assert_int_equal(json_integer_value(every), rows[i].shown_every);
		assert_int_equal(json_integer_value(keep), rows[i].shown_keep);
		assert_true(rows[i].shown_every ? every != NULL : every == NULL);
		json_decref(every);
		json_decref(keep);
		if (rows[i].want != ERR_NONE) {
			double_refused(rig, &b, rows[i].want);
			continue;
		}
		none = double_sandbox(rig, &b);
		assert_int_equal(none->snapshot_keep, rows[i].shown_keep);
		end(none);
	}
	assert_int_equal(double_events(rig, s->id, "sandbox.updated", NULL, NULL), 4);
	end(s);
}

/* Counts all the time that the other one takes. */
struct counter {
	const char *id;
	size_t most, least;
	bool stop; /* atomic */
};

static void *count_thread(void *arg)
{
	struct counter *c = arg;

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		size_t n = count(c->id, true);
		if (n > c->most)
			c->most = n;
		if (n < c->least)
			c->least = n;
	}
	return NULL;
}

static void whoever_counts_never_finds_more_than_are_kept(void **state)
{
	struct create_body b = { .snapshot_every_secs = 3600, .snapshot_keep = 2 };
	struct sandbox *s = double_sandbox(rig, &b);
	struct counter c = { .id = s->id, .least = 99 };
	struct counted taken = { s->id, 0 };
	pthread_t t;

	(void)state;
	assert_int_equal(take(s, NULL), ERR_NONE); /* on request: never touched */
	for (int i = 0; i < 2; i++) {
		taken.n = (size_t)i + 2;
		make_due(s);
		double_wait(has_taken, &taken);
		double_wait(is_at_rest, s);
	}
	assert_int_equal(pthread_create(&t, NULL, count_thread, &c), 0);
	for (int i = 0; i < 10; i++) {
		taken.n = (size_t)i + 4;
		make_due(s);
		double_wait(has_taken, &taken);
		double_wait(is_at_rest, s);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	assert_int_equal(c.most, 2);
	assert_int_equal(c.least, 2);
	assert_int_equal(count(s->id, false), 3);
	assert_int_equal(double_events(rig, s->id, "snapshot.deleted", "reason", "retention"), 10);
	wait_layers(3);
	/* fewer are kept from now on, and at once */
	assert_int_equal(schedule(s, 3600, 1), ERR_NONE);
	assert_int_equal(count(s->id, true), 1);
	/* no schedule, but what it has taken stays; so it does when the sandbox ends */
	assert_int_equal(schedule(s, 0, 0), ERR_NONE);
	assert_int_equal(count(s->id, true), 1);
	end(s);
	assert_int_equal(count(NULL, true), 1);
}

static void two_at_a_time_on_the_host(void **state)
{
	struct create_body b = { .snapshot_every_secs = 3600, .snapshot_keep = 1 };
	struct sandbox *s[5];
	unsigned two = 2;

	(void)state;
	double_set(&w->hold, true);
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		s[i] = double_sandbox(rig, &b);
		make_due(s[i]);
	}
	double_wait(is_under_way, &two);
	double_set(&w->hold, false);
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		struct counted c = { s[i]->id, 1 };
		double_wait(has_taken, &c);
		double_wait(is_at_rest, s[i]);
		assert_int_equal(count(s[i]->id, true), 1);
	}
	assert_int_equal(w->most, 2);
	assert_int_equal(w->taken, 5);
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		end(s[i]);
}

static void the_interval_runs_from_the_end_of_an_attempt(void **state)
{
	struct create_body b = { .snapshot_every_secs = 3600 };
	struct sandbox *s = double_sandbox(rig, &b);
	unsigned one = 1;
	int64_t before;

	(void)state;
	for (int failed = 0; failed < 2; failed++) {
		w->fail_snapshots = failed;
		double_set(&w->hold, true);
		make_due(s);
		double_wait(is_under_way, &one);
		pthread_mutex_lock(&s->lock);
		assert_true(s->taking.scheduled);
		pthread_mutex_unlock(&s->lock);
		before = clock_mono_ms();
		double_set(&w->hold, false);
		double_wait(is_at_rest, s);
		assert_true(s->snapshot_due_ms >= before + 3600 * 1000);
	}
	assert_int_equal(count(s->id, true), 1);
	/* one on request does not put it off */
	before = s->snapshot_due_ms;
	assert_int_equal(take(s, NULL), ERR_NONE);
	assert_true(s->snapshot_due_ms == before);
	end(s);
}

static void a_schedule_comes_due_by_itself(void **state)
{
	struct create_body b = { .snapshot_every_secs = 1, .snapshot_keep = 1 };
	struct sandbox *s = double_sandbox(rig, &b);
	struct counted twice = { s->id, 2 };

	(void)state;
	double_wait(has_taken, &twice);
	assert_int_equal(count(s->id, true), 1);
	end(s);
}

/* --- restart --------------------------------------------------------------------------------- */

static void a_restart_keeps_or_removes_them(void **state)
{
	static const struct {
		bool stop, start;
		size_t want;
	} rows[] = { { true, true, 1 }, { true, false, 0 }, { false, true, 0 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct create_body b = { .snapshot_every_secs = 3600, .snapshot_keep = 2 };
		struct sandbox *s = double_sandbox(rig, &b), *fork;
		char id[SNP_ID_MAX], box[SBX_ID_MAX];
		assert_int_equal(take(s, id), ERR_NONE);
		memcpy(box, s->id, sizeof(box));
		sandbox_unref(s);
		double_restart(rig, rows[i].stop, rows[i].start);
		assert_int_equal(count(NULL, false), rows[i].want);
		wait_layers((unsigned)rows[i].want);
		if (rows[i].want) {
			assert_int_equal(sandbox_find(rig->core, box, &s, NULL), 0);
			assert_int_equal(s->snapshot_every_secs, 3600);
			assert_int_equal(s->snapshot_keep, 2);
			assert_true(s->snapshot_due_ms > clock_mono_ms());
			assert_int_equal(fork_of(id, (struct create_body){ 0 }, &fork), ERR_NONE);
			end(fork);
			end(s);
			assert_int_equal(snapshot_delete(rig->core, id, NULL), 0);
		}
		rig->core->keep = true;
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, double_setup, double_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_snapshot_is_listed_with_all_that_is_known),
		T(refusals_come_in_the_contracts_order),
		T(one_at_a_time_and_its_progress_is_shown),
		T(an_ended_sandbox_keeps_its_progress_to_the_end),
		T(one_that_fails_leaves_nothing),
		T(the_idle_timeout_waits_for_a_snapshot),
		T(a_fork_is_checked_and_begins_with_the_originals_figures),
		T(a_fork_of_a_fork_stands_on_both),
		T(a_chain_that_is_full_is_said_so),
		T(layers_live_as_long_as_somebody_stands_on_them),
		T(they_stay_below_one_that_could_not_be_ended),
		T(what_is_left_of_one_is_tried_again),
		T(many_forks_at_once_while_the_snapshot_is_deleted),
		T(where_none_may_be_kept_there_is_no_schedule),
		T(schedules_are_checked),
		T(whoever_counts_never_finds_more_than_are_kept),
		T(two_at_a_time_on_the_host),
		T(the_interval_runs_from_the_end_of_an_attempt),
		T(a_schedule_comes_due_by_itself),
		T(a_restart_keeps_or_removes_them),
	};

	return run_table(tests);
}
