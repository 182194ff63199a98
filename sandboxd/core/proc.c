/* SPDX-License-Identifier: MIT */
/* The table of a sandbox's processes and the end of each. A process is in the table from the moment
 * its start is tried, so that nothing the shim reports can miss it; it is shown once it runs. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core.h"

#include <string.h>

bool proc_wait(struct proc *p, pthread_cond_t *cond, int64_t until_ms)
{
	struct timespec t = deadline_at_ms(until_ms);

	return cond_wait_until(cond, &p->sandbox->lock, &t);
}

struct proc *proc_new(struct sandbox *s)
{
	struct proc *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->sandbox = s;
	p->refs = 1;
	p->spool_fd = -1;
	pthread_cond_init(&p->output, NULL);
	pthread_cond_init(&p->exited, NULL);
	return p;
}

static void proc_free(struct proc *p)
{
	close_p(&p->spool_fd);
	pthread_cond_destroy(&p->output);
	pthread_cond_destroy(&p->exited);
	for (char **a = p->argv; a && *a; a++)
		free(*a);
	free(p->argv);
	free(p->name);
	free(p);
}

struct proc *proc_ref(struct proc *p)
{
	pthread_mutex_lock(&p->sandbox->lock);
	p->refs++;
	pthread_mutex_unlock(&p->sandbox->lock);
	return p;
}

/* Hundreds of ended processes must not hold a descriptor each. Lock held; the caller closes it. */
static int idle_fd(struct proc *p)
{
	return p->refs == 1 && p->listed && p->state == PROC_EXITED ? steal_fd(&p->spool_fd) : -1;
}

void proc_unref(struct proc *p)
{
	_cleanup_close_ int fd = -1;
	bool last;

	if (!p)
		return;
	pthread_mutex_lock(&p->sandbox->lock);
	last = --p->refs == 0;
	fd = idle_fd(p);
	pthread_mutex_unlock(&p->sandbox->lock);
	if (last)
		proc_free(p);
}

static size_t argv_size(char *const *argv)
{
	size_t n = sizeof(*argv);

	for (; argv && *argv; argv++)
		n += sizeof(*argv) + strlen(*argv) + 1;
	return n;
}

bool proc_argv_fits(const struct proc *p)
{
	return p->sandbox->argv_live + argv_size(p->argv) <= PROC_ARGV_MOST;
}

bool proc_insert(struct proc *p)
{
	struct sandbox *s = p->sandbox;

	HASH_ADD(hh, s->procs, num, sizeof(p->num), p);
	if (!p->hh.tbl)
		return false;
	p->argv_bytes = argv_size(p->argv);
	s->argv_live += p->argv_bytes;
	p->refs++;
	p->listed = true;
	return true;
}

void proc_remove(struct proc *p)
{
	if (!p->listed)
		return;
	HASH_DEL(p->sandbox->procs, p);
	*(p->state == PROC_EXITED ? &p->sandbox->argv_kept : &p->sandbox->argv_live) -= p->argv_bytes;
	p->listed = false;
	p->refs--;
}

struct proc *proc_by_num(struct sandbox *s, uint32_t num)
{
	struct proc *p = NULL;

	HASH_FIND(hh, s->procs, &num, sizeof(num), p);
	return p;
}

struct proc *proc_by_name(struct sandbox *s, const char *name)
{
	for (struct proc *p = s->procs; p; p = p->hh.next)
		if (p->name && !strcmp(p->name, name))
			return p;
	return NULL;
}

/* Only the one spelling of a number is a process id: no sign, no leading zero. */
static uint32_t parse_num(const char *text)
{
	uint64_t n = 0;

	if (text[0] < '1' || text[0] > '9' || strlen(text) > 10)
		return 0;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return 0;
		n = n * 10 + (uint64_t)(*text - '0');
	}
	return n <= UINT32_MAX ? (uint32_t)n : 0;
}

int proc_find(struct sandbox *s, const char *pid_or_name, struct proc **ret, struct err *e)
{
	uint32_t num = parse_num(pid_or_name);
	struct proc *p = NULL;

	pthread_mutex_lock(&s->lock);
	if (num)
		p = proc_by_num(s, num);
	else if (process_name_ok(pid_or_name))
		p = proc_by_name(s, pid_or_name);
	if (p && p->state == PROC_STARTING)
		p = NULL;
	if (p)
		p->refs++;
	pthread_mutex_unlock(&s->lock);
	if (!p)
		return err_set(e, ERR_NOT_FOUND, "no such process");
	*ret = p;
	return 0;
}

uint32_t proc_num(const struct proc *p)
{
	return p->num;
}

bool proc_is_tty(const struct proc *p)
{
	return p->tty;
}

bool proc_exited(struct proc *p, int *ret_code_or_null)
{
	bool exited;

	pthread_mutex_lock(&p->sandbox->lock);
	exited = p->state == PROC_EXITED;
	if (exited && ret_code_or_null)
		*ret_code_or_null = p->exit_code;
	pthread_mutex_unlock(&p->sandbox->lock);
	return exited;
}

static json_t *to_json(const struct proc *p)
{
	_cleanup_json_ json_t *argv = json_array();
	char started[CLOCK_TEXT_LEN];
	json_t *o;

	clock_text(p->started_ns, started);
	for (char **a = p->argv; argv && a && *a; a++)
		if (json_array_append_new(argv, json_string(*a)) < 0)
			return NULL;
	o = json_pack("{s:I, s:s*, s:O, s:s, s:o, s:s}", "pid", (json_int_t)p->num, "name", p->name,
		"argv", argv, "state", p->state == PROC_EXITED ? "exited" : "running", "exit_code",
		p->state == PROC_EXITED ? json_integer(p->exit_code) : json_null(), "started_at",
		started);
	if (o && p->tty && json_object_set_new(o, "tty", json_true()) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

json_t *proc_json(struct proc *p)
{
	json_t *o;

	pthread_mutex_lock(&p->sandbox->lock);
	o = to_json(p);
	pthread_mutex_unlock(&p->sandbox->lock);
	return o;
}

json_t *proc_list_json(struct sandbox *s)
{
	_cleanup_json_ json_t *list = json_array();
	bool ok = list;

	pthread_mutex_lock(&s->lock);
	for (struct proc *p = s->procs; ok && p; p = p->hh.next)
		if (p->state != PROC_STARTING)
			ok = json_array_append_new(list, to_json(p)) == 0;
	pthread_mutex_unlock(&s->lock);
	return ok ? json_pack("{s:O}", "processes", list) : NULL;
}

void proc_count_down(struct sandbox *s)
{
	s->running_procs--;
	if (s->running_procs == 0 && s->uses == 0)
		s->idle_since_ms = clock_mono_ms();
}

void proc_mark_exited(struct proc *p, int code, int64_t ended_ns)
{
	struct sandbox *s = p->sandbox;

	p->state = PROC_EXITED;
	s->argv_live -= p->argv_bytes;
	s->argv_kept += p->argv_bytes;
	p->exit_code = p->timed_out ? PROC_EXIT_LOST : code;
	p->ended_ns = ended_ns;
	p->stdin_closed = true;
	proc_count_down(s);
}

void proc_tell_exited(struct proc *p)
{
	pthread_cond_broadcast(&p->exited);
	pthread_cond_broadcast(&p->output);
	pthread_cond_broadcast(&p->sandbox->changed);
}

/* Takes a reference for the hub's thread; NULL when the shim names what we do not know or what has
 * exited before. */
static struct proc *live_proc(struct sandbox *s, uint32_t num)
{
	struct proc *p;

	pthread_mutex_lock(&s->lock);
	p = proc_by_num(s, num);
	if (p && p->state == PROC_EXITED)
		p = NULL;
	if (p)
		p->refs++;
	pthread_mutex_unlock(&s->lock);
	return p;
}

static void on_output(void *arg, uint32_t num)
{
	struct sandbox *s = arg;
	struct proc *p;

	pthread_mutex_lock(&s->lock);
	p = proc_by_num(s, num);
	if (p) {
		p->output_seq++;
		pthread_cond_broadcast(&p->output);
	}
	pthread_mutex_unlock(&s->lock);
}

/* The exit becomes visible, and input refused, before anybody can be told of it. The waiters are
 * woken without the lock, or each would at once sleep again on it. */
static void finish(struct proc *p)
{
	struct sandbox *s = p->sandbox;
	struct spool_head h;
	int64_t now = clock_wall_ns();
	bool log = false;

	if (spool_head_read(p, &h) < 0)
		h = (struct spool_head){ .exit_code = PROC_EXIT_LOST };
	if ((int64_t)h.ended_ns < p->started_ns || (int64_t)h.ended_ns > now)
		h.ended_ns = (uint64_t)now;
	pthread_mutex_lock(&s->lock);
	/* One whose start has failed meanwhile is in no table and in no count. */
	if (p->state != PROC_EXITED && p->listed) {
		proc_mark_exited(p, h.exit_code, (int64_t)h.ended_ns);
		log = p->start_logged;
	}
	pthread_mutex_unlock(&s->lock);
	proc_tell_exited(p);
	if (log)
		proc_log_exited(p);
}

void proc_note_exit(struct sandbox *s, uint32_t num)
{
	struct proc *p = live_proc(s, num);

	if (p)
		finish(p);
	proc_unref(p);
}

static void on_exited(void *arg, uint32_t num)
{
	proc_note_exit(arg, num);
}

/* Its processes end with the sandbox, which the core ends from a thread that may wait. */
static void on_gone(void *arg)
{
	sandbox_shim_gone(arg);
}

const struct guest_watch proc_watch = { .output = on_output, .exited = on_exited, .gone = on_gone };

void proc_sandbox_ended(struct sandbox *s)
{
	int64_t now = clock_wall_ns();

	for (struct proc *p = s->procs; p; p = p->hh.next) {
		if (p->state == PROC_EXITED)
			continue;
		proc_mark_exited(p, PROC_EXIT_KILLED, now);
		proc_tell_exited(p);
		if (p->start_logged)
			proc_log_exited(p);
		int fd = idle_fd(p);
		close_p(&fd);
	}
}

void proc_free_all(struct sandbox *s)
{
	for (;;) {
		pthread_mutex_lock(&s->lock);
		struct proc *p = s->procs;
		if (p) {
			p->refs++;
			if (p->state != PROC_EXITED)
				proc_count_down(s);
			proc_remove(p);
		}
		pthread_mutex_unlock(&s->lock);
		if (!p)
			return;
		proc_unref(p);
	}
}
