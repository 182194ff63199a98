/* SPDX-License-Identifier: MIT */
/* Calls that an ordinary program may make on an ordinary machine, and that would take here from
 * what the whole host has once: a pool without owners, the kernel's log, a module to load. */
#include "tests/attack/inside/inside.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#ifndef MAP_HUGETLB
#define MAP_HUGETLB 0x40000
#endif
#define FIRST_LATER 470 /* calls that no kernel had when this was written, up to LAST_LATER */
#define LAST_LATER  700
#define TERMINALS   128 /* how many of the host's a sandbox may take */

/* The number of requests that can be under way is one figure for the whole host. */
static void try_aio(void)
{
	aio_context_t ctx = 0;
	long r = syscall(SYS_io_setup, 4096, &ctx);

	result("host-wide-aio", r);
	if (r == 0)
		(void)syscall(SYS_io_destroy, ctx);
}

static void try_huge_pages(void)
{
	void *p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	result("host-wide-huge-pages", p == MAP_FAILED ? -1 : 0);
	result("host-wide-huge-file", syscall(SYS_memfd_create, "x", 4u));
}

static void try_log(void)
{
	char b[256];

	result("kernel-log", syscall(SYS_syslog, 3, b, sizeof(b)));
	result("kernel-log-size", syscall(SYS_syslog, 10, NULL, 0));
	result("kernel-log-clear", syscall(SYS_syslog, 5, NULL, 0));
}

static void try_terminals(void)
{
	struct rlimit many = { 4096, 4096 };
	int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), hdlc = 13, n = 0, all[2048];

	result("line-discipline", ioctl(fd, TIOCSETD, &hdlc));
	result("console", ioctl(fd, TIOCCONS));
	close(fd);
	(void)setrlimit(RLIMIT_NOFILE, &many);
	while (n < 2048 && (all[n] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)) >= 0)
		n++;
	say("host-wide-terminals", n > 0 && n <= TERMINALS ? "few" : n ? "many" : "none");
	while (n)
		close(all[--n]);
}

/* What one kind of file system does beyond the others: on a volume it is that of the host's disk. */
static void try_requests(void)
{
	int fd = open(".", O_RDONLY | O_CLOEXEC), flags = 0;
	struct fsxattr attr;
	char room[4096] = "";

	result("freeze-request", ioctl(fd, FIFREEZE, 0));
	result("freeze-request-high-bits", syscall(SYS_ioctl, fd, 0x500000000ul | FIFREEZE, 0));
	result("verity-request", ioctl(fd, _IOW('f', 133, char[128]), room));
	result("encryption-request", ioctl(fd, _IOW('f', 19, char[12]), room));
	result("move-request", ioctl(fd, _IOWR('f', 15, char[40]), room));
	result("map-request", ioctl(fd, _IOWR('X', 59, char[192]), room));
	result("allocate-request", ioctl(fd, _IOW('X', 36, char[48]), room));
	result("flags-request", ioctl(fd, FS_IOC_GETFLAGS, &flags));
	result("attributes-request", ioctl(fd, FS_IOC_FSGETXATTR, &attr));
	close(fd);
}

static void try_leases(void)
{
	int fd = open("leased", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

	result("lease-to-read", fcntl(fd, F_SETLEASE, F_RDLCK));
	result("lease-to-write", fcntl(fd, F_SETLEASE, F_WRLCK));
	result("lease-question", fcntl(fd, F_GETLEASE) == F_UNLCK ? 0 : -1);
	close(fd);
	(void)unlink("leased");
}

/* The kernel would compress in threads of its own, whose time is in nobody's limit. */
static void try_compression(void)
{
	static const char name[] = "btrfs.compression";
	int dir, file, flags = FS_COMPR_FL;
	char is[16];

	(void)mkdir("compressed", 0755);
	dir = open("compressed", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	file = openat(dir, "one", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	result("compress-request", ioctl(file, FS_IOC_SETFLAGS, &flags));
	result("compress-attribute", fsetxattr(file, name, "zlib", 4, 0));
	close(file);
	(void)fsetxattr(dir, name, "zlib", 4, 0);
	file = openat(dir, "two", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	result("compress-inherited", fgetxattr(file, name, is, sizeof(is)));
	close(file);
	(void)unlinkat(dir, "one", 0);
	(void)unlinkat(dir, "two", 0);
	close(dir);
	(void)rmdir("compressed");
}

static void try_later_calls(void)
{
	char at[16];

	for (long nr = FIRST_LATER; nr < LAST_LATER; nr++)
		if (syscall(nr, 0, 0, 0, 0, 0, 0) != -1 || errno != ENOSYS) {
			snprintf(at, sizeof(at), "%ld", nr);
			say("later-calls", at);
			return;
		}
	say("later-calls", "ENOSYS");
}

/* Nothing may come into a set that the bounding set does not have. */
static void try_capabilities(void)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct c[2];

	memset(c, 0xff, sizeof(c));
	result("all-capabilities", syscall(SYS_capset, &h, c));
	result("ambient-capability",
		prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
	say("no-new-privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? "set" : "not-set");
	say("filter", prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? "set" : "not-set");
	result("memory-map", prctl(PR_SET_MM, PR_SET_MM_START_CODE, 0x400000, 0, 0));
}

static void try_priority(void)
{
	static const struct {
		unsigned int size, policy;
		unsigned long long flags;
		int nice;
		unsigned int priority;
		unsigned long long runtime, deadline, period;
	} deadline = { 48, 6, 0, 0, 0, 10000000, 100000000, 100000000 };
	struct rlimit files = { 1 << 20, 1 << 20 };

	result("half-a-processor", prctl(62 /* PR_SCHED_CORE */, 1 /* CREATE */, 0, 0, 0));
	result("deadline-class", syscall(SYS_sched_setattr, 0, &deadline, 0));
	result("io-real-time", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
	result("raise-descriptors", setrlimit(RLIMIT_NOFILE, &files));
	files = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	result("raise-locked-memory", setrlimit(RLIMIT_MEMLOCK, &files));
	result("raise-queues", setrlimit(RLIMIT_MSGQUEUE, &files));
}

/* 1 keeps the host's program for cores from being started; 0, which anybody may choose, would not.
 */
static void try_core(void)
{
	struct rlimit none = { 0, 0 }, l = { 9, 9 };
	char s[32];

	(void)setrlimit(RLIMIT_CORE, &none);
	(void)syscall(SYS_setrlimit, RLIMIT_CORE, &none);
	(void)syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, NULL);
	(void)syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &l);
	snprintf(s, sizeof(s), "%lu,%lu", (unsigned long)l.rlim_cur, (unsigned long)l.rlim_max);
	say("core-handler", s);
}

static void try_old_ways(void)
{
#ifdef SYS_modify_ldt
	result("modify-ldt", syscall(SYS_modify_ldt, 0, NULL, 0));
	result("iopl", syscall(SYS_iopl, 3));
	result("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
	result("uselib", syscall(SYS_uselib, "/bin/sh"));
	result("ustat", syscall(SYS_ustat, 0, NULL));
	result("sysfs-call", syscall(SYS_sysfs, 3));
#endif
	result("file-handle", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", NULL, NULL, 0));
	result("kexec-file", syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0));
	result("move-pages", syscall(SYS_move_pages, 1, 0, NULL, NULL, NULL, 0));
	result("memory-policy", syscall(SYS_mbind, NULL, 0, 0, NULL, 0, 0));
	result("swap-off", syscall(SYS_swapoff, "/dev/zram0"));
	result("io-uring-enter", syscall(SYS_io_uring_enter, 0, 0, 0, 0, NULL, 0));
	result("io-uring-register", syscall(SYS_io_uring_register, 0, 0, NULL, 0));
	result("hang-up", syscall(SYS_vhangup));
}

void try_kernel(void)
{
	try_aio();
	try_huge_pages();
	try_log();
	try_terminals();
	try_requests();
	try_leases();
	try_compression();
	try_later_calls();
	try_capabilities();
	try_priority();
	try_core();
	try_old_ways();
}
