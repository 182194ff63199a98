/* SPDX-License-Identifier: MIT */
/* The hardening checklist: tests/linux/attack runs inside a sandbox, once as the sandbox user and
 * once as guest root (by a broker built for that), and every attempt must end as this table says.
 * One row, one test. Skipped with a reason when not root. */
#include "tests/support/inside.h"

static const struct inside_row rows[] = {
	{ "descriptors", "|only-0-1-2|" },
	{ "init-exe", "|EACCES|EPERM|ETXTBSY|" },
	{ "own-exe", "|ETXTBSY|" },
	{ "core-pattern", "|EROFS|EACCES|" },
	{ "modprobe", "|EROFS|EACCES|ENOENT|" },
	{ "sysrq", "|EROFS|EACCES|EPERM|ENOENT|" },
	{ "uevent-helper", "|ENOENT|EROFS|" },
	{ "proc-sys-hostname", "|EROFS|EACCES|" },
	{ "cgroup-creat", "|EROFS|EACCES|EPERM|" },
	{ "release-agent", "|ENOENT|EROFS|EACCES|" },
	{ "sys-creat", "|EROFS|EACCES|" },
	{ "kcore", "|empty|ENOENT|" },
	{ "keys", "|empty|ENOENT|" },
	{ "kallsyms", "|empty|ENOENT|" },
	{ "kmsg", "|empty|" },
	{ "dev-kmsg", "|ENOENT|" },
	{ "dev-fuse", "|ENOENT|" },
	{ "dev-kvm", "|ENOENT|" },
	{ "dev-mem", "|ENOENT|" },
	{ "dev-loop", "|ENOENT|" },
	{ "dev-creat", "|EACCES|EPERM|" },
	{ "dev-unlink", "|EACCES|EPERM|" },
	{ "dev-chmod", "|EACCES|EPERM|" },
	{ "dev-rename", "|EACCES|EPERM|EBUSY|" },
	{ "mknod-char", "|EPERM|" },
	{ "mknod-block", "|EPERM|" },
	{ "ptrace-init", "|EPERM|" },
	{ "ptrace-seize-init", "|EPERM|" },
	{ "vm-read-init", "|EPERM|" },
	{ "mem-of-init", "|EACCES|EPERM|" },
	{ "environ-of-init", "|EACCES|EPERM|" },
	{ "root-of-init", "|EACCES|EPERM|" },
	{ "cwd-of-init", "|EACCES|EPERM|" },
	{ "mount", "|EPERM|" },
	{ "umount", "|EPERM|" },
	{ "pivot-root", "|EPERM|" },
	{ "fsopen", "|EPERM|ENOSYS|" },
	{ "open-tree", "|EPERM|ENOSYS|" },
	{ "move-mount", "|EPERM|ENOSYS|" },
	{ "mount-setattr", "|EPERM|ENOSYS|" },
	{ "io-uring", "|EPERM|ENOSYS|" },
	{ "bpf", "|EPERM|" },
	{ "perf", "|EPERM|" },
	{ "userfaultfd", "|EPERM|" },
	{ "keyctl", "|EPERM|" },
	{ "add-key", "|EPERM|" },
	{ "request-key", "|EPERM|" },
	{ "open-by-handle", "|EPERM|" },
	{ "kexec", "|EPERM|" },
	{ "init-module", "|EPERM|" },
	{ "finit-module", "|EPERM|" },
	{ "delete-module", "|EPERM|" },
	{ "swapon", "|EPERM|" },
	{ "quotactl", "|EPERM|" },
	{ "fanotify", "|EPERM|" },
	{ "acct", "|EPERM|" },
	{ "reboot", "|EPERM|" },
	{ "unknown-call", "|ENOSYS|" },
	{ "x32-call", "|SIGSYS|" },
	{ "int80-call", "|SIGSYS|" },
	{ "netfilter", "|EPROTONOSUPPORT|EPERM|" },
	{ "audit", "|EPROTONOSUPPORT|EPERM|" },
	{ "route", "|OK|" },
	{ "packet", "|EAFNOSUPPORT|EPERM|" },
	{ "raw", "|EPERM|" },
	{ "vsock", "|EAFNOSUPPORT|EPERM|" },
	{ "alg", "|EAFNOSUPPORT|EPERM|" },
	{ "vsock-high-bits", "|EAFNOSUPPORT|EPERM|" },
	{ "interface-down", "|EPERM|" },
	{ "metadata-address", "|ENETUNREACH|" },
	{ "private-address", "|ENETUNREACH|" },
	{ "public-address", "|ENETUNREACH|" },
	{ "loopback", "|ECONNREFUSED|" },
	{ "tiocsti", "|EPERM|" },
	{ "tiocsti-high-bits", "|EPERM|" },
	{ "tioclinux", "|EPERM|" },
	{ "tioclinux-high-bits", "|EPERM|" },
	{ "subvolume", "|ENOTTY|" },
	{ "clock-set", "|EPERM|" },
	{ "sethostname", "|EPERM|" },
	{ "dmesg", "|EPERM|" },
	{ "nice", "|EACCES|EPERM|" },
	{ "fifo", "|EPERM|" },
	{ "kill-far", "|ESRCH|" },
	{ "raise-core", "|kept|" },
	{ "strong-capabilities", "|none|" },
	{ "unshare-user", "|EPERM|" },
	{ "unshare-mnt", "|EPERM|" },
	{ "unshare-net", "|EPERM|" },
	{ "unshare-pid", "|EPERM|" },
	{ "unshare-ipc", "|EPERM|" },
	{ "unshare-uts", "|EPERM|" },
	{ "unshare-cgroup", "|EPERM|" },
	{ "unshare-time", "|EPERM|" },
	{ "clone-user", "|EPERM|" },
	{ "clone-mnt", "|EPERM|" },
	{ "clone-net", "|EPERM|" },
	{ "clone-pid", "|EPERM|" },
	{ "clone-ipc", "|EPERM|" },
	{ "clone-uts", "|EPERM|" },
	{ "clone-cgroup", "|EPERM|" },
	{ "clone3", "|ENOSYS|" },
	{ "setns", "|EPERM|" },
	{ "max-user-namespaces", "|0|" },
	{ "end", "|OK|" },
};

/* The off-test: guest root without any system call filter. What another barrier stops as well. */
static const struct inside_row bare_rows[] = {
	{ "init-exe", "|EACCES|EPERM|ETXTBSY|" },
	{ "core-pattern", "|EROFS|EACCES|" },
	{ "proc-sys-hostname", "|EROFS|EACCES|" },
	{ "cgroup-creat", "|EROFS|EACCES|EPERM|" },
	{ "dev-creat", "|EACCES|EPERM|" },
	{ "dev-unlink", "|EACCES|EPERM|" },
	{ "dev-chmod", "|EACCES|EPERM|" },
	{ "mknod-char", "|EPERM|" },
	{ "mknod-block", "|EPERM|" },
	{ "ptrace-init", "|EPERM|" },
	{ "ptrace-seize-init", "|EPERM|" },
	{ "vm-read-init", "|EPERM|" },
	{ "mem-of-init", "|EACCES|EPERM|" },
	{ "environ-of-init", "|EACCES|EPERM|" },
	{ "mount", "|EPERM|EFAULT|EINVAL|" },
	{ "umount", "|EPERM|EFAULT|EINVAL|" },
	{ "pivot-root", "|EPERM|EFAULT|" },
	{ "fsopen", "|EPERM|EFAULT|" },
	{ "bpf", "|EPERM|EINVAL|" },
	{ "kexec", "|EPERM|ENOSYS|" },
	{ "init-module", "|EPERM|ENOSYS|" },
	{ "finit-module", "|EPERM|ENOSYS|" },
	{ "delete-module", "|EPERM|ENOSYS|" },
	{ "swapon", "|EPERM|ENOSYS|" },
	{ "acct", "|EPERM|ENOSYS|" },
	{ "reboot", "|EPERM|EINVAL|" },
	{ "packet", "|EPERM|EAFNOSUPPORT|" },
	{ "raw", "|EPERM|" },
	{ "interface-down", "|EPERM|" },
	{ "metadata-address", "|ENETUNREACH|" },
	{ "clock-set", "|EPERM|" },
	{ "sethostname", "|EPERM|" },
	{ "dmesg", "|EPERM|" },
	{ "fifo", "|EPERM|" },
	{ "strong-capabilities", "|none|" },
	{ "unshare-user", "|ENOSPC|" },
	{ "unshare-mnt", "|EPERM|ENOSPC|" },
	{ "unshare-net", "|EPERM|ENOSPC|" },
	{ "unshare-pid", "|EPERM|ENOSPC|" },
	{ "clone-user", "|ENOSPC|" },
	{ "clone-net", "|EPERM|ENOSPC|" },
	{ "end", "|OK|" },
};

static void nothing_crosses_between_two_sandboxes(void **state)
{
	struct box *a = box_new(&inside_rig()->rig), *b = box_new(&inside_rig()->rig);
	struct spooled o;

	(void)state;
	inside_put(a);
	inside_put(b);
	uint32_t server =
		box_sh(a, "echo secret > /dev/shm/x; echo secret > /tmp/x; ./attack serve");
	assert_true(box_wait_output(a, server, "serving OK", 5000));
	box_run(b, "./attack reach; ls /dev/shm /tmp; ls /sandbox/home", &o);
	assert_non_null(strstr(o.out[0], "reach ECONNREFUSED"));
	assert_null(strstr(o.out[0], "\nx\n"));
	spooled_free(&o);
	box_run(a, "./attack reach", &o); /* the same attempt works inside: the test can fail */
	assert_string_equal(o.out[0], "reach OK\n");
	spooled_free(&o);
	box_free(a);
	box_free(b);
}

static void a_whole_kill_stays_inside(void **state)
{
	struct box *a = box_new(&inside_rig()->rig), *b = box_new(&inside_rig()->rig);
	struct spooled o;

	(void)state;
	uint32_t n = box_sh(a, "kill -9 -1; sleep 0.1; kill -9 1");
	assert_true(box_wait_exit(a, n, 5000));
	box_run(b, "echo untouched", &o);
	assert_string_equal(o.out[0], "untouched\n");
	spooled_free(&o);
	box_free(a);
	box_free(b);
}

static const struct CMUnitTest both[] = {
	cmocka_unit_test(nothing_crosses_between_two_sandboxes),
	cmocka_unit_test(a_whole_kill_stays_inside),
};

#define PLAN(t, b, root, list)                                                                     \
	{                                                                                          \
		.title = (t), .broker = (b), .program = "linux/attack", .as_root = (root),         \
		.rows = (list), .nrows = ARRAY_LEN(list), .more = both, .nmore = ARRAY_LEN(both)   \
	}

int main(void)
{
	static const struct inside_plan plans[] = {
		PLAN("attacks as the sandbox user", NULL, false, rows),
		PLAN("attacks as guest root", "root", true, rows),
		PLAN("attacks without a filter", "bare", true, bare_rows),
	};

	return inside_run(plans, ARRAY_LEN(plans));
}
