/* SPDX-License-Identifier: MIT */
/* The table of images. A record is one row, written when everything that it
 * names is on the disk; so after a crash an image is there with all of its layers, or not at all.
 */
#include "sandboxd/core/images_internal.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"
#include "sandboxd/core/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAILED_KEPT 100 /* failed installs that stay listed; the eldest makes room */

/* --- data ------------------------------------------------------------------------------------ */

int image_data_use(struct core *c, const struct image_data *d, struct image_use *ret, struct err *e)
{
	if (image_env_copy(d->env, &ret->env) < 0)
		return err_oom(e);
	ret->chain = d->chain;
	layers_ref(c, &ret->chain);
	return 0;
}

void image_data_clear(struct core *c, struct image_data *d)
{
	layers_unref(c, &d->chain);
	free(d->digest);
	image_env_free(d->env);
	*d = (struct image_data){ 0 };
}

void image_use_free(struct core *c, struct image_use *u)
{
	layers_unref(c, &u->chain);
	u->chain.n = 0;
	image_env_free(u->env);
	u->env = NULL;
}

/* --- table ----------------------------------------------------------------------------------- */

struct image *image_find(struct images *s, const char *ref)
{
	struct image *im;

	HASH_FIND_STR(s->all, ref, im);
	return im;
}

struct image *image_get(struct images *s, const char *ref)
{
	struct image *im = image_find(s, ref);

	if (im)
		return im;
	im = calloc(1, sizeof(*im));
	if (!im || !(im->ref = strdup(ref))) {
		free(im);
		return NULL;
	}
	HASH_ADD_KEYPTR(hh, s->all, im->ref, strlen(im->ref), im);
	if (im->hh.tbl)
		return im;
	free(im->ref);
	free(im);
	return NULL;
}

void image_free(struct images *s, struct image *im)
{
	HASH_DEL(s->all, im);
	image_data_clear(s->core, &im->data);
	free(im->error);
	free(im->ref);
	free(im);
}

static void limit_failures(struct images *s)
{
	struct image *im, *tmp, *eldest = NULL;
	unsigned n = 0;

	HASH_ITER (hh, s->all, im, tmp) {
		if (im->installed || im->job || !im->error)
			continue;
		n++;
		if (!eldest || im->failed_seq < eldest->failed_seq)
			eldest = im;
	}
	if (n > FAILED_KEPT)
		image_free(s, eldest);
}

void image_drop_empty(struct images *s, struct image *im)
{
	if (!im->installed && !im->job && !im->error)
		image_free(s, im);
	else
		limit_failures(s);
}

/* --- records --------------------------------------------------------------------------------- */

static char *body_of(const struct image_data *d)
{
	_cleanup_json_ json_t *o = json_object();
	const struct image_stamp *st = &d->stamp;

	if (d->digest)
		json_object_set_new(o, "digest", json_string(d->digest));
	json_object_set_new(o, "bytes", json_integer(d->bytes));
	json_object_set_new(o, "installed_ns", json_integer(d->installed_ns));
	json_object_set_new(o, "chain", chain_json(&d->chain));
	json_object_set_new(o, "env", image_env_json(d->env));
	if (st->ino)
		json_object_set_new(o, "stamp",
			json_pack("[I,I,I,I]", (json_int_t)st->dev, (json_int_t)st->ino,
				(json_int_t)st->size, (json_int_t)st->mtime_ns));
	return json_text(o);
}

static int put_row(struct core *c, const char *ref, const char *body, struct err *e)
{
	struct store_row row = { "image", ref, body };
	uint64_t ticket = store_put_rows(c->store, &row, 1, true);

	return ticket ? store_wait(c->store, ticket, e) : err_oom(e);
}

int image_save(struct core *c, const char *ref, const struct image_data *d, struct err *e)
{
	_cleanup_free_ char *body = body_of(d);

	return body ? put_row(c, ref, body, e) : err_oom(e);
}

static int load_env(const json_t *a, char ***ret)
{
	if (image_env_load(a, ret) < 0)
		return -1;
	for (char **kv = *ret; kv && *kv; kv++)
		if (!strchr(*kv, '=')) {
			image_env_free(*ret);
			*ret = NULL;
			return -1;
		}
	return 0;
}

static void load_stamp(const json_t *a, struct image_stamp *ret)
{
	if (json_array_size(a) != 4)
		return;
	ret->dev = (uint64_t)json_integer_value(json_array_get(a, 0));
	ret->ino = (uint64_t)json_integer_value(json_array_get(a, 1));
	ret->size = (uint64_t)json_integer_value(json_array_get(a, 2));
	ret->mtime_ns = json_integer_value(json_array_get(a, 3));
}

static int load_data(struct core *c, const json_t *o, struct image_data *d)
{
	const char *digest = json_string_value(json_object_get(o, "digest"));

	d->digest = digest ? strdup(digest) : NULL;
	d->bytes = json_integer_value(json_object_get(o, "bytes"));
	d->installed_ns = json_integer_value(json_object_get(o, "installed_ns"));
	load_stamp(json_object_get(o, "stamp"), &d->stamp);
	if (chain_load(json_object_get(o, "chain"), &d->chain) < 0 || d->chain.n == 0 ||
		!layers_whole(c, &d->chain))
		return -1;
	return load_env(json_object_get(o, "env"), &d->env);
}

static int load_one(void *arg, const char *key, const char *body, struct err *e)
{
	struct images *s = arg;
	_cleanup_json_ json_t *o = json_loads(body, 0, NULL);
	struct image_data d = { 0 };
	struct image *im;

	if (!json_is_object(o) || load_data(s->core, o, &d) < 0) {
		log_warn("the record of an image cannot be used and is skipped image=%.100s", key);
		free(d.digest);
		image_env_free(d.env);
		return 0;
	}
	layers_ref(s->core, &d.chain);
	im = image_get(s, key);
	if (!im) {
		image_data_clear(s->core, &d);
		return err_oom(e);
	}
	im->data = d;
	im->installed = true;
	return 0;
}

/* --- open, close ----------------------------------------------------------------------------- */

int images_open(struct core *c, const struct images_conf *conf, struct images **ret, struct err *e)
{
	struct images *s = calloc(1, sizeof(*s));

	if (!s)
		return err_oom(e);
	s->core = c;
	s->state_dirfd = conf->state_dirfd;
	s->dirfd = conf->image_dir ? open(conf->image_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	s->dir = strdup(conf->image_dir_name ? conf->image_dir_name : "");
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (!s->dir)
		err_oom(e);
	else if (conf->pull_fd >= 0 && pull_new(conf->pull_fd, conf->state_dirfd, &s->pull, e) < 0)
		;
	else if (store_load_rows(c->store, "image", load_one, s, e) == 0) {
		*ret = s;
		return 0;
	}
	images_close(s);
	return -1;
}

/* Whatever waits for the backend or for sbx-pull is told to give up. False: nothing does any more.
 */
static bool cancel_all(struct images *s)
{
	struct timespec until;
	bool left;
	struct core *c = s->core;
	uint32_t nums[ARRAY_LEN(s->jobs)];
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	s->stop = true;
	for (size_t i = 0; i < s->njobs; i++) {
		__atomic_store_n(&s->jobs[i]->cancel, 1, __ATOMIC_RELEASE);
		if (s->jobs[i]->importing)
			nums[n++] = s->jobs[i]->importing;
	}
	pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < n; i++)
		(void)c->ops->layer_drop(c->backend, nums[i], NULL);
	until = deadline_ms(1000);
	pthread_mutex_lock(&s->lock);
	while (s->njobs > 0 && cond_wait_until(&s->changed, &s->lock, &until))
		;
	left = s->njobs > 0;
	pthread_mutex_unlock(&s->lock);
	return left;
}

void images_close(struct images *s)
{
	struct image *im, *tmp;

	if (!s)
		return;
	/* Again and again: one may have come between looking whether to stop and asking the
	 * backend. */
	while (cancel_all(s))
		;
	pull_free(s->pull);
	HASH_ITER (hh, s->all, im, tmp) {
		image_free(s, im);
	}
	close_p(&s->dirfd);
	free(s->dir);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool images_is_local(struct core *c, const char *ref)
{
	struct image_stamp stamp;

	return image_local_find(c->images, ref, &stamp);
}

bool images_can_pull(const struct core *c)
{
	return c->images && c->images->pull && c->ops->layer_import;
}
