/* SPDX-License-Identifier: MIT */
/* What this program never does it may not do: a second filter on top of the guest's. It holds
 * clients' sockets, which belong to the host's network namespace: so nothing is asked of a socket
 * but to carry bytes, no new one is made, and no program or process is started, threads are. */
#include "sandboxd/worker/state.h"

#include "common/sys/bpf.h"

#include <errno.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define NEVER(n) IF_EQ((n), 0, 1), REFUSE(EPERM)

/* Arguments in their low words: both machines that this runs on are little-endian. */
/* clang-format off */
static const struct sock_filter program[] = {
	LOAD(nr),
	NEVER(SYS_socket),
	NEVER(SYS_socketpair),
	NEVER(SYS_connect),
	NEVER(SYS_bind),
	NEVER(SYS_listen),
	NEVER(SYS_accept),
	NEVER(SYS_accept4),
	NEVER(SYS_setsockopt),
	NEVER(SYS_execve),
	NEVER(SYS_execveat),
	NEVER(SYS_ptrace),
	NEVER(SYS_process_vm_readv),
	NEVER(SYS_process_vm_writev),
	NEVER(SYS_pidfd_getfd),
#ifdef SYS_fork
	NEVER(SYS_fork),
	NEVER(SYS_vfork),
#endif
	/* its flags are behind a pointer: the C library then takes clone */
	IF_EQ(SYS_clone3, 0, 1), REFUSE(ENOSYS),
	IF_EQ(SYS_clone, 0, 4), LOAD(args[0]), IF_SET(CLONE_THREAD, 1, 0), REFUSE(EPERM), GIVE(SECCOMP_RET_ALLOW),
	IF_EQ(SYS_ioctl, 0, 3), LOAD(args[1]), IF_EQ(FIONREAD, 1, 0), REFUSE(EPERM),
	GIVE(SECCOMP_RET_ALLOW),
};
/* clang-format on */

int narrow(void)
{
	struct sock_fprog p = { ARRAY_LEN(program), (struct sock_filter *)(size_t)program };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) < 0 ? -errno : 0;
}
