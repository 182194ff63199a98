/* SPDX-License-Identifier: MIT */
/* Capabilities, ids, keyring, limits and filter of init and the file worker. */
#include "sandboxd/priv/drop.h"

#include "common/sys/caps.h"
#include "common/sys/core.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/priv/cg.h"

#include <grp.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const uint64_t keep[] = {
	[DROP_INIT] = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(FSETID) | CAP(KILL) |
		      CAP(SETGID) | CAP(SETUID) | CAP(SETPCAP) | CAP(NET_BIND_SERVICE) |
		      CAP(SYS_CHROOT) | CAP(SETFCAP),
	[DROP_WORKER] = CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(DAC_READ_SEARCH) | CAP(FOWNER) |
			CAP(FSETID) | CAP(SETFCAP) | CAP(SETUID) | CAP(SETGID) | CAP(SETPCAP),
};

/* Guest root's processes are the same user's as the worker; its threads come on top, and only its filter keeps it from
 * making processes. */
#define WORKER_TASKS (CG_PIDS_DEFAULT + 128)

/* Downwards only: raising needs a right that not every host gives its root. */
static const struct {
	int what;
	rlim_t init, worker;
} limits[] = {
	{ RLIMIT_NOFILE, 65536, 16384 },
	{ RLIMIT_CORE, CORE_NEVER, CORE_NEVER },
	{ RLIMIT_MEMLOCK, 65536, 0 },
	{ RLIMIT_MSGQUEUE, 819200, 0 },
	{ RLIMIT_NICE, 0, 0 },
	{ RLIMIT_RTPRIO, 0, 0 },
	{ RLIMIT_NPROC, RLIM_INFINITY, WORKER_TASKS },
};

static int set_limits(enum drop_who who)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(limits) && r == 0; i++)
		r = rlimit_lower(limits[i].what, who == DROP_INIT ? limits[i].init : limits[i].worker);
	/* Programs that loop over all descriptors, or use select, expect this one. */
	if (r == 0 && who == DROP_INIT) {
		struct rlimit l;
		if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_max > 1024) {
			l.rlim_cur = 1024;
			(void)setrlimit(RLIMIT_NOFILE, &l);
		}
	}
	return r;
}

static int become_guest_root(void)
{
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
		return -errno;
	return 0;
}

void drop_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int drop_rights(enum drop_who who, const struct filter *flt, struct fail *f)
{
	int r = become_guest_root();

	if (r < 0)
		return fail_set(f, r, "become guest root");
	umask(022);
	drop_signals();
	r = set_limits(who);
	if (r < 0)
		return fail_set(f, r, "set limits");
	r = caps_bound(keep[who]);
	if (r < 0)
		return fail_set(f, r, "drop capabilities");
	r = filter_install(flt);
	return r < 0 ? fail_set(f, r, "install the system call filter") : 0;
}
