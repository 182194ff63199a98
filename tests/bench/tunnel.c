/* SPDX-License-Identifier: MIT */
/* Measures tunnels against plain loopback TCP, both ways: the same program sends or takes in the
 * sandbox and on the machine. Each round does each row once; ratios are medians of ratios inside a
 * round. Set up by tests/bench/run_tunnel. */
#include "common/sys/mem.h"
#include "tests/bench/measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 101
#define SEND_PORT  8765
#define TAKE_PORT  8766
#define MIB        256

static char buf[1 << 20];
static struct sbx *api[2]; /* over the unix socket, over TLS */
static char box[2][64];

static void drain(int fd)
{
	size_t got = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		got += (size_t)n;
	if (got != (size_t)MIB << 20)
		die("stream", "is incomplete");
}

/* Until the other side has said that all of it has come. */
static void fill(int fd)
{
	uint64_t got = 0;

	for (size_t i = 0; i < MIB; i++)
		for (size_t at = 0; at < sizeof(buf);) {
			ssize_t n = send(fd, buf + at, sizeof(buf) - at, MSG_NOSIGNAL);
			if (n <= 0)
				die("send", strerror(errno));
			at += (size_t)n;
		}
	shutdown(fd, SHUT_WR);
	if (recv(fd, &got, sizeof(got), MSG_WAITALL) != sizeof(got) || got != (uint64_t)MIB << 20)
		die("stream", "did not arrive");
}

static int loopback(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("loopback", strerror(errno));
	return s;
}

enum { UNIX, TLS, NATIVE };

static int reach(int way, int port)
{
	int fd;

	if (way == NATIVE)
		return loopback(port);
	CHECK("tunnel", sbx_tunnel(api[way], box[way], port, &fd, &e));
	return fd;
}

enum { OUT, IN, OUT_TLS, IN_TLS, OUT_NATIVE, IN_NATIVE, ROWS };
static struct {
	const char *name;
	int way, port;
	void (*f)(int fd);
	double t[ROUNDS_MAX];
} rows[ROWS] = {
	[OUT] = { "out of a tunnel", UNIX, SEND_PORT, drain, { 0 } },
	[IN] = { "into a tunnel", UNIX, TAKE_PORT, fill, { 0 } },
	[OUT_TLS] = { "out of a tunnel, TLS", TLS, SEND_PORT, drain, { 0 } },
	[IN_TLS] = { "into a tunnel, TLS", TLS, TAKE_PORT, fill, { 0 } },
	[OUT_NATIVE] = { "out of loopback TCP", NATIVE, SEND_PORT, drain, { 0 } },
	[IN_NATIVE] = { "into loopback TCP", NATIVE, TAKE_PORT, fill, { 0 } },
};

/* Rate of a by that of b. */
static const struct {
	int a, b;
	double least; /* 0: nothing was promised */
} goals[] = {
	{ OUT, OUT_NATIVE, 0.7 },
	{ IN, IN_NATIVE, 0.7 },
	{ OUT_TLS, OUT_NATIVE, 0 },
	{ IN_TLS, IN_NATIVE, 0 },
};

static double median(const double *t, int n)
{
	double copy[ROUNDS_MAX];

	memcpy(copy, t, (size_t)n * sizeof(*t));
	qsort(copy, (size_t)n, sizeof(*copy), by_value);
	return copy[n / 2];
}

static void report(int n)
{
	printf("%-36s %10s\n", "row", "MiB/s");
	for (int i = 0; i < ROWS; i++)
		if (rows[i].t[0] > 0)
			printf("%-36s %10.0f\n", rows[i].name, MIB * 1e6 / median(rows[i].t, n));
	puts("");
	for (size_t i = 0; i < ARRAY_LEN(goals); i++) {
		const double *a = rows[goals[i].a].t, *b = rows[goals[i].b].t;
		double ratios[ROUNDS_MAX], r;
		if (a[0] <= 0)
			continue;
		for (int k = 0; k < n; k++)
			ratios[k] = b[k] / a[k];
		r = median(ratios, n);
		printf("%-24s / %-24s %6.2f", rows[goals[i].a].name, rows[goals[i].b].name, r);
		if (goals[i].least > 0)
			printf("  (to reach: %.2f) %s", goals[i].least,
				r >= goals[i].least ? "reached" : "NOT reached");
		puts("");
	}
}

static void bring_peer(int way, const char *peer)
{
	const char *mode[] = { "chmod", "755", "/sandbox/home/peer", NULL };
	FILE *f = fopen(peer, "re");
	size_t n = f ? fread(buf, 1, sizeof(buf), f) : 0;
	struct sbx_result r;

	if (!n)
		die(peer, strerror(errno));
	fclose(f);
	CHECK("peer", sbx_file_put(api[way], box[way], mode[2], buf, n, &e));
	CHECK("chmod", sbx_run(api[way], box[way], &(struct sbx_command){ .argv = mode }, &r, &e));
	sbx_result_free(&r);
}

static void start(int way, const char *const argv[])
{
	int64_t pid;

	CHECK(argv[1],
		sbx_start(api[way], box[way], &(struct sbx_command){ .argv = argv }, &pid, &e));
}

static void set_up(int way, const struct sbx_options *opt, const char *peer)
{
	static const char *const send[] = { "/sandbox/home/peer", "send", "8765", "256", NULL };
	static const char *const take[] = { "/sandbox/home/peer", "take", "8766", NULL };
	struct sbx_sandbox s;

	CHECK("connect", sbx_open(opt, &api[way], &e));
	CHECK("create", sbx_create(api[way], &(struct sbx_spec){ .network = "none" }, &s, &e));
	memcpy(box[way], s.id, sizeof(s.id));
	bring_peer(way, peer);
	start(way, send);
	start(way, take);
}

static void one_round(int r)
{
	for (int i = 0; i < ROWS; i++) {
		double t;
		int fd;
		if (rows[i].way == TLS && !api[TLS])
			continue;
		usleep(300000); /* a sandbox has its share of the processor back */
		t = now_us();
		fd = reach(rows[i].way, rows[i].port);
		rows[i].f(fd);
		if (r >= 0)
			rows[i].t[r] = now_us() - t;
		close(fd);
	}
}

int main(int argc, char **argv)
{
	const char *peer = getenv("BENCH_PEER"), *tls = getenv("BENCH_TLS");
	int rounds = argc > 1 ? atoi(argv[1]) : 11;

	if (!peer || rounds < 1 || rounds > ROUNDS_MAX)
		die("arguments", "run this through tests/bench/run_tunnel");
	set_up(UNIX, &(struct sbx_options){ 0 }, peer);
	if (tls)
		set_up(TLS,
			&(struct sbx_options){ .endpoint = tls,
				.ca_file = getenv("BENCH_CA"),
				.token_file = getenv("BENCH_TOKEN") },
			peer);
	for (int r = -1; r < rounds; r++) /* one to warm up */
		one_round(r);
	report(rounds);
	for (int way = UNIX; way <= TLS; way++)
		if (api[way]) {
			CHECK("delete", sbx_delete(api[way], box[way], &e));
			sbx_close(api[way]);
		}
	return 0;
}
