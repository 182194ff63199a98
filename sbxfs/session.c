/* SPDX-License-Identifier: MIT */
/* What libfuse leaves to the kernel's defaults: how requests are waited for, and part of the greeting.
 *
 * A thread that has answered one request looks for the next one for a moment before it sleeps (spin.h), so that
 * a program that asks one thing after the other wakes nobody. One thread at a time waits for the kernel: of
 * several the kernel would wake one with each request, also when another has it already. Who has got a request
 * is soon back; when that lasts, or it is going to sleep, or one more request comes, the next one waits instead.
 *
 * When a file is written the kernel asks before
 * each write for `security.capability`, a second request for each, unless the other side promises to take
 * set-id bits and capabilities away itself. The server does: for a sandbox's kernel these are writes like
 * any other. So the promise is put into the answer to the greeting, when the kernel knows of it. */
#include "sbxfs/session.h"

#include "sbxfs/mount.h"

#include "common/sys/clock.h"
#include "common/sys/deadline.h"
#include "common/sys/fd.h"
#include "common/sys/spin.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* One connection to the kernel a process. */
static struct {
	atomic_uint_fast64_t unique; /* of the greeting; 0: not seen, or answered */
	uint32_t offered;
} greeting;

static void look_at(const void *buf, size_t len)
{
	struct fuse_in_header h;
	struct fuse_init_in in;

	if (len < sizeof(h))
		return;
	memcpy(&h, buf, sizeof(h));
	if (h.opcode != FUSE_INIT || len < sizeof(h) + offsetof(struct fuse_init_in, flags2))
		return;
	memset(&in, 0, sizeof(in));
	memcpy(&in, (const char *)buf + sizeof(h), len - sizeof(h) < sizeof(in) ? len - sizeof(h) : sizeof(in));
	greeting.offered = in.flags;
	atomic_store(&greeting.unique, h.unique);
}

/* Threads that have a request, which each of them knows of itself: libfuse ends some without asking for another. */
static atomic_int working;
static pthread_key_t works;

static void work_ends(void *arg)
{
	(void)arg;
	atomic_fetch_sub(&working, 1);
}

static void set_works(bool on)
{
	if (pthread_getspecific(works))
		work_ends(NULL);
	if (pthread_setspecific(works, on ? &working : NULL) == 0 && on)
		atomic_fetch_add(&working, 1);
}

#define ALERT_US 1000
#define BUSY_US  10000

/* Whose turn it is to wait for the kernel. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t turn;
	int fd; /* of the kernel; -1: nobody asks */
	atomic_bool watched; /* somebody's; changed under the lock, as are the next */
	unsigned behind;     /* threads that wait for their turn */
	bool alert;          /* one of them looks now and then whether nobody has it */
	bool called;         /* one of them is being woken for it */
	int64_t asked_us;    /* the last request */
} door = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* Lock held, in these. */
static void turn_ends(void *arg)
{
	(void)arg;
	door.behind--;
	pthread_mutex_unlock(&door.lock);
}

static void stay_behind(void)
{
	struct timespec ts;

	if (door.alert || clock_mono_us() - door.asked_us > BUSY_US) {
		pthread_cond_wait(&door.turn, &door.lock);
		return;
	}
	ts = deadline_us(ALERT_US);
	door.alert = true;
	(void)cond_wait_until(&door.turn, &door.lock, &ts);
	door.alert = false;
}

static void call_one(void)
{
	if (!door.behind || door.called || atomic_load(&door.watched))
		return;
	door.called = true;
	pthread_cond_signal(&door.turn);
}

/* The session may end while a thread waits: then it is cancelled there. */
static void take_turn(void)
{
	pthread_mutex_lock(&door.lock);
	door.behind++;
	pthread_cleanup_push(turn_ends, NULL);
	while (atomic_load(&door.watched))
		stay_behind();
	door.called = false;
	atomic_store(&door.watched, true);
	pthread_cleanup_pop(1);
}

static void leave_turn(void)
{
	pthread_mutex_lock(&door.lock);
	atomic_store(&door.watched, false);
	door.asked_us = clock_mono_us();
	if (!door.alert)
		call_one();
	pthread_mutex_unlock(&door.lock);
}

void session_sleeps(void)
{
	if (door.fd < 0 || atomic_load(&door.watched))
		return;
	pthread_mutex_lock(&door.lock);
	call_one();
	pthread_mutex_unlock(&door.lock);
}

/* Another one that is at work comes back, or says that it is going to sleep. */
void session_looks(void)
{
	if (door.fd >= 0 && !atomic_load(&door.watched) && atomic_load(&working) < 2 &&
		fd_wait(door.fd, POLLIN, 0))
		session_sleeps();
}

void session_rests(int ms)
{
	session_sleeps();
	atomic_fetch_sub(&working, 1);
	(void)poll(NULL, 0, ms);
	atomic_fetch_add(&working, 1);
}

bool session_is_calm(struct mount *m)
{
	return atomic_load(&working) <= 1 && !atomic_load(&m->changes);
}

/* Until there seems to be a request, or it is time to sleep. While another thread is at work on one, it and who
 * answers it need the processors. */
static void look_out(int fd, struct spin *s)
{
	if (!s->window_us || atomic_load(&working))
		return;
	while (!fd_wait(fd, POLLIN, 0) && !atomic_load(&working) && spin_goes_on(s))
		;
}

static ssize_t do_read(int fd, void *buf, size_t len, void *arg)
{
	static _Thread_local struct spin spin;
	ssize_t n;
	int error;

	(void)arg;
	set_works(false);
	take_turn();
	spin_begin(&spin);
	look_out(fd, &spin);
	n = read(fd, buf, len);
	error = errno;
	spin_end(&spin);
	leave_turn();
	set_works(n > 0);
	if (n > 0 && ((const struct fuse_in_header *)buf)->opcode == FUSE_INIT)
		look_at(buf, (size_t)n);
	errno = error;
	return n;
}

static void promise(const struct iovec *v, int count)
{
	struct fuse_out_header h;
	struct fuse_init_out *out;

	memcpy(&h, v[0].iov_base, sizeof(h));
	if (h.unique != atomic_load(&greeting.unique))
		return;
	atomic_store(&greeting.unique, 0);
	if (h.error || count < 2 || v[1].iov_len < offsetof(struct fuse_init_out, max_background))
		return;
	out = v[1].iov_base;
	out->flags |= greeting.offered & FUSE_HANDLE_KILLPRIV_V2;
}

static ssize_t do_writev(int fd, struct iovec *v, int count, void *arg)
{
	(void)arg;
	if (atomic_load_explicit(&greeting.unique, memory_order_relaxed) && count &&
		v[0].iov_len >= sizeof(struct fuse_out_header))
		promise(v, count);
	return writev(fd, v, count);
}

int session_begin(struct fuse_session *se)
{
	static const struct fuse_custom_io io = { .read = do_read, .writev = do_writev };

	if (pthread_key_create(&works, work_ends) != 0)
		return -EAGAIN;
	pthread_cond_init(&door.turn, NULL);
	door.fd = fuse_session_fd(se);
	return fuse_session_custom_io(se, &io, door.fd) == 0 ? 0 : -EIO;
}
