/* SPDX-License-Identifier: MIT */
/* Falling asleep and waking with a backend that takes its time, or fails: who waits, who is
 * refused, what is left. The server is the real one; the fake backend is lent a freezer that the
 * test holds in hand. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include "sandboxd/core/core_internal.h"

#include <time.h>

static struct rig *rig;

/* --- the freezer ----------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool hold[2]; /* thaw, freeze: it does not answer before it is let go */
	bool fail[2];
	int waiting[2], calls[2];
} hand = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };

static int freeze(struct backend *b, const char *id, bool on, struct err *e)
{
	bool fail;

	(void)b;
	(void)id;
	pthread_mutex_lock(&hand.lock);
	hand.calls[on]++;
	hand.waiting[on]++;
	pthread_cond_broadcast(&hand.cond);
	while (hand.hold[on])
		pthread_cond_wait(&hand.cond, &hand.lock);
	hand.waiting[on]--;
	fail = hand.fail[on];
	pthread_mutex_unlock(&hand.lock);
	return fail ? err_set(e, ERR_UNAVAILABLE, "the freezer is out of order") : 0;
}

static void set(bool *what, bool on)
{
	pthread_mutex_lock(&hand.lock);
	*what = on;
	pthread_cond_broadcast(&hand.cond);
	pthread_mutex_unlock(&hand.lock);
}

/* Until a call of this kind is under way. */
static void await_call(bool on)
{
	pthread_mutex_lock(&hand.lock);
	while (!hand.waiting[on])
		pthread_cond_wait(&hand.cond, &hand.lock);
	pthread_mutex_unlock(&hand.lock);
}

static int calls(bool on)
{
	int n;

	pthread_mutex_lock(&hand.lock);
	n = hand.calls[on];
	pthread_mutex_unlock(&hand.lock);
	return n;
}

static int start(void **state)
{
	static struct backend_ops ops;
	struct core *c;

	(void)state;
	rig = rig_new(NULL);
	c = rig_core(rig);
	ops = *c->ops;
	ops.freeze = freeze;
	lifetime_stop(c); /* its threads ask the backend */
	c->ops = &ops;
	c->caps[CAP_SUSPEND] = true;
	c->stop = false;
	return lifetime_start(c, NULL);
}

static int stop(void **state)
{
	(void)state;
	rig_free(rig);
	return 0;
}

/* --- small words ----------------------------------------------------------------------------- */

static bool is_asleep(void *id)
{
	return rig_in_state(rig, id, "suspended");
}

static int events(const char *id, const char *type)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200), *ev;
	int n = 0;
	size_t i;

	json_array_foreach (json_object_get(o, "events"), i, ev)
		n += !strcmp(json_string_value(json_object_get(ev, "type")), type);
	json_decref(o);
	return n;
}

struct asked { /* a request on a thread of its own */
	const char *method, *body;
	char path[128];
	int status;
	pthread_t t;
};

static void *ask_main(void *arg)
{
	struct asked *a = arg;
	_cleanup_answer_ struct answer got = rig_send(
		rig, a->method, a->path, NULL, NULL, a->body, a->body ? strlen(a->body) : 0);

	a->status = got.status;
	return NULL;
}

static void ask(
	struct asked *a, const char *method, const char *id, const char *rest, const char *body)
{
	*a = (struct asked){ .method = method, .body = body };
	snprintf(a->path, sizeof(a->path), "/v1/sandboxes/%s%s", id, rest);
	assert_int_equal(pthread_create(&a->t, NULL, ask_main, a), 0);
}

static int answer_of(struct asked *a)
{
	pthread_join(a->t, NULL);
	return a->status;
}

#define TRUE_RUN "{\"argv\":[\"true\"]}"

/* It has slept enough: from here on it sleeps only when it is told to. */
static void no_more_naps(const char *id)
{
	json_decref(rig_json(rig, "PATCH", rig_path("/v1/sandboxes/%s", id),
		"{\"idle_timeout_secs\":1000}", 200));
}

static const char *sleeper(void)
{
	const char *id = rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}");

	rig_wait(is_asleep, (void *)(uintptr_t)id, 30000);
	no_more_naps(id);
	return id;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void all_who_wake_it_wait_for_one_resume(void **state)
{
	const char *id = sleeper();
	struct asked a[8];
	int before = calls(false);

	(void)state;
	set(&hand.hold[0], true);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		ask(&a[i], i % 2 ? "GET" : "POST", id, i % 2 ? "/dirs?path=/tmp" : "/run",
			i % 2 ? NULL : TRUE_RUN);
	await_call(false);
	rig_pause(100); /* for the others to come */
	assert_true(rig_in_state(rig, id, "suspended"));
	set(&hand.hold[0], false);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		assert_int_equal(answer_of(&a[i]), 200);
	assert_int_equal(calls(false), before + 1);
	assert_int_equal(events(id, "sandbox.resumed"), 1);
	rig_end(rig, id);
}

static void a_resume_that_fails_is_the_answer_of_all_who_wait(void **state)
{
	const char *id = sleeper();
	struct asked a[4];
	int before = calls(false);

	(void)state;
	set(&hand.hold[0], true);
	set(&hand.fail[0], true);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		ask(&a[i], "POST", id, "/run", TRUE_RUN);
	await_call(false);
	rig_pause(500);
	set(&hand.hold[0], false);
	for (size_t i = 0; i < ARRAY_LEN(a); i++)
		assert_int_equal(answer_of(&a[i]), 503);
	assert_true(calls(false) - before < (int)ARRAY_LEN(a)); /* one, but for who came late */
	assert_true(rig_in_state(rig, id, "suspended"));
	assert_int_equal(events(id, "sandbox.resumed"), 0);
	rig_refuses(rig, "POST", rig_path("/v1/sandboxes/%s/resume", id), NULL, 503, "unavailable");
	set(&hand.fail[0], false);
	assert_int_equal(rig_sh(rig, id, "true", NULL), 0);
	rig_end(rig, id);
}

static void a_suspend_that_fails_leaves_it_running(void **state)
{
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	set(&hand.fail[1], true);
	rig_refuses(
		rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, 503, "unavailable");
	set(&hand.fail[1], false);
	assert_true(rig_in_state(rig, id, "running"));
	assert_int_equal(rig_sh(rig, id, "true", NULL), 0);
	assert_int_equal(events(id, "sandbox.suspended"), 0);
	rig_end(rig, id);
}

/* The idle timeout tries again after another one, and does not end the sandbox instead. */
static void an_idle_one_that_cannot_sleep_goes_on(void **state)
{
	const char *id;
	int before = calls(true);

	(void)state;
	set(&hand.fail[1], true);
	id = rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}");
	for (int i = 0; i < 1500 && calls(true) < before + 2; i++)
		rig_pause(20);
	assert_true(calls(true) >= before + 2);
	assert_true(rig_in_state(rig, id, "running"));
	set(&hand.fail[1], false);
	rig_wait(is_asleep, (void *)(uintptr_t)id, 30000);
	rig_end(rig, id);
}

/* While it is falling asleep nothing is started in it, and who is refused is so for a reason. */
static void while_it_falls_asleep_nothing_begins(void **state)
{
	static const struct {
		const char *method, *rest, *body;
	} rows[] = {
		{ "POST", "/run", TRUE_RUN },
		{ "POST", "/processes", TRUE_RUN },
		{ "GET", "/dirs?path=/tmp", NULL },
		{ "POST", "/suspend", NULL },
	};
	const char *id = rig_sandbox(rig, NULL);
	struct asked first, a[ARRAY_LEN(rows)];

	(void)state;
	set(&hand.hold[1], true);
	ask(&first, "POST", id, "/suspend", NULL);
	await_call(true);
	assert_true(rig_in_state(rig, id, "running")); /* still, and records answer */
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		ask(&a[i], rows[i].method, id, rows[i].rest, rows[i].body);
	rig_pause(100);
	set(&hand.hold[1], false);
	assert_int_equal(answer_of(&first), 200);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(answer_of(&a[i]), 409);
	assert_int_equal(events(id, "process.started"), 0);
	rig_end(rig, id);
}

/* By its idle timeout it is woken again at once for whoever came meanwhile. */
static void who_comes_while_it_dozes_off_wakes_it(void **state)
{
	const char *id;
	struct asked a;

	(void)state;
	set(&hand.hold[1], true);
	id = rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}");
	await_call(true);
	no_more_naps(id);
	ask(&a, "POST", id, "/run", TRUE_RUN);
	rig_pause(50);
	set(&hand.hold[1], false);
	assert_int_equal(answer_of(&a), 200);
	assert_int_equal(events(id, "sandbox.suspended"), 1);
	assert_int_equal(events(id, "sandbox.resumed"), 1);
	rig_end(rig, id);
}

/* An end does not wait for a turn, and what comes of the turn changes nothing any more. */
static void an_end_comes_between(void **state)
{
	(void)state;
	for (int on = 0; on < 2; on++) {
		const char *id = on ? rig_sandbox(rig, NULL) : sleeper();
		struct asked a;
		set(&hand.hold[on], true);
		ask(&a, "POST", id, on ? "/suspend" : "/run", on ? NULL : TRUE_RUN);
		await_call(on);
		rig_end(rig, id);
		assert_true(rig_in_state(rig, id, "terminated"));
		set(&hand.hold[on], false);
		assert_int_equal(answer_of(&a), 409);
		assert_true(rig_in_state(rig, id, "terminated"));
		assert_int_equal(events(id, on ? "sandbox.suspended" : "sandbox.resumed"), 0);
	}
}

/* Told to sleep while it is being woken, it sleeps; told to wake while it is, that was it. */
static void a_word_that_comes_during_a_waking(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const char *id = sleeper();
		struct asked a, b;
		set(&hand.hold[0], true);
		ask(&a, "GET", id, "/dirs?path=/tmp", NULL);
		await_call(false);
		ask(&b, "POST", id, i ? "/resume" : "/suspend", NULL);
		rig_pause(50);
		set(&hand.hold[0], false);
		assert_int_equal(answer_of(&b), 200);
		if (i)
			assert_int_equal(answer_of(&a), 200);
		else
			(void)answer_of(&a); /* before it slept again, or not */
		assert_int_equal(events(id, "sandbox.resumed"), 1);
		assert_true(rig_in_state(rig, id, i ? "running" : "suspended"));
		rig_end(rig, id);
	}
}

static void a_suspend_waits_for_a_snapshot(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	struct sandbox *s = NULL;
	struct asked a;
	int before = calls(true);

	(void)state;
	assert_int_equal(sandbox_find(rig_core(rig), id, &s, NULL), 0);
	pthread_mutex_lock(&s->lock);
	s->taking.started_ns = 1;
	pthread_mutex_unlock(&s->lock);
	ask(&a, "POST", id, "/suspend", NULL);
	rig_pause(150);
	assert_int_equal(calls(true), before);
	pthread_mutex_lock(&s->lock);
	s->taking.started_ns = 0;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	assert_int_equal(answer_of(&a), 200);
	assert_true(rig_in_state(rig, id, "suspended"));
	sandbox_unref(s);
	rig_end(rig, id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_who_wake_it_wait_for_one_resume),
		cmocka_unit_test(a_resume_that_fails_is_the_answer_of_all_who_wait),
		cmocka_unit_test(a_suspend_that_fails_leaves_it_running),
		cmocka_unit_test(an_idle_one_that_cannot_sleep_goes_on),
		cmocka_unit_test(while_it_falls_asleep_nothing_begins),
		cmocka_unit_test(who_comes_while_it_dozes_off_wakes_it),
		cmocka_unit_test(an_end_comes_between),
		cmocka_unit_test(a_word_that_comes_during_a_waking),
		cmocka_unit_test(a_suspend_waits_for_a_snapshot),
	};
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, start, stop);
}
