/* SPDX-License-Identifier: MIT */
/* relay MS LISTEN TARGET    two unix sockets: bytes go on MS milliseconds after they came
 * relay MS -- PROGRAM ...   the same between our standard input and output and the program's
 * A connection far away: each direction is late, and as much as there is goes on at a time. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256 * 1024)
#define QUEUE (64 * 1024 * 1024) /* on their way in one direction */

struct piece {
	struct piece *next;
	uint64_t due;
	size_t len;
	char data[];
};
struct way {
	int in, out;
	pthread_mutex_t lock;
	pthread_cond_t change;
	struct piece *first, **last;
	size_t queued;
	int ended;
};
static uint64_t delay_ns;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void until(uint64_t due)
{
	struct timespec t = { (time_t)(due / 1000000000), (long)(due % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int put(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Sends what is due; at the end of the queue and of its source it closes. */
static void *sender(void *arg)
{
	struct way *w = arg;
	int broken = 0;

	for (;;) {
		struct piece *p;
		pthread_mutex_lock(&w->lock);
		while (!w->first && !w->ended)
			pthread_cond_wait(&w->change, &w->lock);
		p = w->first;
		if (p && !(w->first = p->next))
			w->last = &w->first;
		pthread_mutex_unlock(&w->lock);
		if (!p)
			break;
		until(p->due);
		broken = broken || put(w->out, p->data, p->len) < 0;
		pthread_mutex_lock(&w->lock);
		w->queued -= p->len;
		pthread_cond_broadcast(&w->change);
		pthread_mutex_unlock(&w->lock);
		free(p);
	}
	if (shutdown(w->out, SHUT_WR) < 0 && errno == ENOTSOCK)
		close(w->out);
	return NULL;
}

static void *reader(void *arg)
{
	struct way *w = arg;

	for (;;) {
		struct piece *p = malloc(sizeof(*p) + PIECE);
		ssize_t n = p ? read(w->in, p->data, PIECE) : -1;
		if (n < 0 && errno == EINTR) {
			free(p);
			continue;
		}
		pthread_mutex_lock(&w->lock);
		if (n <= 0) {
			w->ended = 1;
			free(p);
		} else {
			p->next = NULL;
			p->len = (size_t)n;
			p->due = now_ns() + delay_ns;
			*w->last = p;
			w->last = &p->next;
			w->queued += p->len;
		}
		pthread_cond_broadcast(&w->change);
		while (w->queued > QUEUE)
			pthread_cond_wait(&w->change, &w->lock);
		pthread_mutex_unlock(&w->lock);
		if (n <= 0)
			return NULL;
	}
}

static void way_start(struct way *w, int in, int out, pthread_t t[2])
{
	*w = (struct way){ .in = in, .out = out };
	w->last = &w->first;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->change, NULL);
	pthread_create(&t[0], NULL, reader, w);
	pthread_create(&t[1], NULL, sender, w);
}

/* Both ways until both have ended. */
static void between(int in_a, int out_a, int in_b, int out_b)
{
	struct way *w = calloc(2, sizeof(*w));
	pthread_t t[4];

	way_start(&w[0], in_a, out_b, t);
	way_start(&w[1], in_b, out_a, t + 2);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	free(w);
}

static int dial(const char *path, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(a->sun_path, sizeof(a->sun_path), "%s", path);
	return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

struct pair {
	int client;
	const char *target;
};

static void *connection(void *arg)
{
	struct pair *p = arg;
	struct sockaddr_un a;
	int fd = dial(p->target, &a);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		between(p->client, p->client, fd, fd);
	close(fd);
	close(p->client);
	free(p);
	return NULL;
}

static int sockets(const char *from, const char *to)
{
	struct sockaddr_un a;
	int s = dial(from, &a);

	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 64) < 0) {
		perror(from);
		return 1;
	}
	for (;;) {
		struct pair *p = malloc(sizeof(*p));
		pthread_t t;
		*p = (struct pair){ accept(s, NULL, NULL), to };
		if (p->client < 0 || pthread_create(&t, NULL, connection, p))
			return 1;
		pthread_detach(t);
	}
}

static int program(char **argv)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) < 0)
		return 1;
	if (fork() == 0) {
		dup2(s[1], 0);
		dup2(s[1], 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(s[1]);
	between(0, 1, s[0], s[0]);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: relay MS LISTEN TARGET | relay MS -- PROGRAM ...\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	delay_ns = (uint64_t)(atof(argv[1]) * 1e6);
	return strcmp(argv[2], "--") ? sockets(argv[2], argv[3]) : program(argv + 3);
}
