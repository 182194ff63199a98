/* SPDX-License-Identifier: MIT */
/* Two stacked filters, the stricter answer wins: one lists the calls, the other refuses arguments.
 * Arguments are compared in 32 bits, which is what the kernel looks at: a value with high bits set
 * is no way round. */
#include "sandboxd/priv/filter.h"

#include "common/sys/mem.h"

#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LOW        0xffffffffu
#define FILTER_MAX (64 * 1024)
#ifndef FILTERS_USED /* the hardening tests build one without: the next barrier must hold alone */
#define FILTERS_USED FILTER_KINDS
#endif

struct call {
	const char *name;
	uint32_t action;
};
static const struct call calls[] = {
#define ALLOW(n) { #n, SCMP_ACT_ALLOW },
#define DENY(n)  { #n, SCMP_ACT_ERRNO(EPERM) },
#include "sandboxd/priv/syscalls.def"
#undef ALLOW
#undef DENY
};

static const uint64_t namespace_flags[] = { CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS,
	CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET };
#define TIME_NAMESPACE 0x80u /* unshare only: these bits are the exit signal of clone */

static int add_calls(scmp_filter_ctx c)
{
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		int nr = seccomp_syscall_resolve_name(calls[i].name);
		if (nr == __NR_SCMP_ERROR || nr < 0)
			continue;
		int r = seccomp_rule_add(c, calls[i].action, nr, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int refuse_bits(scmp_filter_ctx c, int nr, uint64_t bits)
{
	return seccomp_rule_add(
		c, SCMP_ACT_ERRNO(EPERM), nr, 1, SCMP_A0(SCMP_CMP_MASKED_EQ, bits, bits));
}

static int add_namespaces(scmp_filter_ctx c)
{
	int r = refuse_bits(c, SCMP_SYS(unshare), TIME_NAMESPACE);

	for (size_t i = 0; i < ARRAY_LEN(namespace_flags) && r == 0; i++) {
		r = refuse_bits(c, SCMP_SYS(unshare), namespace_flags[i]);
		if (r == 0)
			r = refuse_bits(c, SCMP_SYS(clone), namespace_flags[i]);
	}
	return r;
}

static int add_ioctls(scmp_filter_ctx c)
{
	static const uint64_t refused[] = { TIOCSTI, TIOCLINUX };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(refused) && r == 0; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
			SCMP_A1(SCMP_CMP_MASKED_EQ, LOW, refused[i]));
	return r;
}

/* unix, inet, inet6, and netlink for routes; every other family, bit by bit of its number */
static int add_families(scmp_filter_ctx c, int nr)
{
	int r = 0;

	for (uint64_t family = 0; family < 64 && r == 0; family++)
		if (family != AF_UNIX && family != AF_INET && family != AF_INET6 &&
			family != AF_NETLINK)
			r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EAFNOSUPPORT), nr, 1,
				SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, family));
	for (uint64_t bit = 64; bit < LOW && r == 0; bit <<= 1)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EAFNOSUPPORT), nr, 1,
			SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
	return r;
}

static int add_netlink(scmp_filter_ctx c)
{
	int r = 0;

	for (uint64_t proto = 1; proto < 64 && r == 0; proto++)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 2,
			SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, AF_NETLINK),
			SCMP_A2(SCMP_CMP_MASKED_EQ, LOW, proto));
	return r;
}

/* clone3 hides its flags in memory: ENOSYS, and the C library falls back to clone. */
static int add_args(scmp_filter_ctx c)
{
	int r = add_namespaces(c);

	if (r == 0)
		r = add_ioctls(c);
	if (r == 0)
		r = add_families(c, SCMP_SYS(socket));
	if (r == 0)
		r = add_families(c, SCMP_SYS(socketpair));
	return r == 0 ? add_netlink(c) : r;
}

static int export(uint32_t fallback, int (*fill)(scmp_filter_ctx c), int fd)
{
	scmp_filter_ctx c = seccomp_init(fallback);
	int r = c ? seccomp_attr_set(c, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = fill(c);
	if (r == 0)
		r = seccomp_export_bpf(c, fd);
	seccomp_release(c);
	return r;
}

static int export_kind(enum filter_kind k, int fd)
{
	if (k == FILTER_CALLS)
		return export(SCMP_ACT_ERRNO(ENOSYS), add_calls, fd);
	return export(SCMP_ACT_ALLOW, add_args, fd);
}

static int run_export(const int fds[FILTER_KINDS])
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int r = 0;
		for (int k = 0; k < FILTER_KINDS && r == 0; k++)
			r = export_kind(k, fds[k]);
		_exit(-r & 0xff);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static int map_program(int fd, struct sock_fprog *ret)
{
	off_t size = lseek(fd, 0, SEEK_END);
	void *p;

	if (size <= 0 || size > FILTER_MAX)
		return -EIO;
	p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	ret->filter = p;
	ret->len = (unsigned short)((size_t)size / sizeof(struct sock_filter));
	return 0;
}

int filter_compile(struct filter *ret, struct fail *f)
{
	int fds[FILTER_KINDS] = { -1, -1 }, r = 0;

	for (int k = 0; k < FILTER_KINDS; k++)
		fds[k] = memfd_create("sbx-filter", MFD_CLOEXEC);
	r = run_export(fds);
	for (int k = 0; k < FILTER_KINDS; k++) {
		if (r == 0)
			r = map_program(fds[k], &ret->prog[k]);
		close_p(&fds[k]);
	}
	return r < 0 ? fail_set(f, r, "compile the system call filter") : 0;
}

int filter_install(const struct filter *flt)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* The argument filter last: it is looked at first, and prctl stays allowed by both. */
	for (int k = 0; k < FILTERS_USED; k++)
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &flt->prog[k]) < 0)
			return -errno;
	return 0;
}
