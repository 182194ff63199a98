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
	const char *image_dir;     /* NAME.tar of images that may be installed by a create */
	int broker_fd;             /* socket to sbx-priv; -1 for fake */
	const char *disk_provider; /* NULL: the first that works */
};
struct backend_spec {
	char id[SBX_ID_MAX];
	uint64_t generation;
	uint8_t secret[PROTO_SECRET_LEN];
	const char *image;         /* as asked, or the default; must be installed or in image_dir */
	const char *hostname;      /* name or id */
	double cpus;
	int64_t memory_mb, disk_mb;
};
/* What the image says about processes; caller frees with free_strlist-like backend_image_free. */
struct backend_image {
	char **env; /* "K=V", NULL-terminated, HOME and USER already replaced */
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
	/* Is the runtime of this record still there (pid, start time, cgroup)? */
	bool (*alive)(struct backend *b, const char *id, uint64_t generation);
	/* Start-up: ends and removes everything whose id is not in keep[]. */
	int (*sweep)(struct backend *b, const char *const *keep, size_t n, struct err *e);
	/* Installed already, or installable from image_dir? not_found otherwise. Installs it. */
	int (*image_ensure)(struct backend *b, const char *image, struct backend_image *ret, struct err *e);
	void (*capacity)(struct backend *b, double *cpus, int64_t *memory_mb, int64_t *disk_mb);
	/* Free bytes on the disk that holds the sandboxes. */
	int64_t (*disk_free_mb)(struct backend *b);
};
extern const struct backend_ops linux_backend, fake_backend;
void backend_image_free(struct backend_image *img);

#endif
