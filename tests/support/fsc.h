/* SPDX-License-Identifier: MIT */
/* A client of sbx-fs/1 that hides nothing: frames out, frames in, with deadlines. What fails, fails
 * the test. */
#ifndef TESTS_SUPPORT_FSC_H
#define TESTS_SUPPORT_FSC_H

#include "sandboxd/backend/guestfs.h"

#include <stdbool.h>

struct fsc {
	int fd;
	uint64_t tag;
	/* pushes that have come, oldest first; taken with fsc_changed */
	struct fsc_change {
		uint64_t watch;
		uint32_t what;
		char name[256];
	} *changes;
	size_t nchanges;
	unsigned pushes;
};
struct fsc_answer {
	struct fs_frame f;
	struct files_rep rep;
	char *data; /* NUL behind its end; owned */
};
void fsc_init(struct fsc *c, int fd); /* fd is ours */
void fsc_fini(struct fsc *c);
struct fs_hello fsc_hello(struct fsc *c);
/* Sends a request; its tag. `client` of args does not count. */
uint64_t fsc_send(struct fsc *c, enum files_op op, const struct guestfs_args *a);
/* The next answer, whosever; pushes before it are kept. False at the end of the connection. */
bool fsc_recv(struct fsc *c, struct fsc_answer *ret);
void fsc_answer_free(struct fsc_answer *a);
#define _cleanup_fsc_ __attribute__((cleanup(fsc_answer_free)))
/* Sends and waits for its answer; the value. `ret` may be NULL. */
int64_t fsc_call(struct fsc *c, enum files_op op, const struct guestfs_args *a, struct fsc_answer *ret);
#define FSC(c, op, ...) fsc_call((c), (op), &(struct guestfs_args){ __VA_ARGS__ }, NULL)
/* Forgets what was pushed up to now. */
void fsc_forget(struct fsc *c);
/* Has this been pushed (any bit of what)? name NULL: any. */
bool fsc_changed(const struct fsc *c, uint64_t watch, const char *name, uint32_t what);
/* Reads pushes until it is so; fails after 10 s. */
void fsc_await(struct fsc *c, uint64_t watch, const char *name, uint32_t what);
/* True when the connection ends within ms. */
bool fsc_ended(struct fsc *c, int ms);

#endif
