/* SPDX-License-Identifier: MIT */
/* The far end of the node's measurements, the same static program inside a sandbox and outside:
 * peer tree DIR               1 GiB in 10,000 files
 * peer send PORT MIB          sends so much to everyone who connects to 127.0.0.1
 * peer take PORT              takes what everyone sends, and says at its end how many bytes it was
 * peer hello PORT             answers HTTP requests, on every address
 * peer first NAME PORT N      median microseconds from asking for a name to an answer's first byte
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 10000
#define SIZE  ((1 << 30) / FILES)
#define MOST  1001

static char block[1 << 20];

static int die(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	return 1;
}

/* Nothing in it can be stored smaller. */
static void scramble(uint64_t *x)
{
	for (size_t i = 0; i < sizeof(block) / 8; i++) {
		*x ^= *x << 13;
		*x ^= *x >> 7;
		*x ^= *x << 17;
		memcpy(block + 8 * i, x, 8);
	}
}

static int tree(const char *dir)
{
	uint64_t x = 88172645463325252u;
	char path[512];

	for (int i = 0; i < FILES; i++) {
		int fd;
		if (i % 9 == 0)
			scramble(&x);
		snprintf(path, sizeof(path), "%s/%02d", dir, i / 100);
		if (i % 100 == 0 && mkdir(path, 0755) < 0 && errno != EEXIST)
			return die(path);
		snprintf(path, sizeof(path), "%s/%02d/%02d", dir, i / 100, i % 100);
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (fd < 0 || write(fd, block + i % 9 * SIZE, SIZE) != SIZE)
			return die(path);
		close(fd);
	}
	return 0;
}

static int listen_at(uint32_t address, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(address) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 64) < 0)
		return -1;
	return s;
}

static int send_much(int port, int mib)
{
	int s = listen_at(INADDR_LOOPBACK, port);

	for (int c; s >= 0 && (c = accept(s, NULL, NULL)) >= 0; close(c))
		for (size_t left = (size_t)mib << 20; left;) {
			ssize_t n = send(c, block, left < sizeof(block) ? left : sizeof(block),
				MSG_NOSIGNAL);
			if (n <= 0)
				break;
			left -= (size_t)n;
		}
	return die("listen");
}

static int take_much(int port)
{
	int s = listen_at(INADDR_LOOPBACK, port);

	for (int c; s >= 0 && (c = accept(s, NULL, NULL)) >= 0; close(c)) {
		uint64_t got = 0;
		for (ssize_t n; (n = recv(c, block, sizeof(block), 0)) > 0;)
			got += (uint64_t)n;
		(void)send(c, &got, sizeof(got), MSG_NOSIGNAL);
	}
	return die("listen");
}

static int hello(int port)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	int s = listen_at(INADDR_ANY, port);

	for (int c; s >= 0 && (c = accept(s, NULL, NULL)) >= 0; close(c))
		if (recv(c, block, sizeof(block), 0) > 0)
			send(c, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
	return die("listen");
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int once(const char *name, const char *port)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n";
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *a;
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	if (s < 0 || getaddrinfo(name, port, &hints, &a) != 0)
		return -1;
	r = connect(s, a->ai_addr, a->ai_addrlen) < 0 ||
			    send(s, request, sizeof(request) - 1, 0) < 0 ||
			    recv(s, block, 1, 0) != 1
		    ? -1
		    : 0;
	freeaddrinfo(a);
	close(s);
	return r;
}

static int first(const char *name, const char *port, int n)
{
	static double t[MOST];

	for (int i = 0; i < n; i++) {
		double start = now_us();
		if (once(name, port) < 0)
			return die("first byte");
		t[i] = now_us() - start;
		usleep(2000);
	}
	qsort(t, (size_t)n, sizeof(t[0]), by_value);
	printf("%.0f\n", t[n / 2]);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "tree"))
		return tree(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "send"))
		return send_much(atoi(argv[2]), atoi(argv[3]));
	if (argc == 3 && !strcmp(argv[1], "take"))
		return take_much(atoi(argv[2]));
	if (argc == 3 && !strcmp(argv[1], "hello"))
		return hello(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "first") && atoi(argv[4]) > 0 && atoi(argv[4]) <= MOST)
		return first(argv[2], argv[3], atoi(argv[4]));
	fputs("usage: peer tree DIR | send PORT MIB | take PORT | hello PORT | first NAME PORT N\n", stderr);
	return 2;
}
