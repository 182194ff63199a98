/* SPDX-License-Identifier: MIT */
/* Takes of a kernel's pool as much as it gets, and holds it.
 *   guest_pools KIND [MOST]   prints "took N" and waits for the end of its input
 * inotify, signals, queues: quotas that a user has once on the whole host.
 * tcp, udp: megabytes of socket buffers, which are nobody's memory until somebody says whose.
 * fork: processes; memory: touched megabytes; files: descriptors; names: entries that are not there
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static long take_inotify(long most)
{
	long n = 0;

	while (n < most && inotify_init1(IN_CLOEXEC) >= 0)
		n++;
	return n;
}

static long take_signals(long most)
{
	union sigval v = { .sival_int = 1 };
	sigset_t all;
	long n = 0;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	while (n < most && sigqueue(getpid(), SIGRTMIN + 1, v) == 0)
		n++;
	return n;
}

static long take_queues(long most)
{
	struct mq_attr a = { .mq_maxmsg = 10, .mq_msgsize = 4096 };
	char name[32];
	long n = 0;

	for (; n < most; n++) {
		snprintf(name, sizeof(name), "/q%ld.%d", n, (int)getpid());
		if (mq_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600, &a) == (mqd_t)-1)
			break;
		(void)mq_unlink(name); /* it lives as long as it is open */
	}
	return n;
}

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif
#define ENOUGH (256 << 10) /* a connection that takes less shows that there is a limit */

static int listener(struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);
	int s = socket(AF_INET, SOCK_STREAM, 0), size = 4 << 20;

	*a = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	(void)setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (bind(s, (struct sockaddr *)a, sizeof(*a)) < 0 || listen(s, 64) < 0 ||
		getsockname(s, (struct sockaddr *)a, &len) < 0)
		return -1;
	return s;
}

/* Nobody reads: what was sent lies in the kernel. */
static long take_tcp(long most_mb)
{
	static char b[65536];
	struct sockaddr_in a;
	int l = listener(&a);
	long sent = 0;

	while (l >= 0 && sent >> 20 < most_mb) {
		int s = socket(AF_INET, SOCK_STREAM, 0), size = 4 << 20;
		long before = sent;
		ssize_t n;
		if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0 ||
			accept(l, NULL, NULL) < 0)
			break;
		(void)setsockopt(s, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		while ((n = send(s, b, sizeof(b), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
			sent += n;
		if (sent - before < ENOUGH)
			break;
	}
	return sent >> 20;
}

static long take_udp(long most_mb)
{
	static char b[32768];
	unsigned int held[16] = { 0 };
	long sent = 0;

	while (sent >> 20 < most_mb) {
		struct sockaddr_in a = { .sin_family = AF_INET,
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t len = sizeof(a);
		int s = socket(AF_INET, SOCK_DGRAM, 0);
		if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 ||
			getsockname(s, (struct sockaddr *)&a, &len) < 0)
			break;
		/* the default buffer holds some of these; what does not fit is dropped without a
		 * word */
		for (int i = 0; i < 6; i++)
			(void)sendto(
				s, b, sizeof(b), MSG_DONTWAIT, (struct sockaddr *)&a, sizeof(a));
		len = sizeof(held);
		if (getsockopt(s, SOL_SOCKET, SO_MEMINFO, held, &len) < 0 || held[0] < sizeof(b))
			break;
		sent += held[0];
	}
	return sent >> 20;
}

static long take_processes(long most)
{
	long n = 0;

	for (; n < most; n++) {
		pid_t p = fork();
		if (p < 0)
			break;
		if (p == 0) {
			pause();
			_exit(0);
		}
	}
	return n;
}

static long take_memory(long most_mb)
{
	long n = 0;

	for (; n < most_mb; n++) {
		char *p = mmap(
			NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			break;
		memset(p, 1, 1 << 20);
	}
	return n;
}

static long take_files(long most)
{
	long n = 0;

	while (n < most && open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0)
		n++;
	return n;
}

static long take_names(long most)
{
	struct stat st;
	char name[64];

	for (long n = 0; n < most; n++) {
		snprintf(name, sizeof(name), "/sandbox/home/absent-%ld-%d", n, (int)getpid());
		(void)stat(name, &st);
	}
	return most;
}

static const struct {
	const char *kind;
	long (*take)(long most);
	long most;
} kinds[] = {
	{ "inotify", take_inotify, 100000 },
	{ "signals", take_signals, 1000000 },
	{ "queues", take_queues, 100000 },
	{ "tcp", take_tcp, 512 },
	{ "udp", take_udp, 512 },
	{ "fork", take_processes, 100000 },
	{ "memory", take_memory, 65536 },
	{ "files", take_files, 1000000 },
	{ "names", take_names, 1000000 },
};

int main(int argc, char **argv)
{
	struct rlimit files;
	char c;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	for (size_t i = 0; argc > 1 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].kind, argv[1]) == 0) {
			printf("took %ld\n",
				kinds[i].take(argc > 2 ? atol(argv[2]) : kinds[i].most));
			fflush(stdout);
			while (read(0, &c, 1) > 0)
				;
			return 0;
		}
	return 2;
}
