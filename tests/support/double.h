/* SPDX-License-Identifier: MIT */
/* The core on the fake backend, with layers and volumes added that exist only as numbers: what the core
 * decides about snapshots, forks, schedules and volumes is tested without privilege. A snapshot can be
 * held open or made to fail; so can the end of a sandbox. */
#ifndef TESTS_SUPPORT_DOUBLE_H
#define TESTS_SUPPORT_DOUBLE_H

#include "tests/support/test.h"

#include "sandboxd/core/core_internal.h"

#define DOUBLE_MAX 512

struct double_world {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	bool hold;               /* snapshots wait until it is cleared */
	bool hold_end;           /* ends of sandboxes wait */
	bool gripped; /* creates give a grip, by which every guest is gone as soon as it is killed */
	int fail_snapshots;      /* so many fail */
	int fail_volumes, fail_drops, fail_creates, fail_ends; /* drops: of volumes */
	unsigned under_way, most, taken; /* snapshots */
	unsigned made;                   /* creates that went well */
	bool layers[DOUBLE_MAX], volumes[DOUBLE_MAX]; /* that are there, by number */
	bool keep_layers[DOUBLE_MAX], keep_volumes[DOUBLE_MAX]; /* named before the last sweep */
	uint32_t top;            /* of the last create's chain; 0: it had none */
	uint32_t depth;
};
extern struct double_world double_world;

struct double_rig {
	char dir[64];
	int dirfd;
	bool keep;
	struct server_policy policy;
	struct backend *backend;
	struct core *core;
};
extern struct double_rig double_rig; /* of the row that runs */
int double_setup(void **state);    /* policy: built in, shortest schedule 1 s, up to 3 kept */
int double_teardown(void **state); /* ends every sandbox, removes the folder */
void double_restart(struct double_rig *r, bool keep_at_stop, bool keep_at_start);
void double_stop(struct double_rig *r, bool keep);
bool double_try(struct double_rig *r); /* to start again; false: it could not, and may be tried once more */

void double_set(bool *what, bool to); /* and wakes who waits */
void double_fail_ends(int n);
/* Waits at most 30 s for it. */
void double_wait(bool (*fn)(void *arg), void *arg);
/* A running sandbox, referenced; the test fails when there is none. */
struct sandbox *double_sandbox(struct double_rig *r, const struct create_body *body);
/* The create must be refused with this code. */
void double_refused(struct double_rig *r, const struct create_body *body, enum err_code code);
/* How often an event of this type is in the log of a sandbox; `key` with `value` if given. */
size_t double_events(
	struct double_rig *r, const char *id, const char *type, const char *key, const char *value);

#endif
