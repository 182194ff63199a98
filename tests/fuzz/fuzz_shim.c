/* SPDX-License-Identifier: MIT */
/* The shim against a front and an init that say what the input says: it may close connections and
 * refuse, but never break, spin or lose count. The shim's own code is compiled in here, main and
 * all, as its functions share names with the server's. */
#define main   shim_main
#define set_up shim_set_up
#include "sandboxd/shim/main.c"
#undef main
#undef set_up
#include "sandboxd/shim/calls.c"
#include "sandboxd/shim/cgroup.c"
#include "sandboxd/shim/conn.c"
#include "sandboxd/shim/initlink.c"
#include "sandboxd/shim/input.c"
#include "sandboxd/shim/proc.c"
#include "sandboxd/shim/spool.c"
#include "sandboxd/shim/start.c"

#include "tests/fuzz/fuzz.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SLOTS     4
#define TURNS_MAX 200

static struct {
	struct shim shim;
	struct sockaddr_un addr;
	socklen_t addr_len;
	int init, worker; /* our ends */
	int slot[SLOTS];
} world;

static void world_make(void)
{
	struct shim_boot *b = &world.shim.boot;
	int init[2], worker[2], l;

	if (world.init)
		return;
	l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	promise(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, init) == 0);
	promise(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, worker) == 0);
	world.addr.sun_family = AF_UNIX; /* a nameless bind: an address nobody else has */
	promise(bind(l, (struct sockaddr *)&world.addr, sizeof(sa_family_t)) == 0 &&
		listen(l, 16) == 0);
	world.addr_len = sizeof(world.addr);
	promise(getsockname(l, (struct sockaddr *)&world.addr, &world.addr_len) == 0);
	*b = (struct shim_boot){ .uid = SHIM_ID_KEEP,
		.gid = SHIM_ID_KEEP,
		.guest_uid = SHIM_ID_KEEP,
		.guest_gid = SHIM_ID_KEEP,
		.generation = 7,
		.listen_fd = l,
		.init_fd = init[0],
		.worker_fd = worker[0],
		.devpts_fd = -1,
		.root_fd = -1,
		.cgroup_fd = -1,
		.oom_fd = -1 };
	promise(shim_set_up(&world.shim) == 0);
	world.init = init[1];
	world.worker = worker[1];
	for (int i = 0; i < SLOTS; i++)
		world.slot[i] = -1;
}

/* Takes what the shim sent to init and to the worker, and closes what came along. */
static void drain(int fd)
{
	char buf[65536];
	int fds[8];
	size_t n;
	ssize_t got;

	do {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, 0) <= 0)
			return;
		n = 8;
		got = fd_recv_msg(fd, buf, sizeof(buf), fds, &n);
		for (size_t i = 0; i < n; i++)
			close(fds[i]);
	} while (got > 0);
}

/* Lets the shim work until it would wait. Parked retries do not count as work. */
static void settle(void)
{
	int turns = 0;

	for (;;) {
		struct pollfd p = { .fd = world.shim.epoll, .events = POLLIN };
		drain(world.init);
		drain(world.worker);
		if (poll(&p, 1, 0) <= 0)
			return;
		turn(&world.shim);
		promise(!world.shim.ended);
		promise(world.shim.nconns <= CONNS_MAX && world.shim.nstarting <= STARTING_MAX);
		if (++turns == TURNS_MAX)
			return; /* an unread answer keeps it busy: allowed, as long as it turns */
	}
}

static void op_connect(struct supply *in)
{
	struct proto_hello h = { .magic = PROTO_MAGIC, .version = PROTO_VERSION, .generation = 7 };
	int *slot = &world.slot[supply_byte(in) % SLOTS];

	h.kind = supply_byte(in) % 5;
	close_p(slot);
	*slot = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	promise(*slot >= 0);
	if (connect(*slot, (struct sockaddr *)&world.addr, world.addr_len) == 0 && h.kind)
		(void)fd_send_msg(*slot, &h, sizeof(h), NULL, 0);
}

static void op_frame(struct supply *in)
{
	int fd = world.slot[supply_byte(in) % SLOTS], fds[2];
	struct proto_frame f = { .op = (uint16_t)supply_byte(in),
		.flags = (uint16_t)supply_byte(in),
		.value = supply_byte(in) };
	size_t n;
	const uint8_t *p = supply_piece(in, 4096, &n);
	char msg[sizeof(f) + 4096];

	if (fd < 0)
		return;
	f.len = (uint32_t)n;
	memcpy(msg, &f, sizeof(f));
	memcpy(msg + sizeof(f), p, n);
	fds[0] = memfd_create("spool", MFD_CLOEXEC);
	fds[1] = memfd_create("stdin", MFD_CLOEXEC);
	promise(fds[0] >= 0 && fds[1] >= 0 && ftruncate(fds[1], 100) == 0);
	(void)fd_send_msg(fd, msg, sizeof(f) + n, fds, f.op == PROTO_START ? 2 : 0);
	close(fds[0]);
	close(fds[1]);
}

static void op_raw(struct supply *in)
{
	int fd = world.slot[supply_byte(in) % SLOTS];
	size_t n;
	const uint8_t *p = supply_piece(in, 4096, &n);

	if (fd >= 0 && n)
		(void)send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void op_event(struct supply *in)
{
	struct init_event e = { .op = supply_byte(in), .num = supply_byte(in) };

	e.pid = (int32_t)supply_byte(in);
	e.stage = (int32_t)supply_byte(in);
	e.error = (int32_t)supply_byte(in);
	e.status = (int32_t)(supply_byte(in) | supply_byte(in) << 8);
	(void)send(world.init, &e, sizeof(e), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void op_init_raw(struct supply *in)
{
	size_t n;
	const uint8_t *p = supply_piece(in, 256, &n);

	if (n) /* an empty packet is the end of the socket */
		(void)send(world.init, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void op_close(struct supply *in)
{
	int *slot = &world.slot[supply_byte(in) % SLOTS];

	close_p(slot);
	*slot = -1;
}

static void op_read(struct supply *in)
{
	char buf[4096];
	int fd = world.slot[supply_byte(in) % SLOTS];

	while (fd >= 0 && recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

int fuzz_shim(const uint8_t *data, size_t size)
{
	static void (*const ops[])(struct supply *) = { op_connect, op_frame, op_raw, op_event,
		op_init_raw, op_close, op_read };
	struct supply in = { data, size };

	world_make();
	while (in.left) {
		ops[supply_byte(&in) % ARRAY_LEN(ops)](&in);
		settle();
	}
	for (int i = 0; i < SLOTS; i++) {
		close_p(&world.slot[i]);
		world.slot[i] = -1;
	}
	settle();
	promise(world.shim.nconns == 0);
	return 0;
}
