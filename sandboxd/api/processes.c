/* SPDX-License-Identifier: MIT */
/* Handlers of processes: run, start, look, output, input, signal (node contract, section 11). */
#include "common/sys/mem.h"
#include "sandboxd/api/call.h"
#include "sandboxd/core/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX 65536 /* answers up to this size are sent from memory */
#define LINE_RAW  49152 /* output bytes in one line of a stream */
#define QUIET_MS  1000  /* how often a quiet stream asks whether its client is still there */

static void process_body_free(struct process_body *b)
{
	schema_free(process_fields, b);
}
static void proc_unref_p(struct proc **p)
{
	proc_unref(*p);
}

/* {ref} and {pid} of the path; both referenced. */
static int find(struct call *c, struct sandbox **ret_s, struct proc **ret_p, struct err *e)
{
	struct sandbox *s = NULL;

	if (call_sandbox(c, &s, e) < 0)
		return -1;
	if (proc_find(s, call_param(c, "pid"), ret_p, e) < 0) {
		sandbox_unref(s);
		return -1;
	}
	*ret_s = s;
	return 0;
}

/* A run's answer while it is sent. */
struct answer {
	struct sandbox *s; /* referenced */
	struct proc_result result;
};

static ssize_t answer_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	const struct answer *a = arg;

	return (ssize_t)proc_result_read(&a->result, pos, buf, max);
}

static void answer_done(void *arg)
{
	struct answer *a = arg;

	proc_result_fini(&a->result);
	sandbox_unref(a->s);
	free(a);
}

static int answer_send(struct call *c, struct answer *a)
{
	char *text = a->result.text_len <= WHOLE_MAX ? malloc(a->result.text_len) : NULL;
	struct http_source src = { a, answer_read, answer_done };
	size_t at = 0, n;

	if (!text)
		return reply_stream(c, 200, "application/json", (int64_t)a->result.text_len, &src);
	while ((n = proc_result_read(&a->result, at, text + at, a->result.text_len - at)))
		at += n;
	http_reply(c->req, 200, "application/json", text, at);
	free(text);
	answer_done(a);
	return 0;
}

int handle_process_run(struct call *c, struct err *e)
{
	_cleanup_(process_body_free) struct process_body body = { 0 };
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_free_ struct answer *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return err_oom(e);
	if (call_decode(c, process_fields, &body, e) < 0 || call_sandbox(c, &s, e) < 0 ||
		sandbox_enter(s, call_use(c), e) < 0)
		return -1;
	r = proc_run(s, &body, call_gone, c, &a->result, e);
	sandbox_leave(s, call_use(c));
	if (r < 0)
		return -1;
	a->s = steal(s);
	return answer_send(c, steal(a));
}

int handle_process_start(struct call *c, struct err *e)
{
	_cleanup_(process_body_free) struct process_body body = { 0 };
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_(proc_unref_p) struct proc *p = NULL;
	int r;

	if (call_decode(c, process_fields, &body, e) < 0 || call_sandbox(c, &s, e) < 0 ||
		sandbox_enter(s, call_use(c), e) < 0)
		return -1;
	r = proc_start(s, &body, &p, e);
	sandbox_leave(s, call_use(c));
	return r < 0 ? -1 : reply_json(c, 201, proc_json(p));
}

int handle_process_list(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;

	if (call_sandbox(c, &s, e) < 0)
		return -1;
	return reply_json(c, 200, proc_list_json(s));
}

int handle_process_get(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_(proc_unref_p) struct proc *p = NULL;

	if (find(c, &s, &p, e) < 0)
		return -1;
	return reply_json(c, 200, proc_json(p));
}

/* A follower of output: NDJSON lines, made one at a time from what its reader finds. */
struct follow {
	struct sandbox *s; /* referenced */
	struct http_req *req;
	bool held, ended;
	struct proc_reader reader;
	size_t len, at; /* of the line */
	char raw[LINE_RAW];
	char line[LINE_RAW / 3 * 4 + 64];
};

static void make_line(struct follow *f, int stream, size_t n)
{
	int head = sprintf(f->line, "{\"stream\":\"%s\",\"data\":\"", stream ? "stderr" : "stdout");

	f->len = (size_t)head + base64_put(f->raw, n, f->line + head);
	memcpy(f->line + f->len, "\"}\n", 3);
	f->len += 3;
	f->at = 0;
}

static bool next_line(struct follow *f)
{
	int stream, code;
	size_t n;

	for (;;) {
		switch (proc_reader_next(
			&f->reader, QUIET_MS, &stream, f->raw, LINE_RAW, &n, &code)) {
		case PROC_READ_DATA:
			make_line(f, stream, n);
			return true;
		case PROC_READ_END:
			f->len = (size_t)sprintf(f->line, "{\"exit_code\":%d}\n", code);
			f->at = 0;
			f->ended = true;
			return true;
		case PROC_READ_QUIET:
			if (http_client_gone(f->req))
				return false;
		}
	}
}

static ssize_t follow_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct follow *f = arg;
	size_t n;

	(void)pos;
	if (f->at == f->len) {
		if (f->ended)
			return 0;
		if (!next_line(f))
			return -1;
	}
	n = f->len - f->at < max ? f->len - f->at : max;
	memcpy(buf, f->line + f->at, n);
	f->at += n;
	return (ssize_t)n;
}

static void follow_done(void *arg)
{
	struct follow *f = arg;

	proc_reader_fini(&f->reader);
	sandbox_release(f->s, f->held);
	sandbox_unref(f->s);
	free(f);
}

/* Takes s. */
static struct follow *follow_new(struct call *c, struct sandbox *s, struct proc *p)
{
	struct follow *f = malloc(sizeof(*f));

	if (!f)
		return NULL;
	f->s = s;
	f->req = c->req;
	f->held = sandbox_hold(s, call_use(c));
	f->ended = false;
	f->len = f->at = 0;
	proc_reader_init(&f->reader, p);
	return f;
}

int handle_process_output(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_(proc_unref_p) struct proc *p = NULL;
	struct http_source src = { NULL, follow_read, follow_done };

	if (find(c, &s, &p, e) < 0 || proc_output_open(p, e) < 0)
		return -1;
	src.arg = follow_new(c, s, p);
	if (!src.arg)
		return err_oom(e);
	s = NULL;
	return reply_stream(c, 200, "application/x-ndjson", -1, &src);
}

/* Standard input: checked before the body, written as it comes. The sandbox stays entered. */
struct input {
	struct sandbox *s; /* referenced and entered */
	struct proc *p;
	bool use, close_after;
};

int handle_process_stdin_begin(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_(proc_unref_p) struct proc *p = NULL;
	struct input *in;
	const char *close_word;
	size_t len;

	if (call_query(c, "close", &close_word, &len, e) < 0 || find(c, &s, &p, e) < 0 ||
		proc_stdin_ok(p, e) < 0 || sandbox_enter(s, call_use(c), e) < 0)
		return -1;
	in = calloc(1, sizeof(*in));
	if (!in) {
		sandbox_leave(s, call_use(c));
		return err_oom(e);
	}
	in->use = call_use(c);
	in->close_after = close_word && !strcmp(close_word, "1");
	in->p = steal(p);
	in->s = steal(s);
	c->state = in;
	return 0;
}

int handle_process_stdin_data(struct call *c, const void *buf, size_t len, struct err *e)
{
	struct input *in = c->state;

	return proc_stdin(in->p, buf, len, false, http_client_fd(c->req), e);
}

int handle_process_stdin(struct call *c, struct err *e)
{
	struct input *in = c->state;

	/* A conflict now means that the process took the last byte and has ended meanwhile (a closed
	 * input was refused at the beginning): its input is closed, as was asked. */
	if (in->close_after && proc_stdin(in->p, NULL, 0, true, http_client_fd(c->req), e) < 0 &&
	    e->code != ERR_CONFLICT)
		return -1;
	return reply_empty(c);
}

void handle_process_stdin_drop(struct call *c, bool complete)
{
	struct input *in = c->state;

	(void)complete; /* what was written is read by now; nothing can be undone */
	if (!in)
		return;
	c->state = NULL;
	sandbox_leave(in->s, in->use);
	proc_unref(in->p);
	sandbox_unref(in->s);
	free(in);
}

int handle_process_signal(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_(proc_unref_p) struct proc *p = NULL;
	struct signal_body body = { 0 };
	int sig = 0, r;

	if (call_decode(c, signal_fields, &body, e) < 0)
		return -1;
	r = find(c, &s, &p, e);
	if (r == 0)
		r = proc_signal_number(body.signal, &sig, e);
	schema_free(signal_fields, &body);
	if (r < 0 || proc_signal(p, sig, call_use(c), e) < 0)
		return -1;
	return reply_empty(c);
}
