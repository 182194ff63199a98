/* SPDX-License-Identifier: MIT */
/* A client of sbx-fs/1 that sends what the input says, to the worker's own code on a folder that
 * holds next to nothing. Bit 0 of the first byte: a hello comes first; bit 1: the rest are the
 * bytes themselves, else each frame is made well-formed from a few of them. However it ends, every
 * answer is a whole frame, the front gets its answer, and no handle, watch or thread is left. The
 * worker is compiled in here, as its functions share names with the server's. */
#define main  worker_main
#define serve front_serve
#include "sandboxd/worker/main.c"
#undef main
#undef serve
#include "sandboxd/worker/attr.c"
#include "sandboxd/worker/closed.c"
#include "sandboxd/worker/data.c"
#include "sandboxd/worker/handle.c"
#include "sandboxd/worker/list.c"
#include "sandboxd/worker/lock.c"
#include "sandboxd/worker/meta.c"
#include "sandboxd/worker/names.c"
#include "sandboxd/worker/narrow.c"
#include "sandboxd/worker/ops.c"
#include "sandboxd/worker/path.c"
#include "sandboxd/worker/put.c"
#include "sandboxd/worker/share.c"
#include "sandboxd/worker/stream.c"
#undef LARGE
#include "sandboxd/worker/serve.c"
#define add wait_add
#include "sandboxd/worker/wait.c"
#undef add
#define parent_of watched_parent
#include "sandboxd/worker/watch.c"
#undef parent_of
#include "sandboxd/worker/wire.c"

#include "tests/fuzz/fuzz.h"

#include <ftw.h>

#define INPUT_MOST  60000 /* what the socket takes before anybody reads */
#define FRAMES_MOST 64

static struct {
	struct worker w;
	struct buffers b;
	char dir[64];
} world;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	return f->level ? remove(path) : 0;
}

static void world_clean(void)
{
	(void)nftw(world.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	promise(mkdirat(world.w.root_fd, "d", 0700) == 0);
	close(openat(world.w.root_fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	promise(symlinkat("a", world.w.root_fd, "l") == 0);
}

static void world_end(void)
{
	(void)nftw(world.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	(void)rmdir(world.dir);
}

static void world_make(void)
{
	struct worker *w = &world.w;
	struct rlimit small = { 1 << 20, 1 << 20 };

	if (w->epoll_fd)
		return;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	(void)setrlimit(RLIMIT_FSIZE, &small);
	snprintf(world.dir, sizeof(world.dir), "/tmp/sbxfuzz.XXXXXX");
	promise(mkdtemp(world.dir));
	(void)atexit(world_end);
	w->fake = true;
	w->uid = getuid();
	w->gid = getgid();
	w->expire_ms = 60000;
	w->control_fd = -1;
	w->nthreads = THREADS_MAX; /* this one does it all */
	w->root_fd = open(world.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->inplace, NULL);
	pthread_mutex_init(&w->cwd, NULL);
	pthread_mutex_init(&w->streams_lock, NULL);
	pthread_mutex_init(&w->locks.lock, NULL);
	w->locks.timer_fd = -1;
	promise(w->root_fd >= 0 && w->epoll_fd >= 0 && make_buffers(&world.b) == 0);
}

/* Takes what the worker says, so that it never waits, and looks at its form. */
static void *listen_to(void *arg)
{
	int fd = *(int *)arg;
	struct proto_frame f;
	struct files_rep rep;
	static char data[FILES_DATA_MAX];

	while (fd_recv_full(fd, &f, sizeof(f), -1) == 0) {
		if (fd_recv_full(fd, &rep, sizeof(rep), -1) < 0)
			break; /* cut in the middle */
		promise(f.len >= sizeof(rep) && f.flags == 0);
		promise(rep.data_len == f.len - sizeof(rep) && rep.data_len <= sizeof(data));
		promise(f.value >= 0 || rep.data_len == 0);
		promise((f.op == FILES_INVAL && f.value > 0) || f.op == FILES_GRANT || f.tag);
		if (fd_recv_full(fd, data, rep.data_len, -1) < 0)
			break;
	}
	return NULL;
}

static size_t put_path(struct supply *s, char *out)
{
	static const char *const known[] = { "", "/", "/a", "/d", "/d/x", "/l", "/new", "user.k" };
	unsigned which = supply_byte(s);
	const uint8_t *raw;
	size_t n;

	if (which < 2 * ARRAY_LEN(known)) {
		n = strlen(known[which % ARRAY_LEN(known)]);
		memcpy(out, known[which % ARRAY_LEN(known)], n);
		return n;
	}
	raw = supply_piece(s, 40, &n);
	if (n)
		memcpy(out, raw, n);
	return n;
}

static uint64_t a_handle(struct supply *s)
{
	uint64_t n = supply_byte(s) % 8; /* the numbers of the first ones are known */

	return n ? n * FILES_HANDLES_MAX + n - 1 : 0;
}

static size_t put_frame(struct supply *s, char *out, uint64_t tag)
{
	struct proto_frame f = { .op = (uint16_t)(supply_byte(s) % (FILES_OP_COUNT + 1)),
		.tag = tag };
	struct files_req q = { .flags = supply_byte(s) | supply_byte(s) << 8 |
					supply_byte(s) << 16 };
	char *at = out + sizeof(f) + sizeof(q);
	const uint8_t *raw;
	size_t n;

	q.handle = f.op == FILES_UNWATCH ? supply_byte(s) : a_handle(s);
	q.handle2 = a_handle(s);
	q.offset = (uint64_t)supply_byte(s) << (supply_byte(s) % 64);
	q.offset2 = (uint64_t)supply_byte(s) << (supply_byte(s) % 16);
	q.length = (uint64_t)supply_byte(s) << (supply_byte(s) % 64);
	q.mode = supply_byte(s) | supply_byte(s) << 8;
	q.uid = q.gid = supply_byte(s);
	q.path_len = (uint32_t)put_path(s, at);
	q.path2_len = (uint32_t)put_path(s, at + q.path_len);
	raw = supply_piece(s, 64, &n);
	if (n)
		memcpy(at + q.path_len + q.path2_len, raw, n);
	q.data_len = (uint32_t)n;
	f.len = (uint32_t)(sizeof(q) + q.path_len + q.path2_len + q.data_len);
	memcpy(out, &f, sizeof(f));
	memcpy(out + sizeof(f), &q, sizeof(q));
	return sizeof(f) + f.len;
}

static void say(int fd, struct supply *s)
{
	unsigned how = supply_byte(s);
	char buf[1024];
	struct proto_frame hello = {
		.op = FILES_HELLO, .tag = 1, .value = 1, .len = sizeof(struct files_req)
	};

	memset(buf, 0, sizeof(buf));
	memcpy(buf, &hello, sizeof(hello));
	if (how & 1)
		promise(send(fd, buf, sizeof(hello) + sizeof(struct files_req), MSG_DONTWAIT) > 0);
	if (how & 2 && s->left)
		promise(send(fd, s->p, s->left, MSG_DONTWAIT) == (ssize_t)s->left);
	for (uint64_t tag = 2; !(how & 2) && s->left && tag < FRAMES_MOST; tag++) {
		size_t n = put_frame(s, buf, tag);
		promise(send(fd, buf, n, MSG_DONTWAIT) == (ssize_t)n);
	}
	shutdown(fd, SHUT_WR);
}

static void work(void)
{
	struct epoll_event ev;
	int n;

	while (world.w.nstreams) {
		n = epoll_wait(world.w.epoll_fd, &ev, 1, 10000);
		promise(n == 1 || (n < 0 && errno == EINTR));
		if (n == 1)
			(void)dispatch(&world.w, ev.data.u64, &world.b);
	}
	release(&world.b);
}

static void forget_all(struct worker *w)
{
	struct job j = { .w = w, .out = world.b.out };

	handle_close_all(w);
	do
		j.out_len = 0;
	while (op_expired(&j) > 0);
	promise(w->nhandles == 0 && w->watches == 0 && w->inside == 0 && w->nclosed == 0);
	promise(w->locks.nranges == 0 && w->locks.nwaits == 0);
	w->serial = 0;
	w->next_slot = 0;
}

int fuzz_stream(const uint8_t *data, size_t size)
{
	struct supply s = { data, size };
	struct job j = { .w = &world.w, .f = { .op = FILES_ADOPT, .tag = 3 } };
	struct {
		struct proto_frame f;
		struct files_rep rep;
	} last;
	int client[2], ctl[2];
	pthread_t t;

	if (size > INPUT_MOST)
		return 0;
	world_make();
	world_clean();
	promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client) == 0);
	promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ctl) == 0);
	world.w.nconns++;
	promise(wait_for(&world.w, EPOLL_CTL_ADD, ctl[1], EVENT_FD, NULL) == 0);
	promise(pthread_create(&t, NULL, listen_to, &client[0]) == 0);
	say(client[0], &s);
	promise(stream_adopt(&world.w, &j, client[1], ctl[1]) == 0);
	work();
	promise(fd_recv_full(ctl[0], &last, sizeof(last), 1000) == 0);
	promise(last.f.op == FILES_ADOPT && last.f.tag == 3 && last.f.value == 0);
	pthread_join(t, NULL);
	close(client[0]);
	close(ctl[0]);
	end_connection(&world.w, ctl[1]);
	promise(world.w.nconns == 0);
	forget_all(&world.w);
	return 0;
}
