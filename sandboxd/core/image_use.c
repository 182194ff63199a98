/* SPDX-License-Identifier: MIT */
/* Who needs an image, and the installs that they wait for. However many ask, a name has one
 * install; one with a login is its asker's alone, because what it fetches is not for others. */
#include "sandboxd/core/images_internal.h"

#include "common/base/log.h"
#include "common/sys/deadline.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "common/sys/thread.h"
#include "sandboxd/core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_MS 200 /* between two questions whether the asker has gone */

static void install_free(struct install *in)
{
	image_data_clear(in->core, &in->data);
	free(in->ref);
	free(in->known);
	free(in->login_registry);
	wipe_free(in->login_auth);
	free(in);
}

void install_unref(struct images *s, struct install *in)
{
	(void)s;
	if (--in->refs == 0)
		install_free(in);
}

static int copy_login(struct install *in, const struct registry_login_body *l, struct err *e)
{
	char *plain = NULL;
	int len;

	if (!l)
		return 0;
	len = asprintf(&plain, "%s:%s", l->username, l->password ? l->password : "");
	in->login_registry = strdup(l->registry);
	if (len >= 0)
		in->login_auth = base64_encode(plain, (size_t)len);
	if (len >= 0)
		wipe_free(plain);
	return in->login_registry && in->login_auth ? 0 : err_oom(e);
}

static struct install *install_new(struct images *s, const char *ref, const struct image *im,
	const struct registry_login_body *login, struct err *e)
{
	struct install *in = calloc(1, sizeof(*in));

	if (!in) {
		err_oom(e);
		return NULL;
	}
	in->core = s->core;
	in->archive_fd = -1;
	in->refs = 1;
	in->deadline_ms = clock_mono_ms() + IMAGE_INSTALL_MS;
	in->ref = strdup(ref);
	if (im && im->installed && im->data.digest)
		in->known = strdup(im->data.digest);
	in->known_local = im && im->installed && im->data.stamp.ino;
	if (in->ref && copy_login(in, login, e) == 0)
		return in;
	err_oom(e);
	install_free(in);
	return NULL;
}

/* --- the thread ------------------------------------------------------------------------------ */

/* Lock held. The table has what came of it, and whoever waits finds it there or in the install. */
static void settle(struct images *s, struct install *in)
{
	struct image *im = in->login_registry ? NULL : image_find(s, in->ref);

	if (!im || im->job != in)
		return;
	im->job = NULL;
	free(im->error);
	im->error = NULL;
	if (!in->err.code && !in->same) {
		image_data_clear(s->core, &im->data);
		im->data = in->data;
		im->installed = true;
		in->data = (struct image_data){ 0 };
	} else if (in->err.code && !im->installed && in->asked) {
		im->error = strdup(in->err.msg);
		im->failed_seq = ++s->failures;
	}
	install_unref(s, in);
	image_drop_empty(s, im);
}

static void remove_job(struct images *s, const struct install *in)
{
	for (size_t i = 0; i < s->njobs; i++)
		if (s->jobs[i] == in) {
			s->jobs[i] = s->jobs[--s->njobs];
			return;
		}
}

static void *install_thread(void *arg)
{
	struct install *in = arg;
	struct images *s = in->core->images;
	struct err e = ERR_NULL;
	int rc = install_run(in, &e);

	if (rc == 0 && !in->same && !in->login_registry) {
		fault_point("image-built");
		rc = image_save(in->core, in->ref, &in->data, &e);
		fault_point("image-recorded");
	}
	if (rc < 0)
		log_warn("an image could not be installed image=%.100s reason=\"%s\"", in->ref,
			e.msg);
	else
		log_info("an image is %s image=%.100s%s",
			in->login_registry ? "fetched for one sandbox" : "installed", in->ref,
			in->same ? ", nothing is new" : "");
	pthread_mutex_lock(&s->lock);
	in->over = true;
	if (rc < 0)
		in->err = e;
	settle(s, in);
	remove_job(s, in);
	install_unref(s, in);
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start(struct images *s, struct install *in, struct err *e)
{
	if (s->stop)
		return err_set(e, ERR_UNAVAILABLE, "the server is stopping");
	if (s->njobs == ARRAY_LEN(s->jobs))
		return err_set(e, ERR_UNAVAILABLE, "too many images are being installed");
	in->refs++;
	s->jobs[s->njobs++] = in;
	if (thread_detached(install_thread, in, 0) == 0)
		return 0;
	s->njobs--;
	in->refs--;
	return err_set(e, ERR_UNAVAILABLE, "no thread could be started");
}

int install_begin(struct images *s, const char *ref, const struct registry_login_body *login,
	struct install **ret, struct err *e)
{
	struct image *im = login ? image_find(s, ref) : image_get(s, ref);
	struct install *in;

	if (!login && !im)
		return err_oom(e);
	if (!login && im->job) {
		im->job->refs++;
		*ret = im->job;
		return 0;
	}
	in = install_new(s, ref, im, login, e);
	if (in && start(s, in, e) < 0) {
		install_unref(s, in);
		in = NULL;
	}
	if (in && !login) {
		im->job = in;
		in->refs++;
	}
	if (!in && !login)
		image_drop_empty(s, im);
	*ret = in;
	return in ? 0 : -1;
}

/* --- creates --------------------------------------------------------------------------------- */

/* Lock held. */
static void wait_a_little(struct images *s)
{
	(void)cond_wait_ms(&s->changed, &s->lock, LOOK_MS);
}

/* Lock held, let go while the asker is asked. */
static int wait_over(
	struct images *s, struct install *in, bool (*gone)(void *), void *arg, struct err *e)
{
	while (!in->over) {
		wait_a_little(s);
		if (in->over || !gone)
			continue;
		pthread_mutex_unlock(&s->lock);
		bool left = gone(arg);
		pthread_mutex_lock(&s->lock);
		if (!left)
			continue;
		if (in->login_registry)
			__atomic_store_n(&in->cancel, 1, __ATOMIC_RELEASE);
		return err_set(e, ERR_CONFLICT, "the create was cancelled");
	}
	if (!in->err.code)
		return 0;
	if (e)
		*e = in->err;
	return -1;
}

/* Lock held. What came of an install that went well: its own data, or the table's. */
static int take(struct images *s, const struct install *in, struct image_use *ret, struct err *e)
{
	const struct image *im;

	if (in->data.chain.n)
		return image_data_use(s->core, &in->data, ret, e);
	im = image_find(s, in->ref);
	if (im && im->installed)
		return image_data_use(s->core, &im->data, ret, e);
	return err_set(e, ERR_CONFLICT, "image \"%s\" was removed meanwhile", in->ref);
}

static bool same_stamp(const struct image_stamp *a, const struct image_stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

/* A backend without layers knows its images itself. */
static int use_backend(struct core *c, const char *ref, struct image_use *ret, struct err *e)
{
	struct backend_image img = { NULL };

	if (c->ops->image_ensure(c->backend, ref, &img, e) < 0)
		return -1;
	*ret = (struct image_use){ .env = img.env };
	return 0;
}

int images_use(struct core *c, const char *ref, const struct registry_login_body *login,
	bool (*gone)(void *), void *arg, struct image_use *ret, struct err *e)
{
	struct images *s = c->images;
	struct image_stamp stamp = { 0 };
	struct install *in = NULL;
	struct image *im;
	bool local;
	int rc;

	if (!c->ops->layer_import)
		return use_backend(c, ref, ret, e);
	local = image_local_find(s, ref, &stamp);
	if (local)
		login = NULL; /* nothing is fetched */
	pthread_mutex_lock(&s->lock);
	im = image_find(s, ref);
	if (!login && im && im->installed && (!local || same_stamp(&stamp, &im->data.stamp))) {
		rc = image_data_use(c, &im->data, ret, e);
	} else {
		rc = install_begin(s, ref, login, &in, e);
		if (rc == 0)
			rc = wait_over(s, in, gone, arg, e);
		if (rc == 0)
			rc = take(s, in, ret, e);
		if (in)
			install_unref(s, in);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}
