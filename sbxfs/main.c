/* SPDX-License-Identifier: MIT */
/* sbxfs: mounts the sandboxes of a server. Order of start: options, token, mount, background, parts,
 * threads, loop; and back. */
#include "sbxfs/feed.h"
#include "sbxfs/host.h"
#include "sbxfs/ops.h"
#include "sbxfs/options.h"
#include "sbxfs/remote.h"
#include "sbxfs/session.h"
#include "sbxfs/trust.h"
#include "sbxfs/watch.h"

#include "common/base/log.h"
#include "common/base/version.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define DESCRIPTORS 8192
#define IDLE_THREADS 32

static int open_server(const struct options *o, struct sbx **ret)
{
	int secs = o->timeout ? o->timeout : DEADLINE_SECS;
	struct sbx_options so = { .endpoint = o->endpoint, .token_file = o->token_file,
		.ca_file = o->ca_file, .timeout_ms = secs * 1000, .connect_timeout_ms = secs * 500 };
	struct sbx_error e = { .status = 0 };

	if (sbx_open(&so, ret, &e) == 0)
		return 0;
	fprintf(stderr, "sbxfs: %s\n", e.message);
	return -1;
}

/* nosuid and nodev whatever was asked; the names that df and mount show. */
static int mount_options(struct fuse_args *args, const struct options *o)
{
	if (fuse_opt_add_arg(args, "-onosuid,nodev,fsname=sbxfs,subtype=sbxfs,max_read=1048576") < 0)
		return -1;
	return o->allow_other ? fuse_opt_add_arg(args, "-oallow_other") : 0;
}

/* SIGHUP: the token is read again. The signal is blocked everywhere, so that only this thread has it. */
static void *on_hangup(void *arg)
{
	struct mount *m = arg;
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	while (sigwait(&set, &sig) == 0 && sig == SIGHUP) {
		struct sbx_error e = { .status = 0 };

		if (sbx_reload_token(m->sbx, &e) < 0)
			log_warn("the token was not read again: %s", e.message);
	}
	return NULL;
}

static int loop(struct mount *m, struct fuse_session *se)
{
	struct fuse_loop_config *conf = fuse_loop_cfg_create();
	int rc;

	if (!conf)
		return -ENOMEM;
	fuse_loop_cfg_set_clone_fd(conf, 0);
	fuse_loop_cfg_set_max_threads(conf, (unsigned)m->opt.max_threads);
	fuse_loop_cfg_set_idle_threads(conf, IDLE_THREADS);
	rc = fuse_session_loop_mt(se, conf);
	fuse_loop_cfg_destroy(conf);
	return rc;
}

static void block(int how, bool with_exit)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	if (with_exit) {
		sigaddset(&set, SIGTERM);
		sigaddset(&set, SIGINT);
		sigaddset(&set, SIGQUIT);
	}
	pthread_sigmask(how, &set, NULL);
}

/* Whose locks are they, for as long as this mount lives? When the server cannot be asked it is taken for
 * one that has them. */
static bool wants_locks(struct mount *m)
{
	struct req q = { .m = m, .op = "locks", .start_ms = now_ms(), .aside = true };
	json_t *caps;

	if (m->opt.locks_local || m->opt.proto == PROTO_HTTP)
		return false;
	if (remote_caps(&q, &caps) < 0)
		return true;
	json_decref(caps);
	return remote_has(&q, CAP_FS_STREAM) && remote_has(&q, CAP_FS_LOCKS);
}

/* Mounted and in the background: the parts, then the kernel's requests until the end. */
static int serve(struct mount *m, struct fuse_session *se, const struct options *o, struct sbx *sbx)
{
	pthread_t hup;
	int rc;

	block(SIG_BLOCK, true); /* for the threads that are made here */
	rc = mount_init(m, o, sbx);
	if (rc < 0)
		return rc;
	m->se = se;
	m->has_locks = wants_locks(m);
	atomic_store(&m->tracing, o->debug != 0);
	if (pthread_create(&hup, NULL, on_hangup, m) != 0) {
		mount_fini(m);
		return -EAGAIN;
	}
	/* Without it everything is only asked for more often. */
	if (watch_start(m->watch) < 0)
		log_warn("the list of sandboxes is not watched");
	block(SIG_UNBLOCK, true);
	block(SIG_BLOCK, false);
	rc = loop(m, se);
	atomic_store(&m->stopping, true);
	feeds_stop(m->feeds);
	pthread_kill(hup, SIGUSR1);
	pthread_join(hup, NULL);
	return rc;
}

/* Links as the guest made them are only shown where nobody can follow them. */
static bool links_safe(const struct options *o)
{
	int rc = o->links == LINKS_EXACT ? host_no_symfollow(o->mountpoint, o->read_only) : 0;

	if (rc < 0)
		fprintf(stderr, "sbxfs: links=exact needs a mount that follows no links: %s\n", strerror(-rc));
	return rc == 0;
}

/* What is dead there goes; what lives there stays, and so does a file: the kernel would cover it. */
static int make_way(const struct options *o)
{
	int rc;

	host_detach_dead(o->mountpoint);
	rc = host_mountpoint(o->mountpoint);
	if (rc < 0)
		fprintf(stderr, "sbxfs: %s: %s\n", o->mountpoint,
			rc == -EBUSY ? "sbxfs is mounted there already" : strerror(-rc));
	return rc;
}

static int run(struct fuse_args *args, const struct options *o, struct sbx *sbx)
{
	struct mount m = { .opt = *o };
	struct fuse_session *se;
	int rc = -1;

	if (make_way(o) < 0 || mount_options(args, o) < 0)
		return -1;
	se = fuse_session_new(args, &sbxfs_ops, sizeof(sbxfs_ops), &m);
	if (!se)
		return -1;
	if (fuse_set_signal_handlers(se) == 0) {
		if (fuse_session_mount(se, o->mountpoint) == 0) {
			if (session_begin(se) == 0 && links_safe(o) && fuse_daemonize(o->foreground) == 0)
				rc = serve(&m, se, o, sbx);
			/* What was collected is sent while the server's answers can still come. */
			mount_stop(&m);
			/* They write to what is closed here. One that the kernel holds it lets go then. */
			(void)notifier_stop(m.top_notifier);
			(void)notifier_stop(m.notifier);
			fuse_session_unmount(se);
		}
		fuse_remove_signal_handlers(se);
	}
	/* Before the session goes. A thread that the kernel still holds ends with the program. */
	if (!notifier_stop(m.top_notifier) || !notifier_stop(m.notifier))
		return rc;
	fuse_session_destroy(se);
	if (m.inodes)
		mount_fini(&m);
	return rc;
}

/* Files that are open on the mount are handles of the server; but each connection of a port takes two
 * descriptors here, and the usual soft limit is low for that. */
static void more_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= DESCRIPTORS)
		return;
	l.rlim_cur = l.rlim_max < DESCRIPTORS ? l.rlim_max : DESCRIPTORS;
	(void)setrlimit(RLIMIT_NOFILE, &l);
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
	struct options o = { .endpoint = NULL };
	struct sbx *sbx = NULL;
	int rc = fsopt_parse(&args, &o);

	umask(0);
	more_descriptors();
	if (!o.foreground) /* it goes on, and holds nothing of who mounts: a lock, a pipe that somebody reads to its end */
		(void)close_range(STDERR_FILENO + 1, ~0u, 0);
	if (rc == 0 && o.show_help)
		fsopt_usage(argv[0]);
	else if (rc == 0 && o.show_version)
		printf("sbxfs %s\n", SBX_VERSION);
	else if (rc == 0)
		rc = open_server(&o, &sbx) < 0 ? -1 : run(&args, &o, sbx);
	sbx_close(sbx);
	fsopt_fini(&o);
	fuse_opt_free_args(&args);
	return rc < 0 ? 1 : 0;
}
