/* SPDX-License-Identifier: MIT */
/* What this program never does it may not do: a second filter on top of the guest's. It holds
 * clients' sockets, which belong to the host's network namespace: so nothing is asked of a socket
 * but to carry bytes, no new one is made, and no program is started. */
#include "sandboxd/worker/state.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define NUMBER offsetof(struct seccomp_data, nr)
/* the low word: both machines that this runs on are little-endian */
#define SECOND   offsetof(struct seccomp_data, args[1])
#define REFUSE   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define NEVER(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (n), 0, 1), REFUSE

static const struct sock_filter program[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NUMBER),
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
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SECOND),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FIONREAD, 1, 0),
	REFUSE,
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

int narrow(void)
{
	struct sock_fprog p = { ARRAY_LEN(program), (struct sock_filter *)(size_t)program };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) < 0 ? -errno : 0;
}
