/* SPDX-License-Identifier: MIT */
/* The tables and the walk through them. */
#include "sbxfs/nodes.h"

#include "sbxfs/box.h"
#include "sbxfs/nodes_fn.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct node nodes[N_COUNT] = {
#define HIDDEN NF_HIDDEN
#define BYUID NF_BYUID
#define MAYBE NF_MAYBE
#define N(i, par, nm, kd, md, cp, fl, ky, rd, ap, hp)                                              \
	[N_##i] = { .id = N_##i, .parent = N_##par, .name = (nm), .kind = KIND_##kd, .mode = (md), \
		.cap = CAP_##cp, .flags = (fl), .key = (ky), .read = (rd), .apply = (ap),          \
		.help = (hp) },
#include "sbxfs/nodes.def"
#undef N
#undef HIDDEN
#undef BYUID
#undef MAYBE
};

static const struct dir *const dirs[] = {
	&dir_root, &dir_new, &dir_by_id, &dir_by_label, &dir_label_key, &dir_label_value, &dir_ended,
	&dir_bin, &dir_processes, &dir_ended_processes, &dir_labels, &dir_draft_labels,
	&dir_snapshots, &dir_box_snaps, &dir_snap, &dir_images, &dir_volumes, &dir_ports,
};

const struct node *node_by_id(enum node_id id)
{
	return &nodes[id];
}

const struct dir *node_dir(enum node_id id)
{
	for (size_t n = 0; n < sizeof(dirs) / sizeof(dirs[0]); n++)
		if (dirs[n]->id == id)
			return dirs[n];
	return NULL;
}

/* Ended sandboxes show the same process directories as living ones. */
static bool is_child(const struct node *n, enum node_id dir)
{
	return n->parent == dir && n->name;
}

const struct node *node_child(struct req *q, const struct node *dir, const char *name)
{
	for (size_t n = 1; n < N_COUNT; n++)
		if (is_child(&nodes[n], dir->id) && !strcmp(nodes[n].name, name))
			return remote_has(q, nodes[n].cap) ? &nodes[n] : NULL;
	return NULL;
}

bool node_is_reserved(const char *name)
{
	for (size_t n = 1; n < N_COUNT; n++)
		if (is_child(&nodes[n], N_ROOT) && !strcmp(nodes[n].name, name))
			return true;
	/* Words of the product that this tree does not have yet: kept free for them. */
	static const char *const later[] = { "api", "templates", "gateway", "contexts", "sessions",
		"commands", "workspaces", "layers", "stack", "blame" };
	for (size_t n = 0; n < sizeof(later) / sizeof(later[0]); n++)
		if (!strcmp(later[n], name))
			return true;
	return false;
}

static void path_up(const struct spot *s, const struct node *n, struct text *t)
{
	if (n->id == N_ROOT || n->id == N_NONE)
		return;
	path_up(s, &nodes[n->parent], t);
	if (t->len)
		txt_str(t, "/");
	if (n->name)
		txt_str(t, n->name);
	else
		txt_safe(t, n->id == N_BOX || n->id == N_ENDED_BOX ? s->box : s->arg, 200);
}

void node_path(const struct spot *s, const char *name, char *out, size_t size)
{
	_cleanup_text_ struct text t = TEXT_NULL;

	path_up(s, s->node, &t);
	if (name) {
		if (t.len)
			txt_str(&t, "/");
		txt_safe(&t, name, 255);
	}
	(void)snprintf(out, size, "%s", t.len ? t.p : "/");
}

int found_set(struct found *f, enum node_id id, const char *box, const char *arg)
{
	if (strlen(box) >= sizeof(f->box) || strlen(arg) >= sizeof(f->arg))
		return -ENAMETOOLONG;
	f->node = &nodes[id];
	strcpy(f->box, box);
	strcpy(f->arg, arg);
	return 0;
}

/* Below a process or a draft the argument says which one; below a sandbox there is none. */
static int found_child(struct found *f, const struct spot *d, const struct node *n)
{
	return found_set(f, n->id, d->box, d->arg);
}

int node_find(struct req *q, const struct spot *d, const char *name, struct found *ret)
{
	const struct dir *dir = node_dir(d->node->id);
	const struct node *n = node_child(q, d->node, name);

	if (n)
		return found_child(ret, d, n);
	return dir && dir->find ? dir->find(q, d, name, ret) : -ENOENT;
}

static bool listed(struct req *q, const struct spot *d, const struct node *n)
{
	_cleanup_text_ struct text t = TEXT_NULL;
	struct spot s = { .node = n, .box = d->box, .arg = d->arg };

	if (!is_child(n, d->node->id) || (n->flags & NF_HIDDEN) || !remote_has(q, n->cap))
		return false;
	return !(n->flags & NF_MAYBE) || n->read(q, &s, &t) == 0;
}

int node_list(struct req *q, const struct spot *d, struct lister *l)
{
	const struct dir *dir = node_dir(d->node->id);
	json_t *o;
	int rc;

	if (d->node->id == N_BOX) {
		rc = box_live(q, d->box, &o);
		if (rc < 0)
			return rc;
		json_decref(o);
	}
	for (size_t n = 1; n < N_COUNT; n++)
		if (listed(q, d, &nodes[n]))
			lister_add(l, nodes[n].name, nodes[n].id, d->box);
	rc = dir && dir->list ? dir->list(q, d, l) : 0;
	if (rc == 0 && l->failed)
		rc = -ENOMEM;
	return rc;
}

bool file_name_ok(const char *name)
{
	return name[0] && strlen(name) <= 255 && !strchr(name, '/') && strcmp(name, ".") &&
		strcmp(name, "..");
}

void lister_add(struct lister *l, const char *name, enum node_id id, const char *box)
{
	struct listed *v;

	if (!file_name_ok(name) || l->failed)
		return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;

		v = realloc(l->v, cap * sizeof(*v));
		if (!v) {
			l->failed = true;
			return;
		}
		l->v = v;
		l->cap = cap;
	}
	v = &l->v[l->n];
	v->name = strdup(name);
	if (!v->name) {
		l->failed = true;
		return;
	}
	v->node = &nodes[id];
	(void)snprintf(v->box, sizeof(v->box), "%s", box);
	l->n++;
}

void lister_fini(struct lister *l)
{
	for (size_t n = 0; n < l->n; n++)
		free(l->v[n].name);
	free(l->v);
	*l = (struct lister){ 0 };
}
