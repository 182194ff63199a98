/* SPDX-License-Identifier: MIT */
/* The tree as tables: what is where (nodes.def) and what the directories with changing content do
 * (dirs in nodes.c). */
#ifndef SBXFS_NODES_H
#define SBXFS_NODES_H

#include "sbxfs/inode.h"
#include "sbxfs/text.h"

enum node_id {
	N_NONE = 0,
#define N(id, ...) N_##id,
#include "sbxfs/nodes.def"
#undef N
	N_COUNT
};

/* value, record: text. setting: one write is the new value. list: `>` replaces, `>>` adds.
 * doc: JSON in any pieces, applied when complete. verbs: line by line. log: grows, seekable.
 * stream: blocks. feed: bytes. program: executable text. */
enum kind {
	KIND_DIR, KIND_LINK, KIND_VALUE, KIND_RECORD, KIND_SETTING, KIND_LIST, KIND_DOC, KIND_VERBS,
	KIND_LOG, KIND_STREAM, KIND_FEED, KIND_PROGRAM, KIND_TREE
};
enum node_flags { NF_HIDDEN = 1, NF_BYUID = 2, NF_MAYBE = 4 };

/* A place in the tree: a node and what it is about. Borrowed strings. */
struct spot {
	const struct node *node;
	const char *box, *arg;
};
/* A place that a directory found; strings of its own. */
struct found {
	const struct node *node;
	char box[SBX_ID_MAX];
	char arg[600];
};
struct lister; /* collects the entries of one directory */

struct node {
	enum node_id id, parent;
	const char *name;
	enum kind kind;
	mode_t mode;
	enum cap cap;
	unsigned flags;
	const char *key;
	/* The text (of a link: its target). */
	int (*read)(struct req *q, const struct spot *s, struct text *t);
	/* One value, line, document or piece of bytes; NUL behind it. `append`: opened with >>. */
	int (*apply)(struct req *q, const struct spot *s, const char *value, size_t len, bool append);
	const char *help;
};

/* What a directory does beyond its fixed entries; any may be NULL. */
struct dir {
	enum node_id id;
	int (*find)(struct req *q, const struct spot *d, const char *name, struct found *ret);
	int (*list)(struct req *q, const struct spot *d, struct lister *l);
	int (*mkdir)(struct req *q, const struct spot *d, const char *name);
	int (*rmdir)(struct req *q, const struct spot *d, const char *name);
	int (*create)(struct req *q, const struct spot *d, const char *name);
	int (*unlink)(struct req *q, const struct spot *d, const char *name);
	int (*rename)(struct req *q, const struct spot *d, const char *name, const struct spot *to,
		const char *to_name);
};

const struct node *node_by_id(enum node_id id);
const struct dir *node_dir(enum node_id id); /* NULL: only fixed entries */
/* A fixed entry of a directory, NULL when there is none or the server lacks it. */
const struct node *node_child(struct req *q, const struct node *dir, const char *name);
/* Path of a spot below the mount point, for people. */
void node_path(const struct spot *s, const char *name, char *out, size_t size);
/* Fills a found. */
int found_set(struct found *f, enum node_id id, const char *box, const char *arg);
/* Is `name` one that the root has itself? */
bool node_is_reserved(const char *name);

/* Finds `name` in a virtual directory. */
int node_find(struct req *q, const struct spot *d, const char *name, struct found *ret);
/* Everything in a directory, "." and ".." left out. */
int node_list(struct req *q, const struct spot *d, struct lister *l);

/* A listing: an array of names with the node each stands for. */
struct lister {
	struct listed {
		char *name;
		const struct node *node;
		char box[SBX_ID_MAX];
	} *v;
	size_t n, cap;
	bool failed;
};
void lister_add(struct lister *l, const char *name, enum node_id id, const char *box);
void lister_fini(struct lister *l);

/* Names that one file per directory can have. */
bool file_name_ok(const char *name);

#endif
