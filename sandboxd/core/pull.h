/* SPDX-License-Identifier: MIT */
/* The front's side of sbx-pull: one piece of work has a folder of its own, in which the front finds what
 * was fetched. Any thread. */
#ifndef SANDBOXD_CORE_PULL_H
#define SANDBOXD_CORE_PULL_H

#include "common/base/err.h"
#include "sandboxd/pull/pull.h"

#include <stdbool.h>

struct pull;
struct pull_work {
	uint32_t tag;
	int dirfd; /* pull/<tag> below the state directory */
};

/* Takes the socket over, on success. */
int pull_new(int fd, int state_dirfd, struct pull **ret, struct err *e);
void pull_free(struct pull *p); /* NULL is fine; no call may be under way; ends sbx-pull */

int pull_begin(struct pull *p, struct pull_work *ret, struct err *e);
void pull_end(struct pull *p, struct pull_work *w); /* the folder goes with all that is in it */
/* For what is asked of this work from here on. auth: base64 of user:password. */
int pull_login(const struct pull_work *w, const char *registry, const char *auth, struct err *e);
/* tick(arg) is asked often; -1 (with *e filled) cancels. */
int pull_run(struct pull *p, const struct pull_work *w, enum pull_op op, enum pull_source source,
	const char *ref, int (*tick)(void *arg, struct err *e), void *arg, struct err *e);

#endif
