/* SPDX-License-Identifier: MIT */
/* The linux backend: every operation is one question to the broker. Nothing here has a right that
 * the front does not have. */
#include "common/base/log.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/linux/ask.h"
#include "sandboxd/backend/linux/disk.h"
#include "sandboxd/backend/linux/images.h"
#include "sandboxd/priv/area.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#define SHORT_MS  10000
#define CREATE_MS 60000
#define SWEEP_MS  120000

struct backend {
	struct ask *ask;
};

static int linux_open(const struct backend_conf *conf, struct backend **ret, struct err *e)
{
	struct backend *b = calloc(1, sizeof(*b));

	if (!b)
		return err_set(e, ERR_INTERNAL, "out of memory");
	if (ask_new(conf->broker_fd, &b->ask, e) < 0) {
		free(b);
		return -1;
	}
	*ret = b;
	return 0;
}

static void linux_close(struct backend *b)
{
	if (!b)
		return;
	ask_free(b->ask);
	free(b);
}

struct ask *disk_ask(struct backend *b)
{
	return b->ask;
}

static int ask_id(struct backend *b, enum priv_op op, const char *id, uint64_t generation,
	int timeout_ms, struct err *e)
{
	struct priv_req q = { .op = op, .generation = generation };

	if (snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	return ask_call(b->ask, &q, -1, timeout_ms, NULL, e);
}

static int linux_probe(struct backend *b, bool caps[CAP_COUNT], struct err *e)
{
	static const enum cap always[] = { CAP_TUNNEL, CAP_FS_STAT, CAP_FS_LIST, CAP_FS_RANGE,
		CAP_FS_OPEN, CAP_FS_OPS, CAP_FS_STATFS };
	struct priv_req q = { .op = PRIV_HELLO };
	struct priv_ans a;

	if (ask_call(b->ask, &q, -1, CREATE_MS, &a, e) < 0)
		return err_prefix(e, "this host cannot run a sandbox: ");
	if (!(a.n[0] & PRIV_CAN_CREATE))
		return err_set(e, ERR_UNSUPPORTED, "this host cannot run a sandbox");
	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		caps[always[i]] = true;
	caps[CAP_SUSPEND] = (a.n[0] & PRIV_CAN_FREEZE) != 0;
	caps[CAP_DISK_SNAPSHOT] = caps[CAP_VOLUMES] = (a.n[0] & PRIV_CAN_REOPEN) != 0;
	caps[CAP_EGRESS_ALLOWLIST] = caps[CAP_EGRESS_OPEN] = caps[CAP_NETWORK_POLICY_UPDATE] =
		(a.n[0] & PRIV_CAN_EGRESS) != 0;
	caps[CAP_METRICS] = caps[CAP_METRICS_EXPORT] = (a.n[0] & PRIV_CAN_METER) != 0;
	return 0;
}

/* --- images ---------------------------------------------------------------------------------- */

static int linux_layer_import(struct backend *b, uint32_t num, enum backend_layer_kind kind,
	const struct backend_chain *below, int fd, int64_t *bytes, bool *covers, struct err *e)
{
	return images_layer_import(b->ask, num, kind, below, fd, bytes, covers, e);
}

static void linux_expect(struct backend *b, const struct backend_spec *shape)
{
	images_expect(b->ask, shape);
}

/* --- sandboxes ------------------------------------------------------------------------------- */

static int linux_destroy(struct backend *b, const char *id, struct err *e)
{
	return ask_id(b, PRIV_DESTROY, id, 0, 2 * SHORT_MS, e);
}

static int cancelled(struct err *e)
{
	return err_set(e, ERR_CONFLICT, "the create was cancelled");
}

static int end_with_grip(struct backend *b, struct ask_call *c, int timeout_ms,
	struct priv_ans *ans, struct backend_grip *ret, struct err *e)
{
	int fds[ASK_FDS], rc = ask_end_fds(b->ask, c, timeout_ms, ans, fds, e);

	*ret = (struct backend_grip){ .kill = fds[PRIV_FD_KILL], .events = fds[PRIV_FD_EVENTS] };
	return rc;
}

static int ask_create(
	struct backend *b, const struct backend_spec *spec, struct priv_req *q, struct err *e)
{
	struct err why = ERR_NULL;
	struct backend_grip grip;
	struct ask_call c;
	struct priv_ans a;
	int r;

	ask_begin(b->ask, q, -1, &c);
	if (spec->meanwhile)
		spec->meanwhile(spec->meanwhile_arg);
	r = end_with_grip(b, &c, CREATE_MS, &a, &grip, &why);
	explicit_bzero(q->secret, sizeof(q->secret));
	if (r == 0 && spec->was_ready)
		*spec->was_ready = a.n[1] == 1;
	if (r == 0 && spec->grip)
		*spec->grip = grip;
	else
		backend_grip_close(&grip);
	if (r == 0)
		return 0;
	/* An answer that did not come may be on its way: nothing of it may stay. */
	if (why.code == ERR_UNAVAILABLE)
		linux_destroy(b, q->id, NULL);
	if (e)
		*e = why;
	return -1;
}

static int linux_create(struct backend *b, const struct backend_spec *spec,
	const volatile int *cancel, struct err *e)
{
	struct priv_req q = { .op = PRIV_CREATE,
		.generation = spec->generation,
		.cpu_milli = (int64_t)(spec->cpus * 1000 + 0.5),
		.memory_mb = spec->memory_mb,
		.disk_mb = spec->disk_mb };

	if (!spec->chain || spec->chain->n == 0)
		return err_set(e, ERR_INTERNAL, "a sandbox without layers");
	disk_fill_create(&q, spec);
	if (cancel && __atomic_load_n(cancel, __ATOMIC_ACQUIRE))
		return cancelled(e);
	if (q.cpu_milli < 1)
		q.cpu_milli = 1;
	if (snprintf(q.id, sizeof(q.id), "%s", spec->id) >= (int)sizeof(q.id) ||
		snprintf(q.hostname, sizeof(q.hostname), "%s", spec->hostname) >=
			(int)sizeof(q.hostname))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id or host name too long");
	memcpy(q.secret, spec->secret, sizeof(q.secret));
	if (ask_create(b, spec, &q, e) < 0)
		return -1;
	if (cancel && __atomic_load_n(cancel, __ATOMIC_ACQUIRE)) {
		linux_destroy(b, spec->id, NULL);
		if (spec->grip)
			backend_grip_close(spec->grip);
		return cancelled(e);
	}
	return 0;
}

static int linux_pool(struct backend *b, unsigned num, const struct backend_spec *shape,
	unsigned size, struct backend_pool *ret, struct err *e)
{
	struct priv_req q = { .op = PRIV_POOL,
		.num = num,
		.kind = size,
		.cpu_milli = 1, /* set when it is taken */
		.memory_mb = shape->memory_mb,
		.disk_mb = shape->disk_mb };
	struct priv_ans a;

	disk_fill_create(&q, shape);
	if (ask_call(b->ask, &q, -1, SHORT_MS, &a, e) < 0)
		return -1;
	*ret = (struct backend_pool){ (unsigned)a.n[0], (unsigned)a.n[1] };
	return 0;
}

static int ask_freeze(struct backend *b, const char *id, bool on, struct err *e)
{
	struct priv_req q = { .op = PRIV_FREEZE, .kind = on };

	if (snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	return ask_call(b->ask, &q, -1, SHORT_MS, NULL, e);
}

/* A question whose answer did not come may still be heard: what the caller believes is asked for again. */
static int linux_freeze(struct backend *b, const char *id, bool on, struct err *e)
{
	struct err why = ERR_NULL;

	if (ask_freeze(b, id, on, &why) == 0)
		return 0;
	if (why.code == ERR_UNAVAILABLE)
		(void)ask_freeze(b, id, !on, NULL);
	if (e)
		*e = why;
	return -1;
}

static int linux_egress_add(struct backend *b, const char *id,
	const uint8_t secret[PROTO_SECRET_LEN], uint64_t generation, struct err *e)
{
	struct priv_req q = { .op = PRIV_EGRESS_ADD, .generation = generation };
	int rc;

	if (snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	memcpy(q.secret, secret, sizeof(q.secret));
	rc = ask_call(b->ask, &q, -1, SHORT_MS, NULL, e);
	explicit_bzero(q.secret, sizeof(q.secret));
	return rc;
}

static int linux_alive(struct backend *b, const char *id, uint64_t generation,
	struct backend_grip *grip, struct err *e)
{
	struct priv_req q = { .op = PRIV_ALIVE, .generation = generation };
	struct backend_grip got = BACKEND_GRIP_NULL;
	struct err why = ERR_NULL;
	struct ask_call c;
	bool alive = false;

	if (snprintf(q.id, sizeof(q.id), "%s", id) < (int)sizeof(q.id)) {
		ask_begin(b->ask, &q, -1, &c);
		alive = end_with_grip(b, &c, SHORT_MS, NULL, &got, &why) == 0;
	}
	if (!alive || !grip)
		backend_grip_close(&got);
	if (grip)
		*grip = got;
	if (why.code != ERR_UNAVAILABLE)
		return alive;
	if (e)
		*e = why;
	return -1;
}

static int linux_sweep(struct backend *b, const char *const *keep, size_t n, struct err *e)
{
	struct priv_req q = { .op = PRIV_SWEEP };

	for (size_t i = 0; i < n; i++)
		if (ask_id(b, PRIV_KEEP, keep[i], 0, SHORT_MS, e) < 0)
			return -1;
	return ask_call(b->ask, &q, -1, SWEEP_MS, NULL, e);
}

static int linux_meter(struct backend *b, const char *id, struct backend_meter *ret, struct err *e)
{
	struct priv_req q = { .op = PRIV_METER };
	struct priv_ans a;

	if (snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	if (ask_call(b->ask, &q, -1, SHORT_MS, &a, e) < 0)
		return -1;
	*ret = (struct backend_meter){ a.n[0], a.n[1], a.n[2], a.n[3], a.n[4], a.n[5] };
	return 0;
}

/* --- figures --------------------------------------------------------------------------------- */

static int disk(struct backend *b, int64_t *free_mb, int64_t *total_mb)
{
	struct priv_req q = { .op = PRIV_DISK_FREE };
	struct priv_ans a;

	if (ask_call(b->ask, &q, -1, SHORT_MS, &a, NULL) < 0)
		return -1;
	*free_mb = a.n[0];
	*total_mb = a.n[1];
	return 0;
}

static void linux_capacity(struct backend *b, double *cpus, int64_t *memory_mb, int64_t *disk_mb)
{
	struct sysinfo si;
	int64_t avail;

	*cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
	*memory_mb = sysinfo(&si) == 0 ? (int64_t)((uint64_t)si.totalram * si.mem_unit >> 20) : 0;
	if (disk(b, &avail, disk_mb) < 0)
		*disk_mb = 0;
}

static int64_t linux_disk_free_mb(struct backend *b)
{
	int64_t avail, total;

	return disk(b, &avail, &total) < 0 ? 0 : avail;
}

const struct backend_ops linux_backend = {
	.name = "linux",
	.open = linux_open,
	.close = linux_close,
	.probe = linux_probe,
	.create = linux_create,
	.destroy = linux_destroy,
	.pool = linux_pool,
	.freeze = linux_freeze,
	.egress_add = linux_egress_add,
	.alive = linux_alive,
	.sweep = linux_sweep,
	.layer_import = linux_layer_import,
	.expect = linux_expect,
	.meter = linux_meter,
	.layer_drop = disk_layer_drop,
	.keep_layers = disk_keep_layers,
	.keep_volumes = disk_keep_volumes,
	.snapshot = disk_snapshot,
	.volume_num_max = AREA_VOLUME_NUM - 1,
	.volume_make = disk_volume_make,
	.volume_drop = disk_volume_drop,
	.disk_usage = disk_usage,
	.capacity = linux_capacity,
	.disk_free_mb = linux_disk_free_mb,
};
