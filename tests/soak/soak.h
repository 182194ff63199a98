/* SPDX-License-Identifier: MIT */
/* One client of the soak, and the count of how it was answered. */
#ifndef TESTS_SOAK_SOAK_H
#define TESTS_SOAK_SOAK_H

#include "client/include/sbx.h"

#include <pthread.h>

#define BOXES 3
#define SNAPS 3

struct box {
	char id[64];
	bool volume, asleep, listens;
};
struct client {
	pthread_t thread;
	unsigned seed;
	struct box boxes[BOXES]; /* id "": a free place */
	char snaps[SNAPS][64];
	bool has_volume, volume_busy;
	char volume[32];
	int64_t hang_up_at; /* ms */
};

enum op {
#define X(name, text) name,
#include "tests/soak/ops.def"
#undef X
	OPS
};

extern struct sbx *api;
int64_t now_ms(void);
/* Notes the outcome of a call; true when it was fine. */
bool done(enum op op, int r, const struct sbx_error *e);
/* One operation, whichever comes. */
void soak_turn(struct client *c);
/* A flood and a neighbour of it beside the clients; `dir` holds guest_pools and guest_flood. The end
 * prints how the neighbour fared, and is false when he had to wait too long (TIMES). */
bool flood_begin(const char *dir);
bool flood_end(void);

#endif
