/* SPDX-License-Identifier: MIT */
/* The asking side of the broker's table: many threads ask at the same time over one socket, and
 * each gets the answer with its tag. */
#ifndef SANDBOXD_BACKEND_LINUX_ASK_H
#define SANDBOXD_BACKEND_LINUX_ASK_H

#include "common/base/err.h"
#include "sandboxd/priv/priv.h"

#include <pthread.h>
#include <stdbool.h>

struct ask;
/* Takes the socket over, on success; starts the thread that reads answers. */
int ask_new(int broker_fd, struct ask **ret, struct err *e);
/* No call may be under way. Closes the socket, which ends the broker. */
void ask_free(struct ask *a);
/* Fills magic and tag, sends, waits at most timeout_ms. fd: passed along, or -1. A broker that has
 * gone, or does not answer, is `unavailable`; a broker's own error becomes `internal` or what fits
 * its errno, with its sentence. */
int ask_call(struct ask *a, struct priv_req *q, int fd, int timeout_ms, struct priv_ans *ret,
	struct err *e);

/* At most so many descriptors come with an answer. */
#define ASK_FDS 2
/* The same in two halves, so that the asker can do something else while the broker works. What it
 * lies in stays where it is until ask_end, which must follow; at most timeout_ms are waited there.
 */
struct ask_call {
	struct ask_call *next;
	uint64_t tag;
	bool done;
	int sent; /* 0 or an errno */
	int fds[ASK_FDS];
	struct priv_ans ans;
	pthread_cond_t cond;
};
void ask_begin(struct ask *a, struct priv_req *q, int fd, struct ask_call *c);
int ask_end(struct ask *a, struct ask_call *c, int timeout_ms, struct priv_ans *ret, struct err *e);
/* And takes the descriptors that came with the answer; -1 where none did. */
int ask_end_fds(struct ask *a, struct ask_call *c, int timeout_ms, struct priv_ans *ret,
	int fds[ASK_FDS], struct err *e);

#endif
