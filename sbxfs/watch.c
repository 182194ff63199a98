/* SPDX-License-Identifier: MIT */
/* Follows GET /v1/sandboxes?watch=1. The lines are used as news only: which record is old now. The
 * records themselves are asked for when somebody wants them, so that this stream can be late, doubled
 * or cut without anybody seeing something wrong. */
#include "sbxfs/watch.h"

#include "sbxfs/belief.h"
#include "sbxfs/box.h"
#include "sbxfs/remote.h"
#include "sbxfs/text.h"

#include "common/json/json.h"
#include "common/sys/deadline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_MS 40000 /* the server says something every 15 s */
#define RETRY_MS 1000
#define LINE_MAX_BYTES (1024u * 1024)

struct watch {
	struct mount *m;
	pthread_t thread;
	bool started;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* the pause between two tries, cut short by the end */
};
struct sink {
	struct req *q; /* first: remote_send */
	struct watch *w;
	struct text line;
};

int watch_new(struct mount *m, struct watch **ret)
{

	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->m = m;
	pthread_mutex_init(&(*ret)->lock, NULL);
	pthread_cond_init(&(*ret)->cond, NULL);
	return 0;
}

/* Counted already. `entry`: as belief_told. */
static void told(struct mount *m, const char *id, const char *entry)
{
	belief_told(m, id, entry);
	if (!entry[0])
		box_ended(m, id);
}

void watch_line(struct mount *m, const char *line, size_t len)
{
	const char *op, *id;
	struct err e = ERR_NULL;
	json_t *o, *box;

	if (json_parse_any(line, len, LINE_MAX_BYTES, &o, &e) < 0)
		return;
	op = json_string_value(json_object_get(o, "op"));
	box = json_object_get(o, "sandbox");
	id = box ? box_id(box) : json_string_value(json_object_get(o, "id"));
	if (op && !strcmp(op, "synced")) {
		atomic_fetch_add(&m->list_gen, 1);
		atomic_store(&m->watched, true);
		belief_end(m);
	} else if (op && !strcmp(op, "put") && box) {
		if (box_heard(m, box)) /* else our own change comes back */
			told(m, id, box_listed(box));
	} else if (op && (!strcmp(op, "put") || !strcmp(op, "gone"))) {
		if (atomic_load(&m->watched))
			atomic_fetch_add(&m->list_gen, 1);
		if (id)
			told(m, id, "");
		else
			belief_end(m);
	}
	json_decref(o);
}

static bool on_data(void *arg, const void *buf, size_t len)
{
	struct sink *s = arg;
	const char *p = buf, *end = p + len, *nl;

	while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
		txt_add(&s->line, p, (size_t)(nl - p));
		if (s->line.len)
			watch_line(s->w->m, s->line.p, s->line.len);
		s->line.len = 0;
		p = nl + 1;
	}
	if (s->line.len + (size_t)(end - p) > LINE_MAX_BYTES)
		return false;
	txt_add(&s->line, p, (size_t)(end - p));
	return !s->line.failed && !atomic_load(&s->w->stop);
}

static void follow(struct watch *w)
{
	struct req q = { .m = w->m, .op = "watch", .patient = true, .aside = true, .stop = &w->stop,
		.start_ms = now_ms() };
	struct sink s = { .q = &q, .w = w };
	struct sbx_request r = { .on_data = on_data, .arg = &s, .timeout_ms = SILENCE_MS };
	_cleanup_response_ struct sbx_response resp = { 0 };

	/* Whether a server is back is tried by those who want something of it. */
	if (!remote_is_down(w->m) && remote_has(&q, CAP_LIST_WATCH))
		(void)remote_send(&q, "GET", sbx_path("/v1/sandboxes?watch=1"), &r, &resp);
	atomic_store(&w->m->watched, false);
	belief_end(w->m);
	txt_fini(&s.line);
}

static void rest(struct watch *w)
{
	struct timespec until = deadline_ms(RETRY_MS);

	pthread_mutex_lock(&w->lock);
	while (!atomic_load(&w->stop) && cond_wait_until(&w->cond, &w->lock, &until))
		;
	pthread_mutex_unlock(&w->lock);
}

static void *run(void *arg)
{
	struct watch *w = arg;

	while (!atomic_load(&w->stop)) {
		follow(w);
		rest(w);
	}
	return NULL;
}

int watch_start(struct watch *w)
{
	int rc = pthread_create(&w->thread, NULL, run, w);

	w->started = rc == 0;
	return -rc;
}

void watch_stop(struct watch *w)
{
	if (!w || !w->started)
		return;
	pthread_mutex_lock(&w->lock);
	atomic_store(&w->stop, true);
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	w->started = false;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	watch_stop(w);
	pthread_cond_destroy(&w->cond);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
