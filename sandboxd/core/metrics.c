/* SPDX-License-Identifier: MIT */
/* The ring of one sandbox and how it is shown. The kernel's counters are turned into ours one step
 * at a time: only growth is added, so that a counter that starts again or loses a part never takes
 * anything away. */
#include "sandboxd/core/metrics.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK  72 /* samples: six minutes */
#define CHUNKS (METRICS_KEPT / CHUNK)
_Static_assert(METRICS_KEPT % CHUNK == 0, "whole chunks");

enum counter { NET_RX, NET_TX, DISK_READ, DISK_WRITE, COUNTERS };

struct kept {
	int64_t time_us;
	uint64_t counters[COUNTERS];
	uint32_t memory_kib;
	uint16_t cpu; /* hundredths of a percent */
	uint16_t processes;
};
_Static_assert(sizeof(struct kept) == 48, "as metrics.h says");

struct metrics {
	uint64_t count; /* samples ever; the newest is at (count - 1) % METRICS_KEPT */
	struct kept *chunks[CHUNKS];
	int64_t limit;
	int64_t raw[COUNTERS], total[COUNTERS]; /* as last read; as shown */
	int64_t memory, processes;              /* as last read */
	int64_t cpu_ns, mono_ns;                /* of the reading before */
	bool based;                             /* these two can be compared with */
	int64_t due_ms, net_ms;
};

struct metrics *metrics_new(void)
{
	return calloc(1, sizeof(struct metrics));
}

void metrics_free(struct metrics *m)
{
	for (size_t i = 0; m && i < CHUNKS; i++)
		free(m->chunks[i]);
	free(m);
}

static void count_on(struct metrics *m, enum counter c, int64_t raw)
{
	if (raw < 0)
		return;
	/* What an egress process says may be anything; the sum stays a number. */
	if (raw > m->raw[c] && raw - m->raw[c] <= INT64_MAX - m->total[c])
		m->total[c] += raw - m->raw[c];
	m->raw[c] = raw;
}

static double cpu_share(const struct metrics *m, const struct metrics_read *r, double cpus)
{
	double used = (double)(r->meter.cpu_ns - m->cpu_ns);
	double wall = (double)(r->mono_ns - m->mono_ns) * cpus;
	double percent = wall > 0 ? 100 * used / wall : 0;

	if (percent < 0)
		return 0;
	return percent > 100 ? 100 : percent;
}

static void take_figures(struct metrics *m, const struct metrics_read *r)
{
	const struct backend_meter *b = &r->meter;

	count_on(m, NET_RX, r->net_rx_bytes);
	count_on(m, NET_TX, r->net_tx_bytes);
	count_on(m, DISK_READ, b->disk_read_bytes);
	count_on(m, DISK_WRITE, b->disk_write_bytes);
	if (b->memory_limit_bytes > 0)
		m->limit = b->memory_limit_bytes;
	if (b->memory_bytes >= 0)
		m->memory = b->memory_bytes;
	if (m->limit > 0 && m->memory > m->limit)
		m->memory = m->limit;
	if (b->processes >= 0)
		m->processes = b->processes;
	if (b->cpu_ns < 0)
		return;
	m->cpu_ns = b->cpu_ns;
	m->mono_ns = r->mono_ns;
	m->based = true;
}

static struct kept *slot(const struct metrics *m, uint64_t n)
{
	return &m->chunks[n % METRICS_KEPT / CHUNK][n % CHUNK];
}

/* Where the next sample goes; NULL: out of memory. */
static struct kept *next_slot(struct metrics *m)
{
	struct kept **chunk = &m->chunks[m->count % METRICS_KEPT / CHUNK];

	if (!*chunk)
		*chunk = calloc(CHUNK, sizeof(**chunk));
	return *chunk ? slot(m, m->count) : NULL;
}

static int64_t later(const struct metrics *m, int64_t time_us)
{
	int64_t last = m->count ? slot(m, m->count - 1)->time_us : 0;

	return time_us > last ? time_us : last + 1;
}

bool metrics_add(struct metrics *m, const struct metrics_read *r, double cpus)
{
	double percent = m->based && r->meter.cpu_ns >= 0 ? cpu_share(m, r, cpus) : 0;
	bool only_base = m->count > 0 && !m->based && r->meter.cpu_ns >= 0;
	struct kept *k = next_slot(m);

	if (!k)
		return false;
	take_figures(m, r);
	if (only_base)
		return true; /* the first look after a sleep: what follows is compared with it */
	k->time_us = later(m, r->wall_ns / 1000);
	for (int i = 0; i < COUNTERS; i++)
		k->counters[i] = (uint64_t)m->total[i];
	k->memory_kib = (uint32_t)(m->memory >> 10);
	k->cpu = (uint16_t)(percent * 100 + 0.5);
	k->processes = (uint16_t)(m->processes > UINT16_MAX ? UINT16_MAX : m->processes);
	m->count++;
	return true;
}

void metrics_pause(struct metrics *m)
{
	m->based = false;
}

bool metrics_ran(const struct metrics *m, int64_t cpu_ns)
{
	return !m->count || cpu_ns < 0 || cpu_ns != m->cpu_ns;
}

size_t metrics_len(const struct metrics *m)
{
	return m->count < METRICS_KEPT ? m->count : METRICS_KEPT;
}

bool metrics_get(const struct metrics *m, size_t i, struct sample *ret)
{
	const struct kept *k;

	if (i >= metrics_len(m))
		return false;
	k = slot(m, m->count - metrics_len(m) + i);
	*ret = (struct sample){ .time_ns = k->time_us * 1000,
		.cpu_percent = k->cpu / 100.0,
		.memory_bytes = (int64_t)k->memory_kib << 10,
		.memory_limit_bytes = m->limit,
		.net_rx_bytes = (int64_t)k->counters[NET_RX],
		.net_tx_bytes = (int64_t)k->counters[NET_TX],
		.disk_read_bytes = (int64_t)k->counters[DISK_READ],
		.disk_write_bytes = (int64_t)k->counters[DISK_WRITE],
		.processes = k->processes };
	return true;
}

int64_t *metrics_due_ms(struct metrics *m)
{
	return &m->due_ms;
}

int64_t *metrics_net_ms(struct metrics *m)
{
	return &m->net_ms;
}

uint64_t metrics_count(const struct sandbox *s)
{
	return s->metrics ? s->metrics->count : 0;
}

bool metrics_newest(const struct sandbox *s, struct sample *ret)
{
	return s->metrics && s->metrics->count &&
	       metrics_get(s->metrics, metrics_len(s->metrics) - 1, ret);
}

/* --- as shown -------------------------------------------------------------------------------- */

static void print_sample(FILE *f, const struct sample *s)
{
	char time[CLOCK_TEXT_LEN];

	clock_text(s->time_ns, time);
	fprintf(f,
		"{\"time\":\"%s\",\"cpu_percent\":%g,\"memory_bytes\":%" PRId64
		",\"memory_limit_bytes\":%" PRId64 ",\"net_rx_bytes\":%" PRId64
		",\"net_tx_bytes\":%" PRId64 ",\"disk_read_bytes\":%" PRId64
		",\"disk_write_bytes\":%" PRId64,
		time, s->cpu_percent, s->memory_bytes, s->memory_limit_bytes, s->net_rx_bytes,
		s->net_tx_bytes, s->disk_read_bytes, s->disk_write_bytes);
	if (s->processes)
		fprintf(f, ",\"processes\":%" PRId64, s->processes);
	fputc('}', f);
}

/* Copied out, so that the lock is not held while text is made. */
static int copy(struct sandbox *s, uint64_t last, struct sample **ret, size_t *ret_n)
{
	size_t n, first = 0;

	pthread_mutex_lock(&s->lock);
	n = s->metrics ? metrics_len(s->metrics) : 0;
	if (last && n > last)
		first = n - last;
	*ret = calloc(n - first + 1, sizeof(**ret));
	for (size_t i = first; *ret && i < n; i++)
		metrics_get(s->metrics, i, &(*ret)[i - first]);
	pthread_mutex_unlock(&s->lock);
	*ret_n = n - first;
	return *ret ? 0 : -1;
}

char *metrics_text(struct sandbox *s, uint64_t last)
{
	_cleanup_free_ struct sample *v = NULL;
	char *text = NULL;
	size_t n, len;
	FILE *f;

	if (copy(s, last, &v, &n) < 0)
		return NULL;
	f = open_memstream(&text, &len);
	if (!f)
		return NULL;
	fprintf(f, "{\"interval_secs\":%d,\"samples\":[", METRICS_EVERY_SECS);
	for (size_t i = 0; i < n; i++) {
		if (i)
			fputc(',', f);
		print_sample(f, &v[i]);
	}
	fputs("]}", f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}
