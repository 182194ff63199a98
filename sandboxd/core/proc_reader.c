/* SPDX-License-Identifier: MIT */
/* Readers of output. They copy from the spool at their own pace, so that a slow one holds up
 * nobody; only the news of growth comes through the process's condition. The order table says how
 * the two streams were mixed; what it cannot tell (it is full, or the shim has died) comes as the
 * rest of stdout, then the rest of stderr. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <string.h>

#define ORDER_ERR 0x80000000u

void proc_reader_init(struct proc_reader *r, struct proc *p)
{
	*r = (struct proc_reader){ .proc = proc_ref(p) };
}

void proc_reader_fini(struct proc_reader *r)
{
	proc_unref(r->proc);
	r->proc = NULL;
}

void proc_reader_kick(struct proc_reader *r)
{
	struct proc *p = r->proc;

	pthread_mutex_lock(&p->sandbox->lock);
	r->stop = true;
	pthread_cond_broadcast(&p->output);
	pthread_mutex_unlock(&p->sandbox->lock);
}

bool proc_reader_stopped(struct proc_reader *r)
{
	bool stop;

	pthread_mutex_lock(&r->proc->sandbox->lock);
	stop = r->stop;
	pthread_mutex_unlock(&r->proc->sandbox->lock);
	return stop;
}

/* What was known at one moment, taken in this order: had the process exited, then the head. So
 * "exited and nothing more in the head" means that all has been read. */
struct view {
	bool exited;
	int exit_code;
	uint64_t seq;
	struct spool_head head;
};

static void look(struct proc *p, struct view *v)
{
	pthread_mutex_lock(&p->sandbox->lock);
	v->exited = p->state == PROC_EXITED;
	v->exit_code = p->exit_code;
	v->seq = p->output_seq;
	pthread_mutex_unlock(&p->sandbox->lock);
	if (proc_spool(p) < 0 || spool_head_read(p, &v->head) < 0)
		v->head = (struct spool_head){ 0 };
}

static uint64_t unread(const struct proc_reader *r, const struct view *v, int stream)
{
	return v->head.kept[stream] > r->pos[stream] ? v->head.kept[stream] - r->pos[stream] : 0;
}

/* The next piece that may be read, by the order table; 0: none yet. An entry with a later one
 * behind it grows no more; one that promises more than is kept was cut off at the cap. */
static uint64_t next_told(struct proc_reader *r, const struct view *v, int *ret_stream)
{
	while (r->run < v->head.runs) {
		bool last = r->run + 1 == v->head.runs;
		uint64_t left, there;
		uint32_t entry;

		if (!spool_order_read(r->proc, r->run, &entry, 1))
			break;
		*ret_stream = entry & ORDER_ERR ? 1 : 0;
		left = entry & ~ORDER_ERR;
		left = left > r->in_run ? left - r->in_run : 0;
		there = unread(r, v, *ret_stream);
		if (left && there)
			return left < there ? left : there;
		if (last && !v->exited && r->run + 1 < SPOOL_RUNS_MAX)
			break;
		r->run++;
		r->in_run = 0;
	}
	return 0;
}

static uint64_t next_piece(struct proc_reader *r, const struct view *v, int *ret_stream)
{
	uint64_t n = next_told(r, v, ret_stream);

	if (n || (!v->exited && v->head.runs < SPOOL_RUNS_MAX))
		return n;
	*ret_stream = unread(r, v, 0) ? 0 : 1;
	return unread(r, v, *ret_stream);
}

static void advance(struct proc_reader *r, int stream, uint64_t n)
{
	r->pos[stream] += n;
	r->in_run += n;
}

/* Until there is news of output behind `seq`, the process has exited, a kick, or the time is up. */
static bool wait_news(struct proc *p, uint64_t seq, const bool *stop, int64_t until_ms)
{
	bool news;

	pthread_mutex_lock(&p->sandbox->lock);
	for (;;) {
		news = p->output_seq != seq || p->state == PROC_EXITED;
		if (news || (stop && *stop) || !proc_wait(p, &p->output, until_ms))
			break;
	}
	pthread_mutex_unlock(&p->sandbox->lock);
	return news;
}

enum proc_read proc_reader_next(struct proc_reader *r, int timeout_ms, int *ret_stream, char *buf,
	size_t max, size_t *ret_len, int *ret_exit)
{
	int64_t until_ms = clock_mono_ms() + timeout_ms;
	struct view v;

	for (;;) {
		look(r->proc, &v);
		uint64_t n = next_piece(r, &v, ret_stream);
		if (n) {
			*ret_len = n < max ? (size_t)n : max;
			spool_data_read(r->proc, *ret_stream, r->pos[*ret_stream], buf, *ret_len);
			advance(r, *ret_stream, *ret_len);
			return PROC_READ_DATA;
		}
		if (v.exited) {
			*ret_exit = v.exit_code;
			return PROC_READ_END;
		}
		if (!wait_news(r->proc, v.seq, &r->stop, until_ms))
			return PROC_READ_QUIET;
	}
}

bool proc_reader_skip(struct proc_reader *r, uint64_t bytes)
{
	struct view v;
	int stream;

	look(r->proc, &v);
	while (bytes) {
		uint64_t n = next_piece(r, &v, &stream);
		if (n == 0)
			return false;
		n = n < bytes ? n : bytes;
		advance(r, stream, n);
		bytes -= n;
	}
	return true;
}

static uint64_t size_of(const struct view *v, int stream)
{
	return stream == 2 ? v->head.kept[0] + v->head.kept[1] : v->head.kept[stream];
}

uint64_t proc_output_size(struct proc *p, int stream, bool *ret_end)
{
	struct view v;

	look(p, &v);
	*ret_end = v.exited;
	return size_of(&v, stream);
}

ssize_t proc_bytes(
	struct proc *p, int stream, uint64_t offset, char *buf, size_t max, bool *ret_end)
{
	struct view v;
	uint64_t size, n = 0;

	look(p, &v);
	size = size_of(&v, stream);
	if (offset < size)
		n = size - offset < max ? size - offset : max;
	if (n)
		spool_data_read(p, stream, offset, buf, (size_t)n);
	*ret_end = v.exited && offset + n >= size;
	return (ssize_t)n;
}

bool proc_bytes_wait(struct proc *p, int stream, uint64_t offset, int timeout_ms)
{
	int64_t until_ms = clock_mono_ms() + timeout_ms;
	struct view v;

	for (;;) {
		look(p, &v);
		if (v.exited || size_of(&v, stream) > offset)
			return true;
		if (!wait_news(p, v.seq, NULL, until_ms))
			return false;
	}
}
