/* SPDX-License-Identifier: MIT */
/* Requests to the server: deadlines, interrupts, the state "down", errno by the table of the manual.
 * All give 0 or -errno and fill q->err. */
#ifndef SBXFS_REMOTE_H
#define SBXFS_REMOTE_H

#include "sbxfs/mount.h"

/* `path` is from sbx_path() and is freed here; NULL is out of memory. */
int remote_call(struct req *q, const char *method, char *path, const void *body, size_t len,
	const char *type, struct sbx_response *ret);
/* As above with more in the request: headers, timeout, sinks. method, path, background and
 * cancelled are set here; `arg` of the sinks must point to a struct whose first member is the req. */
int remote_send(struct req *q, const char *method, char *path, struct sbx_request *r,
	struct sbx_response *ret);
/* JSON both ways; `body` is taken and may be NULL, `ret` may be NULL. */
int remote_json(struct req *q, const char *method, char *path, json_t *body, json_t **ret);
/* Reads the capabilities when they are not known yet. */
int remote_caps(struct req *q, json_t **ret);
/* False also when the server cannot be asked. */
bool remote_has(struct req *q, enum cap c);
/* As remote_has, with -EOPNOTSUPP and the words. */
int remote_need(struct req *q, enum cap c, const char *what);
/* Does whoever waits want to wait no longer? */
bool remote_interrupted(const struct req *q);
/* Takes a lock that may be held for as long as a request lasts; -EINTR: who waits wants to wait no longer. */
int remote_lock(struct req *q, pthread_mutex_t *lock);
bool remote_is_down(struct mount *m);
/* Next request tries at once (ctl reconnect). */
void remote_reconnect(struct mount *m);

static inline void response_p(struct sbx_response *r)
{
	sbx_response_free(r);
}
#define _cleanup_response_ __attribute__((cleanup(response_p)))

#endif
