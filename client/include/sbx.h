/* SPDX-License-Identifier: MIT */
/* libsbx: the Sandbox API v1 from C. Functions return 0, or -1 with *e filled. A `struct sbx` may
 * be used by many threads at once; each call takes a kept-alive connection from its pool. */
#ifndef SBX_H
#define SBX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SBX_API __attribute__((visibility("default")))

/* What went wrong. */
struct sbx_error {
	int status;    /* HTTP status of the answer; 0: there was no answer */
	int sys;       /* errno: the server's error.errno, else as sandbox-api(7) lists; EHOSTDOWN,
			  ETIMEDOUT, EINTR, EPROTO when there was no usable answer */
	bool sent;     /* no answer, and the request may have been carried out */
	char code[32]; /* "conflict"; "unreachable", "timeout", "interrupted", "protocol" here */
	char message[400]; /* printable: control bytes are escaped */
};

/* Where the server is. Zero members are taken from SBX_ENDPOINT, SBX_TOKEN or SBX_TOKEN_FILE,
 * SBX_CA, then from the server's defaults. Strings are copied. */
struct sbx_options {
	const char *endpoint;   /* unix:///path, https://host:port, http://127.0.0.1:port */
	const char *token_file; /* must not be readable by group or other */
	const char *ca_file;
	int connect_timeout_ms; /* 0: 5000 */
	int timeout_ms;         /* whole call without a body stream; 0: 30000; -1: none */
};
struct sbx;
SBX_API int sbx_open(const struct sbx_options *opt, struct sbx **ret, struct sbx_error *e);
SBX_API void sbx_close(struct sbx *s);
SBX_API const char *sbx_endpoint(const struct sbx *s);
SBX_API int sbx_reload_token(struct sbx *s, struct sbx_error *e); /* SIGHUP */

/* One request. `path` is raw (already encoded, with its query); sbx_path() builds one. */
struct sbx_request {
	const char *method, *path;
	const void *body;
	size_t body_len;
	const char *body_type;      /* NULL: application/json when there is a body */
	bool background;            /* sends Sandbox-Background: 1 */
	int timeout_ms;             /* 0: the handle's, -1: none */
	const char *const *headers; /* "Name: value", NULL-terminated, may be NULL */
	/* Asked about every 100 ms while it waits; true ends the call with EINTR. May be NULL. */
	bool (*cancelled)(void *arg);
	/* When given, a 2xx body goes here in pieces instead of into the response; false stops the
	 * call (which then succeeds). The timeout is then one of silence. */
	bool (*on_data)(void *arg, const void *buf, size_t len);
	void *arg;
	/* When given, the body is read from here instead: bytes, 0 at the end, -1 to give up.
	 * body_len > 0 announces its length; with 0 it is sent in chunks. */
	ssize_t (*on_read)(void *arg, void *buf, size_t max);
};
struct sbx_response {
	int status;
	char *body; /* NUL-terminated; sbx_response_free */
	size_t len;
	char etag[80], attr[1024]; /* ETag, Sbx-Attr */
	char instance[40];
	int64_t first_offset; /* Sbx-First-Offset, -1: absent */
	int64_t size;         /* Sbx-Size, -1: absent */
	int64_t complete;     /* Sbx-Complete: 1 no more will come, -1: absent */
};
/* A non-2xx answer is an error. Safe requests (GET, HEAD) that meet a dead kept-alive connection
 * are sent once more; nothing else ever is. */
SBX_API int sbx_call(
	struct sbx *s, const struct sbx_request *q, struct sbx_response *ret, struct sbx_error *e);
SBX_API void sbx_response_free(struct sbx_response *r);

/* "/v1/sandboxes/" + ref + "/files?path=" + path …: each %s argument is percent-encoded as one
 * segment or query value, %S (a query path) keeps slashes, %d and %lld are numbers. Caller frees;
 * NULL: out of memory. */
SBX_API char *sbx_path(const char *fmt, ...);

/* sbx-stream/1 and sbx-tunnel/1: *ret_fd is a blocking stream; over TLS a thread of the library
 * copies. Caller closes. */
SBX_API int sbx_upgrade(struct sbx *s, const char *path, const char *protocol, bool background,
	int *ret_fd, struct sbx_error *e);
#define SBX_FRAME_MAX 1048576
/* Frames of sbx-stream/1. read: 1 a frame (payload in buf, at least SBX_FRAME_MAX bytes), 0 the
 * end, -1 broken. */
SBX_API int sbx_frame_read(int fd, char *ret_type, void *buf, size_t *ret_len);
SBX_API int sbx_frame_write(int fd, char type, const void *buf, size_t len);

/* ---- Common calls ------------------------------------------------------------------------------
 * Plain structs over sbx_call, for programs that want a sandbox and not a protocol. What holds for
 * all of them:
 * - Any thread may call; several at once on one handle.
 * - `ref` is a sandbox's id or name. Strings and lists passed in are borrowed for the call only.
 * - 0, or -1 with *e filled; *ret is filled only on success. What the server lacks is an error with
 *   status 501, code "unsupported" and sys EOPNOTSUPP.
 * - Lists are one block: free() it; NULL when its count is 0. Members that the server left out are
 *   "", 0 or false. A value that is longer than its member, or of another type, is EPROTO.
 * - Times are RFC 3339 in UTC; *_mb counts MiB, *_secs seconds, *_bytes bytes.
 * - Calls that wait for work of the server (create, run, snapshot) have no time limit; the others
 *   have the handle's. */

/* Does this server offer a capability ("suspend", "volumes", ...)? An unknown name is false. */
SBX_API int sbx_capability(struct sbx *s, const char *name, bool *ret, struct sbx_error *e);

/* A sandbox as the server shows it. */
struct sbx_sandbox {
	char id[64];
	char name[64];  /* "" without one */
	char state[16]; /* "pending", "running", "suspended", "terminated" */
	char image[256];
	double cpus;
	int64_t memory_mb, disk_mb;
	int64_t idle_timeout_secs; /* 0: never */
	int64_t lifetime_secs;     /* 0: none */
	char created_at[40];
	char expires_at[40]; /* "" without a lifetime */
	char idle_action[16]; /* "terminate", "suspend" */
	bool idle_suspended;  /* asleep by its idle timeout: any use wakes it */
	char network[16];     /* mode: "none", "allowlist", "open" */
	int64_t snapshot_every_secs, snapshot_keep; /* 0: no schedule */
	bool snapshotting;    /* a snapshot is being taken */
};
/* A volume in a new sandbox. */
struct sbx_volume_mount {
	const char *name, *path; /* absolute, in the sandbox */
	bool read_only;
};
/* A login for the registry that the image of this create is pulled from. It is sent and forgotten. */
struct sbx_registry_login {
	const char *registry; /* host[:port] */
	const char *username, *password;
};
/* Where usage is pushed to. Header values are secrets: no call gives them back. */
struct sbx_metrics_export {
	const char *endpoint;       /* https://...; "" in an update stops it */
	int64_t interval_secs;      /* 0: the server's default */
	const char *const *headers; /* "Name=value", NULL-terminated; may be NULL */
};
/* What a new sandbox shall be. Zero members leave the choice to the server. */
struct sbx_spec {
	const char *name, *image;
	double cpus;
	int64_t memory_mb, disk_mb, idle_timeout_secs, lifetime_secs;
	const char *network;       /* mode: "none", "allowlist", "open"; NULL: the server's */
	const char *const *env;    /* "NAME=value", NULL-terminated */
	const char *const *labels; /* "key=value", NULL-terminated */
	const char *const *allow;  /* names that may be reached, NULL-terminated; NULL: the
				      server's list, an empty one: none (which is refused) */
	const char *const *deny;   /* names that may not; NULL: none */
	const char *idle_action;   /* "terminate", "suspend" */
	const char *snapshot_id;   /* begin with the files of this snapshot */
	int64_t snapshot_every_secs, snapshot_keep;
	const struct sbx_volume_mount *volumes;
	size_t n_volumes;
	const struct sbx_registry_login *registry_login;
	const struct sbx_metrics_export *metrics_export;
	int gpus;
};
/* Answers when the sandbox runs. `spec` may be NULL. Nothing remains of a create that fails. */
SBX_API int sbx_create(
	struct sbx *s, const struct sbx_spec *spec, struct sbx_sandbox *ret, struct sbx_error *e);
SBX_API int sbx_get(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e);
/* Newest first, ended ones too. `label` is "key=value" or NULL. */
SBX_API int sbx_list(struct sbx *s, const char *label, struct sbx_sandbox **ret, size_t *ret_n,
	struct sbx_error *e);
/* Ends the sandbox and discards its disk. Ending an ended one succeeds. */
SBX_API int sbx_delete(struct sbx *s, const char *ref, struct sbx_error *e);
/* "" takes the name away. */
SBX_API int sbx_rename(struct sbx *s, const char *ref, const char *name, struct sbx_error *e);

/* What to change; zero members stay as they are. */
struct sbx_update {
	const char *name;          /* "" takes it away */
	const char *const *labels; /* the whole set, NULL-terminated; an empty list clears it */
	int64_t idle_timeout_secs; /* -1: never, where the server allows that */
	const char *idle_action;
	int64_t lifetime_secs;     /* from its making; what is past ends it at once */
	/* The policy is replaced as a whole when one of these is given. */
	const char *network;
	const char *const *allow, *const *deny;
	const struct sbx_metrics_export *metrics_export;
};
/* One bad member and nothing changes. ret may be NULL. */
SBX_API int sbx_update(struct sbx *s, const char *ref, const struct sbx_update *u,
	struct sbx_sandbox *ret, struct sbx_error *e);
/* Freezes it with its memory, processes and files; refused (EBUSY) while a process runs. It stays so
 * until sbx_resume, its end or its lifetime. ret may be NULL in both. */
SBX_API int sbx_suspend(
	struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e);
SBX_API int sbx_resume(
	struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e);

/* A command. argv[0] is looked up on the sandbox's PATH; there is no shell. */
struct sbx_command {
	const char *const *argv; /* NULL-terminated */
	const char *const *env;  /* "NAME=value", over the sandbox's own; may be NULL */
	const char *cwd;         /* NULL: /sandbox/home */
	const void *input;       /* standard input */
	size_t input_len;        /* sbx_run: it ends after these; sbx_start: it stays open */
	int timeout_secs;        /* sbx_run only; 0: none */
	bool tty;                /* sbx_start only */
	int rows, cols;
};
struct sbx_result {
	int exit_code;   /* 128 + n after death by signal n, -1 after the timeout */
	char *out, *err; /* the first 8 MiB of each, NUL-terminated; may hold NULs */
	size_t out_len, err_len;
	bool truncated, timed_out;
};
/* Runs a command to its end. Without a timeout it waits for ever; a client that goes away takes the
 * command with it. sbx_result_free() what it gives. */
SBX_API int sbx_run(struct sbx *s, const char *ref, const struct sbx_command *c,
	struct sbx_result *ret, struct sbx_error *e);
SBX_API void sbx_result_free(struct sbx_result *r);
/* Starts a process that outlives the call. Its output: sbx_upgrade() of
 * "/v1/sandboxes/REF/processes/PID/attach" with "sbx-stream/1". */
SBX_API int sbx_start(struct sbx *s, const char *ref, const struct sbx_command *c, int64_t *ret_pid,
	struct sbx_error *e);
/* "INT", "TERM", "KILL" or "HUP", to the whole process group. */
SBX_API int sbx_signal(
	struct sbx *s, const char *ref, int64_t pid, const char *signal, struct sbx_error *e);
/* A file of the sandbox, at most 64 MiB. free() *ret; a NUL stands behind the content. */
SBX_API int sbx_file_get(struct sbx *s, const char *ref, const char *path, char **ret,
	size_t *ret_len, struct sbx_error *e);
/* Creates or replaces; makes missing folders. */
SBX_API int sbx_file_put(struct sbx *s, const char *ref, const char *path, const void *buf,
	size_t len, struct sbx_error *e);

/* ---- Snapshots and forks ----
 * A fork is sbx_create() with snapshot_id. */
struct sbx_snapshot {
	char id[64], sandbox[64], image[256];
	char kind[16]; /* "disk": the files; "memory": processes as well */
	bool scheduled;
	int64_t bytes; /* on the host */
	char created_at[40];
};
/* Answers when it is complete. The sandbox goes on; leaving early does not cancel it. */
SBX_API int sbx_snapshot_take(
	struct sbx *s, const char *ref, struct sbx_snapshot *ret, struct sbx_error *e);
/* All of the server, newest first. */
SBX_API int sbx_snapshot_list(
	struct sbx *s, struct sbx_snapshot **ret, size_t *ret_n, struct sbx_error *e);
/* Forks that were made from it stay. */
SBX_API int sbx_snapshot_delete(struct sbx *s, const char *id, struct sbx_error *e);
/* A snapshot each every_secs, of which the newest `keep` stay; 0, 0 stops. ret may be NULL. */
SBX_API int sbx_schedule(struct sbx *s, const char *ref, int64_t every_secs, int64_t keep,
	struct sbx_sandbox *ret, struct sbx_error *e);

/* ---- Volumes ---- */
struct sbx_volume {
	char name[64];
	int64_t size_mb;
	char created_at[40];
	char attached_to[64]; /* id of a sandbox that holds it; "": nobody */
};
/* size_mb 0: the server's default. ret may be NULL. */
SBX_API int sbx_volume_create(struct sbx *s, const char *name, int64_t size_mb,
	struct sbx_volume *ret, struct sbx_error *e);
SBX_API int sbx_volume_list(
	struct sbx *s, struct sbx_volume **ret, size_t *ret_n, struct sbx_error *e);
/* With its content; refused while a sandbox holds it. */
SBX_API int sbx_volume_delete(struct sbx *s, const char *name, struct sbx_error *e);

/* ---- Images ---- */
struct sbx_image {
	char image[256];
	char state[16];   /* "installed", "installing", "failed" */
	char digest[160]; /* "" where it is not known */
	int64_t bytes;
	char installed_at[40];
	int64_t in_use; /* live sandboxes made from it */
	bool is_default, pooled;
	char phase[16];      /* while installing: "pulling", "building" */
	int64_t done, total; /* of that phase; 0: not known */
	char error[512];     /* why it failed */
};
/* Begins an install and answers at once; sbx_image_list() tells how far it is. */
SBX_API int sbx_image_install(
	struct sbx *s, const char *image, struct sbx_image *ret, struct sbx_error *e);
SBX_API int sbx_image_list(
	struct sbx *s, struct sbx_image **ret, size_t *ret_n, struct sbx_error *e);
/* *ret_freed, which may be NULL: bytes that the disk got back. */
SBX_API int sbx_image_remove(
	struct sbx *s, const char *image, int64_t *ret_freed, struct sbx_error *e);

/* ---- Usage ---- */
struct sbx_sample {
	char time[40];
	double cpu_percent; /* 0 to 100, of the processors that it was given */
	int64_t memory_bytes, memory_limit_bytes;
	int64_t net_rx_bytes, net_tx_bytes, disk_read_bytes, disk_write_bytes; /* since its start */
	int64_t processes; /* 0: cannot be seen */
};
/* The last hour, oldest first; ret_interval_secs, which may be NULL: seconds between two. Does not
 * count as use. */
SBX_API int sbx_metrics(struct sbx *s, const char *ref, int64_t *ret_interval_secs,
	struct sbx_sample **ret, size_t *ret_n, struct sbx_error *e);

/* ---- The machine ---- */
struct sbx_resources {
	double cpus;
	int64_t memory_mb, disk_mb;
};
struct sbx_node {
	char node[40]; /* "" on a server of its own */
	char version[40];
	struct sbx_resources capacity, free;
	int64_t running;
	bool cordoned;
};
SBX_API int sbx_node_get(struct sbx *s, struct sbx_node *ret, struct sbx_error *e);
/* Cordoned: every create is refused until this is called with false. ret may be NULL. */
SBX_API int sbx_node_cordon(struct sbx *s, bool on, struct sbx_node *ret, struct sbx_error *e);

/* ---- Tunnels ----
 * A blocking stream socket that reaches 127.0.0.1:port in the sandbox; shutdown() ends one
 * direction. ENOENT while nobody listens there. Counts as use, and keeps the sandbox awake while it
 * is open. Caller closes. */
SBX_API int sbx_tunnel(
	struct sbx *s, const char *ref, int port, int *ret_fd, struct sbx_error *e);
/* Copies between two stream sockets, passing the end of each direction on, until both have ended or
 * one is broken; then both are shut down. It closes neither; a shutdown() of one from another thread
 * ends it. */
SBX_API void sbx_join(int a, int b);

/* ---- Files as frames ----
 * A blocking stream that speaks sbx-fs/1 (doc/sbx-fs.md) with the sandbox's file worker; the caller
 * says hello on it. `client` owns the handles that are opened on it, as the header Sbx-Client of the
 * plain file requests says; NULL: nobody. `background`: a sandbox that sleeps is left asleep, EBUSY.
 * EOPNOTSUPP where the server has no capability fs_stream. Caller closes. */
SBX_API int sbx_fs_connect(struct sbx *s, const char *ref, const char *client, bool background,
	int *ret_fd, struct sbx_error *e);

#ifdef __cplusplus
}
#endif
#endif
