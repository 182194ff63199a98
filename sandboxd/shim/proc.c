/* SPDX-License-Identifier: MIT */
/* Processes: their table, the output pump, the order of things at the end: reaped, what is in the
 * pipes read, the result stored, the event. Pipes that others still hold are drained from then on. */
#include "common/sys/mem.h"
#include "sandboxd/init/init.h"
#include "sandboxd/shim/state.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define TTY_REST (1024 * 1024) /* a terminal's buffers hold less */
#define KILLED 137

struct proc *proc_find(struct shim *s, uint32_t num)
{
	struct proc *p = s->procs[num % PROC_BUCKETS];

	while (p && p->num != num)
		p = p->next;
	return p;
}

void proc_add(struct shim *s, struct proc *p)
{
	struct proc **head = &s->procs[p->num % PROC_BUCKETS];

	p->next = *head;
	*head = p;
}

static void unlink_news(struct shim *s, const struct proc *p)
{
	for (struct proc **n = &s->news; *n; n = &(*n)->next_news)
		if (*n == p) {
			*n = p->next_news;
			return;
		}
}

void proc_free(struct shim *s, struct proc *p)
{
	struct proc **at = &s->procs[p->num % PROC_BUCKETS];

	for (; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	if (p->news)
		unlink_news(s, p);
	if (p->exited)
		s->nexited--;
	input_close(s, p);
	for (int i = 0; i < 2; i++)
		if (p->out[i])
			source_free(s, &p->out[i]->src);
	spool_close(p);
	source_free(s, &p->in);
}

void proc_news(struct shim *s, struct proc *p, bool exited)
{
	p->output_news |= !exited;
	p->exit_news |= exited;
	if (p->news)
		return;
	p->news = true;
	p->next_news = s->news;
	s->news = p;
}

static void drain_unlink(struct shim *s, struct stream *d)
{
	*(d->prev ? &d->prev->next : &s->drains) = d->next;
	*(d->next ? &d->next->prev : &s->drains_last) = d->prev;
	s->ndrains--;
}

void drain_evict(struct shim *s)
{
	struct stream *d = s->drains_last;

	if (!d)
		return;
	drain_unlink(s, d);
	source_free(s, &d->src);
}

static void drain_add(struct shim *s, struct stream *d)
{
	d->proc = NULL;
	d->prev = NULL;
	d->next = s->drains;
	*(d->next ? &d->next->prev : &s->drains_last) = d;
	s->drains = d;
	if (++s->ndrains > DRAINS_MAX)
		drain_evict(s);
}

static void stream_end(struct shim *s, struct stream *st)
{
	if (st->proc)
		st->proc->out[st->index] = NULL;
	else
		drain_unlink(s, st);
	source_free(s, &st->src);
}

/* Bytes read, 0 when there are none now, -1 at the end. */
static ssize_t stream_read(struct shim *s, struct stream *st, size_t max)
{
	ssize_t n;

	do
		n = read(st->src.fd, s->buf, max < CHUNK ? max : CHUNK);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) /* a terminal without a holder gives EIO */
		return -1;
	if (st->proc) {
		spool_append(st->proc, st->index, s->buf, (size_t)n);
		proc_news(s, st->proc, false);
	}
	return n;
}

void output_ready(struct shim *s, struct source *src)
{
	struct stream *st = (struct stream *)src;

	if (stream_read(s, st, CHUNK) < 0)
		stream_end(s, st);
}

/* What was written before the process ended, and no more: others may go on writing for ever. */
static void read_rest(struct shim *s, struct proc *p, struct stream *st)
{
	int in_pipe = 0;
	size_t left = TTY_REST;

	if (!p->tty && ioctl(st->src.fd, FIONREAD, &in_pipe) == 0)
		left = (size_t)in_pipe;
	while (left > 0) {
		ssize_t n = stream_read(s, st, left);
		if (n < 0)
			return stream_end(s, st);
		if (n == 0)
			break;
		left -= (size_t)n;
	}
	p->out[st->index] = NULL;
	drain_add(s, st);
}

static uint32_t end_flags(struct shim *s, int status)
{
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		return 0;
	long seen = s->oom_kills;
	s->oom_kills = oom_count(s);
	return s->oom_kills > seen ? 1 : 0;
}

/* A front that never forgets must not make the shim grow: the oldest goes. */
static void forget_oldest(struct shim *s)
{
	struct proc *oldest = NULL;

	for (int i = 0; i < PROC_BUCKETS; i++)
		for (struct proc *p = s->procs[i]; p; p = p->next)
			if (p->exited && (!oldest || p->num < oldest->num))
				oldest = p;
	if (oldest)
		proc_free(s, oldest);
}

void proc_exited(struct shim *s, struct proc *p, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	for (int i = 0; i < 2; i++)
		if (p->out[i])
			read_rest(s, p, p->out[i]);
	input_close(s, p);
	p->exited = true;
	s->nexited++;
	spool_exit(p, code, end_flags(s, status));
	if (!p->orphan) {
		/* Somebody waits for just this; tidying up comes after. */
		proc_news(s, p, true);
		events_flush(s);
	}
	spool_close(p);
	cgroup_drop(s, p);
	if (p->orphan)
		return proc_free(s, p);
	if (s->nexited > EXITED_MAX)
		forget_oldest(s);
}

/* Init is gone, and with it everything it started. */
void proc_exited_all(struct shim *s)
{
	for (int i = 0; i < PROC_BUCKETS; i++)
		for (struct proc *p = s->procs[i], *next; p; p = next) {
			next = p->next;
			if (p->started && !p->exited)
				proc_exited(s, p, KILLED << 8);
		}
}

void proc_started(struct shim *s, struct proc *p)
{
	struct conn *c = p->starter;

	p->started = true;
	p->starter = NULL;
	if (c) {
		c->start = NULL;
		conn_answer(s, c, 1, 0, -1);
		input_pump(s, p);
	} else if (!cgroup_kill(s, p)) {
		(void)init_signal(s, INIT_KILLTREE, p->num, 0);
	}
}
