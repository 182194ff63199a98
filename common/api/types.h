/* SPDX-License-Identifier: MIT */
/* Request bodies as C structs, filled by the field tables in schemas.c. Field names are the wire's. */
#ifndef COMMON_API_TYPES_H
#define COMMON_API_TYPES_H

#include "common/json/schema.h"

struct network_body {
	char *mode;                 /* NULL or "": mode of the server's default */
	bool has_allow;             /* absent and null are the same: the default list */
	struct strlist allow;
	struct strlist deny;
	json_t *groups;             /* anything but absent is 400 on a plain server */
};
struct volume_mount_body { char *name; char *path; bool read_only; };
struct registry_login_body { char *registry, *username, *password; };
struct metrics_export_body {
	char *endpoint;
	int64_t interval_secs; bool has_interval_secs;
	struct strmap headers;
	json_t *header_secrets;
};

struct create_body { /* 8.3; zero or "" means not given */
	char *name, *image, *snapshot_id, *idle_action;
	double cpus;
	int64_t memory_mb, disk_mb, idle_timeout_secs, lifetime_secs;
	int64_t snapshot_every_secs, snapshot_keep, gpus;
	struct strmap env, labels;
	struct objlist volumes;     /* struct volume_mount_body */
	bool has_network, has_registry_login, has_metrics_export;
	struct network_body network;
	struct registry_login_body registry_login;
	struct metrics_export_body metrics_export;
};
struct update_body { /* 8.6 */
	bool has_name, has_labels, has_network, has_idle_timeout_secs, has_idle_action,
		has_lifetime_secs, has_metrics_export;
	char *name, *idle_action;
	struct strmap labels;
	struct network_body network;
	int64_t idle_timeout_secs, lifetime_secs;
	struct metrics_export_body metrics_export;
};
struct process_body { /* 11.1, run and processes */
	struct strlist argv;
	struct strmap env;
	char *cwd;
	bool has_stdin;
	struct blob stdin_data;     /* wire name "stdin" */
	int64_t timeout_secs;
	bool tty;
	int64_t rows, cols;
	char *name;                 /* addition process_names; refused on run */
};
struct signal_body { char *signal; };
struct cordon_body { bool cordoned; bool has_cordoned; };
struct schedule_body { int64_t every_secs, keep; };
struct volume_body { char *name; int64_t size_mb; };
struct image_body { char *image; };
struct fs_stat_body { struct strlist paths; bool follow; };
struct fs_open_body {
	char *path, *path_b64;
	struct strlist flags;
	uint32_t mode; bool has_mode;
	int64_t want_inline;        /* wire name "inline", at most 65536 */
};
struct fs_sync_body { bool data_only; };
struct fs_lock_body {
	char *type;
	int64_t offset, length, owner, who;
	bool flock, test;
};
struct fs_ops_body { json_t *ops; bool stop; bool has_stop; };

extern const struct field network_fields[], volume_mount_fields[], registry_login_fields[],
	metrics_export_fields[], create_fields[], update_fields[], process_fields[], signal_fields[],
	cordon_fields[], schedule_fields[], volume_fields[], image_fields[], fs_stat_fields[],
	fs_open_fields[], fs_sync_fields[], fs_lock_fields[], fs_ops_fields[];

#endif
