/* SPDX-License-Identifier: MIT */
/* The guest contract on the linux backend: the same list, with namespaces, through the broker. Needs
 * root; without it the program says so and passes. */
#include "sandboxd/broker.h"
#include "sandboxd/priv/box.h"
#include "tests/support/guest_rig.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/wait.h>

/* The shim is in the broker's record; init is the shim's first child. */
static pid_t linux_part(struct guest_rig *r, const char *id, enum rig_part part)
{
	struct record rec = { 0 };
	char path[160], buf[64];

	snprintf(path, sizeof(path), "priv/boxes/%s", id);
	_cleanup_close_ int fd = openat(r->state_dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, &rec, sizeof(rec)) != (ssize_t)sizeof(rec) || rec.shim_pid <= 1)
		return 0;
	if (part == RIG_SHIM)
		return rec.shim_pid;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", rec.shim_pid, rec.shim_pid);
	_cleanup_close_ int list = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = list < 0 ? 0 : read(list, buf, sizeof(buf) - 1);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	return (pid_t)strtol(buf, NULL, 10);
}

int main(void)
{
	struct guest_rig r = { .isolated = true, .part = linux_part };
	struct backend_conf conf = { .libexec_dir = guest_rig_libexec() };
	struct broker_conf broker = { .libexec_dir = guest_rig_libexec() };
	struct err e = ERR_NULL;
	pid_t pid = -1;

	if (geteuid() != 0) {
		puts("skipped: the linux backend needs root");
		return 0;
	}
	guest_rig_prepare(&r);
	broker.state_dir = r.state_dir;
	broker.state_dirfd = r.state_dirfd;
	if (broker_start(&broker, &conf.broker_fd, &pid, &e) < 0) {
		fprintf(stderr, "%s\n", e.msg);
		guest_rig_close(&r);
		return 1;
	}
	if (!guest_rig_open(&r, &linux_backend, &conf))
		return 1;
	guest_rig_import_base(&r);
	int failed = guest_cases_run(&r, "guest on linux");
	guest_rig_close(&r);
	(void)waitpid(pid, NULL, 0);
	return failed;
}
