/* SPDX-License-Identifier: MIT */
/* The system calls that a relay needs, and no others. The program comes up as an id of its own with
 * no capability in an empty root; this is the second wall. */
#include "common/sys/bpf.h"
#include "common/sys/core.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/egress/state.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MEMORY_MAX (96 << 20)
#define FILES_MAX  8192 /* 1,024 connections of two sockets and two pipes, and the rest */

int jail_limits(void)
{
	static const struct {
		int what;
		rlim_t most;
	} limits[] = { { RLIMIT_CORE, CORE_NEVER }, { RLIMIT_FSIZE, 0 }, { RLIMIT_NPROC, 0 },
		{ RLIMIT_AS, MEMORY_MAX }, { RLIMIT_NOFILE, FILES_MAX } };
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(limits) && r == 0; i++)
		r = rlimit_lower(limits[i].what, limits[i].most);
	return r;
}

static const int allowed[] = {
	SYS_splice,
	SYS_epoll_pwait,
	SYS_epoll_ctl,
	SYS_read,
	SYS_write,
	SYS_close,
	SYS_recvfrom,
	SYS_sendto,
	SYS_recvmsg,
	SYS_sendmsg,
	SYS_accept4,
	SYS_connect,
	SYS_getsockname,
	SYS_setsockopt,
	SYS_getsockopt,
	SYS_shutdown,
	SYS_pipe2,
	SYS_fcntl,
	SYS_clock_gettime,
	SYS_getrandom,
	SYS_mmap,
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	SYS_exit,
	SYS_exit_group,
	SYS_rt_sigreturn,
	SYS_rt_sigprocmask,
	SYS_restart_syscall,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
#endif
};

int jail_calls(void)
{
	struct sock_filter f[2 * ARRAY_LEN(allowed) + 16];
	struct sock_fprog prog = { .filter = f };
	size_t n = bpf_begin(f);

	n += bpf_calls(f + n, allowed, ARRAY_LEN(allowed), SECCOMP_RET_ALLOW);
	/* new sockets: the internet's two families */
	f[n++] = (struct sock_filter)IF_EQ(SYS_socket, 0, 4);
	f[n++] = (struct sock_filter)LOAD(args[0]);
	f[n++] = (struct sock_filter)IF_EQ(AF_INET, 1, 0);
	f[n++] = (struct sock_filter)IF_EQ(AF_INET6, 0, 1);
	f[n++] = (struct sock_filter)GIVE(SECCOMP_RET_ALLOW);
	f[n++] = (struct sock_filter)REFUSE(EPERM);
	prog.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return -errno;
	return 0;
}
