/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 (doc/sbx-fs.md): after the checks the client's connection is handed to the sandbox's
 * file worker, and this thread waits for its end. It is cut like a tunnel when the sandbox falls
 * asleep or ends. Only a unix socket is handed over: one of the network would give the guest's side
 * a foot in the host's network, so there a socket pair stands between, as the HTTP layer does it
 * for TLS. */
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/api/files.h"
#include "sandboxd/api/upgrade.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

struct fs_stream {
	struct core *core;
	struct sandbox *s; /* referenced and entered */
	bool use;          /* the opening counts until the stream is handed over */
	uint64_t client;
	struct sandbox_tunnel ends;
};

/* Bytes between the client and our end of a pair, on a thread of their own. */
struct between {
	struct core *core;
	int client, pair[2];
	pthread_t thread;
};

static void *copy_between(void *arg)
{
	struct between *b = arg;

	upgrade_pump(b->core, b->client, b->pair[0], NULL, 0);
	(void)shutdown(b->client, SHUT_RDWR);
	(void)shutdown(b->pair[0], SHUT_RDWR);
	return NULL;
}

static int between_start(struct between *b, struct core *core, int client)
{
	b->core = core;
	b->client = client;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b->pair) < 0)
		return -errno;
	if (pthread_create(&b->thread, NULL, copy_between, b) == 0)
		return 0;
	close(b->pair[0]);
	close(b->pair[1]);
	return -EAGAIN;
}

static void between_end(struct between *b)
{
	(void)shutdown(b->pair[1], SHUT_RDWR);
	pthread_join(b->thread, NULL);
	close(b->pair[0]);
	close(b->pair[1]);
}

static void on_use(void *arg)
{
	struct fs_stream *t = arg;

	sandbox_release(t->s, sandbox_hold(t->s, true));
}

static void on_done(void *arg, const char *path, uint64_t read, uint64_t written, unsigned flags)
{
	struct fs_stream *t = arg;
	struct files_log l = { .core = t->core, .s = t->s };

	files_log_done(&l, path, read, written, flags);
}

/* A mount never leaves by itself: a server that stops does not wait for it. */
static bool on_stop(void *arg)
{
	const struct fs_stream *t = arg;

	return core_stopping(t->core);
}

static void hand_over(struct fs_stream *t, int fd)
{
	struct guestfs_watch w = { .used = on_use, .each = on_done, .stop = on_stop, .arg = t };

	t->ends.client_fd = t->ends.guest_fd = fd;
	sandbox_tunnel_open(t->s, &t->ends);
	sandbox_release(t->s, t->use); /* from here on its requests count, not the connection */
	t->use = false;
	(void)guestfs_stream(t->s->fs, t->client, fd, &w, NULL);
	sandbox_tunnel_close(t->s, &t->ends);
}

static void stream_run(void *arg, int fd, const void *extra, size_t extra_len)
{
	struct fs_stream *t = arg;
	struct between b;

	(void)extra;
	if (fd >= 0 && extra_len == 0) { /* a client waits for the 101 before it sends */
		if (upgrade_is_unix(fd)) {
			hand_over(t, fd);
		} else if (between_start(&b, t->core, fd) == 0) {
			hand_over(t, b.pair[1]);
			between_end(&b);
		}
	}
	guestfs_stream_end(t->s->fs);
	sandbox_leave(t->s, t->use);
	sandbox_unref(t->s);
	free(t);
}

int handle_fs_stream(struct call *c, struct err *e)
{
	_cleanup_visit_ struct visit v = { .s = NULL };
	struct fs_stream *t;
	uint64_t client;

	if (upgrade_check(c, FS_PROTOCOL, e) < 0 || files_client(c, &client, e) < 0 ||
		visit_begin(c, &v, e) < 0)
		return -1;
	if (!guestfs_stream_begin(v.s->fs))
		return err_set(e, ERR_UNAVAILABLE, "a sandbox has at most %u %s connections",
			FS_CONNS_MAX, FS_PROTOCOL);
	t = malloc(sizeof(*t));
	if (!t) {
		guestfs_stream_end(v.s->fs);
		return err_sys(e, ENOMEM, "file operations as frames");
	}
	*t = (struct fs_stream){ .core = c->core, .use = v.use, .client = client };
	t->s = steal(v.s);
	http_upgrade(c->req, FS_PROTOCOL, stream_run, t);
	return 0;
}
