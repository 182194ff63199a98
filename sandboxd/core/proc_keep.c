/* SPDX-License-Identifier: MIT */
/* What is kept and for how long: everything until the sandbox is forgotten, but of many exited
 * processes the oldest lose their output first and their record later. And the way back: after a
 * restart the table is read from the spool files. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define KEEP_OUTPUT  1024
#define KEEP_RECORDS 4096
#define KEEP_ARGV    (4u << 20) /* bytes of the arguments in these */
#define BATCH        128

/* Collects exited processes that nobody reads, oldest first, until no more than `keep` are left, whose
 * arguments take `bytes` at most; a reference for each. */
static size_t collect(struct sandbox *s, unsigned keep, size_t bytes, bool with_output,
	struct proc *out[BATCH])
{
	unsigned left;
	size_t heavy, n = 0;

	pthread_mutex_lock(&s->lock);
	left = HASH_COUNT(s->procs) - s->running_procs;
	heavy = s->argv_kept;
	for (struct proc *p = s->procs; p && (left > keep || heavy > bytes) && n < BATCH;
		p = p->hh.next) {
		if (p->state != PROC_EXITED)
			continue;
		left--;
		heavy -= p->argv_bytes;
		if (p->refs > 1 || (with_output && p->output_lost))
			continue;
		p->refs++;
		out[n++] = p;
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void lose_output(struct proc *p)
{
	if (proc_spool(p) >= 0)
		spool_drop_output(p);
	pthread_mutex_lock(&p->sandbox->lock);
	p->output_lost = true;
	pthread_mutex_unlock(&p->sandbox->lock);
	proc_unref(p);
}

static void lose_record(struct proc *p)
{
	struct sandbox *s = p->sandbox;

	pthread_mutex_lock(&s->lock);
	p->output_lost = false; /* its spool may be opened for this once more */
	proc_remove(p);
	pthread_mutex_unlock(&s->lock);
	if (proc_spool(p) >= 0)
		spool_free(p);
	proc_unref(p);
}

bool proc_too_heavy(struct sandbox *s)
{
	bool heavy;

	pthread_mutex_lock(&s->lock);
	heavy = s->argv_kept > KEEP_ARGV;
	pthread_mutex_unlock(&s->lock);
	return heavy;
}

void proc_retire(struct sandbox *s)
{
	struct proc *p[BATCH];
	size_t n;

	do {
		n = collect(s, KEEP_RECORDS, KEEP_ARGV, false, p);
		for (size_t i = 0; i < n; i++)
			lose_record(p[i]);
	} while (n == BATCH);
	n = collect(s, KEEP_OUTPUT, SIZE_MAX, true, p);
	for (size_t i = 0; i < n; i++)
		lose_output(p[i]);
}

/* "spool7" holds the processes from 7 * SPOOL_SLOTS on. */
static bool parse_name(const char *name, uint32_t *ret)
{
	char again[24];
	unsigned long n;

	if (strncmp(name, "spool", 5))
		return false;
	n = strtoul(name + 5, NULL, 10);
	if (n > UINT32_MAX / SPOOL_SLOTS)
		return false;
	*ret = (uint32_t)n * SPOOL_SLOTS;
	spool_file_name(*ret, again);
	return !strcmp(name, again);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int list_spools(const struct sandbox *s, uint32_t **ret, size_t *ret_n, struct err *e)
{
	_cleanup_free_ uint32_t *nums = NULL;
	size_t n = 0, room = 0;
	int fd = openat(s->run_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	uint32_t num;

	if (!d) {
		close_p(&fd);
		return err_sys(e, errno, "read the run folder of %s", s->id);
	}
	while ((de = readdir(d))) {
		if (!parse_name(de->d_name, &num))
			continue;
		if (n == room) {
			room = room ? room * 2 : 64;
			uint32_t *more = realloc(nums, room * sizeof(*more));
			if (!more) {
				closedir(d);
				return err_oom(e);
			}
			nums = more;
		}
		nums[n++] = num;
	}
	closedir(d);
	if (n)
		qsort(nums, n, sizeof(*nums), by_number);
	*ret = steal(nums);
	*ret_n = n;
	return 0;
}

static bool fill_from_meta(struct proc *p)
{
	_cleanup_json_ json_t *o = NULL;
	const char *name = NULL;
	json_t *argv, *item;
	json_int_t started;
	uint32_t noted;
	size_t i;
	int tty;

	if (spool_meta_read(p, &o, &noted) < 0 ||
		json_unpack(o, "{s:o, s:b, s?s, s:I}", "argv", &argv, "tty", &tty, "name", &name,
			"started_ns", &started) < 0 ||
		json_array_size(argv) == 0)
		return false;
	p->argv = calloc(json_array_size(argv) + 1, sizeof(*p->argv));
	if (!p->argv || (name && (!process_name_ok(name) || !(p->name = strdup(name)))))
		return false;
	json_array_foreach (argv, i, item)
		if (!json_is_string(item) || !(p->argv[i] = strdup(json_string_value(item))))
			return false;
	p->tty = tty;
	p->started_ns = started;
	p->start_logged = true;
	p->exit_logged = noted & 1;
	p->timed_out = noted & 2;
	return true;
}

/* The table gets the process as running first: an exit that is reported just now then finds it, and
 * one that was reported before is seen in the head. Records lie where a shim can write, so what they take is
 * held to what starts may take. */
static void take_back(struct proc *p, bool alive, bool over)
{
	struct sandbox *s = p->sandbox;
	struct spool_head h;

	pthread_mutex_lock(&s->lock);
	p->state = PROC_RUNNING;
	bool in = (over || proc_argv_fits(p)) && proc_insert(p);
	if (in) {
		s->running_procs++;
		s->idle_since_ms = 0;
	}
	pthread_mutex_unlock(&s->lock);
	if (!in || spool_head_read(p, &h) < 0)
		return;
	if (h.state == SPOOL_EXITED) {
		proc_note_exit(s, p->num);
	} else if (!alive) {
		pthread_mutex_lock(&s->lock);
		proc_mark_exited(p, PROC_EXIT_LOST, clock_wall_ns());
		pthread_mutex_unlock(&s->lock);
		proc_log_exited(p);
	}
}

/* 1: the number is used up, for the slot has a record, of which a shim may have heard. -1: no memory or
 * descriptor to look. */
static int restore_one(struct sandbox *s, uint32_t num, bool alive, struct err *e)
{
	struct proc *p = proc_new(s);
	struct spool_head h;
	bool used = false;

	if (!p)
		return err_oom(e);
	p->num = num;
	if (proc_output_open(p, e) < 0) {
		proc_unref(p);
		return -1;
	}
	if (proc_spool(p) >= 0)
		used = fill_from_meta(p);
	if (used && spool_head_read(p, &h) == 0 && h.state != SPOOL_NEW)
		take_back(p, alive, !alive || h.state == SPOOL_EXITED);
	else if (used)
		spool_clear(p); /* its start was never answered */
	proc_unref(p);
	return used;
}

int proc_restore(struct sandbox *s, bool alive, struct err *e)
{
	_cleanup_free_ uint32_t *firsts = NULL;
	uint32_t next = 1;
	size_t n = 0;

	if (list_spools(s, &firsts, &n, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = firsts[i] ? 0 : 1; k < SPOOL_SLOTS; k++) {
			int used = restore_one(s, firsts[i] + k, alive, e);
			if (used < 0)
				return -1;
			if (used)
				next = firsts[i] + k + 1;
			if (proc_too_heavy(s))
				proc_retire(s);
		}
	pthread_mutex_lock(&s->lock);
	if (s->next_num < next)
		s->next_num = next;
	pthread_mutex_unlock(&s->lock);
	return 0;
}
