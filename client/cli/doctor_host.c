/* SPDX-License-Identifier: MIT */
/* Trials of kernel features. What leaves a trace is done in a child in namespaces of its own, whose
 * end takes everything with it. */
#include "client/cli/doctor.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void say(struct finding *f, bool ok, const char *fmt, ...)
{
	va_list ap;

	f->ok = ok;
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
}

void mend(struct finding *f, const char *text)
{
	snprintf(f->mend, sizeof(f->mend), "%s", text);
}

static void say_errno(struct finding *f, int sys, const char *how)
{
	say(f, sys == 0, "%s", sys ? strerrordesc_np(sys) : "works");
	mend(f, how);
}

/* A child's errno; what it made dies with it. */
static int in_child(int (*run)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(run());
	if (pid < 0)
		return errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

void try_openat2(struct finding *f)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	_cleanup_close_ int dir = open("/", O_PATH | O_CLOEXEC);
	_cleanup_close_ int fd = (int)syscall(SYS_openat2, dir, "proc", &how, sizeof(how));

	say_errno(f, fd < 0 ? errno : 0,
		"a kernel from 6.1 on is needed, and no filter that hides openat2");
}

void try_clone3(struct finding *f)
{
	struct clone_args a = { .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &a, sizeof(a));
	int sys = errno;

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	say_errno(f, pid < 0 ? sys : 0,
		"a kernel from 6.1 on is needed, and no filter that hides clone3");
}

void try_pidfd(struct finding *f)
{
	_cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	say_errno(f, fd < 0 ? errno : 0, "a kernel from 6.1 on is needed");
}

static int make_userns(void)
{
	return unshare(CLONE_NEWUSER) < 0 ? errno : 0;
}

void try_userns(struct finding *f)
{
	say_errno(f, in_child(make_userns),
		"sysctl user.max_user_namespaces=15000 (and kernel.unprivileged_userns_clone=1)");
}

void try_seccomp(struct finding *f)
{
	uint32_t action = SECCOMP_RET_KILL_PROCESS;
	long r = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);

	say_errno(f, r < 0 ? errno : 0, "a kernel built with CONFIG_SECCOMP_FILTER is needed");
}

/* What keeps a guest's crash from a program of the host's, a limit of 1, is not asked for a socket. */
void try_cores(struct finding *f)
{
	char pattern[128] = "";
	_cleanup_close_ int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, pattern, sizeof(pattern) - 1);

	pattern[n > 0 ? n : 0] = '\0';
	pattern[strcspn(pattern, "\n")] = '\0';
	f->optional = true;
	say(f, pattern[0] != '@',
		pattern[0] == '@' ? "crashes of guests go to %s" : "no crash of a guest goes to %s", pattern);
	mend(f, "let kernel.core_pattern name a file, or a program after a bar");
}

void try_fuse_device(struct finding *f)
{
	_cleanup_close_ int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	int bad = fd < 0 ? errno : 0;

	say_errno(f, bad, bad == EACCES ? "chmod 666 /dev/fuse, or mount as root" :
		"modprobe fuse; in a container, pass the device /dev/fuse in");
}

void try_fusermount(struct finding *f)
{
	static const char *const places[] = { "/usr/bin/fusermount3", "/bin/fusermount3",
		"/usr/local/bin/fusermount3" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (stat(places[i], &st) < 0)
			continue;
		bool suid = st.st_mode & S_ISUID;
		say(f, suid || geteuid() == 0, "%s%s", places[i], suid ? "" : ", not set-uid");
		mend(f, "chmod u+s it, so that users can mount");
		return;
	}
	say(f, false, "not installed");
	mend(f, "apt-get install fuse3");
}

void try_loop(struct finding *f)
{
	_cleanup_close_ int fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int n = fd < 0 ? -1 : ioctl(fd, LOOP_CTL_GET_FREE);

	f->optional = true;
	if (n >= 0)
		say(f, true, "/dev/loop%d is free", n);
	else
		say(f, false, "%s; disk_mb is not enforced without it or project quotas",
			strerrordesc_np(errno));
	mend(f, geteuid() ? "run as root"
			  : "modprobe loop; in a container, pass /dev/loop-control in");
}

/* The kernel loads a file system's module when it is mounted, so that its list alone does not tell.
 */
static int mount_btrfs(void)
{
	int fd = (int)syscall(SYS_fsopen, "btrfs", 0);

	return fd < 0 ? errno : 0;
}

void try_btrfs(struct finding *f)
{
	int sys = in_child(mount_btrfs);

	f->optional = true;
	if (sys == EPERM)
		say(f, false, "not tried: it takes root");
	else
		say(f, sys == 0, "%s",
			sys ? strerrordesc_np(sys) : "works: snapshots in milliseconds");
	mend(f, sys == EPERM ? "run sbx doctor as root"
			     : "modprobe btrfs; without it snapshots are copies");
}

/* The smallest program that catches connections in a network namespace: "pass". */
static int load_sk_lookup(void)
{
	static const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_SK_LOOKUP };

	attr.insn_cnt = ARRAY_LEN(code);
	attr.insns = (uint64_t)(uintptr_t)code;
	attr.license = (uint64_t)(uintptr_t) "GPL";
	attr.expected_attach_type = BPF_SK_LOOKUP;
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)) < 0 ? errno : 0;
}

void try_sk_lookup(struct finding *f)
{
	int sys = in_child(load_sk_lookup);

	f->optional = true;
	if (sys == EPERM && geteuid() != 0)
		say(f, false, "not tried: it takes root");
	else
		say(f, sys == 0, "%s", sys ? strerrordesc_np(sys) : "works");
	mend(f, geteuid() ? "run sbx doctor as root"
			  : "the right to load BPF programs; else nftables redirects are used");
}

void try_skopeo(struct finding *f)
{
	f->optional = true;
	say(f, access("/usr/bin/skopeo", X_OK) == 0, "%s",
		access("/usr/bin/skopeo", X_OK) == 0 ? "/usr/bin/skopeo" : "not installed");
	mend(f, "apt-get install skopeo, for images of registries and OCI archives");
}
