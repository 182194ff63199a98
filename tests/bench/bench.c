/* SPDX-License-Identifier: MIT */
/* Measures our operations beside those of others in one run: every round does each row once, so that
 * a busy moment hits all of them alike, with a pause before each, so that none pays for what another
 * left to do in the background; the table shows medians and ratios of medians. What is not
 * installed is left out and said so. Set up by tests/bench/run. */
#include "common/sys/mem.h"
#include "tests/bench/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#define ROUNDS_MAX 1000
#define SETTLE_US 30000
static struct sbx *api;
static char live[64]; /* a sandbox that stays for the rows that need one */
static char made[64]; /* the one of this round */
static const char *dir_mount, *dir_sshfs, *dir_native, *bundle;

/* Spawns and waits; output is thrown away. */
static void spawn_wait(const char *const *argv)
{
	posix_spawn_file_actions_t fa;
	int status = 0;
	pid_t pid;

	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	if (posix_spawnp(&pid, argv[0], &fa, NULL, (char *const *)(size_t)argv, environ))
		die(argv[0], "cannot be started");
	waitpid(pid, &status, 0);
	posix_spawn_file_actions_destroy(&fa);
	if (status)
		die(argv[0], "failed");
}

static void call(const char *method, const char *path, const char *body, struct sbx_response *r)
{
	struct sbx_error e;
	struct sbx_request q = { .method = method, .path = path, .body = body,
		.body_len = body ? strlen(body) : 0 };

	if (sbx_call(api, &q, r, &e) < 0)
		die(path, e.message);
}

static void call_drop(const char *method, const char *path, const char *body)
{
	struct sbx_response r = { 0 };

	call(method, path, body, &r);
	sbx_response_free(&r);
}

static void create_as(char id[64], const char *body)
{
	struct sbx_response r = { 0 };
	const char *p;

	call("POST", "/v1/sandboxes", body, &r);
	p = strstr(r.body, "sbx_");
	snprintf(id, 64, "%.*s", p ? (int)strcspn(p, "\"") : 0, p ? p : "");
	sbx_response_free(&r);
}

static void create(char id[64]) { create_as(id, "{}"); }

static void in_box(const char *method, const char *id, const char *rest, const char *body)
{
	char path[256];

	snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", id, rest);
	call_drop(method, path, body);
}

static void row_spawn(void) { spawn_wait((const char *[]){ "/bin/true", NULL }); }
static void row_create(void) { create(made); }
/* Of a size that nobody has asked for before, so that no sandbox stands prepared. */
static void row_cold(void)
{
	static int memory_mb = 300;
	char body[64];

	snprintf(body, sizeof(body), "{\"memory_mb\":%d}", memory_mb++);
	create_as(made, body);
}

static void row_delete(void) { in_box("DELETE", made, "", NULL); }
static void row_run(void) { in_box("POST", live, "/run", "{\"argv\":[\"true\"]}"); }
static void row_bwrap(void)
{
	spawn_wait((const char *[]){ "bwrap", "--unshare-all", "--unshare-user", "--hostname", "x", "--ro-bind",
		"/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true", NULL });
}
static void row_runc(void)
{
	char name[32];
	static int n;

	snprintf(name, sizeof(name), "bench-%d-%d", (int)getpid(), n++);
	spawn_wait((const char *[]){ "runc", "run", "--bundle", bundle, name, NULL });
}
static void row_runc_exec(void) { spawn_wait((const char *[]){ "runc", "exec", "bench-live", "/bin/true", NULL }); }

static bool stop_at_first(void *arg, const void *buf, size_t len)
{
	(void)buf;
	*(size_t *)arg += len;
	return false;
}

static void row_first_byte(void)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	size_t got = 0;
	char path[256];
	struct sbx_request q = { .method = "GET", .path = path, .on_data = stop_at_first, .arg = &got };
	const char *p;

	snprintf(path, sizeof(path), "/v1/sandboxes/%s/processes", live);
	call("POST", path, "{\"argv\":[\"echo\",\"x\"]}", &r);
	p = strstr(r.body, "\"pid\":");
	snprintf(path, sizeof(path), "/v1/sandboxes/%s/processes/%d/output", live, p ? atoi(p + 6) : 0);
	sbx_response_free(&r);
	if (sbx_call(api, &q, &r, &e) < 0)
		die(path, e.message);
	sbx_response_free(&r);
}

static void path_in(const char *dir, const char *name, char out[512])
{
	snprintf(out, 512, "%s/%s", dir, name);
}

static void do_stat(const char *dir)
{
	char path[512];
	struct stat st;

	path_in(dir, "bench-file", path);
	if (stat(path, &st) < 0)
		die(path, strerror(errno));
}

static void do_read(const char *dir)
{
	char path[512], buf[4096];
	path_in(dir, "bench-file", path);
	int fd = open(path, O_RDONLY);

	if (fd < 0 || read(fd, buf, sizeof(buf)) != sizeof(buf))
		die(path, strerror(errno));
	close(fd);
}

static void do_write(const char *dir)
{
	static char buf[4096];
	char path[512];
	path_in(dir, "bench-new", path);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || write(fd, buf, sizeof(buf)) != sizeof(buf) || close(fd) < 0)
		die(path, strerror(errno));
}

static void row_stat(void) { do_stat(dir_mount); }
static void row_stat_sshfs(void) { do_stat(dir_sshfs); }
static void row_stat_native(void) { do_stat(dir_native); }
static void row_read(void) { do_read(dir_mount); }
static void row_read_sshfs(void) { do_read(dir_sshfs); }
static void row_read_native(void) { do_read(dir_native); }
static void row_write(void) { do_write(dir_mount); }
static void row_write_sshfs(void) { do_write(dir_sshfs); }
static void row_write_native(void) { do_write(dir_native); }

enum need { ALWAYS = 0, BWRAP = 1, RUNC = 2, SSHFS = 4 };
enum { SPAWN, CREATE, DELETE, COLD, COLD_DELETE, RUN, FIRST, R_BWRAP, R_RUNC, R_EXEC, STAT, STAT_S, STAT_N, READ, READ_S, READ_N,
	WRITE, WRITE_S, WRITE_N, ROWS };
static struct { const char *name; void (*f)(void); unsigned need; double t[ROUNDS_MAX]; } rows[ROWS] = {
	[SPAWN] = { "spawn and wait, /bin/true", row_spawn, ALWAYS, { 0 } },
	[CREATE] = { "create -> running (API)", row_create, ALWAYS, { 0 } },
	[DELETE] = { "delete (API)", row_delete, ALWAYS, { 0 } },
	[COLD] = { "create, none prepared (API)", row_cold, ALWAYS, { 0 } },
	[COLD_DELETE] = { "delete of that (API)", row_delete, ALWAYS, { 0 } },
	[RUN] = { "run true (API)", row_run, ALWAYS, { 0 } },
	[FIRST] = { "start -> first output byte (API)", row_first_byte, ALWAYS, { 0 } },
	[R_BWRAP] = { "bwrap ... true", row_bwrap, BWRAP, { 0 } },
	[R_RUNC] = { "runc run", row_runc, RUNC, { 0 } },
	[R_EXEC] = { "runc exec", row_runc_exec, RUNC, { 0 } },
	[STAT] = { "mount: stat", row_stat, ALWAYS, { 0 } },
	[STAT_S] = { "sshfs: stat", row_stat_sshfs, SSHFS, { 0 } },
	[STAT_N] = { "native: stat", row_stat_native, ALWAYS, { 0 } },
	[READ] = { "mount: open, read 4 KiB, close", row_read, ALWAYS, { 0 } },
	[READ_S] = { "sshfs: open, read 4 KiB, close", row_read_sshfs, SSHFS, { 0 } },
	[READ_N] = { "native: open, read 4 KiB, close", row_read_native, ALWAYS, { 0 } },
	[WRITE] = { "mount: open, write 4 KiB, close", row_write, ALWAYS, { 0 } },
	[WRITE_S] = { "sshfs: open, write 4 KiB, close", row_write_sshfs, SSHFS, { 0 } },
	[WRITE_N] = { "native: open, write 4 KiB, close", row_write_native, ALWAYS, { 0 } },
};
/* Promises: a at most factor times b. */
static const struct { int a, b; double factor; } goals[] = {
	{ CREATE, R_BWRAP, 1.0 }, { CREATE, R_RUNC, 1.0 / 6 }, { RUN, SPAWN, 1.6 }, { RUN, R_EXEC, 1.0 / 8 },
	{ DELETE, CREATE, 0.25 },
	{ COLD_DELETE, COLD, 0.25 }, { COLD, R_BWRAP, 1.0 }, { STAT, STAT_S, 1.0 }, { READ, READ_S, 1.0 }, { WRITE, WRITE_S, 1.0 },
};

static void report(int rounds, unsigned have)
{
	printf("%-36s %10s %10s\n", "row (microseconds)", "median", "p95");
	for (int i = 0; i < ROWS; i++) {
		if (rows[i].need & ~have) {
			printf("%-36s %10s\n", rows[i].name, "not here");
			continue;
		}
		qsort(rows[i].t, (size_t)rounds, sizeof(double), by_value);
		printf("%-36s %10.0f %10.0f\n", rows[i].name, rows[i].t[rounds / 2], rows[i].t[rounds * 95 / 100]);
	}
	puts("");
	for (size_t i = 0; i < ARRAY_LEN(goals); i++) {
		int a = goals[i].a, b = goals[i].b;
		double ratio;
		if ((rows[a].need | rows[b].need) & ~have)
			continue;
		ratio = rows[a].t[rounds / 2] / rows[b].t[rounds / 2];
		printf("%-34s / %-30s %6.2f  (to reach: %.2f) %s\n", rows[a].name, rows[b].name, ratio,
			goals[i].factor, ratio <= goals[i].factor ? "reached" : "NOT reached");
	}
}

/* As a client sees it who works through a queue: where the time of each step goes is printed too, because
 * what one sandbox leaves to do in the background is paid by the next. */
static void rate(int n)
{
	double start = now_us(), t[4], sum[3] = { 0 };

	for (int i = 0; i < n; i++) {
		t[0] = now_us();
		create(made);
		t[1] = now_us();
		in_box("POST", made, "/run", "{\"argv\":[\"true\"]}");
		t[2] = now_us();
		in_box("DELETE", made, "", NULL);
		t[3] = now_us();
		for (int k = 0; k < 3; k++)
			sum[k] += t[k + 1] - t[k];
	}
	printf("\ncreate, run true, delete: %.0f a second, one after the other (to reach: 80);"
	       " %.1f, %.1f and %.1f ms\n",
		n / ((now_us() - start) / 1e6), sum[0] / n / 1e3, sum[1] / n / 1e3, sum[2] / n / 1e3);
}

/* --- one alive and many ---------------------------------------------------------------------- */

#define GETS   201
#define OTHERS 31

static void do_get(void) { in_box("GET", live, "", NULL); }

/* Over the one connection that is kept, so that nothing but the request is measured. */
static double median_of(void (*f)(void), int n, useconds_t pause)
{
	double t[GETS];

	for (int i = 0; i < n; i++) {
		usleep(pause);
		t[i] = now_us();
		f();
		t[i] = now_us() - t[i];
		if (f == row_create)
			row_delete();
	}
	qsort(t, (size_t)n, sizeof(t[0]), by_value);
	return t[n / 2];
}

struct costs {
	double get, run, create;
};
static struct costs costs(void)
{
	return (struct costs){ median_of(do_get, GETS, SETTLE_US / 10),
		median_of(row_run, OTHERS, SETTLE_US), median_of(row_create, OTHERS, SETTLE_US) };
}

static void many(int n)
{
	char (*ids)[sizeof(made)] = calloc((size_t)n, sizeof(*ids));
	const char *at_many = getenv("BENCH_AT_MANY"); /* a command to run while all are alive */
	struct costs one, all;

	if (!ids)
		die("many", "out of memory");
	one = costs();
	for (int i = 0; i < n; i++)
		create(ids[i]);
	all = costs();
	printf("\nwith %d sandboxes alive, against one (to reach: 1.50):"
	       " get %.2f (%.0f us), run %.2f (%.0f us), create %.2f (%.0f us)\n",
		n + 1, all.get / one.get, all.get, all.run / one.run, all.run,
		all.create / one.create, all.create);
	fflush(stdout);
	/* what the server itself holds weighs less on each of many */
	if (at_many && system(at_many) != 0)
		fprintf(stderr, "bench: %s failed\n", at_many);
	for (int i = 0; i < n; i++)
		in_box("DELETE", ids[i], "", NULL);
	free(ids);
}

/* bench [ROUNDS] | bench many N | bench rate N */
int main(int argc, char **argv)
{
	struct sbx_error e;
	struct sbx_options opt = { 0 };
	int rounds = argc > 1 ? atoi(argv[1]) : 51;
	unsigned have = (unsigned)atoi(getenv("BENCH_HAVE") ? getenv("BENCH_HAVE") : "0");

	int only = argc == 3 ? atoi(argv[2]) : 0;

	if (only <= 0 && (rounds < 1 || rounds > ROUNDS_MAX))
		die("rounds", "give 1 to 1000");
	dir_mount = getenv("BENCH_MOUNT");
	dir_sshfs = getenv("BENCH_SSHFS");
	dir_native = getenv("BENCH_NATIVE");
	bundle = getenv("BENCH_BUNDLE");
	if (!dir_mount || !dir_native || !getenv("BENCH_BOX"))
		die("environment", "run this through tests/bench/run");
	snprintf(live, sizeof(live), "%s", getenv("BENCH_BOX"));
	if (sbx_open(&opt, &api, &e) < 0)
		die("connect", e.message);
	if (only > 0) {
		(strcmp(argv[1], "rate") ? many : rate)(only);
		sbx_close(api);
		return 0;
	}
	for (int r = -3; r < rounds; r++) /* three rounds to warm up */
		for (int i = 0; i < ROWS; i++) {
			if (rows[i].need & ~have)
				continue;
			usleep(SETTLE_US);
			double t = now_us();
			rows[i].f();
			if (r >= 0)
				rows[i].t[r] = now_us() - t;
		}
	report(rounds, have);
	rate(100);
	sbx_close(api);
	return 0;
}
