/* SPDX-License-Identifier: MIT */
/* The broker's one thread: requests from the front, and jobs that go on meanwhile. A job is a
 * builder (or an idle one, kept for the next create), an image being unpacked, or a sandbox being
 * ended, frozen or thawed; each waits on one descriptor. */
#ifndef SANDBOXD_PRIV_BROKER_H
#define SANDBOXD_PRIV_BROKER_H

#include "sandboxd/priv/build.h"
#include "sandboxd/priv/claim.h"
#include "sandboxd/priv/layers.h"
#include "sandboxd/priv/works.h"

#include <stdbool.h>

#define BROKER_SPARES   4     /* sandboxes kept ready in the shape that was asked for last */
#define BROKER_SHAPES   3     /* shapes of which at least one is kept ready */
#define BROKER_BUILDING 3     /* of which so many are made at the same time */
#define BROKER_END_MS   10000 /* a killed sandbox that is not gone by then is an error */
/* The front may be hostile: what it can have at a time. More than an honest one ever needs. */
#define BROKER_ASKED_MAX   2048 /* jobs that a request waits for */
#define BROKER_BUILDS_MAX  256  /* builders at work */
#define BROKER_IMPORTS_MAX 64
#define BROKER_WAITERS_MAX 1024 /* for the end of one sandbox */

enum job_kind { JOB_BUILD, JOB_IMPORT, JOB_END, JOB_FREEZE, JOB_WORK };
enum build_step { STEP_PREPARING, STEP_REPORTED, STEP_SPARE };

struct waiter {
	struct waiter *next;
	uint64_t tag;
};
struct job {
	struct job *next;
	enum job_kind kind;
	int fd; /* socket to the child, a spare's boot pipe, or cgroup.events; -1:
		 * nothing to wait for */
	int pid, pidfd; /* the descriptor is what is believed */
	bool done; /* to be removed from the list */
	/* JOB_BUILD */
	enum build_step step;
	struct build_shape shape;
	struct claim claim;
	struct claim_from from;
	struct fail no_egress; /* the probe's */
	bool wanted; /* somebody waits for it: claim holds the request */
	bool probe;
	/* JOB_END, JOB_FREEZE; JOB_BUILD's id is in claim */
	char id[PRIV_ID_MAX]; /* "": it never had one */
	uint32_t block;
	bool has_block;  /* false: its record was lost, only the files are cleared away */
	bool guest_gone; /* no guest process runs; the shim and the worker may */
	bool was_gone;   /* none did when it was asked for: nothing is put off */
	int builder;     /* the socket of a builder that was killed at its work; -1: none */
	bool clearing;   /* the janitor has it */
	bool freeze;     /* JOB_FREEZE: or thaw */
	struct work work; /* JOB_WORK; without a pid it waits for its turn */
	bool sweep;
	int64_t since_ms;
	int64_t check_ms; /* when to look without having been called */
	int64_t rest_ms; /* when the shim and the worker are to be killed; 0: not put off */
	/* who waits, and what is answered */
	uint32_t op;
	uint64_t tag;        /* 0: nobody */
	struct waiter *more; /* JOB_END: others who asked for the same */
	unsigned nmore;
	uint32_t num;        /* JOB_IMPORT: of the layer */
	struct fail fail;
};
struct keep {
	struct keep *next;
	char id[PRIV_ID_MAX];
};
/* Sandboxes that are kept ready because the operator said so (pools.c). */
#define POOLS_MAX     64
#define POOL_SIZE_MAX 32
struct pool {
	struct build_shape shape;
	int size; /* 0: there is none */
	int64_t not_before_ms, wait_ms; /* after a failure */
};
struct usual {
	struct build_shape shape; /* without a chain: none */
	bool again;               /* asked for more than once */
};
struct broker {
	struct build_env env;
	struct pool pools[POOLS_MAX];
	int front;
	int janitor; /* socket to the process that clears away what has ended; -1: it died */
	int64_t janitor_ms; /* when another is tried next */
	enum { PHASE_SETUP, PHASE_RUN } phase;
	struct box_blocks blocks;
	struct usual usual[BROKER_SHAPES]; /* the last one asked for first */
	int64_t refill_ms;  /* when spares are made again; 0: now */
	struct keep *keep;
	uint32_t nkeep;
	struct keep_nums layers, volumes; /* that the coming sweep spares */
	struct job *jobs;
	uint64_t sweep_tag;
	int sweep_left;
	struct limited *limited; /* disks with snapshots, limits.c */
	int64_t limits_ms;       /* when they are looked at next */
	bool removed;    /* something of the pool, since it was reclaimed last */
	int64_t pool_left; /* free in it, bytes */
	int64_t pool_ms; /* when the pool is looked at next */
};

/* broker → janitor, and back when it is done */
struct janitor_job {
	char id[PRIV_ID_MAX];
	uint32_t block;
	uint32_t has_block;
};
/* Serves until the front closes its end; returns 0. */
int broker_run(struct broker *b);
void broker_answer(struct broker *b, uint32_t op, uint64_t tag, const struct fail *f,
	const struct priv_ans *body);
/* With the grip on a guest; -1 both: without. */
void broker_answer_grip(struct broker *b, uint32_t op, uint64_t tag, const struct priv_ans *body,
	const int grip[PRIV_GRIP_FDS]);
/* Opens it for the guest of this block. */
void broker_grip(const struct broker *b, uint32_t block, int grip[PRIV_GRIP_FDS]);
/* In a fork of the broker: closes what only the broker may hold. keep: one descriptor to spare. */
void broker_leave(struct broker *b, int keep);
struct job *broker_job(struct broker *b, enum job_kind kind);
/* The record of a sandbox that is not being ended; f says why there is none, or none just now. */
int broker_find(const struct broker *b, const char *id, struct record *ret, struct fail *f);
int64_t broker_now_ms(void);

/* ops, from ops.def */
#define OP(name, phase, fds, fn) void fn(struct broker *b, const struct priv_req *q, int fd);
#include "sandboxd/priv/ops.def"
#undef OP

/* shapes that are usual (usual.c) */
void usual_asked(struct broker *b, const struct build_shape *s);
/* Before anything was asked for. */
void usual_expect(struct broker *b, const struct build_shape *s);
bool usual_wants(const struct broker *b, const struct build_shape *s);
/* A shape of which one more is to be kept ready; NULL: none. */
const struct build_shape *usual_lacking(const struct broker *b);
void usual_failed(struct broker *b, const struct build_shape *s);
void usual_forget_layer(struct broker *b, uint32_t num);
/* pools (pools.c) */
bool pools_want(const struct broker *b, const struct build_shape *shape);
/* A shape of which one more is wanted now; NULL: none. */
const struct build_shape *pools_lacking(const struct broker *b);
void pools_result(struct broker *b, const struct build_shape *shape, bool made);
/* build jobs (creates.c) */
struct creates_count {
	int ready, building;
};
/* Spares of a shape. */
void creates_count(const struct broker *b, const struct build_shape *shape,
	struct creates_count *ret);
bool creates_same_shape(const struct build_shape *a, const struct build_shape *b);
void creates_shape_of(struct build_shape *s, const struct priv_req *q);
int creates_check_shape(const struct priv_req *q, struct fail *f);
void creates_event(struct broker *b, struct job *j);
void creates_refill(struct broker *b);
int creates_refill_ms(const struct broker *b); /* until it has something to do; -1: nothing is put off */
void creates_stop(struct broker *b); /* the broker ends: unclaimed sandboxes go */
/* Takes a request back that is still being built: the create fails, the sandbox becomes a spare. */
void creates_cancel(struct broker *b, const char *id);
bool creates_stand_on(const struct build_shape *s, uint32_t num);
/* This layer goes: no spare sandbox stands on it any more. */
void creates_forget_layer(struct broker *b, uint32_t num);
int creates_probe(struct broker *b, uint64_t tag);
/* ends (ends.c) */
/* The sandbox of this id, as its record says. */
void ends_start(struct broker *b, const char *id, uint32_t op, uint64_t tag, const struct fail *f);
/* What an unclaimed builder holds. */
void ends_block(struct broker *b, uint32_t block, int builder);
void ends_event(struct broker *b, struct job *j);
void ends_janitor_event(struct broker *b);
bool ends_has(const struct broker *b, const char *id); /* is it being ended? */
bool ends_waited_for(const struct broker *b);          /* somebody waits for a guest to end */
bool ends_pending(const struct broker *b);
void ends_check(struct broker *b);
/* suspend and resume (freeze.c) */
void freezes_event(struct broker *b, struct job *j);
void freezes_check(struct broker *b);
bool freezes_pending(const struct broker *b);
/* Stops a real process, which must be in the block's groups, and sets it going again. */
bool freezes_work(const struct broker *b, uint32_t block);
/* Can processor time and memory of the block's groups be read (meter.c)? */
bool meter_works(const struct broker *b, uint32_t block);
/* works.c */
void works_event(struct broker *b, struct job *j);
void works_stop(struct broker *b); /* the broker ends: what is half-made is swept */
void works_next(struct broker *b);                      /* starts what waits for its turn */
bool works_seal(const struct broker *b, const char *id); /* is a snapshot of it being taken? */
/* Is a snapshot becoming this layer, or what there is of it being removed? */
bool works_layer(const struct broker *b, uint32_t num);
/* The unpacker of this layer died: what it has left goes. */
void works_unmade(struct broker *b, uint32_t num);
/* Makes the pool grow when it is time, and says when to look again. */
void works_pool(struct broker *b);
int works_pool_ms(const struct broker *b);
/* limits.c */
void limits_find(struct broker *b);                  /* at start */
void limits_watch(struct broker *b, const char *id); /* it has been sealed */
void limits_check(struct broker *b);
int limits_ms(const struct broker *b);
/* With the sweep: what no record names and what is half-made goes. */
void works_sweep(struct broker *b);
/* janitor.c */
int janitor_start(struct broker *b, struct fail *f);
/* images (images.c) */
void images_event(struct broker *b, struct job *j);
bool images_has(const struct broker *b, uint32_t num); /* is this layer being unpacked? */
/* Ends the unpacking of this layer, or of all (0); who waits is told so. */
void images_stop(struct broker *b, uint32_t num);

#endif
