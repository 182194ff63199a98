/* SPDX-License-Identifier: MIT */
/* Creates: a spare sandbox of the right shape is claimed, else one is built first. Spares are kept of the
 * shapes that were asked for lately (usual.c), and of those that the operator wants ready (pools.c). */
#include "sandboxd/priv/broker.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "sandboxd/priv/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Making a spare takes what the create that has just taken one still needs: forks of the broker, and
 * the processors while its shim, its egress process and the front make each other's acquaintance. */
#define REFILL_AFTER_MS 5
#define REFILL_LEFT     2 /* with fewer left than that, nothing is put off */

bool creates_same_shape(const struct build_shape *a, const struct build_shape *b)
{
	return a->memory_mb == b->memory_mb && a->disk_mb == b->disk_mb && a->flags == b->flags &&
	       a->nvolumes == 0 && b->nvolumes == 0 && a->nchain == b->nchain &&
	       memcmp(a->chain, b->chain, a->nchain * sizeof(a->chain[0])) == 0;
}

static int at_work(const struct broker *b)
{
	int n = 0;

	for (const struct job *j = b->jobs; j; j = j->next)
		n += j->kind == JOB_BUILD && !j->done && j->step != STEP_SPARE;
	return n;
}

/* Ids that nobody else on this machine has. Two servers that take the same at the same moment began at different
 * places (set_up). */
static int take_block(struct broker *b, uint32_t *ret)
{
	char group[BOX_NAME_MAX];

	for (uint32_t tried = 0; tried < BOX_BLOCKS; tried++) {
		if (box_block_take(&b->blocks, ret) < 0)
			break;
		box_group(group, *ret);
		if (!cg_elsewhere(&b->env.cg, group))
			return 0;
		box_block_free(&b->blocks, *ret);
	}
	return -EAGAIN;
}

/* Does not come back in the child. */
static pid_t fork_builder(struct broker *b, const struct job *j, int sock)
{
	_cleanup_close_ int svc = -1;
	struct fail f = { 0 };
	char group[BOX_NAME_MAX];
	pid_t pid;

	box_group(group, j->from.block);
	if (cg_make_svc(&b->env.cg, group, &svc, &f) < 0) {
		(void)build_refuse(sock, &f);
		return -1;
	}
	pid = cg_fork_into(svc, 0, NULL);
	if (pid == 0) {
		close_p(&svc);
		broker_leave(b, -1);
		build_run(&b->env, &j->shape, j->from.block, sock);
	}
	return pid;
}

static struct job *start_builder(struct broker *b, const struct build_shape *shape)
{
	struct job *j;
	int sv[2];

	if (at_work(b) >= BROKER_BUILDS_MAX)
		return NULL;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return NULL;
	j = broker_job(b, JOB_BUILD);
	if (!j || take_block(b, &j->from.block) < 0) {
		if (j)
			j->done = true;
		close(sv[0]);
		close(sv[1]);
		return NULL;
	}
	j->shape = *shape;
	memset(j->from.fds, -1, sizeof(j->from.fds));
	memset(j->from.grip, -1, sizeof(j->from.grip));
	j->step = STEP_PREPARING;
	j->fd = sv[0];
	j->pid = fork_builder(b, j, sv[1]);
	close(sv[1]);
	j->pidfd = child_watch(j->pid);
	j->from.shim_pid = j->pid;
	return j; /* a fork that failed shows as the end of the socket */
}

static void close_claim_fds(struct job *j)
{
	for (int i = 0; i < BUILD_FDS; i++) {
		if (j->from.fds[i] == j->fd)
			j->fd = -1;
		close_p(&j->from.fds[i]);
		j->from.fds[i] = -1;
	}
	for (int i = 0; i < PRIV_GRIP_FDS; i++) {
		close_p(&j->from.grip[i]);
		j->from.grip[i] = -1;
	}
}

/* Unclaimed builders have no record, only groups and an area named after the block. */
static void forget_unclaimed(struct broker *b, struct job *j)
{
	child_kill(j->pidfd);
	close_claim_fds(j); /* with a spare's boot pipe; what is left in fd is a builder's socket */
	ends_block(b, j->from.block, j->fd);
	j->fd = -1;
	j->done = true;
}

static void probe_result(struct broker *b, struct job *j)
{
	struct priv_ans a = { .n = { PRIV_CAN_CREATE | PRIV_CAN_LIMIT | PRIV_CAN_DISK } };

	if (freezes_work(b, j->from.block))
		a.n[0] |= PRIV_CAN_FREEZE;
	if (meter_works(b, j->from.block))
		a.n[0] |= PRIV_CAN_METER;
	if (j->from.fds[BUILD_FD_EGRESS] >= 0)
		a.n[0] |= PRIV_CAN_EGRESS;
	else if (!j->fail.sys)
		fprintf(stderr, "<warn> sbx-priv: sandboxes get no network: %s\n",
			j->no_egress.text);
	if (b->env.areas.provider->reopen)
		a.n[0] |= PRIV_CAN_REOPEN;
	broker_answer(b, j->op, j->tag, &j->fail, &a);
	forget_unclaimed(b, j);
}

/* Not again while it is put off, or a row of creates would use up what is there. */
static void put_off_refill(struct broker *b, const struct job *taken)
{
	struct creates_count left;

	creates_count(b, &taken->shape, &left);
	if (!b->refill_ms && left.ready >= REFILL_LEFT)
		b->refill_ms = broker_now_ms() + REFILL_AFTER_MS;
}

int creates_refill_ms(const struct broker *b)
{
	int64_t ms = b->refill_ms - broker_now_ms();

	return !b->refill_ms ? -1 : ms < 0 ? 0 : (int)ms;
}

static void claim_it(struct broker *b, struct job *j)
{
	struct priv_ans a = { .n = { j->pid, j->step == STEP_SPARE } };
	struct record box;

	if (claim(&b->env, &j->claim, &j->from, &j->fail) == 0) {
		broker_answer_grip(b, j->op, j->tag, &a, j->from.grip);
		if (j->step == STEP_SPARE)
			put_off_refill(b, j);
		close_claim_fds(j);
		j->done = true;
		return;
	}
	bool recorded = record_read(b->env.boxes, j->claim.id, &box) == 0;
	child_kill(j->pidfd);
	/* Ends it like any other, then answers. */
	ends_start(b, j->claim.id, j->op, j->tag, &j->fail);
	close_claim_fds(j);
	j->done = true;
	if (!recorded)
		ends_block(b, j->from.block, -1);
}

static void failed(struct broker *b, struct job *j)
{
	if (!j->fail.sys)
		fail_set(&j->fail, ECHILD, "the builder ended early");
	if (j->probe) {
		probe_result(b, j);
		return;
	}
	usual_failed(b, &j->shape); /* do not try again and again */
	if (j->wanted) {
		broker_answer(b, j->op, j->tag, &j->fail, NULL);
	} else {
		fprintf(stderr, "<warn> sbx-priv: spare sandbox: %s\n", j->fail.text);
		pools_result(b, &j->shape, false);
	}
	forget_unclaimed(b, j);
}

/* The end of the builder's socket: its shim runs, or it died. */
static void builder_ended(struct broker *b, struct job *j)
{
	if (j->step != STEP_REPORTED || j->fail.sys) {
		failed(b, j);
		return;
	}
	close(j->fd);
	j->fd = -1;
	if (j->probe) {
		probe_result(b, j);
	} else if (j->wanted) {
		claim_it(b, j);
	} else {
		j->step = STEP_SPARE;
		pools_result(b, &j->shape, true);
		j->fd = j->from.fds[BUILD_FD_BOOT]; /* says so when the shim dies */
	}
}

void creates_event(struct broker *b, struct job *j)
{
	struct build_report r;
	int fds[BUILD_FDS];
	size_t n = BUILD_FDS;
	ssize_t len;

	if (j->step == STEP_SPARE) {
		fail_set(&j->fail, ECHILD, "it ended by itself");
		failed(b, j);
		return;
	}
	len = fd_recv_msg(j->fd, &r, sizeof(r), fds, &n);
	if (len == sizeof(r) && r.state == BUILD_READY && n >= BUILD_FD_EGRESS) {
		memcpy(j->from.fds, fds, n * sizeof(fds[0]));
		if (!j->probe) /* now, where no create waits for it yet, as a rule */
			broker_grip(b, j->from.block, j->from.grip);
		j->from.shim_start = pid_start_time(j->pid);
		if (j->probe)
			j->no_egress = r.fail;
		j->from.boot = r.boot;
		j->step = STEP_REPORTED;
		return;
	}
	for (size_t i = 0; i < n; i++)
		close(fds[i]); /* where not all could come */
	if (len == sizeof(r)) {
		j->fail = r.fail;
		j->fail.text[sizeof(j->fail.text) - 1] = 0;
		if (r.state == BUILD_READY)
			fail_set(&j->fail, EMFILE, "take what a builder gives");
		return;
	}
	builder_ended(b, j);
}

static bool is_spare(const struct job *j)
{
	return j->kind == JOB_BUILD && !j->done && !j->wanted && !j->probe;
}

/* One that is ready, else one that is being built. */
static struct job *find_spare(struct broker *b, const struct build_shape *s)
{
	struct job *coming = NULL;

	for (struct job *j = b->jobs; j; j = j->next) {
		if (!is_spare(j) || !creates_same_shape(&j->shape, s))
			continue;
		if (j->step == STEP_SPARE)
			return j;
		coming = j;
	}
	return coming;
}

void creates_count(const struct broker *b, const struct build_shape *shape,
	struct creates_count *ret)
{
	*ret = (struct creates_count){ 0 };
	for (const struct job *j = b->jobs; j; j = j->next) {
		if (!is_spare(j) || !creates_same_shape(&j->shape, shape))
			continue;
		ret->ready += j->step == STEP_SPARE;
		ret->building += j->step != STEP_SPARE;
	}
}

static void drop_other_spares(struct broker *b)
{
	for (struct job *j = b->jobs; j; j = j->next)
		if (is_spare(j) && j->step == STEP_SPARE && !usual_wants(b, &j->shape) &&
			!pools_want(b, &j->shape))
			forget_unclaimed(b, j);
}

/* The usual shapes come first; a pool is filled when nobody waits for a sandbox. */
static const struct build_shape *next_spare(const struct broker *b, bool waited_for)
{
	const struct build_shape *s = usual_lacking(b);

	return s || waited_for ? s : pools_lacking(b);
}

void creates_refill(struct broker *b)
{
	bool waited_for = false;
	int building = at_work(b);

	if (creates_refill_ms(b) > 0)
		return;
	b->refill_ms = 0;
	if (b->phase != PHASE_RUN || ends_waited_for(b))
		return;
	for (const struct job *j = b->jobs; j; j = j->next)
		waited_for = waited_for || (j->kind == JOB_BUILD && !j->done && j->wanted);
	if (!waited_for)
		drop_other_spares(b);
	for (; building < BROKER_BUILDING; building++) {
		const struct build_shape *s = next_spare(b, waited_for);
		if (!s || !start_builder(b, s))
			return;
	}
}

/* What the broker itself mounts is not covered by anything. */
static bool covers_system(const char *path)
{
	static const char *const dirs[] = { "/proc", "/sys", "/dev" };
	size_t n = strcspn(path + 1, "/") + 1;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (strlen(dirs[i]) == n && strncmp(path, dirs[i], n) == 0)
			return true;
	return false;
}

/* The front has checked these; what is mounted by root is checked again. */
static bool volumes_ok(const struct priv_req *q)
{
	if (q->nvolumes > PRIV_VOLS_MAX)
		return false;
	for (uint32_t i = 0; i < q->nvolumes; i++)
		if (q->volumes[i].read_only > 1 ||
			!name_is_guest_path(q->volumes[i].path, sizeof(q->volumes[i].path)) ||
			covers_system(q->volumes[i].path))
			return false;
	return true;
}

int creates_check_shape(const struct priv_req *q, struct fail *f)
{
	if (q->nchain == 0 || q->nchain > PRIV_CHAIN_MAX || (q->flags & ~PRIV_EGRESS) ||
		!volumes_ok(q))
		return fail_set(f, EINVAL, "layers, flags or volumes");
	if (q->cpu_milli <= 0 || q->memory_mb <= 0 || q->disk_mb <= 0 || q->cpu_milli > 1 << 24 ||
		q->memory_mb > 1 << 24 || q->disk_mb > 1 << 24)
		return fail_set(f, EINVAL, "limits");
	return 0;
}

static int check(const struct broker *b, const struct priv_req *q, struct fail *f)
{
	if (!name_is_id(q->id, sizeof(q->id)) || !name_is_host(q->hostname, sizeof(q->hostname)))
		return fail_set(f, EINVAL, "id or host name");
	if (creates_check_shape(q, f) < 0)
		return -1;
	if (faccessat(b->env.boxes, q->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return fail_set(f, EEXIST, "sandbox %.63s", q->id);
	for (const struct job *j = b->jobs; j; j = j->next)
		if (!j->done &&
			((j->kind == JOB_BUILD && j->wanted && strcmp(j->claim.id, q->id) == 0) ||
				(j->kind == JOB_END && strcmp(j->id, q->id) == 0)))
			return fail_set(f, EEXIST, "sandbox %.63s", q->id);
	return 0;
}

static void fill(struct job *j, const struct priv_req *q)
{
	memcpy(j->claim.id, q->id, sizeof(j->claim.id));
	memcpy(j->claim.hostname, q->hostname, sizeof(j->claim.hostname));
	memcpy(j->claim.secret, q->secret, sizeof(j->claim.secret));
	j->claim.generation = q->generation;
	j->claim.cpu_milli = q->cpu_milli;
	j->claim.disk_mb = q->disk_mb;
	for (uint32_t i = 0; i < q->nvolumes; i++)
		j->claim.volumes |= !q->volumes[i].read_only;
	j->wanted = true;
	j->op = q->op;
	j->tag = q->tag;
}

void creates_shape_of(struct build_shape *s, const struct priv_req *q)
{
	*s = (struct build_shape){ .memory_mb = q->memory_mb,
		.disk_mb = q->disk_mb,
		.flags = q->flags,
		.nchain = q->nchain,
		.nvolumes = q->nvolumes };
	memcpy(s->chain, q->chain, q->nchain * sizeof(s->chain[0]));
	memcpy(s->volumes, q->volumes, q->nvolumes * sizeof(s->volumes[0]));
}

void op_create(struct broker *b, const struct priv_req *q, int fd)
{
	struct build_shape s;
	struct fail f = { 0 };
	struct job *j = NULL;

	(void)fd;
	if (check(b, q, &f) == 0) {
		creates_shape_of(&s, q);
		j = find_spare(b, &s);
		if (!j)
			j = start_builder(b, &s);
		if (!j)
			fail_set(&f, EAGAIN, "start a builder");
	}
	if (!j) {
		broker_answer(b, q->op, q->tag, &f, NULL);
		return;
	}
	if (s.nvolumes == 0) /* others with the same volumes are not to be expected */
		usual_asked(b, &s);
	fill(j, q);
	if (j->step == STEP_SPARE)
		claim_it(b, j);
}

void creates_cancel(struct broker *b, const char *id)
{
	for (struct job *j = b->jobs; j; j = j->next) {
		struct fail f = { 0 };
		if (j->kind != JOB_BUILD || j->done || !j->wanted || strcmp(j->claim.id, id) != 0)
			continue;
		fail_set(&f, EAGAIN, "the create was taken back");
		broker_answer(b, j->op, j->tag, &f, NULL);
		explicit_bzero(j->claim.secret, sizeof(j->claim.secret));
		j->wanted = false;
		j->tag = 0;
	}
}

bool creates_stand_on(const struct build_shape *s, uint32_t num)
{
	for (uint32_t i = 0; i < s->nchain; i++)
		if (s->chain[i] == num)
			return true;
	return false;
}

void creates_forget_layer(struct broker *b, uint32_t num)
{
	usual_forget_layer(b, num);
	for (struct job *j = b->jobs; j; j = j->next)
		if (is_spare(j) && j->step == STEP_SPARE && creates_stand_on(&j->shape, num))
			forget_unclaimed(b, j);
}

void op_expect(struct broker *b, const struct priv_req *q, int fd)
{
	struct build_shape s;
	struct fail f = { 0 };

	(void)fd;
	if (creates_check_shape(q, &f) == 0) {
		creates_shape_of(&s, q);
		usual_expect(b, &s);
	}
	broker_answer(b, q->op, q->tag, &f, NULL);
}

int creates_probe(struct broker *b, uint64_t tag)
{
	struct build_shape s = { .memory_mb = 64, .disk_mb = 64,
		.flags = PRIV_EGRESS | BUILD_PROBE };
	struct job *j = start_builder(b, &s);

	if (!j)
		return -1;
	j->probe = true;
	j->op = PRIV_HELLO;
	j->tag = tag;
	return 0;
}

void creates_stop(struct broker *b)
{
	memset(b->usual, 0, sizeof(b->usual));
	memset(b->pools, 0, sizeof(b->pools));
	for (struct job *j = b->jobs; j; j = j->next)
		if (j->kind == JOB_BUILD && !j->done)
			forget_unclaimed(b, j);
}
