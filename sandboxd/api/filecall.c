/* SPDX-License-Identifier: MIT */
/* What every request about files begins with: its path, its client, the stay inside the sandbox;
 * and what it leaves in the event log. */
#include "sandboxd/api/files.h"

#include "common/sys/fnv.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

int visit_begin(struct call *c, struct visit *ret, struct err *e)
{
	struct sandbox *s;

	if (call_sandbox(c, &s, e) < 0)
		return -1;
	if (sandbox_enter(s, call_use(c), e) < 0) {
		sandbox_unref(s);
		return -1;
	}
	*ret = (struct visit){ .s = s, .use = call_use(c), .core = c->core };
	return 0;
}

void visit_end(struct visit *v)
{
	if (!v->s)
		return;
	sandbox_leave(v->s, v->use);
	sandbox_unref(v->s);
	v->s = NULL;
}

int files_path(struct call *c, char out[GUEST_PATH_MAX], struct err *e)
{
	const char *v;
	size_t len;

	if (call_query(c, "path", &v, &len, e) < 0)
		return -1;
	if (!v)
		return err_set(e, ERR_INVALID_REQUEST, "path: missing");
	return guest_path_clean(v, len, "path", out, e);
}

int files_number(struct call *c, const char *key, uint64_t absent, uint64_t *ret, struct err *e)
{
	const char *v;
	char *end;
	size_t len;

	*ret = absent;
	if (call_query(c, key, &v, &len, e) < 0)
		return -1;
	if (!v)
		return 0;
	errno = 0;
	*ret = strtoull(v, &end, 10);
	if (!isdigit((unsigned char)*v) || *end || errno || *ret > INT64_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "%s: must be a number from 0 on", key);
	return 0;
}

int files_client(struct call *c, uint64_t *ret, struct err *e)
{
	const char *v = http_header(c->req, "Sbx-Client");
	uint64_t h;

	*ret = 0;
	if (!v || !*v)
		return 0;
	if (strlen(v) > 128)
		return err_set(e, ERR_INVALID_REQUEST, "Sbx-Client: at most 128 bytes");
	h = fnv64(FNV64, v, strlen(v));
	*ret = h ? h : 1;
	return 0;
}

void files_audit(struct core *core, const struct sandbox *s, const char *type, const char *path,
	uint64_t bytes)
{
	struct text t = TEXT_NULL;
	json_t *fields = NULL;

	if (!core_audit(core))
		return;
	text_add(&t, "{", 1);
	text_name(&t, "path", path, strlen(path));
	if (bytes)
		text_fmt(&t, ",\"bytes\":%llu", (unsigned long long)bytes);
	text_add(&t, "}", 1);
	if (!t.failed && json_parse_object(t.buf, t.len, &fields, NULL) == 0)
		audit_event(core_audit(core), type, s->id, fields);
	text_free(&t);
}

void files_log_done(
	void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	struct files_log *l = arg;
	char clean[GUEST_PATH_MAX];

	/* The path comes back from the worker: only a path goes into the log. */
	if (guest_path_clean(path, strlen(path), "path", clean, NULL) < 0)
		return;
	if (flags & FILES_REP_REMOVED)
		files_audit(l->core, l->s, "file.removed", clean, 0);
	if (written || (flags & FILES_REP_CREATED))
		files_audit(l->core, l->s, "file.written", clean, written);
	if (read)
		files_audit(l->core, l->s, "file.read", clean, read);
}
