/* SPDX-License-Identifier: MIT */
/* One program in three parts: the machine's own calls only; calls whose arguments matter; a search
 * through ranges of numbers that get the same answer. Numbers that belong together mostly are
 * allowed together, so the ranges are few. Arguments are compared in 32 bits, which is what the
 * kernel looks at: a value with high bits set is no way round. */
#include "sandboxd/priv/filter.h"

#include "common/sys/mem.h"

#include <endian.h>
#include <linux/btrfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#ifndef FILTER_USED /* the hardening tests build one without: the next barrier must hold alone */
#define FILTER_USED 1
#endif
#define CALLS_MAX 1024
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef F_SETDELEG
#define F_SETDELEG (1024 + 16)
#endif
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
#define NO_CALL   0xffffffffu /* a tracer has a call skipped */
#define X32_BIT   0x40000000u
#define ERRNO(e)  (SECCOMP_RET_ERRNO | (e))
#define FAR       200 /* a jump reaches 255 instructions */
#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
		CLONE_NEWPID | CLONE_NEWNET)
#define TIME_NAMESPACE 0x80u /* unshare only: these bits are the exit signal of clone */
#define LOW_WORD       (__BYTE_ORDER == __LITTLE_ENDIAN ? 0 : 4)

struct call {
	const char *name;
	uint32_t action;
};
static const struct call calls[] = {
#define ALLOW(n) { #n, SECCOMP_RET_ALLOW },
#define DENY(n)  { #n, ERRNO(EPERM) },
#include "sandboxd/priv/syscalls.def"
#undef ALLOW
#undef DENY
};

/* Past the end nothing is written, but counted: filter_compile sees that it was too much. */
static unsigned put(struct filter *p, unsigned code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (p->len < FILTER_MAX)
		p->code[p->len] = (struct sock_filter){ (unsigned short)code, jt, jf, k };
	return p->len++;
}

static void load(struct filter *p, size_t offset)
{
	put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void load_arg(struct filter *p, size_t n)
{
	load(p, offsetof(struct seccomp_data, args) + n * 8 + LOW_WORD);
}

static void answer(struct filter *p, uint32_t action)
{
	put(p, BPF_RET | BPF_K, action, 0, 0);
}

/* Answers when the loaded value passes the test; else goes on. */
static void answer_if(struct filter *p, unsigned test, uint32_t value, uint32_t action)
{
	put(p, BPF_JMP | test | BPF_K, value, 0, 1);
	answer(p, action);
}

/* --- calls whose arguments matter ------------------------------------------------------------ */

/* clone3 hides its flags in memory: ENOSYS, and the C library falls back to clone. */
static void rule_clone(struct filter *p)
{
	load_arg(p, 0);
	answer_if(p, BPF_JSET, NAMESPACES, ERRNO(EPERM));
	answer(p, SECCOMP_RET_ALLOW);
}

static void rule_unshare(struct filter *p)
{
	load_arg(p, 0);
	answer_if(p, BPF_JSET, NAMESPACES | TIME_NAMESPACE, ERRNO(EPERM));
	answer(p, SECCOMP_RET_ALLOW);
}

static void rule_ioctl(struct filter *p)
{
	static const uint32_t of_files[] = { FS_IOC_GETFLAGS, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR };
	static const uint32_t of_disks[] = { BTRFS_IOCTL_MAGIC, 'f' /* ext4 */, 'X' /* XFS */ };
	uint32_t sharing = p->kind == FILTER_APART ? ERRNO(EXDEV) : SECCOMP_RET_ALLOW;

	load_arg(p, 1);
	answer_if(p, BPF_JEQ, TIOCSTI, ERRNO(EPERM));
	answer_if(p, BPF_JEQ, TIOCLINUX, ERRNO(EPERM));
	/* another line discipline: code of the kernel that is loaded when somebody asks for it */
	answer_if(p, BPF_JEQ, TIOCSETD, ERRNO(EPERM));
	answer_if(p, BPF_JEQ, TIOCCONS, ERRNO(EPERM));
	/* Of btrfs' requests those that files of any file system know: a volume could otherwise get
	 * subvolumes, which its limit does not reach. */
	answer_if(p, BPF_JEQ, FICLONE, sharing);
	answer_if(p, BPF_JEQ, FICLONERANGE, sharing);
	answer_if(p, BPF_JEQ, FIDEDUPERANGE, sharing);
	/* Among these flags is compression, which the kernel does in threads that no limit counts (pool.c). */
	answer_if(p, BPF_JEQ, FS_IOC_SETFLAGS, ERRNO(EOPNOTSUPP));
	/* What any file system answers, or the kernel for all of them; the rest of these families is code of the one
	 * that the host's disk has, which a volume would lead to. One says whose quota a file counts for, which the
	 * kernel lets nobody in a guest's user namespace change, but a jail is in none. */
	if (p->kind == FILTER_JAIL)
		answer_if(p, BPF_JEQ, FS_IOC_FSSETXATTR, ERRNO(EPERM));
	for (size_t i = 0; i < ARRAY_LEN(of_files); i++)
		answer_if(p, BPF_JEQ, of_files[i], SECCOMP_RET_ALLOW);
	put(p, BPF_ALU | BPF_AND | BPF_K, 0xff00, 0, 0);
	for (size_t i = 0; i < ARRAY_LEN(of_disks); i++)
		answer_if(p, BPF_JEQ, of_disks[i] << 8, ERRNO(ENOTTY));
	answer(p, SECCOMP_RET_ALLOW);
}

/* unix; netlink for routes; of inet and inet6 what a libc asks for. Others would have the host load
 * a module for the guest (SCTP, DCCP, L2TP) or are a second TCP that nobody looks at (MPTCP). */
static void rule_socket(struct filter *p)
{
	static const uint32_t protocols[] = { 0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP,
		IPPROTO_ICMPV6 };

	load_arg(p, 0);
	answer_if(p, BPF_JEQ, AF_UNIX, SECCOMP_RET_ALLOW);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 4);
	load_arg(p, 2);
	answer_if(p, BPF_JEQ, 0, SECCOMP_RET_ALLOW);
	answer(p, ERRNO(EPROTONOSUPPORT));
	put(p, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0);
	answer(p, ERRNO(EAFNOSUPPORT));
	load_arg(p, 2);
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++)
		answer_if(p, BPF_JEQ, protocols[i], SECCOMP_RET_ALLOW);
	answer(p, ERRNO(EPROTONOSUPPORT));
}

/* Who marks his threads so that only each other's may run on the other half of their processor keeps that half idle:
 * time of the host's that no limit counts. */
static void rule_prctl(struct filter *p)
{
	load_arg(p, 0);
	answer_if(p, BPF_JEQ, PR_SCHED_CORE, ERRNO(EPERM));
	answer(p, SECCOMP_RET_ALLOW);
}

/* Who has a lease on a file keeps everybody's open of it waiting for most of a minute, again and again: also the
 * other readers of a volume, in other sandboxes. There are none, as on many file systems. */
static void rule_fcntl(struct filter *p)
{
	load_arg(p, 1);
	answer_if(p, BPF_JEQ, F_SETLEASE, ERRNO(EINVAL));
	answer_if(p, BPF_JEQ, F_SETDELEG, ERRNO(EINVAL));
	answer(p, SECCOMP_RET_ALLOW);
}

/* Huge pages are the host's, set aside for somebody, and count as nobody's memory. */
static void rule_mmap(struct filter *p)
{
	load_arg(p, 3);
	answer_if(p, BPF_JSET, MAP_HUGETLB, ERRNO(EINVAL));
	answer(p, SECCOMP_RET_ALLOW);
}

static void rule_memfd(struct filter *p)
{
	load_arg(p, 1);
	answer_if(p, BPF_JSET, MFD_HUGETLB, ERRNO(EINVAL));
	answer(p, SECCOMP_RET_ALLOW);
}

/* A page that is taken away from the whole host, for good. Who may administrate may have that done, and the copier of
 * snapshots may, for another reason. */
static void rule_madvise(struct filter *p)
{
	load_arg(p, 2);
	answer_if(p, BPF_JEQ, MADV_HWPOISON, ERRNO(EPERM));
	answer_if(p, BPF_JEQ, MADV_SOFT_OFFLINE, ERRNO(EPERM));
	answer(p, SECCOMP_RET_ALLOW);
}

/* The limit of core files stays what it is (common/sys/core.h). Programs lower it to protect their
 * secrets and end when they cannot, so they hear that it was done: there are no core files. */
static void rule_setrlimit(struct filter *p)
{
	load_arg(p, 0);
	answer_if(p, BPF_JEQ, RLIMIT_CORE, ERRNO(0));
	answer(p, SECCOMP_RET_ALLOW);
}

static void rule_prlimit(struct filter *p)
{
	load_arg(p, 1);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 1, 0);
	answer(p, SECCOMP_RET_ALLOW);
	/* without a new value it is a question */
	load(p, offsetof(struct seccomp_data, args) + 2 * 8);
	put(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
	load(p, offsetof(struct seccomp_data, args) + 2 * 8 + 4);
	answer_if(p, BPF_JEQ, 0, SECCOMP_RET_ALLOW);
	answer(p, ERRNO(0));
}

static const struct {
	const char *name;
	void (*emit)(struct filter *p);
} rules[] = { { "clone", rule_clone }, { "unshare", rule_unshare }, { "ioctl", rule_ioctl },
	{ "socket", rule_socket }, { "socketpair", rule_socket }, { "mmap", rule_mmap },
	{ "madvise", rule_madvise }, { "memfd_create", rule_memfd }, { "setrlimit", rule_setrlimit },
	{ "prlimit64", rule_prlimit }, { "prctl", rule_prctl },
	{ "fcntl", rule_fcntl } };

/* A jail keeps its uid, which is the host's root: neither does it do anything to others, nor does it use up what root
 * has so much of (watches, pending signals, pages in pipes), nor memory that is not in its own address space. */
static const char *const never_in_jail[] = { "fork", "vfork", "clone", "execve", "execveat", "unshare", "chroot", "kill",
	"tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal", "pidfd_getfd",
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "setpriority",
	"ioprio_set", "socket", "socketpair", "shmget", "semget", "msgget", "mq_open", "inotify_init", "inotify_init1",
	"epoll_create", "epoll_create1", "timer_create", "pipe", "pipe2", "memfd_create" };

static bool is_never(const struct filter *p, const char *name)
{
	for (size_t i = 0; p->kind == FILTER_JAIL && i < ARRAY_LEN(never_in_jail); i++)
		if (strcmp(never_in_jail[i], name) == 0)
			return true;
	return false;
}

static int add_rules(struct filter *p)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		if (is_never(p, rules[i].name))
			continue;
		int nr = seccomp_syscall_resolve_name(rules[i].name);
		if (nr < 0)
			return -ENOSYS; /* every architecture has these */
		unsigned skip = put(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 0);
		rules[i].emit(p);
		if (p->len < FILTER_MAX)
			p->code[skip].jf = (uint8_t)(p->len - skip - 1);
		load(p, offsetof(struct seccomp_data, nr));
	}
	return 0;
}

/* --- the list of calls ----------------------------------------------------------------------- */

struct range {
	uint32_t from, action; /* up to the next range */
};

/* copy_file_range shares where it can; without it programs read and write. */
static uint32_t action_of(const struct filter *p, const struct call *c)
{
	if (is_never(p, c->name))
		return ERRNO(EPERM);
	return p->kind == FILTER_APART && strcmp(c->name, "copy_file_range") == 0 ? ERRNO(EXDEV) : c->action;
}

static size_t make_ranges(const struct filter *p, struct range r[CALLS_MAX])
{
	static uint32_t actions[CALLS_MAX];
	size_t n = 0;

	for (size_t i = 0; i < CALLS_MAX; i++)
		actions[i] = ERRNO(ENOSYS);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		int nr = seccomp_syscall_resolve_name(calls[i].name);
		if (nr >= 0 && nr < CALLS_MAX)
			actions[nr] = action_of(p, &calls[i]);
	}
	/* The last number is no call, so what lies past it is ENOSYS too. */
	actions[CALLS_MAX - 1] = ERRNO(ENOSYS);
	for (uint32_t i = 0; i < CALLS_MAX; i++)
		if (n == 0 || r[n - 1].action != actions[i])
			r[n++] = (struct range){ i, actions[i] };
	return n;
}

static int search(struct filter *p, const struct range *r, size_t n)
{
	size_t half = n / 2;

	if (n == 1) {
		answer(p, r->action);
		return 0;
	}
	unsigned jump = put(p, BPF_JMP | BPF_JGE | BPF_K, r[half].from, 0, 0);
	int e = search(p, r, half);
	if (e == 0 && (p->len > FILTER_MAX || p->len - jump - 1 > FAR))
		return -E2BIG;
	if (e == 0)
		p->code[jump].jt = (uint8_t)(p->len - jump - 1);
	return e == 0 ? search(p, r + half, n - half) : e;
}

int filter_compile(struct filter *ret, enum filter_kind kind, struct fail *f)
{
	static struct range ranges[CALLS_MAX];
	int r;

	*ret = (struct filter){ .kind = kind };
	load(ret, offsetof(struct seccomp_data, arch));
	put(ret, BPF_JMP | BPF_JEQ | BPF_K, seccomp_arch_native(), 1, 0);
	answer(ret, SECCOMP_RET_KILL_PROCESS);
	load(ret, offsetof(struct seccomp_data, nr));
	answer_if(ret, BPF_JEQ, NO_CALL, ERRNO(ENOSYS));
	answer_if(ret, BPF_JGE, X32_BIT, SECCOMP_RET_KILL_PROCESS);
	r = add_rules(ret);
	if (r == 0)
		r = search(ret, ranges, make_ranges(ret, ranges));
	if (r == 0 && ret->len > FILTER_MAX)
		r = -E2BIG;
	return r < 0 ? fail_set(f, r, "compile the system call filter") : 0;
}

int filter_install(const struct filter *flt)
{
	struct sock_fprog prog = { flt->len, (struct sock_filter *)(size_t)flt->code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	if (FILTER_USED && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return -errno;
	return 0;
}
