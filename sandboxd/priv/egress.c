/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/egress.h"

#include "common/sys/caps.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/child.h"
#include "sandboxd/priv/claim.h"
#include "sandboxd/priv/root.h"
#include "sandboxd/priv/works.h"
#include "sandboxd/proto/egress.h"

#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define STACK 32768

/* --- the empty root -------------------------------------------------------------------------- */

static int enter_nothing(const struct build_env *env)
{
	static const char *const opts[] = { "size=4k", "nr_inodes=2", "mode=0555", NULL };
	int mnt;

	if (fchdir(env->priv) < 0 || unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ||
		mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	mnt = root_make_fs("tmpfs", opts, ROOT_SAFE | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY, NULL);
	if (mnt < 0)
		return mnt;
	if (move_mount(mnt, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) < 0 || fchdir(mnt) < 0 ||
		syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
		sethostname("egress", 6) < 0)
		return -errno;
	return 0;
}

static int open_jail(struct build_env *env, pid_t pid)
{
	static const char *const names[JAIL_COUNT] = {
		[JAIL_MNT] = "mnt", [JAIL_IPC] = "ipc", [JAIL_UTS] = "uts"
	};
	char path[64];

	for (int i = 0; i < JAIL_COUNT; i++) {
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
		env->jail[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (env->jail[i] < 0)
			return -errno;
	}
	return 0;
}

/* A child makes the namespaces and ends; our descriptors keep them. */
int egress_jail(struct build_env *env, struct fail *f)
{
	int p[2], r = -EIO;
	pid_t pid;

	env->net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (env->net < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
		return fail_set(f, errno, "open the host's network namespace");
	pid = fork();
	if (pid == 0) {
		char end;
		r = enter_nothing(env);
		close(p[0]);
		if (fd_write_full(p[1], &r, sizeof(r)) == 0)
			(void)!read(p[1], &end, 1);
		_exit(0);
	}
	close(p[1]);
	if (pid < 0 || fd_read_full(p[0], &r, sizeof(r)) < 0)
		r = -ECHILD;
	if (r == 0)
		r = open_jail(env, pid);
	close(p[0]);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	return r < 0 ? fail_set(f, r, "make an empty root") : 0;
}

/* --- the program ----------------------------------------------------------------------------- */

static int drop_all(uid_t uid)
{
	int r = caps_bound(0);

	if (r < 0)
		return r;
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
		return -errno;
	if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		setresuid(uid, uid, uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return caps_keep(0);
}

static int enter_jail(const struct build_env *env)
{
	if (setns(env->net, CLONE_NEWNET) < 0 || setns(env->jail[JAIL_IPC], CLONE_NEWIPC) < 0 ||
		setns(env->jail[JAIL_UTS], CLONE_NEWUTS) < 0 ||
		setns(env->jail[JAIL_MNT], CLONE_NEWNS) < 0)
		return -errno;
	return 0;
}

struct start {
	const struct build_env *env;
	uid_t uid;
	int fds[EGRESS_FD_END - EGRESS_FD_BOOT];
	struct fail fail;
};

/* Runs in the caller's memory until it executes (vfork). The descriptors are its own. */
static int egress_main(void *arg)
{
	struct start *s = arg;
	int prog = fcntl(s->env->program[PROG_EGRESS], F_DUPFD_CLOEXEC, 64), r;
	struct fail f = { 0 };

	umask(077);
	if (child_place_fds(s->fds, EGRESS_FD_END - EGRESS_FD_BOOT, &f) == 0) {
		if (close_range(EGRESS_FD_END, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
			fail_set(&f, errno, "close descriptors");
		else if ((r = enter_jail(s->env)) < 0)
			fail_set(&f, r, "enter the empty root");
		else if ((r = drop_all(s->uid)) < 0)
			fail_set(&f, r, "give up all rights");
		else
			child_exec(prog, "sbx-egress", NULL, NULL, NULL, &f);
	}
	s->fail = f;
	_exit(1);
}

static int launch(struct start *s, struct fail *f)
{
	_Alignas(16) char stack[STACK];
	pid_t pid = clone(egress_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, s);

	forget_stack(stack);

	if (pid < 0)
		return fail_set(f, errno, "start sbx-egress");
	if (s->fail.sys)
		*f = s->fail;
	return -s->fail.sys;
}

int egress_start(
	const struct build_env *env, uint32_t block, int shim, bool test, int *ctl, struct fail *f)
{
	struct catcher c;
	int sv[2], r = catch_open(&c, f);

	if (r == 0 && test && (r = catch_test(&c, f)) == 0)
		fprintf(stderr, "<info> sbx-priv: connections of sandboxes are caught by %s\n",
			c.link < 0 ? "an nftables redirect" : "socket lookup");
	if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		r = fail_set(f, errno, "make a socket pair");
	if (r < 0) {
		catch_close(&c);
		return r;
	}
	/* Without a link there is nothing to keep: a second copy of something fills the place. */
	struct start s = { .env = env,
		.uid = box_egress_uid(block),
		.fds = { sv[1], shim, c.tcp, c.dns_tcp, c.dns_udp, c.link < 0 ? shim : c.link } };
	r = launch(&s, f);
	close(sv[1]);
	catch_close(&c);
	if (r < 0)
		close(sv[0]);
	else
		*ctl = sv[0];
	return r;
}

/* --- its identity ---------------------------------------------------------------------------- */

int egress_claim(const struct build_env *env, const char *id, const uint8_t secret[16],
	uint64_t generation, int ctl, struct fail *f)
{
	_cleanup_close_ int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct egress_boot boot = {
		.magic = EGRESS_BOOT_MAGIC, .version = PROTO_VERSION, .generation = generation
	};
	int r;

	if (sock < 0)
		return fail_set(f, errno, "make a socket");
	r = claim_listen(env, id, "egress", sock, f);
	if (r < 0)
		return r;
	memcpy(boot.secret, secret, sizeof(boot.secret));
	r = fd_send_msg(ctl, &boot, sizeof(boot), &sock, 1);
	explicit_bzero(&boot, sizeof(boot));
	return r < 0 ? fail_set(f, r, "start sbx-egress") : 0;
}

/* For a sandbox that has none, or whose own has died. */
static int add(const struct build_env *env, const struct work *w, struct fail *f)
{
	_cleanup_close_ int shim = -1, ctl = -1;
	struct record box;
	int r = record_read(env->boxes, w->id, &box);

	if (r < 0 || box.generation != w->generation)
		return fail_set(f, record_unread(r) ? r : ESRCH, "no runtime of %.63s", w->id);
	shim = (int)syscall(SYS_pidfd_open, box.shim_pid, 0);
	/* The pidfd first: what the record says is then asked of just that process. */
	if (shim < 0 || !record_alive(&box, env->boot))
		return fail_set(f, ESRCH, "no runtime of %.63s", w->id);
	r = cg_join_svc_of(&env->cg, box.block);
	if (r < 0)
		return fail_set(f, r, "enter the control group svc");
	if (setns(shim, CLONE_NEWNET) < 0)
		return fail_set(f, errno, "enter the sandbox's network");
	r = egress_start(env, box.block, shim, false, &ctl, f);
	return r < 0 ? r : egress_claim(env, w->id, w->secret, w->generation, ctl, f);
}

void egress_add_work(const struct build_env *env, const struct work *w, struct work_result *ret)
{
	(void)add(env, w, &ret->fail);
}
