/* SPDX-License-Identifier: MIT */
/* The system calls of a run: all but those that a program which copies files has no use for. It has the user of its
 * cell's first process and of the front, so what is by user is among them: limits, priorities, keyrings, queues,
 * memory and descriptors that outlive who made them. So are sockets that belong to no network, requests that only one
 * file system knows, and all that would give it other namespaces. Calls that are newer than this list do not exist.
 * Programs it may start, as the tool does. */
#include "sandboxd/pull/parts.h"

#include "common/sys/bpf.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define NAMESPACES                                                                                          \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

/* clang-format off */
static const int refused[] = {
	/* upon another process of its user */
	SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd, SYS_migrate_pages,
	SYS_move_pages, SYS_setpriority, SYS_ioprio_set, SYS_sched_setaffinity, SYS_sched_setscheduler,
	SYS_sched_setparam, SYS_sched_setattr,
#ifdef SYS_process_mrelease
	SYS_process_madvise, SYS_process_mrelease,
#endif
	/* counted by user, or there until somebody removes it */
	SYS_add_key, SYS_request_key, SYS_keyctl, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open, SYS_inotify_init1,
	SYS_fanotify_init, SYS_socketpair,
	/* another world */
	SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree,
	SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick,
#ifdef SYS_mount_setattr
	SYS_mount_setattr,
#endif
#ifdef SYS_quotactl_fd
	SYS_quotactl_fd,
#endif
	/* much of the kernel */
	SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_io_setup, SYS_seccomp, SYS_personality, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_quotactl,
	SYS_mbind, SYS_set_mempolicy, SYS_acct, SYS_swapon, SYS_swapoff, SYS_syslog, SYS_reboot, SYS_kexec_load,
	SYS_init_module, SYS_finit_module, SYS_delete_module,
	/* bytes that no size tells of */
	SYS_fallocate,
#ifdef SYS_inotify_init
	SYS_inotify_init,
#endif
#ifdef SYS_iopl
	SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
};
/* clang-format on */

/* Each begins with the call's number loaded, and answers when it is that call; else it goes on behind itself. All
 * arguments are looked at in their low words, as the kernel does with these. */
/* clang-format off */
static const struct sock_filter by_argument[] = {
	/* its flags are behind a pointer: the C library and Go then take clone */
	IF_EQ(SYS_clone3, 0, 1), REFUSE(ENOSYS),
	IF_EQ(SYS_clone, 0, 4), LOAD(args[0]), IF_SET(NAMESPACES, 0, 1), REFUSE(EPERM), GIVE(SECCOMP_RET_ALLOW),
	/* its own limits only */
	IF_EQ(SYS_prlimit64, 0, 4), LOAD(args[0]), IF_EQ(0, 1, 0), REFUSE(EPERM), GIVE(SECCOMP_RET_ALLOW),
	/* half a processor kept idle by a mark on its threads */
	IF_EQ(SYS_prctl, 0, 4), LOAD(args[0]), IF_EQ(PR_SCHED_CORE, 0, 1), REFUSE(EPERM), GIVE(SECCOMP_RET_ALLOW),
	/* the huge pages that the host has set aside for somebody */
	IF_EQ(SYS_mmap, 0, 4), LOAD(args[3]), IF_SET(MAP_HUGETLB, 0, 1), REFUSE(EINVAL), GIVE(SECCOMP_RET_ALLOW),
	IF_EQ(SYS_memfd_create, 0, 4), LOAD(args[1]), IF_SET(MFD_HUGETLB, 0, 1), REFUSE(EINVAL), GIVE(SECCOMP_RET_ALLOW),
	/* what is asked of any file and terminal, 'T' */
	IF_EQ(SYS_ioctl, 0, 7), LOAD(args[1]), IF_EQ(TIOCSTI, 4, 0), IF_EQ(TIOCSETD, 3, 0),
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff00u), IF_EQ('T' << 8, 0, 1), GIVE(SECCOMP_RET_ALLOW),
	REFUSE(ENOTTY),
	/* TCP and UDP of its network, and the list of its interfaces */
	IF_EQ(SYS_socket, 0, 13), LOAD(args[0]),
	IF_EQ(AF_NETLINK, 0, 2), LOAD(args[2]), IF_EQ(NETLINK_ROUTE, 6, 7),
	IF_EQ(AF_INET, 1, 0), IF_EQ(AF_INET6, 0, 6), LOAD(args[2]), IF_EQ(0, 2, 0), IF_EQ(IPPROTO_TCP, 1, 0),
	IF_EQ(IPPROTO_UDP, 0, 1), GIVE(SECCOMP_RET_ALLOW), REFUSE(EPROTONOSUPPORT), REFUSE(EAFNOSUPPORT),
};
/* clang-format on */

static size_t build(struct sock_filter *f)
{
	size_t n = bpf_begin(f);

	n += bpf_x32(f + n, SECCOMP_RET_KILL_PROCESS);
	n += bpf_later(f + n);
	n += bpf_calls(f + n, refused, ARRAY_LEN(refused), SECCOMP_RET_ERRNO | EPERM);
	n += bpf_core_limit(f + n);
	for (size_t i = 0; i < ARRAY_LEN(by_argument); i++)
		f[n++] = by_argument[i];
	f[n++] = (struct sock_filter)GIVE(SECCOMP_RET_ALLOW);
	return n;
}

int tool_filter(void)
{
	struct sock_filter f[BPF_LATER + 2 * ARRAY_LEN(refused) + BPF_CORE_LIMIT + ARRAY_LEN(by_argument) + 16];
	struct sock_fprog prog = { .filter = f };

	prog.len = (unsigned short)build(f);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0);
}
