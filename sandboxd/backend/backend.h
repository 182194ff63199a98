/* SPDX-License-Identifier: MIT */
/* What the core asks of an execution layer. Two of these: linux (namespaces, through the broker) and
 * fake (real child processes in a folder, no isolation, no privilege). Only daemon.c names one.
 * Every function may be called from any thread, at the same time for different sandboxes. */
#ifndef SANDBOXD_BACKEND_BACKEND_H
#define SANDBOXD_BACKEND_BACKEND_H

#include "common/api/api.h"
#include "common/api/ids.h"
#include "common/base/err.h"
#include "sandboxd/proto/proto.h"

#include <stdbool.h>
#include <stdint.h>

struct backend_conf {
	int state_dirfd;           /* 0700, ours */
	const char *state_dir;     /* for messages and for the broker, absolute */
	const char *libexec_dir;   /* where sbx-shim, sbx-init, sbx-worker are */
	int broker_fd;             /* socket to sbx-priv; -1 for fake */
	const char *disk_provider; /* NULL: the first that works */
};
/* What a root is made of, top first: numbers of the layer store (core/layers.h). The kernel takes 500
 * below one overlay; an OCI image has at most 127. */
#define BACKEND_CHAIN_MAX 200
struct backend_chain {
	uint32_t n;
	uint32_t layers[BACKEND_CHAIN_MAX];
};
#define BACKEND_VOLUMES_MAX 8
#define BACKEND_PATH_MAX    256
struct backend_volume {
	uint32_t num;              /* volume's number, as volume_make took it */
	bool read_only;
	char path[BACKEND_PATH_MAX]; /* in the guest; checked by core/volumes.c (node contract, 18.3) */
};
enum backend_layer_kind {
	LAYER_ROOTFS,              /* a tar of a whole root, made by our own scripts */
	LAYER_OCI,                 /* one layer of an image: compressed or not, with .wh. entries */
	LAYER_FINISH,              /* no archive: what every sandbox needs, on top of an image's layers */
};
/* Figures since the start of the sandbox, measured on the host (19); -1: could not be read. */
struct backend_meter {
	int64_t cpu_ns, memory_bytes, memory_limit_bytes, disk_read_bytes, disk_write_bytes,
		processes; /* 0: cannot be seen */
};
/* What the front holds of a running guest, so that it can end one without asking anybody: its control
 * group's cgroup.kill and cgroup.events. -1 both: the host has none, or the backend; then there is `destroy`. */
struct backend_grip {
	int kill, events;
};
#define BACKEND_GRIP_NULL ((struct backend_grip){ -1, -1 })
void backend_grip_close(struct backend_grip *g);
/* Kills every process of the guest; returns at once. */
void backend_grip_kill(const struct backend_grip *g);
/* True when no guest process runs any more; false: not by then, or nobody can say. */
bool backend_grip_gone(const struct backend_grip *g, int timeout_ms);
struct backend_spec {
	char id[SBX_ID_MAX];
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
	const char *image;         /* as asked, or the default; for messages, and for fake the root */
	const struct backend_chain *chain; /* linux: the root; fake: NULL */
	const struct backend_volume *volumes;
	size_t nvolumes;
	bool egress;               /* network mode is not none: run/<id>/egress answers too */
	const char *hostname;      /* name or id */
	double cpus;
	int64_t memory_mb, disk_mb;
	bool *was_ready;           /* NULL, or told: it had been made ahead */
	struct backend_grip *grip; /* NULL, or filled on success; the caller's to close */
	/* NULL, or something to do on the caller's thread while a create waits. May not be called. */
	void (*meanwhile)(void *arg);
	void *meanwhile_arg;
};
/* What the image says about processes; caller frees with free_strlist-like backend_image_free. */
struct backend_image {
	char **env; /* "K=V", NULL-terminated, HOME and USER already replaced */
};
#define BACKEND_POOLS_MAX     64
#define BACKEND_POOL_SIZE_MAX 32
struct backend_pool {
	unsigned ready, making;
};
struct backend;
struct backend_ops {
	const char *name;          /* "linux", "fake": shown as capabilities.backend */
	int (*open)(const struct backend_conf *conf, struct backend **ret, struct err *e);
	void (*close)(struct backend *b);
	/* Tries what the host can do by making one miniature sandbox; sets caps[] true where proven. */
	int (*probe)(struct backend *b, bool caps[CAP_COUNT], struct err *e);
	/* Makes a sandbox; on success <state>/run/<id>/sock answers hellos. On failure nothing stays.
	 * *cancel may be set by another thread (atomic): gives up early with conflict. */
	int (*create)(struct backend *b, const struct backend_spec *spec, const volatile int *cancel,
		struct err *e);
	/* Kills everything of a sandbox, whatever is left of it; idempotent. Returns when no guest
	 * process runs any more; disk and namespaces go in the background. */
	int (*destroy)(struct backend *b, const char *id, struct err *e);
	/* Is the runtime of this record still there (pid, start time, cgroup)? 1, 0, -1: nobody can say now, for
	 * lack of descriptors or memory (unavailable). *grip: NULL, or what is had of one that is, the caller's to
	 * close; without descriptors else. */
	int (*alive)(struct backend *b, const char *id, uint64_t generation, struct backend_grip *grip,
		struct err *e);
	/* Start-up: ends and removes everything whose id is not in keep[]. */
	int (*sweep)(struct backend *b, const char *const *keep, size_t n, struct err *e);
	/* Only where there is no layer_import: the backend knows its images itself. not_found. */
	int (*image_ensure)(struct backend *b, const char *image, struct backend_image *ret, struct err *e);
	/* The following are NULL where the backend cannot; then the capability is false. All are slow
	 * calls, idempotent, and crash-safe: after a kill -9 the record decides what exists. */
	/* Unpacks the archive behind fd (a regular file; its offset moves on) as layer `num`; FINISH: fd is
	 * -1 and `below` what lies below it. *bytes: its size on the disk; *covers: nothing of what lies
	 * below it can be seen. Nothing stays of a failure. */
	int (*layer_import)(struct backend *b, uint32_t num, enum backend_layer_kind kind,
		const struct backend_chain *below, int fd, int64_t *bytes, bool *covers,
		struct err *e);
	/* An import of it that is under way ends with a failure first. */
	int (*layer_drop)(struct backend *b, uint32_t num, struct err *e);
	/* Sandboxes of this shape (chain, sizes, egress) are likely to be asked for: some may be made ahead. */
	void (*expect)(struct backend *b, const struct backend_spec *shape);
	/* Before sweep: which layers and volumes have a record; sweep removes the others. */
	int (*keep_layers)(struct backend *b, const uint32_t *nums, size_t n, struct err *e);
	int (*keep_volumes)(struct backend *b, const uint32_t *nums, size_t n, struct err *e);
	/* The files of a running or suspended sandbox become layer `num` (disk snapshot, 16): frozen
	 * for the instant that it takes. The layer holds the sandbox's own changes; the chain below it
	 * is the sandbox's. */
	int (*snapshot)(struct backend *b, const char *id, uint32_t num, int64_t *bytes,
		struct err *e);
	/* Suspend and resume: returns when every process of the guest is frozen, or runs again. */
	int (*freeze)(struct backend *b, const char *id, bool on, struct err *e);
	int (*meter)(struct backend *b, const char *id, struct backend_meter *ret, struct err *e);
	uint32_t volume_num_max;   /* the largest number a volume may have, from 1 */
	int (*volume_make)(struct backend *b, uint32_t num, int64_t size_mb, struct err *e);
	int (*volume_drop)(struct backend *b, uint32_t num, struct err *e);
	/* Keeps `size` sandboxes of a shape ready (chain, sizes, egress: the rest of the spec is not
	 * looked at), for creates of that shape to take; `num` below BACKEND_POOLS_MAX names the pool, size 0
	 * ends it. Returns at once with what there is now; it is asked again and again. */
	int (*pool)(struct backend *b, unsigned num, const struct backend_spec *shape, unsigned size,
		struct backend_pool *ret, struct err *e);
	/* Bytes used of the sandbox's own disk, or of a volume (id NULL), and its size, where the file
	 * system's own figures are those of all of them together; unsupported: believe the file system. */
	int (*disk_usage)(struct backend *b, const char *id, uint32_t volume, int64_t *used,
		int64_t *size, struct err *e);
	/* Gives a running sandbox that was made without a network an egress process (PATCH network). */
	int (*egress_add)(struct backend *b, const char *id, const uint8_t secret[PROTO_SECRET_LEN],
		uint64_t generation, struct err *e);
	void (*capacity)(struct backend *b, double *cpus, int64_t *memory_mb, int64_t *disk_mb);
	/* Free bytes on the disk that holds the sandboxes. */
	int64_t (*disk_free_mb)(struct backend *b);
};
extern const struct backend_ops linux_backend, fake_backend;
void backend_image_free(struct backend_image *img);

#endif
