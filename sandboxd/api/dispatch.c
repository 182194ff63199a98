/* SPDX-License-Identifier: MIT */
/* The way of every request: guard, capability, body, handler, answer. It is the only caller of
 * handlers and the only place where an error becomes an answer. */
#include "sandboxd/api/call.h"
#include "sandboxd/api/guard.h"
#include "sandboxd/api/server.h"
#include "sandboxd/api/tally.h"

#include "common/base/log.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SANDBOX_CONNECTIONS 128 /* node contract, 29.2 */

struct api {
	struct api_conf conf;
	pthread_rwlock_t lock;
	char *token; /* under lock */
	struct tally *tally;
};

struct frame {
	struct call call; /* first: a call is its frame */
	const struct handler *handler;
	struct api *api;
	bool raw_begun, complete;
	char counted[SBX_ID_MAX]; /* "": not */
	char *buf;
	size_t len, size;
};

int api_new(const struct api_conf *conf, struct api **ret, struct err *e)
{
	struct api *a = calloc(1, sizeof(*a));

	if (!a)
		return err_sys(e, ENOMEM, "api");
	a->conf = *conf;
	a->tally = tally_new(SANDBOX_CONNECTIONS);
	if (!a->tally) {
		free(a);
		return err_sys(e, ENOMEM, "api");
	}
	pthread_rwlock_init(&a->lock, NULL);
	*ret = a;
	return 0;
}

void api_free(struct api *a)
{
	if (!a)
		return;
	wipe_free(a->token);
	tally_free(a->tally);
	pthread_rwlock_destroy(&a->lock);
	free(a);
}

int api_set_token(struct api *a, const char *token, struct err *e)
{
	char *copy = token ? strdup(token) : NULL, *old;

	if (token && !copy)
		return err_sys(e, ENOMEM, "token");
	pthread_rwlock_wrlock(&a->lock);
	old = a->token;
	a->token = copy;
	pthread_rwlock_unlock(&a->lock);
	wipe_free(old);
	return 0;
}

static int check_token(struct api *a, struct http_req *r, struct err *e)
{
	int rc;

	pthread_rwlock_rdlock(&a->lock);
	rc = guard_token(r, a->token, e);
	pthread_rwlock_unlock(&a->lock);
	if (rc == 0)
		http_trust(r);
	return rc;
}

static bool has_cap(const struct core *core, enum cap cap)
{
	switch (cap) {
	case CAP_NONE:
		return true;
	case CAP_SNAPSHOT:
		return core_cap(core, CAP_MEMORY_SNAPSHOT) || core_cap(core, CAP_DISK_SNAPSHOT);
	default:
		return core_cap(core, cap);
	}
}

/* These look at their body before they say that they cannot (17, 18.2). */
static bool body_comes_first(enum route_id id)
{
	return id == ROUTE_schedule_put || id == ROUTE_volume_create;
}

static int check_cap(const struct core *core, const struct route *route, struct err *e)
{
	if (has_cap(core, route->cap) || body_comes_first(route->id))
		return 0;
	return err_set(
		e, ERR_UNSUPPORTED, "this server lacks the capability %s", cap_word(route->cap));
}

static void add_cors(struct http_req *r)
{
	http_add_header(r, "Access-Control-Allow-Origin", http_header(r, "Origin"));
	http_add_header(r, "Vary", "Origin");
}

static bool is_preflight(struct http_req *r)
{
	return !strcmp(http_method(r), "OPTIONS") &&
	       http_header(r, "Access-Control-Request-Method");
}

static void answer_preflight(struct http_req *r)
{
	http_add_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
	http_add_header(r, "Access-Control-Allow-Headers",
		"Authorization, Content-Type, Sandbox-Background, Range");
	http_add_header(r, "Access-Control-Max-Age", "600");
	http_reply(r, 204, NULL, "", 0);
}

/* Fills f->call.match and f->handler. Returns 1 when it has already answered. */
static int guard(struct api *a, struct frame *f, struct err *e)
{
	struct http_req *r = f->call.req;
	struct route_match *m = &f->call.match;
	bool cors, known;

	if (guard_origin(r, &a->conf.allowed_hosts, &a->conf.allowed_origins, &cors, e) < 0)
		return -1;
	if (cors)
		add_cors(r);
	if (cors && is_preflight(r)) {
		answer_preflight(r);
		return 1;
	}
	known = route_find(http_method(r), http_path(r), m);
	if (!(known && (m->route->flags & ROUTE_PUBLIC)) && check_token(a, r, e) < 0)
		return -1;
	if (!known)
		return err_set(e, ERR_NOT_FOUND, "no such route");
	f->handler = &handlers[m->route->id];
	if (guard_body(r, m->route, e) < 0 || guard_conditions(r, m->route, e) < 0)
		return -1;
	return check_cap(f->call.core, m->route, e);
}

/* What ends a sandbox or a process gets in always: those that take all places cannot keep it. */
static bool ends_something(enum route_id id)
{
	return id == ROUTE_sandbox_delete || id == ROUTE_process_signal;
}

/* Of a sandbox, whatever it is called by: it has a name and an id, and names change. */
static int count_in(struct frame *f, struct err *e)
{
	const char *ref = call_param(&f->call, "ref");
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;

	if (!ref || ends_something(f->call.match.route->id) ||
		sandbox_find(f->call.core, ref, &s, NULL) < 0)
		return 0;
	if (!tally_enter(f->api->tally, s->id))
		return err_set(e, ERR_UNAVAILABLE,
			"%d requests for this sandbox are under way already", SANDBOX_CONNECTIONS);
	memcpy(f->counted, s->id, sizeof(f->counted));
	return 0;
}

static int begin_raw(struct frame *f, struct err *e)
{
	if (f->call.match.route->body != BODY_RAW)
		return 0;
	/* The handler's counting comes first where there is one; this is the bound for all. */
	http_set_body_max(f->call.req, RAW_BODY_MAX);
	f->raw_begun = true;
	return f->handler->begin(&f->call, e);
}

static void on_begin(void *arg, struct http_req *r)
{
	struct api *a = arg;
	struct frame *f = calloc(1, sizeof(*f));
	struct err e = ERR_NULL;
	const char *bg = http_header(r, "Sandbox-Background");
	int rc;

	http_set_ctx(r, f);
	if (!f) {
		http_reply(r, 503, "text/plain", "out of memory\n", 14);
		return;
	}
	f->call.req = r;
	f->call.core = a->conf.core;
	f->call.background = bg && !strcmp(bg, "1");
	f->api = a;
	rc = guard(a, f, &e);
	if (rc == 0)
		rc = count_in(f, &e);
	if (rc == 0)
		rc = begin_raw(f, &e);
	if (rc < 0)
		reply_error(&f->call, &e);
}

static int json_grow(struct frame *f, size_t more, struct err *e)
{
	size_t size = f->size ? f->size : 4096;
	char *buf;

	while (size < f->len + more)
		size *= 2;
	if (size == f->size)
		return 0;
	buf = realloc(f->buf, size);
	if (!buf)
		return err_sys(e, ENOMEM, "request body");
	f->buf = buf;
	f->size = size;
	return 0;
}

static int take_data(struct frame *f, const void *buf, size_t len, struct err *e)
{
	if (f->call.match.route->body == BODY_RAW)
		return f->handler->data(&f->call, buf, len, e);
	if (f->len + len > JSON_BODY_MAX)
		return err_set(
			e, ERR_INVALID_REQUEST, "the body is larger than %d bytes", JSON_BODY_MAX);
	/* What nobody reads is not kept: strangers may send it, too. */
	if (f->call.match.route->body == BODY_JSON) {
		if (json_grow(f, len, e) < 0)
			return -1;
		memcpy(f->buf + f->len, buf, len);
	}
	f->len += len;
	return 0;
}

static void on_data(void *arg, struct http_req *r, const void *buf, size_t len)
{
	struct frame *f = http_ctx(r);
	struct err e = ERR_NULL;

	(void)arg;
	if (take_data(f, buf, len, &e) < 0)
		reply_error(&f->call, &e);
}

static int run_handler(struct frame *f, struct err *e)
{
	struct call *c = &f->call;

	if (c->match.route->body == BODY_JSON && json_parse_object(f->buf, f->len, &c->body, e) < 0)
		return -1;
	return f->handler->handle(c, e);
}

/* Followers of all events or of the list: they would use up every grace for nothing. */
static bool never_ends(struct call *c)
{
	const char *key = c->match.route->id == ROUTE_events_all     ? "follow"
			  : c->match.route->id == ROUTE_sandbox_list ? "watch"
								     : NULL;
	const char *value;
	size_t len;
	bool bad;

	if (!key)
		return false;
	value = http_query(c->req, key, 0, &len, &bad);
	return value && !strcmp(value, "1");
}

static void on_end(void *arg, struct http_req *r)
{
	struct frame *f = http_ctx(r);
	struct err e = ERR_NULL;

	(void)arg;
	if (run_handler(f, &e) == 0)
		f->complete = true;
	else if (!http_answered(r))
		reply_error(&f->call, &e);
	if (f->complete && never_ends(&f->call))
		http_cut_at_stop(r);
	if (!http_answered(r)) {
		err_set(&e, ERR_INTERNAL, "no answer was given");
		reply_error(&f->call, &e);
	}
}

static void on_gone(void *arg, struct http_req *r, bool complete)
{
	struct frame *f = http_ctx(r);

	(void)arg;
	(void)complete;
	if (!f)
		return;
	if (f->raw_begun)
		f->handler->drop(&f->call, f->complete);
	if (*f->counted)
		tally_leave(f->api->tally, f->counted);
	json_decref(f->call.body);
	if (f->buf)
		explicit_bzero(f->buf, f->len); /* values of environments pass here */
	free(f->buf);
	free(f);
}

struct http_app api_app(struct api *a)
{
	return (struct http_app){ a, on_begin, on_data, on_end, on_gone };
}
