/* SPDX-License-Identifier: MIT */
/* Finding layers, and removing what no record names. */
#include "sandboxd/priv/layers.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "common/sys/tree.h"
#include "sandboxd/priv/works.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GONE ".gone-" /* being removed */
#define KEEP_MAX ((size_t)1 << 20)
#define PATIENCE_MS 4000

void layer_name(char name[LAYER_NAME_MAX], uint32_t num)
{
	snprintf(name, LAYER_NAME_MAX, "%u", num);
}

int layer_open(const struct build_env *env, uint32_t num)
{
	char name[LAYER_NAME_MAX], path[LAYER_NAME_MAX + 8];
	int fd;

	layer_name(name, num);
	fd = open_below(env->layers, name, O_PATH | O_DIRECTORY, 0);
	if (fd != -ENOENT || env->areas.sealed < 0)
		return fd;
	/* A whole area, whose changes count. */
	snprintf(path, sizeof(path), "%s/upper", name);
	return open_below(env->areas.sealed, path, O_PATH | O_DIRECTORY, 0);
}

/* Out of sight first, so that a removal that is cut short leaves no half of a layer. */
static int hide(int dir, const char *name)
{
	char gone[64];

	snprintf(gone, sizeof(gone), GONE "%.40s", name);
	if (renameat(dir, name, dir, gone) < 0)
		return errno == ENOENT ? 0 : -errno;
	return 0;
}

static int drop_sealed(const struct build_env *env, const char *name)
{
	int r = env->areas.provider->drop(&env->areas, name);

	return r == -ENOTTY || r == -EINVAL ? tree_remove(env->areas.sealed, name) : r;
}

/* Its unpacker is dead, and the jail, which dies with that, will be in a moment: until then it may fill the folder. */
static int drop_half(const struct build_env *env, const char *name)
{
	char half[LAYER_NAME_MAX + 8];

	snprintf(half, sizeof(half), ".%s.tmp", name);
	for (int ms = 1;; ms *= 2) {
		const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
		int r = tree_remove(env->layers, half);
		if (r == 0 || ms > PATIENCE_MS)
			return r;
		nanosleep(&pause, NULL);
	}
}

void layer_drop_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	char name[LAYER_NAME_MAX], gone[LAYER_NAME_MAX + 16];
	int r;

	layer_name(name, w->num);
	snprintf(gone, sizeof(gone), GONE "%s", name);
	r = hide(env->layers, name);
	if (r == 0) {
		fault_point("layer-hidden");
		r = tree_remove(env->layers, gone);
	}
	if (r == 0 && env->areas.sealed >= 0)
		r = drop_sealed(env, name);
	if (r == 0)
		r = drop_half(env, name);
	if (r < 0)
		fail_set(&ret->fail, r, "remove the layer %u", w->num);
}

/* --- sweep ----------------------------------------------------------------------------------- */

int keep_nums_add(struct keep_nums *k, const uint32_t *nums, size_t n)
{
	k->named = true;
	if (n > KEEP_MAX - k->n)
		return -ENOMEM;
	if (k->n + n > k->room) {
		size_t room = (k->n + n) * 2;
		uint32_t *more = reallocarray(k->nums, room, sizeof(*more));
		if (!more)
			return -ENOMEM;
		k->nums = more;
		k->room = room;
	}
	if (n)
		memcpy(k->nums + k->n, nums, n * sizeof(*nums));
	k->n += n;
	return 0;
}

void keep_nums_free(struct keep_nums *k)
{
	free(k->nums);
	*k = (struct keep_nums){ 0 };
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static bool kept(const struct keep_nums *k, uint32_t num)
{
	return k->n && bsearch(&num, k->nums, k->n, sizeof(num), by_number);
}

/* Half-made, or a number with nobody who knows it. */
static bool is_garbage(const char *name, const char *prefix, const struct keep_nums *k)
{
	size_t len = strlen(name), n = strlen(prefix);
	char *end;

	if (name[0] == '.')
		return len > 4 && strcmp(name + len - 4, ".tmp") == 0;
	if (!k->named || strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9')
		return false;
	unsigned long num = strtoul(name + n, &end, 10);
	return !*end && !kept(k, (uint32_t)num);
}

static void sweep_dir(int dir, const char *prefix, struct keep_nums *k)
{
	_cleanup_dir_ DIR *d = dir < 0 ? NULL : dir_read(dir, ".");
	struct dirent *de;

	if (k->n)
		qsort(k->nums, k->n, sizeof(k->nums[0]), by_number);
	while (d && (de = readdir(d)))
		if (is_garbage(de->d_name, prefix, k))
			(void)hide(dir, de->d_name);
}

void layers_sweep(const struct build_env *env, struct keep_nums *layers, struct keep_nums *volumes)
{
	sweep_dir(env->layers, "", layers);
	sweep_dir(env->areas.sealed, "", layers);
	sweep_dir(env->areas.areas, "vol-", volumes);
	if (env->areas.plain != env->areas.areas)
		sweep_dir(env->areas.plain, "vol-", volumes);
}

static void clear_dir(const struct build_env *env, int dir)
{
	_cleanup_dir_ DIR *d = dir < 0 ? NULL : dir_read(dir, ".");
	struct dirent *de;

	while (d && (de = readdir(d))) {
		if (strncmp(de->d_name, GONE, strlen(GONE)) != 0)
			continue;
		if (dir == env->areas.sealed)
			(void)drop_sealed(env, de->d_name);
		else if (dir == env->areas.areas)
			(void)area_remove(&env->areas, de->d_name);
		else
			(void)tree_remove(dir, de->d_name);
	}
}

void layers_clear(const struct build_env *env)
{
	clear_dir(env, env->layers);
	clear_dir(env, env->areas.sealed);
	clear_dir(env, env->areas.areas);
	if (env->areas.plain != env->areas.areas)
		clear_dir(env, env->areas.plain);
}
