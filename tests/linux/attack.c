/* SPDX-License-Identifier: MIT */
/* Runs inside a sandbox and tries what must not work there. `attack` prints one line for each
 * attempt: its name and how it ended (an errno's name, a signal's, "OK", or a short text). What the
 * answers must be is known outside, by tests/contract/test_hardening.c. */
#include "tests/attack/said.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void try_open(const char *name, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0644);

	result(name, fd);
	if (fd >= 0)
		close(fd);
}

/* "empty", or what could be read */
static void try_read(const char *name, const char *path)
{
	char buf[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (n < 0)
		result(name, -1);
	else if (n == 0)
		say(name, "empty");
	else {
		buf[strcspn(buf, "\n")] = 0;
		say(name, buf);
	}
	if (fd >= 0)
		close(fd);
}

/* In a child, because the answer may be a signal. */
static void try_child(const char *name, long (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		long r = fn();
		_exit(r >= 0 ? 0 : errno);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		say(name, WTERMSIG(status) == SIGSYS ? "SIGSYS" : "signal");
	else {
		errno = WEXITSTATUS(status);
		result(name, errno ? -1 : 0);
	}
}

static void try_socket(const char *name, int family, int type, int proto)
{
	int s = socket(family, type, proto);

	result(name, s);
	if (s >= 0)
		close(s);
}

static void try_connect(const char *name, uint32_t addr, uint16_t port)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(addr)
	};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	result(name, connect(s, (struct sockaddr *)&a, sizeof(a)));
	close(s);
}

/* --- namespaces ------------------------------------------------------------------------------ */

static void namespaces(void)
{
	static const struct {
		const char *name, *clone_name;
		int flag;
	} kinds[] = { { "unshare-user", "clone-user", CLONE_NEWUSER },
		{ "unshare-mnt", "clone-mnt", CLONE_NEWNS },
		{ "unshare-net", "clone-net", CLONE_NEWNET },
		{ "unshare-pid", "clone-pid", CLONE_NEWPID },
		{ "unshare-ipc", "clone-ipc", CLONE_NEWIPC },
		{ "unshare-uts", "clone-uts", CLONE_NEWUTS },
		{ "unshare-cgroup", "clone-cgroup", CLONE_NEWCGROUP } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		result(kinds[i].name, syscall(SYS_unshare, kinds[i].flag));
		long pid = syscall(SYS_clone, kinds[i].flag | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		result(kinds[i].clone_name, pid);
	}
	result("unshare-time", syscall(SYS_unshare, 0x80));
	result("clone3", syscall(SYS_clone3, NULL, 0));
	int fd = open("/proc/self/ns/net", O_RDONLY);
	result("setns", syscall(SYS_setns, fd, 0));
	try_read("max-user-namespaces", "/proc/sys/user/max_user_namespaces");
}

/* --- calls that do not exist here ------------------------------------------------------------ */

static long call_x32(void)
{
	return syscall(0x40000000 + 39);
}

static long call_int80(void)
{
#ifdef __x86_64__
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");
	return r;
#else
	raise(SIGSYS);
	return 0;
#endif
}

static void calls(void)
{
	static const struct {
		const char *name;
		long nr;
	} list[] = { { "mount", SYS_mount }, { "umount", SYS_umount2 },
		{ "pivot-root", SYS_pivot_root }, { "fsopen", SYS_fsopen },
		{ "open-tree", SYS_open_tree }, { "move-mount", SYS_move_mount },
		{ "mount-setattr", SYS_mount_setattr }, { "io-uring", SYS_io_uring_setup },
		{ "bpf", SYS_bpf }, { "perf", SYS_perf_event_open },
		{ "userfaultfd", SYS_userfaultfd }, { "keyctl", SYS_keyctl },
		{ "add-key", SYS_add_key }, { "request-key", SYS_request_key },
		{ "open-by-handle", SYS_open_by_handle_at }, { "kexec", SYS_kexec_load },
		{ "init-module", SYS_init_module }, { "finit-module", SYS_finit_module },
		{ "delete-module", SYS_delete_module }, { "swapon", SYS_swapon },
		{ "quotactl", SYS_quotactl }, { "fanotify", SYS_fanotify_init },
		{ "acct", SYS_acct }, { "reboot", SYS_reboot }, { "unknown-call", 999 } };

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		result(list[i].name, syscall(list[i].nr, 0, 0, 0, 0, 0, 0));
	try_child("x32-call", call_x32);
	try_child("int80-call", call_int80);
}

/* --- files ----------------------------------------------------------------------------------- */

static const char *descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (de->d_name[0] != '.' && atoi(de->d_name) > 2 && atoi(de->d_name) != dirfd(d))
			return "more";
	if (d)
		closedir(d);
	return "only-0-1-2";
}

static void files(void)
{
	say("descriptors", descriptors());
	try_open("init-exe", "/proc/1/exe", O_WRONLY);
	try_open("own-exe", "/proc/self/exe", O_WRONLY);
	try_open("core-pattern", "/proc/sys/kernel/core_pattern", O_WRONLY);
	try_open("modprobe", "/proc/sys/kernel/modprobe", O_WRONLY);
	try_open("sysrq", "/proc/sysrq-trigger", O_WRONLY);
	try_open("uevent-helper", "/sys/kernel/uevent_helper", O_WRONLY);
	try_open("proc-sys-hostname", "/proc/sys/kernel/hostname", O_WRONLY);
	try_open("cgroup-creat", "/sys/fs/cgroup/x", O_WRONLY | O_CREAT);
	try_open("release-agent", "/sys/fs/cgroup/release_agent", O_WRONLY);
	try_open("sys-creat", "/sys/x", O_WRONLY | O_CREAT);
	try_read("kcore", "/proc/kcore");
	try_read("keys", "/proc/keys");
	try_read("kallsyms", "/proc/kallsyms");
	try_read("kmsg", "/proc/kmsg");
	try_open("dev-kmsg", "/dev/kmsg", O_RDONLY);
	try_open("dev-fuse", "/dev/fuse", O_RDWR);
	try_open("dev-kvm", "/dev/kvm", O_RDWR);
	try_open("dev-mem", "/dev/mem", O_RDWR);
	try_open("dev-loop", "/dev/loop-control", O_RDWR);
	try_open("dev-creat", "/dev/x", O_WRONLY | O_CREAT);
	result("dev-unlink", unlink("/dev/null"));
	result("dev-chmod", chmod("/dev/null", 0600));
	result("dev-rename", rename("/dev/pts", "/dev/ptx"));
	result("mknod-char", mknod("/tmp/c", S_IFCHR | 0666, makedev(1, 1)));
	result("mknod-block", mknod("/tmp/b", S_IFBLK | 0666, makedev(7, 0)));
}

/* --- init, time, priority -------------------------------------------------------------------- */

static void init_process(void)
{
	char buf[8];
	struct iovec here = { buf, sizeof(buf) }, there = { (void *)0x400000, sizeof(buf) };

	result("ptrace-init", ptrace(PTRACE_ATTACH, 1, NULL, NULL));
	result("ptrace-seize-init", ptrace(PTRACE_SEIZE, 1, NULL, NULL));
	result("vm-read-init", process_vm_readv(1, &here, 1, &there, 1, 0));
	try_open("mem-of-init", "/proc/1/mem", O_RDWR);
	try_open("environ-of-init", "/proc/1/environ", O_RDONLY);
	try_open("root-of-init", "/proc/1/root/etc/passwd", O_RDONLY);
	try_open("cwd-of-init", "/proc/1/cwd/etc/passwd", O_RDONLY);
}

static void host(void)
{
	struct timespec now = { .tv_sec = 1 };
	struct sched_param p = { .sched_priority = 1 };
	char buf[16];

	result("clock-set", clock_settime(CLOCK_REALTIME, &now));
	result("sethostname", sethostname("x", 1));
	result("dmesg", syscall(SYS_syslog, 3, buf, sizeof(buf)));
	result("nice", setpriority(PRIO_PROCESS, 0, -5));
	result("fifo", syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &p));
	result("kill-far", kill(300000, 0));
	struct rlimit l = { RLIM_INFINITY, RLIM_INFINITY };
	(void)setrlimit(RLIMIT_CORE, &l);
	(void)getrlimit(RLIMIT_CORE, &l);
	say("raise-core", l.rlim_cur <= 1 && l.rlim_max <= 1 ? "kept" : "raised");
	/* whoever is root in here has these and no more */
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct c[2] = { { 0 } };
	syscall(SYS_capget, &h, c);
	bool admin =
		c[0].permitted & (1u << CAP_SYS_ADMIN | 1u << CAP_NET_ADMIN | 1u << CAP_SYS_PTRACE |
					 1u << CAP_MKNOD | 1u << CAP_SYS_MODULE |
					 1u << CAP_NET_RAW | 1u << CAP_SYS_RESOURCE);
	say("strong-capabilities", admin ? "some" : "none");
}

/* --- sockets and terminals ------------------------------------------------------------------- */

static void sockets(void)
{
	struct ifreq lo = { .ifr_name = "lo" };
	int s = socket(AF_INET, SOCK_DGRAM, 0);

	try_socket("netfilter", AF_NETLINK, SOCK_RAW, 12);
	try_socket("audit", AF_NETLINK, SOCK_RAW, 9);
	try_socket("route", AF_NETLINK, SOCK_RAW, 0);
	try_socket("packet", AF_PACKET, SOCK_RAW, 0);
	try_socket("raw", AF_INET, SOCK_RAW, 1);
	try_socket("vsock", 40, SOCK_STREAM, 0);
	try_socket("alg", 38, SOCK_SEQPACKET, 0);
	result("vsock-high-bits", syscall(SYS_socket, 0x100000000l | 40, SOCK_STREAM, 0));
	result("interface-down", ioctl(s, SIOCSIFFLAGS, &lo));
	close(s);
	try_connect("metadata-address", 0xa9fea9fe, 80);
	try_connect("private-address", 0x0a000001, 80);
	try_connect("public-address", 0x08080808, 53);
	try_connect("loopback", 0x7f000001, 9);
}

/* In a folder that a volume may be mounted on. */
static void subvolume(void)
{
	char args[4096] = { 0 };
	int fd = open("/sandbox/home", O_RDONLY | O_DIRECTORY);

	strcpy(args + 8, "sub");
	result("subvolume", ioctl(fd, _IOC(_IOC_WRITE, 0x94, 14, 4096), args));
	close(fd);
}

static void terminals(void)
{
	char c = 'x';

	result("tiocsti", syscall(SYS_ioctl, 0, TIOCSTI, &c));
	result("tiocsti-high-bits", syscall(SYS_ioctl, 0, 0x100000000ul | TIOCSTI, &c));
	result("tioclinux", syscall(SYS_ioctl, 0, TIOCLINUX, &c));
	result("tioclinux-high-bits", syscall(SYS_ioctl, 0, 0xffff00000000ul | TIOCLINUX, &c));
}

/* --- two sandboxes --------------------------------------------------------------------------- */

static socklen_t abstract(struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path, "\0sbx-crossing", 13);
	return (socklen_t)(sizeof(sa_family_t) + 13);
}

static int serve(void)
{
	struct sockaddr_un a;
	socklen_t len = abstract(&a);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	if (bind(s, (struct sockaddr *)&a, len) < 0 || listen(s, 1) < 0)
		return 1;
	say("serving", "OK");
	pause();
	return 0;
}

static int reach(void)
{
	struct sockaddr_un a;
	socklen_t len = abstract(&a);
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	result("reach", connect(s, (struct sockaddr *)&a, len));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "serve") == 0)
		return serve();
	if (argc > 1 && strcmp(argv[1], "reach") == 0)
		return reach();
	files();
	init_process();
	calls();
	sockets();
	terminals();
	subvolume();
	host();
	namespaces();
	say("end", "OK");
	return 0;
}
