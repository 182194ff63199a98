/* SPDX-License-Identifier: MIT */
/* run: a command line as one write, and last: where its output is. */
#include "sbxfs/nodes_fn.h"
#include "sbxfs/proc.h"
#include "sbxfs/remote.h"
#include "sbxfs/value.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define STOP_MS 5000
#define RETRY_MS 200

int read_last(struct req *q, const struct spot *s, struct text *t)
{
	int64_t pid = process_last(q->m, s->box, q->uid);
	char name[64];

	if (!pid)
		return -ENOENT;
	if (process_alias(q, s->box, pid, name, sizeof(name)))
		txt_printf(t, "processes/%s", name);
	else
		txt_printf(t, "processes/%lld", (long long)pid);
	return 0;
}

/* Interrupted: the command is asked to stop, then made to. The kernel waits for our answer, so the
 * asking has a deadline of its own. */
static void stop_command(struct req *q, const char *box, int64_t pid)
{
	struct req own = { .m = q->m, .uid = q->uid, .acts = true, .start_ms = now_ms() };
	uint64_t until = now_ms() + STOP_MS;
	const struct timespec pause = { .tv_nsec = 20000000 };

	if (process_signal(&own, box, pid, "INT") < 0)
		return;
	while (now_ms() < until) {
		json_t *o = NULL;
		bool ended;

		if (process_object(&own, box, pid, &o) < 0)
			return;
		ended = json_is_integer(json_object_get(o, "exit_code"));
		json_decref(o);
		if (ended)
			return;
		nanosleep(&pause, NULL);
	}
	(void)process_signal(&own, box, pid, "KILL");
}

static bool is_passing(int rc)
{
	return rc == -EHOSTDOWN || rc == -ETIMEDOUT || rc == -EAGAIN || rc == -EIO || rc == -ECONNRESET ||
		rc == -EPROTO;
}

/* 1: it has ended; 0: it goes on. */
static int has_ended(struct req *q, const char *box, int64_t pid)
{
	json_t *o;
	int rc = process_object(q, box, pid, &o);

	if (rc < 0)
		return rc;
	rc = json_is_integer(json_object_get(o, "exit_code"));
	json_decref(o);
	return rc;
}

/* The command outlives a run of the server, and so does the waiting for it. */
static int wait_for(struct req *q, const char *box, int64_t pid)
{
	const struct timespec pause = { .tv_nsec = RETRY_MS * 1000000 };
	int code, rc = process_wait(q, box, pid, &code);

	while (is_passing(rc)) {
		if (remote_interrupted(q))
			return refuse(q, EINTR, "interrupted");
		nanosleep(&pause, NULL);
		rc = has_ended(q, box, pid);
		if (rc == 0)
			rc = process_wait(q, box, pid, &code);
	}
	return rc < 0 ? rc : 0;
}

int apply_run(struct req *q, const struct spot *s, const char *value, size_t len, bool append)
{
	char *line = value_line(value, len);
	int64_t pid;
	json_t *body;
	int rc;

	(void)append;
	if (!line || !line[0]) {
		free(line);
		return refuse(q, EINVAL, "run: a command line is needed");
	}
	body = json_pack("{s:[s,s,s]}", "argv", "/bin/sh", "-c", line);
	free(line);
	if (!body)
		return refuse(q, EINVAL, "run: the line is not UTF-8");
	rc = process_start(q, s->box, body, &pid);
	if (rc < 0)
		return rc;
	process_set_last(q->m, s->box, q->uid, pid);
	q->acts = false; /* the running process keeps the sandbox awake, the waiting does not */
	rc = wait_for(q, s->box, pid);
	if (rc == -EINTR)
		stop_command(q, s->box, pid);
	mount_touch(q->m);
	return rc;
}
