/* SPDX-License-Identifier: MIT */
/* The checks of 11.1, in its order, and the start. The process is in the table before the shim
 * hears of it; when the start fails it leaves the table again and its number is given back. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core.h"

#include <string.h>

#define CWD_DEFAULT  "/sandbox/home"
#define RETIRE_EVERY 64 /* starts between two looks at what is kept too long */

static int check_name(const struct sandbox *s, const char *name, struct err *e)
{
	if (!name || !*name)
		return 0;
	if (s->core && !core_cap(s->core, CAP_PROCESS_NAMES))
		return err_set(e, ERR_UNSUPPORTED, "this server gives no names to processes");
	if (!process_name_ok(name))
		return err_set(e, ERR_INVALID_REQUEST,
			"name: a lower-case letter, then lower-case letters, digits, dot, dash, underscore; "
			"at most 63");
	return 0;
}

static int check_body(const struct sandbox *s, const struct process_body *b,
	char cwd[GUEST_PATH_MAX], struct err *e)
{
	if (b->argv.n == 0 || !*b->argv.v[0])
		return err_set(e, ERR_INVALID_REQUEST, "argv: the first entry must name a program");
	strcpy(cwd, CWD_DEFAULT);
	if (b->cwd && *b->cwd && guest_path_clean(b->cwd, strlen(b->cwd), "cwd", cwd, e) < 0)
		return -1;
	if (proc_env_check(&b->env, e) < 0)
		return -1;
	return check_name(s, b->name, e);
}

static struct proc *make(struct sandbox *s, const struct process_body *b)
{
	struct proc *p = proc_new(s);
	bool ok = p;

	if (!p)
		return NULL;
	p->tty = b->tty;
	p->started_ns = clock_wall_ns();
	p->argv = calloc(b->argv.n + 1, sizeof(*p->argv));
	ok = p->argv;
	for (size_t i = 0; ok && i < b->argv.n; i++)
		ok = (p->argv[i] = strdup(b->argv.v[i]));
	if (ok && b->name && *b->name)
		ok = (p->name = strdup(b->name));
	if (ok)
		return p;
	proc_unref(p);
	return NULL;
}

/* Gives it its number and puts it into the table. */
static int enlist(struct proc *p, struct err *e)
{
	struct sandbox *s = p->sandbox;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (s->next_num == 0)
		s->next_num = 1;
	p->num = s->next_num;
	if (s->state != SBX_RUNNING || s->turn == TURN_SLEEP)
		r = err_set(e, ERR_CONFLICT, "sandbox is being suspended"); /* which counts the table */
	else if (p->name && proc_by_name(s, p->name))
		r = err_set(e, ERR_CONFLICT, "a process of this sandbox has the name %s already",
			p->name);
	else if (p->num == UINT32_MAX)
		r = err_set(e, ERR_CONFLICT, "this sandbox has used up its process numbers");
	else if (!proc_argv_fits(p))
		r = err_set(e, ERR_CONFLICT,
			"the arguments of this sandbox's processes take more than %u MiB",
			PROC_ARGV_MOST >> 20);
	else if (!proc_insert(p))
		r = err_oom(e);
	if (r == 0) {
		s->next_num++;
		s->running_procs++;
		s->idle_since_ms = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* A refused start was never a process: number and file are free again. After any other failure the
 * shim may know the number, and it is not used again. */
static void delist(struct proc *p, bool refused)
{
	struct sandbox *s = p->sandbox;

	pthread_mutex_lock(&s->lock);
	if (p->state != PROC_EXITED)
		proc_count_down(s);
	proc_remove(p);
	if (refused && s->next_num == p->num + 1)
		s->next_num = p->num;
	pthread_mutex_unlock(&s->lock);
}

static int hand_over(struct proc *p, const struct process_body *b, const char *cwd,
	char *const *env, bool stdin_open, struct err *e)
{
	struct sandbox *s = p->sandbox;
	bool sized = b->rows && b->cols; /* one of them alone is no size */
	struct guest_start g = {
		.num = p->num,
		.argv = (const char *const *)p->argv,
		.env = (const char *const *)env,
		.cwd = cwd,
		.tty = p->tty,
		.rows = sized ? (uint16_t)b->rows : 0,
		.cols = sized ? (uint16_t)b->cols : 0,
		.stdin_data = b->stdin_data.data,
		.stdin_len = b->stdin_data.len,
		.stdin_open = stdin_open,
	};

	if (spool_create(p, cwd, &g.spool_fd, e) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	p->spool_fd = g.spool_fd;
	p->stdin_closed = !stdin_open;
	pthread_mutex_unlock(&s->lock);
	if (guest_start(s->guest, &g, e) == 0)
		return 0;
	spool_clear(p);
	return -1;
}

/* process.started is in the log before process.exited, even if the exit was quicker. */
static void announce(struct proc *p, const struct process_body *body)
{
	struct sandbox *s = p->sandbox;
	bool over;

	pthread_mutex_lock(&s->lock);
	if (p->state == PROC_STARTING)
		p->state = PROC_RUNNING;
	pthread_mutex_unlock(&s->lock);
	proc_log_started(p, body);
	pthread_mutex_lock(&s->lock);
	p->start_logged = true;
	over = p->state == PROC_EXITED;
	pthread_mutex_unlock(&s->lock);
	if (over)
		proc_log_exited(p);
}

int proc_launch(struct sandbox *s, const struct process_body *body, bool stdin_open,
	struct proc **ret, struct err *e)
{
	char cwd[GUEST_PATH_MAX];
	struct err why = ERR_NULL;

	if (check_body(s, body, cwd, e) < 0)
		return -1;
	_cleanup_free_ char **env = proc_env_build(s, &body->env, body->tty);
	struct proc *p = env ? make(s, body) : NULL;
	if (!p)
		return err_oom(e);
	if (enlist(p, e) < 0) {
		proc_unref(p);
		return -1;
	}
	if (hand_over(p, body, cwd, env, stdin_open, &why) < 0) {
		delist(p, why.code == ERR_INVALID_REQUEST);
		proc_unref(p);
		if (e)
			*e = why;
		return -1;
	}
	announce(p, body);
	if (p->num % RETIRE_EVERY == 0 || proc_too_heavy(s))
		proc_retire(s);
	*ret = p;
	return 0;
}

int proc_start(struct sandbox *s, const struct process_body *body, struct proc **ret, struct err *e)
{
	return proc_launch(s, body, true, ret, e);
}
