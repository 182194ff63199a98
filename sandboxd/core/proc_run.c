/* SPDX-License-Identifier: MIT */
/* A run: start, wait for the end, the time limit or the client's leaving, and the answer's text.
 * The shim writes standard input and collects output meanwhile, so this thread only waits. */
#include "sandboxd/core/proc_internal.h"

#include "common/json/json.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS          500  /* how often a quiet run asks whether its client is still there */
#define KILL_GRACE_MS    1500 /* an answer after a time limit does not wait longer for the dead */
#define TIMEOUT_MAX_SECS (1ll << 32)

enum outcome { EXITED, EXPIRED, GONE };

static int check_run(const struct process_body *b, struct err *e)
{
	if (b->timeout_secs < 0)
		return err_set(e, ERR_INVALID_REQUEST, "timeout_secs must not be negative");
	if (b->tty)
		return err_set(
			e, ERR_INVALID_REQUEST, "tty: a run has no terminal; start a process");
	if (b->name && *b->name)
		return err_set(e, ERR_INVALID_REQUEST, "name: a run has no name; start a process");
	return 0;
}

static enum outcome wait_exit(struct proc *p, int64_t until_ms, bool (*gone)(void *), void *arg)
{
	pthread_mutex_t *lock = &p->sandbox->lock;
	enum outcome r = EXITED;

	pthread_mutex_lock(lock);
	while (p->state != PROC_EXITED) {
		int64_t now = clock_mono_ms();
		if (now >= until_ms) {
			r = EXPIRED;
			break;
		}
		if (proc_wait(p, &p->exited, until_ms - now < LOOK_MS ? until_ms : now + LOOK_MS) ||
			!gone)
			continue;
		pthread_mutex_unlock(lock);
		bool left = gone(arg);
		pthread_mutex_lock(lock);
		if (left && p->state != PROC_EXITED) {
			r = GONE;
			break;
		}
	}
	pthread_mutex_unlock(lock);
	return r;
}

/* A short command is over when its start is answered: then the spool says so, and this thread need not wait
 * until the one that reads the news has got to it. */
static void look_once(struct proc *p)
{
	struct spool_head h;

	if (spool_head_read(p, &h) == 0 && h.state == SPOOL_EXITED)
		proc_note_exit(p->sandbox, p->num);
}

/* Everything the process has started dies; the exit is waited for, so that the answer holds all
 * that was written, but not for ever. */
static void end_tree(struct proc *p, bool timed_out)
{
	struct sandbox *s = p->sandbox;
	bool over;

	pthread_mutex_lock(&s->lock);
	over = p->state == PROC_EXITED;
	if (!over && timed_out)
		p->timed_out = true;
	pthread_mutex_unlock(&s->lock);
	if (over)
		return;
	if (timed_out)
		spool_note(p, 2);
	(void)guest_signal(
		s->guest, p->num, SIGKILL, true, NULL); /* fails only when the sandbox ends */
	(void)wait_exit(p, clock_mono_ms() + KILL_GRACE_MS, NULL, NULL);
}

static uint64_t b64_len(uint64_t n)
{
	return (n + 2) / 3 * 4;
}

#define MIDDLE "\",\"stderr\":\""

void proc_result_of(struct proc_result *r, struct proc *p)
{
	struct spool_head h = { 0 };

	pthread_mutex_lock(&p->sandbox->lock);
	r->timed_out = p->timed_out;
	r->exit_code = p->timed_out ? PROC_EXIT_LOST : p->exit_code;
	pthread_mutex_unlock(&p->sandbox->lock);
	if (spool_head_read(p, &h) < 0)
		h = (struct spool_head){ 0 };
	r->proc = p;
	memcpy(r->kept, h.kept, sizeof(r->kept));
	r->truncated = h.dropped[0] || h.dropped[1];
	snprintf(r->head, sizeof(r->head), "{\"exit_code\":%d,\"stdout\":\"", r->exit_code);
	snprintf(r->tail, sizeof(r->tail), "\",\"truncated\":%s,\"timed_out\":%s}",
		r->truncated ? "true" : "false", r->timed_out ? "true" : "false");
	r->text_len = strlen(r->head) + b64_len(r->kept[0]) + strlen(MIDDLE) + b64_len(r->kept[1]) +
		      strlen(r->tail);
}

int proc_run(struct sandbox *s, const struct process_body *body, bool (*gone)(void *), void *arg,
	struct proc_result *ret, struct err *e)
{
	int64_t until_ms = INT64_MAX;
	struct proc *p = NULL;
	enum outcome r;

	if (check_run(body, e) < 0)
		return -1;
	if (proc_launch(s, body, false, &p, e) < 0)
		return -1;
	if (body->timeout_secs > 0 && body->timeout_secs < TIMEOUT_MAX_SECS)
		until_ms = clock_mono_ms() + body->timeout_secs * 1000;
	look_once(p);
	r = wait_exit(p, until_ms, gone, arg);
	if (r != EXITED)
		end_tree(p, r == EXPIRED);
	if (r == GONE) {
		proc_unref(p);
		return err_set(e, ERR_CONFLICT, "the client has left; the process was killed");
	}
	proc_result_of(ret, p);
	return 0;
}

/* One part of the text: plain, or the base64 of a stream. Returns bytes put; 0 when pos is behind
 * it. Any position can be asked for, as four characters always stand for three bytes. */
static size_t put_plain(const char *text, uint64_t *pos, char *buf, size_t max)
{
	size_t len = strlen(text), n;

	if (*pos >= len) {
		*pos -= len;
		return 0;
	}
	n = len - *pos < max ? len - *pos : max;
	memcpy(buf, text + *pos, n);
	return n;
}

static size_t put_stream(
	const struct proc_result *r, int stream, uint64_t *pos, char *buf, size_t max)
{
	uint64_t len = b64_len(r->kept[stream]), at;
	unsigned char raw[12288];
	size_t skip, n, out;
	char group[4];

	if (*pos >= len) {
		*pos -= len;
		return 0;
	}
	at = *pos / 4 * 3;
	skip = *pos % 4;
	n = skip || max < 4 ? 3 : max / 4 * 3;
	n = n < sizeof(raw) ? n : sizeof(raw);
	n = n < r->kept[stream] - at ? n : r->kept[stream] - at;
	spool_data_read(r->proc, stream, at, raw, n);
	if (!skip && max >= 4)
		return base64_put(raw, n, buf);
	(void)base64_put(raw, n, group);
	out = 4 - skip < max ? 4 - skip : max;
	memcpy(buf, group + skip, out);
	return out;
}

size_t proc_result_read(const struct proc_result *r, uint64_t pos, char *buf, size_t max)
{
	size_t n;

	if (max == 0)
		return 0;
	if ((n = put_plain(r->head, &pos, buf, max)) || (n = put_stream(r, 0, &pos, buf, max)) ||
		(n = put_plain(MIDDLE, &pos, buf, max)) || (n = put_stream(r, 1, &pos, buf, max)))
		return n;
	return put_plain(r->tail, &pos, buf, max);
}

void proc_result_fini(struct proc_result *r)
{
	proc_unref(r->proc);
	r->proc = NULL;
}
