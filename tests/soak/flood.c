/* SPDX-License-Identifier: MIT */
/* A sandbox that takes all of something beside the soak, half of the time, a thing after the other;
 * and a neighbour that runs `true` all the time. What that takes while the soak is alone is
 * compared with what it takes while the flood runs too: pieces of both alternate, so that a slow
 * moment of the machine meets both alike. */
#include "tests/soak/soak.h"

#include "common/sys/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE_MS    5000 /* so long alone, then so long with a flood */
#define MOST        20000
#define PROGRAM_MAX (4 << 20)
#define ROOM_US     1000 /* what the middle of few may differ by itself */

/* So many times as long as beside the soak alone a neighbour may wait. */
#define TIMES 3

static const struct {
	const char *what, *text;
} floods[] = {
	{ "processes", "a() { a | a & }; a; ./guest_pools fork" },
	{ "a bomb", "./guest_flood bomb" },
	{ "a storm", "./guest_flood storm" },
	{ "memory", "./guest_pools memory" },
	{ "the disk", "dd if=/dev/zero of=x bs=1M; sync; rm x" },
	{ "tmpfs",
		"dd if=/dev/zero of=/tmp/x bs=1M; dd if=/dev/zero of=/dev/shm/x bs=1M;"
		"rm /tmp/x /dev/shm/x" },
	{ "output",
		"yes & cat /dev/zero & (while :; do printf x; printf y >&2; done) & wait" },
	{ "sockets", "(./guest_pools tcp & ./guest_pools udp; wait) >/dev/null 2>&1" },
	{ "descriptors",
		"./guest_pools files & ./guest_pools files & ./guest_pools files; wait" },
	{ "quotas",
		"./guest_pools signals & ./guest_pools inotify & ./guest_pools queues; wait" },
	{ "names", "./guest_pools names" },
	{ "inodes",
		"i=0; while [ $i -lt 20000 ]; do : > f$i || break; i=$((i + 1)); done;"
		"rm -rf f*" },
	{ "cpu", "for i in 1 2 3; do while :; do :; done & done; wait" },
};
#define ALONE ((int)ARRAY_LEN(floods))

/* What `true` took the neighbour, in microseconds, by the flood that ran. */
static struct {
	long us[MOST];
	int n;
	bool ended; /* before it was told to */
} took[ARRAY_LEN(floods) + 1];
static atomic_int running = ALONE;
static atomic_bool over;
static pthread_t flooder, neighbour;
static struct {
	const char *name;
	char *bytes;
	size_t len;
} programs[] = { { .name = "guest_pools" }, { .name = "guest_flood" } };

static bool equip(const char *id)
{
	const char *mode[] = { "chmod", "755", programs[0].name, programs[1].name, NULL };
	struct sbx_command q = { .argv = mode, .timeout_secs = 30 };
	struct sbx_result r;
	struct sbx_error e;
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		snprintf(path, sizeof(path), "/sandbox/home/%s", programs[i].name);
		if (!done(WRITE,
			    sbx_file_put(api, id, path, programs[i].bytes, programs[i].len, &e), &e))
			return false;
	}
	if (!done(RUN, sbx_run(api, id, &q, &r, &e), &e))
		return false;
	sbx_result_free(&r);
	return true;
}

/* A sandbox with the programs in it. */
static bool make(struct sbx_sandbox *s)
{
	struct sbx_spec spec = { .memory_mb = 256, .disk_mb = 256 };
	struct sbx_error e;

	if (!done(CREATE, sbx_create(api, &spec, s, &e), &e))
		return false;
	if (equip(s->id))
		return true;
	done(DELETE, sbx_delete(api, s->id, &e), &e);
	return false;
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void wait_ms(int ms)
{
	for (int64_t end = now_ms() + ms; now_ms() < end && !over;)
		usleep(20000);
}

static void flood_once(int i)
{
	const char *argv[] = { "./guest_flood", "again", floods[i].text, NULL };
	struct sbx_command q = { .argv = argv };
	struct sbx_sandbox s;
	struct sbx_error e;
	int64_t pid;

	if (!make(&s))
		return;
	if (done(START, sbx_start(api, s.id, &q, &pid, &e), &e)) {
		running = i;
		wait_ms(PIECE_MS);
		running = ALONE;
		/* It does not heed this; one that has ended by itself was no flood. */
		if (!done(SIGNAL, sbx_signal(api, s.id, pid, "TERM", &e), &e))
			took[i].ended = true;
	}
	done(DELETE, sbx_delete(api, s.id, &e), &e);
}

static void *flood(void *arg)
{
	(void)arg;
	for (int i = 0; !over; i = (i + 1) % ALONE) {
		wait_ms(PIECE_MS);
		if (!over)
			flood_once(i);
	}
	return NULL;
}

/* One `true`; it counts when one and the same flood ran all the time. */
static void measure(const char *id)
{
	static const char *const argv[] = { "true", NULL };
	struct sbx_command q = { .argv = argv, .timeout_secs = 60 };
	int with = running;
	int64_t began = now_us();
	struct sbx_result r;
	struct sbx_error e;

	if (!done(RUN, sbx_run(api, id, &q, &r, &e), &e))
		return;
	sbx_result_free(&r);
	if (with == running && took[with].n < MOST)
		took[with].us[took[with].n++] = (long)(now_us() - began);
}

static void *live_beside(void *arg)
{
	struct sbx_sandbox s;
	struct sbx_error e;

	(void)arg;
	while (!make(&s)) {
		if (over)
			return NULL;
		wait_ms(100);
	}
	while (!over) {
		measure(s.id);
		wait_ms(20);
	}
	done(DELETE, sbx_delete(api, s.id, &e), &e);
	return NULL;
}

/* --- its beginning and its end --- */

static bool read_program(const char *dir, size_t i)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, programs[i].name);
	f = fopen(path, "re");
	if (f && (programs[i].bytes = malloc(PROGRAM_MAX)))
		programs[i].len = fread(programs[i].bytes, 1, PROGRAM_MAX, f);
	if (f)
		fclose(f);
	if (programs[i].len == 0)
		fprintf(stderr, "soak: cannot read %s\n", path);
	return programs[i].len > 0;
}

bool flood_begin(const char *dir)
{
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		if (!read_program(dir, i))
			return false;
	pthread_create(&flooder, NULL, flood, NULL);
	pthread_create(&neighbour, NULL, live_beside, NULL);
	return true;
}

static int by_size(const void *a, const void *b)
{
	return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b);
}

static long middle(int with)
{
	qsort(took[with].us, (size_t)took[with].n, sizeof(long), by_size);
	return took[with].n ? took[with].us[took[with].n / 2] : 0;
}

bool flood_end(void)
{
	bool fine = true;
	long alone;

	over = true;
	pthread_join(flooder, NULL);
	pthread_join(neighbour, NULL);
	for (size_t i = 0; i < ARRAY_LEN(programs); i++)
		free(programs[i].bytes);
	alone = middle(ALONE);
	printf("\n%-22s %8s %8s\n", "a neighbour's true", "times", "us");
	printf("%-22s %8d %8ld\n", "beside the soak", took[ALONE].n, alone);
	for (int i = 0; i < ALONE; i++) {
		long us = middle(i);
		bool slow = us > TIMES * alone + ROOM_US;
		if (took[i].n)
			printf("and a flood: %-9s %8d %8ld%s%s\n", floods[i].what, took[i].n, us,
				slow ? "  SLOW" : "", took[i].ended ? "  ENDED" : "");
		fine = fine && !slow && !took[i].ended;
	}
	return fine && alone > 0;
}
