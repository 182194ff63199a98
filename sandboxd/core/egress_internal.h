/* SPDX-License-Identifier: MIT */
/* One egress process as the front holds it; shared by egress.c (asking) and egress_watch.c
 * (reading). Locks: `turn` is held over a change of policy or a new start of the process, and the
 * sandbox's lock may be taken under it, never the other way. The watch's lock comes last. */
#ifndef SANDBOXD_CORE_EGRESS_INTERNAL_H
#define SANDBOXD_CORE_EGRESS_INTERNAL_H

#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/egress.h"

#define EGRESS_EVENT_MAX                                                                           \
	(sizeof(struct proto_frame) + sizeof(struct egress_refused) + EGRESS_NAME_MAX)

struct egress {
	struct egress *next; /* in its bucket */
	uint64_t key;        /* names it in the poll set: a pointer could be stale */
	struct egress_watch *watch;
	struct sandbox *s; /* outlives this */
	int run_dirfd;
	pthread_mutex_t turn;
	bool unsure; /* under turn: what is in force may not be what the sandbox has */
	/* under the watch's lock */
	int fd;                    /* EVENTS connection, -1: the process is lost */
	int64_t retry_ms, wait_ms; /* lost: when to try next */
	/* the watch's thread only, while it is the watch's current one; else under the lock */
	int64_t told_ms, unreported; /* the log's allowance was last filled; lines it had no room for */
	int tokens;
	size_t got;
	uint8_t in[EGRESS_EVENT_MAX];
};

/* Under `turn`: reaches the process, or has one started first, and puts p in force. 0 or -1. */
int egress_revive(struct egress *g, const struct net_policy *p, struct err *e);

int egress_watch_add(struct egress *g); /* 0 or -errno */
/* No event of it is under way afterwards. */
void egress_watch_remove(struct egress *g);
/* Takes the connection over (-1: mark it lost); waits until nothing is read from the one before. Not under the
 * sandbox's lock. */
void egress_watch_fd(struct egress *g, int fd);
void egress_watch_resolvers(struct egress_watch *w, struct egress_resolvers *ret);

#endif
