/* SPDX-License-Identifier: MIT */
/* The sandbox object and the registry that finds it. Reference counted: who finds one holds a
 * reference and drops it with sandbox_unref.
 * Locks, in this order: a sandbox's lock, then the registry's. Neither is held over a mount, a copy,
 * a wait or a call to a shim. The audit log's and the record store's locks come last and may be taken
 * under either; the core's queue and change counter too. */
#ifndef SANDBOXD_CORE_SANDBOX_H
#define SANDBOXD_CORE_SANDBOX_H

#include "common/api/api.h"
#include "common/api/ids.h"
#include "common/api/types.h"
#include "common/base/err.h"
#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/guest.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#define HASH_NONFATAL_OOM 1 /* a failed add leaves hh.tbl NULL instead of ending the program */
#ifndef HASH_FUNCTION
#define HASH_FUNCTION HASH_FNV /* the default one falls through its cases, which clang refuses */
#endif
#include <uthash.h>

struct core;
struct proc;
struct guestfs;
struct backend_image;
struct metrics;
struct export;
struct egress;

enum sandbox_state { SBX_PENDING, SBX_RUNNING, SBX_SUSPENDED, SBX_TERMINATED };
extern const char *const sandbox_state_words[];
/* In a record only: all of a create is done and its answer may have gone out, its event perhaps not. A record
 * that still says SBX_PENDING on the boot it was made in is of a create that was never answered. */
#define RECORD_LANDED 16

enum net_mode { NET_NONE, NET_ALLOWLIST, NET_OPEN };
struct net_policy {
	enum net_mode mode;
	struct strlist allow, deny; /* cleaned, sorted, unique */
};

struct sandbox_volume {
	char name[NAME_MAX_LEN + 1];
	struct backend_volume at;
};
/* A snapshot that is being taken, 16.4; started_ns is 0 when none is. */
struct taking {
	int64_t started_ns, bytes;
	bool scheduled, storing;
};

/* What is being done to a sandbox's processes while its state is still the old one (suspend.c). */
enum turn { TURN_NONE, TURN_SLEEP, TURN_WAKE };

/* An open tunnel; it is cut when the sandbox falls asleep or ends. The caller's, on its list while open. */
struct sandbox_tunnel {
	struct sandbox_tunnel *next;
	int client_fd, guest_fd;
};

struct sandbox {
	/* fixed after creation */
	char id[SBX_ID_MAX];
	struct core *core;
	char *image;
	double cpus;
	int64_t memory_mb, disk_mb;
	struct strmap env;         /* values: never shown */
	int64_t created_ns;        /* CLOCK_REALTIME */
	uint64_t seq;              /* order of creation */
	char **image_env;          /* "K=V", NULL-terminated */
	struct backend_chain chain; /* what its root is made of; n is 0 where the backend has no layers */
	struct sandbox_volume *volumes;
	size_t nvolumes;
	char from[SNP_ID_MAX];     /* the snapshot it was made from; "": none */
	int run_dirfd;             /* <state>/run/<id>: sock, spool files; -1: nothing was kept */
	unsigned refs;             /* atomic; the registry's count included */
	uint64_t version;          /* atomic; grows with every change of what sandbox_json shows */

	pthread_mutex_t lock;
	pthread_cond_t changed;    /* state, processes, output: broadcast on every change */
	/* under lock */
	enum sandbox_state state;
	bool ended;                /* terminated, and no process of it runs any more */
	bool end_failed;           /* terminated, but the backend could not end it: to be tried again */
	bool (*gone)(void *);      /* pending only: has the client of the create left? */
	void *gone_arg;
	char *name;                /* NULL: none */
	struct strmap labels;
	struct net_policy network;
	int64_t idle_timeout_secs, lifetime_secs;
	bool idle_suspend, idle_suspended;
	int64_t idle_since_ms;     /* CLOCK_MONOTONIC, 0 while in use */
	int64_t snapshot_every_secs, snapshot_keep; /* both 0: no schedule */
	int64_t snapshot_due_ms;   /* CLOCK_MONOTONIC */
	bool snapshot_queued;      /* the schedule's threads have it */
	struct taking taking;
	bool chain_held;           /* its layers are referenced for it, … */
	bool chain_leaving;        /* … until what is left of it is cleaned up */
	unsigned uses;             /* requests and streams under way that count as use */
	unsigned users;            /* calls that hold `guest`; it is freed when this falls to 0 */
	bool free_at_leave;        /* it has ended: the last user frees `guest` and `fs` */
	volatile int cancel;       /* atomic; asks a create under way to give up */
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
	enum turn turn;
	unsigned turns;            /* that are over */
	bool updating;             /* a PATCH is putting a network policy in force */
	struct err turn_err;       /* of the last one; code 0: it went well */
	struct sandbox_tunnel *tunnels;
	struct backend_grip grip;  /* what ends the guest, if the backend has that */
	struct guest *guest;       /* NULL unless running or suspended */
	struct guestfs *fs;        /* the same */
	struct egress *egress;     /* NULL: it has never had a network */
	struct proc *procs;        /* uthash by number; owned by proc.c */
	uint32_t next_num;
	unsigned running_procs;
	size_t argv_live, argv_kept; /* bytes of the arguments of running ones, of exited ones */
	struct export *metrics_export; /* NULL: none */
	struct metrics *metrics;   /* NULL until the first sample */
	char *text;                /* sandbox_json as text when text_version == version; else stale */
	uint64_t text_version;

	/* under the registry's lock; registry.c only */
	char reg_name[NAME_MAX_LEN + 1];
	bool reg_in, reg_live;
	bool reg_mounts; /* holds its volumes */
	UT_hash_handle hh_id, hh_name;

	/* under the core's queue lock: jobs that wait */
	bool end_queued, save_queued;
};

/* id first, then the live sandbox of that name, else the newest terminated one. not_found. */
int sandbox_find(struct core *c, const char *ref, struct sandbox **ret, struct err *e);
void sandbox_ref(struct sandbox *s);
void sandbox_unref(struct sandbox *s);
static inline void sandbox_unref_p(struct sandbox **s)
{
	if (*s)
		sandbox_unref(*s);
}

/* Every request that works inside a sandbox stands between these two. enter: conflict unless it is
 * running; wakes one that was put to sleep by its idle timeout first, when `use` is set, and a failure of
 * that is the answer; pins s->guest and s->fs until leave. `use` says whether it counts as use (10.1;
 * false for Sandbox-Background: 1). */
int sandbox_enter(struct sandbox *s, bool use, struct err *e);
void sandbox_leave(struct sandbox *s, bool use);
/* The hub's `gone`: the shim of this sandbox is dead. Only queues the end (reason "failed"). */
void sandbox_shim_gone(struct sandbox *s);
/* Marks a change of what sandbox_json shows and wakes those who watch the list. Any thread, any lock. */
void sandbox_changed(struct sandbox *s);
/* The same without waking who follows the list: core_changed has to come. */
void sandbox_outdated(struct sandbox *s);
/* An open stream counts as use for as long (29.2, 9), if the sandbox runs when it is opened; it neither
 * needs it to run nor wakes it. hold's answer goes to release. */
bool sandbox_hold(struct sandbox *s, bool use);
void sandbox_release(struct sandbox *s, bool held);
/* Between enter and leave: both ends may be shut down by another thread from here on. */
void sandbox_tunnel_open(struct sandbox *s, struct sandbox_tunnel *t);
void sandbox_tunnel_close(struct sandbox *s, struct sandbox_tunnel *t);

/* 8.3 from step 1 on; body is not kept. The client may leave: gone(arg) is asked now and then and
 * cancels. On success *ret is running and referenced. */
int sandbox_create(struct core *c, const struct create_body *body, bool (*gone)(void *), void *arg,
	struct sandbox **ret, struct err *e);
/* 8.6 from "state" on; all fields or none. The caller has refused a body without any field. */
int sandbox_update(struct sandbox *s, const struct update_body *body, bool background, struct err *e);
bool update_body_empty(const struct update_body *body);
/* 204 semantics: idempotent; when it returns no process of the sandbox runs and its record says so.
 * A pending one is cancelled and vanishes. reason: "request", "idle", "lifetime", "restart",
 * "failed". */
int sandbox_terminate(struct sandbox *s, const char *reason, struct err *e);
/* The same for one who is answered first: core_tell_ends has to come. */
int sandbox_end(struct sandbox *s, const char *reason, struct err *e);
/* 15, from "state" on. One that sleeps by its idle timeout is put to sleep for good. */
int sandbox_suspend(struct sandbox *s, struct err *e);
int sandbox_resume(struct sandbox *s, struct err *e);
json_t *sandbox_json(struct sandbox *s); /* 8.2; takes the lock itself; NULL: out of memory */
char *sandbox_text(struct sandbox *s);   /* the same as text, kept until it changes; caller frees */
struct files_statfs;
/* Puts right what the file system says of the disk behind a path (space.c). */
void sandbox_space(struct core *c, const struct sandbox *s, const char *path, struct files_statfs *st);

#endif
