/* SPDX-License-Identifier: MIT */
/* The broker's parser, checks and bookkeeping against a hostile front: each piece of the input is one
 * request, right but for what the input spoils. What acts is doubled: no process is made, nothing is
 * mounted, the children's answers come from the input too, whole, cut or of the wrong kind. What
 * reaches a double must be sound, every answer belongs to a request, and all of it ends. The broker's
 * files are compiled for this with fork, kill, poll, the clock and socketpair replaced (mk/fuzz.mk). */
#include "tests/fuzz/fuzz.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/broker.h"
#include "sandboxd/priv/child.h"
#include "sandboxd/priv/drop.h"
#include "sandboxd/priv/pool.h"
#include "sandboxd/priv/unpack.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define REQUESTS_MAX 40
#define CHILDREN_MAX 4096
#define FIRST_PID    1000000

static struct {
	struct broker *b;
	struct supply in;
	int64_t now_ms;
	int pair; /* the child's end of the socket made last */
	struct child {
		int pid, fd;
	} children[CHILDREN_MAX];
	int nchildren, next_pid;
	int janitor, boxes, layers, areas; /* janitor: its end */
	int pipe[2];                       /* stands for every boot pipe */
	char dir[64];
	bool populated;
} world = { .pair = -1, .janitor = -1 };

/* --- what the broker's files call instead ---------------------------------------------------- */

int double_socketpair(int family, int type, int proto, int sv[2]);
pid_t double_fork(void);
int double_kill(pid_t pid, int sig);
int double_poll(struct pollfd *p, nfds_t n, int timeout);
int double_clock_gettime(clockid_t clock, struct timespec *ts);

int double_socketpair(int family, int type, int proto, int sv[2])
{
	int r = socketpair(family, type, proto, sv);

	promise(r == 0);
	close_p(&world.pair);
	world.pair = fcntl(sv[1], F_DUPFD_CLOEXEC, 3);
	return 0;
}

pid_t double_fork(void)
{
	promise(world.pair >= 0 && world.nchildren < CHILDREN_MAX);
	world.children[world.nchildren++] =
		(struct child){ ++world.next_pid, steal_fd(&world.pair) };
	return world.next_pid;
}

int double_kill(pid_t pid, int sig)
{
	promise(pid < 0 && sig < 0); /* nobody is ended by a number */
	return 0;
}

void child_bind(pid_t broker)
{
	(void)broker;
}

int child_watch(int pid)
{
	if (pid < 0) /* could not be made */
		return -1;
	promise(pid > FIRST_PID && pid <= world.next_pid);
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void child_kill(int pidfd)
{
	promise(pidfd < 0 || fcntl(pidfd, F_GETFD) >= 0);
}

int double_clock_gettime(clockid_t clock, struct timespec *ts)
{
	(void)clock;
	world.now_ms++;
	*ts = (struct timespec){ world.now_ms / 1000, world.now_ms % 1000 * 1000000 };
	return 0;
}

static void send_ready(int fd, unsigned how)
{
	struct build_report r = { .state = BUILD_READY, .boot = { .magic = SHIM_BOOT_MAGIC } };
	int fds[BUILD_FDS] = { world.pipe[1], world.pipe[1], world.pipe[1], world.pipe[1] };

	(void)fd_send_msg(fd, &r, sizeof(r), fds, how % 6 == 5 ? 2 : 3 + how % 2);
}

static const struct job *job_of(int pid)
{
	for (const struct job *j = world.b->jobs; j; j = j->next)
		if (j->pid == pid && !j->done)
			return j;
	return NULL;
}

static void send_word(const struct job *j, int fd, unsigned how)
{
	struct build_report failed = { .state = BUILD_FAILED, .fail = { .sys = EIO } };
	struct unpack_result unpacked = { .bytes = how };
	struct work_result worked = { .bytes = how };

	memset(&failed.fail.text, 'x', sizeof(failed.fail.text)); /* no end */
	if (j->kind == JOB_BUILD && how % 8)
		send_ready(fd, how / 8);
	else if (j->kind == JOB_BUILD)
		(void)send(fd, &failed, sizeof(failed), MSG_NOSIGNAL);
	else if (how % 4 == 0)
		unpacked.fail = worked.fail = failed.fail;
	if (j->kind == JOB_IMPORT)
		(void)send(fd, &unpacked, sizeof(unpacked), MSG_NOSIGNAL);
	if (j->kind == JOB_WORK)
		(void)send(fd, &worked, sizeof(worked), MSG_NOSIGNAL);
}

/* One child says its word, half of one, or none, and ends. */
static void end_child(int i)
{
	struct child c = world.children[i];
	const struct job *j = job_of(c.pid);
	unsigned how = supply_byte(&world.in);

	if (j && how % 16 == 15)
		(void)send(c.fd, &c, sizeof(c), MSG_NOSIGNAL);
	else if (j && how % 16 != 14)
		send_word(j, c.fd, how / 16 + how % 16);
	close(c.fd);
	world.children[i] = world.children[--world.nchildren];
}

static void work_of_the_janitor(void)
{
	struct janitor_job c;

	while (world.janitor >= 0 && recv(world.janitor, &c, sizeof(c), MSG_DONTWAIT) == sizeof(c)) {
		promise(!c.id[0] || name_is_id(c.id, sizeof(c.id)));
		promise(!c.has_block || c.block < BOX_BLOCKS);
		if (c.id[0])
			(void)unlinkat(world.boxes, c.id, 0);
		(void)send(world.janitor, &c, sizeof(c), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

static void look_at_shape(const struct build_shape *s, bool probe)
{
	promise(s->nchain <= PRIV_CHAIN_MAX && s->nvolumes <= PRIV_VOLS_MAX);
	for (uint32_t i = 0; i < s->nvolumes; i++) {
		promise(name_is_guest_path(s->volumes[i].path, PRIV_PATH_MAX));
		promise(s->volumes[i].read_only <= 1 && strncmp(s->volumes[i].path, "/proc", 6) &&
			strncmp(s->volumes[i].path, "/dev/", 5));
	}
	if (!s->nchain && !probe)
		return;
	promise(s->memory_mb > 0 && s->memory_mb <= 1 << 24);
	promise(s->disk_mb > 0 && s->disk_mb <= 1 << 24);
	promise(probe || !(s->flags & ~PRIV_EGRESS));
}

static void look_at_broker(void)
{
	int starting = 0, imports = 0, asked = 0;

	for (int i = 0; i < BROKER_SHAPES; i++)
		look_at_shape(&world.b->usual[i].shape, false);
	for (int i = 0; i < POOLS_MAX; i++) {
		promise(world.b->pools[i].shape.nchain <= PRIV_CHAIN_MAX);
		if (world.b->pools[i].size)
			look_at_shape(&world.b->pools[i].shape, false);
	}
	for (const struct job *j = world.b->jobs; j; j = j->next) {
		if (j->done)
			continue;
		asked += j->tag != 0;
		imports += j->kind == JOB_IMPORT;
		starting += j->kind == JOB_BUILD && j->step != STEP_SPARE;
		if (j->kind == JOB_BUILD)
			look_at_shape(&j->shape, j->probe);
		promise(!j->id[0] || name_is_id(j->id, sizeof(j->id)));
		promise(!j->work.id[0] || name_is_id(j->work.id, sizeof(j->work.id)));
	}
	promise(starting <= BROKER_BUILDS_MAX && imports <= BROKER_IMPORTS_MAX &&
		asked <= BROKER_ASKED_MAX);
}

int double_poll(struct pollfd *p, nfds_t n, int timeout)
{
	unsigned what = supply_byte(&world.in);

	look_at_broker();
	work_of_the_janitor();
	world.populated = world.in.left && what & 8;
	if (world.nchildren && (what & 1 || !world.in.left))
		end_child(what / 2 % world.nchildren);
	int r = poll(p, n, 0);
	if (r == 0)
		world.now_ms += timeout > 0 ? timeout : 50;
	return r;
}

/* --- the parts that act ---------------------------------------------------------------------- */

static void sound_group(const char *name)
{
	size_t n = strspn(name + 1, "0123456789") + 1;

	promise(name[0] == 'n' && n > 1 && atol(name + 1) < BOX_BLOCKS &&
		(!name[n] || !strcmp(name + n, "/guest")));
}

static int64_t maybe(int64_t yes, int64_t no)
{
	return supply_byte(&world.in) & 1 ? yes : no;
}

int claim(const struct build_env *env, const struct claim *c, const struct claim_from *from,
	struct fail *f)
{
	struct record box = { .magic = BOX_MAGIC, .block = from->block,
		.generation = c->generation, .shim_pid = from->shim_pid };

	promise(name_is_id(c->id, sizeof(c->id)) && name_is_host(c->hostname, sizeof(c->hostname)));
	promise(from->block < BOX_BLOCKS && c->cpu_milli > 0 && c->disk_mb > 0);
	promise(from->fds[BUILD_FD_BOOT] >= 0 && from->fds[BUILD_FD_LISTEN] >= 0 &&
		from->fds[BUILD_FD_UTS] >= 0);
	promise(faccessat(env->boxes, c->id, F_OK, 0) < 0);
	if (maybe(0, 1) && record_write(env->boxes, c->id, &box) < 0)
		return fail_set(f, EIO, "record");
	return maybe(1, 0) ? fail_set(f, EIO, "claim") : 0;
}

int janitor_start(struct broker *b, struct fail *f)
{
	int sv[2];

	(void)f;
	promise(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) == 0);
	close_p(&world.janitor);
	b->janitor = sv[0];
	world.janitor = sv[1];
	return 0;
}

int area_space(const struct area_store *s, int64_t *avail, int64_t *total)
{
	(void)s;
	*avail = *total = 1 << 30;
	return 0;
}

int area_usage(const struct area_store *s, const char *name, struct area_usage *ret)
{
	(void)s;
	(void)ret;
	promise(name_is_id(name, PRIV_ID_MAX) ||
		(!strncmp(name, "vol-", 4) && strspn(name + 4, "0123456789") == strlen(name + 4)));
	return (int)maybe(0, -ENOENT);
}

int area_remove(const struct area_store *s, const char *name)
{
	(void)s;
	(void)name;
	return 0;
}

void area_each(const struct area_store *s, void (*fn)(void *arg, const char *name), void *arg)
{
	(void)s;
	fn(arg, "pool-3");
	fn(arg, "sbx_area");
}

int cg_populated(const struct cg *cg, const char *name)
{
	(void)cg;
	sound_group(name);
	return world.populated;
}

int cg_events(const struct cg *cg, const char *name)
{
	(void)cg;
	sound_group(name);
	return -ENOENT;
}

int cg_killer(const struct cg *cg, const char *name)
{
	(void)cg;
	sound_group(name);
	return -ENOENT;
}

int cg_kill(const struct cg *cg, const char *name)
{
	(void)cg;
	sound_group(name);
	return 0;
}

int cg_freeze(const struct cg *cg, const char *name, bool on)
{
	(void)cg;
	(void)on;
	sound_group(name);
	return (int)maybe(0, -ENOENT);
}

int cg_frozen(const struct cg *cg, const char *name)
{
	(void)cg;
	sound_group(name);
	return (int)maybe(1, 0);
}

int cg_meter(const struct cg *cg, const char *name, int64_t ret[CG_FIGURES])
{
	(void)cg;
	sound_group(name);
	memset(ret, 0, CG_FIGURES * sizeof(*ret));
	return (int)maybe(0, -ENOENT);
}

void cg_each(const struct cg *cg, void (*fn)(void *arg, uint32_t block), void *arg)
{
	(void)cg;
	fn(arg, 7);
	fn(arg, BOX_BLOCKS);
}

/* Called where it does not matter here. */
bool cg_elsewhere(const struct cg *cg, const char *name)
{
	(void)cg;
	(void)name;
	return false;
}

int cg_make_svc(const struct cg *cg, const char *name, int *ret_dir, struct fail *f)
{
	(void)cg;
	sound_group(name);
	*ret_dir = -1;
	return maybe(0, -ENOSPC) < 0 ? fail_set(f, ENOSPC, "make the control group %s", name) : 0;
}

pid_t cg_fork_into(int dir, uint64_t flags, int *ret_pidfd)
{
	promise(dir == -1 && flags == 0 && !ret_pidfd);
	return double_fork();
}

int build_refuse(int sock, const struct fail *f)
{
	struct build_report failed = { .state = BUILD_FAILED, .fail = *f };

	promise(send(sock, &failed, sizeof(failed), MSG_NOSIGNAL) == sizeof(failed));
	return 0;
}

void cg_events_read(int fd) { (void)fd; }
void cg_leave(const struct cg *cg) { (void)cg; }
void limits_watch(struct broker *b, const char *id) { (void)b, (void)id; }
void limits_check(struct broker *b) { (void)b; }
int limits_ms(const struct broker *b) { (void)b; return -1; }
void seal_recover(const struct build_env *env, const char *id)
{
	(void)env;
	promise(name_is_id(id, PRIV_ID_MAX));
}

/* Only ever called in a child, and there is none. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEVER { abort(); }
_Noreturn void build_run(const struct build_env *e, const struct build_shape *s, uint32_t b, int k) NEVER
int unpack_import(const struct unpack_env *e, const struct unpack_job *j, struct unpack_result *r) NEVER
void seal_work(const struct build_env *e, const struct work *w, struct work_result *r) NEVER
void volume_make_work(const struct build_env *e, const struct work *w, struct work_result *r) NEVER
void volume_drop_work(const struct build_env *e, const struct work *w, struct work_result *r) NEVER
void egress_add_work(const struct build_env *e, const struct work *w, struct work_result *r) NEVER
void limit_work(const struct build_env *e, const struct work *w, struct work_result *r) NEVER
void drop_signals(void) NEVER
int pool_grow(const struct area_store *s, struct fail *f) NEVER
int pool_reclaim(const struct area_store *s) NEVER
bool pool_may_grow(const struct area_store *s) NEVER
enum pool_state pool_look(const struct area_store *s, int64_t *left) NEVER
#pragma GCC diagnostic pop

void volume_name(char name[VOLUME_NAME_MAX], uint32_t num)
{
	snprintf(name, VOLUME_NAME_MAX, "vol-%u", num);
}

/* --- requests -------------------------------------------------------------------------------- */

static const char *const ids[] = { "sbx_a", "sbx_b", "", "sbx_c", "sbx_", "../x", "sbx_A", "sbx_a/b" };
static const uint32_t numbers[] = { 1, 0, 2, 7, 63, 64, 200, 201, 0x00100000, 0x7fffffff, 0x80000000,
	0xffffffff };
static const int64_t sizes[] = { 64, 1, 0, -1, 1 << 24, (1 << 24) + 1, INT64_MAX, INT64_MIN };
static const char *const paths[] = { "/data", "/a/b", "/..", "", "/proc/x", "/dev/shm", "rel" };

static uint32_t number(struct supply *s)
{
	return numbers[supply_byte(s) % ARRAY_LEN(numbers)];
}

static void spoil(struct supply *s, struct priv_req *q)
{
	unsigned what = supply_byte(s);
	const uint8_t *raw;
	size_t n, at;

	if (what & 1)
		q->num = number(s);
	if (what & 2)
		q->kind = number(s);
	if (what & 4)
		q->nchain = number(s);
	if (what & 8) {
		q->nvolumes = 1 + supply_byte(s) % 10;
		strcpy(q->volumes[0].path, paths[supply_byte(s) % ARRAY_LEN(paths)]);
		q->volumes[0].num = number(s);
	}
	if (what & 16)
		q->memory_mb = sizes[supply_byte(s) % ARRAY_LEN(sizes)];
	if (what & 32)
		q->disk_mb = sizes[supply_byte(s) % ARRAY_LEN(sizes)];
	if (what & 64)
		q->flags = number(s);
	if (!(what & 128))
		return;
	at = (supply_byte(s) | supply_byte(s) << 8) % sizeof(*q);
	raw = supply_piece(s, sizeof(*q) - at, &n);
	if (n)
		memcpy((char *)q + at, raw, n);
}

static struct priv_req request(struct supply *s, uint64_t tag)
{
	struct priv_req q = { .magic = PRIV_MAGIC, .op = supply_byte(s) % (PRIV_OP_COUNT + 1),
		.tag = tag, .hostname = "box", .cpu_milli = 1000, .memory_mb = 64, .disk_mb = 64,
		.num = 1, .nchain = 1, .chain = { 1 } };

	strcpy(q.id, ids[supply_byte(s) % ARRAY_LEN(ids)]);
	if (supply_byte(s) & 1)
		spoil(s, &q);
	return q;
}

/* Returns how many of them could have an answer. */
static unsigned say(int fd, struct supply *s)
{
	unsigned whole = 0;

	for (uint64_t tag = 1; s->left && tag <= REQUESTS_MAX; tag++) {
		struct priv_req q = request(s, tag);
		unsigned how = supply_byte(s);
		size_t len = how % 16 == 15 ? supply_byte(s) * 16u + 1 : sizeof(q);
		int fds[3] = { memfd_create("x", MFD_CLOEXEC), world.pipe[0], world.pipe[1] };
		char packet[8192] = "";
		memcpy(packet, &q, sizeof(q));
		(void)fd_send_msg(fd, packet, len, fds, how / 16 % 4);
		close(fds[0]);
		whole += len == sizeof(q);
	}
	shutdown(fd, SHUT_WR);
	return whole;
}

static void hear(int fd, unsigned whole)
{
	struct priv_ans a;
	ssize_t n;

	while ((n = recv(fd, &a, sizeof(a), MSG_DONTWAIT)) > 0) {
		promise(n == sizeof(a) && a.magic == PRIV_MAGIC && a.tag);
		promise((a.error == 0) == (a.text[0] == '\0') && a.error >= 0);
		promise(memchr(a.text, 0, sizeof(a.text)));
		promise(whole-- > 0); /* none twice, none unasked */
	}
}

/* --- world ----------------------------------------------------------------------------------- */

static void empty(int dir)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *de;

	promise(d);
	while ((de = readdir(d)))
		if (unlinkat(dir, de->d_name, 0) < 0)
			(void)unlinkat(dir, de->d_name, AT_REMOVEDIR);
	closedir(d);
}

static void world_end(void)
{
	empty(world.boxes);
	empty(world.layers);
	empty(world.areas);
	for (int i = 0; i < 3; i++) {
		char path[80];
		snprintf(path, sizeof(path), "%s/%d", world.dir, i);
		(void)rmdir(path);
	}
	(void)rmdir(world.dir);
}

static void world_make(void)
{
	int *dirs[] = { &world.boxes, &world.layers, &world.areas };

	if (world.dir[0])
		return;
	(void)signal(SIGPIPE, SIG_IGN);
	strcpy(world.dir, "/tmp/sbx-fuzz-XXXXXX");
	promise(mkdtemp(world.dir) && pipe2(world.pipe, O_CLOEXEC) == 0);
	for (int i = 0; i < 3; i++) {
		char path[80];
		snprintf(path, sizeof(path), "%s/%d", world.dir, i);
		promise(mkdir(path, 0700) == 0);
		*dirs[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		promise(*dirs[i] >= 0);
	}
	(void)atexit(world_end);
}

static void forget(struct broker *b)
{
	while (b->jobs) {
		struct job *j = b->jobs;
		b->jobs = j->next;
		close_p(&j->fd);
		for (int i = 0; j->kind == JOB_BUILD && i < BUILD_FDS; i++)
			promise(j->from.fds[i] < 0 || !j->done);
		while (j->more) {
			struct waiter *w = j->more;
			j->more = w->next;
			free(w);
		}
		free(j);
	}
	while (b->keep) {
		struct keep *k = b->keep;
		b->keep = k->next;
		free(k);
	}
	keep_nums_free(&b->layers);
	keep_nums_free(&b->volumes);
	close_p(&b->janitor);
	free(b);
}

int fuzz_priv(const uint8_t *data, size_t size)
{
	static const struct area_provider provider = { .name = "double" };
	struct broker *b = calloc(1, sizeof(*b));
	struct supply rest = { data, size };
	unsigned whole;
	size_t n;
	int sv[2];

	world_make();
	promise(b && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) == 0);
	n = supply_byte(&rest) * 4;
	n = n < rest.left ? n : rest.left;
	world.in = (struct supply){ rest.p, n }; /* how the children are, and when */
	if (n)
		rest = (struct supply){ rest.p + n, rest.left - n };
	world.b = b;
	world.now_ms = 1000;
	world.next_pid = FIRST_PID;
	b->front = sv[0];
	b->env = (struct build_env){ .cg = CG_NULL,
		.boxes = world.boxes,
		.layers = world.layers,
		.areas = { .provider = &provider,
			.areas = world.areas,
			.plain = world.areas,
			.sealed = -1,
			.pool = -1 } };
	promise(mkdirat(world.layers, "1", 0700) == 0 && janitor_start(b, NULL) == 0);
	if (supply_byte(&rest) & 1)
		b->phase = PHASE_RUN;
	whole = say(sv[1], &rest);
	promise(broker_run(b) == 0);
	hear(sv[1], whole);
	close(sv[1]);
	while (world.nchildren)
		close(world.children[--world.nchildren].fd);
	close_p(&world.pair);
	world.pair = -1;
	close_p(&world.janitor);
	world.janitor = -1;
	forget(b);
	empty(world.boxes);
	empty(world.layers);
	empty(world.areas);
	return 0;
}
