/* SPDX-License-Identifier: MIT */
/* The event log, 23: one JSON object a line, rotated, best effort; plus followers of new events. */
#ifndef SANDBOXD_CORE_AUDIT_H
#define SANDBOXD_CORE_AUDIT_H

#include "common/json/json.h"

#include <stdbool.h>
#include <stdint.h>

struct audit;
int audit_open(const char *path, struct audit **ret, struct err *e); /* makes its folder 0700 */
void audit_close(struct audit *a);
/* Adds `time`, `type`, `sandbox` to `fields` (taken, may be NULL) and appends. `a` may be NULL.
 * The zero-value rule (absent when empty or zero) is the caller's. Never fails the caller. */
void audit_event(struct audit *a, const char *type, const char *sandbox_id, json_t *fields);
/* Events of one sandbox, oldest first, the newest 5000 (23.1), as the log is when this is called, whatever
 * is written meanwhile. Fails when a part of it cannot be read; unavailable: no descriptor, no memory. */
int audit_read(struct audit *a, const char *sandbox_id, json_t **ret_events, bool *ret_truncated,
	struct err *e);
/* Events with a sequence number above `after`, as an array of {"seq":N,"event":{…}}, at most 512 at a
 * time; waits up to timeout_ms when there are none. A ring of the newest 4096 of this server run, or of fewer where
 * they have more than 16 MiB; `lost` when `after` is older than that, or is a number that no event of this run has
 * had yet (the array then starts with the oldest held). */
json_t *audit_follow(struct audit *a, uint64_t after, int timeout_ms, bool *ret_lost);
uint64_t audit_seq(struct audit *a); /* of the newest event; grows over restarts too */
/* The server stops: from now on audit_follow does not wait. */
void audit_wake(struct audit *a);

#endif
