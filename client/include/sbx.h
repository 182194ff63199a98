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
 * Plain structs over sbx_call, for programs that want a sandbox and not a protocol. `ref` is a
 * sandbox's id or name everywhere. Strings passed in are borrowed for the call only. */

/* A sandbox as the server shows it. Values longer than their member are an EPROTO error. */
struct sbx_sandbox {
	char id[64];
	char name[64];  /* "" without one */
	char state[16]; /* "pending", "running", "suspended", "terminated" */
	char image[256];
	double cpus;
	int64_t memory_mb, disk_mb;
	int64_t idle_timeout_secs; /* 0: never */
	int64_t lifetime_secs;     /* 0: none */
	char created_at[40];       /* RFC 3339 */
};
/* What a new sandbox shall be. Zero members leave the choice to the server. */
struct sbx_spec {
	const char *name, *image;
	double cpus;
	int64_t memory_mb, disk_mb, idle_timeout_secs, lifetime_secs;
	const char *network;       /* "none", "allowlist", "open" */
	const char *const *env;    /* "NAME=value", NULL-terminated */
	const char *const *labels; /* "key=value", NULL-terminated */
};
/* Answers when the sandbox runs. `spec` may be NULL. Waits as long as the server takes. */
SBX_API int sbx_create(
	struct sbx *s, const struct sbx_spec *spec, struct sbx_sandbox *ret, struct sbx_error *e);
SBX_API int sbx_get(struct sbx *s, const char *ref, struct sbx_sandbox *ret, struct sbx_error *e);
/* Newest first. `label` is "key=value" or NULL. free() the list; it is NULL when n is 0. */
SBX_API int sbx_list(struct sbx *s, const char *label, struct sbx_sandbox **ret, size_t *ret_n,
	struct sbx_error *e);
/* Ends the sandbox and discards its disk. Ending an ended one succeeds. */
SBX_API int sbx_delete(struct sbx *s, const char *ref, struct sbx_error *e);
/* "" takes the name away. */
SBX_API int sbx_rename(struct sbx *s, const char *ref, const char *name, struct sbx_error *e);

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
 * command with it. */
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

#ifdef __cplusplus
}
#endif
#endif
