/* SPDX-License-Identifier: MIT */
/* The program around the daemon: command line, signals, readiness, exit code. */
#include "common/base/log.h"
#include "common/sys/mem.h"
#include "common/sys/rlimit.h"
#include "sandboxd/core/core.h"
#include "sandboxd/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS        10000
#define STOP_LIMIT_SECS 40 /* a stop that takes longer has failed; sandboxes survive it */

/* Connected before rights are dropped: afterwards its folder may be out of reach. */
static int notify_open(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(sa.sun_path))
		return -1;
	memcpy(sa.sun_path, path, len);
	if (path[0] == '@')
		sa.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa,
			       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
		log_warn("NOTIFY_SOCKET cannot be reached: %s", strerror(errno));
		close(fd);
		fd = -1;
	}
	unsetenv("NOTIFY_SOCKET");
	return fd;
}

static void notify(int fd, const char *text)
{
	if (fd >= 0)
		(void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Descriptors 0, 1 and 2 must be taken, or a socket would become somebody's stderr. */
static void fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static sigset_t own_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	return set;
}

static void reload(struct daemon *d)
{
	struct err e = ERR_NULL;

	if (daemon_reload_token(d, &e) < 0)
		log_error("the old token stays: %s", e.msg);
	else
		log_info("token file read again");
	e = (struct err)ERR_NULL;
	if (daemon_reload_resolvers(d, &e) < 0)
		log_error("the old resolvers stay: %s", e.msg);
}

static bool broker_died(const struct daemon *d)
{
	pid_t pid = daemon_broker(d);
	int status;

	if (!pid || waitpid(pid, &status, WNOHANG) != pid)
		return false;
	log_error(
		"the broker sbx-priv has ended (status %#x); sandboxes go on, start the server again",
		(unsigned)status);
	return true;
}

/* Until a signal asks to stop: 0; 1 when the broker is gone. */
static int wait_for_end(struct daemon *d, const sigset_t *set)
{
	for (;;) {
		int sig = sigwaitinfo(set, NULL);

		if (sig == SIGHUP)
			reload(d);
		else if (sig == SIGCHLD && broker_died(d))
			return 1;
		else if (sig == SIGTERM || sig == SIGINT)
			return 0;
	}
}

static int refuse(const struct err *e)
{
	fprintf(stderr, "sandboxd: %s\n", e->msg);
	return 1;
}

static int run(const struct options *o)
{
	sigset_t set = own_signals();
	struct daemon *d = NULL;
	struct err e = ERR_NULL;
	int fd, rc;

	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	rlimit_use_all(RLIMIT_NOFILE);
	fd = notify_open();
	if (daemon_prepare(o, &d, &e) < 0)
		return refuse(&e);
	if (daemon_drop(d, &e) < 0 || daemon_start(d, &e) < 0) {
		daemon_stop(d, 0);
		return refuse(&e);
	}
	notify(fd, "READY=1");
	rc = wait_for_end(d, &set);
	notify(fd, "STOPPING=1");
	alarm(STOP_LIMIT_SECS);
	daemon_stop(d, rc ? 0 : GRACE_MS);
	log_info("stopped");
	return rc;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct err e = ERR_NULL;
	int rc;

	fill_standard_fds();
	if (options_parse(argc, argv, &o, &e) < 0)
		return refuse(&e);
	if (o.help) {
		options_usage();
		rc = 0;
	} else if (o.version) {
		puts("sandboxd " SANDBOXD_VERSION);
		rc = 0;
	} else {
		rc = run(&o);
	}
	options_free(&o);
	return rc;
}
