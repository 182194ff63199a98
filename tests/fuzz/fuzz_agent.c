/* SPDX-License-Identifier: MIT */
/* The front against a shim that answers with the input's bytes: calls must end with a result or an
 * error, and events must name nothing that the front then trusts. The first byte picks the calls.
 */
#include "tests/fuzz/fuzz.h"

#include "common/sys/fd.h"
#include "sandboxd/backend/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct agent {
	char dir[64];
	int dirfd, listen;
	struct guest_hub *hub;
	pthread_t thread;
	pthread_mutex_t lock;
	/* under lock: what the next connections say */
	struct supply say;
	bool honest;   /* a correct hello_ok comes first */
	unsigned gone; /* callbacks seen */
};
static struct agent *the_agent;

/* Takes part of the input; the answer to one request. */
static size_t next_words(struct agent *a, uint8_t *buf, size_t max)
{
	const uint8_t *p;
	size_t n;

	pthread_mutex_lock(&a->lock);
	p = supply_piece(&a->say, max, &n);
	if (n)
		memcpy(buf, p, n);
	pthread_mutex_unlock(&a->lock);
	return n;
}

static bool is_honest(struct agent *a)
{
	bool honest;

	pthread_mutex_lock(&a->lock);
	honest = a->honest;
	pthread_mutex_unlock(&a->lock);
	return honest;
}

static void talk(struct agent *a, int fd)
{
	bool honest = is_honest(a); /* the next input may come meanwhile */
	struct proto_hello h;
	uint8_t buf[256], in[4096];

	if (fd_recv_full(fd, &h, sizeof(h), 1000) < 0)
		return;
	if (honest) {
		struct proto_hello_ok ok = {
			.magic = PROTO_MAGIC, .version = PROTO_VERSION, .generation = h.generation
		};
		(void)fd_send_full(fd, &ok, sizeof(ok), 1000);
	}
	/* A call speaks first; events do not wait, nor does who awaits a greeting. */
	if (honest && h.kind != PROTO_EVENTS && recv(fd, in, sizeof(in), 0) <= 0)
		return;
	size_t n = next_words(a, buf, sizeof(buf));
	if (n)
		(void)fd_send_full(fd, buf, n, 1000);
}

static void *serve(void *arg)
{
	struct agent *a = arg;

	for (;;) {
		int fd = accept4(a->listen, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return NULL;
		talk(a, fd);
		close(fd);
	}
}

static void on_number(void *arg, uint32_t num)
{
	(void)arg;
	(void)num;
}
static void on_gone(void *arg)
{
	struct agent *a = arg;

	pthread_mutex_lock(&a->lock);
	a->gone++;
	pthread_mutex_unlock(&a->lock);
}

static void remove_agent(void)
{
	(void)unlinkat(the_agent->dirfd, "sock", 0);
	(void)rmdir(the_agent->dir);
}

static struct agent *agent(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct agent *a = the_agent;

	if (a)
		return a;
	a = the_agent = calloc(1, sizeof(*a));
	promise(a);
	strcpy(a->dir, "/tmp/sbx-fuzz-XXXXXX");
	promise(mkdtemp(a->dir));
	a->dirfd = open(a->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", a->dir);
	a->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	promise(bind(a->listen, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
		listen(a->listen, 16) == 0);
	(void)atexit(remove_agent);
	pthread_mutex_init(&a->lock, NULL);
	promise(guest_hub_new(&a->hub, NULL) == 0);
	promise(pthread_create(&a->thread, NULL, serve, a) == 0);
	return a;
}

static void check(int r, const struct err *e)
{
	promise(r == 0 || (r == -1 && e->code != ERR_NONE && e->msg[0]));
}

static void make_calls(struct guest *g, unsigned which)
{
	static const char *const argv[] = { "true", NULL }, *const env[] = { "A=b", NULL };
	struct err e = ERR_NULL;
	int fd = -1;

	if (which & 1) {
		struct guest_start s = {
			.num = 1, .argv = argv, .env = env, .cwd = "/", .spool_fd = 0
		};
		check(guest_start(g, &s, &e), &e);
	}
	if (which & 2)
		check(guest_signal(g, 1, 15, which & 1, &e), &e);
	if (which & 4)
		check(guest_stdin(g, 1, "hello", 5, true, -1, &e), &e);
	if (which & 8)
		check(guest_resize(g, 1, 10, 20, &e), &e);
	if (which & 16) {
		int r = guest_dial(g, 80, &fd, &e);
		check(r, &e);
		if (r == 0)
			close(fd);
	}
}

static void let_say(struct agent *a, struct supply what, bool honest)
{
	pthread_mutex_lock(&a->lock);
	a->honest = honest;
	a->say = what;
	pthread_mutex_unlock(&a->lock);
}

int fuzz_agent(const uint8_t *data, size_t size)
{
	static const struct guest_watch watch = { on_number, on_number, on_gone };
	static const uint8_t secret[PROTO_SECRET_LEN];
	struct supply in = { data, size };
	struct agent *a = agent();
	unsigned which = supply_byte(&in);
	struct guest *g = NULL;
	struct err e = ERR_NULL;

	let_say(a, in, !(which & 128));
	if (guest_connect(a->hub, a->dirfd, secret, 7, &watch, a, &g, &e) < 0) {
		promise(e.code != ERR_NONE);
		let_say(a, (struct supply){ 0 }, true);
		return 0;
	}
	make_calls(g, which);
	guest_shutdown(g);
	promise(guest_signal(g, 1, 9, false, &e) == -1 && e.code == ERR_CONFLICT);
	guest_free(g);
	let_say(a, (struct supply){ 0 }, true); /* the bytes are the caller's */
	return 0;
}
