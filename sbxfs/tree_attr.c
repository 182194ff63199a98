/* SPDX-License-Identifier: MIT */
/* Names and attributes of guest objects. A lookup asks the server; only directories on the way to
 * something are believed for a tenth of a second, and attributes for the moment between the two
 * requests that the kernel makes for one stat. */
#include "sbxfs/listing.h"
#include "sbxfs/remote.h"
#include "sbxfs/treefs.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ATTR_MS 10
#define LISTING_MAX 4000 /* a larger directory is not fetched for the sake of lookups */

bool tree_is(const struct inode *i)
{
	return i->node->kind == KIND_TREE;
}

bool tree_is_view(const struct inode *i)
{
	return i->node->id == N_SNAP_FS || i->node->id == N_SNAP_OBJECT;
}

int tree_path(struct req *q, struct inode *i, const char *name, char out[FS_PATH_MAX])
{
	if (name && strlen(name) > 255)
		return -ENAMETOOLONG;
	return link_path(q->m, i, name, out, FS_PATH_MAX);
}

void tree_changed(struct req *q, struct inode *i)
{
	atomic_fetch_add(&q->m->tree_changes, 1);
	pthread_mutex_lock(&i->tree_lock);
	i->is_known = false;
	i->changes++;
	i->changed_ms = now_ms();
	i->contents++;
	i->version[0] = '\0';
	pthread_mutex_unlock(&i->tree_lock);
}

unsigned tree_changes_of(struct inode *i)
{
	unsigned n;

	pthread_mutex_lock(&i->tree_lock);
	n = i->changes;
	pthread_mutex_unlock(&i->tree_lock);
	return n;
}

/* What we know and may answer from: from a moment ago, or because changes are told. *secs: how long
 * the kernel may believe it. */
static bool known(struct req *q, struct inode *i, uint64_t ms, struct stat *ret, double *secs)
{
	struct tree_stamp s;
	bool is, young;

	pthread_mutex_lock(&i->tree_lock);
	is = i->is_known;
	young = now_ms() - i->attr_ms <= ms && i->attr_gen == atomic_load(&q->m->gen) &&
		q->m->opt.cache != CACHE_STRICT;
	s = (struct tree_stamp){ i->known_epoch, i->known_asked, i->known_seen };
	*ret = i->known;
	pthread_mutex_unlock(&i->tree_lock);
	*secs = q->m->opt.cache == CACHE_STRICT ? 0 : TREE_ATTR_SECS;
	if (is && trust_known(q, i, &s, S_ISDIR(ret->st_mode)))
		*secs = TRUST_SECS;
	else if (!young)
		is = false;
	if (is)
		atomic_fetch_add(&q->m->stats.cache_hits, 1);
	return is;
}

void tree_shown(struct req *q, struct inode *i, struct tree_attr *a)
{
	char text[GUEST_PATH_MAX * 2];

	/* lstat tells the length of what readlink gives. */
	if (a->target && link_text(q->m->opt.links, link_climb(q->m, i).depth, a->target, text,
				 sizeof(text)) == 0)
		a->st.st_size = (off_t)strlen(text);
	pthread_mutex_lock(&i->tree_lock);
	i->known = a->st;
	i->is_known = true;
	i->attr_ms = a->at_ms ? a->at_ms : now_ms();
	i->attr_gen = atomic_load(&q->m->gen);
	i->known_epoch = a->stamp.epoch;
	i->known_asked = a->stamp.asked;
	i->known_seen = a->stamp.seen;
	pthread_mutex_unlock(&i->tree_lock);
}

void tree_watched(struct mount *m, struct inode *i, struct tree_attr *a, unsigned changes)
{
	struct req q = { .m = m };

	if (!i->is_tree || !S_ISDIR(a->st.st_mode) || !inode_is(m, i, &a->id, true) ||
		changes != tree_changes_of(i))
		return;
	tree_shown(&q, i, a);
	(void)trust_attr(&q, i, a);
}

/* A directory of the image is born again when the first change in it copies it to the sandbox's own
 * layer: the number stays, the generation does not. Under the name it had it is the same one, or a
 * shell that stands in it would stand in nothing. */
static bool still_is(struct req *q, struct inode *i, const struct tree_attr *a)
{
	bool dir;

	pthread_mutex_lock(&i->tree_lock);
	dir = S_ISDIR(i->known.st_mode) && S_ISDIR(a->st.st_mode);
	pthread_mutex_unlock(&i->tree_lock);
	return inode_is(q->m, i, &a->id, dir);
}

/* Before a name is looked up anew, so that its directory keeps its inode. */
static void carry_over(struct req *q, struct inode *dir, const char *name, const struct tree_attr *a)
{
	struct inode *i = S_ISDIR(a->st.st_mode) ? link_find(q->m, dir, name) : NULL;

	if (i && i->is_tree)
		still_is(q, i, a);
	inode_unref(q->m, i);
}

/* Its name is gone or another's, but it is open, and what came with the open is all of it. A status is
 * not of the sandbox's file system: then the sandbox itself may be gone. */
static int orphan(struct req *q, struct inode *i, struct tree_attr *ret, int rc)
{
	bool is;

	pthread_mutex_lock(&i->tree_lock);
	is = i->files && !tree_has_handle(i->files) && S_ISREG(i->known.st_mode) && !q->err.status;
	if (is) {
		memset(ret, 0, sizeof(*ret));
		ret->st = i->known;
		ret->st.st_nlink = 0;
		memset(&q->err, 0, sizeof(q->err));
	}
	pthread_mutex_unlock(&i->tree_lock);
	return is ? 0 : rc;
}

bool tree_gone(struct inode *i, struct tree_attr *ret)
{
	bool gone;

	pthread_mutex_lock(&i->tree_lock);
	gone = i->gone;
	if (gone && ret) {
		*ret = (struct tree_attr){ .st = i->known, .id = i->tid };
		ret->st.st_nlink = 0;
	}
	pthread_mutex_unlock(&i->tree_lock);
	return gone;
}

/* By its name: -ENOENT, -ESTALE when that is gone or another's. */
static int get_named(struct req *q, struct inode *i, struct tree_attr *ret)
{
	char path[FS_PATH_MAX];
	int rc = tree_path(q, i, NULL, path);

	if (rc == 0)
		rc = wire_stat(q, i->box, path, ret);
	if (rc == 0 && i->is_tree && !still_is(q, i, ret)) {
		tree_attr_fini(ret);
		rc = -ESTALE;
	}
	return rc;
}

int tree_get(struct req *q, struct inode *i, struct tree_attr *ret)
{
	char handle[24];
	int rc;

	if (tree_gone(i, ret))
		return 0;
	/* An open file is what it is, whatever became of its name. */
	if (tree_any_handle(i, false, handle)) {
		rc = wire_fstat(q, i->box, handle, ret);
		if (rc != -ESTALE)
			return rc;
	}
	rc = get_named(q, i, ret);
	/* -ESTALE: the kernel looks the name up anew */
	return rc == -ENOENT || rc == -ESTALE ? orphan(q, i, ret, -ESTALE) : rc;
}

static const struct node *object_node(const struct inode *dir)
{
	return node_by_id(tree_is_view(dir) ? N_SNAP_OBJECT : N_FS_OBJECT);
}

int tree_inode(struct req *q, struct inode *dir, const char *name, struct tree_attr *a, double secs,
	struct inode **ret, struct fuse_entry_param *e)
{
	int rc;

	carry_over(q, dir, name, a);
	rc = inode_tree(q->m, object_node(dir), dir->box, &a->id, ret);
	if (rc < 0)
		return rc;
	rc = link_add(q->m, dir, name, *ret);
	if (rc < 0) {
		inode_unref(q->m, *ret);
		return rc;
	}
	if (rc > 0 && q->fr) /* who is answered; what is fetched ahead moves nothing */
		link_settles(q->m);
	if (atomic_load(&(*ret)->nfiles))
		a->at_ms = 1; /* it may have been written to since this was asked for */
	tree_shown(q, *ret, a);
	pthread_mutex_lock(&(*ret)->tree_lock);
	(*ret)->gone = false; /* a file system without times of birth gives its number to another */
	pthread_mutex_unlock(&(*ret)->tree_lock);
	memset(e, 0, sizeof(*e));
	e->attr = a->st;
	e->attr_timeout = secs;
	e->entry_timeout = secs > TREE_ATTR_SECS ? secs : 0;
	return 0;
}

static void reply_for(struct req *q, struct inode *dir, const char *name, struct tree_attr *a, double secs)
{
	struct fuse_entry_param e;
	struct inode *i;
	int rc = tree_inode(q, dir, name, a, secs, &i, &e);

	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	trust_entry(q, dir, name, i, a, &e);
	link_told(q, dir, name, i);
	reply_entry(q, i, &e);
}

void tree_reply(struct req *q, struct inode *dir, const char *name, struct tree_attr *a)
{
	reply_for(q, dir, name, a, TREE_ATTR_SECS);
}

/* There is no such name, and that may be believed for so long. */
static void reply_absent(struct req *q, double secs)
{
	struct fuse_entry_param e = { .entry_timeout = secs };

	if (secs > 0)
		fuse_reply_entry(q->fr, &e);
	else
		req_fail(q, -ENOENT);
}

static void answer_listed(struct req *q, struct inode *dir, const char *name,
	const struct listed_file *f, struct listing *l, double secs)
{
	struct tree_attr a = listing_attr(l, f); /* the answer keeps no target */

	atomic_fetch_add(&l->hits, 1);
	atomic_fetch_add(&q->m->stats.cache_hits, 1);
	reply_for(q, dir, name, &a, secs);
}

bool tree_known_better(struct req *q, struct inode *dir, const struct listed_file *f, const struct listing *l)
{
	struct inode *i = inode_tree_known(q->m, object_node(dir), dir->box, &f->id);
	bool better;

	if (!i)
		return false;
	pthread_mutex_lock(&i->tree_lock);
	better = atomic_load(&i->nfiles) || i->attr_ms > l->at_ms || i->changed_ms >= l->at_ms;
	pthread_mutex_unlock(&i->tree_lock);
	inode_unref(q->m, i);
	return better;
}

/* Of a directory the listing's watch tells the name alone; its attributes are for nobody to believe. */
static bool tells_of(struct req *q, struct inode *dir, const struct listed_file *f, const struct listing *l)
{
	return S_ISDIR(f->st.st_mode) ? !tree_known_better(q, dir, f, l) : f->st.st_nlink == 1;
}

/* From a listing of which a watch tells that it still holds: also what is not there. What the watch
 * does not tell of has to be asked for. */
static bool lookup_watched(struct req *q, struct inode *dir, const char *name)
{
	struct listing *l = listing_watched(q, dir);
	const struct listed_file *f = l ? listing_find(l, name) : NULL;
	double secs = 0;
	bool done = false;

	if (l)
		walk_on(q, dir, l);
	if (f && tells_of(q, dir, f, l)) {
		answer_listed(q, dir, name, f, l, S_ISDIR(f->st.st_mode) ? 0 : TREE_ATTR_SECS);
		done = true;
	} else if (l && !f && (secs = trust_absent(q, dir, &l->stamp)) > 0) {
		atomic_fetch_add(&q->m->stats.cache_hits, 1);
		atomic_fetch_add(&l->hits, 1);
		link_remove(q->m, dir, name);
		reply_absent(q, secs);
		done = true;
	}
	listing_unref(l);
	return done;
}

static struct listing *fetch_for_lookups(struct req *q, struct inode *dir)
{
	struct listing *l = NULL;
	int rc;

	rc = listing_get(q, dir, LISTING_MAX, &l);
	if (rc == -E2BIG)
		listing_too_long(dir);
	return rc == 0 ? l : NULL;
}

/* From a listing of a moment ago; many lookups make one. */
static bool lookup_listed(struct req *q, struct inode *dir, const char *name)
{
	const struct listed_file *f;
	struct listing *l;

	if (q->m->opt.cache == CACHE_STRICT)
		return false;
	if (lookup_watched(q, dir, name))
		return true;
	l = listing_recent(q, dir);
	if (!l && listing_wanted(q->m, dir))
		l = fetch_for_lookups(q, dir);
	memset(&q->err, 0, sizeof(q->err)); /* the question itself is still to be asked */
	if (l)
		walk_on(q, dir, l);
	f = l ? listing_find(l, name) : NULL;
	if (f && tree_known_better(q, dir, f, l))
		f = NULL;
	if (f)
		answer_listed(q, dir, name, f, l, TREE_ATTR_SECS);
	listing_unref(l);
	return f != NULL;
}

/* The child as we know it: answers when it is a directory seen just now, or when changes of it would
 * have been told. Else drains what its open files have collected, so that the server's answer counts
 * it. */
static bool lookup_known(struct req *q, struct inode *dir, const char *name)
{
	struct fuse_entry_param e = { .ino = 0 };
	struct inode *i = link_find(q->m, dir, name);

	if (!i)
		return false;
	if (known(q, i, TREE_DIR_MS, &e.attr, &e.attr_timeout)) {
		bool named = trust_name(q, dir, name, i), dir_too = S_ISDIR(e.attr.st_mode);

		e.entry_timeout = named ? TRUST_SECS : 0;
		/* Where a watch stands, one more question is the last one for long. */
		if ((named && (dir_too || e.attr_timeout >= TRUST_SECS)) ||
			(dir_too && !trust_wanted(q, dir, false))) {
			link_told(q, dir, name, i);
			reply_entry(q, i, &e);
			return true;
		}
	}
	tree_drain(q, i);
	inode_unref(q->m, i);
	return false;
}

static int ask_timed(struct req *q, const char *box, const char *path, struct tree_attr *ret)
{
	uint64_t start = now_ms(), was = atomic_load(&q->m->ask_us);
	int rc = wire_stat(q, box, path, ret);

	atomic_store(&q->m->ask_us, (was * 7 + (now_ms() - start) * 1000) / 8);
	return rc;
}

void tree_lookup(struct req *q, struct inode *dir, const char *name)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX];
	int rc;

	if (strlen(name) > NAME_MAX) {
		req_fail(q, -ENAMETOOLONG); /* and not ENOENT, which a listing would say */
		return;
	}
	if (again_lookup(q, dir, name) || lookup_known(q, dir, name) || lookup_listed(q, dir, name))
		return;
	trust_wanted(q, dir, false);
	rc = tree_path(q, dir, name, path);
	if (rc == 0)
		rc = ask_timed(q, dir->box, path, &a);
	if (rc == -ENOENT)
		link_remove(q->m, dir, name);
	if (rc == -ENOENT)
		reply_absent(q, trust_absent(q, dir, &a.stamp));
	else if (rc < 0)
		req_fail(q, rc);
	else {
		listing_missed(dir);
		tree_reply(q, dir, name, &a);
	}
}

void tree_getattr(struct req *q, struct inode *i)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	unsigned changes = tree_changes_of(i);
	struct stat st;
	double secs;
	int rc;

	if (known(q, i, ATTR_MS, &st, &secs)) {
		fuse_reply_attr(q->fr, &st, secs);
		return;
	}
	tree_drain(q, i);
	rc = tree_get(q, i, &a);
	if (rc == -EBUSY && !i->is_tree) {
		/* It sleeps, and looking does not wake it: ls -l of the sandbox shall not fail. */
		virtual_attr(q, i, &st);
		fuse_reply_attr(q->fr, &st, TREE_ATTR_SECS);
		return;
	}
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	/* What we changed meanwhile it may lack: the next one asks again. */
	a.at_ms = changes == tree_changes_of(i) ? 0 : 1;
	tree_shown(q, i, &a);
	fuse_reply_attr(q->fr, &a.st, trust_attr(q, i, &a));
}

static int set_attr(struct req *q, struct inode *i, const struct stat *st, int set, struct tree_attr *a)
{
	char path[FS_PATH_MAX], handle[24];
	int rc;

	if (tree_any_handle(i, set & FUSE_SET_ATTR_SIZE, handle)) {
		rc = wire_setattr(q, i->box, NULL, handle, st, set, a);
		if (rc != -ESTALE)
			return rc;
		/* The server has dropped it, maybe while the sandbox slept, and who has the file open may not use it
		 * for long. By its name, then, if that is still its own. */
		rc = get_named(q, i, a);
		tree_attr_fini(a);
		if (rc < 0)
			return -ESTALE;
	}
	rc = tree_path(q, i, NULL, path);
	return rc < 0 ? rc : wire_setattr(q, i->box, path, NULL, st, set, a);
}

void tree_setattr(struct req *q, struct inode *i, const struct stat *st, int set,
	struct fuse_file_info *fi)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	int rc;

	(void)fi;
	/* Data that comes late would undo a time that is set now. */
	tree_drain(q, i);
	rc = set_attr(q, i, st, set, &a);
	tree_changed(q, i);
	/* A link's own text does not come with a change of it. */
	if (rc == 0 && S_ISLNK(a.st.st_mode))
		rc = tree_get(q, i, &a);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	tree_shown(q, i, &a);
	fuse_reply_attr(q->fr, &a.st, trust_attr(q, i, &a));
}

void tree_statfs(struct req *q, struct inode *i)
{
	char path[FS_PATH_MAX];
	struct statvfs s = { .f_namemax = 255 };
	int rc = tree_path(q, i, NULL, path);

	if (rc == 0)
		rc = wire_statfs(q, i->box, path, &s);
	if (rc < 0)
		req_fail(q, rc);
	else
		fuse_reply_statfs(q->fr, &s);
}

void tree_access(struct req *q, struct inode *i, int mask)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	double secs;
	int rc = 0;

	if ((mask & X_OK) && !known(q, i, TREE_DIR_MS, &a.st, &secs))
		rc = tree_get(q, i, &a);
	if (rc == 0 && (mask & X_OK) && S_ISREG(a.st.st_mode) && !(a.st.st_mode & 0111))
		rc = -EACCES;
	req_done(q, rc);
}
