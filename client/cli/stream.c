/* SPDX-License-Identifier: MIT */
/* One process on this terminal or these pipes. A single loop that never blocks on one of its three
 * sides, so that a command that does not read, or a pager that does not, holds up neither signals
 * nor the other direction. Signals travel as requests of their own: on the stream they would queue
 * behind input that nobody reads. */
#include "client/cli/cli.h"

#include "common/sys/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#define FRAME_HEAD         5
#define IN_ROOM            (FRAME_HEAD + SBX_FRAME_MAX)
#define INPUT_CHUNK        65536
#define REJOIN_MS          15000
#define OUTPUT_KEPT        (8 * 1024 * 1024) /* of each stream: node contract, 11.5 */
#define INTERRUPTS_TO_KILL 3                 /* a command that ignores INT is ended by the third */

struct stream {
	struct cli *c;
	const struct stream_conf *conf;
	int sock, signals;
	bool input_open; /* standard input is read */
	bool unread;     /* nobody takes our output any more */
	int unread_code; /* what we end with then */
	bool timed_out;
	bool sent_input; /* some of it may be lost with the connection */
	bool bad_input;  /* it could not be read to its end */
	int interrupts;
	int64_t deadline_ms; /* 0: none */
	/* towards the server: whole frames */
	unsigned char out[FRAME_HEAD + INPUT_CHUNK + 2 * FRAME_HEAD + 4];
	size_t out_len, out_at;
	/* from the server */
	unsigned char *in;
	size_t in_len;
	/* the payload of the frame at the front of `in` that is being written out */
	int to_fd;        /* -1: no frame is under way */
	uint64_t seen[2]; /* bytes of standard output and standard error */
	uint64_t skip[2]; /* of those, how many a new connection still has to repeat */
	size_t to_at, to_end;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void put_frame(struct stream *st, char type, const void *buf, size_t len)
{
	uint32_t be = htonl((uint32_t)len);

	if (st->out_len + FRAME_HEAD + len > sizeof(st->out))
		return; /* only resizes can meet this; the next one tells the size again */
	st->out[st->out_len] = (unsigned char)type;
	memcpy(st->out + st->out_len + 1, &be, 4);
	if (len)
		memcpy(st->out + st->out_len + FRAME_HEAD, buf, len);
	st->out_len += FRAME_HEAD + len;
}

static void put_size(struct stream *st)
{
	int rows, cols;
	uint16_t be[2];

	if (!st->conf->tty || !tty_size(&rows, &cols))
		return;
	be[0] = htons((uint16_t)rows);
	be[1] = htons((uint16_t)cols);
	put_frame(st, 'r', be, sizeof(be));
}

/* Best effort: the process may just have ended. */
static void pass_signal(struct stream *st, const char *name)
{
	sbx_signal(st->c->s, st->conf->ref, st->conf->pid, name, NULL);
}

static void read_input(struct stream *st)
{
	char buf[INPUT_CHUNK];
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n > 0) {
		put_frame(st, 'i', buf, (size_t)n);
		st->sent_input = true;
		return;
	}
	/* A terminal that a job in the background may not read is no input, and no fault. */
	if (n < 0 && !(errno == EIO && isatty(STDIN_FILENO))) {
		st->bad_input = true;
		complain(0, "standard input: %s", strerrordesc_np(errno));
	}
	put_frame(st, 'e', NULL, 0);
	st->input_open = false;
}

static bool flush_out(struct stream *st)
{
	while (st->out_at < st->out_len) {
		ssize_t n = send(st->sock, st->out + st->out_at, st->out_len - st->out_at,
			MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN; /* else the reading side will tell what happened */
		st->out_at += (size_t)n;
	}
	st->out_at = st->out_len = 0;
	return true;
}

/* Our reader is gone, or our output has no room. The guest cannot see that, so the command gets the
 * signal of a lost terminal. Who closed the pipe has what it wanted; else output is missing. */
static void lose_reader(struct stream *st)
{
	st->unread_code = 128 + SIGPIPE;
	if (errno != EPIPE)
		st->unread_code = complain(EXIT_OURS, "%s: %s",
			st->to_fd == STDERR_FILENO ? "standard error" : "standard output",
			strerrordesc_np(errno));
	st->unread = true;
	st->to_fd = -1;
	if (st->conf->kill_on_stop)
		pass_signal(st, "HUP");
	st->deadline_ms = now_ms() + 1000;
}

/* Pipes take PIPE_BUF bytes without blocking when poll says so, so no more is given at once. Files
 * never block. */
static void write_some(struct stream *st)
{
	size_t max = st->to_end - st->to_at;
	struct stat info;

	if (max > 4096 && (fstat(st->to_fd, &info) < 0 || !S_ISREG(info.st_mode)))
		max = 4096;
	ssize_t n = write(st->to_fd, st->in + st->to_at, max);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0)
		return lose_reader(st);
	st->to_at += (size_t)n;
}

/* Drops the frame at the front. */
static void drop_frame(struct stream *st, size_t payload)
{
	st->in_len -= FRAME_HEAD + payload;
	memmove(st->in, st->in + FRAME_HEAD + payload, st->in_len);
}

/* Leaves to_fd alone when nothing of the frame is to be shown. */
static void begin_output(struct stream *st, int which, uint32_t len)
{
	uint32_t known = st->skip[which] < len ? (uint32_t)st->skip[which] : len;

	st->skip[which] -= known;
	st->seen[which] += len - known;
	if (st->unread || known == len)
		return;
	st->to_fd = which ? STDERR_FILENO : STDOUT_FILENO;
	st->to_at = FRAME_HEAD + known;
	st->to_end = FRAME_HEAD + len;
}

enum progress { MORE, NEED_BYTES, DONE, BROKEN };

/* Looks at the frame at the front of `in`. */
static enum progress next_frame(struct stream *st, int *ret_code)
{
	uint32_t len;
	int32_t code;

	if (st->in_len < FRAME_HEAD)
		return NEED_BYTES;
	memcpy(&len, st->in + 1, sizeof(len));
	len = ntohl(len);
	if (len > SBX_FRAME_MAX)
		return BROKEN;
	if (st->in_len < FRAME_HEAD + len)
		return NEED_BYTES;
	if (st->in[0] == 'x') {
		if (len != 4)
			return BROKEN;
		memcpy(&code, st->in + FRAME_HEAD, sizeof(code));
		*ret_code = (int32_t)ntohl((uint32_t)code);
		return DONE;
	}
	if (st->in[0] == 'o' || st->in[0] == 'E')
		begin_output(st, st->in[0] == 'E', len);
	if (st->to_fd < 0)
		drop_frame(st, len);
	return MORE;
}

static enum progress receive(struct stream *st)
{
	ssize_t n = recv(st->sock, st->in + st->in_len, IN_ROOM - st->in_len, MSG_DONTWAIT);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return NEED_BYTES;
	if (n <= 0)
		return BROKEN;
	st->in_len += (size_t)n;
	return MORE;
}

static void take_signal(struct stream *st)
{
	struct signalfd_siginfo si;

	if (read(st->signals, &si, sizeof(si)) != sizeof(si))
		return;
	if (si.ssi_signo == SIGCONT)
		tty_again();
	if (si.ssi_signo == SIGWINCH || si.ssi_signo == SIGCONT)
		put_size(st);
	else if (si.ssi_signo == SIGTERM)
		pass_signal(st, "TERM");
	else if (si.ssi_signo == SIGHUP)
		pass_signal(st, "HUP");
	else
		pass_signal(st, ++st->interrupts >= INTERRUPTS_TO_KILL ? "KILL" : "INT");
}

/* True: stop, *ret_code is the exit code. */
static bool check_deadline(struct stream *st, int *ret_code)
{
	if (!st->deadline_ms || now_ms() < st->deadline_ms)
		return false;
	st->deadline_ms = 0;
	if (st->unread) {
		if (st->conf->kill_on_stop)
			pass_signal(st, "KILL");
		*ret_code = st->unread_code;
		return true;
	}
	st->timed_out = true;
	pass_signal(st, "KILL");
	return false;
}

static int poll_once(struct stream *st, struct pollfd f[4])
{
	int wait = -1;

	if (st->deadline_ms) {
		int64_t left = st->deadline_ms - now_ms();
		wait = left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
	}
	f[0] = (struct pollfd){ st->signals, POLLIN, 0 };
	f[1] = (struct pollfd){ st->sock, 0, 0 };
	if (st->to_fd < 0)
		f[1].events |= POLLIN;
	if (st->out_len)
		f[1].events |= POLLOUT;
	f[2] = (struct pollfd){ st->input_open && !st->out_len ? STDIN_FILENO : -1, POLLIN, 0 };
	f[3] = (struct pollfd){ st->to_fd, POLLOUT, 0 };
	if (!f[1].events) /* else a hung-up socket would spin while a reader is waited for */
		f[1].fd = -1;
	return poll(f, 4, wait);
}

static int lost(struct stream *st)
{
	if (st->unread)
		return st->unread_code;
	return complain(EXIT_OURS,
		"the connection to %s is lost; `sbx attach %s %lld` joins process %lld "
		"again if it still runs",
		sbx_endpoint(st->c->s), st->conf->ref, st->conf->pid, st->conf->pid);
}

/* A server that is started again takes its sandboxes back, and an attach repeats the output from
 * its start. So the command is joined again, unless input may have been lost with the connection;
 * at a terminal the user sees what was. */
static bool rejoin(struct stream *st)
{
	_cleanup_free_ char *path =
		sbx_path("/v1/sandboxes/%s/processes/%lld/attach", st->conf->ref, st->conf->pid);
	int64_t end = now_ms() + REJOIN_MS;
	struct sbx_error e = { 0 };
	int sock = -1;

	if (!path || st->unread || (st->sent_input && !st->conf->tty))
		return false;
	while (sbx_upgrade(st->c->s, path, "sbx-stream/1", false, &sock, &e) < 0) {
		struct pollfd f = { st->signals, POLLIN, 0 };
		if (e.status != 0 || now_ms() > end || poll(&f, 1, 100) > 0)
			return false;
	}
	close(st->sock);
	st->sock = sock;
	st->in_len = st->out_len = st->out_at = 0;
	memcpy(st->skip, st->seen, sizeof(st->skip));
	put_size(st);
	if (st->conf->interactive && !st->input_open)
		put_frame(st, 'e', NULL, 0);
	return true;
}

static int ended(const struct stream *st, int code)
{
	bool cut = st->seen[0] == OUTPUT_KEPT || st->seen[1] == OUTPUT_KEPT;

	if (st->unread)
		return st->unread_code;
	/* The server drops what comes later without a mark; neither a user nor a script must take
	 * a part for the whole. */
	if (cut)
		complain(0,
			"the output was cut at 8 MiB, which is what a server keeps; write more to a file "
			"in the sandbox and fetch it with sbx cp");
	if (st->timed_out)
		return complain(
			124, "the command was ended after %d seconds", st->conf->timeout_secs);
	if (code < 0)
		return complain(EXIT_OURS, "process %lld ended unseen; its exit code is not known",
			st->conf->pid);
	return code == 0 && (cut || st->bad_input) ? EXIT_OURS : code;
}

static int loop(struct stream *st)
{
	int code = 0;

	for (;;) {
		struct pollfd f[4];
		enum progress p = MORE;
		if (poll_once(st, f) < 0 && errno != EINTR)
			return lost(st);
		if (f[0].revents)
			take_signal(st);
		if (f[2].revents)
			read_input(st);
		flush_out(st);
		if (st->to_fd >= 0 && f[3].revents)
			write_some(st);
		if (st->to_fd >= 0 && st->to_at == st->to_end) {
			st->to_fd = -1;
			drop_frame(st, st->to_end - FRAME_HEAD);
		}
		while (st->to_fd < 0 && p == MORE)
			p = next_frame(st, &code);
		if (st->to_fd < 0 && p == NEED_BYTES && (f[1].revents & ~POLLOUT))
			p = receive(st);
		while (st->to_fd < 0 && p == MORE)
			p = next_frame(st, &code);
		if (p == DONE)
			return ended(st, code);
		if (p == BROKEN && !rejoin(st))
			return lost(st);
		if (check_deadline(st, &code))
			return code;
	}
}

/* In raw mode the terminal sends ^C as a byte, so INT here comes from outside and is passed on too.
 * What our parent has us ignore (nohup, a shell's background job) stays ignored. */
static int open_signals(sigset_t *old)
{
	static const int ours[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGCONT);
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (sigaction(ours[i], NULL, &sa) == 0 && sa.sa_handler != SIG_IGN)
			sigaddset(&set, ours[i]);
	pthread_sigmask(SIG_BLOCK, &set, old);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int stream_process(struct cli *c, int sock, const struct stream_conf *conf)
{
	_cleanup_free_ struct stream *st = calloc(1, sizeof(*st));
	_cleanup_free_ unsigned char *in = malloc(IN_ROOM);
	_cleanup_close_ int signals = -1;
	sigset_t old;
	int code;

	if (!st || !in) {
		close(sock);
		return complain(EXIT_OURS, "out of memory");
	}
	signals = open_signals(&old);
	*st = (struct stream){ .c = c,
		.conf = conf,
		.sock = sock,
		.signals = signals,
		.in = in,
		.input_open = conf->interactive,
		.to_fd = -1 };
	if (conf->timeout_secs)
		st->deadline_ms = now_ms() + (int64_t)conf->timeout_secs * 1000;
	if (conf->tty && conf->interactive)
		tty_raw();
	put_size(st);
	code = loop(st);
	tty_restore();
	close(st->sock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return code;
}
