/* SPDX-License-Identifier: MIT */
/* GET …/fs/list: a directory, or with depth a tree, as NDJSON: one line an entry (its attributes
 * with `name`), then {"end":true}. With depth, names are relative paths ("sub/file") and a
 * directory's line comes before the lines of what it holds; other file systems mounted below are
 * listed but not entered. `limit` ends early: without depth the last line has `next`, to be given
 * as `after`; with depth it has "truncated":true. An error after the first line is a line
 * {"error":…}. A page is asked for when the last one has been sent, so memory is one page and the
 * directories that are still to be entered. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 8
#define TODO_MAX  200000
#define TODO_BYTES (8u << 20) /* of these, whose names the guest has chosen */

struct todo {
	struct todo *next;
	unsigned depth; /* of its entries */
	char rel[];     /* relative to the listing's path, "" for that itself */
};
struct fs_list {
	struct visit v;
	uint64_t client, limit, count, dev;
	unsigned depth;
	bool ended;
	char path[GUEST_PATH_MAX];
	struct todo *todo;  /* a stack; the first is being listed */
	struct todo *found; /* directories of the page at hand, in order */
	struct todo **found_end;
	size_t ntodo, todo_bytes;
	struct guestfs_page page;
	struct text line; /* what is to be sent */
	size_t sent;
};

static void todo_free(struct todo *t)
{
	while (t) {
		struct todo *next = t->next;
		free(t);
		t = next;
	}
}

static void list_free(struct fs_list *l)
{
	if (!l)
		return;
	if (l->v.s)
		guestfs_drop(l->v.s->fs, l->client, l->page.handle);
	visit_end(&l->v);
	todo_free(l->todo);
	todo_free(l->found);
	text_free(&l->line);
	free(l);
}

static void list_free_p(struct fs_list **l)
{
	list_free(*l);
}

/* As it was counted: the listing's own place is not. */
static size_t todo_size(const struct todo *t)
{
	return *t->rel ? strlen(t->rel) + 1 : 0;
}

static int remember(
	struct fs_list *l, const char *dir, const char *name, unsigned depth, struct err *e)
{
	size_t n = strlen(dir) + (*dir ? 1 : 0) + strlen(name) + 1;
	struct todo *t;

	/* A path that no request could name is not entered. */
	if (strlen(l->path) + n >= GUEST_PATH_MAX)
		return 0;
	if (l->ntodo >= TODO_MAX || l->todo_bytes + n > TODO_BYTES)
		return err_set(e, ERR_CONFLICT,
			"the tree has too many directories to be listed at once");
	t = malloc(sizeof(*t) + n);
	if (!t)
		return err_sys(e, ENOMEM, "list a directory");
	t->next = NULL;
	t->depth = depth;
	strcpy(t->rel, dir);
	if (*dir)
		strcat(t->rel, "/");
	strcat(t->rel, name);
	*l->found_end = t;
	l->found_end = &t->next;
	l->ntodo++;
	l->todo_bytes += n;
	return 0;
}

static int add_line(void *arg, const struct guestfs_entry *en, struct err *e)
{
	struct fs_list *l = arg;
	char name[GUEST_PATH_MAX + 256];
	size_t dir_len = strlen(l->todo->rel), len = 0;

	if (dir_len) {
		memcpy(name, l->todo->rel, dir_len);
		name[dir_len] = '/';
		len = dir_len + 1;
	}
	memcpy(name + len, en->name, en->name_len);
	len += en->name_len;
	text_add(&l->line, "{", 1);
	text_name(&l->line, "name", name, len);
	text_add(&l->line, ",", 1);
	text_attr(&l->line, &en->attr, en->target, en->target_len);
	if (!l->depth)
		text_fmt(&l->line, ",\"after\":\"%llu\"", (unsigned long long)en->cursor);
	text_str(&l->line, "}\n");
	l->count++;
	if (l->line.failed)
		return err_sys(e, ENOMEM, "list a directory");
	if (S_ISDIR(en->attr.mode) && l->todo->depth < l->depth && en->attr.dev == l->dev)
		return remember(l, l->todo->rel, en->name, l->todo->depth + 1, e);
	return 0;
}

static void next_directory(struct fs_list *l)
{
	struct todo *t = l->todo;

	l->todo = t->next;
	l->todo_bytes -= todo_size(t);
	free(t);
	l->ntodo--;
	l->page = (struct guestfs_page){ .client = l->client };
}

static void end_line(struct fs_list *l, bool more)
{
	text_str(&l->line, "{\"end\":true");
	if (more && l->depth)
		text_str(&l->line, ",\"truncated\":true");
	else if (more)
		text_fmt(&l->line, ",\"next\":\"%llu\"", (unsigned long long)l->page.cursor);
	text_str(&l->line, "}\n");
	l->ended = true;
}

static int list_page(struct fs_list *l, struct err *e)
{
	char path[2 * GUEST_PATH_MAX];
	const char *rel = l->todo->rel, *root = !strcmp(l->path, "/") ? "" : l->path;
	uint64_t left = l->limit ? l->limit - l->count : 0;

	if (*rel)
		snprintf(path, sizeof(path), "%s/%s", root, rel);
	else
		snprintf(path, sizeof(path), "%s", l->path);
	l->found = NULL;
	l->found_end = &l->found;
	l->page.limit = left && left < FILES_LIST_MAX ? (uint32_t)left : 0;
	return guestfs_list(l->v.s->fs, path, &l->page, add_line, l, e);
}

/* Directories of this page go on top of the stack, below the one at hand. */
static void stack_found(struct fs_list *l)
{
	*l->found_end = l->todo->next;
	l->todo->next = l->found;
	l->found = NULL;
}

/* Fills the line buffer with the next page. */
static int advance(struct fs_list *l, struct err *e)
{
	bool first = !l->count && !*l->todo->rel && !l->page.handle;

	l->line.len = l->sent = 0;
	if (list_page(l, e) < 0) {
		/* A directory that went away, or that may not be read, has no entries to tell. */
		if (first || (e->sys != ENOENT && e->sys != EACCES && e->sys != ENOTDIR &&
				     e->sys != ELOOP))
			return -1;
		l->page.end = true;
		l->page.handle = 0;
	}
	stack_found(l);
	if (l->limit && l->count >= l->limit && !(l->page.end && !l->todo->next)) {
		end_line(l, true);
		return 0;
	}
	if (l->page.end)
		next_directory(l);
	else
		l->page.cursor = FILES_CURSOR_GO_ON;
	if (!l->todo)
		end_line(l, false);
	return 0;
}

static ssize_t list_read(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct fs_list *l = arg;
	struct err e = ERR_NULL;
	size_t n;

	(void)pos;
	while (l->sent == l->line.len && !l->ended) {
		if (advance(l, &e) < 0) {
			l->line.len = l->sent = 0;
			l->line.failed = false;
			text_str(&l->line, "{\"error\":");
			text_error(&l->line, &e, core_cap(l->v.core, CAP_ERRNO));
			text_str(&l->line, "}\n");
			l->ended = true;
		}
	}
	n = l->line.len - l->sent;
	n = n < max ? n : max;
	memcpy(buf, l->line.buf + l->sent, n);
	l->sent += n;
	return (ssize_t)n;
}

static void list_done(void *arg)
{
	list_free(arg);
}

static int list_query(struct call *c, struct fs_list *l, struct err *e)
{
	uint64_t depth;
	const char *after;
	size_t len;

	if (files_path(c, l->path, e) < 0 || files_number(c, "limit", 0, &l->limit, e) < 0 ||
		files_number(c, "depth", 0, &depth, e) < 0 ||
		files_number(c, "after", 0, &l->page.cursor, e) < 0 ||
		call_query(c, "after", &after, &len, e) < 0)
		return -1;
	if (depth > DEPTH_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "depth: at most %d", DEPTH_MAX);
	if (depth && after)
		return err_set(e, ERR_INVALID_REQUEST, "after: only without depth");
	l->depth = (unsigned)depth;
	return 0;
}

static int root_dev(struct fs_list *l, struct err *e)
{
	struct guestfs_args a = { .client = l->client, .path = l->path, .flags = FILES_FOLLOW };
	struct guestfs_result r;

	if (guestfs_call(l->v.s->fs, FILES_STAT, &a, &r, e) < 0)
		return -1;
	l->dev = r.attr.dev;
	guestfs_result_free(&r);
	return 0;
}

int handle_fs_list(struct call *c, struct err *e)
{
	_cleanup_(list_free_p) struct fs_list *l = calloc(1, sizeof(*l));

	if (!l)
		return err_sys(e, ENOMEM, "list a directory");
	l->line = (struct text)TEXT_NULL;
	l->todo = calloc(1, sizeof(*l->todo) + 1);
	l->ntodo = 1;
	if (!l->todo)
		return err_sys(e, ENOMEM, "list a directory");
	if (list_query(c, l, e) < 0 || files_client(c, &l->client, e) < 0 ||
		visit_begin(c, &l->v, e) < 0)
		return -1;
	l->page.client = l->client;
	/* The first page now, so that its refusal is the answer. */
	if ((l->depth && root_dev(l, e) < 0) || advance(l, e) < 0)
		return -1;
	struct http_source src = { .arg = steal(l), .read = list_read, .done = list_done };
	return reply_stream(c, 200, "application/x-ndjson", -1, &src);
}
