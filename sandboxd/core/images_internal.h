/* SPDX-License-Identifier: MIT */
/* What the files of the images share:
 *   images.c         the table and its records
 *   image_api.c      what the API shows and asks for
 *   image_use.c      who needs an image: creates, which wait for an install when there must be one
 *   image_install.c  one install, on a thread of its own: layers, a whole root
 *   image_fetch.c    and what comes from registries, archives and layouts
 *   image_local.c    files of the image folder
 *   oci.c            manifests and configurations, pure
 *   pull.c           the front's side of sbx-pull */
#ifndef SANDBOXD_CORE_IMAGES_INTERNAL_H
#define SANDBOXD_CORE_IMAGES_INTERNAL_H

#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/images.h"
#include "sandboxd/core/oci.h"

#include <sys/stat.h>

#define IMAGE_INSTALL_MS (60 * 60 * 1000) /* 24: at most one hour */

struct pull;

/* The file of the image folder that it was made from; all zero: it was pulled. */
struct image_stamp {
	uint64_t dev, ino, size;
	int64_t mtime_ns;
};
struct image_data {
	char *digest; /* "sha256:…", NULL: not known */
	int64_t bytes, installed_ns;
	struct backend_chain chain; /* referenced */
	char **env;
	struct image_stamp stamp;
};
enum image_phase { IMAGE_PULLING, IMAGE_BUILDING };

/* An install under way. Counted; the thread holds one. */
struct install {
	struct core *core;
	char *ref;
	char *known; /* digest of what is installed: nothing is fetched when the tag still says so
		      */
	bool known_local;                  /* and it came from a file */
	char *login_registry, *login_auth; /* NULL, or base64 of user:password; wiped */
	int64_t deadline_ms;               /* CLOCK_MONOTONIC */
	/* atomic, for who looks on */
	int phase, cancel;
	int64_t done, total;
	/* under the images' lock */
	unsigned refs;
	bool over, asked;   /* asked for by name, not only by a create */
	uint32_t importing; /* layer that is being unpacked, 0: none */
	int archive_fd;     /* its archive, -1: none; the offset tells how far it is */
	struct err err;     /* code 0: it went well, and: */
	bool same;          /* what is installed is what there is */
	struct image_data data;
};
struct image {
	UT_hash_handle hh;
	char *ref;
	bool installed;
	struct image_data data; /* while installed */
	struct install *job;    /* NULL: none; referenced */
	char *error;            /* of the last one that was asked for by name and failed */
	uint64_t failed_seq;
};
struct images {
	struct core *core;
	int dirfd; /* the image folder, -1: none */
	char *dir; /* its name, for messages */
	int state_dirfd;
	struct pull *pull; /* NULL: nothing is pulled */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* an install is over */
	/* under lock */
	struct image *all;
	struct install *jobs[256]; /* with a thread */
	size_t njobs;
	uint64_t failures;
	bool stop;
};

/* images.c; the lock is held for all of these */
struct image *image_find(struct images *s, const char *ref);
struct image *image_get(
	struct images *s, const char *ref);                /* makes an empty one; NULL: no memory */
void image_drop_empty(struct images *s, struct image *im); /* when nothing is left to say of it */
void image_free(struct images *s, struct image *im);       /* out of the table, too */
/* Chain and environment for a user; chain referenced once more. */
int image_data_use(
	struct core *c, const struct image_data *d, struct image_use *ret, struct err *e);
void image_data_clear(struct core *c, struct image_data *d);
/* Lock not held: the record, on the disk when it returns. */
int image_save(struct core *c, const char *ref, const struct image_data *d, struct err *e);

/* image_use.c; lock held */
/* The install of this image that is under way, or a new one; referenced for the caller. login NULL:
 * shared by all who ask. */
int install_begin(struct images *s, const char *ref, const struct registry_login_body *login,
	struct install **ret, struct err *e);
void install_unref(struct images *s, struct install *in);

/* image_install.c: the thread's work; fills in->data or `same`. */
int install_run(struct install *in, struct err *e);
/* Has it been cancelled, or has its hour passed? */
int install_check(const struct install *in, struct err *e);
void install_phase(struct install *in, enum image_phase phase, int64_t total);
/* Imports into a new layer, unless one of this key is there; it becomes the chain's top. */
int install_layer(struct install *in, enum backend_layer_kind kind, const char *key, int fd,
	struct backend_chain *chain, struct err *e);
/* The chain is whole. Takes env, which may be NULL for lack of memory. */
int install_done(struct install *in, const char *digest, char **env, struct err *e);
/* "sha256:…" of a whole file, and of what is in memory */
int install_digest(struct install *in, int fd, char ret[OCI_DIGEST_LEN], struct err *e);
void text_digest(const void *text, size_t len, char ret[OCI_DIGEST_LEN]);

/* image_fetch.c */
enum image_format { IMAGE_ROOTFS_TAR, IMAGE_OCI_TAR, IMAGE_DOCKER_TAR, IMAGE_OCI_DIR };
int fetch_remote(struct install *in, struct err *e);
int fetch_local(struct install *in, enum image_format format, int fd, struct err *e);

/* image_local.c */
bool image_local_word(const char *ref); /* could it be the name of a file there? */
/* Does the image folder hold one of this name? */
bool image_local_find(const struct images *s, const char *ref, struct image_stamp *stamp);
/* *ret_fd: opened for reading; not_found. */
int image_local_open(const struct images *s, const char *ref, enum image_format *format,
	int *ret_fd, struct image_stamp *stamp, struct err *e);
int image_local_missing(const struct images *s, const char *ref, struct err *e);
/* What processes of an image without a configuration get. */
char **image_default_env(void);

#endif
