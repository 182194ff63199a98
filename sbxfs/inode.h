/* SPDX-License-Identifier: MIT */
/* The table of inodes that the kernel knows. Its node id is the address of ours; a generation keeps
 * a later one at the same address apart. Three sorts share the struct: directories and files with a
 * name in the tree of nodes, renderings (2.2: the text of a file at one moment is an inode of its
 * own), and objects of a guest's tree.
 *
 * Threads: all functions take the table's lock themselves; what a comment calls fixed never changes
 * after the inode was made. */
#ifndef SBXFS_INODE_H
#define SBXFS_INODE_H

#include "sbxfs/mount.h"

#include <sys/stat.h>

struct node;
struct tree_file;
struct listing;

struct tree_id {
	uint64_t dev, ino, gen;
};

/* What trust.c knows. Pushes of a connection have numbers, and so has what it told (tree_stamp). */
struct trust {
	uint64_t epoch;       /* since `from`, changes are heard of; 0: they are not */
	uint64_t from, change; /* the last one heard of */
	uint64_t believed_ms; /* until when the kernel may not ask */
};
struct dir_watch {
	uint64_t epoch, since, change;
	uint64_t tried;     /* connection on which it was asked for */
	uint64_t asked_epoch, asked; /* what was asked for later than that, is after the watch */
	uint64_t absent_ms; /* until when the kernel may hold that a name is not there */
	unsigned looks;
};

struct inode {
	/* fixed */
	const struct node *node;
	char box[SBX_ID_MAX]; /* sandbox id, or "" */
	char *arg;            /* process, draft, label, program ...; "" when the node needs none */
	uid_t uid;            /* of files that differ by reader */
	uint64_t ino;         /* st_ino of virtual files */
	uint64_t generation;
	struct tree_id tid;   /* guest tree only */
	bool is_tree;
	char *data;           /* renderings: the text */
	struct inode *base;   /* referenced: whose text and numbers these are (inode_alone) */
	size_t size;
	struct timespec mtime;

	/* under the table's lock */
	struct inode *next;
	uint64_t nlookup;
	unsigned refs;
	bool hashed;
	uint64_t made_ms, made_gen; /* renderings: when the text was fetched last */
	struct link *links;         /* guest tree: names by which it was seen, newest first */
	const struct inode *was_in; /* only compared: where its last name was, when another has that */
	char *was_name;
	uint64_t astray_ms;         /* until when the kernel may have it where it was; LINK_ASTRAY: until it looks it up */
	int astray_depth;           /* path elements from the guest's root to that place, or to the highest of them */
	pid_t told_pid;             /* who looked it up, when the kernel was told of its place last */
	uint64_t up_ms;             /* until when who climbs from where it was may be on the way */
	struct trust trust;         /* of the attributes */
	struct dir_watch watch;

	/* under tree_lock */
	pthread_mutex_t tree_lock;
	uint64_t attr_ms, attr_gen; /* when `known` (of an event log: the text) was fetched */
	/* guest tree */
	struct tree_file *files;    /* open ones */
	atomic_uint nfiles;         /* how many; read without the lock */
	atomic_uint nwriters;       /* of these, open for writing */
	atomic_bool locks;          /* it was locked by fcntl once */
	struct stat known;          /* last attributes, as shown */
	bool is_known;
	uint64_t known_epoch, known_asked, known_seen; /* its tree_stamp */
	struct listing *listing;    /* directories: its entries a moment ago */
	bool listing_comes;         /* somebody fetches it, and others wait; under the lock of m->listings */
	bool is_long;               /* it has too many entries to fetch them for lookups */
	uint64_t looks_ms;          /* lookups in it, close together */
	unsigned looks;
	unsigned wasted;            /* listings fetched for lookups that answered too few, one after the other */
	unsigned changes;           /* our own ones: an answer from before one is old */
	uint64_t changed_ms;        /* when the last one was */
	bool gone;                  /* a directory that we have removed */
	unsigned contents;          /* those, and others' that an open found */
	char version[80];           /* of the pages that the kernel may hold; "": none of worth */
};

/* A name of a guest object: parent (referenced) and one path element, raw bytes. */
struct link {
	struct link *next;       /* of the same inode */
	struct link *hash_next;
	struct inode *parent, *child;
	char *name;
	struct trust trust;
};

int inodes_new(struct mount *m, struct inodes **ret);
void inodes_free(struct inodes *t);
size_t inodes_count(struct inodes *t);

struct inode *inode_root(struct mount *m);
struct inode *inode_get(struct mount *m, fuse_ino_t nodeid); /* borrowed for the request */
fuse_ino_t inode_nodeid(struct mount *m, const struct inode *i);

/* Finds or makes a virtual inode; *ret is referenced (not looked up). */
int inode_virtual(struct mount *m, const struct node *node, const char *box, const char *arg,
	uid_t uid, struct inode **ret);
/* The rendering of (node, box, arg, uid) that is fresh enough, referenced, or NULL. */
struct inode *inode_rendering(struct mount *m, const struct node *node, const char *box,
	const char *arg, uid_t uid);
/* Gives the current rendering when its text is the same, else makes a new one. `data` is taken. */
int inode_render(struct mount *m, const struct node *node, const char *box, const char *arg,
	uid_t uid, char *data, size_t size, uint64_t gen, struct inode **ret);
/* The same file to everyone who looks, and another inode to the kernel, which lets nobody open to truncate, write or
 * close one that is being written. `base` is taken, also on failure. */
int inode_alone(struct mount *m, struct inode *base, struct inode **ret);
/* Finds or makes the inode of a guest object. Referenced. */
int inode_tree(struct mount *m, const struct node *node, const char *box, const struct tree_id *id,
	struct inode **ret);

/* The same where it is known already, or NULL. */
struct inode *inode_tree_known(struct mount *m, const struct node *node, const char *box,
	const struct tree_id *id);

void inode_ref(struct mount *m, struct inode *i);
void inode_unref(struct mount *m, struct inode *i);
/* The kernel counts one more, n fewer. */
void inode_looked(struct mount *m, struct inode *i);
void inode_forget(struct mount *m, struct inode *i, uint64_t n);
/* Whether `i` is the guest object `id`. With `carry` it becomes it when only the generation differs
 * and no other inode is that object. */
bool inode_is(struct mount *m, struct inode *i, const struct tree_id *id, bool carry);

#define LINK_CLIMB_MS 100 /* from the text of a link to the end of the climb */

/* Names of guest objects. 1: the kernel has the directory further down, or had a moment ago, and moves it up. */
int link_add(struct mount *m, struct inode *parent, const char *name, struct inode *child);
void link_remove(struct mount *m, struct inode *parent, const char *name);
/* True: a directory moves up. */
bool link_rename(struct mount *m, struct inode *p1, const char *n1, struct inode *p2, const char *n2,
	bool exchange);
/* The directory in which it was seen last, referenced, or NULL. */
struct inode *link_parent(struct mount *m, struct inode *i);
/* The child under that name, referenced, or NULL. */
struct inode *link_find(struct mount *m, struct inode *parent, const char *name);
/* Absolute guest path of the inode, or of `name` in it; -ESTALE when no name leads to it. */
int link_path(struct mount *m, struct inode *i, const char *name, char *out, size_t size);
/* The newest name, or the last that was; false: never had one. *ret_dir may be compared, not used. */
bool link_last(struct mount *m, const struct inode *i, const struct inode **ret_dir, char out[256]);
#define LINK_ASTRAY UINT64_MAX
/* Path elements from the guest's root to the directory that holds `i`, the fewest that any of its names gives; -1:
 * unknown. The kernel counts from where it has the directory, and a shell may stand in one that a guest has moved
 * down: until `until_ms` (0: not at all) that may be `least` elements down only. */
struct climb {
	int depth, least;
	uint64_t until_ms;
};
struct climb link_climb(struct mount *m, struct inode *i);
/* The kernel is being told of that name of it, and moves a directory there, if it can. */
void link_told(struct req *q, struct inode *dir, const char *name, struct inode *i);

#endif
