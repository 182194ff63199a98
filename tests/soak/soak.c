/* SPDX-License-Identifier: MIT */
/* Many clients that do everything at once for a while, each with sandboxes, snapshots and a volume
 * of its own, now and then hanging up in the middle; then all that is there is deleted. What they
 * are told wrong fails the run; what the server keeps of it all is looked at by tests/soak/run.
 * soak SECONDS CLIENTS SEED [FOLDER]: with the programs of that folder, a flood runs beside (flood.c). */
#include "tests/soak/soak.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLIENTS 64

struct sbx *api;
static int64_t end_ms;
static atomic_uint wrong;

enum answer { FINE, CONFLICT, BUSY, GONE, WRONG, ANSWERS };
static atomic_uint counts[OPS][ANSWERS];

static const char *const op_names[OPS] = {
#define X(name, text) [name] = text,
#include "tests/soak/ops.def"
#undef X
};

int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static enum answer answer_of(const struct sbx_error *e)
{
	static const int statuses[ANSWERS] = { [CONFLICT] = 409, [BUSY] = 503, [GONE] = 404 };

	for (enum answer a = CONFLICT; a < WRONG; a++)
		if (statuses[a] == e->status)
			return a;
	return WRONG;
}

bool done(enum op op, int r, const struct sbx_error *e)
{
	enum answer a = r == 0 ? FINE : answer_of(e);

	counts[op][a]++;
	if (a == WRONG && wrong++ < 20)
		fprintf(stderr, "soak: %s: %d %s: %s\n", op_names[op], e->status, e->code,
			e->message);
	return a == FINE;
}

static void *client(void *arg)
{
	while (now_ms() < end_ms && wrong < 1000) /* else there is no server any more */
		soak_turn(arg);
	return NULL;
}

static void delete_all(void)
{
	struct sbx_sandbox *boxes = NULL;
	struct sbx_snapshot *snaps = NULL;
	struct sbx_volume *volumes = NULL;
	struct sbx_error e;
	size_t n = 0;

	if (done(LIST, sbx_list(api, NULL, &boxes, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			if (strcmp(boxes[i].state, "terminated") != 0)
				done(DELETE, sbx_delete(api, boxes[i].id, &e), &e);
	if (done(LIST, sbx_snapshot_list(api, &snaps, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			done(DROP, sbx_snapshot_delete(api, snaps[i].id, &e), &e);
	if (done(LIST, sbx_volume_list(api, &volumes, &n, &e), &e))
		for (size_t i = 0; i < n; i++)
			done(UNVOLUME, sbx_volume_delete(api, volumes[i].name, &e), &e);
	free(boxes);
	free(snaps);
	free(volumes);
}

static void report(void)
{
	unsigned sum = 0;

	printf("%-22s %8s %8s %8s %8s %8s\n", "operation", "fine", "409", "503", "404", "wrong");
	for (int i = 0; i < OPS; i++) {
		printf("%-22s", op_names[i]);
		for (int k = 0; k < ANSWERS; k++) {
			printf(" %8u", counts[i][k]);
			sum += counts[i][k];
		}
		puts("");
	}
	printf("%u answers\n", sum);
}

int main(int argc, char **argv)
{
	static struct client clients[CLIENTS];
	int n = argc >= 4 ? atoi(argv[2]) : 0;
	bool flooding = argc > 4, fine = true;
	struct sbx_options opt = { 0 };
	struct sbx_error e;

	if (n < 1 || n > CLIENTS) {
		fputs("usage: soak SECONDS CLIENTS SEED [GUEST_POOLS]\n", stderr);
		return 2;
	}
	if (sbx_open(&opt, &api, &e) < 0) {
		fprintf(stderr, "soak: %s\n", e.message);
		return 1;
	}
	end_ms = now_ms() + 1000LL * atoi(argv[1]);
	for (int i = 0; i < n; i++) {
		clients[i] =
			(struct client){ .seed = (unsigned)atoi(argv[3]) * 1000 + (unsigned)i };
		snprintf(clients[i].volume, sizeof(clients[i].volume), "soak-%d", i);
		pthread_create(&clients[i].thread, NULL, client, &clients[i]);
	}
	if (flooding && !flood_begin(argv[4]))
		return 2;
	for (int i = 0; i < n; i++)
		pthread_join(clients[i].thread, NULL);
	if (flooding)
		fine = flood_end();
	delete_all();
	report();
	sbx_close(api);
	return fine && !wrong ? 0 : 1;
}
