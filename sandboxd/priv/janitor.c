/* SPDX-License-Identifier: MIT */
/* The janitor: a child of the broker that clears away what has ended, one after another. When the
 * broker goes it finishes its queue and takes the empty base groups away; but it holds the lock for which the next
 * broker waits, so what it has not done in REST_SECS is left to the sweep of that one. */
#include "sandboxd/priv/broker.h"

#include "common/sys/fault.h"
#include "common/sys/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REST_SECS 25 /* less than lock_alone waits (main.c) */

/* A volume on a file system of its own is flushed as that goes; the others share one that stays. */
static void flush_volumes(const struct build_env *env, const char *id)
{
	struct record box;

	if (record_read(env->boxes, id, &box) == 0 && box.volumes &&
		env->areas.provider != &area_loop)
		(void)syncfs(env->areas.areas);
}

static void clear_files(const struct build_env *env, const char *id)
{
	int r;

	fault_point("janitor-files");
	flush_volumes(env, id);
	r = area_remove(&env->areas, id);
	if (r < 0)
		fprintf(stderr, "<warn> sbx-priv: disk area of %s stays: %s\n", id, strerror(-r));
	/* The record last: as long as anything is left, the next sweep finds it. */
	if ((r = record_drop(env->boxes, id)) < 0)
		fprintf(stderr, "<warn> sbx-priv: record of %s stays: %s\n", id, strerror(-r));
}

static void clear_away(const struct build_env *env, const struct janitor_job *c)
{
	char name[BOX_NAME_MAX];
	int r = 0;

	if (c->has_block) {
		box_group(name, c->block);
		r = cg_remove(&env->cg, name);
		box_pool(name, c->block);
		(void)area_remove(&env->areas, name);
	}
	if (r < 0)
		fprintf(stderr, "<warn> sbx-priv: control groups n%u stay: %s\n", c->block,
			strerror(-r));
	if (c->id[0])
		clear_files(env, c->id);
}

static void broker_gone(int sig)
{
	(void)sig;
	(void)alarm(REST_SECS);
}

/* At any moment: a record goes last, as if the power had failed here. */
static void end_soon_after(pid_t broker)
{
	struct sigaction a = { .sa_handler = broker_gone, .sa_flags = SA_RESTART };

	(void)signal(SIGALRM, SIG_DFL);
	(void)sigaction(SIGUSR1, &a, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGUSR1);
	if (getppid() != broker)
		broker_gone(0);
}

static void janitor(struct build_env *env, int sock, pid_t broker)
{
	struct janitor_job c;
	ssize_t n;

	end_soon_after(broker);
	while ((n = recv(sock, &c, sizeof(c), 0)) == sizeof(c) || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		clear_away(env, &c);
		(void)send(sock, &c, sizeof(c), MSG_NOSIGNAL);
	}
	cg_close(&env->cg);
	_exit(0);
}

int janitor_start(struct broker *b, struct fail *f)
{
	pid_t pid, broker = getpid();
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return fail_set(f, errno, "make a socket pair");
	pid = fork();
	if (pid < 0)
		return fail_set(f, errno, "start the janitor");
	if (pid == 0) {
		broker_leave(b, -1);
		close(sv[0]);
		janitor(&b->env, sv[1], broker);
	}
	close(sv[1]);
	b->janitor = sv[0];
	return 0;
}
