/* SPDX-License-Identifier: MIT */
/* Drafts of sandboxes, and who made which sandbox last. */
#include "sbxfs/draft.h"

#include "sbxfs/box.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAFTS_MAX 256

struct made {
	struct made *next;
	uid_t uid;
	char id[SBX_ID_MAX];
};
struct drafts {
	pthread_mutex_t lock;
	json_t *specs; /* name -> spec */
	struct made *made;
};

int drafts_new(struct drafts **ret)
{
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	(*ret)->specs = json_object();
	pthread_mutex_init(&(*ret)->lock, NULL);
	return 0;
}

void drafts_free(struct drafts *d)
{
	if (!d)
		return;
	while (d->made) {
		struct made *x = d->made;

		d->made = x->next;
		free(x);
	}
	json_decref(d->specs);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

bool draft_exists(struct mount *m, const char *name)
{
	bool is;

	pthread_mutex_lock(&m->drafts->lock);
	is = json_object_get(m->drafts->specs, name) != NULL;
	pthread_mutex_unlock(&m->drafts->lock);
	return is;
}

int draft_make(struct req *q, const char *name)
{
	struct drafts *d = q->m->drafts;
	int rc = 0;

	if (!name_ok(name))
		return refuse(q, EINVAL, "a sandbox name has a-z, 0-9 and -, at most 63: %s", name);
	pthread_mutex_lock(&d->lock);
	if (json_object_get(d->specs, name))
		rc = -EEXIST;
	else if (json_object_size(d->specs) >= DRAFTS_MAX ||
		json_object_set_new(d->specs, name, json_object()) < 0)
		rc = -ENOSPC;
	pthread_mutex_unlock(&d->lock);
	return rc;
}

int draft_drop(struct mount *m, const char *name)
{
	int rc;

	pthread_mutex_lock(&m->drafts->lock);
	rc = json_object_del(m->drafts->specs, name) < 0 ? -ENOENT : 0;
	pthread_mutex_unlock(&m->drafts->lock);
	return rc;
}

bool draft_nth(struct mount *m, size_t n, char *ret_name, size_t size)
{
	bool found = false;
	const char *key;
	json_t *v;

	pthread_mutex_lock(&m->drafts->lock);
	json_object_foreach (m->drafts->specs, key, v) {
		if (n-- == 0) {
			(void)snprintf(ret_name, size, "%s", key);
			found = true;
			break;
		}
	}
	pthread_mutex_unlock(&m->drafts->lock);
	return found;
}

json_t *draft_spec(struct mount *m, const char *name)
{
	json_t *copy = NULL, *v;

	pthread_mutex_lock(&m->drafts->lock);
	v = json_object_get(m->drafts->specs, name);
	if (v)
		copy = json_deep_copy(v);
	pthread_mutex_unlock(&m->drafts->lock);
	return copy;
}

int draft_edit(struct mount *m, const char *name, int (*fn)(json_t *spec, void *arg), void *arg)
{
	json_t *spec;
	int rc;

	pthread_mutex_lock(&m->drafts->lock);
	spec = json_object_get(m->drafts->specs, name);
	rc = spec ? fn(spec, arg) : -ESTALE;
	pthread_mutex_unlock(&m->drafts->lock);
	mount_touch(m);
	return rc;
}

static void created_set(struct mount *m, uid_t uid, const char *id)
{
	struct made *x;

	pthread_mutex_lock(&m->drafts->lock);
	for (x = m->drafts->made; x && x->uid != uid; x = x->next)
		;
	if (!x && (x = calloc(1, sizeof(*x)))) {
		x->uid = uid;
		x->next = m->drafts->made;
		m->drafts->made = x;
	}
	if (x)
		(void)snprintf(x->id, sizeof(x->id), "%s", id);
	pthread_mutex_unlock(&m->drafts->lock);
}

void created_get(struct mount *m, uid_t uid, char *out, size_t size)
{
	out[0] = '\0';
	pthread_mutex_lock(&m->drafts->lock);
	for (struct made *x = m->drafts->made; x; x = x->next)
		if (x->uid == uid)
			(void)snprintf(out, size, "%s", x->id);
	pthread_mutex_unlock(&m->drafts->lock);
}

int sandbox_make(struct req *q, json_t *spec)
{
	json_t *o = NULL;
	int rc;

	if (!spec) /* a request without one would make a sandbox all the same */
		return refuse(q, EINVAL, "UTF-8 text is needed");
	q->acts = true;
	rc = remote_json(q, "POST", sbx_path("/v1/sandboxes"), spec, &o);
	if (rc == 0)
		created_set(q->m, q->uid, box_id(o));
	json_decref(o);
	mount_touch(q->m);
	/* The contract's conflict of a create is the name. */
	return rc == -EBUSY && q->err.status == 409 ? -EEXIST : rc;
}
