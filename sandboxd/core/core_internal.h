/* SPDX-License-Identifier: MIT */
/* What the files of the core share. Not for others.
 * Locks, in the order of taking: sandbox.lock, registry.lock, then one of core.queue_lock,
 * core.change_lock, the store's, the audit log's. */
#ifndef SANDBOXD_CORE_CORE_INTERNAL_H
#define SANDBOXD_CORE_CORE_INTERNAL_H

#include "sandboxd/core/audit.h"
#include "sandboxd/core/core.h"
#include "sandboxd/core/registry.h"
#include "sandboxd/store/store.h"

#define ENDED_KEPT 100        /* 8.7: terminated ones that stay readable */
#define BOOT_ID_LEN 64

/* A sandbox that the background thread is to end, or to clean up after; holds a reference. */
struct end_job {
	struct end_job *next;
	struct sandbox *s;
	const char *reason;    /* NULL: a clean-up */
	/* clean-up only: */
	int64_t not_before_ms, wait_ms; /* wait_ms: before the next try */
	bool destroy; /* the backend has not been asked to take away what is left, or could not */
	bool again;   /* it could not */
	bool cleaned; /* but for: */
	bool record;  /* the end is not in the store yet */
	bool save;    /* not a clean-up: a change is not in the store yet */
	struct backend_grip grip; /* to be closed, which need not be waited for either */
};
struct core {
	/* fixed after core_open */
	const struct backend_ops *ops;
	struct backend *backend;
	const struct server_policy *policy;
	int run_dirfd;            /* <state>/run */
	unsigned spare_dirs;      /* atomic; sandbox.c */
	char node_id[NAME_MAX_LEN + 1];
	struct strmap node_labels;
	double capacity_cpus;
	int64_t capacity_memory_mb, capacity_disk_mb;
	bool keep;
	bool caps[CAP_COUNT];
	int64_t disk_free_mb;     /* atomic; as of the last tick */
	bool default_ready;       /* the default image is installed */
	char instance[40];
	char boot[BOOT_ID_LEN];
	struct store *store;
	struct audit *audit;
	struct guest_hub *hub;
	struct egress_watch *egress; /* NULL: this host gives sandboxes no network */
	struct layers *layers;
	struct images *images;
	struct pools *pools;
	struct snapshots *snapshots;
	struct volumes *volumes;
	struct schedule *schedule;
	struct registry reg;
	struct sampler *sampler;  /* NULL: nothing is measured */
	struct create_counts *creates;
	struct exporter *exporter; /* NULL: nothing is pushed */
	bool export_private;      /* to any address */
	uint64_t export_serial;   /* atomic */
	pthread_t ticker, reaper;
	bool ticking, reaping;

	pthread_mutex_t change_lock;
	pthread_cond_t change_cond;
	/* under change_lock */
	uint64_t changes;
	bool stopping;

	pthread_mutex_t queue_lock;
	pthread_cond_t queue_cond, stop_cond;
	bool ends_untold; /* atomic; see core_tell_ends */
	/* under queue_lock */
	struct end_job *jobs, **jobs_tail;
	struct end_job *rests;   /* clean-ups, in the order of their times */
	int64_t reaper_wakes_ms; /* it sleeps until then; 0: it is awake */
	bool stop;
};

/* sandbox.c: the layers of its root are needed from here on, by cleaning up only, and no more. hold, leave: lock
 * held. */
void sandbox_hold_chain(struct sandbox *s);
void sandbox_leave_chain(struct sandbox *s);
void sandbox_drop_chain(struct sandbox *s);

/* create.c */
/* Room for one more of these: unavailable when the host's disk is nearly full. */
int core_check_disk(struct core *c, const char *what, struct err *e);

/* sandbox.c */
void image_env_free(char **env);
int image_env_copy(char *const *env, char ***ret); /* NULL stays NULL */
json_t *image_env_json(char *const *env);          /* as records hold it */
int image_env_load(const json_t *a, char ***ret);
struct sandbox *sandbox_new(struct core *c, const char *id); /* one reference; NULL: no memory */
/* Copies what a record holds and hands it to the store; lock held. 0: out of memory. */
uint64_t sandbox_save(struct sandbox *s, bool durable);
/* Durable, and the caller goes to store_wait at once. */
uint64_t sandbox_save_awaited(struct sandbox *s);
/* The other way: fills a new sandbox. Unavailable: no descriptor, no memory; else the record cannot be
 * understood. */
int sandbox_load(struct core *c, const struct store_sandbox *r, struct sandbox **ret, struct err *e);
/* Folders of run/ that wait for their sandbox, made while nobody waits; any thread. */
#define RUN_SPARE ".spare"
void core_spare_dirs(struct core *c);
/* Makes and opens run/<id>; -1 with errno. */
int sandbox_make_run_dir(struct sandbox *s);
/* Removes what lies in run/<id>: all, or all but the processes' spools. False: nothing is left.
 * What cannot be opened is. */
bool sandbox_clean_run_dir(struct sandbox *s, bool all);

/* create.c: what sandbox.created says. Lock held, or nobody else knows the sandbox. */
json_t *created_event(const struct sandbox *s, bool pooled);

/* lifetime.c */
int lifetime_start(struct core *c, struct err *e); /* both threads */
void lifetime_stop(struct core *c);
void lifetime_end_later(struct sandbox *s, const char *reason);
/* The backend could not take away what is left of one that has ended: it is asked again. */
void lifetime_clean_up_later(struct sandbox *s);
/* For the record of a change that everybody sees already. When it cannot be written the caller is told, and it is
 * written later: a start must not find what was before. Lock not held. */
int lifetime_wait_saved(struct sandbox *s, uint64_t ticket, struct err *e);
/* Drops the terminated ones beyond ENDED_KEPT, records and folders too. No lock held. */
void lifetime_forget(struct core *c);
/* Last part of every end: frees guest and fs, now or with the last call that uses them. Lock not held,
 * state already set. */
void lifetime_free_guest(struct sandbox *s);

/* Its idle timeout is over. Lock held. */
bool lifetime_is_idle(const struct sandbox *s);

/* use.c; lock held */
bool use_now(const struct sandbox *s); /* a request, a stream or a process */
void use_cut_tunnels(struct sandbox *s);

/* suspend.c */
/* Lock held; given up while waiting. Waits for a turn under way, and wakes a sandbox that `use` may wake.
 * -1: that failed. Whatever its state is then, no turn is under way. */
int suspend_settle(struct sandbox *s, bool use, struct err *e);
/* Its idle timeout is over: puts it to sleep if that is what its idle action says, else false. */
bool suspend_idle(struct sandbox *s);

/* What is left of the capacity, never below zero (view.c). */
void core_free_amounts(struct core *c, double *cpus, int64_t *memory_mb, int64_t *disk_mb);

/* check.c: the fields of create and update, pure */
struct snapshot_use;
/* Steps 2 (but for the snapshot itself) to 7; `from`: what it is forked from, or NULL. */
int check_create(const struct core *c, const struct create_body *b, const struct snapshot_use *from,
	struct net_policy *ret_network, struct err *e);
int check_idle_timeout(const struct limits *l, int64_t secs, int64_t least, struct err *e);
int check_labels(const struct strmap *labels, struct err *e);
int check_network_mode(const struct core *c, enum net_mode mode, struct err *e);
int check_idle_action(const struct core *c, const char *action, struct err *e);

/* restore.c */
int restore_all(struct core *c, struct err *e);

#endif
