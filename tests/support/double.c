/* SPDX-License-Identifier: MIT */
#include "tests/support/double.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct double_world double_world = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
};
struct double_rig double_rig;

static struct double_world *const w = &double_world;
static struct backend_ops ops;

static int count_down(int *n, struct err *e)
{
	bool fail;

	pthread_mutex_lock(&w->lock);
	fail = *n > 0;
	*n -= fail;
	pthread_mutex_unlock(&w->lock);
	return fail ? err_set(e, ERR_INTERNAL, "as the test wants it") : 0;
}

static int take(struct backend *b, const char *id, uint32_t num, int64_t *bytes, struct err *e)
{
	(void)b;
	(void)id;
	pthread_mutex_lock(&w->lock);
	w->layers[num] = true;
	if (++w->under_way > w->most)
		w->most = w->under_way;
	pthread_cond_broadcast(&w->cond);
	while (w->hold)
		pthread_cond_wait(&w->cond, &w->lock);
	w->under_way--;
	w->taken++;
	pthread_mutex_unlock(&w->lock);
	*bytes = 4096;
	if (count_down(&w->fail_snapshots, e) == 0)
		return 0;
	double_set(&w->layers[num], false);
	return -1;
}

static int layer_drop(struct backend *b, uint32_t num, struct err *e)
{
	(void)b;
	(void)e;
	double_set(&w->layers[num], false);
	return 0;
}

static int keep(bool *list, const uint32_t *nums, size_t n)
{
	memset(list, 0, sizeof(w->keep_layers));
	for (size_t i = 0; i < n; i++)
		list[nums[i]] = true;
	return 0;
}

static int keep_layers(struct backend *b, const uint32_t *nums, size_t n, struct err *e)
{
	(void)b;
	(void)e;
	return keep(w->keep_layers, nums, n);
}

static int keep_volumes(struct backend *b, const uint32_t *nums, size_t n, struct err *e)
{
	(void)b;
	(void)e;
	return keep(w->keep_volumes, nums, n);
}

static int sweep(struct backend *b, const char *const *ids, size_t n, struct err *e)
{
	for (size_t i = 0; i < DOUBLE_MAX; i++) {
		w->layers[i] = w->layers[i] && w->keep_layers[i];
		w->volumes[i] = w->volumes[i] && w->keep_volumes[i];
	}
	return fake_backend.sweep(b, ids, n, e);
}

static int volume_make(struct backend *b, uint32_t num, int64_t size_mb, struct err *e)
{
	(void)b;
	(void)size_mb;
	if (count_down(&w->fail_volumes, e) < 0)
		return -1;
	assert_in_range(num, 1, ops.volume_num_max);
	assert_false(w->volumes[num]);
	double_set(&w->volumes[num], true);
	return 0;
}

static int volume_drop(struct backend *b, uint32_t num, struct err *e)
{
	(void)b;
	if (count_down(&w->fail_drops, e) < 0)
		return -1;
	double_set(&w->volumes[num], false);
	return 0;
}

static struct backend_grip gone_grip(void)
{
	static const char text[] = "populated 0\nfrozen 0\n";
	struct backend_grip g = { open("/dev/null", O_WRONLY | O_CLOEXEC),
		memfd_create("events", MFD_CLOEXEC) };

	assert_true(g.kill >= 0 && g.events >= 0);
	assert_int_equal(write(g.events, text, sizeof(text) - 1), sizeof(text) - 1);
	return g;
}

static int create(struct backend *b, const struct backend_spec *spec, const volatile int *cancel,
	struct err *e)
{
	if (count_down(&w->fail_creates, e) < 0)
		return -1;
	pthread_mutex_lock(&w->lock);
	w->top = spec->chain ? spec->chain->layers[0] : 0;
	w->depth = spec->chain ? spec->chain->n : 0;
	for (uint32_t i = 0; i < w->depth; i++)
		assert_true(w->layers[spec->chain->layers[i]]);
	pthread_mutex_unlock(&w->lock);
	if (fake_backend.create(b, spec, cancel, e) < 0)
		return -1;
	if (w->gripped && spec->grip)
		*spec->grip = gone_grip();
	pthread_mutex_lock(&w->lock);
	w->made++;
	pthread_mutex_unlock(&w->lock);
	return 0;
}

static int destroy(struct backend *b, const char *id, struct err *e)
{
	pthread_mutex_lock(&w->lock);
	while (w->hold_end)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	if (count_down(&w->fail_ends, e) < 0)
		return -1;
	return fake_backend.destroy(b, id, e);
}

static void make_ops(void)
{
	ops = fake_backend;
	ops.snapshot = take;
	ops.layer_drop = layer_drop;
	ops.keep_layers = keep_layers;
	ops.keep_volumes = keep_volumes;
	ops.sweep = sweep;
	ops.volume_num_max = DOUBLE_MAX - 1;
	ops.volume_make = volume_make;
	ops.volume_drop = volume_drop;
	ops.create = create;
	ops.destroy = destroy;
}

static int try_start(struct double_rig *r, struct err *e)
{
	char exe[PATH_MAX], libexec[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	struct backend_conf bc = { .state_dirfd = r->dirfd,
		.state_dir = r->dir,
		.libexec_dir = libexec,
		.broker_fd = -1 };
	struct core_conf cc = { .state_dir = r->dir,
		.pull_fd = -1,
		.state_dirfd = r->dirfd,
		.node_id = "",
		.keep_sandboxes = r->keep,
		.policy = &r->policy };
	bool caps[CAP_COUNT] = { false };

	assert_true(n > 0);
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	snprintf(libexec, sizeof(libexec), "%.*s/../../bin", PATH_MAX - 16, exe);
	make_ops();
	if (ops.open(&bc, &r->backend, e) < 0)
		return -1;
	caps[CAP_DISK_SNAPSHOT] = caps[CAP_VOLUMES] = true;
	if (ops.probe(r->backend, caps, e) == 0 &&
		core_open(&cc, &ops, r->backend, caps, &r->core, e) == 0)
		return 0;
	ops.close(r->backend);
	return -1;
}

static void start(struct double_rig *r)
{
	struct err e = ERR_NULL;

	if (try_start(r, &e) < 0)
		fail_msg("the core did not start: %s", e.msg);
}

static void stop(struct double_rig *r)
{
	core_close(r->core);
	ops.close(r->backend);
	r->core = NULL;
}

int double_setup(void **state)
{
	struct double_rig *r = &double_rig;
	struct err e = ERR_NULL;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_LVL_ERROR);
	*r = (struct double_rig){ .keep = true };
	strcpy(r->dir, "/tmp/sbx-double-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	r->dirfd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->dirfd >= 0);
	assert_int_equal(server_policy_load(NULL, &r->policy, &e), 0);
	server_policy_fit(&r->policy, false, false);
	r->policy.limits.min_snapshot_every_secs = 1;
	r->policy.limits.max_snapshot_keep = 3;
	memset(w->layers, 0, sizeof(w->layers));
	memset(w->volumes, 0, sizeof(w->volumes));
	w->hold = w->hold_end = false;
	w->fail_snapshots = w->fail_volumes = w->fail_drops = w->fail_creates = w->fail_ends = 0;
	w->gripped = false;
	w->under_way = w->most = w->taken = w->made = 0;
	start(r);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

int double_teardown(void **state)
{
	struct double_rig *r = &double_rig;

	(void)state;
	double_set(&w->hold, false);
	double_set(&w->hold_end, false);
	r->core->keep = false;
	stop(r);
	server_policy_free(&r->policy);
	close(r->dirfd);
	nftw(r->dir, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	return 0;
}

void double_stop(struct double_rig *r, bool keep)
{
	r->core->keep = keep;
	stop(r);
}

bool double_try(struct double_rig *r)
{
	return try_start(r, NULL) == 0;
}

void double_restart(struct double_rig *r, bool keep_at_stop, bool keep_at_start)
{
	double_stop(r, keep_at_stop);
	r->keep = keep_at_start;
	start(r);
}

void double_set(bool *what, bool to)
{
	pthread_mutex_lock(&w->lock);
	*what = to;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

void double_fail_ends(int n)
{
	pthread_mutex_lock(&w->lock);
	w->fail_ends = n;
	pthread_mutex_unlock(&w->lock);
}

void double_wait(bool (*fn)(void *arg), void *arg)
{
	for (int i = 0; i < 3000; i++) {
		if (fn(arg))
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	fail_msg("gave up waiting");
}

struct sandbox *double_sandbox(struct double_rig *r, const struct create_body *body)
{
	struct create_body none = { 0 };
	struct sandbox *s = NULL;
	struct err e = ERR_NULL;

	if (sandbox_create(r->core, body ? body : &none, NULL, NULL, &s, &e) < 0)
		fail_msg("%s", e.msg);
	return s;
}

void double_refused(struct double_rig *r, const struct create_body *body, enum err_code code)
{
	struct sandbox *s = NULL;
	struct err e = ERR_NULL;

	assert_int_equal(sandbox_create(r->core, body, NULL, NULL, &s, &e), -1);
	if (e.code != code)
		fail_msg("%s instead of %s: %s", err_word(e.code), err_word(code), e.msg);
}

size_t double_events(
	struct double_rig *r, const char *id, const char *type, const char *key, const char *value)
{
	json_t *all = NULL, *ev;
	struct err e = ERR_NULL;
	size_t i, n = 0;
	bool cut;

	if (audit_read(r->core->audit, id, &all, &cut, &e) < 0)
		return 0;
	json_array_foreach (all, i, ev) {
		const char *is = json_string_value(json_object_get(ev, "type"));
		const char *v = key ? json_string_value(json_object_get(ev, key)) : NULL;
		n += is && !strcmp(is, type) && (!key || (v && !strcmp(v, value)));
	}
	json_decref(all);
	return n;
}
