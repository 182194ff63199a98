/* SPDX-License-Identifier: MIT */
/* Input, signals and window size: what goes to a process. */
#include "sandboxd/core/proc_internal.h"

#include "common/sys/mem.h"

#include <signal.h>
#include <string.h>

int proc_stdin_ok(struct proc *p, struct err *e)
{
	bool exited, closed;

	pthread_mutex_lock(&p->sandbox->lock);
	exited = p->state == PROC_EXITED;
	closed = p->stdin_closed;
	pthread_mutex_unlock(&p->sandbox->lock);
	if (exited)
		return err_set(e, ERR_CONFLICT, "the process has exited");
	return closed ? err_set(e, ERR_CONFLICT, "standard input is closed") : 0;
}

int proc_stdin(
	struct proc *p, const void *buf, size_t len, bool close_after, int watch_fd, struct err *e)
{
	if (proc_stdin_ok(p, e) < 0)
		return -1;
	if (guest_stdin(p->sandbox->guest, p->num, buf, len, close_after, watch_fd, e) < 0)
		return -1;
	/* A terminal stays open behind its end-of-input character. */
	if (close_after && !p->tty) {
		pthread_mutex_lock(&p->sandbox->lock);
		p->stdin_closed = true;
		pthread_mutex_unlock(&p->sandbox->lock);
	}
	return 0;
}

int proc_resize(struct proc *p, uint16_t rows, uint16_t cols, struct err *e)
{
	if (!p->tty || proc_exited(p, NULL))
		return 0;
	return guest_resize(p->sandbox->guest, p->num, rows, cols, e);
}

int proc_signal_number(const char *word, int *ret, struct err *e)
{
	static const struct {
		const char *word;
		int number;
	} signals[] = {
		{ "INT", SIGINT },
		{ "TERM", SIGTERM },
		{ "KILL", SIGKILL },
		{ "HUP", SIGHUP },
	};

	for (size_t i = 0; word && i < ARRAY_LEN(signals); i++)
		if (!strcmp(signals[i].word, word)) {
			*ret = signals[i].number;
			return 0;
		}
	return err_set(e, ERR_INVALID_REQUEST, "signal must be INT, TERM, KILL or HUP");
}

int proc_signal(struct proc *p, int sig, bool use, struct err *e)
{
	struct sandbox *s = p->sandbox;
	int r;

	if (proc_exited(p, NULL))
		return 0;
	r = sandbox_enter(s, use, e);
	if (r == 0) {
		r = guest_signal(s->guest, p->num, sig, false, e);
		sandbox_leave(s, use);
	}
	/* It may have ended meanwhile, with its sandbox even: a success without effect. */
	return r < 0 && proc_exited(p, NULL) ? 0 : r;
}
