/* SPDX-License-Identifier: MIT */
/* What something comes between: ends that find another queued, a disk without room, a backend that cannot; a name
 * that two have; records of what others stand on; numbers. On the double, without privilege. */
#include "tests/support/double.h"

#include "sandboxd/core/layers.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define TEXT(t) ((char *)(t)) /* bodies own their strings; here nobody frees them */

static struct double_rig *const rig = &double_rig;
static struct double_world *const w = &double_world;

static bool has_ended(void *arg)
{
	struct sandbox *s = arg;
	bool ended;

	pthread_mutex_lock(&s->lock);
	ended = s->state == SBX_TERMINATED && s->ended;
	pthread_mutex_unlock(&s->lock);
	return ended;
}

static void end(struct sandbox *s)
{
	assert_int_equal(sandbox_terminate(s, "request", NULL), 0);
	sandbox_unref(s);
}

static bool is_taken(void *arg)
{
	struct sandbox *s = arg;
	bool queued;

	pthread_mutex_lock(&rig->core->queue_lock);
	queued = s->end_queued;
	pthread_mutex_unlock(&rig->core->queue_lock);
	return !queued;
}

/* The idle end is looked at again when it is its turn, and need not come to anything; the death comes once. */
static void a_death_is_not_lost_behind_an_idle_end_that_waits(void **state)
{
	struct sandbox *first = double_sandbox(rig, NULL), *s = double_sandbox(rig, NULL);

	(void)state;
	double_set(&w->hold_end, true);
	lifetime_end_later(first, "failed");
	double_wait(is_taken, first);
	lifetime_end_later(s, "idle");
	sandbox_shim_gone(s);
	double_set(&w->hold_end, false);
	double_wait(has_ended, s);
	assert_int_equal(double_events(rig, s->id, "sandbox.terminated", "reason", "failed"), 1);
	sandbox_unref(first);
	sandbox_unref(s);
}

static bool none_fails(void *arg)
{
	bool none;

	(void)arg;
	pthread_mutex_lock(&w->lock);
	none = w->fail_ends == 0;
	pthread_mutex_unlock(&w->lock);
	return none;
}

static bool is_missing(void *path)
{
	return access(path, F_OK) < 0;
}

/* Nobody asks for the end of one that is shown as ended: what the backend could not do at first it is asked for
 * again. */
static void one_that_could_not_be_ended_ends_later(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL);
	char path[256];

	(void)state;
	double_fail_ends(3);
	assert_int_equal(sandbox_terminate(s, "request", NULL), -1);
	assert_false(has_ended(s));
	double_wait(has_ended, s);
	assert_true(none_fails(NULL));
	snprintf(path, sizeof(path), "%s/run/%s", rig->dir, s->id);
	double_wait(is_missing, path);
	sandbox_unref(s);
}

static bool records_hold(const char *needle)
{
	static const char *const names[] = { "records.db", "records.db-wal" };
	static char buf[4 << 20];
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		int fd = openat(rig->dirfd, names[i], O_RDONLY | O_CLOEXEC);
		ssize_t n = fd < 0 ? 0 : read(fd, buf, sizeof(buf));
		found |= n > 0 && memmem(buf, (size_t)n, needle, strlen(needle));
		if (fd >= 0)
			close(fd);
	}
	return found;
}

static bool is_wiped(void *arg)
{
	return !records_hold(arg);
}

static bool is_recorded(void *arg)
{
	return records_hold(arg);
}

/* However often somebody asks. */
static unsigned rests_that_save(const struct sandbox *s)
{
	unsigned n = 0;

	pthread_mutex_lock(&rig->core->queue_lock);
	for (const struct end_job *j = rig->core->rests; j; j = j->next)
		n += j->s == s && j->save;
	pthread_mutex_unlock(&rig->core->queue_lock);
	return n;
}

/* The answer of an end does not wait for room on the disk, but the values go when there is some. Who asked for a
 * change hears that it is not on the disk; everybody sees it all the same, and it comes there. */
static void what_finds_no_room_is_recorded_when_there_is_some(void **state)
{
	static char *keys[] = { TEXT("TOKEN") },
		    *values[] = { TEXT("zq9-a-value-of-the-environment") },
		    *notes[] = { TEXT("note") }, *labels[] = { TEXT("zq8-a-new-label") };
	const struct create_body body = { .env = { keys, values, 1 } };
	const struct update_body change = { .has_labels = true, .labels = { notes, labels, 1 } };
	struct sandbox *ends = double_sandbox(rig, &body), *changes = double_sandbox(rig, NULL);
	struct err e = ERR_NULL;
	struct rlimit was, none;
	unsigned saves;
	bool held;
	int rc[2];

	(void)state;
	assert_true(records_hold(values[0]));
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	none = (struct rlimit){ 0, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	rc[0] = sandbox_terminate(ends, "request", NULL);
	rc[1] = sandbox_update(changes, &change, false, &e);
	held = records_hold(values[0]);
	for (int i = 0; i < 20; i++)
		(void)sandbox_update(changes, &change, false, &e);
	saves = rests_that_save(changes);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc[0], 0);
	assert_int_equal(rc[1], -1);
	assert_true(held);
	assert_true(saves <= 1); /* none: it is at it just now */
	assert_string_equal(changes->labels.values[0], labels[0]);
	double_wait(is_recorded, labels[0]);
	double_wait(is_wiped, values[0]);
	sandbox_unref(ends);
	end(changes);
}

static bool was_made(void *arg)
{
	bool made;

	(void)arg;
	pthread_mutex_lock(&w->lock);
	made = w->made > 0;
	pthread_mutex_unlock(&w->lock);
	return made;
}

/* Its client hangs up when all is there, and the backend cannot take it away at first. */
static void what_is_left_of_a_create_is_tried_again(void **state)
{
	const struct create_body body = { .name = TEXT("only") };
	struct sandbox *s = NULL;
	struct err e = ERR_NULL;

	(void)state;
	w->fail_ends = 2;
	assert_int_equal(sandbox_create(rig->core, &body, was_made, NULL, &s, &e), -1);
	assert_int_equal(e.code, ERR_CONFLICT);
	double_wait(none_fails, NULL);
	end(double_sandbox(rig, &body));
}

/* What a record says may be older than what was true: here it never heard that the first one gave the name up. */
static void two_with_one_name_are_both_taken_back(void **state)
{
	const struct create_body named = { .name = TEXT("prize") };
	struct sandbox *a = double_sandbox(rig, &named), *b = double_sandbox(rig, NULL), *s;
	char id[2][SBX_ID_MAX];

	(void)state;
	memcpy(id[0], a->id, SBX_ID_MAX);
	memcpy(id[1], b->id, SBX_ID_MAX);
	pthread_mutex_lock(&b->lock);
	b->name = strdup("prize");
	uint64_t ticket = sandbox_save(b, true);
	pthread_mutex_unlock(&b->lock);
	assert_int_equal(store_wait(rig->core->store, ticket, NULL), 0);
	sandbox_unref(a);
	sandbox_unref(b);
	double_restart(rig, true, true);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(sandbox_find(rig->core, id[i], &s, NULL), 0);
		assert_int_equal(s->state, SBX_RUNNING);
		assert_true((s->name != NULL) == (i == 0));
		sandbox_unref(s);
	}
	assert_int_equal(sandbox_find(rig->core, "prize", &s, NULL), 0);
	assert_string_equal(s->id, id[0]);
	sandbox_unref(s);
}

/* A snapshot that was answered would be gone with the next start, for its layer would have been a half one, and so
 * would be another image that found it. */
static void a_layer_that_finds_no_room_is_not_ready(void **state)
{
	struct rlimit was, none;
	struct err e = ERR_NULL;
	uint32_t num, other;
	int rc;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(layers_new(rig->core, LAYER_OF_IMAGE, "sha256:1", &num, &e), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	none = (struct rlimit){ 0, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	rc = layers_ready(rig->core, num, 1, false, &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -1);
	assert_false(layers_find(rig->core, "sha256:1", &other));
	layers_unref_one(rig->core, num);
}

/* A sandbox is over when the end is answered; that its folder is cleaned up later is no reason to say that an image
 * which nobody has any more frees nothing. */
static void who_has_ended_keeps_no_layer_from_being_counted_as_freed(void **state)
{
	struct sandbox *s = double_sandbox(rig, NULL), *other = double_sandbox(rig, NULL);
	struct backend_chain chain = { .n = 1 };
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(layers_new(rig->core, LAYER_OF_IMAGE, NULL, &chain.layers[0], &e), 0);
	assert_int_equal(layers_ready(rig->core, chain.layers[0], 1000, false, &e), 0);
	for (int i = 0; i < 2; i++) {
		struct sandbox *one = i ? other : s;
		pthread_mutex_lock(&one->lock);
		one->chain = chain;
		sandbox_hold_chain(one);
		pthread_mutex_unlock(&one->lock);
	}
	assert_int_equal(layers_freeable(rig->core, &chain), 0);
	end(s);
	assert_int_equal(layers_freeable(rig->core, &chain), 0);
	end(other);
	assert_int_equal(layers_freeable(rig->core, &chain), 1000);
	layers_unref_one(rig->core, chain.layers[0]);
}

/* What the create of one has said stays. */
static void a_longest_life_holds_for_those_that_are_taken_back(void **state)
{
	const struct create_body own = { .name = TEXT("own"), .lifetime_secs = 7200 },
				 none = { .name = TEXT("none") };
	const struct create_body *const bodies[] = { &own, &none };
	struct sandbox *s;

	(void)state;
	for (size_t i = 0; i < 2; i++)
		sandbox_unref(double_sandbox(rig, bodies[i]));
	rig->policy.limits.max_lifetime_secs = 3600;
	for (int round = 0; round < 2; round++) { /* the second time it is recorded */
		double_restart(rig, true, true);
		for (size_t i = 0; i < 2; i++) {
			assert_int_equal(sandbox_find(rig->core, bodies[i]->name, &s, NULL), 0);
			assert_int_equal(s->state, SBX_RUNNING);
			assert_int_equal(s->lifetime_secs, i ? 3600 : 7200);
			sandbox_unref(s);
		}
		rig->policy.limits.max_lifetime_secs = 0;
	}
}

/* Without a bound any number is one of seconds, and none of them is over at once. */
static void an_idle_timeout_that_no_clock_reaches_ends_nobody(void **state)
{
	const struct create_body body = { .idle_timeout_secs = INT64_MAX };
	struct update_body change = { .has_idle_timeout_secs = true, .idle_timeout_secs = INT64_MAX };
	struct sandbox *s;

	(void)state;
	rig->policy.limits.max_idle_timeout_secs = 0;
	s = double_sandbox(rig, &body);
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&s->lock);
		assert_false(lifetime_is_idle(s));
		pthread_mutex_unlock(&s->lock);
		assert_int_equal(sandbox_update(s, &change, false, &(struct err)ERR_NULL), 0);
	}
	assert_int_equal(s->state, SBX_RUNNING);
	end(s);
}

#define T(f) cmocka_unit_test_setup_teardown(f, double_setup, double_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_death_is_not_lost_behind_an_idle_end_that_waits),
		T(one_that_could_not_be_ended_ends_later),
		T(what_finds_no_room_is_recorded_when_there_is_some),
		T(what_is_left_of_a_create_is_tried_again),
		T(two_with_one_name_are_both_taken_back),
		T(a_layer_that_finds_no_room_is_not_ready),
		T(who_has_ended_keeps_no_layer_from_being_counted_as_freed),
		T(a_longest_life_holds_for_those_that_are_taken_back),
		T(an_idle_timeout_that_no_clock_reaches_ends_nobody),
	};

	return run_table(tests);
}
