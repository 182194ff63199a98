/* SPDX-License-Identifier: MIT */
/* Refusals in words, a ring for each of the last users. */
#include "sbxfs/errlog.h"

#include "common/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USERS_MAX 64
#define KEPT 64

struct entry {
	time_t when;
	int sys, status;
	char op[16], path[320], box[SBX_ID_MAX], code[32], message[400];
};
struct user {
	uid_t uid;
	uint64_t used;
	size_t n; /* entries ever made; the newest is at (n - 1) % KEPT */
	struct entry *ring;
};
struct errlog {
	pthread_mutex_t lock;
	uint64_t clock;
	struct user users[USERS_MAX];
};

int errlog_new(struct errlog **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void errlog_free(struct errlog *l)
{
	if (!l)
		return;
	for (size_t n = 0; n < USERS_MAX; n++)
		free(l->users[n].ring);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static struct user *user_find(struct errlog *l, uid_t uid)
{
	for (size_t n = 0; n < USERS_MAX; n++)
		if (l->users[n].ring && l->users[n].uid == uid)
			return &l->users[n];
	return NULL;
}

static struct user *user_make(struct errlog *l, uid_t uid)
{
	struct user *u = user_find(l, uid), *old = &l->users[0];

	if (u)
		return u;
	for (size_t n = 1; n < USERS_MAX; n++)
		if (l->users[n].used < old->used)
			old = &l->users[n];
	if (!old->ring)
		old->ring = calloc(KEPT, sizeof(struct entry));
	old->uid = uid;
	old->n = 0;
	return old->ring ? old : NULL;
}

const char *errno_word(int sys)
{
	const char *w = err_errno_name(sys);

	return w ? w : strerrorname_np(sys) ? strerrorname_np(sys) : "error";
}

void errlog_note(struct errlog *l, const struct req *q, int sys)
{
	struct entry *e;
	struct user *u;

	if (!q->err.message[0])
		return;
	pthread_mutex_lock(&l->lock);
	u = user_make(l, q->uid);
	if (u) {
		u->used = ++l->clock;
		e = &u->ring[u->n++ % KEPT];
		e->when = time(NULL);
		e->sys = sys;
		e->status = q->err.status;
		(void)snprintf(e->op, sizeof(e->op), "%s", q->op ? q->op : "");
		(void)snprintf(e->path, sizeof(e->path), "%s", q->path);
		(void)snprintf(e->box, sizeof(e->box), "%s", q->box);
		(void)snprintf(e->code, sizeof(e->code), "%s", q->err.code);
		(void)snprintf(e->message, sizeof(e->message), "%s", q->err.message);
	}
	pthread_mutex_unlock(&l->lock);
}

static void time_word(time_t when, char *out, size_t size)
{
	struct tm tm;

	gmtime_r(&when, &tm);
	strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void entry_line(const struct entry *e, struct text *t)
{
	char when[32];

	time_word(e->when, when, sizeof(when));
	txt_printf(t, "%s %s ", when, e->op);
	txt_safe(t, e->path, sizeof(e->path)); /* below fs/ its names are the guest's */
	txt_str(t, ": ");
	if (e->status)
		txt_printf(t, "%d ", e->status);
	txt_printf(t, "%s: ", e->code[0] ? e->code : errno_word(e->sys));
	txt_safe(t, e->message, sizeof(e->message));
	txt_str(t, "\n");
}

static bool matches(const struct entry *e, const char *box, const char *path)
{
	return (!box || !strcmp(e->box, box)) && (!path || !strcmp(e->path, path));
}

void errlog_last(struct errlog *l, uid_t uid, const char *box, const char *path, struct text *t)
{
	struct user *u;

	pthread_mutex_lock(&l->lock);
	u = user_find(l, uid);
	for (size_t back = 1; u && back <= u->n && back <= KEPT; back++) {
		const struct entry *e = &u->ring[(u->n - back) % KEPT];

		if (matches(e, box, path)) {
			entry_line(e, t);
			break;
		}
	}
	pthread_mutex_unlock(&l->lock);
}

static void entry_json(const struct entry *e, struct text *t)
{
	_cleanup_text_ struct text path = TEXT_NULL, message = TEXT_NULL;
	char when[32];
	json_t *o;

	time_word(e->when, when, sizeof(when));
	txt_safe(&path, e->path, sizeof(e->path));
	txt_safe(&message, e->message, sizeof(e->message));
	o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s}", "time", when, "op", e->op, "path",
		path.p ? path.p : "", "errno", errno_word(e->sys), "status", e->status, "code",
		e->code, "sandbox", e->box, "message", message.p ? message.p : "");
	if (!o)
		return;
	txt_json_line(t, o);
	json_decref(o);
}

void errlog_all(struct errlog *l, uid_t uid, const char *box, struct text *t)
{
	struct user *u;
	size_t from;

	pthread_mutex_lock(&l->lock);
	u = user_find(l, uid);
	from = u && u->n > KEPT ? u->n - KEPT : 0;
	for (size_t n = from; u && n < u->n; n++)
		if (matches(&u->ring[n % KEPT], box, NULL))
			entry_json(&u->ring[n % KEPT], t);
	pthread_mutex_unlock(&l->lock);
}
