/* SPDX-License-Identifier: MIT */
/* Control groups: stopping and setting going. cgroup2 has one switch and says when all have
 * stopped; the v1 freezer has the same in one file, which has to be asked again and again. */
#include "sandboxd/priv/cg.h"

#include "common/sys/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int cg_freeze(const struct cg *cg, const char *name, bool on)
{
	char path[PATH_MAX];

	if (cg->base2 >= 0) {
		snprintf(path, sizeof(path), "%s/cgroup.freeze", name);
		return file_write(cg->base2, path, on ? "1" : "0");
	}
	if (cg->base1[CG_FREEZER] < 0)
		return -EOPNOTSUPP;
	snprintf(path, sizeof(path), "%s/freezer.state", name);
	return file_write(cg->base1[CG_FREEZER], path, on ? "FROZEN" : "THAWED");
}

/* The whole of a small file: the line that counts is the second. */
static int read_all(int dir, const char *path, char *buf, size_t size)
{
	_cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	buf[n] = 0;
	return 0;
}

int cg_frozen(const struct cg *cg, const char *name)
{
	char path[PATH_MAX], buf[128];
	int r;

	if (cg->base2 >= 0) {
		snprintf(path, sizeof(path), "%s/cgroup.events", name);
		r = read_all(cg->base2, path, buf, sizeof(buf));
		return r < 0 ? r : strstr(buf, "frozen 1") != NULL;
	}
	if (cg->base1[CG_FREEZER] < 0)
		return -EOPNOTSUPP;
	snprintf(path, sizeof(path), "%s/freezer.state", name);
	r = read_all(cg->base1[CG_FREEZER], path, buf, sizeof(buf));
	return r < 0 ? r : strncmp(buf, "FROZEN", 6) == 0; /* FREEZING: on its way */
}
