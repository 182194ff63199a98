/* SPDX-License-Identifier: MIT */
/* Scheduled snapshots (node contract, 17): a sandbox whose time has come is queued by the tick, and two
 * threads take what is queued, so that no more than two are under way on the host. The interval runs from
 * the end of one attempt, by the monotonic clock. */
#ifndef SANDBOXD_CORE_SCHEDULE_H
#define SANDBOXD_CORE_SCHEDULE_H

#include "common/api/types.h"
#include "sandboxd/core/sandbox.h"

struct schedule;

int schedule_open(struct core *c, struct schedule **ret, struct err *e);
void schedule_close(struct schedule *p); /* waits for those under way */

/* The limits alone: 400. Without snapshots nothing is asked; that is answered later, as unsupported. */
int schedule_check(const struct core *c, int64_t every, int64_t keep, struct err *e);
/* PUT …/snapshot-schedule behind that: 409, 501, 409, then it holds. */
int schedule_set(struct sandbox *s, const struct schedule_body *b, bool use, struct err *e);

/* Lock held: the next one is a whole interval away. */
void schedule_arm(struct sandbox *s);
/* Lock held, each second. */
void schedule_look(struct sandbox *s);

#endif
