/* SPDX-License-Identifier: MIT */
/* Control groups: finding the hierarchies and making the base folders. */
#include "sandboxd/priv/cg.h"

#include "common/sys/fnv.h"
#include "common/sys/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#ifndef CHEAP_MOVES /* the tests build one that believes so of every kernel */
#define CHEAP_MOVES false
#endif

const char *const cg_ctrl_name[CG_CTRLS] = { "memory", "cpu", "pids", "freezer", "cpuacct" };

struct mounts {
	char v2[256];
	bool cheap_moves;
	char v1[CG_CTRLS][256];
};

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == 0))
			return true;
	return false;
}

/* mountinfo: id parent dev root point options [tags] - type source super-options */
static void note_mount(char *line, struct mounts *m)
{
	char point[256], type[32], super[256], root[256];
	char *dash = strstr(line, " - ");

	if (!dash || sscanf(line, "%*s %*s %*s %255s %255s", root, point) != 2 ||
		sscanf(dash, " - %31s %*s %255s", type, super) != 2)
		return;
	if (strcmp(root, "/") != 0)
		return; /* a part of the hierarchy bound somewhere else */
	if (strcmp(type, "cgroup2") == 0 && !m->v2[0]) {
		snprintf(m->v2, sizeof(m->v2), "%s", point);
		m->cheap_moves = has_word(super, "favordynmods");
	}
	if (strcmp(type, "cgroup") != 0)
		return;
	for (int c = 0; c < CG_CTRLS; c++)
		if (has_word(super, cg_ctrl_name[c]) && !m->v1[c][0])
			snprintf(m->v1[c], sizeof(m->v1[c]), "%s", point);
}

static int find_mounts(struct mounts *m)
{
	FILE *fp = fopen("/proc/self/mountinfo", "re");
	char line[4096];

	memset(m, 0, sizeof(*m));
	if (!fp)
		return -errno;
	while (fgets(line, sizeof(line), fp))
		note_mount(line, m);
	fclose(fp);
	return 0;
}

#define NAME_FILE "groups"
#define NAMES     16    /* tried, where others hold the first */
#define START     1469598103934665603u /* what groups are named by goes on from here */
#define WAIT_MS   10000 /* for a broker of our own that is on its way out */

static uint32_t hash_of(const char *state_dir)
{
	uint64_t h = fnv64(START, state_dir, strlen(state_dir));

	return (uint32_t)(h ^ (h >> 32));
}

/* The name that this very folder had last, wherever it lay then; a copy of it has another number. */
static bool name_kept(int priv, uint32_t *ret)
{
	unsigned long long dev, ino;
	char text[96];
	struct stat st;

	return fstat(priv, &st) == 0 && file_read(priv, NAME_FILE, text, sizeof(text)) == 0 &&
	       sscanf(text, CG_BASE "%8" SCNx32 " %llu %llu", ret, &dev, &ino) == 3 &&
	       dev == st.st_dev && ino == st.st_ino;
}

static int keep_name(int priv, const char *base, struct fail *f)
{
	_cleanup_close_ int fd =
		openat(priv, NAME_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0 || fstat(priv, &st) < 0 ||
		dprintf(fd, "%s %llu %llu\n", base, (unsigned long long)st.st_dev,
			(unsigned long long)st.st_ino) < 0)
		return fail_set(f, errno, "write priv/" NAME_FILE);
	return 0;
}

static int open_base(const char *mount, const char *base, struct fail *f)
{
	_cleanup_close_ int dir = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (dir < 0)
		return fail_set(f, errno, "open %s", mount);
	r = dir_make(dir, base, 0755);
	return r < 0 ? fail_set(f, r, "make control group %s/%s", mount, base) : r;
}

/* Hands the controllers that limits need down to the children of a v2 group. */
int cg_enable_v2(int dir, struct fail *f)
{
	char have[256];
	int r = file_read(dir, "cgroup.controllers", have, sizeof(have));

	if (r < 0)
		return fail_set(f, r, "read cgroup.controllers");
	for (int c = 0; c < CG_FREEZER; c++) {
		if (!strstr(have, cg_ctrl_name[c]))
			return fail_set(f, ENOTSUP, "control group controller %s", cg_ctrl_name[c]);
		r = file_write(dir, "cgroup.subtree_control", "+%s", cg_ctrl_name[c]);
		if (r < 0)
			return fail_set(f, r, "enable the controller %s", cg_ctrl_name[c]);
	}
	(void)file_write(dir, "cgroup.subtree_control", "+io"); /* counts the disk's bytes; not needed */
	return 0;
}

static bool carries_controllers(const char *v2)
{
	_cleanup_close_ int dir = open(v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char have[256] = "";

	return dir >= 0 && file_read(dir, "cgroup.controllers", have, sizeof(have)) == 0 &&
	       strstr(have, "memory") && strstr(have, "pids");
}

static int open_v2(struct cg *cg, const struct mounts *m, const char *base, struct fail *f)
{
	_cleanup_close_ int top = open(m->v2, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	cg->mode = CG_V2;
	if (top < 0)
		return fail_set(f, errno, "open %s", m->v2);
	r = cg_enable_v2(top, f);
	if (r == 0 && (cg->base2 = open_base(m->v2, base, f)) < 0)
		r = cg->base2;
	return r < 0 ? r : cg_enable_v2(cg->base2, f);
}

static int open_v1(struct cg *cg, const struct mounts *m, const char *base, struct fail *f)
{
	for (int c = 0; c < CG_CTRLS; c++) {
		if ((c == CG_FREEZER || c == CG_CPUACCT) && cg->base2 >= 0)
			continue; /* cgroup2 freezes, kills and counts */
		if (c == CG_CPUACCT && !m->v1[c][0])
			continue;
		if (!m->v1[c][0])
			return fail_set(f, ENOTSUP, "control group controller %s", cg_ctrl_name[c]);
		cg->base1[c] = open_base(m->v1[c], base, f);
		if (cg->base1[c] < 0)
			return cg->base1[c];
		_cleanup_close_ int svc = dir_make(cg->base1[c], "svc", 0755);
		int r = svc < 0 ? svc : file_write(svc, "cgroup.procs", "0");
		if (r < 0)
			return fail_set(f, r, "enter the %s control group svc", cg_ctrl_name[c]);
	}
	return 0;
}

/* Who holds the folder has the name: another server's sandboxes are not taken for ours, whatever its state directory
 * is called where it runs. */
static int hold(struct cg *cg, const char *mount, uint32_t hash, int wait_ms, struct fail *f)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	int r;

	snprintf(cg->base, sizeof(cg->base), CG_BASE "%08" PRIx32, hash);
	cg->held = open_base(mount, cg->base, f);
	if (cg->held < 0)
		return cg->held;
	while ((r = flock(cg->held, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && wait_ms > 0) {
		nanosleep(&pause, NULL);
		wait_ms -= 10;
	}
	if (r == 0 || errno != EWOULDBLOCK)
		return 1; /* where a kernel locks no such folder nobody holds it */
	close_p(&cg->held);
	cg->held = -1;
	return 0;
}

static int choose_base(
	struct cg *cg, const char *mount, int priv, const char *state_dir, struct fail *f)
{
	uint32_t hash;
	bool kept = name_kept(priv, &hash);
	int r = kept ? hold(cg, mount, hash, WAIT_MS, f) : 0;

	if (!kept || r == 0)
		hash = hash_of(state_dir);
	for (uint32_t n = 0; r == 0 && n < NAMES; n++)
		r = hold(cg, mount, hash + n, 0, f);
	if (r == 0)
		return fail_set(f, EBUSY, "find a control group that no other server has");
	return r < 0 ? r : keep_name(priv, cg->base, f);
}

int cg_open(struct cg *cg, int priv, const char *state_dir, struct fail *f)
{
	struct mounts m;
	int r = find_mounts(&m);

	if (r < 0)
		return fail_set(f, r, "read the mount table");
	cg->cheap_moves = m.cheap_moves || CHEAP_MOVES;
	if (!m.v2[0] && !m.v1[CG_PIDS][0])
		return fail_set(f, ENOTSUP, "control group controller %s", cg_ctrl_name[CG_PIDS]);
	r = choose_base(cg, m.v2[0] ? m.v2 : m.v1[CG_PIDS], priv, state_dir, f);
	if (r < 0)
		return r;
	if (m.v2[0] && carries_controllers(m.v2))
		return open_v2(cg, &m, cg->base, f);
	cg->mode = m.v2[0] ? CG_HYBRID : CG_V1;
	if (m.v2[0] && (cg->base2 = open_base(m.v2, cg->base, f)) < 0)
		return cg->base2;
	return open_v1(cg, &m, cg->base, f);
}
