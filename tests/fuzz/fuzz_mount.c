/* SPDX-License-Identifier: MIT */
/* What the mount makes of the frames of sbx-fs/1: the first byte picks a listing, a push, or the head of
 * an answer with its attributes. Whatever the bytes are, names are names, parts lie within what came, and
 * no walk goes on for ever. */
#include "tests/fuzz/fuzz.h"

#include "sbxfs/fs1_frame.c"

static void name_promise(const char *name)
{
	promise(strlen(name) <= 255 && !strchr(name, '/'));
	promise(strcmp(name, ".") && strcmp(name, ".."));
}

static void mount_entries(const char *buf, size_t len)
{
	static struct fs1_entry e;
	size_t at = 0, was, n = 0;

	for (was = 0; fs1_next_entry(buf, len, &at, &e) > 0; was = at, n++) {
		promise(at > was && at <= len);
		name_promise(e.name);
		promise(strlen(e.target) < FILES_PATH_MAX);
		promise(!e.name[0] || e.attr.size <= INT64_MAX);
	}
	promise(at <= len && n <= len / sizeof(struct files_entry));
}

static void mount_changes(const char *buf, size_t len)
{
	struct fs1_change g;
	size_t at = 0, was;

	for (was = 0; fs1_next_change(buf, len, &at, &g) > 0; was = at) {
		promise(at > was && at <= len);
		name_promise(g.name);
	}
	promise(at <= len);
}

static void mount_head(const char *buf, size_t len)
{
	struct fs_hello h = { .data_max = 0 };
	struct files_rep r;
	struct fs_frame f;

	if (len < sizeof(f) + sizeof(r))
		return;
	memcpy(&f, buf, sizeof(f));
	memcpy(&r, buf + sizeof(f), sizeof(r));
	if (fs1_head_ok(&f, &r))
		promise(r.data_len <= FILES_DATA_MAX && f.len == sizeof(r) + r.data_len && (f.tag || f.op == FILES_INVAL ||
				(f.op == FILES_GRANT && !r.data_len)));
	if (f.value < 0)
		promise(fs1_errno(f.value) < 0 && fs1_errno(f.value) > -512 && fs1_errno(f.value) != -ENOSYS);
	if (fs1_attr_ok(&r.attr))
		promise(r.attr.size <= INT64_MAX && r.attr.mtime.nsec < 1000000000);
	promise(!fs1_hello_ok(&f, &r, &h));
}

int fuzz_mount(const uint8_t *data, size_t size)
{
	static void (*const parts[])(const char *, size_t) = { mount_entries, mount_changes, mount_head };
	char *copy;

	if (!size)
		return 0;
	copy = supply_text(data + 1, size - 1);
	parts[data[0] % 3](copy, size - 1);
	free(copy);
	return 0;
}
