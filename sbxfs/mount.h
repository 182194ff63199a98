/* SPDX-License-Identifier: MIT */
/* The daemon behind one mount point, and one request of the kernel. Everything hangs off struct
 * mount; every function that may talk to the server gets the struct req it works for. */
#ifndef SBXFS_MOUNT_H
#define SBXFS_MOUNT_H

#define FUSE_USE_VERSION 312

#include "client/include/sbx.h"
#include "common/api/api.h"
#include "common/api/ids.h"

#include <fuse_lowlevel.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct inode;
struct handle;
struct inodes;
struct errlog;
struct boxes;
struct drafts;
struct procs;
struct pool;
struct feeds;
struct flusher;
struct watch;
struct ports;
struct snaps;
struct fs1;
struct lock_waits;
struct agains;
struct notifier;
struct listing;
struct walk;

enum ids_mode { IDS_RAW, IDS_MAP };
enum proto_mode { PROTO_HTTP, PROTO_AUTO };
enum cache_mode { CACHE_WATCH, CACHE_STRICT, CACHE_FIXED };
enum links_mode { LINKS_CONFINE, LINKS_REFUSE, LINKS_EXACT };

/* Written once, before the first thread. */
struct options {
	char *endpoint, *token_file, *ca_file, *mountpoint, *source;
	char *sbx;       /* absolute path of the sbx program, for bin/PROGRAM */
	char *ids_word, *links_word, *gid_word, *use_word, *proto_word, *cache_word, *locks_word;
	enum ids_mode ids;
	enum links_mode links;
	enum proto_mode proto;
	enum cache_mode cache;
	double cache_secs;
	uid_t owner;     /* who mounted */
	gid_t gid;       /* group that may use the mount; owner's own without has_gid */
	bool has_gid, use_all, locks_local;
	int foreground, debug, allow_other, show_help, show_version, max_threads, trace, read_only;
	int timeout; /* seconds that a request may take; 0: DEADLINE_SECS */
};

#define DEADLINE_SECS 10
#define OWN_MAX 128
#define BELIEFS 128
/* A name that the kernel may believe (belief.c). */
struct belief {
	fuse_ino_t dir;
	char name[128];
	char box[SBX_ID_MAX]; /* the sandbox that it leads to, or into */
	uint64_t until_ms; /* 0: none */
};

#define CHUNKS_MAX 64
#define CHUNK (1024u * 1024)

struct mount {
	struct options opt;
	struct sbx *sbx;
	struct fuse_session *se; /* NULL in tests without a kernel */
	struct inodes *inodes;
	struct errlog *errors;
	struct boxes *boxes;
	struct drafts *drafts;
	struct procs *procs;
	struct pool *pool;
	struct feeds *feeds;
	struct flusher *flusher;
	struct watch *watch;
	struct ports *ports;
	struct snaps *snaps;
	struct fs1 *fs1;
	struct lock_waits *lock_waits;
	struct agains *agains;
	struct walk *walk;
	struct notifier *notifier, *top_notifier;
	struct timespec started;
	char client[40]; /* names this mount to the server, so that its handles live */

	/* Every change that we make or hear of counts it up; what was cached under another number
	 * is fetched again. */
	atomic_uint_fast64_t gen;
	/* The same for changes that others make to the list of sandboxes; `watched`: we hear of them. */
	atomic_uint_fast64_t list_gen;
	atomic_bool watched;
	/* The same for what we change in guests' trees. */
	atomic_uint_fast64_t tree_changes;
	atomic_bool stopping, tracing, used;
	bool has_locks;       /* the kernel asks us for locks; fixed before it asks anything */
	atomic_uint closing;  /* files that are being closed */
	/* Names that an operation of ours changes right now, by a hash (trust_own); under the lock of
	 * the inodes. One that does not fit is only told once too often. */
	struct {
		uint64_t names[OWN_MAX];
		unsigned n;
	} own;
	/* Pieces of 1 MiB that read-ahead and late writes hold, at most CHUNKS_MAX. */
	atomic_uint chunks;
	atomic_uint changes; /* of names around the guests' trees, under way */
	atomic_uint_fast64_t climbed_ms; /* when somebody was told last of a link that climbs */
	/* How long a question about a name takes, smoothed. */
	atomic_uint_fast64_t ask_us;
	atomic_size_t inline_bytes; /* that came with opens, of all open files */
	/* Directories at one moment (listing.h). */
	struct {
		atomic_size_t entries; /* of all there are */
		pthread_mutex_t lock;
		pthread_cond_t came;          /* one that others wait for */
		struct listing *first, *last; /* those that directories keep */
		size_t kept;                  /* entries of these */
	} listings;

	struct {
		atomic_uint_fast64_t requests, failures, reconnects, parked, fuse_ops, bad_names,
			rtt_us, cache_hits, told;
	} stats;

	/* under lock */
	pthread_mutex_t lock;
	struct handle *handles; /* all that are open */
	json_t *caps;           /* body of GET /v1/capabilities; NULL: not read yet */
	bool has_cap[CAP_COUNT];
	char instance[40];
	struct belief beliefs[BELIEFS];
	bool down, probing;
	uint64_t down_until_ms, down_step_ms;
};

/* Another number after each change that we made or heard of. */
static inline uint64_t mount_news(const struct mount *m)
{
	return atomic_load(&m->gen) + atomic_load(&m->list_gen);
}

/* One request of the kernel, or of a thread of ours (fr NULL). */
struct req {
	struct mount *m;
	fuse_req_t fr;
	uid_t uid;
	gid_t gid;
	pid_t pid;
	uint64_t start_ms;
	bool acts;    /* changes something: counts as use of the sandbox */
	bool uses;    /* only looks, but at something that is there for that: counts, too */
	bool patient; /* may last by design: no deadline, ends at once when interrupted */
	unsigned changes, learned; /* sent to the server; of these: the answer is what there is to know */
	bool aside;   /* nobody waits for it: its failure does not make the mount "down" */
	const atomic_bool *stop; /* when given and true, the request is given up */
	const char *op;
	char box[SBX_ID_MAX];
	const struct inode *about; /* what it is about, with a name in it; valid until the answer */
	const char *about_name;
	char path[320];  /* the same for `error`, made when it is needed */
	struct sbx_error err; /* message empty: nothing to say */
};

uint64_t now_ms(void);            /* monotonic */
void mount_touch(struct mount *m); /* something changed: renderings are made anew */
/* A deadline as it is under the option timeout=, from what it is without. */
int mount_patience(const struct mount *m, int ms);

int mount_init(struct mount *m, const struct options *opt, struct sbx *sbx);
/* Ends streams, threads and collected writes; what was made stays readable. */
void mount_stop(struct mount *m);
void mount_fini(struct mount *m);

/* Says why in words and gives -sys, so that a node can `return refuse(q, EINVAL, "...")`. */
int refuse(struct req *q, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
