/* SPDX-License-Identifier: MIT */
/* Logs: files that grow. Output is read by its offsets at the server; events are fetched whole. */
#include "sbxfs/feed.h"
#include "sbxfs/ops.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MS 100

static bool is_output(const struct inode *i)
{
	return i->node->parent == N_PROC;
}

/* One piece of a stream; its headers tell the size. */
static int output_get(struct req *q, const struct inode *i, uint64_t off, size_t len,
	struct sbx_response *ret)
{
	char range[80];
	const char *headers[] = { range, NULL };
	struct sbx_request r = { .headers = headers };
	int64_t pid;
	int rc = process_pid(q, i->box, i->arg, &pid);

	memset(ret, 0, sizeof(*ret));
	if (rc < 0 || !pid)
		return rc; /* a draft has no output */
	(void)snprintf(range, sizeof(range), "Range: bytes=%llu-%llu", (unsigned long long)off,
		(unsigned long long)off + len - 1);
	rc = remote_send(q, "GET",
		sbx_path("/v1/sandboxes/%s/processes/%lld/output/%s", i->box, (long long)pid, i->node->key),
		&r, ret);
	if (rc < 0 && q->err.status == 416) { /* behind the end */
		memset(&q->err, 0, sizeof(q->err));
		return 0;
	}
	return rc;
}

static void events_lines(const char *p, size_t len, struct text *t)
{
	const char *end = p + len, *nl;
	int64_t seq;

	for (; p && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1)
		event_line(p, (size_t)(nl - p), "", t, &seq);
}

/* The log of one sandbox, or of all, as one JSON object a line. */
static int events_fetch(struct req *q, const struct inode *i, struct text *t)
{
	json_t *body, *ev;
	size_t n;
	int rc;

	if (!i->box[0]) {
		_cleanup_response_ struct sbx_response resp = { 0 };

		rc = remote_call(q, "GET", sbx_path("/v1/events"), NULL, 0, NULL, &resp);
		if (rc == 0)
			events_lines(resp.body, resp.len, t);
		return rc;
	}
	rc = remote_json(q, "GET", sbx_path("/v1/sandboxes/%s/events", i->box), NULL, &body);
	if (rc < 0)
		return rc;
	json_array_foreach (json_object_get(body, "events"), n, ev)
		txt_json_line(t, ev);
	json_decref(body);
	return 0;
}

/* Under i->tree_lock: the text in i->data is young enough, or is fetched. Offsets stay true as long as
 * the server keeps its oldest event. */
static int events_fresh(struct req *q, struct inode *i)
{
	struct text t = TEXT_NULL;
	int rc;

	if (i->data && now_ms() - i->attr_ms < EVENTS_MS && i->attr_gen == atomic_load(&q->m->gen))
		return 0;
	i->attr_gen = atomic_load(&q->m->gen);
	rc = events_fetch(q, i, &t);
	if (rc == 0 && t.failed)
		rc = -ENOMEM;
	if (rc < 0) {
		txt_fini(&t);
		return rc;
	}
	if (!t.p)
		txt_add(&t, "", 0);
	free(i->data);
	i->data = t.p;
	i->size = t.len;
	i->attr_ms = now_ms();
	return 0;
}

int log_size(struct req *q, const struct inode *ci, uint64_t *ret, bool *ret_complete)
{
	struct inode *i = (struct inode *)(uintptr_t)ci;
	_cleanup_response_ struct sbx_response resp = { 0 };
	int rc;

	*ret = 0;
	*ret_complete = false;
	if (!is_output(i)) {
		pthread_mutex_lock(&i->tree_lock);
		rc = events_fresh(q, i);
		*ret = i->size;
		pthread_mutex_unlock(&i->tree_lock);
		return rc;
	}
	rc = output_get(q, i, 0, 1, &resp);
	if (rc == 0 && resp.size > 0)
		*ret = (uint64_t)resp.size;
	*ret_complete = rc == 0 && resp.complete == 1;
	return rc;
}

ssize_t log_read(struct req *q, struct inode *i, uint64_t off, char *buf, size_t size)
{
	_cleanup_response_ struct sbx_response resp = { 0 };
	size_t n = 0;
	int rc;

	if (!is_output(i)) {
		pthread_mutex_lock(&i->tree_lock);
		rc = events_fresh(q, i);
		if (rc == 0 && off < i->size) {
			n = i->size - off < size ? i->size - off : size;
			memcpy(buf, i->data + off, n);
		}
		pthread_mutex_unlock(&i->tree_lock);
		return rc < 0 ? rc : (ssize_t)n;
	}
	rc = output_get(q, i, off, size, &resp);
	if (rc < 0)
		return rc;
	n = resp.len < size ? resp.len : size;
	if (n)
		memcpy(buf, resp.body, n);
	return (ssize_t)n;
}
