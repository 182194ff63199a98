/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/backend.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void backend_image_free(struct backend_image *img)
{
	char **env = steal(img->env);

	for (size_t i = 0; env && env[i]; i++)
		free(env[i]);
	free(env);
}

/* --- the grip on a guest ----------------------------------------------------------------------- */

void backend_grip_close(struct backend_grip *g)
{
	close_p(&g->kill);
	close_p(&g->events);
	*g = BACKEND_GRIP_NULL;
}

void backend_grip_kill(const struct backend_grip *g)
{
	ssize_t n = g->kill < 0 ? 0 : write(g->kill, "1", 1);

	(void)n; /* whether it helped is asked of `events` */
}

/* 1, 0, or -errno. A group that has been removed had no process left. */
static int populated(int events)
{
	char buf[64];
	ssize_t n = pread(events, buf, sizeof(buf), 0);

	if (n < 0)
		return errno == ENODEV ? 0 : -errno;
	return n >= 11 && memcmp(buf, "populated 0", 11) == 0 ? 0 : 1;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reading also says which change has been seen, so it comes before each wait. */
bool backend_grip_gone(const struct backend_grip *g, int timeout_ms)
{
	int64_t end = now_ms() + timeout_ms, left;
	int r;

	if (g->kill < 0 || g->events < 0)
		return false;
	while ((r = populated(g->events)) > 0 && (left = end - now_ms()) > 0)
		(void)fd_wait(g->events, POLLPRI, (int)left);
	return r == 0;
}
