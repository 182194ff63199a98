/* SPDX-License-Identifier: MIT */
/* An sbx-init that somebody inside has taken over: the real one, but for the command "lie", whose first
 * argument says what it then tells the shim. `scripts` start it like any program. */
#include "sandboxd/init/init.h"
#include "sandboxd/init/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NUMS 200 /* every number that the sandbox has used so far is below */

pid_t real_spawn(struct spawn *s);

static uint32_t seed = 12345;

static uint32_t rnd(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void say(const void *p, size_t n)
{
	(void)send(INIT_FD, p, n, MSG_NOSIGNAL);
}

static void event(uint32_t op, uint32_t num, int32_t pid, int32_t stage, int32_t error, int32_t status)
{
	struct init_event e = { op, num, pid, stage, error, status };

	say(&e, sizeof(e));
}

static void wrong_ops(void)
{
	for (uint32_t op = 0; op < 64; op++)
		for (uint32_t num = 0; num < 8; num++)
			if (op != INIT_EXITED)
				event(op, num, (int32_t)rnd(), (int32_t)rnd(), (int32_t)rnd(), (int32_t)rnd());
	event(0xffffffff, 0xffffffff, -1, -1, -1, -1);
}

static void wrong_sizes(void)
{
	static char b[65536];

	for (size_t n = 1; n < sizeof(b); n = n * 3 / 2 + 1) {
		for (size_t i = 0; i < n; i++)
			b[i] = (char)rnd();
		if (n != sizeof(struct init_event))
			say(b, n);
	}
}

/* The same again and again, for numbers that are, were and never will be. */
static void twice(void)
{
	for (int again = 0; again < 3; again++)
		for (uint32_t num = 0; num < NUMS; num++) {
			event(INIT_STARTED, num, 1, 0, 0, 0);
			event(INIT_STARTED, num, 0, INIT_AT_EXEC, 2, 0);
			event(INIT_EXITED, num, 1, 0, 0, 7 << 8);
		}
}

static void wrong_errors(void)
{
	static const int32_t odd[] = { 0, -1, 4096, INT32_MAX, INT32_MIN, 9999 };

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		for (uint32_t num = 0; num < NUMS; num++)
			event(INIT_STARTED, num, 0, odd[i], odd[5 - i], odd[i]);
}

static void wrong_statuses(void)
{
	static const int32_t odd[] = { 0x7f, 0xff7f, 0xffff, -1, INT32_MIN, 0x80, 0xff };

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		for (uint32_t num = 0; num < NUMS; num++) {
			event(INIT_STARTED, num, 1, 0, 0, 0);
			event(INIT_EXITED, num, 1, 0, 0, odd[i]);
		}
}

/* Nobody asked for them. */
static void descriptors(void)
{
	union {
		char buf[CMSG_SPACE(64 * sizeof(int))];
		struct cmsghdr align;
	} ctl;
	struct init_event e = { .op = INIT_STARTED, .num = 0xfffffff0 };
	struct iovec v = { &e, sizeof(e) };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[64];

	for (int i = 0; i < 64; i++)
		fds[i] = null;
	for (int i = 0; i < 2000; i++) {
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &ctl,
			.msg_controllen = sizeof(ctl) };
		memset(&ctl, 0, sizeof(ctl));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(fds));
		memcpy(CMSG_DATA(c), fds, sizeof(fds));
		(void)sendmsg(INIT_FD, &m, MSG_NOSIGNAL);
	}
	close(null);
}

static void flood(void)
{
	for (int i = 0; i < 100000; i++)
		event(INIT_STARTED, 0xffff0000 + (uint32_t)i % 64, 1, 0, 0, 0);
}

static void stall(void)
{
	for (;;)
		pause();
}

static void end_of_nothing(void)
{
	say("", 0);
}

static void die(void)
{
	_exit(0);
}

static const struct {
	const char *name;
	void (*fn)(void);
} lies[] = {
	{ "ops", wrong_ops },	  { "sizes", wrong_sizes },	  { "twice", twice },
	{ "errors", wrong_errors }, { "statuses", wrong_statuses }, { "descriptors", descriptors },
	{ "flood", flood },	  { "stall", stall },		  { "empty", end_of_nothing },
	{ "die", die },
};

pid_t spawn(struct spawn *s)
{
	if (strcmp(s->argv[0], "lie") || !s->argv[1])
		return real_spawn(s);
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++)
		if (!strcmp(s->argv[1], lies[i].name))
			lies[i].fn();
	s->stage = INIT_AT_EXEC;
	s->error = ENOENT;
	return -1;
}
