/* SPDX-License-Identifier: MIT */
/* What tests/contract/test_hardening does not have: every row as the sandbox user, as guest root,
 * and, where a second barrier is claimed, as guest root without the system call filter. */
#include "tests/support/inside.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NO "|EPERM|EACCES|"

static struct inside_row rows[] = {
	/* sbx-init */
	{ "maps-of-init", NO },
	{ "auxv-of-init", NO },
	{ "pagemap-of-init", NO },
	{ "stack-of-init", NO "ENOENT|" },
	{ "thread-mem-of-init", NO },
	{ "oom-of-init", NO },
	{ "attr-of-init", NO "ENOENT|EINVAL|" },
	{ "descriptors-of-init", NO },
	{ "map-files-of-init", NO },
	{ "exe-of-init", NO },
	{ "mnt-namespace-of-init", NO },
	{ "root-link-of-init", NO },
	{ "write-init", NO },
	{ "seize-init", NO },
	{ "descriptor-of-init", NO },
	{ "advise-init", NO },
	{ "compare-init", NO },
	{ "signals-to-init", "|alive|" },
	/* files of the kernel */
	{ "writable-sysctls", "|none|" },
	{ "writable-sysfs", "|none|" },
	{ "writable-proc", "|none|" },
	{ "uid-map", NO },
	{ "gid-map", NO },
	{ "project-map", NO },
	{ "oom-score", NO },
	{ "time-offsets", NO "ENOENT|" },
	{ "key-users", "|empty|ENOENT|" },
	{ "interrupts", "|empty|ENOENT|" },
	{ "timer-list", "|empty|ENOENT|" },
	{ "vmallocinfo", "|empty|ENOENT|" },
	{ "slabinfo", "|empty|ENOENT|" },
	{ "pressure", "|empty|ENOENT|" },
	/* mounts and device nodes */
	{ "mount-cgroup", NO },
	{ "mount-cgroup2", NO },
	{ "mount-proc", NO },
	{ "mount-sysfs", NO },
	{ "mount-tmpfs", NO },
	{ "mount-debugfs", NO },
	{ "mount-overlay", NO },
	{ "bind-proc", NO },
	{ "remount-root", NO },
	{ "remount-sysctls", NO },
	{ "remount-sys", NO },
	{ "share-root", NO },
	{ "unmask", NO },
	{ "unmount-sysctls", NO },
	{ "clone-root", NO "ENOSYS|" },
	{ "swap-root", NO },
	{ "device-nodes", "|none|" },
	{ "node-in-home", NO },
	{ "whiteout", NO },
	{ "set-id-file", NO "euid=1001|" },
	{ "trusted-attribute", NO },
	{ "security-attribute", NO },
	{ "chroot-dance", "|EPERM|own-root|" },
	/* calls */
	{ "host-wide-aio", "|ENOSYS|" },
	{ "host-wide-huge-pages", "|EINVAL|" },
	{ "host-wide-huge-file", "|EINVAL|" },
	{ "host-wide-terminals", "|few|" },
	{ "kernel-log", NO },
	{ "kernel-log-size", NO },
	{ "kernel-log-clear", NO },
	{ "line-discipline", NO },
	{ "console", NO },
	{ "freeze-request", "|ENOTTY|" },
	{ "freeze-request-high-bits", "|ENOTTY|" },
	{ "verity-request", "|ENOTTY|" },
	{ "encryption-request", "|ENOTTY|" },
	{ "move-request", "|ENOTTY|" },
	{ "map-request", "|ENOTTY|" },
	{ "allocate-request", "|ENOTTY|" },
	{ "lease-to-read", "|EINVAL|" },
	{ "lease-to-write", "|EINVAL|" },
	{ "lease-question", "|OK|" },
	{ "compress-request", "|EOPNOTSUPP|" },
	{ "compress-attribute", "|EINVAL|EOPNOTSUPP|" },
	{ "compress-inherited", "|errno=61|EOPNOTSUPP|" }, /* ENODATA */
	{ "flags-request", "|OK|" }, /* what lsattr asks for still works */
	{ "attributes-request", "|OK|" },
	{ "later-calls", "|ENOSYS|" },
	{ "all-capabilities", NO },
	{ "ambient-capability", NO },
	{ "no-new-privileges", "|set|" },
	{ "filter", "|set|" },
	{ "memory-map", NO },
	{ "half-a-processor", "|EPERM|" },
	{ "deadline-class", NO },
	{ "io-real-time", NO },
	{ "raise-descriptors", NO },
	{ "raise-locked-memory", NO },
	{ "raise-queues", NO },
	{ "core-handler", "|1,1|" },
#ifdef __x86_64__
	{ "modify-ldt", "|ENOSYS|" },
	{ "iopl", NO },
	{ "ioperm", NO },
	{ "uselib", "|ENOSYS|" },
	{ "ustat", "|ENOSYS|" },
	{ "sysfs-call", "|ENOSYS|" },
#endif
	{ "file-handle", NO },
	{ "kexec-file", NO },
	{ "move-pages", NO },
	{ "memory-policy", NO },
	{ "swap-off", NO },
	{ "io-uring-enter", NO },
	{ "io-uring-register", NO },
	{ "hang-up", NO },
	/* network */
	{ "interfaces", "|lo|" },
	{ "other-families", "|none|" },
	{ "other-netlinks", "|none|" },
	{ "sctp", "|EPROTONOSUPPORT|" },
	{ "sctp-many", "|EPROTONOSUPPORT|" },
	{ "sctp-six", "|EPROTONOSUPPORT|" },
	{ "dccp", "|EPROTONOSUPPORT|" },
	{ "mptcp", "|EPROTONOSUPPORT|" },
	{ "mptcp-six", "|EPROTONOSUPPORT|" },
	{ "udplite", "|EPROTONOSUPPORT|" },
	{ "l2tp", "|EPROTONOSUPPORT|" },
	{ "smc", "|EPROTONOSUPPORT|" },
	{ "raw-six", NO },
	{ "raw-any", NO "EPROTONOSUPPORT|" },
	{ "ping", "|OK|" }, /* what must work still does */
	{ "tcp-by-number", "|OK|" },
	{ "udp-by-number", "|OK|" },
	{ "new-interface", NO },
	{ "delete-interface", NO },
	{ "new-address", NO },
	{ "delete-address", NO },
	{ "new-route", NO },
	{ "delete-route", NO },
	{ "new-rule", NO },
	{ "new-neighbour", NO },
	{ "new-queue", NO },
	{ "new-filter", NO },
	{ "new-netns-id", NO },
	{ "packet-mark", NO },
	{ "repair", NO },
	{ "transparent", NO },
	{ "buffer-by-force", NO },
	{ "socket-debug", NO },
	{ "packet-filter", NO "ENOPROTOOPT|" },
	{ "congestion-module", NO "ENOENT|" },
	{ "protocol-module", NO "ENOENT|" },
	{ "broadcast", "|ENETUNREACH|" },
	{ "multicast", "|ENETUNREACH|ENODEV|" },
	{ "carrier-grade", "|ENETUNREACH|" },
	{ "six-public", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "six-public-udp", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "six-link-local", "|ENETUNREACH|EADDRNOTAVAIL|EINVAL|" },
	{ "six-unique-local", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "six-mapped", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "six-nat", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "end", "|OK|" },
};

/* What holds when there is no filter: namespaces, capabilities, locked mounts, non-dumpable. */
static const struct inside_row bare_rows[] = {
	{ "maps-of-init", NO },
	{ "thread-mem-of-init", NO },
	{ "descriptors-of-init", NO },
	{ "mnt-namespace-of-init", NO },
	{ "write-init", NO },
	{ "seize-init", NO },
	{ "descriptor-of-init", NO },
	{ "compare-init", NO },
	{ "signals-to-init", "|alive|" },
	{ "writable-sysctls", "|none|" },
	{ "writable-sysfs", "|none|" },
	{ "writable-proc", "|none|" },
	{ "uid-map", NO },
	{ "mount-cgroup", NO },
	{ "mount-proc", NO },
	{ "mount-sysfs", NO },
	{ "mount-tmpfs", NO },
	{ "bind-proc", NO },
	{ "remount-root", NO },
	{ "remount-sysctls", NO },
	{ "unmask", NO },
	{ "clone-root", NO },
	{ "swap-root", NO },
	{ "device-nodes", "|none|" },
	{ "node-in-home", NO },
	{ "set-id-file", NO "euid=1001|" },
	{ "trusted-attribute", NO },
	{ "chroot-dance", "|own-root|" },
	{ "host-wide-terminals", "|few|" },
	{ "all-capabilities", NO },
	{ "deadline-class", NO },
	{ "new-interface", NO },
	{ "new-address", NO },
	{ "new-route", NO },
	{ "packet-mark", NO },
	{ "interfaces", "|lo|" },
	{ "six-public", "|ENETUNREACH|EADDRNOTAVAIL|" },
	{ "end", "|OK|" },
};

#define PLAN(t, b, root, list)                                                                     \
	{                                                                                          \
		.title = (t), .broker = (b), .program = "attack/inside", .as_root = (root),        \
		.rows = (list), .nrows = ARRAY_LEN(list)                                           \
	}

/* A kernel with the BPF security module, as Debian's 6.1, asks that one instead of the capabilities whether a file's
 * owner may set an attribute of security.*: its hook says yes by default. Nothing here believes such a one. Whether
 * it is so is tried outside of any sandbox, by a user without rights. */
static bool owners_set_security(void)
{
	char path[] = "/var/tmp/sbx-attribute.XXXXXX";
	int fd = mkstemp(path), status = 1;
	pid_t pid = -1;

	if (fd >= 0 && fchown(fd, 65534, 65534) == 0)
		pid = fork();
	if (pid == 0)
		_exit(setresuid(65534, 65534, 65534) != 0 || fsetxattr(fd, "security.evil", "y", 1, 0) != 0);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	return pid > 0 && status == 0;
}

static void allow_what_kernel_allows(void)
{
	if (!owners_set_security())
		return;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i].name, "security-attribute"))
			rows[i].want = NO "OK|";
}

int main(void)
{
	static const struct inside_plan plans[] = {
		PLAN("attacks as the sandbox user", NULL, false, rows),
		PLAN("attacks as guest root", "root", true, rows),
		PLAN("attacks without a filter", "bare", true, bare_rows),
	};

	allow_what_kernel_allows();
	return inside_run(plans, ARRAY_LEN(plans));
}
