/* SPDX-License-Identifier: MIT */
/* The guest's side of the network tests, where the base image's tools end. Prints how each attempt
 * ended: "ok", an errno's number, or what came back.
 *   udp ADDR PORT        sends a datagram and waits for what comes back
 *   tcp ADDR PORT        connects; "open" when it stays so for a moment, "closed" when not
 *   tcp6 ADDR PORT       the same over IPv6
 *   sock FAMILY TYPE PROTOCOL
 *   bind ADDR PORT
 *   many N ADDR PORT     opens N connections and keeps them for a second; prints how many stayed
 *   feed ADDR PORT FILE [PIECE [MS]]   sends the file, PIECE bytes each MS, prints what came back
 *   hold ADDR PORT       sends a line each 100 ms until the connection ends, then prints "ended"
 *   first N ADDR PORT   median microseconds from connect to the server's first byte
 *   drain ADDR PORT PATH HOST  fetches over HTTP, prints megabytes a second
 *   late ADDR PORT       lets the server speak first, asks for an Upgrade, then reads; prints how many bytes came
 *   serve PORT           accepts one connection on 0.0.0.0 and sends "hello" */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void nap(int ms)
{
	struct timespec t = { ms / 1000, (ms % 1000) * 1000000L };

	nanosleep(&t, NULL);
}

static struct sockaddr_in to(const char *addr, const char *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((unsigned short)atoi(port)) };

	inet_pton(AF_INET, addr, &a.sin_addr);
	return a;
}

static int say(const char *what, long r)
{
	if (r < 0)
		printf("%s %d\n", what, errno);
	else
		printf("%s ok\n", what);
	return 0;
}

static int udp(const char *addr, const char *port)
{
	struct sockaddr_in a = to(addr, port);
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	struct pollfd p = { .fd = s, .events = POLLIN };
	char b[64];

	if (connect(s, (struct sockaddr *)&a, sizeof(a)) < 0 || send(s, "x", 1, 0) < 0)
		return say("udp", -1);
	if (poll(&p, 1, 500) == 1 && recv(s, b, sizeof(b), 0) < 0)
		return say("udp", -1);
	puts(p.revents ? "udp answered" : "udp silent");
	return 0;
}

/* Is it still open a moment later? */
static int settled(int s)
{
	struct pollfd p = { .fd = s, .events = POLLIN };
	char b;

	if (poll(&p, 1, 700) == 0)
		return 1;
	return recv(s, &b, 1, MSG_PEEK) > 0;
}

static int dial(const struct sockaddr *a, socklen_t n)
{
	int s = socket(a->sa_family, SOCK_STREAM, 0);

	if (s < 0 || connect(s, a, n) < 0)
		return -1;
	return s;
}

/* On one processor the other side may have reset it before this one returns from connect. */
static int no_way(const char *what)
{
	if (errno != ECONNRESET)
		return say(what, -1);
	printf("%s closed\n", what);
	return 0;
}

static int tcp(const char *addr, const char *port)
{
	struct sockaddr_in a = to(addr, port);
	int s = dial((struct sockaddr *)&a, sizeof(a));

	if (s < 0)
		return no_way("tcp");
	puts(settled(s) ? "tcp open" : "tcp closed");
	return 0;
}

static int tcp6(const char *addr, const char *port)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6,
		.sin6_port = htons((unsigned short)atoi(port)) };
	int s;

	inet_pton(AF_INET6, addr, &a.sin6_addr);
	s = dial((struct sockaddr *)&a, sizeof(a));
	if (s < 0)
		return no_way("tcp6");
	puts(settled(s) ? "tcp6 open" : "tcp6 closed");
	return 0;
}

static int many(int n, const char *addr, const char *port)
{
	struct rlimit l = { 4096, 4096 };
	struct sockaddr_in a = to(addr, port);
	int *s = calloc((size_t)n, sizeof(*s)), open = 0;

	setrlimit(RLIMIT_NOFILE, &l);
	for (int i = 0; i < n; i++)
		s[i] = dial((struct sockaddr *)&a, sizeof(a));
	nap(1000);
	for (int i = 0; i < n; i++) {
		struct pollfd p = { .fd = s[i], .events = POLLIN };
		open += s[i] >= 0 && poll(&p, 1, 0) == 0;
	}
	printf("many %d\n", open);
	return 0;
}

static void print_reply(int s)
{
	char b[4096];
	ssize_t n;

	while ((n = recv(s, b, sizeof(b), 0)) > 0)
		fwrite(b, 1, (size_t)n, stdout);
	printf(n < 0 ? "\nreset\n" : "\nend\n");
}

static int feed(const char *addr, const char *port, const char *file, size_t piece, int ms)
{
	static char b[1 << 20];
	struct sockaddr_in a = to(addr, port);
	int fd = open(file, O_RDONLY), s = dial((struct sockaddr *)&a, sizeof(a));
	ssize_t len = read(fd, b, sizeof(b));

	if (s < 0 || len < 0)
		return say("feed", -1);
	for (size_t at = 0; at < (size_t)len; at += piece) {
		size_t n = (size_t)len - at < piece ? (size_t)len - at : piece;
		if (send(s, b + at, n, MSG_NOSIGNAL) < 0)
			break;
		if (ms)
			nap(ms);
	}
	shutdown(s, SHUT_WR);
	print_reply(s);
	return 0;
}

static int hold(const char *addr, const char *port)
{
	struct sockaddr_in a = to(addr, port);
	int s = dial((struct sockaddr *)&a, sizeof(a));
	char b;

	if (s < 0)
		return say("hold", -1);
	for (;;) {
		if (send(s, "tick\n", 5, MSG_NOSIGNAL) < 0 || recv(s, &b, 1, MSG_DONTWAIT) == 0 ||
			(errno != EAGAIN && errno))
			break;
		errno = 0;
		nap(100);
	}
	puts("ended");
	return 0;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : 1;
}

static int first(int n, const char *addr, const char *port)
{
	struct sockaddr_in a = to(addr, port);
	double *t = calloc((size_t)n, sizeof(*t));
	char b;

	for (int i = 0; i < n; i++) {
		double start = now_us();
		int s = dial((struct sockaddr *)&a, sizeof(a));
		if (s < 0 || recv(s, &b, 1, 0) != 1)
			return say("first", -1);
		t[i] = now_us() - start;
		close(s);
	}
	qsort(t, (size_t)n, sizeof(*t), by_size);
	printf("%.0f\n", t[n / 2]);
	return 0;
}

static int drain(const char *addr, const char *port, const char *path, const char *host)
{
	static char b[1 << 18];
	struct sockaddr_in a = to(addr, port);
	int s = dial((struct sockaddr *)&a, sizeof(a));
	double start = now_us(), got = 0;
	ssize_t n;

	n = snprintf(b, sizeof(b), "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host);
	if (s < 0 || send(s, b, (size_t)n, 0) != n || shutdown(s, SHUT_WR) < 0)
		return say("drain", -1);
	while ((n = recv(s, b, sizeof(b), 0)) > 0)
		got += (double)n;
	printf("%.0f\n", got / (now_us() - start));
	return 0;
}

static int late(const char *addr, const char *port)
{
	static const char ask[] = "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
	struct sockaddr_in a = to(addr, port);
	int s = dial((struct sockaddr *)&a, sizeof(a));
	struct pollfd p = { .fd = s, .events = POLLIN };
	static char b[1 << 16];
	long got = 0;
	ssize_t n;

	nap(1500); /* all buffers on the way are full, or hold all */
	if (s < 0 || send(s, ask, sizeof(ask) - 1, MSG_NOSIGNAL) < 0)
		return say("late", -1);
	nap(500);
	while (poll(&p, 1, 3000) == 1 && (n = recv(s, b, sizeof(b), 0)) > 0)
		got += n;
	printf("%ld\n", got);
	return 0;
}

static int serve(const char *port)
{
	struct sockaddr_in a = to("0.0.0.0", port);
	int s = socket(AF_INET, SOCK_STREAM, 0), c, on = 1;

	(void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* the one before may just have ended */
	if (bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 4) < 0)
		return say("serve", -1);
	c = accept(s, NULL, NULL);
	return say("serve", send(c, "hello\n", 6, MSG_NOSIGNAL));
}

int main(int argc, char **argv)
{
	const char *op = argc > 1 ? argv[1] : "";

	signal(SIGPIPE, SIG_IGN);
	errno = 0;
	if (!strcmp(op, "udp") && argc == 4)
		return udp(argv[2], argv[3]);
	if (!strcmp(op, "tcp") && argc == 4)
		return tcp(argv[2], argv[3]);
	if (!strcmp(op, "tcp6") && argc == 4)
		return tcp6(argv[2], argv[3]);
	if (!strcmp(op, "sock") && argc == 5)
		return say("sock", socket(atoi(argv[2]), atoi(argv[3]), atoi(argv[4])));
	if (!strcmp(op, "bind") && argc == 4) {
		struct sockaddr_in a = to(argv[2], argv[3]);
		return say("bind",
			bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a)));
	}
	if (!strcmp(op, "many") && argc == 5)
		return many(atoi(argv[2]), argv[3], argv[4]);
	if (!strcmp(op, "feed") && argc >= 5)
		return feed(argv[2], argv[3], argv[4], argc > 5 ? (size_t)atoi(argv[5]) : 1 << 20,
			argc > 6 ? atoi(argv[6]) : 0);
	if (!strcmp(op, "hold") && argc == 4)
		return hold(argv[2], argv[3]);
	if (!strcmp(op, "first") && argc == 5)
		return first(atoi(argv[2]), argv[3], argv[4]);
	if (!strcmp(op, "drain") && argc == 6)
		return drain(argv[2], argv[3], argv[4], argv[5]);
	if (!strcmp(op, "late") && argc == 4)
		return late(argv[2], argv[3]);
	if (!strcmp(op, "serve") && argc == 3)
		return serve(argv[2]);
	return 2;
}
