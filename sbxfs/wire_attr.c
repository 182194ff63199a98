/* SPDX-License-Identifier: MIT */
/* Attributes as the server tells them, checked member by member. */
#include "sbxfs/wire.h"

#include "common/json/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUEST_USER 1001

void tree_attr_fini(struct tree_attr *a)
{
	free(a->target);
	a->target = NULL;
}

char *wire_bytes(const json_t *o, const char *key)
{
	char b64_key[32];
	const json_t *v;
	void *raw = NULL;
	size_t len;
	char *s;

	(void)snprintf(b64_key, sizeof(b64_key), "%s_b64", key);
	v = json_object_get(o, b64_key);
	if (!v) {
		v = json_object_get(o, key);
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return NULL;
		return strdup(json_string_value(v));
	}
	if (!json_is_string(v) ||
		base64_decode(json_string_value(v), json_string_length(v), &raw, &len) < 0)
		return NULL;
	s = memchr(raw, '\0', len) ? NULL : strndup(raw, len);
	free(raw);
	return s;
}

static bool number(const json_t *o, const char *key, int64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = json_integer_value(v);
	return json_is_integer(v) && *ret >= 0;
}

static bool when(const json_t *o, const char *key, struct timespec *ret)
{
	const char *s = json_string_value(json_object_get(o, key));
	long nsec = 0, unit = 100000000;
	long long sec;
	char *end;

	if (!s || strlen(s) > 40)
		return false;
	errno = 0;
	sec = strtoll(s, &end, 10);
	if (errno || end == s)
		return false;
	if (*end == '.')
		for (end++; *end >= '0' && *end <= '9' && unit; end++, unit /= 10)
			nsec += (*end - '0') * unit;
	if (s[0] == '-' && nsec) {
		sec--;
		nsec = 1000000000 - nsec;
	}
	*ret = (struct timespec){ .tv_sec = sec, .tv_nsec = nsec };
	return *end == '\0';
}

static mode_t type_of(const char *word)
{
	static const struct {
		const char *word;
		mode_t type;
	} types[] = { { "file", S_IFREG }, { "dir", S_IFDIR }, { "link", S_IFLNK }, { "fifo", S_IFIFO },
		{ "sock", S_IFSOCK }, { "chr", S_IFCHR }, { "blk", S_IFBLK } };

	for (size_t n = 0; word && n < sizeof(types) / sizeof(types[0]); n++)
		if (!strcmp(types[n].word, word))
			return types[n].type;
	return 0;
}

uint32_t wire_uid_shown(const struct mount *m, uint32_t id)
{
	return m->opt.ids == IDS_MAP && id == GUEST_USER ? m->opt.owner : id;
}

uint32_t wire_gid_shown(const struct mount *m, uint32_t id)
{
	return m->opt.ids == IDS_MAP && id == GUEST_USER ? m->opt.gid : id;
}

uint32_t wire_uid(const struct mount *m, uint32_t id)
{
	return m->opt.ids == IDS_MAP && id == m->opt.owner ? GUEST_USER : id;
}

uint32_t wire_gid(const struct mount *m, uint32_t id)
{
	return m->opt.ids == IDS_MAP && id == m->opt.gid ? GUEST_USER : id;
}

ino_t wire_ino(uint64_t dev, uint64_t ino)
{
	return (ino_t)(ino ^ (dev * 0x9e3779b97f4a7c15ull >> 40) << 40);
}

/* "seconds.nanoseconds" of all three, and what identifies the content. */
static bool rest_of(const json_t *o, struct tree_attr *a)
{
	const char *version = json_string_value(json_object_get(o, "version"));
	int64_t ino, dev, gen;

	if (!number(o, "ino", &ino) || !number(o, "dev", &dev) || !number(o, "gen", &gen) ||
		!when(o, "atime", &a->st.st_atim) || !when(o, "mtime", &a->st.st_mtim) ||
		!when(o, "ctime", &a->st.st_ctim) || !version || strlen(version) >= sizeof(a->version))
		return false;
	a->st.st_ino = wire_ino((uint64_t)dev, (uint64_t)ino);
	a->id = (struct tree_id){ .dev = (uint64_t)dev, .ino = (uint64_t)ino, .gen = (uint64_t)gen };
	strcpy(a->version, version);
	return true;
}

int tree_attr_of(struct req *q, const json_t *o, struct tree_attr *a)
{
	const struct mount *m = q->m;
	int64_t mode, uid, gid, nlink, size, blocks;
	struct stat *st = &a->st;

	memset(a, 0, sizeof(*a));
	st->st_mode = type_of(json_string_value(json_object_get(o, "type")));
	if (!st->st_mode || !number(o, "mode", &mode) || !number(o, "uid", &uid) ||
		!number(o, "gid", &gid) || !number(o, "nlink", &nlink) || !number(o, "size", &size) ||
		!number(o, "blocks", &blocks) || !rest_of(o, a))
		return refuse(q, EPROTO, "the server's attributes of a file cannot be read");
	/* Set-id bits of a guest mean nothing here. */
	st->st_mode |= (mode_t)mode & 01777;
	st->st_uid = wire_uid_shown(m, (uint32_t)uid);
	st->st_gid = wire_gid_shown(m, (uint32_t)gid);
	st->st_nlink = S_ISDIR(st->st_mode) ? 1 : (nlink_t)nlink;
	st->st_size = size;
	st->st_blocks = blocks;
	st->st_blksize = 65536;
	if (S_ISLNK(st->st_mode)) {
		a->target = wire_bytes(o, "target");
		if (a->target && strlen(a->target) >= GUEST_PATH_MAX)
			tree_attr_fini(a);
	}
	return 0;
}
