/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/backend.h"

#include "common/sys/clock.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define GONE_SOON_US 300

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

/* A killed guest is gone in a fifth of a millisecond, as a rule, and to sleep for less than that costs as
 * much again where the processor halts meanwhile. So it is first asked again and again, and the processor
 * offered to whoever wants it, which may be the guest that is to die. Reading also says which change has
 * been seen, so it comes before each wait. */
bool backend_grip_gone(const struct backend_grip *g, int timeout_ms)
{
	int64_t start = clock_mono_us(), end = start + (int64_t)timeout_ms * 1000, now;
	int r;

	if (g->kill < 0 || g->events < 0)
		return false;
	while ((r = populated(g->events)) > 0 && (now = clock_mono_us()) < end)
		if (now < start + GONE_SOON_US)
			(void)sched_yield();
		else
			(void)fd_wait(g->events, POLLPRI, (int)((end - now) / 1000) + 1);
	return r == 0;
}
