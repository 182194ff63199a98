/* SPDX-License-Identifier: MIT */
/* The thread that measures and the one that pushes, inside this program and so under the
 * sanitizers: sandboxes of the fake backend with made-up figures come, change their collectors and
 * go, while collectors answer in every manner. */
#include "tests/support/collector.h"
#include "tests/support/test.h"

#include "common/base/log.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/export.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <time.h>

#define BOXES   6
#define THREADS 3
#define ROUNDS  8

static struct backend_ops ops;
static struct server_policy policy;
static struct backend *backend;
static struct core *core;
static struct collector *collectors[BOXES];
static char dir[64];
static int dirfd_;

static int meter(struct backend *b, const char *id, struct backend_meter *ret, struct err *e)
{
	static int64_t calls;

	(void)b;
	(void)e;
	int64_t n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	if (n % 7 == 0)
		return -1;
	*ret = (struct backend_meter){ .cpu_ns = n * 1000000,
		.memory_bytes = 4096 * n,
		.memory_limit_bytes = 1 << 30,
		.disk_read_bytes = id[4],
		.disk_write_bytes = n % 5 ? n : -1,
		.processes = 1 };
	return 0;
}

static int start(void **state)
{
	bool caps[CAP_COUNT] = { false };
	struct backend_conf bc = { .broker_fd = -1 };
	struct core_conf conf = { .node_id = "",
		.pull_fd = -1,
		.audit_log = "none",
		.export_allow_private = true,
		.policy = &policy };
	char libexec[4200];
	struct err e = ERR_NULL;
	ssize_t n;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_LVL_ERROR);
	strcpy(dir, "/tmp/sbx-push-XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n = readlink("/proc/self/exe", libexec, sizeof(libexec) - 32);
	assert_true(n > 0);
	libexec[n] = '\0';
	strcpy(strrchr(libexec, '/'), "/../../bin");
	ops = fake_backend;
	ops.meter = meter;
	bc.state_dir = conf.state_dir = dir;
	bc.state_dirfd = conf.state_dirfd = dirfd_;
	bc.libexec_dir = getenv("SBX_LIBEXEC") ? getenv("SBX_LIBEXEC") : libexec;
	if (server_policy_load(NULL, &policy, &e) < 0 || ops.open(&bc, &backend, &e) < 0 ||
		ops.probe(backend, caps, &e) < 0)
		fail_msg("%s", e.msg);
	server_policy_fit(&policy, false, false);
	policy.limits.min_metrics_export_secs = 1;
	caps[CAP_METRICS] = caps[CAP_METRICS_EXPORT] = true;
	if (core_open(&conf, &ops, backend, caps, &core, &e) < 0)
		fail_msg("%s", e.msg);
	for (int i = 0; i < BOXES; i++)
		collectors[i] = collector_new((enum manner)(i * 2 % (ANSWER_CLOSE + 1)));
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	(void)remove(path);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	core_close(core);
	ops.close(backend);
	server_policy_free(&policy);
	for (int i = 0; i < BOXES; i++)
		collector_free(collectors[i]);
	close(dirfd_);
	nftw(dir, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	return 0;
}

static void fill(struct metrics_export_body *b, char url[64], unsigned which)
{
	static char *keys[] = { (char *)(uintptr_t) "X-Key" };
	static char *values[] = { (char *)(uintptr_t) "zq7secret" };

	snprintf(url, 64, "http://127.0.0.1:%u/x", collector_port(collectors[which % BOXES]));
	*b = (struct metrics_export_body){ .endpoint = url,
		.interval_secs = 1,
		.has_interval_secs = true,
		.headers = { keys, values, 1 } };
}

static struct sandbox *box(unsigned which)
{
	struct create_body body = { .has_metrics_export = true };
	struct sandbox *s = NULL;
	struct err e = ERR_NULL;
	char url[64];

	fill(&body.metrics_export, url, which);
	if (sandbox_create(core, &body, NULL, NULL, &s, &e) < 0)
		fail_msg("%s", e.msg);
	return s;
}

static void nap(int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

static void *live(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct update_body up = { .has_metrics_export = true };
		struct sandbox *s = box(rand_r(&seed));
		struct err e = ERR_NULL;
		json_t *v;
		char url[64], *text;
		nap((int)(rand_r(&seed) % 300));
		if (i % 3)
			fill(&up.metrics_export, url, rand_r(&seed));
		else
			up.metrics_export.endpoint = (char *)(uintptr_t) "";
		assert_int_equal(sandbox_update(s, &up, true, &e), 0);
		nap((int)(rand_r(&seed) % 900));
		v = sandbox_json(s);
		text = json_dumps(v, 0);
		assert_null(strstr(text, "zq7secret"));
		free(text);
		json_decref(v);
		text = metrics_text(s, 0);
		assert_non_null(text);
		free(text);
		assert_int_equal(sandbox_terminate(s, "request", &e), 0);
		sandbox_unref(s);
	}
	return NULL;
}

static bool has_pushes(struct collector *c)
{
	for (int waited = 0; waited < 20000; waited += 20) {
		if (collector_count(c) > 0)
			return true;
		nap(20);
	}
	return false;
}

static void settings_change_and_sandboxes_go_while_pushes_are_under_way(void **state)
{
	pthread_t t[THREADS];

	(void)state;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, live, (void *)(i + 1)), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void what_stays_is_served_beside_those_that_never_answer(void **state)
{
	struct sandbox *all[BOXES];
	struct err e = ERR_NULL;

	(void)state;
	for (unsigned i = 0; i < BOXES; i++)
		all[i] = box(i);
	for (unsigned i = 0; i < BOXES; i++)
		assert_true(has_pushes(collectors[i]));
	for (unsigned i = 0; i < BOXES; i++) {
		assert_int_equal(sandbox_terminate(all[i], "request", &e), 0);
		for (size_t k = 0; k < all[i]->metrics_export->headers.n; k++)
			assert_string_equal(all[i]->metrics_export->headers.values[k], "");
		sandbox_unref(all[i]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_change_and_sandboxes_go_while_pushes_are_under_way),
		cmocka_unit_test(what_stays_is_served_beside_those_that_never_answer),
	};

	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, start, stop);
}
