/* SPDX-License-Identifier: MIT */
/* What the file handlers share: the stay inside a sandbox, names as JSON, attributes as JSON text.
 *
 * How names are shown (for the manual). A guest name is bytes; JSON is UTF-8. A name that is valid
 * UTF-8 is shown as it is. In any other name each byte that is not part of valid UTF-8 is shown as
 * U+FFFD followed by the byte's two hexadecimal digits in capitals ("bad<U+FFFD>FF"); a genuine
 * U+FFFD is always written so, as its three bytes. So two different names are never shown alike.
 * Whenever the text shown is not the name itself, `<key>_b64` holds the exact bytes. In a request
 * `path` takes percent-encoded bytes in a query, and `path_b64` exact bytes in a body. */
#ifndef SANDBOXD_API_FILES_H
#define SANDBOXD_API_FILES_H

#include "sandboxd/api/call.h"
#include "sandboxd/backend/guestfs.h"
#include "sandboxd/core/audit.h"

/* Between visit_begin and visit_end the sandbox runs and s->fs is pinned. */
struct visit {
	struct sandbox *s; /* referenced; NULL: not inside */
	bool use;
	struct core *core;
};
int visit_begin(struct call *c, struct visit *ret, struct err *e);
void visit_end(struct visit *v);
#define _cleanup_visit_ __attribute__((cleanup(visit_end)))

/* The query's `path`, cleaned. */
int files_path(struct call *c, char out[GUEST_PATH_MAX], struct err *e);
/* A query number from 0 to INT64_MAX; `absent` when it is not given. */
int files_number(struct call *c, const char *key, uint64_t absent, uint64_t *ret, struct err *e);
/* The owner of handles, from the header Sbx-Client; 0 without one. */
int files_client(struct call *c, uint64_t *ret, struct err *e);
/* Every fs request begins here: client, sandbox, and the events of handles that ended meanwhile. */
int files_enter(struct call *c, struct visit *v, uint64_t *client, struct err *e);
/* The path's {h}: digits only, as it was given out. */
int files_handle(struct call *c, uint64_t *ret, struct err *e);
/* file.read, file.written, file.removed; bytes absent when 0. */
void files_audit(struct core *core, const struct sandbox *s, const char *type, const char *path,
	uint64_t bytes);

/* The events of a handle that has ended, or of what a stream did: arg is a struct files_log. */
struct files_log {
	struct core *core;
	struct sandbox *s;
};
guestfs_done_fn files_log_done;

/* Growing text with a limit; after `failed` is set nothing more is added. */
struct text {
	char *buf;
	size_t len, room, max;
	bool failed;
};
#define TEXT_MAX (64u * 1024 * 1024)
#define TEXT_NULL                                                                                  \
	{                                                                                          \
		.max = TEXT_MAX                                                                    \
	}
void text_free(struct text *t);
void text_add(struct text *t, const char *s, size_t len);
void text_str(struct text *t, const char *s);
void text_fmt(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "key":"…" and, when needed, ,"key_b64":"…" */
void text_name(struct text *t, const char *key, const char *s, size_t len);
/* A JSON string of bytes by the rule above; true when it is the bytes themselves. */
bool filetext_json(struct text *t, const char *s, size_t len);
void text_b64(struct text *t, const void *buf, size_t len);
/* The members of Attr without braces. */
void text_attr(struct text *t, const struct files_attr *a, const char *target, size_t target_len);
void text_time(struct text *t, const struct files_time *tm);
/* {"code":…,"message":…,"errno"?:…} */
void text_error(struct text *t, const struct err *e, bool with_errno);
int reply_text(struct call *c, int status, struct text *t, struct err *e);

#endif
