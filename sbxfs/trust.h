/* SPDX-License-Identifier: MIT */
/* What may be answered from memory. A watched directory tells of every change of its entries; what was
 * asked for after the watch stood, and has not been told of since, is as it was. The kernel is then let
 * believe it for as long as a request may take, and told at once when it changes. An answer on the way of
 * which a change was told may be from before that change or after it: it is believed for a second, and
 * not answered from again. Everything here is under the lock of the table of inodes. A file with several
 * names is not trusted: it can be changed through another one. */
#ifndef SBXFS_TRUST_H
#define SBXFS_TRUST_H

#include "sbxfs/treefs.h"

#define TRUST_SECS 10.0
#define BRIEF_SECS 1.0

/* Of an answer about (dir, name): the times for which the kernel may believe it. */
void trust_entry(struct req *q, struct inode *dir, const char *name, struct inode *i,
	const struct tree_attr *a, struct fuse_entry_param *e);
/* Of attributes alone. */
double trust_attr(struct req *q, struct inode *i, const struct tree_attr *a);
/* What is known of the inode still holds? */
bool trust_known(struct req *q, struct inode *i, const struct tree_stamp *s, bool is_dir);
/* And its name? */
bool trust_name(struct req *q, struct inode *dir, const char *name, const struct inode *i);
/* A change of the content was told after that? */
bool trust_stale(struct req *q, const struct inode *i, const struct tree_stamp *s);
/* Nothing in the directory has changed since? */
bool trust_dir(struct req *q, struct inode *dir, const struct tree_stamp *s);
/* For how long may the kernel believe that a name is not there? */
double trust_absent(struct req *q, struct inode *dir, const struct tree_stamp *s);
/* Our own change of a name is under way (`on`), or over: the kernel knows. */
void trust_own(struct req *q, const struct inode *dir, const char *name, bool on);

/* For fs1_watch.c. From `epoch` on changes of the directory are told. */
void trust_begin(struct mount *m, struct inode *dir, uint64_t epoch, uint64_t since);
/* The peer carries out what was asked for after this after the watch stands; before or after the above. */
void trust_asked(struct mount *m, struct inode *dir, uint64_t epoch, uint64_t since);
void trust_change(struct mount *m, struct inode *dir, const char *name, uint32_t what, uint64_t seq);
/* Nothing that was told under this epoch counts any more. */
void trust_end(struct mount *m, const char *box, uint64_t epoch);
/* Asks for a watch when the directory is looked into for the second time, or listed. True: it stands. */
bool trust_wanted(struct req *q, struct inode *dir, bool lists);

/* fs1_watch.c */
void watch_dir(struct req *q, struct inode *dir);

/* notify.c: threads that tell the kernel, holding no lock. */
struct notifier;
int notifier_new(struct mount *m, struct notifier **ret);
void notify_entry(struct mount *m, fuse_ino_t dir, const char *name);
/* The same of a name that the kernel may hold for absent; there may be any number of these, and what does not
 * fit into the queue it finds out by itself. */
void notify_absent(struct mount *m, fuse_ino_t dir, const char *name);
/* Outside of the guests' trees, where the making of a sandbox may hold it up for long: the name is asked for
 * again, and what the kernel knows below it stays as long as it is the same one. */
void notify_top(struct mount *m, fuse_ino_t dir, const char *name);
/* Waits a moment until the kernel knows all of these: what a command has ended is not there when it returns. */
void notify_top_told(struct mount *m);
void notify_attr(struct mount *m, fuse_ino_t ino);
/* The kernel gives up a file that nobody uses: not told as a change. */
void notify_forget(struct mount *m, fuse_ino_t dir, fuse_ino_t child, const char *name);
/* So much waits to be told that no more should be believed. */
bool notify_is_late(struct mount *m);
/* No more is told. False: it still waits for the kernel, and must not be freed. */
bool notifier_stop(struct notifier *n);
void notifier_free(struct notifier *n);

#endif
