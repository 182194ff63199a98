/* SPDX-License-Identifier: MIT */
/* Attributes and entries of the files that we make ourselves. */
#include "common/sys/fnv.h"
#include "sbxfs/belief.h"
#include "sbxfs/ops.h"
#include "sbxfs/remote.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define FOREVER 86400.0

struct spot inode_spot(const struct inode *i)
{
	return (struct spot){ .node = i->node, .box = i->box, .arg = i->arg };
}

static mode_t type_of(enum kind k)
{
	return k == KIND_DIR || k == KIND_TREE ? S_IFDIR : k == KIND_LINK ? S_IFLNK : S_IFREG;
}

/* The mount's group has the owner's rights, everyone else has none. */
static mode_t mode_of(const struct mount *m, const struct node *n)
{
	mode_t u = n->mode & 0700;

	if (n->kind == KIND_LINK)
		return 0777;
	return m->opt.has_gid ? u | u >> 3 : m->opt.allow_other || m->opt.owner == 0 ? u : n->mode;
}

void virtual_attr(struct req *q, const struct inode *i, struct stat *st)
{
	const struct mount *m = q->m;
	bool complete;
	uint64_t size;

	memset(st, 0, sizeof(*st));
	st->st_ino = i->ino;
	st->st_mode = type_of(i->node->kind) | mode_of(m, i->node);
	st->st_nlink = 1;
	st->st_uid = m->opt.owner;
	st->st_gid = m->opt.gid;
	st->st_size = (off_t)i->size;
	st->st_blksize = 4096;
	st->st_mtim = st->st_ctim = st->st_atim = i->mtime;
	if (i->node->kind == KIND_LOG && log_size(q, i, &size, &complete) == 0)
		st->st_size = (off_t)size;
	st->st_blocks = (st->st_size + 511) / 512;
}

static bool is_rendered(const struct node *n)
{
	switch (n->kind) {
	case KIND_DIR:
	case KIND_TREE:
	case KIND_LOG:
	case KIND_STREAM:
		return false;
	default:
		return n->read != NULL;
	}
}

int render(struct req *q, const struct spot *s, struct inode **ret)
{
	uid_t uid = s->node->flags & NF_BYUID ? q->uid : 0;
	uint64_t gen = mount_news(q->m);
	struct text t = TEXT_NULL;
	int rc;

	/* What differs by reader is cheap and about this very moment. */
	*ret = s->node->flags & NF_BYUID ? NULL :
					   inode_rendering(q->m, s->node, s->box, s->arg, uid);
	if (*ret)
		return 0;
	rc = s->node->read(q, s, &t);
	if (rc == 0 && t.failed)
		rc = -ENOMEM;
	if (rc < 0) {
		txt_fini(&t);
		return rc;
	}
	return inode_render(q->m, s->node, s->box, s->arg, uid, t.p, t.len, gen, ret);
}

/* How long the kernel may believe a name. What can be renamed or end is asked for each time. */
static double entry_secs(const struct node *n)
{
	return n->name && n->id != N_FS && !is_rendered(n) && !n->apply ? 1.0 : 0.0;
}

static double attr_secs(const struct node *n)
{
	if (is_rendered(n))
		return FOREVER;
	return n->kind == KIND_LOG ? 0.0 : 1.0;
}

int virtual_entry(struct req *q, const struct inode *dir, const char *name, struct inode **ret,
	struct fuse_entry_param *e)
{
	struct spot d = inode_spot(dir), s;
	struct doubt since = belief_now(q->m);
	struct found f;
	int rc;

	if (strlen(name) > 255)
		return -ENAMETOOLONG;
	rc = node_find(q, &d, name, &f);
	if (rc < 0)
		return rc;
	s = (struct spot){ .node = f.node, .box = f.box, .arg = f.arg };
	if (is_rendered(f.node))
		rc = render(q, &s, ret);
	else
		rc = inode_virtual(q->m, f.node, f.box, f.arg, 0, ret);
	/* What a write does may last for hours (run), or until a guest reads (stdin): nobody else shall wait for it. */
	if (rc == 0 && f.node->apply)
		rc = inode_alone(q->m, *ret, ret);
	if (rc < 0)
		return rc;
	memset(e, 0, sizeof(*e));
	virtual_attr(q, *ret, &e->attr);
	e->entry_timeout = f.node->id == N_BOX || f.node->id == N_FS ?
		belief_secs(q->m, dir, name, f.box, since) : entry_secs(f.node);
	e->attr_timeout = attr_secs(f.node);
	return 0;
}

void virtual_setattr(struct req *q, struct inode *i, const struct stat *st, int set)
{
	struct stat now;

	virtual_attr(q, i, &now);
	/* touch, cp -p and truncation by a shell succeed and mean nothing here. */
	if ((set & FUSE_SET_ATTR_MODE) && (st->st_mode & 07777) != (now.st_mode & 07777)) {
		req_fail(q, refuse(q, EPERM, "the mode of this file is fixed"));
		return;
	}
	if (((set & FUSE_SET_ATTR_UID) && st->st_uid != now.st_uid) ||
		((set & FUSE_SET_ATTR_GID) && st->st_gid != now.st_gid)) {
		req_fail(q, refuse(q, EPERM, "the owner of this file is fixed"));
		return;
	}
	if ((set & FUSE_SET_ATTR_SIZE) && !i->node->apply) {
		req_fail(q, refuse(q, EPERM, "this file cannot be written"));
		return;
	}
	fuse_reply_attr(q->fr, &now, attr_secs(i->node));
}

struct dirbuf {
	char *p;
	size_t len, size;
};

static mode_t listed_mode(const struct listed *v)
{
	return type_of(v->node->kind);
}

static uint64_t name_ino(const char *name)
{
	return (fnv64(FNV64, name, strlen(name)) >> 1) | 2;
}

/* Entry number n of the listing; 0 and 1 are the two that every directory has. */
static size_t add_entry(struct req *q, const struct handle *h, size_t n, struct dirbuf *b, bool plus)
{
	const struct listed *v = n < 2 ? NULL : &h->list.v[n - 2];
	const char *name = v ? v->name : n ? ".." : ".";
	struct fuse_entry_param e = { .ino = 0 };

	e.attr.st_mode = v ? listed_mode(v) : S_IFDIR;
	e.attr.st_ino = v ? name_ino(name) : h->inode->ino;
	if (plus)
		return fuse_add_direntry_plus(q->fr, b->p + b->len, b->size - b->len, name, &e,
			(off_t)n + 1);
	return fuse_add_direntry(q->fr, b->p + b->len, b->size - b->len, name, &e.attr, (off_t)n + 1);
}

void virtual_readdir(struct req *q, struct inode *i, size_t size, off_t off, struct handle *h,
	bool plus)
{
	struct dirbuf b = { .size = size };
	int rc = 0;

	pthread_mutex_lock(&h->lock);
	if (off == 0 || !h->listed) {
		struct spot d = inode_spot(i);

		lister_fini(&h->list);
		rc = node_list(q, &d, &h->list);
		h->listed = rc == 0;
	}
	b.p = rc == 0 ? malloc(size) : NULL;
	for (size_t n = (size_t)off; b.p && n < h->list.n + 2; n++) {
		size_t need = add_entry(q, h, n, &b, plus);

		if (need > b.size - b.len)
			break;
		b.len += need;
	}
	pthread_mutex_unlock(&h->lock);
	if (rc < 0)
		req_fail(q, rc);
	else if (!b.p)
		req_fail(q, -ENOMEM);
	else
		fuse_reply_buf(q->fr, b.p, b.len);
	free(b.p);
}
