/* SPDX-License-Identifier: MIT */
/* Sealing: the files of a running sandbox become a layer. The guest stands still while its changes
 * are taken, by the file system in one step where it can, else by copying. Who makes the sandbox
 * stand still leaves a mark first, so that whoever comes after a crash sets it going again. */
#include "sandboxd/priv/works.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/broker.h"
#include "sandboxd/priv/layers.h"
#include "sandboxd/priv/root.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FREEZE_MS 5000

struct seal {
	const struct build_env *env;
	const struct work *w;
	struct record box;
	char group[BOX_NAME_MAX + 8];
	char layer[LAYER_NAME_MAX];
	char mark[PRIV_ID_MAX + 8];
	bool held; /* by us */
};

/* --- standing still -------------------------------------------------------------------------- */

static void group_of(const struct build_env *env, uint32_t block, char *group, size_t size)
{
	char name[BOX_NAME_MAX];

	box_group(name, block);
	snprintf(group, size, "%s%s", name, env->cg.base2 < 0 ? "" : "/guest");
}

static void thaw(struct seal *s)
{
	if (!s->held)
		return;
	(void)cg_freeze(&s->env->cg, s->group, false);
	(void)unlinkat(s->env->boxes, s->mark, 0);
	s->held = false;
}

static int wait_frozen(struct seal *s)
{
	int64_t end = broker_now_ms() + FREEZE_MS;
	int r;

	for (int ms = 0; (r = cg_frozen(&s->env->cg, s->group)) == 0; ms = 1) {
		if (broker_now_ms() > end)
			return -ETIMEDOUT;
		(void)poll(NULL, 0, ms);
	}
	return r < 0 ? r : 0;
}

/* A suspended sandbox stands still already, and will do so afterwards. */
static int freeze(struct seal *s, struct fail *f)
{
	int r = cg_frozen(&s->env->cg, s->group);

	if (r == 1)
		return 0;
	_cleanup_close_ int mark =
		openat(s->env->boxes, s->mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (mark < 0)
		return fail_set(f, errno, "mark %s", s->w->id);
	s->held = true;
	if (r == 0)
		r = cg_freeze(&s->env->cg, s->group, true);
	if (r == 0)
		r = wait_frozen(s);
	if (r < 0)
		thaw(s);
	return r < 0 ? fail_set(f, r, "the processes of %.63s do not come to a stop", s->w->id) : 0;
}

void seal_recover(const struct build_env *env, const char *id)
{
	struct seal s = { .env = env, .held = true };
	struct record box;
	int r;

	snprintf(s.mark, sizeof(s.mark), ".seal-%s", id);
	if (faccessat(env->boxes, s.mark, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	r = record_read(env->boxes, id, &box);
	if (record_unread(r))
		return; /* the mark stays: the next start tries again */
	if (r < 0) {
		(void)unlinkat(env->boxes, s.mark, 0);
		return;
	}
	group_of(env, box.block, s.group, sizeof(s.group));
	thaw(&s);
}

void seal_recover_all(const struct build_env *env)
{
	_cleanup_dir_ DIR *d = dir_read(env->boxes, ".");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (strncmp(de->d_name, ".seal-", 6) == 0)
			seal_recover(env, de->d_name + 6);
}

/* --- by the file system ---------------------------------------------------------------------- */

/* A first snapshot, thrown away, writes out what is only in memory; the guest need not stand still
 * for that. */
static void flush(const struct seal *s)
{
	const struct area_store *a = &s->env->areas;
	char name[LAYER_NAME_MAX + 8];
	struct fail f = { 0 };

	snprintf(name, sizeof(name), ".%s.tmp", s->layer);
	if (a->provider->seal(a, s->w->id, name, &f) == 0)
		(void)a->provider->drop(a, name);
}

static int measure(const struct seal *s, int64_t *bytes)
{
	_cleanup_close_ int at = layer_open(s->env, s->w->num);
	_cleanup_close_ int dir = at < 0 ? at : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? -errno : seal_measure(dir, bytes);
}

/* While it stands still: no snapshot will ever hold more of it than what is charged now, which later looks at its
 * limit have to know (limits.c). */
static void note_held(const struct seal *s)
{
	struct area_usage u;

	if (area_usage(&s->env->areas, s->w->id, &u) == 0)
		(void)record_note_sealed(s->env->boxes, s->w->id, u.used);
}

/* What only snapshots hold any more is not the sandbox's: it may use its whole size beside that. */
static void raise_limit(const struct seal *s, int64_t alive)
{
	const struct area_store *a = &s->env->areas;
	int64_t size = s->box.disk_mb << 20, most = record_sealed(s->env->boxes, s->w->id);
	struct area_usage u;

	if (size <= 0 || area_usage(a, s->w->id, &u) < 0)
		return;
	(void)a->provider->limit(a, s->w->id, limit_of(size, u.used > alive ? u.used - alive : 0, most));
}

static int seal_at_once(struct seal *s, struct work_result *ret)
{
	const struct area_store *a = &s->env->areas;
	int r;

	flush(s);
	r = freeze(s, &ret->fail);
	if (r < 0)
		return r;
	fault_point("seal-frozen");
	r = a->provider->seal(a, s->w->id, s->layer, &ret->fail);
	if (r == 0)
		note_held(s);
	thaw(s);
	if (r < 0)
		return r;
	fault_point("seal-made");
	r = measure(s, &ret->bytes);
	if (r < 0) {
		(void)a->provider->drop(a, s->layer);
		return fail_set(&ret->fail, r, "measure the snapshot");
	}
	raise_limit(s, ret->bytes);
	return 0;
}

/* --- by copying ------------------------------------------------------------------------------ */

static int open_upper(const struct seal *s, struct fail *f)
{
	_cleanup_close_ int mnt = -1;
	int r = area_reopen(&s->env->areas, s->w->id, &mnt, f);

	if (r < 0)
		return r;
	r = open_below(mnt, "upper", O_RDONLY | O_DIRECTORY, 0);
	return r < 0 ? fail_set(f, r, "open the changes of %.63s", s->w->id) : r;
}

static int copy_into(struct seal *s, int upper, int to, struct work_result *ret)
{
	int r;

	if (syncfs(upper) < 0) /* so that little is left to do while the guest waits */
		return fail_set(&ret->fail, errno, "flush the files of %.63s", s->w->id);
	r = freeze(s, &ret->fail);
	if (r < 0)
		return r;
	fault_point("seal-frozen");
	r = seal_copy(s->env, upper, to, s->box.disk_mb, &ret->fail);
	thaw(s);
	if (r == 0 && syncfs(to) < 0)
		r = fail_set(&ret->fail, errno, "sync the snapshot");
	if (r == 0 && (r = seal_measure(to, &ret->bytes)) < 0)
		fail_set(&ret->fail, r, "measure the snapshot");
	return r;
}

static int seal_by_copy(struct seal *s, struct work_result *ret)
{
	_cleanup_close_ int upper = open_upper(s, &ret->fail);
	char tmp[LAYER_NAME_MAX + 8];
	int r;

	if (upper < 0)
		return upper;
	snprintf(tmp, sizeof(tmp), ".%s.tmp", s->layer);
	(void)tree_remove(s->env->layers, tmp);
	_cleanup_close_ int to = dir_make(s->env->layers, tmp, 0700);
	r = to < 0 ? fail_set(&ret->fail, to, "make the layer") : copy_into(s, upper, to, ret);
	fault_point("seal-copied");
	if (r == 0 && renameat(s->env->layers, tmp, s->env->layers, s->layer) < 0)
		r = fail_set(&ret->fail, errno, "name the layer");
	if (r < 0)
		(void)tree_remove(s->env->layers, tmp);
	else if (fsync(s->env->layers) < 0)
		r = fail_set(&ret->fail, errno, "sync the layers");
	return r;
}

void seal_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	struct seal s = { .env = env, .w = w };
	_cleanup_close_ int there = layer_open(env, w->num);
	int r;

	layer_name(s.layer, w->num);
	snprintf(s.mark, sizeof(s.mark), ".seal-%s", w->id);
	if (there >= 0) {
		fail_set(&ret->fail, EEXIST, "layer %u", w->num);
		return;
	}
	r = record_read(env->boxes, w->id, &s.box);
	if (r < 0) {
		fail_set(&ret->fail, r, "find %.63s", w->id);
		return;
	}
	group_of(env, s.box.block, s.group, sizeof(s.group));
	(void)(env->areas.provider->seal ? seal_at_once(&s, ret) : seal_by_copy(&s, ret));
}
