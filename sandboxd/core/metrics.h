/* SPDX-License-Identifier: MIT */
/* Usage of sandboxes over the last hour (node contract, 19): measured on the host every five seconds by
 * one thread, kept in memory only, readable until the sandbox is forgotten.
 * One sandbox's hour is at most 720 samples of 48 bytes, 34 KiB; memory is taken as time goes by, so that
 * most take less. */
#ifndef SANDBOXD_CORE_METRICS_H
#define SANDBOXD_CORE_METRICS_H

#include "sandboxd/core/sandbox.h"

#define METRICS_EVERY_SECS 5
#define METRICS_KEPT       720

struct metrics; /* one sandbox's; sandbox.metrics, NULL until its first sample */
struct sample {
	int64_t time_ns;    /* CLOCK_REALTIME, whole microseconds; later than the one before */
	double cpu_percent; /* of the given processors since the sample before, 0 to 100 */
	int64_t memory_bytes, memory_limit_bytes;
	int64_t net_rx_bytes, net_tx_bytes, disk_read_bytes, disk_write_bytes; /* since its start */
	int64_t processes;  /* 0: cannot be seen */
};

/* Without the capability there is nothing to start. */
int metrics_start(struct core *c, struct err *e);
void metrics_stop(struct core *c);
void metrics_free(struct metrics *m);

/* The answer of GET …/metrics as text, its newest `last` samples (0: all); takes the lock itself, caller
 * frees. NULL: out of memory. */
char *metrics_text(struct sandbox *s, uint64_t last);
/* Lock held. How many samples there ever were, and the newest of them. */
uint64_t metrics_count(const struct sandbox *s);
bool metrics_newest(const struct sandbox *s, struct sample *ret);

/* The ring alone, for the tests. mono_ns: when the figures were read. False: out of memory, nothing was
 * added. Figures below zero keep the value before; counters that fall are not believed. */
struct metrics_read {
	int64_t mono_ns, wall_ns;
	struct backend_meter meter;
	int64_t net_rx_bytes, net_tx_bytes;
};
struct metrics *metrics_new(void);
bool metrics_add(struct metrics *m, const struct metrics_read *r, double cpus);
/* The time until the next reading does not count: the sandbox sleeps. */
void metrics_pause(struct metrics *m);
size_t metrics_len(const struct metrics *m);
bool metrics_get(const struct metrics *m, size_t i, struct sample *ret); /* 0: the oldest */
/* Has it used the processor since the last reading, or is that unknown? */
bool metrics_ran(const struct metrics *m, int64_t cpu_ns);
/* The sampler's own: when it is to be read next, and its network. */
int64_t *metrics_due_ms(struct metrics *m);
int64_t *metrics_net_ms(struct metrics *m);

#endif
