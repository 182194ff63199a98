/* SPDX-License-Identifier: MIT */
/* The filter is a list of what is refused, not of what is allowed: four libraries run in this
 * process and their needs shift with their versions, while the calls an intruder wants do not.
 * Starting a program or a process at all is among the refused. */
#include "sandboxd/drop.h"

#include "common/sys/bpf.h"
#include "common/sys/caps.h"
#include "common/sys/core.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/box.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(DROP_OWN_ID == BOX_SHIM_BASE - 1, "the id right below those of the shims");
_Static_assert(DROP_CELLS_ID >= BOX_EGRESS_BASE + BOX_BLOCKS, "and above those of the egress processes");

static int parse_id(const char *s, uid_t *ret)
{
	char *end;
	unsigned long n = strtoul(s, &end, 10);

	if (!*s || *end || n == 0 || n >= 0xffffffffu)
		return -1;
	*ret = (uid_t)n;
	return 0;
}

int drop_find_user(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
	const struct passwd *pw = getpwnam(name ? name : "sandboxd");

	if (pw) {
		*ret_uid = pw->pw_uid;
		*ret_gid = pw->pw_gid;
	} else if (!name) {
		*ret_uid = *ret_gid = DROP_OWN_ID;
	} else if (parse_id(name, ret_uid) == 0) {
		*ret_gid = *ret_uid;
	} else {
		return err_set(e, ERR_INVALID_REQUEST, "--user: there is no user \"%s\"", name);
	}
	if (*ret_uid == 0 || *ret_gid == 0)
		return err_set(e, ERR_INVALID_REQUEST, "--user: the server does not run as root");
	return 0;
}

int drop_can_reach(const char *dir, int mode, uid_t uid, gid_t gid, bool *ret, struct err *e)
{
	*ret = setegid(gid) == 0 && seteuid(uid) == 0 &&
	       faccessat(AT_FDCWD, dir, mode, AT_EACCESS) == 0;
	if (seteuid(0) < 0 || setegid(0) < 0)
		return err_sys(e, errno, "back to root");
	return 0;
}

static int drop_ids(uid_t uid, gid_t gid)
{
	int r = caps_bound(0);

	if (r < 0)
		return r;
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -errno;
	return caps_keep(0);
}

/* Refused with EPERM. */
/* clang-format off */
static const int refused[] = {
	SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev,
	SYS_kcmp, SYS_pidfd_getfd, SYS_perf_event_open, SYS_bpf, SYS_userfaultfd, SYS_seccomp,
	SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree,
	SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_setns, SYS_unshare, SYS_swapon,
	SYS_swapoff, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_init_module, SYS_finit_module,
	SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_acct, SYS_quotactl, SYS_syslog,
	SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname,
	SYS_setdomainname, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fanotify_init,
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_mbind,
	SYS_migrate_pages, SYS_move_pages, SYS_vhangup, SYS_personality, SYS_setuid,
	SYS_setresuid, SYS_setreuid, SYS_setgid, SYS_setresgid, SYS_setregid, SYS_setgroups,
#ifdef SYS_mount_setattr
	SYS_mount_setattr,
#endif
#ifdef SYS_quotactl_fd
	SYS_quotactl_fd,
#endif
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
#ifdef SYS_fork
	SYS_fork, SYS_vfork,
#endif
#ifdef SYS_iopl
	SYS_iopl, SYS_ioperm,
#endif
};
/* clang-format on */

/* Threads may be made, processes not: clone3 hides its flags behind a pointer, so libc is told that
 * it does not exist and uses clone. */
static size_t build_filter(struct sock_filter *f)
{
	size_t n = bpf_begin(f);

	n += bpf_x32(f + n, SECCOMP_RET_ERRNO | EPERM);
	n += bpf_later(f + n);
	n += bpf_core_limit(f + n);
	f[n++] = (struct sock_filter)IF_EQ(SYS_clone3, 0, 1);
	f[n++] = (struct sock_filter)REFUSE(ENOSYS);
	n += bpf_calls(f + n, refused, ARRAY_LEN(refused), SECCOMP_RET_ERRNO | EPERM);
	f[n++] = (struct sock_filter)IF_EQ(SYS_clone, 0, 3);
	f[n++] = (struct sock_filter)LOAD(args[0]);
	f[n++] = (struct sock_filter)IF_SET(CLONE_THREAD, 1, 0);
	f[n++] = (struct sock_filter)REFUSE(EPERM);
	f[n++] = (struct sock_filter)GIVE(SECCOMP_RET_ALLOW);
	return n;
}

static int install_filter(void)
{
	struct sock_filter f[BPF_LATER + BPF_CORE_LIMIT + 2 * ARRAY_LEN(refused) + 16];
	struct sock_fprog prog = { .filter = f };

	prog.len = (unsigned short)build_filter(f);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* What both ways down have in common. */
static int lock_down(struct err *e)
{
	struct rlimit none = { CORE_NEVER, CORE_NEVER };

	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_sys(e, errno, "core limit");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, errno, "no new privileges");
	if (install_filter() < 0)
		return err_sys(e, errno, "system call filter");
	return 0;
}

int drop_privileges(uid_t uid, gid_t gid, struct err *e)
{
	int r = drop_ids(uid, gid);

	if (r < 0)
		return err_sys(e, -r, "become uid %u", uid);
	if (getuid() != uid || geteuid() != uid || setuid(0) == 0)
		return err_set(e, ERR_INTERNAL, "uid %u could go back to root", uid);
	return lock_down(e);
}

int drop_capabilities(struct err *e)
{
	int r = caps_bound(0);

	if (r == 0)
		r = caps_keep(0);
	if (r < 0)
		return err_sys(e, -r, "capabilities");
	return lock_down(e);
}
