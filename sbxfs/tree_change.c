/* SPDX-License-Identifier: MIT */
/* Names of guest objects: made, taken away, moved. */
#include "sbxfs/treefs.h"
#include "sbxfs/trust.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void make(struct req *q, struct inode *dir, const char *name, enum wire_make what, mode_t mode,
	const char *target)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char path[FS_PATH_MAX];
	int rc = tree_path(q, dir, name, path);

	trust_own(q, dir, name, true);
	if (rc == 0)
		rc = wire_make(q, dir->box, what, path, mode, target, &a);
	trust_own(q, dir, name, false);
	if (rc == 0 && target) {
		free(a.target);
		a.target = strdup(target);
	}
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	tree_changed(q, dir);
	tree_reply(q, dir, name, &a);
}

void tree_mkdir(struct req *q, struct inode *dir, const char *name, mode_t mode)
{
	make(q, dir, name, WIRE_MKDIR, mode, NULL);
}

void tree_mknod(struct req *q, struct inode *dir, const char *name, mode_t mode)
{
	char path[FS_PATH_MAX], handle[24];
	struct tree_attr a = { .target = NULL };
	int rc;

	if (S_ISFIFO(mode)) {
		make(q, dir, name, WIRE_FIFO, mode, NULL);
		return;
	}
	if (!S_ISREG(mode)) {
		req_fail(q, refuse(q, EPERM, "devices and sockets cannot be made through the mount"));
		return;
	}
	rc = tree_path(q, dir, name, path);
	if (rc == 0)
		rc = wire_open(q, dir->box, path, O_WRONLY | O_CREAT | O_EXCL, mode, 0, handle, &a, NULL,
			NULL);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	wire_close(q, dir->box, handle);
	tree_changed(q, dir);
	tree_reply(q, dir, name, &a);
	tree_attr_fini(&a);
}

void tree_symlink(struct req *q, struct inode *dir, const char *name, const char *target)
{
	make(q, dir, name, WIRE_SYMLINK, 0, link_inside(q->m, dir->box, target));
}

void tree_link(struct req *q, struct inode *i, struct inode *dir, const char *name)
{
	_cleanup_attr_ struct tree_attr a = { .target = NULL };
	char from[FS_PATH_MAX], to[FS_PATH_MAX];
	int rc;

	if (strcmp(i->box, dir->box)) {
		req_fail(q, -EXDEV);
		return;
	}
	tree_drain(q, i);
	rc = tree_path(q, i, NULL, from);
	if (rc == 0)
		rc = tree_path(q, dir, name, to);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	trust_own(q, dir, name, true);
	rc = wire_link(q, i->box, from, to, &a);
	trust_own(q, dir, name, false);
	tree_changed(q, dir);
	tree_changed(q, i);
	/* The new name must be of the same object, or two inodes would share it. A file of the image
	 * gets a new generation here, for a link copies it to the sandbox's own layer. */
	if (rc == 0 && !inode_is(q->m, i, &a.id, true))
		rc = -ESTALE;
	if (rc < 0)
		req_fail(q, rc);
	else
		tree_reply(q, dir, name, &a);
}

static void child_changed(struct req *q, struct inode *dir, const char *name)
{
	struct inode *i = link_find(q->m, dir, name);

	if (!i)
		return;
	tree_drain(q, i);
	tree_changed(q, i);
	inode_unref(q->m, i);
}

static void mark_gone(struct req *q, struct inode *dir, const char *name)
{
	struct inode *i = link_find(q->m, dir, name);

	if (!i)
		return;
	pthread_mutex_lock(&i->tree_lock);
	i->gone = true;
	pthread_mutex_unlock(&i->tree_lock);
	inode_unref(q->m, i);
}

void tree_drop(struct req *q, struct inode *dir, const char *name, bool is_dir)
{
	char path[FS_PATH_MAX];
	int rc = tree_path(q, dir, name, path);

	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	child_changed(q, dir, name);
	trust_own(q, dir, name, true);
	rc = wire_drop(q, dir->box, path, is_dir);
	trust_own(q, dir, name, false);
	if (rc == 0 && is_dir)
		mark_gone(q, dir, name);
	if (rc == 0 || rc == -ENOENT)
		link_remove(q->m, dir, name);
	tree_changed(q, dir);
	req_done(q, rc);
}

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

void tree_rename(struct req *q, struct inode *dir, const char *name, struct inode *to,
	const char *to_name, unsigned flags)
{
	char from_path[FS_PATH_MAX], to_path[FS_PATH_MAX];
	int rc;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
		req_fail(q, -EINVAL);
		return;
	}
	if (strcmp(dir->box, to->box)) {
		req_fail(q, -EXDEV);
		return;
	}
	rc = tree_path(q, dir, name, from_path);
	if (rc == 0)
		rc = tree_path(q, to, to_name, to_path);
	if (rc < 0) {
		req_fail(q, rc);
		return;
	}
	child_changed(q, dir, name);
	child_changed(q, to, to_name);
	trust_own(q, dir, name, true);
	trust_own(q, to, to_name, true);
	rc = wire_rename(q, dir->box, from_path, to_path, flags);
	trust_own(q, dir, name, false);
	trust_own(q, to, to_name, false);
	if (rc == 0 && link_rename(q->m, dir, name, to, to_name, flags & RENAME_EXCHANGE))
		link_settles(q->m);
	tree_changed(q, dir);
	tree_changed(q, to);
	req_done(q, rc);
}
