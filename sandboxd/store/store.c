/* SPDX-License-Identifier: MIT */
/* Group commit: whoever waits first takes everything that is queued into one transaction, on its
 * own thread, as handing it to another costs two more wake-ups. While it syncs, the next batch
 * gathers. Each write stands in its own savepoint, so that one failure is not everybody's. What
 * nobody waits for, and the care of the log, is left to a thread of the store's own, which looks
 * for a quiet moment. */
#include "sandboxd/store/store.h"

#include "common/base/log.h"
#include "common/db/db.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAZY_MS   200  /* what nobody waits for is written by then */
#define WIPE_MS   1000 /* without a commit, then values of ended sandboxes leave the log */
#define QUIET_MS  25   /* without a commit, then a log that has become long is settled */
#define LONG_LOG  150  /* pages */
#define LOG_PAGES 1000 /* then it is settled, quiet or not */
#define NEVER     INT64_MAX

struct write {
	struct write *next;
	uint64_t ticket;
	bool durable, drop, wipes;
	bool comes;   /* to store_wait, within moments: nobody else has to be woken */
	bool awaited; /* somebody waits for the commit, not for the disk */
	bool ends, marks;         /* only id and state count */
	struct store_sandbox rec; /* strings owned */
	struct store_row *rows;   /* or these, n of them; strings owned */
	size_t n;
};
struct failure { /* of a ticket nobody asked about yet; few and rare */
	struct failure *next;
	uint64_t ticket;
	struct err err;
};
struct store {
	struct db *db;
	struct db_stmt *put, *end, *mark, *drop, *put_row, *drop_row;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;
	pthread_cond_t work, done;
	/* under lock */
	struct write *first, **last;
	uint64_t tickets, committed, commits;
	struct failure *failures;
	bool stop;
	bool busy;   /* somebody uses the database: it and what follows is theirs */
	bool urgent; /* the thread is to commit at once */
	int64_t queued_ms, commit_ms; /* the first write that waits; the last commit */
	int64_t wakes_ms;             /* when the thread looks again by itself */
	bool wiped;                   /* the log still holds values of ended sandboxes */
	int pages;                    /* in the log */
};

static const char *const steps[] = {
	"CREATE TABLE sandbox(id TEXT PRIMARY KEY, seq INTEGER NOT NULL, state INTEGER NOT NULL,"
	" created_ns INTEGER NOT NULL, generation INTEGER NOT NULL, secret BLOB, boot TEXT,"
	" body TEXT NOT NULL, env TEXT) WITHOUT ROWID",
	"CREATE TABLE thing(kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,"
	" PRIMARY KEY(kind, key)) WITHOUT ROWID",
};

static void write_free(struct write *w)
{
	char *env = (char *)(size_t)w->rec.env;

	if (env)
		explicit_bzero(env, strlen(env));
	free(env);
	free((char *)(size_t)w->rec.id);
	free((char *)(size_t)w->rec.boot);
	free((char *)(size_t)w->rec.body);
	explicit_bzero(w->rec.secret, sizeof(w->rec.secret));
	for (size_t i = 0; i < w->n; i++) {
		free((char *)(size_t)w->rows[i].kind);
		free((char *)(size_t)w->rows[i].key);
		free((char *)(size_t)w->rows[i].body);
	}
	free(w->rows);
	free(w);
}

static int apply_rows(struct store *st, const struct write *w, struct err *e)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct store_row *r = &w->rows[i];
		struct db_stmt *q = r->body ? st->put_row : st->drop_row;
		db_bind_text(q, 1, r->kind);
		db_bind_text(q, 2, r->key);
		if (r->body)
			db_bind_text(q, 3, r->body);
		if (db_run(q, e) < 0)
			return -1;
	}
	return 0;
}

static int apply(struct store *st, const struct write *w, struct err *e)
{
	const struct store_sandbox *r = &w->rec;

	if (w->rows)
		return apply_rows(st, w, e);
	if (w->drop) {
		db_bind_text(st->drop, 1, r->id);
		return db_run(st->drop, e);
	}
	if (w->ends || w->marks) {
		struct db_stmt *q = w->ends ? st->end : st->mark;
		db_bind_int(q, 1, r->state);
		db_bind_text(q, 2, r->id);
		return db_run(q, e);
	}
	db_bind_text(st->put, 1, r->id);
	db_bind_int(st->put, 2, (int64_t)r->seq);
	db_bind_int(st->put, 3, r->state);
	db_bind_int(st->put, 4, r->created_ns);
	db_bind_int(st->put, 5, (int64_t)r->generation);
	db_bind_blob(st->put, 6, r->secret, sizeof(r->secret));
	db_bind_text(st->put, 7, r->boot);
	db_bind_text(st->put, 8, r->body);
	db_bind_text(st->put, 9, r->env);
	return db_run(st->put, e);
}

/* Others have nobody who waits and takes the failure away. */
static void note_failure(struct store *st, const struct write *w, const struct err *e)
{
	struct failure *f = w->durable || w->awaited ? calloc(1, sizeof(*f)) : NULL;

	log_error("records: a write failed reason=\"%s\"", e->msg);
	if (!f)
		return;
	f->ticket = w->ticket;
	f->err = *e;
	pthread_mutex_lock(&st->lock);
	f->next = st->failures;
	st->failures = f;
	pthread_mutex_unlock(&st->lock);
}

static void commit_batch(struct store *st, struct write *batch, bool durable)
{
	struct err e = ERR_NULL, one = ERR_NULL;

	if (db_set_durable(st->db, durable, &e) < 0)
		goto all_failed;
	if (!batch->next && !batch->rows) { /* one statement is a transaction */
		if (apply(st, batch, &e) < 0)
			goto all_failed;
		return;
	}
	if (db_exec(st->db, "BEGIN IMMEDIATE", &e) < 0)
		goto all_failed;
	for (struct write *w = batch; w; w = w->next) {
		db_exec(st->db, "SAVEPOINT one", NULL);
		if (apply(st, w, &one) < 0) {
			db_exec(st->db, "ROLLBACK TO one", NULL);
			note_failure(st, w, &one);
		}
		db_exec(st->db, "RELEASE one", NULL);
	}
	if (db_exec(st->db, "COMMIT", &e) == 0)
		return;
	db_exec(st->db, "ROLLBACK", NULL);
all_failed:
	for (struct write *w = batch; w; w = w->next)
		note_failure(st, w, &e);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Lock held and not busy, and so again when it returns; in between neither. */
static void commit_queue(struct store *st)
{
	struct write *batch = st->first, *next;
	uint64_t upto = st->tickets;
	bool durable = false;

	for (const struct write *w = batch; w; w = w->next) {
		durable |= w->durable;
		st->wiped |= w->wipes;
	}
	st->busy = true;
	st->urgent = false;
	st->first = NULL;
	st->last = &st->first;
	pthread_mutex_unlock(&st->lock);
	commit_batch(st, batch, durable);
	for (; batch; batch = next) {
		next = batch->next;
		write_free(batch);
	}
	pthread_mutex_lock(&st->lock);
	st->busy = false;
	st->committed = upto;
	st->commits++;
	st->commit_ms = now_ms();
	st->pages = db_log_pages(st->db);
	pthread_cond_broadcast(&st->done);
}

/* The same, for the log. */
static void settle(struct store *st)
{
	int rc;

	st->busy = true;
	pthread_mutex_unlock(&st->lock);
	rc = db_settle(st->db);
	pthread_mutex_lock(&st->lock);
	st->busy = false;
	if (rc == 0)
		st->wiped = false;
	st->commit_ms = now_ms(); /* so that a failure is tried again, but not at once */
	st->pages = 0;
	pthread_cond_broadcast(&st->done);
}

/* Lock held. When is there something for the thread to do? */
static int64_t due_ms(const struct store *st)
{
	if (st->urgent || st->stop || st->pages >= LOG_PAGES)
		return 0;
	if (st->first)
		return st->queued_ms + LAZY_MS;
	if (st->pages >= LONG_LOG)
		return st->commit_ms + QUIET_MS;
	return st->wiped ? st->commit_ms + WIPE_MS : NEVER;
}

static void wake_thread(struct store *st)
{
	if (due_ms(st) < st->wakes_ms)
		pthread_cond_signal(&st->work);
}

static void sleep_until(struct store *st, int64_t ms)
{
	struct timespec until = deadline_at_ms(ms);

	st->wakes_ms = ms;
	if (ms == NEVER)
		pthread_cond_wait(&st->work, &st->lock);
	else
		(void)cond_wait_until(&st->work, &st->lock, &until);
	st->wakes_ms = 0;
}

static void *store_thread(void *arg)
{
	struct store *st = arg;

	pthread_mutex_lock(&st->lock);
	while (st->first || !st->stop) {
		int64_t due = due_ms(st);
		if (due > now_ms())
			sleep_until(st, due);
		else if (st->busy)
			pthread_cond_wait(&st->done, &st->lock);
		else if (st->first)
			commit_queue(st);
		else
			settle(st);
	}
	pthread_mutex_unlock(&st->lock);
	return NULL;
}

int store_open(const char *state_dir, struct store **ret, struct err *e)
{
	struct store *st = calloc(1, sizeof(*st));
	_cleanup_free_ char *path = NULL;

	if (!st || asprintf(&path, "%s/records.db", state_dir) < 0) {
		free(st);
		return err_oom(e);
	}
	pthread_mutex_init(&st->lock, NULL);
	pthread_cond_init(&st->work, NULL);
	pthread_cond_init(&st->done, NULL);
	st->last = &st->first;
	if (db_open(path, &st->db, e) < 0 || db_migrate(st->db, steps, ARRAY_LEN(steps), e) < 0 ||
		db_prepare(st->db,
			"INSERT OR REPLACE INTO sandbox(id, seq, state, created_ns,"
			" generation, secret, boot, body, env) VALUES(?,?,?,?,?,?,?,?,?)",
			&st->put, e) < 0 ||
		db_prepare(st->db,
			"UPDATE sandbox SET state = ?, secret = zeroblob(16), env = NULL"
			" WHERE id = ?",
			&st->end, e) < 0 ||
		db_prepare(st->db, "UPDATE sandbox SET state = ? WHERE id = ?", &st->mark, e) < 0 ||
		db_prepare(st->db, "DELETE FROM sandbox WHERE id = ?", &st->drop, e) < 0 ||
		db_prepare(st->db, "INSERT OR REPLACE INTO thing(kind, key, body) VALUES(?,?,?)",
			&st->put_row, e) < 0 ||
		db_prepare(st->db, "DELETE FROM thing WHERE kind = ? AND key = ?", &st->drop_row,
			e) < 0)
		goto fail;
	(void)db_settle(st->db); /* also of what an earlier run left in the log */
	*ret = st;
	return 0;
fail:
	store_close(st);
	return -1;
}

/* The thread starts with the first write, so that loading needs no lock. */
static void start_thread(struct store *st)
{
	if (!st->started)
		st->started = pthread_create(&st->thread, NULL, store_thread, st) == 0;
}

void store_close(struct store *st)
{
	if (!st)
		return;
	pthread_mutex_lock(&st->lock);
	st->stop = true;
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
	if (st->started)
		pthread_join(st->thread, NULL);
	db_stmt_free(st->put);
	db_stmt_free(st->end);
	db_stmt_free(st->mark);
	db_stmt_free(st->drop);
	db_stmt_free(st->put_row);
	db_stmt_free(st->drop_row);
	db_close(st->db);
	for (struct failure *f = st->failures, *n; f; f = n) {
		n = f->next;
		free(f);
	}
	pthread_cond_destroy(&st->work);
	pthread_cond_destroy(&st->done);
	pthread_mutex_destroy(&st->lock);
	free(st);
}

static uint64_t queue(struct store *st, struct write *w, bool at_once)
{
	uint64_t ticket = 0;

	pthread_mutex_lock(&st->lock);
	start_thread(st);
	if (st->started && !st->stop) {
		ticket = w->ticket = ++st->tickets;
		if (!st->first)
			st->queued_ms = now_ms();
		*st->last = w;
		st->last = &w->next;
		st->urgent |= at_once;
		if (!w->comes)
			wake_thread(st);
	}
	pthread_mutex_unlock(&st->lock);
	if (!ticket)
		write_free(w);
	return ticket;
}

static bool copy_text(const char **dst, const char *src)
{
	*dst = src ? strdup(src) : NULL;
	return *dst || !src;
}

static struct write *write_new(const struct store_sandbox *r, bool durable)
{
	struct write *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->durable = durable;
	w->rec = *r;
	w->rec.id = w->rec.boot = w->rec.body = w->rec.env = NULL;
	if (copy_text(&w->rec.id, r->id) && copy_text(&w->rec.boot, r->boot) &&
		copy_text(&w->rec.body, r->body) && copy_text(&w->rec.env, r->env))
		return w;
	write_free(w);
	return NULL;
}

static uint64_t put_sandbox(
	struct store *st, const struct store_sandbox *r, bool durable, bool comes)
{
	struct write *w = write_new(r, durable);

	if (!w)
		return 0;
	w->wipes = !r->env;
	w->comes = comes;
	return queue(st, w, durable && !comes);
}

uint64_t store_put_sandbox(struct store *st, const struct store_sandbox *r, bool durable)
{
	return put_sandbox(st, r, durable, false);
}

uint64_t store_put_awaited(struct store *st, const struct store_sandbox *r)
{
	return put_sandbox(st, r, true, true);
}

uint64_t store_end_awaited(struct store *st, const char *id, int state)
{
	struct store_sandbox r = { .id = id, .state = state };
	struct write *w = write_new(&r, false);

	if (!w)
		return 0;
	w->ends = w->wipes = w->awaited = w->comes = true;
	return queue(st, w, false);
}

uint64_t store_mark_awaited(struct store *st, const char *id, int state)
{
	struct store_sandbox r = { .id = id, .state = state };
	struct write *w = write_new(&r, false);

	if (!w)
		return 0;
	w->marks = w->awaited = w->comes = true;
	return queue(st, w, false);
}

uint64_t store_drop_sandbox(struct store *st, const char *id, bool durable)
{
	struct store_sandbox r = { .id = id };
	struct write *w = write_new(&r, durable);

	if (!w)
		return 0;
	w->drop = w->wipes = true;
	return queue(st, w, durable);
}

static struct write *rows_new(const struct store_row *rows, size_t n)
{
	struct write *w = calloc(1, sizeof(*w));

	if (!w || !(w->rows = calloc(n ? n : 1, sizeof(*w->rows)))) {
		free(w);
		return NULL;
	}
	w->n = n;
	for (size_t i = 0; i < n; i++)
		if (!copy_text(&w->rows[i].kind, rows[i].kind) ||
			!copy_text(&w->rows[i].key, rows[i].key) ||
			!copy_text(&w->rows[i].body, rows[i].body)) {
			write_free(w);
			return NULL;
		}
	return w;
}

uint64_t store_put_rows(struct store *st, const struct store_row *rows, size_t n, bool durable)
{
	struct write *w = rows_new(rows, n);

	if (!w)
		return 0;
	w->durable = durable;
	return queue(st, w, durable);
}

uint64_t store_put_rows_awaited(struct store *st, const struct store_row *rows, size_t n)
{
	struct write *w = rows_new(rows, n);

	if (!w)
		return 0;
	w->awaited = w->comes = true;
	return queue(st, w, false);
}

int store_load_rows(struct store *st, const char *kind,
	int (*each)(void *arg, const char *key, const char *body, struct err *e), void *arg,
	struct err *e)
{
	struct db_stmt *q;
	int rc;

	if (db_prepare(st->db, "SELECT key, body FROM thing WHERE kind = ? ORDER BY key", &q, e) <
		0)
		return -1;
	db_bind_text(q, 1, kind);
	while ((rc = db_next(q, e)) == 1)
		if (each(arg, db_text(q, 0), db_text(q, 1), e) < 0) {
			rc = -1;
			break;
		}
	db_stmt_free(q);
	return rc;
}

void store_look(struct store *st)
{
	pthread_mutex_lock(&st->lock);
	wake_thread(st);
	pthread_mutex_unlock(&st->lock);
}

int store_wait(struct store *st, uint64_t ticket, struct err *e)
{
	struct failure **p, *f = NULL;

	if (!ticket)
		return err_oom(e);
	pthread_mutex_lock(&st->lock);
	while (st->committed < ticket)
		if (st->busy)
			pthread_cond_wait(&st->done, &st->lock);
		else
			commit_queue(st);
	if (st->first || st->pages >= LONG_LOG)
		wake_thread(st);
	for (p = &st->failures; *p && (*p)->ticket != ticket; p = &(*p)->next)
		;
	if (*p) {
		f = *p;
		*p = f->next;
	}
	pthread_mutex_unlock(&st->lock);
	if (!f)
		return 0;
	if (e)
		*e = f->err;
	free(f);
	return -1;
}

int store_load_sandboxes(struct store *st,
	int (*each)(void *arg, const struct store_sandbox *r, struct err *e), void *arg,
	struct err *e)
{
	struct db_stmt *q;
	int rc;

	if (db_prepare(st->db,
		    "SELECT id, seq, state, created_ns, generation, secret, boot, body, env"
		    " FROM sandbox ORDER BY seq",
		    &q, e) < 0)
		return -1;
	while ((rc = db_next(q, e)) == 1) {
		struct store_sandbox r = { .id = db_text(q, 0),
			.seq = (uint64_t)db_int(q, 1),
			.state = (int)db_int(q, 2),
			.created_ns = db_int(q, 3),
			.generation = (uint64_t)db_int(q, 4),
			.boot = db_text(q, 6),
			.body = db_text(q, 7),
			.env = db_text(q, 8) };
		size_t len;
		const void *secret = db_blob(q, 5, &len);
		if (secret && len == sizeof(r.secret))
			memcpy(r.secret, secret, len);
		if (each(arg, &r, e) < 0) {
			rc = -1;
			break;
		}
	}
	db_stmt_free(q);
	return rc;
}

uint64_t store_commits(struct store *st)
{
	uint64_t n;

	pthread_mutex_lock(&st->lock);
	n = st->commits;
	pthread_mutex_unlock(&st->lock);
	return n;
}
