/* SPDX-License-Identifier: MIT */
/* The table of snapshots and their records. A new one and the surplus that it pushes out are one
 * transaction, and after it one step under the lock: whoever counts finds the same number at all
 * times. Until then the new one is not in the table and those that leave are still shown. */
#include "sandboxd/core/snapshots_internal.h"

#include "common/base/log.h"
#include "common/sys/fault.h"
#include "common/sys/mem.h"
#include "sandboxd/core/clock.h"
#include "sandboxd/core/strs.h"

#include <string.h>

#define KIND "snapshot"

void snapshot_free(struct snapshot *p)
{
	if (!p)
		return;
	image_env_free(p->image_env);
	free(p->image);
	free(p);
}

/* --- records --------------------------------------------------------------------------------- */

static char *record(const struct snapshot *p)
{
	_cleanup_json_ json_t *o = json_object();

	json_object_set_new(o, "sandbox", json_string(p->sandbox));
	json_object_set_new(o, "image", json_string(p->image));
	json_object_set_new(o, "image_env", image_env_json(p->image_env));
	json_object_set_new(o, "chain", chain_json(&p->chain));
	json_object_set_new(o, "cpus", json_real(p->cpus));
	json_object_set_new(o, "memory_mb", json_integer(p->memory_mb));
	json_object_set_new(o, "disk_mb", json_integer(p->disk_mb));
	json_object_set_new(o, "scheduled", json_boolean(p->scheduled));
	json_object_set_new(o, "bytes", json_integer(p->bytes));
	json_object_set_new(o, "created_ns", json_integer(p->created_ns));
	return json_text(o);
}

static struct snapshot *load(const char *id, const json_t *o)
{
	const char *sandbox = json_string_value(json_object_get(o, "sandbox"));
	const char *image = json_string_value(json_object_get(o, "image"));
	struct snapshot *p = calloc(1, sizeof(*p));

	if (!p || !id_is_snapshot(id) || !sandbox || !id_is_sandbox(sandbox) || !image ||
		chain_load(json_object_get(o, "chain"), &p->chain) < 0 || !p->chain.n ||
		image_env_load(json_object_get(o, "image_env"), &p->image_env) < 0 ||
		!(p->image = strdup(image))) {
		snapshot_free(p);
		return NULL;
	}
	snprintf(p->id, sizeof(p->id), "%s", id);
	snprintf(p->sandbox, sizeof(p->sandbox), "%s", sandbox);
	p->cpus = json_number_value(json_object_get(o, "cpus"));
	p->memory_mb = json_integer_value(json_object_get(o, "memory_mb"));
	p->disk_mb = json_integer_value(json_object_get(o, "disk_mb"));
	p->scheduled = json_is_true(json_object_get(o, "scheduled"));
	p->bytes = json_integer_value(json_object_get(o, "bytes"));
	p->created_ns = json_integer_value(json_object_get(o, "created_ns"));
	return p;
}

static bool insert(struct snapshots *t, struct snapshot *p)
{
	HASH_ADD_STR(t->by_id, id, p);
	return p->hh.tbl != NULL;
}

static int load_one(void *arg, const char *key, const char *body, struct err *e)
{
	struct core *c = arg;
	_cleanup_json_ json_t *o = json_loads(body, 0, NULL);
	struct snapshot *p = load(key, o);

	(void)e;
	if (!p || !layers_whole(c, &p->chain) || !insert(c->snapshots, p)) {
		log_warn("a snapshot cannot be used and is not listed id=%.24s reason=\"%s\"", key,
			p ? "layers are missing" : "its record cannot be understood");
		snapshot_free(p);
		return 0;
	}
	layers_ref(c, &p->chain);
	return 0;
}

int snapshots_open(struct core *c, struct snapshots **ret, struct err *e)
{
	struct snapshots *t = calloc(1, sizeof(*t));

	if (!t)
		return err_oom(e);
	pthread_mutex_init(&t->lock, NULL);
	*ret = t;
	return store_load_rows(c->store, KIND, load_one, c, e);
}

void snapshots_close(struct snapshots *t)
{
	struct snapshot *p, *next;

	if (!t)
		return;
	HASH_ITER (hh, t->by_id, p, next) {
		HASH_DEL(t->by_id, p);
		snapshot_free(p);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* --- changes of the table -------------------------------------------------------------------- */

static bool newer(const struct snapshot *a, const struct snapshot *b)
{
	if (a->created_ns != b->created_ns)
		return a->created_ns > b->created_ns;
	return strcmp(a->id, b->id) > 0;
}

static int newest_first(const struct snapshot *a, const struct snapshot *b)
{
	return newer(a, b) ? -1 : 1;
}

/* What comes and what goes in one transaction. */
struct change {
	struct snapshot *comes; /* NULL: nothing */
	struct snapshot **go;
	size_t n;
};

/* Lock held. Of the scheduled ones of this sandbox all but the newest `keep` are marked. */
static int mark_surplus(
	struct snapshots *t, const char *sandbox, int64_t keep, struct change *ch, struct err *e)
{
	struct snapshot *p, *next;
	int64_t seen = ch->comes ? 1 : 0;

	ch->go = calloc(HASH_COUNT(t->by_id) + 1, sizeof(*ch->go));
	if (!ch->go)
		return err_oom(e);
	HASH_SRT(hh, t->by_id, newest_first);
	HASH_ITER (hh, t->by_id, p, next) {
		if (!p->scheduled || p->leaving || strcmp(p->sandbox, sandbox) || ++seen <= keep)
			continue;
		p->leaving = true;
		ch->go[ch->n++] = p;
	}
	return 0;
}

static uint64_t put_rows(struct core *c, const struct change *ch)
{
	_cleanup_free_ struct store_row *rows = calloc(ch->n + 1, sizeof(*rows));
	_cleanup_free_ char *body = ch->comes ? record(ch->comes) : NULL;
	size_t n = 0;

	if (!rows || (ch->comes && !body))
		return 0;
	if (ch->comes)
		rows[n++] = (struct store_row){ KIND, ch->comes->id, body };
	for (size_t i = 0; i < ch->n; i++)
		rows[n++] = (struct store_row){ KIND, ch->go[i]->id, NULL };
	return store_put_rows(c->store, rows, n, true);
}

static void log_created(struct core *c, const struct snapshot *p)
{
	json_t *o = json_pack("{s:s}", "snapshot", p->id);

	if (p->bytes)
		json_object_set_new(o, "bytes", json_integer(p->bytes));
	audit_event(c->audit, "snapshot.created", p->sandbox, o);
}

static void log_deleted(struct core *c, const struct snapshot *p, const char *reason)
{
	audit_event(c->audit, "snapshot.deleted", p->sandbox,
		json_pack("{s:s,s:s}", "snapshot", p->id, "reason", reason));
}

/* The transaction is on the disk: now everybody sees it. The log comes first, so that whoever finds
 * a snapshot finds its event. */
static void show_change(struct core *c, struct change *ch, const char *reason)
{
	struct snapshots *t = c->snapshots;

	pthread_mutex_lock(&t->lock);
	if (ch->comes) {
		log_created(c, ch->comes);
		if (!insert(t, ch->comes))
			log_error("no memory to list a snapshot before the next start");
	}
	for (size_t i = 0; i < ch->n; i++) {
		log_deleted(c, ch->go[i], reason);
		HASH_DEL(t->by_id, ch->go[i]);
	}
	pthread_mutex_unlock(&t->lock);
	for (size_t i = 0; i < ch->n; i++) {
		layers_unref(c, &ch->go[i]->chain);
		snapshot_free(ch->go[i]);
	}
}

/* Takes what is in the change. */
static int commit(
	struct core *c, struct change *ch, uint64_t ticket, const char *reason, struct err *e)
{
	struct snapshots *t = c->snapshots;
	int rc = store_wait(c->store, ticket, e);

	if (rc == 0) {
		fault_point("snapshot-recorded");
		show_change(c, ch, reason);
	} else {
		pthread_mutex_lock(&t->lock);
		for (size_t i = 0; i < ch->n; i++)
			ch->go[i]->leaving = false;
		pthread_mutex_unlock(&t->lock);
	}
	free(ch->go);
	return rc;
}

int snapshots_add(struct core *c, struct snapshot *p, int64_t keep, struct err *e)
{
	struct snapshots *t = c->snapshots;
	struct change ch = { .comes = p };
	uint64_t ticket = 0;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	if (keep > 0)
		rc = mark_surplus(t, p->sandbox, keep, &ch, e);
	if (rc == 0)
		ticket = put_rows(c, &ch);
	pthread_mutex_unlock(&t->lock);
	return rc < 0 ? -1 : commit(c, &ch, ticket, "retention", e);
}

int snapshots_prune(struct core *c, const char *sandbox, int64_t keep, struct err *e)
{
	struct snapshots *t = c->snapshots;
	struct change ch = { .comes = NULL };
	uint64_t ticket = 0;
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = mark_surplus(t, sandbox, keep, &ch, e);
	if (rc == 0 && ch.n)
		ticket = put_rows(c, &ch);
	pthread_mutex_unlock(&t->lock);
	if (rc == 0 && ch.n)
		return commit(c, &ch, ticket, "retention", e);
	free(ch.go);
	return rc;
}

/* Lock held. */
static struct snapshot *find(struct snapshots *t, const char *id)
{
	struct snapshot *p;

	HASH_FIND_STR(t->by_id, id, p);
	return p && !p->leaving ? p : NULL;
}

int snapshot_delete(struct core *c, const char *id, struct err *e)
{
	struct snapshots *t = c->snapshots;
	struct change ch = { .comes = NULL };
	struct snapshot *p;
	uint64_t ticket = 0;

	ch.go = calloc(1, sizeof(*ch.go));
	if (!ch.go)
		return err_oom(e);
	pthread_mutex_lock(&t->lock);
	p = find(t, id);
	if (p) {
		p->leaving = true;
		ch.go[ch.n++] = p;
		ticket = put_rows(c, &ch);
	}
	pthread_mutex_unlock(&t->lock);
	if (p)
		return commit(c, &ch, ticket, "request", e);
	free(ch.go);
	return err_set(e, ERR_NOT_FOUND, "no such snapshot");
}

void snapshots_forget(struct core *c)
{
	struct snapshots *t = c->snapshots;
	struct change ch = { .comes = NULL };
	struct snapshot *p, *next;

	ch.go = calloc(HASH_COUNT(t->by_id) + 1, sizeof(*ch.go));
	if (!ch.go)
		return; /* the next start does it */
	HASH_ITER (hh, t->by_id, p, next)
		ch.go[ch.n++] = p;
	if (ch.n && put_rows(c, &ch))
		log_info("snapshots go with the sandboxes that are not kept n=%zu", ch.n);
	for (size_t i = 0; i < ch.n; i++) {
		HASH_DEL(t->by_id, ch.go[i]);
		layers_unref(c, &ch.go[i]->chain);
		snapshot_free(ch.go[i]);
	}
	free(ch.go);
}

/* --- what is read ---------------------------------------------------------------------------- */

json_t *snapshot_json(const struct snapshot *p)
{
	json_t *o = json_object();
	char text[CLOCK_TEXT_LEN];

	clock_text(p->created_ns, text);
	json_object_set_new(o, "id", json_string(p->id));
	json_object_set_new(o, "sandbox", json_string(p->sandbox));
	json_object_set_new(o, "image", json_string(p->image));
	json_object_set_new(o, "kind", json_string("disk"));
	if (p->scheduled)
		json_object_set_new(o, "scheduled", json_true());
	json_object_set_new(o, "bytes", json_integer(p->bytes));
	json_object_set_new(o, "created_at", json_string(text));
	return o;
}

json_t *snapshots_json(struct core *c)
{
	struct snapshots *t = c->snapshots;
	struct snapshot *p, *next;
	json_t *a = json_array();

	pthread_mutex_lock(&t->lock);
	HASH_SRT(hh, t->by_id, newest_first);
	HASH_ITER (hh, t->by_id, p, next)
		json_array_append_new(a, snapshot_json(p));
	pthread_mutex_unlock(&t->lock);
	return a;
}

static int copy_use(const struct snapshot *p, struct snapshot_use *ret)
{
	*ret = (struct snapshot_use){
		.chain = p->chain, .cpus = p->cpus, .memory_mb = p->memory_mb, .disk_mb = p->disk_mb
	};
	memcpy(ret->id, p->id, sizeof(ret->id));
	ret->image = strdup(p->image);
	if (ret->image && image_env_copy(p->image_env, &ret->image_env) == 0)
		return 0;
	free(ret->image);
	ret->image = NULL;
	return -1;
}

int snapshot_use(struct core *c, const char *id, struct snapshot_use *ret, struct err *e)
{
	struct snapshots *t = c->snapshots;
	const struct snapshot *p;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	p = find(t, id);
	if (!p)
		rc = err_set(e, ERR_NOT_FOUND, "no such snapshot");
	else if (copy_use(p, ret) < 0)
		rc = err_oom(e);
	else
		layers_ref(c, &ret->chain); /* before anybody can delete it */
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void snapshot_use_free(struct core *c, struct snapshot_use *u)
{
	if (!u->image)
		return;
	layers_unref(c, &u->chain);
	image_env_free(u->image_env);
	free(u->image);
	u->image = NULL;
}
