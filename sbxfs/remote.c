/* SPDX-License-Identifier: MIT */
/* Requests to the server. When it cannot be reached the mount is "down": everyone gets EHOSTDOWN at
 * once, and one request at a time probes, with a pause that doubles from one to five seconds. */
#include "sbxfs/remote.h"

#include "common/json/json.h"
#include "common/sys/deadline.h"
#include "sbxfs/host.h"
#include "sbxfs/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META_TIMEOUT_MS 10000
#define PROBE_TIMEOUT_MS 2000
#define DOWN_FIRST_MS 1000
#define DOWN_MAX_MS 5000
#define ANSWER_MAX (64u * 1024 * 1024)
/* Runtimes interrupt threads all the time (SIGURG, SIGALRM): short operations finish. */
#define INTERRUPT_GRACE_MS 1000
#define LOOK_MS 100

bool remote_interrupted(const struct req *q)
{
	if (atomic_load(&q->m->stopping) && q->patient)
		return true;
	if (q->stop && atomic_load(q->stop))
		return true;
	if (!q->fr || !fuse_req_interrupted(q->fr))
		return false;
	if (!q->patient && now_ms() - q->start_ms <= INTERRUPT_GRACE_MS)
		return false;
	return host_is_signalled(q->pid);
}

static bool interrupted(void *arg)
{
	return remote_interrupted(*(struct req **)arg);
}

int remote_lock(struct req *q, pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock) == 0)
		return 0;
	session_sleeps();
	do {
		if (remote_interrupted(q))
			return refuse(q, EINTR, "interrupted");
	} while (!mutex_lock_ms(lock, LOOK_MS));
	return 0;
}

bool remote_is_down(struct mount *m)
{
	bool down;

	pthread_mutex_lock(&m->lock);
	down = m->down;
	pthread_mutex_unlock(&m->lock);
	return down;
}

void remote_reconnect(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	m->down_until_ms = 0;
	m->down_step_ms = DOWN_FIRST_MS;
	json_decref(m->caps);
	m->caps = NULL;
	pthread_mutex_unlock(&m->lock);
	mount_touch(m);
}

/* May this request go out? *ret_probe: it is the one that tries. */
static bool gate(struct mount *m, bool *ret_probe)
{
	bool ok = true;

	*ret_probe = false;
	pthread_mutex_lock(&m->lock);
	if (m->down) {
		ok = !m->probing && now_ms() >= m->down_until_ms;
		if (ok)
			m->probing = *ret_probe = true;
	}
	pthread_mutex_unlock(&m->lock);
	return ok;
}

static void went_down(struct mount *m)
{
	pthread_mutex_lock(&m->lock);
	if (!m->down)
		m->down_step_ms = DOWN_FIRST_MS;
	else if (m->down_step_ms < DOWN_MAX_MS)
		m->down_step_ms = m->down_step_ms * 2 > DOWN_MAX_MS ? DOWN_MAX_MS : m->down_step_ms * 2;
	m->down = true;
	m->down_until_ms = now_ms() + m->down_step_ms;
	pthread_mutex_unlock(&m->lock);
}

/* An answer came. A server that was away or that is another run than before: nothing cached counts. */
static void came_up(struct mount *m, const char *instance)
{
	bool changed;

	pthread_mutex_lock(&m->lock);
	changed = m->down;
	if (instance[0] && strcmp(m->instance, instance)) {
		changed |= m->instance[0] != '\0';
		(void)snprintf(m->instance, sizeof(m->instance), "%s", instance);
	}
	m->down = false;
	if (changed) {
		json_decref(m->caps);
		m->caps = NULL;
	}
	pthread_mutex_unlock(&m->lock);
	if (changed) {
		atomic_fetch_add(&m->stats.reconnects, 1);
		mount_touch(m);
	}
}

/* Tries with a small question: the request itself may be a stream that lasts for hours. */
static bool probe_server(struct mount *m)
{
	struct sbx_request r = { .method = "GET", .path = "/v1/health",
		.timeout_ms = mount_patience(m, PROBE_TIMEOUT_MS),
		.background = true };
	struct sbx_response resp = { 0 };
	struct sbx_error e = { .status = 0 };
	bool up = sbx_call(m->sbx, &r, &resp, &e) == 0 || e.status > 0;

	if (up)
		came_up(m, resp.instance);
	else
		went_down(m);
	sbx_response_free(&resp);
	pthread_mutex_lock(&m->lock);
	m->probing = false;
	pthread_mutex_unlock(&m->lock);
	return up;
}

/* The server's answer as an errno; table in sbxfs(1). */
static int errno_of(const struct req *q)
{
	const struct sbx_error *e = &q->err;

	if (e->status == 409 && e->sys == EBUSY && strstr(e->message, "read-only"))
		return EROFS;
	if (e->status == 409 && strstr(e->message, "terminated"))
		return ESTALE; /* the sandbox has ended under what is open or stands in it */
	if (e->status == 413)
		return EFBIG;
	if (e->status == 415)
		return EPROTO;
	return e->sys > 0 ? e->sys : EIO;
}

int remote_send(struct req *q, const char *method, char *path, struct sbx_request *r,
	struct sbx_response *ret)
{
	struct mount *m = q->m;
	struct req *self = q;
	struct timespec t0, t1;
	bool probe;
	int rc;

	if (!path)
		return -ENOMEM;
	if (!gate(m, &probe) || (probe && !probe_server(m))) {
		free(path);
		return refuse(q, EHOSTDOWN, "the server at %s does not answer", sbx_endpoint(m->sbx));
	}
	r->method = method;
	r->path = path;
	r->background = !q->acts && !q->uses && !m->opt.use_all;
	r->cancelled = interrupted;
	/* nobody reads it after sbx_call */
	if (!r->arg)
		r->arg = &self; /* cppcheck-suppress autoVariables */
	if (!r->timeout_ms)
		r->timeout_ms = q->patient ? -1 : META_TIMEOUT_MS;
	if (r->timeout_ms > 0)
		r->timeout_ms = mount_patience(m, r->timeout_ms);
	memset(&q->err, 0, sizeof(q->err));
	memset(ret, 0, sizeof(*ret));
	q->changes += strcmp(method, "GET") != 0;
	atomic_fetch_add(&m->stats.requests, 1);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	session_sleeps();
	rc = sbx_call(m->sbx, r, ret, &q->err);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	free(path);
	if (!r->on_data && !q->patient)
		atomic_store(&m->stats.rtt_us, (uint64_t)((t1.tv_sec - t0.tv_sec) * 1000000 +
			(t1.tv_nsec - t0.tv_nsec) / 1000));
	if (rc == 0)
		came_up(m, ret->instance);
	else if (q->err.status > 0)
		came_up(m, "");
	else if (q->aside)
		;
	else if (q->err.sys == EHOSTDOWN || q->err.sys == ETIMEDOUT || q->err.sys == ECONNREFUSED)
		went_down(m);
	if (rc == 0)
		return 0;
	atomic_fetch_add(&m->stats.failures, 1);
	return -errno_of(q);
}

int remote_call(struct req *q, const char *method, char *path, const void *body, size_t len,
	const char *type, struct sbx_response *ret)
{
	struct sbx_request r = { .body = body, .body_len = len, .body_type = type };

	return remote_send(q, method, path, &r, ret);
}

int remote_json(struct req *q, const char *method, char *path, json_t *body, json_t **ret)
{
	_cleanup_response_ struct sbx_response resp = { 0 };
	struct err e = ERR_NULL;
	char *text = NULL;
	int rc;

	if (body) {
		text = json_text(body);
		json_decref(body);
		if (!text) {
			free(path);
			return -ENOMEM;
		}
	}
	rc = remote_call(q, method, path, text, text ? strlen(text) : 0, NULL, &resp);
	free(text);
	if (rc < 0 || !ret)
		return rc;
	if (json_parse_any(resp.body ? resp.body : "", resp.len, ANSWER_MAX, ret, &e) < 0)
		return refuse(q, EPROTO, "the server's answer cannot be read: %s", e.msg);
	return 0;
}

static void caps_take(struct mount *m, json_t *body)
{
	json_t *flags = json_object_get(body, "capabilities");
	const char *inst = json_string_value(json_object_get(body, "instance"));

	pthread_mutex_lock(&m->lock);
	json_decref(m->caps);
	m->caps = json_incref(body);
	for (int c = 1; c < CAP_COUNT; c++)
		m->has_cap[c] = json_is_true(json_object_get(flags, cap_word((enum cap)c)));
	m->has_cap[CAP_SNAPSHOT] = m->has_cap[CAP_MEMORY_SNAPSHOT] || m->has_cap[CAP_DISK_SNAPSHOT];
	if (inst)
		(void)snprintf(m->instance, sizeof(m->instance), "%s", inst);
	pthread_mutex_unlock(&m->lock);
}

int remote_caps(struct req *q, json_t **ret)
{
	struct mount *m = q->m;
	json_t *body = NULL;
	int rc;

	pthread_mutex_lock(&m->lock);
	body = json_incref(m->caps);
	pthread_mutex_unlock(&m->lock);
	if (!body) {
		rc = remote_json(q, "GET", sbx_path("/v1/capabilities"), NULL, &body);
		if (rc < 0)
			return rc;
		if (!json_is_object(body)) {
			json_decref(body);
			return refuse(q, EPROTO, "the server's capabilities are not an object");
		}
		caps_take(m, body);
	}
	if (ret)
		*ret = body;
	else
		json_decref(body);
	return 0;
}

bool remote_has(struct req *q, enum cap c)
{
	struct sbx_error saved;
	bool has;

	if (c == CAP_NONE)
		return true;
	saved = q->err;
	(void)remote_caps(q, NULL);
	q->err = saved;
	pthread_mutex_lock(&q->m->lock);
	has = q->m->has_cap[c]; /* what it last had, while it is away */
	pthread_mutex_unlock(&q->m->lock);
	return has;
}

int remote_need(struct req *q, enum cap c, const char *what)
{
	int rc = remote_caps(q, NULL);

	if (rc < 0)
		return rc;
	if (remote_has(q, c))
		return 0;
	return refuse(q, EOPNOTSUPP, "this server cannot %s (capability %s)", what, cap_word(c));
}
