/* SPDX-License-Identifier: MIT */
/* The daemon's records in <state>/records.db. Writes are queued, and the first who waits for one
 * commits all that are, so that many who wait share one sync of the disk (group commit).
 * Locks: the store's own queue lock comes after every lock of the core. */
#ifndef SANDBOXD_STORE_STORE_H
#define SANDBOXD_STORE_STORE_H

#include "common/json/json.h"

#include <stdbool.h>
#include <stdint.h>

struct store;

#define STORE_SECRET_LEN 16

/* One sandbox as it is kept. `body` is the core's own JSON; `env` holds values and is NULL once the
 * sandbox has ended: the row is overwritten then, and the log emptied soon after. */
struct store_sandbox {
	const char *id;
	uint64_t seq;
	int state;            /* the core's enum sandbox_state */
	int64_t created_ns;
	uint64_t generation;
	uint8_t secret[STORE_SECRET_LEN];
	const char *boot;     /* boot id of the host; a runtime of another boot is gone */
	const char *body, *env;
};

/* Makes or opens records.db in the folder (0700). Refuses a damaged or unwritable one. */
int store_open(const char *state_dir, struct store **ret, struct err *e);
/* Writes what is queued, then closes. */
void store_close(struct store *st);

/* Tickets number the writes. 0: could not be queued (out of memory). The record is copied.
 * durable=false: need not reach the disk before the next durable one; nobody waits for it. */
uint64_t store_put_sandbox(struct store *st, const struct store_sandbox *r, bool durable);
/* As durable=true; the caller comes to store_wait within moments and does the work there itself. */
uint64_t store_put_awaited(struct store *st, const struct store_sandbox *r);
/* A record that is there becomes one of an ended sandbox: this state, no secret, no values. Awaited
 * too, but store_wait returns before it is on the disk: it outlives any process at once, and a power cut
 * with the next synced commit or after a quiet second. A cut before that leaves the record as it was, of
 * a boot that is over: it loads as ended all the same (doc/decisions/006). */
uint64_t store_end_awaited(struct store *st, const char *id, int state);
/* A record that is there gets this state, nothing else of it changes. store_wait returns as after
 * store_end_awaited: no death of a process takes it back. */
uint64_t store_mark_awaited(struct store *st, const char *id, int state);
uint64_t store_drop_sandbox(struct store *st, const char *id, bool durable);
/* Everything else that is kept: images, layers, snapshots, volumes. One row a thing, the body is the JSON of
 * the module that owns the kind. */
struct store_row {
	const char *kind, *key; /* together unique */
	const char *body;       /* NULL: the row goes */
};
/* All rows in one transaction: after a crash either every one is there or none. Copied. */
uint64_t store_put_rows(struct store *st, const struct store_row *rows, size_t n, bool durable);
/* As durable=false, but store_wait comes and hears whether they are in the store. */
uint64_t store_put_rows_awaited(struct store *st, const struct store_row *rows, size_t n);
/* Before the first write only; by key. */
int store_load_rows(struct store *st, const char *kind,
	int (*each)(void *arg, const char *key, const char *body, struct err *e), void *arg,
	struct err *e);
/* Commits, or waits until another has, the durable write of this ticket; -1 when it failed. Once a
 * ticket. */
int store_wait(struct store *st, uint64_t ticket, struct err *e);
/* After store_end_awaited, when there is time: the values of its environment leave the log a second after
 * the last commit. */
void store_look(struct store *st);

/* Before the first write only: every record in order of creation. `each` returning -1 stops. */
int store_load_sandboxes(struct store *st,
	int (*each)(void *arg, const struct store_sandbox *r, struct err *e), void *arg, struct err *e);
uint64_t store_commits(struct store *st); /* transactions so far */

#endif
