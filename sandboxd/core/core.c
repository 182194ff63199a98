/* SPDX-License-Identifier: MIT */
/* Putting the core together and taking it apart again, in the opposite order. */
#include "sandboxd/core/core_internal.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/backend/guestfs.h"
#include "sandboxd/core/egress.h"
#include "sandboxd/core/export.h"
#include "sandboxd/core/metrics.h"
#include "sandboxd/core/pools.h"
#include "sandboxd/core/prometheus.h"
#include "sandboxd/core/images.h"
#include "sandboxd/core/layers.h"
#include "sandboxd/core/schedule.h"
#include "sandboxd/core/snapshots.h"
#include "sandboxd/core/strs.h"
#include "sandboxd/core/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define LEAVE_HELPERS 7

/* What this version can do whatever the host is; the rest is the backend's word, where the core has
 * a part that could honour it. */
static const enum cap always[] = { CAP_FS_STAT, CAP_FS_LIST, CAP_FS_RANGE, CAP_FS_OPEN, CAP_FS_OPS,
	CAP_FS_STATFS, CAP_FS_LOCKS, CAP_FS_STREAM, CAP_ERRNO, CAP_OUTPUT_RANGE, CAP_PROCESS_NAMES, CAP_LIST_WATCH,
	CAP_INSTANCE };
static const enum cap if_host_can[] = { CAP_EGRESS_ALLOWLIST, CAP_EGRESS_OPEN, CAP_NETWORK_POLICY_UPDATE,
	CAP_DISK_SNAPSHOT, CAP_VOLUMES, CAP_TUNNEL, CAP_SUSPEND, CAP_METRICS, CAP_METRICS_EXPORT };

bool core_cap(const struct core *c, enum cap cap)
{
	if (cap == CAP_NONE)
		return true;
	if (cap == CAP_SNAPSHOT)
		return c->caps[CAP_MEMORY_SNAPSHOT] || c->caps[CAP_DISK_SNAPSHOT];
	return cap > CAP_SNAPSHOT && cap < CAP_COUNT && c->caps[cap];
}

/* Those that are several operations, of which a backend may lack one. */
static bool has_ops(const struct backend_ops *ops, enum cap cap)
{
	if (cap == CAP_DISK_SNAPSHOT)
		return ops->snapshot && ops->layer_drop && ops->keep_layers;
	if (cap == CAP_EGRESS_ALLOWLIST || cap == CAP_EGRESS_OPEN ||
		cap == CAP_NETWORK_POLICY_UPDATE)
		return ops->egress_add != NULL;
	if (cap == CAP_VOLUMES)
		return ops->volume_make && ops->volume_drop && ops->keep_volumes;
	return true;
}

static void set_caps(struct core *c, const bool host[CAP_COUNT])
{
	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		c->caps[always[i]] = true;
	for (size_t i = 0; i < ARRAY_LEN(if_host_can); i++)
		c->caps[if_host_can[i]] =
			host && host[if_host_can[i]] && has_ops(c->ops, if_host_can[i]);
	c->caps[CAP_AUDIT] = c->audit != NULL;
}

/* Asks ext4 to treat the folders below as unrelated to each other (chattr +T): it then puts their files into
 * different block groups, and does not walk over the inodes of all the sandboxes that have just ended whenever
 * it gives one to the next. Other file systems do not know the flag. */
static void spread_children(int dirfd)
{
	int flags = 0;

	if (ioctl(dirfd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
		flags |= FS_TOPDIR_FL;
		(void)ioctl(dirfd, FS_IOC_SETFLAGS, &flags);
	}
}

static int open_state(struct core *c, const struct core_conf *conf, struct err *e)
{
	struct stat st;

	if (fstat(conf->state_dirfd, &st) < 0)
		return err_sys(e, errno, "state directory \"%s\"", conf->state_dir);
	if (st.st_mode & 077)
		return err_set(e, ERR_INVALID_REQUEST,
			"state directory \"%s\" is open to others; it holds secrets: chmod 700 it",
			conf->state_dir);
	if (mkdirat(conf->state_dirfd, "run", 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "run folder in \"%s\"", conf->state_dir);
	c->run_dirfd =
		openat(conf->state_dirfd, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (c->run_dirfd < 0)
		return err_sys(e, errno, "run folder in \"%s\"", conf->state_dir);
	spread_children(c->run_dirfd);
	return store_open(conf->state_dir, &c->store, e);
}

static int open_audit(struct core *c, const struct core_conf *conf, struct err *e)
{
	_cleanup_free_ char *own = NULL;
	const char *path = conf->audit_log;

	if (path && !strcmp(path, "none"))
		return 0;
	if (!path && asprintf(&own, "%s/audit/events.jsonl", conf->state_dir) < 0)
		return err_oom(e);
	return audit_open(path ? path : own, &c->audit, e);
}

/* The boot id tells a runtime of this boot from one of an earlier; where there is none, nothing is taken
 * back. */
static int read_boot(struct core *c, struct err *e)
{
	_cleanup_close_ int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, c->boot, sizeof(c->boot) - 1);

	if (n < 0 && err_is_short(errno))
		return err_sys(e, errno, "boot id");
	c->boot[n > 0 ? n : 0] = '\0';
	c->boot[strcspn(c->boot, "\n")] = '\0';
	if (!c->boot[0])
		snprintf(c->boot, sizeof(c->boot), "unknown-%.32s", c->instance);
	return 0;
}

static int fill_conf(struct core *c, const struct core_conf *conf, struct err *e)
{
	uint8_t raw[16];

	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return err_sys(e, errno, "random bytes");
	for (size_t i = 0; i < sizeof(raw); i++)
		snprintf(c->instance + 2 * i, 3, "%02x", raw[i]);
	if (read_boot(c, e) < 0)
		return -1;
	c->policy = conf->policy;
	c->keep = conf->keep_sandboxes;
	c->export_private = conf->export_allow_private;
	snprintf(c->node_id, sizeof(c->node_id), "%s", conf->node_id ? conf->node_id : "");
	if (map_copy(&conf->node_labels, &c->node_labels) < 0)
		return err_oom(e);
	c->ops->capacity(
		c->backend, &c->capacity_cpus, &c->capacity_memory_mb, &c->capacity_disk_mb);
	if (conf->capacity_cpus > 0)
		c->capacity_cpus = conf->capacity_cpus;
	if (conf->capacity_memory_mb > 0)
		c->capacity_memory_mb = conf->capacity_memory_mb;
	if (conf->capacity_disk_mb > 0)
		c->capacity_disk_mb = conf->capacity_disk_mb;
	return 0;
}

static struct core *core_new(const struct backend_ops *ops, struct backend *b)
{
	struct core *c = calloc(1, sizeof(*c));

	if (!c || !(c->creates = create_counts_new())) {
		free(c);
		return NULL;
	}
	c->ops = ops;
	c->backend = b;
	c->run_dirfd = -1;
	c->jobs_tail = &c->jobs;
	registry_init(&c->reg);
	pthread_mutex_init(&c->change_lock, NULL);
	pthread_mutex_init(&c->queue_lock, NULL);
	pthread_cond_init(&c->change_cond, NULL);
	pthread_cond_init(&c->queue_cond, NULL);
	pthread_cond_init(&c->stop_cond, NULL);
	return c;
}

/* What most creates ask for. */
static void expect_default(struct core *c, const struct backend_chain *chain)
{
	const struct limits *l = &c->policy->limits;
	struct backend_spec shape = { .chain = chain,
		.memory_mb = l->default_memory_mb,
		.disk_mb = l->default_disk_mb,
		.egress = c->policy->net_default.mode != NET_NONE };

	if (c->ops->expect && chain->n)
		c->ops->expect(c->backend, &shape);
}

/* The first create should not pay for unpacking. Failing is no reason not to start: another image
 * may be asked for, or this one be put in place later. */
static void ready_default_image(struct core *c)
{
	const char *ref = c->policy->default_image;
	struct image_use use = { .env = NULL };
	struct err e = ERR_NULL;

	/* One that has to be fetched first does not hold up the start. */
	if (c->ops->layer_import && !images_is_local(c, ref) && !images_is_ready(c, ref)) {
		json_t *o = NULL;
		if (images_install(c, ref, &o, &e) == 0)
			json_decref(o);
		else
			log_warn("the default image is not ready image=%s reason=\"%s\"", ref, e.msg);
		return;
	}
	c->default_ready = images_use(c, ref, NULL, NULL, NULL, &use, &e) == 0;
	if (c->default_ready) {
		expect_default(c, &use.chain);
		image_use_free(c, &use);
	} else
		log_warn("the default image is not ready image=%s reason=\"%s\"",
			c->policy->default_image, e.msg);
}

static int open_images(struct core *c, const struct core_conf *conf, struct err *e)
{
	const struct images_conf ic = { .image_dir = conf->image_dir,
		.image_dir_name = conf->image_dir_name,
		.state_dirfd = conf->state_dirfd,
		.pull_fd = conf->pull_fd };

	if (images_open(c, &ic, &c->images, e) < 0)
		return -1;
	c->caps[CAP_IMAGES] = c->ops->layer_import && c->ops->layer_drop;
	c->caps[CAP_REGISTRY_LOGIN] = images_can_pull(c);
	return 0;
}

static int open_egress(struct core *c, const struct core_conf *conf, struct err *e)
{
	if (!c->caps[CAP_NETWORK_POLICY_UPDATE])
		return 0;
	if (egress_watch_new(c, &c->egress, e) < 0)
		return -1;
	if (conf->resolvers)
		core_set_resolvers(c, conf->resolvers);
	return 0;
}

int core_open(const struct core_conf *conf, const struct backend_ops *ops, struct backend *b,
	const bool caps[CAP_COUNT], struct core **ret, struct err *e)
{
	struct core *c = core_new(ops, b);

	if (!c)
		return err_oom(e);
	if (fill_conf(c, conf, e) < 0 || open_state(c, conf, e) < 0 || open_audit(c, conf, e) < 0 ||
		guest_hub_new(&c->hub, e) < 0)
		goto fail;
	set_caps(c, caps);
	if (open_egress(c, conf, e) < 0)
		goto fail;
	if (layers_open(c, &c->layers, e) < 0 || open_images(c, conf, e) < 0 ||
		snapshots_open(c, &c->snapshots, e) < 0 || volumes_open(c, &c->volumes, e) < 0 ||
		schedule_open(c, &c->schedule, e) < 0 || restore_all(c, e) < 0)
		goto fail;
	if (!c->keep)
		snapshots_forget(c);
	if (layers_started(c, e) < 0)
		goto fail;
	ready_default_image(c);
	if (pools_open(c, &c->pools, e) < 0 || lifetime_start(c, e) < 0 || metrics_start(c, e) < 0 ||
		exporter_open(c, e) < 0)
		goto fail;
	*ret = c;
	return 0;
fail:
	c->keep = true; /* a start that failed ends nobody */
	core_close(c);
	return -1;
}

/* Keeping means: let go of the connections, leave record and runtime alone. */
static void let_go(struct sandbox *s)
{
	bool running; /* or asleep */

	pthread_mutex_lock(&s->lock);
	running = s->state == SBX_RUNNING || s->state == SBX_SUSPENDED;
	pthread_mutex_unlock(&s->lock);
	if (!running)
		return;
	guestfs_shutdown(s->fs);
	guest_shutdown(s->guest);
	pthread_mutex_lock(&s->lock);
	while (s->users > 0)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	guestfs_free(s->fs);
	guest_free(s->guest);
	egress_close(s->egress);
	s->egress = NULL;
	s->fs = NULL;
	s->guest = NULL;
}

/* Ending one is mostly waiting, so a few threads share the list. */
struct leaving {
	struct core *c;
	struct sandbox **all;
	size_t n, next; /* next: atomic */
};

static void *leave_some(void *arg)
{
	struct leaving *l = arg;
	size_t i;

	while ((i = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED)) < l->n) {
		if (l->c->keep)
			let_go(l->all[i]);
		else
			sandbox_terminate(l->all[i], "restart", NULL);
		sandbox_unref(l->all[i]);
	}
	return NULL;
}

static void leave_sandboxes(struct core *c)
{
	struct leaving l = { .c = c };
	pthread_t helpers[LEAVE_HELPERS];
	size_t started = 0;

	if (registry_all(&c->reg, &l.all, &l.n) < 0)
		return;
	while (!c->keep && started < LEAVE_HELPERS && started + 1 < l.n &&
		pthread_create(&helpers[started], NULL, leave_some, &l) == 0)
		started++;
	leave_some(&l);
	while (started > 0)
		pthread_join(helpers[--started], NULL);
	free(l.all);
}

void core_close(struct core *c)
{
	if (!c)
		return;
	metrics_stop(c);
	layers_stop(c->layers);
	pools_close(c->pools);
	c->pools = NULL;
	images_close(c->images);
	c->images = NULL;
	lifetime_stop(c);
	exporter_close(c);
	schedule_close(c->schedule);
	leave_sandboxes(c);
	if (!c->keep && c->snapshots)
		snapshots_forget(c);
	if (c->hub)
		guest_hub_free(c->hub);
	egress_watch_free(c->egress);
	registry_fini(&c->reg);
	snapshots_close(c->snapshots);
	volumes_close(c->volumes);
	layers_close(c->layers);
	store_close(c->store);
	audit_close(c->audit);
	close_p(&c->run_dirfd);
	map_free(&c->node_labels);
	create_counts_free(c->creates);
	pthread_cond_destroy(&c->change_cond);
	pthread_cond_destroy(&c->queue_cond);
	pthread_cond_destroy(&c->stop_cond);
	pthread_mutex_destroy(&c->change_lock);
	pthread_mutex_destroy(&c->queue_lock);
	free(c);
}

int core_cordon(struct core *c, bool cordoned, struct err *e)
{
	(void)e;
	registry_cordon(&c->reg, cordoned);
	return 0;
}

const char *core_instance(const struct core *c)
{
	return c->instance;
}

struct audit *core_audit(struct core *c)
{
	return c->audit;
}

struct guest_hub *core_hub(struct core *c)
{
	return c->hub;
}

struct store *core_store(struct core *c)
{
	return c->store;
}

void core_changed(struct core *c)
{
	pthread_mutex_lock(&c->change_lock);
	c->changes++;
	pthread_cond_broadcast(&c->change_cond);
	pthread_mutex_unlock(&c->change_lock);
}

uint64_t core_wait_change(struct core *c, uint64_t seen, int timeout_ms)
{
	struct timespec until = deadline_ms(timeout_ms);
	uint64_t now;

	pthread_mutex_lock(&c->change_lock);
	while (c->changes == seen && !c->stopping &&
		cond_wait_until(&c->change_cond, &c->change_lock, &until))
		;
	now = c->changes;
	pthread_mutex_unlock(&c->change_lock);
	return now;
}

void core_stop_streams(struct core *c)
{
	pthread_mutex_lock(&c->change_lock);
	c->stopping = true;
	pthread_cond_broadcast(&c->change_cond);
	pthread_mutex_unlock(&c->change_lock);
	if (c->audit)
		audit_wake(c->audit);
}

bool core_stopping(struct core *c)
{
	bool stopping;

	pthread_mutex_lock(&c->change_lock);
	stopping = c->stopping;
	pthread_mutex_unlock(&c->change_lock);
	return stopping;
}

static bool label_matches(struct sandbox *s, const char *filter)
{
	const char *eq = strchr(filter, '=');
	char key[NAME_MAX_LEN + 1];
	const char *v;

	if ((size_t)(eq - filter) >= sizeof(key))
		return false;
	snprintf(key, sizeof(key), "%.*s", (int)(eq - filter), filter);
	v = map_get(&s->labels, key);
	return v && !strcmp(v, eq + 1);
}

static bool matches(struct sandbox *s, const char *const *labels, size_t n)
{
	bool all = true;

	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; i < n && all; i++)
		all = label_matches(s, labels[i]);
	pthread_mutex_unlock(&s->lock);
	return all;
}

int core_list(struct core *c, const char *const *labels, size_t nlabels, struct sandbox ***ret,
	size_t *ret_n, struct err *e)
{
	size_t n, kept = 0;

	for (size_t i = 0; i < nlabels; i++)
		if (!strchr(labels[i], '=') || labels[i][0] == '=')
			return err_set(e, ERR_INVALID_REQUEST, "label must be key=value");
	if (registry_all(&c->reg, ret, &n) < 0)
		return err_oom(e);
	for (size_t i = 0; i < n; i++) {
		if (matches((*ret)[i], labels, nlabels))
			(*ret)[kept++] = (*ret)[i];
		else
			sandbox_unref((*ret)[i]);
	}
	*ret_n = kept;
	return 0;
}
