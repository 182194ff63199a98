/* SPDX-License-Identifier: MIT */
/* What the API shows of images, and what it asks for. Users are counted from the sandboxes there
 * are, by the text of the name. */
#include "sandboxd/core/images_internal.h"

#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/strs.h"

#include <stdlib.h>
#include <string.h>

/* Images of live sandboxes, once for each of them. */
static void used_images(struct core *c, struct strlist *ret)
{
	struct sandbox **all;
	size_t n;

	*ret = (struct strlist){ NULL, 0 };
	if (registry_all(&c->reg, &all, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		pthread_mutex_lock(&all[i]->lock);
		if (all[i]->state != SBX_TERMINATED)
			(void)strs_add(ret, all[i]->image);
		pthread_mutex_unlock(&all[i]->lock);
		sandbox_unref(all[i]);
	}
	free(all);
}

static int64_t count_uses(const struct strlist *used, const char *ref)
{
	int64_t n = 0;

	for (size_t i = 0; i < used->n; i++)
		n += strcmp(used->v[i], ref) == 0;
	return n;
}

static bool is_pooled(const struct core *c, const char *ref)
{
	for (size_t i = 0; i < c->policy->npools; i++) {
		const char *image = c->policy->pools[i].image;
		if (!strcmp(image ? image : c->policy->default_image, ref))
			return true;
	}
	return false;
}

static bool is_default(const struct core *c, const char *ref)
{
	return strcmp(c->policy->default_image, ref) == 0;
}

static void put_data(json_t *o, const struct image_data *d)
{
	char text[CLOCK_TEXT_LEN];

	if (d->digest)
		json_object_set_new(o, "digest", json_string(d->digest));
	json_object_set_new(o, "bytes", json_integer(d->bytes));
	clock_text(d->installed_ns, text);
	json_object_set_new(o, "installed_at", json_string(text));
}

static json_t *progress_json(const struct install *in)
{
	static const char *const words[] = { "pulling", "building" };
	int64_t total = __atomic_load_n(&in->total, __ATOMIC_RELAXED);
	int64_t done = __atomic_load_n(&in->done, __ATOMIC_RELAXED);
	json_t *o = json_object();
	off_t at = in->archive_fd >= 0 ? lseek(in->archive_fd, 0, SEEK_CUR) : 0;

	done += at > 0 ? at : 0;
	json_object_set_new(
		o, "phase", json_string(words[__atomic_load_n(&in->phase, __ATOMIC_RELAXED)]));
	if (total > 0) {
		json_object_set_new(o, "done", json_integer(done < total ? done : total));
		json_object_set_new(o, "total", json_integer(total));
	}
	return o;
}

/* im NULL: only a live sandbox knows of it, whose create had a login. */
static json_t *image_json(
	const struct core *c, const struct image *im, const char *ref, int64_t in_use)
{
	const char *state = im && im->job                        ? "installing"
			    : !im || im->installed || in_use > 0 ? "installed"
								 : "failed";
	json_t *o = json_object();

	json_object_set_new(o, "image", json_string(ref));
	json_object_set_new(o, "state", json_string(state));
	if (im && im->installed)
		put_data(o, &im->data);
	json_object_set_new(o, "in_use", json_integer(in_use));
	if (is_default(c, ref))
		json_object_set_new(o, "default", json_true());
	if (is_pooled(c, ref))
		json_object_set_new(o, "pooled", json_true());
	if (im && im->job)
		json_object_set_new(o, "progress", progress_json(im->job));
	if (!strcmp(state, "failed") && im->error)
		json_object_set_new(o, "error", json_string(im->error));
	return o;
}

json_t *images_json(struct core *c)
{
	struct images *s = c->images;
	json_t *list = json_array();
	struct strlist used, names = { NULL, 0 };
	struct image *im, *tmp;

	used_images(c, &used);
	(void)strs_copy(&used, &names);
	pthread_mutex_lock(&s->lock);
	HASH_ITER (hh, s->all, im, tmp) {
		(void)strs_add(&names, im->ref);
	}
	strs_sort_unique(&names);
	for (size_t i = 0; i < names.n; i++)
		json_array_append_new(list, image_json(c, image_find(s, names.v[i]), names.v[i],
						    count_uses(&used, names.v[i])));
	pthread_mutex_unlock(&s->lock);
	strs_free(&names);
	strs_free(&used);
	return json_pack("{s:o}", "images", list);
}

json_t *images_ready_json(struct core *c)
{
	struct images *s = c->images;
	struct strlist names = { NULL, 0 };
	json_t *a = json_array();
	struct image *im, *tmp;

	pthread_mutex_lock(&s->lock);
	HASH_ITER (hh, s->all, im, tmp) {
		if (im->installed)
			(void)strs_add(&names, im->ref);
	}
	pthread_mutex_unlock(&s->lock);
	strs_sort_unique(&names);
	for (size_t i = 0; i < names.n; i++)
		json_array_append_new(a, json_string(names.v[i]));
	strs_free(&names);
	return a;
}

bool images_is_ready(struct core *c, const char *ref)
{
	struct image *im;
	bool ready;

	pthread_mutex_lock(&c->images->lock);
	im = image_find(c->images, ref);
	ready = im && im->installed;
	pthread_mutex_unlock(&c->images->lock);
	return ready;
}

/* --- requests -------------------------------------------------------------------------------- */

static int check_ref(const char *ref, struct err *e)
{
	if (!ref || !image_ref_ok(ref))
		return err_set(e, ERR_INVALID_REQUEST, "image is not an image reference");
	return 0;
}

int images_install(struct core *c, const char *ref, json_t **ret, struct err *e)
{
	struct images *s = c->images;
	struct install *in;
	struct strlist used;
	int rc;

	if (check_ref(ref, e) < 0)
		return -1;
	if (c->policy->has_images && !strs_has(&c->policy->images, ref))
		return err_set(e, ERR_REFUSED, "image \"%s\" is not on this server's list", ref);
	used_images(c, &used);
	pthread_mutex_lock(&s->lock);
	rc = install_begin(s, ref, NULL, &in, e);
	if (rc == 0) {
		in->asked = true;
		*ret = image_json(c, image_find(s, ref), ref, count_uses(&used, ref));
		install_unref(s, in);
	}
	pthread_mutex_unlock(&s->lock);
	strs_free(&used);
	return rc;
}

/* Lock held. What speaks against it. */
static int check_remove(const struct core *c, const struct image *im, const char *ref,
	int64_t in_use, struct err *e)
{
	if (is_default(c, ref))
		return err_set(e, ERR_CONFLICT, "image \"%s\" is this server's default", ref);
	if (is_pooled(c, ref))
		return err_set(e, ERR_CONFLICT, "image \"%s\" is kept ready by a pool", ref);
	if (in_use > 0)
		return err_set(e, ERR_CONFLICT, "image \"%s\" is in use by %lld sandboxes", ref,
			(long long)in_use);
	if (im && im->job)
		return err_set(e, ERR_CONFLICT, "image \"%s\" is being installed", ref);
	if (!im)
		return err_set(e, ERR_NOT_FOUND, "image \"%s\" is not installed", ref);
	return 0;
}

/* Lock held. Out of the table; *ticket of the removal of its record, 0: it had none. */
static int take_out(struct images *s, struct image *im, int64_t *freed, uint64_t *ticket)
{
	struct store_row row = { "image", im->ref, NULL };

	*ticket = 0;
	*freed = 0;
	if (im->installed) {
		*ticket = store_put_rows(s->core->store, &row, 1, true);
		if (!*ticket)
			return -1;
		*freed = layers_freeable(s->core, &im->data.chain);
	}
	return 0;
}

int images_remove(struct core *c, const char *ref, json_t **ret, struct err *e)
{
	struct images *s = c->images;
	struct backend_chain chain = { .n = 0 };
	struct strlist used;
	uint64_t ticket = 0;
	int64_t freed = 0;
	struct image *im;
	int rc;

	if (check_ref(ref, e) < 0)
		return -1;
	used_images(c, &used);
	pthread_mutex_lock(&s->lock);
	im = image_find(s, ref);
	rc = check_remove(c, im, ref, count_uses(&used, ref), e);
	if (rc == 0 && take_out(s, im, &freed, &ticket) < 0)
		rc = err_oom(e);
	if (rc == 0) {
		chain = im->data.chain; /* kept until the record is gone */
		layers_ref(c, &chain);
		image_free(s, im);
	}
	pthread_mutex_unlock(&s->lock);
	strs_free(&used);
	if (rc == 0 && ticket)
		rc = store_wait(c->store, ticket, e);
	layers_unref(c, &chain);
	if (rc == 0)
		*ret = json_pack("{s:s,s:I}", "image", ref, "freed_bytes", (json_int_t)freed);
	return rc;
}
