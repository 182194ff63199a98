/* SPDX-License-Identifier: MIT */
/* Measures what the node adds to plain sandboxes: forks, snapshots, sleep, pools, the way out and
 * the way in. As in bench.c every round does each row once; the table shows medians and what was
 * promised of their ratios. Set up by tests/bench/run_node. */
#include "common/sys/mem.h"
#include "tests/bench/measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 101
#define PORT       8765
#define MIB        256

extern char **environ;
static struct sbx *api;
static char full[64]; /* a sandbox with 1 GiB in 10,000 files */
static char asleep[64], open_box[64];
static char made[64];          /* the sandbox of this row */
static char snap[64];          /* the snapshot of this round */
static const char *dir, *peer; /* a native folder with the same tree in it; the program */

static void create(const struct sbx_spec *spec, char id[64])
{
	struct sbx_sandbox s;

	CHECK("create", sbx_create(api, spec, &s, &e));
	memcpy(id, s.id, sizeof(s.id));
}

static void end(char id[64])
{
	CHECK("delete", sbx_delete(api, id, &e));
	id[0] = '\0';
}

/* Output of a command in a sandbox, which must succeed. */
static void in_box(const char *id, const char *text, char *out, size_t size)
{
	const char *argv[] = { "sh", "-c", text, NULL };
	struct sbx_result r;

	CHECK(text, sbx_run(api, id, &(struct sbx_command){ .argv = argv }, &r, &e));
	if (r.exit_code != 0)
		die(text, r.err);
	if (out)
		snprintf(out, size, "%s", r.out);
	sbx_result_free(&r);
}

static void shell(const char *text)
{
	const char *argv[] = { "/bin/sh", "-c", text, NULL };
	int status = 0;
	pid_t pid;

	if (posix_spawn(&pid, argv[0], NULL, NULL, (char *const *)(size_t)argv, environ))
		die(text, "cannot be started");
	waitpid(pid, &status, 0);
	if (status)
		die(text, "failed");
}

/* --- rows: what comes before is not measured, nor is what comes after ---------------------------
 */

static void nothing(void)
{
}
static void end_made(void)
{
	end(made);
}

/* A size that nobody asked for before: none is ready. */
static double row_cold(void)
{
	static int odd;
	double start = now_us();

	create(&(struct sbx_spec){ .memory_mb = 700 + odd++ }, made);
	return now_us() - start;
}

static double row_pool(void)
{
	double start = now_us();

	create(NULL, made);
	return now_us() - start;
}

static double row_snapshot(void)
{
	double start = now_us();
	struct sbx_snapshot s;

	CHECK("snapshot", sbx_snapshot_take(api, full, &s, &e));
	memcpy(snap, s.id, sizeof(s.id));
	return now_us() - start;
}

static double row_fork(void)
{
	double start = now_us();

	create(&(struct sbx_spec){ .snapshot_id = snap, .network = "none" }, made);
	start = now_us() - start;
	in_box(made, "test $(find /sandbox/home/tree -type f | wc -l) = 10000", NULL, 0);
	return start;
}

static void drop_snapshot(void)
{
	CHECK("drop", sbx_snapshot_delete(api, snap, &e));
}

static double row_copy(void)
{
	char text[600];
	double start;

	snprintf(text, sizeof(text), "exec cp -a --reflink=never %s/tree %s/copy", dir, dir);
	start = now_us();
	shell(text);
	return now_us() - start;
}

static void drop_copy(void)
{
	char text[600];

	snprintf(text, sizeof(text), "exec rm -r %s/copy", dir);
	shell(text);
}

static void fall_asleep(void)
{
	CHECK("suspend", sbx_suspend(api, asleep, NULL, &e));
}

static double row_resume(void)
{
	double start = now_us();

	CHECK("resume", sbx_resume(api, asleep, NULL, &e));
	return now_us() - start;
}

static double row_egress(void)
{
	char out[32];

	in_box(open_box, "/sandbox/home/peer first ok.test 8081 101", out, sizeof(out));
	return atof(out);
}

/* The same program, by the same name from the same resolver. */
static double row_direct(void)
{
	const char *command = getenv("BENCH_DIRECT");
	char out[32] = "";
	FILE *f = popen(command, "re");

	if (!f || !fgets(out, sizeof(out), f) || pclose(f) != 0)
		die(command, "failed");
	return atof(out);
}

/* Microseconds for the whole of it. */
static double drain(int fd)
{
	static char buf[1 << 20];
	double start = now_us();
	size_t got = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		got += (size_t)n;
	close(fd);
	if (got != (size_t)MIB << 20)
		die("stream", "is incomplete");
	return now_us() - start;
}

static double row_tunnel(void)
{
	int fd;

	CHECK("tunnel", sbx_tunnel(api, open_box, PORT, &fd, &e));
	return drain(fd);
}

static double row_loopback(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
		.sin_port = htons(PORT),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
		die("loopback", strerror(errno));
	return drain(s);
}

enum {
	COLD,
	POOL,
	SNAPSHOT,
	FORK,
	AGAIN,
	COPY,
	RESUME,
	EGRESS,
	DIRECT,
	TUNNEL,
	LOOPBACK,
	ROWS
};
static struct {
	const char *name;
	void (*before)(void);
	double (*f)(void);
	void (*after)(void);
	double t[ROUNDS_MAX];
} rows[ROWS] = {
	[COLD] = { "create, nothing prepared", nothing, row_cold, end_made, { 0 } },
	[POOL] = { "create from a pool", nothing, row_pool, end_made, { 0 } },
	[SNAPSHOT] = { "snapshot of 1 GiB in 10,000 files", nothing, row_snapshot, nothing, { 0 } },
	[FORK] = { "fork of it, the first", nothing, row_fork, end_made, { 0 } },
	[AGAIN] = { "fork of it, the second", nothing, row_fork, end_made, { 0 } },
	[COPY] = { "cp -a of the same files", drop_snapshot, row_copy, drop_copy, { 0 } },
	[RESUME] = { "resume", fall_asleep, row_resume, nothing, { 0 } },
	[EGRESS] = { "first byte through the egress", nothing, row_egress, nothing, { 0 } },
	[DIRECT] = { "first byte without a sandbox", nothing, row_direct, nothing, { 0 } },
	[TUNNEL] = { "256 MiB through a tunnel", nothing, row_tunnel, nothing, { 0 } },
	[LOOPBACK] = { "256 MiB over loopback TCP", nothing, row_loopback, nothing, { 0 } },
};
/* Promises: a at most factor times b. */
static const struct {
	int a, b;
	double factor;
} goals[] = {
	{ FORK, COLD, 3.0 },
	{ AGAIN, POOL, 3.0 },
	{ SNAPSHOT, COPY, 0.1 },
	{ POOL, COLD, 0.2 },
	{ RESUME, POOL, 1.0 },
	{ EGRESS, DIRECT, 3.0 },
	{ TUNNEL, LOOPBACK, 1 / 0.7 },
};

static void report(int n)
{
	printf("%-36s %10s %10s\n", "row (microseconds)", "median", "p95");
	for (int i = 0; i < ROWS; i++) {
		qsort(rows[i].t, (size_t)n, sizeof(double), by_value);
		printf("%-36s %10.0f %10.0f\n", rows[i].name, rows[i].t[n / 2],
			rows[i].t[n * 95 / 100]);
	}
	puts("");
	for (size_t i = 0; i < ARRAY_LEN(goals); i++) {
		double ratio = rows[goals[i].a].t[n / 2] / rows[goals[i].b].t[n / 2];
		printf("%-34s / %-30s %6.3f  (to reach: %.2f) %s\n", rows[goals[i].a].name,
			rows[goals[i].b].name, ratio, goals[i].factor,
			ratio <= goals[i].factor ? "reached" : "NOT reached");
	}
}

static void bring_peer(const char *id)
{
	static char buf[1 << 20];
	FILE *f = fopen(peer, "re");
	size_t n = f ? fread(buf, 1, sizeof(buf), f) : 0;

	if (!n)
		die(peer, strerror(errno));
	fclose(f);
	CHECK("peer", sbx_file_put(api, id, "/sandbox/home/peer", buf, n, &e));
	in_box(id, "chmod 755 peer", NULL, 0);
}

static void set_up(void)
{
	static const char *const allow[] = { "ok.test", NULL };
	static const char *const argv[] = { "/sandbox/home/peer", "send", "8765", "256", NULL };
	char text[600];
	int64_t pid;

	create(&(struct sbx_spec){ .network = "none" }, full);
	create(&(struct sbx_spec){ .network = "none" }, asleep);
	create(&(struct sbx_spec){ .network = "allowlist", .allow = allow }, open_box);
	bring_peer(full);
	bring_peer(open_box);
	in_box(full, "mkdir tree && ./peer tree tree && sync", NULL, 0);
	snprintf(text, sizeof(text), "mkdir -p %s/tree && %s tree %s/tree && sync", dir, peer, dir);
	shell(text);
	CHECK("send", sbx_start(api, open_box, &(struct sbx_command){ .argv = argv }, &pid, &e));
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 11;
	struct sbx_options opt = { 0 };

	dir = getenv("BENCH_NATIVE");
	peer = getenv("BENCH_PEER");
	if (!dir || !peer || !getenv("BENCH_DIRECT") || rounds < 1 || rounds > ROUNDS_MAX)
		die("arguments", "run this through tests/bench/run_node");
	CHECK("connect", sbx_open(&opt, &api, &e));
	set_up();
	for (int r = -1; r < rounds; r++) /* one to warm up */
		for (int i = 0; i < ROWS; i++) {
			double t;
			rows[i].before();
			usleep(400000); /* pools and spares are filled again */
			t = rows[i].f();
			if (r >= 0)
				rows[i].t[r] = t;
			rows[i].after();
		}
	report(rounds);
	sbx_close(api);
	return 0;
}
