/* SPDX-License-Identifier: MIT */
/* Attach, node contract section 12: two threads a connection. The connection's own reads frames and
 * applies them one after the other, so what arrived before a close is still applied; the other
 * sends output at the client's pace. A process that does not read its input can block the first for
 * long, and its client may have left meanwhile: it watches a socket pair that the second lets go
 * when nobody will read any more, the process does not go on reading, or the server stops. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/api/call.h"
#include "sandboxd/api/frames.h"
#include "sandboxd/api/upgrade.h"
#include "sandboxd/core/proc.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROTOCOL  "sbx-stream/1"
#define PIECE     65536
#define TICK_MS   1000
#define LINGER_MS 500 /* for the client to close after the exit frame */

struct attach {
	struct sandbox *s; /* referenced */
	struct proc *p;
	bool use, held; /* held: an open attach is use */
	int fd;
	int in_end, out_end;     /* the pair: closed by input, by output when it is over */
	_Atomic unsigned pieces; /* of input, that are through */
	struct proc_reader reader;
};

static void on_input(void *arg, const void *buf, size_t len)
{
	struct attach *a = arg;

	/* Closed input, an exited process, a sandbox that ended: ignored. */
	if (proc_stdin_ok(a->p, NULL) < 0 || sandbox_enter(a->s, a->use, NULL) < 0)
		return;
	(void)proc_stdin(a->p, buf, len, false, a->in_end, NULL);
	a->pieces++;
	sandbox_leave(a->s, a->use);
}

static void on_end(void *arg)
{
	struct attach *a = arg;

	if (proc_stdin_ok(a->p, NULL) < 0 || sandbox_enter(a->s, a->use, NULL) < 0)
		return;
	(void)proc_stdin(a->p, NULL, 0, true, a->in_end, NULL);
	sandbox_leave(a->s, a->use);
}

static void on_signal(void *arg, const char *word)
{
	struct attach *a = arg;
	int sig = 0;

	if (proc_signal_number(word, &sig, NULL) == 0)
		(void)proc_signal(a->p, sig, a->use, NULL);
}

static void on_resize(void *arg, uint16_t rows, uint16_t cols)
{
	struct attach *a = arg;

	if (!proc_is_tty(a->p) || proc_exited(a->p, NULL) || sandbox_enter(a->s, a->use, NULL) < 0)
		return;
	(void)proc_resize(a->p, rows, cols, NULL);
	sandbox_leave(a->s, a->use);
}

static void read_frames(struct attach *a, const void *extra, size_t extra_len)
{
	static const struct frame_calls calls = { on_input, on_end, on_signal, on_resize };
	_cleanup_free_ char *buf = malloc(PIECE);
	struct frames f = { 0 };
	ssize_t n;

	if (!buf || (extra_len && frames_feed(&f, extra, extra_len, &calls, a) < 0))
		return;
	for (;;) {
		n = recv(a->fd, buf, PIECE, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || frames_feed(&f, buf, (size_t)n, &calls, a) < 0)
			return;
	}
}

static bool send_frame(struct attach *a, char type, uint8_t *frame, size_t len)
{
	frame_head(type, (uint32_t)len, frame);
	return fd_send_full(a->fd, frame, FRAME_HEAD + len, -1) == 0;
}

static bool send_exit(struct attach *a, int code)
{
	uint8_t frame[FRAME_HEAD + 4];

	for (int i = 0; i < 4; i++)
		frame[FRAME_HEAD + i] = (uint8_t)((uint32_t)code >> (24 - 8 * i));
	return send_frame(a, 'x', frame, 4) && shutdown(a->fd, SHUT_WR) == 0;
}

/* Both directions closed: a half-close alone is for the reading thread to see. */
static bool hung_up(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* Until all is sent, the client has left, or the reading thread is done. */
static void write_output(struct attach *a)
{
	_cleanup_free_ uint8_t *frame = malloc(FRAME_HEAD + PIECE);
	int stream, code;
	size_t n;

	if (!frame)
		shutdown(a->fd, SHUT_RDWR);
	while (frame) {
		switch (proc_reader_next(&a->reader, TICK_MS, &stream, (char *)frame + FRAME_HEAD,
			PIECE, &n, &code)) {
		case PROC_READ_DATA:
			if (!send_frame(a, stream ? 'E' : 'o', frame, n))
				return;
			break;
		case PROC_READ_END:
			(void)send_exit(a, code); /* who has left needs no exit */
			return;
		case PROC_READ_QUIET:
			if (proc_reader_stopped(&a->reader) || hung_up(a->fd))
				return;
		}
	}
}

/* What the client sent before it left is still applied, while the process reads on. */
static void outlast_input(struct attach *a)
{
	unsigned pieces = a->pieces;

	for (int still = 0; still < upgrade_patience_ms; still += TICK_MS) {
		if (proc_exited(a->p, NULL) || core_stopping(a->s->core) ||
			fd_wait(a->out_end, POLLIN, TICK_MS))
			return;
		if (a->pieces != pieces)
			still = 0;
		pieces = a->pieces;
	}
}

static void *output_main(void *arg)
{
	struct attach *a = arg;

	write_output(a);
	outlast_input(a);
	/* Bytes of the client that nobody has read would turn our close into a reset that overtakes
	 * the exit frame, so the reading thread gets a moment to see the client's own end. */
	(void)fd_wait(a->out_end, POLLIN, LINGER_MS);
	shutdown(a->fd, SHUT_RDWR);
	shutdown(a->out_end, SHUT_RDWR);
	return NULL;
}

static void serve(struct attach *a, const void *extra, size_t extra_len)
{
	pthread_attr_t attr;
	pthread_t output;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	a->in_end = pair[0];
	a->out_end = pair[1];
	proc_reader_init(&a->reader, a->p);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	if (pthread_create(&output, &attr, output_main, a) == 0) {
		read_frames(a, extra, extra_len);
		shutdown(a->in_end, SHUT_RDWR);
		proc_reader_kick(&a->reader);
		shutdown(a->fd, SHUT_RDWR);
		pthread_join(output, NULL);
	}
	pthread_attr_destroy(&attr);
	proc_reader_fini(&a->reader);
	close(pair[0]);
	close(pair[1]);
}

static void attach_run(void *arg, int fd, const void *extra, size_t extra_len)
{
	struct attach *a = arg;

	a->fd = fd;
	if (fd >= 0)
		serve(a, extra, extra_len);
	sandbox_release(a->s, a->held);
	proc_unref(a->p);
	sandbox_unref(a->s);
	free(a);
}

int handle_process_attach(struct call *c, struct err *e)
{
	_cleanup_(sandbox_unref_p) struct sandbox *s = NULL;
	_cleanup_free_ struct attach *a = calloc(1, sizeof(*a));

	if (!a)
		return err_oom(e);
	if (upgrade_check(c, PROTOCOL, e) < 0 || call_sandbox(c, &s, e) < 0 ||
		proc_find(s, call_param(c, "pid"), &a->p, e) < 0)
		return -1;
	if (proc_output_open(a->p, e) < 0) {
		proc_unref(a->p);
		return -1;
	}
	a->use = call_use(c);
	a->held = sandbox_hold(s, a->use);
	a->s = steal(s);
	http_upgrade(c->req, PROTOCOL, attach_run, steal(a));
	return 0;
}
