/* SPDX-License-Identifier: MIT */
/* One child cgroup a process, where the builder of the sandbox gave a cgroup2 directory: it holds the
 * whole tree, whatever it does, and ends it with one write. */
#include "common/sys/mem.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SWEEP_EVERY 64

static void path_of(char buf[64], uint32_t num, const char *file)
{
	snprintf(buf, 64, "p%u%s", num, file);
}

int cgroup_make(struct shim *s, struct proc *p, int *ret_procs_fd)
{
	int dir = s->boot.cgroup_fd;
	char path[64];

	if (dir < 0)
		return 0;
	path_of(path, p->num, "");
	if (mkdirat(dir, path, 0755) < 0 && errno != EEXIST)
		return -errno;
	p->in_cgroup = true;
	path_of(path, p->num, "/cgroup.procs");
	*ret_procs_fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
	return *ret_procs_fd < 0 ? -errno : 0;
}

bool cgroup_kill(struct shim *s, const struct proc *p)
{
	char path[64];

	if (!p->in_cgroup)
		return false;
	path_of(path, p->num, "/cgroup.kill");
	_cleanup_close_ int fd = openat(s->boot.cgroup_fd, path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, "1", 1) == 1;
}

static bool removed(const struct shim *s, uint32_t num)
{
	char path[64];

	path_of(path, num, "");
	return unlinkat(s->boot.cgroup_fd, path, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

/* Busy while children of the process live, or for a moment after the last has died. */
void cgroup_drop(struct shim *s, struct proc *p)
{
	if (!p->in_cgroup)
		return;
	p->in_cgroup = false;
	if (removed(s, p->num))
		return;
	if (s->ncg_left % SWEEP_EVERY == SWEEP_EVERY - 1)
		cgroup_retry(s);
	uint32_t *more = reallocarray(s->cg_left, s->ncg_left + 1, sizeof(*more));
	if (!more)
		return; /* it goes with the sandbox's cgroup */
	s->cg_left = more;
	more[s->ncg_left++] = p->num;
}

void cgroup_retry(struct shim *s)
{
	for (size_t i = 0; i < s->ncg_left;)
		if (removed(s, s->cg_left[i]))
			s->cg_left[i] = s->cg_left[--s->ncg_left];
		else
			i++;
}

long oom_count(const struct shim *s)
{
	char buf[512], *p;
	ssize_t n = s->boot.oom_fd >= 0 ? pread(s->boot.oom_fd, buf, sizeof(buf) - 1, 0) : 0;

	if (n <= 0)
		return 0;
	buf[n] = 0;
	p = strstr(buf, "oom_kill ");
	return p ? strtol(p + strlen("oom_kill "), NULL, 10) : 0;
}
