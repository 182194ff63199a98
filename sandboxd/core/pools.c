/* SPDX-License-Identifier: MIT */
/* One thread a pool: it gets the image, tells the backend what to keep, and looks every second how
 * many there are. An image that is installed again under the same name gives a new shape, and the
 * backend drops what it had made of the old one. */
#include "sandboxd/core/pools.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/core_internal.h"
#include "sandboxd/core/images.h"

#include <string.h>

#define LOOK_MS      1000
#define IMAGE_MS     5000 /* how often the image is looked at again */
#define RETRY_MS     1000 /* after the first failure; doubled with each that follows */
#define RETRY_MAX_MS 300000

struct pool {
	struct pools *all;
	unsigned num;
	char *image;
	pthread_t thread;
	bool started;
	/* of its thread alone */
	struct image_use use;
	int64_t looked_ms; /* when the image was looked at last; 0: never */
	int64_t retry_ms;
	/* under lock */
	struct pool_figures now;
};
struct pools {
	struct core *c;
	bool egress;     /* the default network is one */
	json_t *network; /* the default one */
	struct pool *v;
	size_t n;
	pthread_mutex_t lock;
	pthread_cond_t stopped;
	bool stop; /* under lock */
};

static bool must_stop(void *arg)
{
	struct pools *ps = arg;
	bool stop;

	pthread_mutex_lock(&ps->lock);
	stop = ps->stop;
	pthread_mutex_unlock(&ps->lock);
	return stop;
}

static void note(struct pool *p, unsigned ready, unsigned making)
{
	pthread_mutex_lock(&p->all->lock);
	p->now.ready = ready;
	p->now.making = making;
	pthread_mutex_unlock(&p->all->lock);
}

static int tell(struct pool *p, const struct backend_chain *chain, struct err *e)
{
	struct core *c = p->all->c;
	const struct limits *l = &c->policy->limits;
	struct backend_spec shape = { .image = p->image,
		.chain = chain,
		.egress = p->all->egress,
		.memory_mb = l->default_memory_mb,
		.disk_mb = l->default_disk_mb };
	struct backend_pool now = { 0 };

	if (c->ops->pool(c->backend, p->num, &shape, p->now.target, &now, e) < 0)
		return -1;
	note(p, now.ready, now.making);
	return 0;
}

static bool same_chain(const struct backend_chain *a, const struct backend_chain *b)
{
	return a->n == b->n && !memcmp(a->layers, b->layers, a->n * sizeof(a->layers[0]));
}

/* The old layers are let go when the backend has heard of the new ones. */
static int look_at_image(struct pool *p, struct err *e)
{
	struct core *c = p->all->c;
	struct image_use use = { .env = NULL };

	if (p->looked_ms && clock_mono_ms() - p->looked_ms < IMAGE_MS)
		return 0;
	if (images_use(c, p->image, NULL, must_stop, p->all, &use, e) < 0)
		return -1;
	if (p->looked_ms && same_chain(&use.chain, &p->use.chain)) {
		image_use_free(c, &use);
	} else if (tell(p, &use.chain, e) < 0) {
		image_use_free(c, &use);
		return -1;
	} else {
		if (p->looked_ms)
			image_use_free(c, &p->use);
		p->use = use;
	}
	p->looked_ms = clock_mono_ms();
	return 0;
}

/* Returns how long to wait before the next look. */
static int64_t look(struct pool *p)
{
	struct err e = ERR_NULL;

	if (look_at_image(p, &e) == 0 && tell(p, &p->use.chain, &e) == 0) {
		p->retry_ms = 0;
		return LOOK_MS;
	}
	if (must_stop(p->all))
		return 0;
	p->retry_ms = p->retry_ms ? p->retry_ms * 2 : RETRY_MS;
	if (p->retry_ms > RETRY_MAX_MS)
		p->retry_ms = RETRY_MAX_MS;
	log_warn("a pool is not filled image=%s again_in_ms=%lld reason=\"%s\"", p->image,
		(long long)p->retry_ms, e.msg);
	return p->retry_ms;
}

/* True: it is over. */
static bool wait_for_stop(struct pools *ps, int64_t ms)
{
	struct timespec until = deadline_ms(ms);
	bool stop;

	pthread_mutex_lock(&ps->lock);
	while (!ps->stop && cond_wait_until(&ps->stopped, &ps->lock, &until))
		;
	stop = ps->stop;
	pthread_mutex_unlock(&ps->lock);
	return stop;
}

static void *keep(void *arg)
{
	struct pool *p = arg;

	while (!wait_for_stop(p->all, look(p)))
		;
	if (p->looked_ms)
		image_use_free(p->all->c, &p->use);
	return NULL;
}

/* --- opening --------------------------------------------------------------------------------- */

static int add(struct pools *ps, const struct policy_pool *from, struct err *e)
{
	struct core *c = ps->c;
	const char *image = from->image ? from->image : c->policy->default_image;
	struct pool *p = &ps->v[ps->n];

	for (size_t i = 0; i < ps->n; i++)
		if (!strcmp(ps->v[i].image, image))
			return err_set(e, ERR_INVALID_REQUEST,
				"pools: there are two for the image \"%s\"", image);
	*p = (struct pool){ .all = ps, .num = (unsigned)ps->n, .image = strdup(image) };
	if (!p->image)
		return err_oom(e);
	p->now = (struct pool_figures){ .image = p->image, .target = from->size };
	ps->n++;
	return 0;
}

static int take_default_network(struct pools *ps, struct err *e)
{
	struct net_policy net;

	if (net_policy_resolve(ps->c->policy, NULL, &net, e) < 0)
		return -1;
	ps->egress = net.mode != NET_NONE;
	ps->network = net_policy_json(&net);
	net_policy_free(&net);
	return ps->network ? 0 : err_oom(e);
}

static int fill(struct pools *ps, struct err *e)
{
	const struct server_policy *policy = ps->c->policy;

	if (policy->npools > BACKEND_POOLS_MAX)
		return err_set(
			e, ERR_INVALID_REQUEST, "policy: pools: at most %d", BACKEND_POOLS_MAX);
	ps->v = calloc(policy->npools + 1, sizeof(*ps->v));
	if (!ps->v)
		return err_oom(e);
	for (size_t i = 0; i < policy->npools; i++)
		if (add(ps, &policy->pools[i], e) < 0)
			return -1;
	return take_default_network(ps, e);
}

int pools_open(struct core *c, struct pools **ret, struct err *e)
{
	struct pools *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return err_oom(e);
	ps->c = c;
	pthread_mutex_init(&ps->lock, NULL);
	pthread_cond_init(&ps->stopped, NULL);
	if (fill(ps, e) < 0) {
		pools_close(ps);
		return -1;
	}
	*ret = ps;
	for (size_t i = 0; i < ps->n; i++)
		ps->v[i].started = pthread_create(&ps->v[i].thread, NULL, keep, &ps->v[i]) == 0;
	return 0;
}

void pools_close(struct pools *ps)
{
	if (!ps)
		return;
	pthread_mutex_lock(&ps->lock);
	ps->stop = true;
	pthread_cond_broadcast(&ps->stopped);
	pthread_mutex_unlock(&ps->lock);
	for (size_t i = 0; i < ps->n; i++) {
		if (ps->v[i].started)
			pthread_join(ps->v[i].thread, NULL);
		free(ps->v[i].image);
	}
	free(ps->v);
	json_decref(ps->network);
	pthread_cond_destroy(&ps->stopped);
	pthread_mutex_destroy(&ps->lock);
	free(ps);
}

/* --- asking ---------------------------------------------------------------------------------- */

static struct pool *of_image(struct core *c, const char *image)
{
	for (size_t i = 0; c->pools && i < c->pools->n; i++)
		if (!strcmp(c->pools->v[i].image, image))
			return &c->pools->v[i];
	return NULL;
}

bool pools_has_image(struct core *c, const char *image)
{
	return of_image(c, image) != NULL;
}

bool pools_fit(struct core *c, const struct sandbox *s)
{
	const struct limits *l = &c->policy->limits;
	json_t *network;
	bool same;

	if (!of_image(c, s->image) || s->nvolumes || s->cpus != l->default_cpus ||
		s->memory_mb != l->default_memory_mb || s->disk_mb != l->default_disk_mb)
		return false;
	network = net_policy_json(&s->network);
	same = json_equal(network, c->pools->network);
	json_decref(network);
	return same;
}

void pools_taken(struct core *c, const char *image)
{
	struct pool *p = of_image(c, image);

	if (!p)
		return;
	pthread_mutex_lock(&p->all->lock);
	if (p->now.ready > 0)
		p->now.ready--;
	pthread_mutex_unlock(&p->all->lock);
}

bool pools_figures(struct core *c, size_t i, struct pool_figures *ret)
{
	struct pools *ps = c->pools;

	if (!ps || i >= ps->n)
		return false;
	pthread_mutex_lock(&ps->lock);
	*ret = ps->v[i].now;
	pthread_mutex_unlock(&ps->lock);
	return true;
}

struct pool_figures pools_sum(struct core *c)
{
	struct pool_figures sum = { .image = NULL }, one;

	for (size_t i = 0; pools_figures(c, i, &one); i++) {
		sum.ready += one.ready;
		sum.making += one.making;
		sum.target += one.target;
	}
	return sum;
}

json_t *pools_json(struct core *c)
{
	struct pool_figures one;
	json_t *o = NULL;

	for (size_t i = 0; pools_figures(c, i, &one); i++) {
		if (!one.ready)
			continue;
		o = o ? o : json_object();
		json_object_set_new(o, one.image, json_integer(one.ready));
	}
	return o;
}
