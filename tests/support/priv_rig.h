/* SPDX-License-Identifier: MIT */
/* A real broker, and a test in the place of the front: it says what it likes over the socket that the
 * broker was born with. The state directory lies beside a folder of canaries, so that whatever is
 * touched outside is seen. */
#ifndef TESTS_SUPPORT_PRIV_RIG_H
#define TESTS_SUPPORT_PRIV_RIG_H

#include "sandboxd/priv/priv.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PRIV_RIG_FRONT 61234u  /* the front's user and group */
#define PRIV_RIG_LAYER 900001u /* the base image */

struct priv_rig {
	char dir[64]; /* holds state/, canary/ */
	int state_dirfd, canary_dirfd;
	pid_t broker;
	int fd; /* to the broker */
	uint64_t tag;
	const char *trace; /* file for strace's log of the broker; NULL: none */
};
/* Sentence why this cannot run here, or NULL. */
const char *priv_rig_missing(void);
void priv_rig_open(struct priv_rig *r);
/* Closes our end, waits for the broker's, looks that nothing of it is left, removes the folder. */
void priv_rig_close(struct priv_rig *r);
/* kill -9, and another one on the same folder. */
void priv_rig_restart(struct priv_rig *r);
/* Closes our end, as a front that has ended; without sandboxes no control group may be left. Then another one. */
void priv_rig_again(struct priv_rig *r);
/* SWEEP, then the base image as layer PRIV_RIG_LAYER, unless it is there. */
void priv_rig_ready(struct priv_rig *r);

/* A request that is right in itself: for CREATE, EXPECT and POOL a shape on the base image. */
struct priv_req priv_rig_req(uint32_t op, const char *id);
int priv_rig_send(struct priv_rig *r, const void *buf, size_t len, const int *fds, size_t nfds);
/* The next answer, whosever; false: none in ms. */
bool priv_rig_next(struct priv_rig *r, struct priv_ans *ret, int ms);
/* Sends and waits for the answer with its tag; others are dropped. Its errno, or -1: no answer. */
int priv_rig_ask(struct priv_rig *r, struct priv_req *q, const int *fds, size_t nfds);
/* run/<id>, as the front makes it before a CREATE. */
void priv_rig_run_dir(struct priv_rig *r, const char *id);
/* Makes a sandbox, asserts that it stands. */
void priv_rig_box(struct priv_rig *r, const char *id);

bool priv_rig_alive(struct priv_rig *r); /* the broker still is that process */
unsigned priv_rig_fds(struct priv_rig *r);
long priv_rig_rss_kib(struct priv_rig *r);
/* Everything below canary/, with sizes, owners, times and content: one number. */
uint64_t priv_rig_canaries(struct priv_rig *r);

#endif
