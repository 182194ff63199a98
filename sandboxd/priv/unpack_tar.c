/* SPDX-License-Identifier: MIT */
/* The archive loop. Names are checked by us before the library sees them, and the library is told
 * to refuse the same again. Devices, pipes and sockets are left out. In a layer of an image
 * ".wh.NAME" deletes NAME from the layers below, which overlayfs writes as a 0:0 character device,
 * and ".wh..wh..opq" hides all that the folder has there. */
#include "sandboxd/priv/unpack.h"

#include "common/sys/fd.h"
#include "common/sys/mem.h"

#include <archive.h>
#include <archive_entry.h>
#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define ENTRIES_MAX (4 * 1000 * 1000)
#define BYTES_MAX   ((int64_t)64 << 30)
#define RATIO_MAX   200 /* unpacked to packed, beyond RATIO_FREE bytes */
#define RATIO_FREE  ((int64_t)1 << 30)
#define SPACE_EVERY ((int64_t)32 << 20) /* bytes between two looks at the disk */
#define SPACE_LEAST ((uint64_t)256 << 20)
#define NAMES_EVERY 1024 /* files and folders, likewise; an empty one takes an inode */
#define NAMES_LEAST 16384 /* or an eighth of all */
#define DEPTH_MAX   512 /* whoever removes the tree has a descriptor open for each */
#define OPAQUE_MAX  ((int64_t)16 << 20) /* names of opaque folders */
#define XATTRS_MAX  64
#define XATTR_BYTES 65536
#define BLOCK       4096
#define WHITEOUT    ".wh."

/* --- the library ----------------------------------------------------------------------------- */

/* Loaded only here, in a child: the broker stays free of it and of the many libraries that it
 * brings along, and every fork of the broker stays cheap. */
#define CALLS(X)                                                                                   \
	X(archive_read_new)                                                                        \
	X(archive_write_disk_new)                                                                  \
	X(archive_read_support_format_tar)                                                         \
	X(archive_read_support_filter_all)                                                         \
	X(archive_read_support_filter_gzip)                                                        \
	X(archive_read_support_filter_zstd)                                                        \
	X(archive_read_set_options)                                                                \
	X(archive_write_disk_set_options)                                                          \
	X(archive_read_open_fd)                                                                    \
	X(archive_write_close)                                                                     \
	X(archive_read_free)                                                                       \
	X(archive_write_free)                                                                      \
	X(archive_read_data_block)                                                                 \
	X(archive_write_data_block)                                                                \
	X(archive_errno)                                                                           \
	X(archive_error_string)                                                                    \
	X(archive_write_header)                                                                    \
	X(archive_write_finish_entry)                                                              \
	X(archive_read_next_header)                                                                \
	X(archive_entry_filetype)                                                                  \
	X(archive_entry_hardlink)                                                                  \
	X(archive_entry_pathname)                                                                  \
	X(archive_entry_uid)                                                                       \
	X(archive_entry_gid)                                                                       \
	X(archive_entry_set_hardlink)                                                              \
	X(archive_entry_set_pathname)                                                              \
	X(archive_entry_size)                                                                      \
	X(archive_entry_xattr_reset)                                                               \
	X(archive_entry_xattr_next)                                                                \
	X(archive_entry_xattr_clear)                                                               \
	X(archive_entry_xattr_add_entry)
struct unpack_lib {
#define X(name) __typeof__(&(name)) name;
	CALLS(X)
#undef X
};

const struct unpack_lib *unpack_load(struct fail *f)
{
	static struct unpack_lib lib;
	static const char *const symbols[] = {
#define X(name) #name,
		CALLS(X)
#undef X
	};
	void *so = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);
	void *p;

	/* Names in extended headers are UTF-8: in another locale the library would change them. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	if (!so) {
		fail_set(f, ENOENT, "load libarchive (package libarchive13)");
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		p = dlsym(so, symbols[i]);
		if (!p) {
			fail_set(f, ENOSYS, "libarchive lacks %s", symbols[i]);
			return NULL;
		}
		memcpy((char *)&lib + i * sizeof(p), &p, sizeof(p));
	}
	return &lib;
}

struct unpack {
	const struct unpack_lib *l;
	struct archive *in, *out;
	int root, opaque;
	bool oci;
	int64_t packed; /* size of the archive */
	int64_t total;  /* bytes written, attributes too */
	int64_t names;  /* made, those of folders that no entry names too */
	int64_t looked, looked_names; /* when the disk was looked at last */
	char last_dir[4096]; /* is there: that of the entry before, as a rule */
	int64_t opaque_len;
	struct unpack_result *ret;
};

static int refuse(struct unpack *u, int sys, const char *what)
{
	return fail_set(&u->ret->fail, sys, "%s", what);
}

/* --- names ----------------------------------------------------------------------------------- */

/* "./a/b/" → "a/b"; NULL for names that lead, or could lead, anywhere else or too deep. "" is the
 * root. */
static const char *clean_name(const char *name, char *buf, size_t size)
{
	size_t n = 0, depth = 0;

	if (!name || *name == '/')
		return NULL;
	while (*name) {
		size_t len = strcspn(name, "/");
		if (len == 2 && name[0] == '.' && name[1] == '.')
			return NULL;
		if (len > 0 && !(len == 1 && name[0] == '.')) {
			if (n + len + 2 > size || len > 255 || ++depth > DEPTH_MAX)
				return NULL;
			if (n)
				buf[n++] = '/';
			memcpy(buf + n, name, len);
			n += len;
		}
		name += len;
		name += strspn(name, "/");
	}
	buf[n] = 0;
	return buf;
}

static bool wanted_type(const struct unpack_lib *l, struct archive_entry *e)
{
	mode_t t = l->archive_entry_filetype(e);

	return l->archive_entry_hardlink(e) || t == AE_IFREG || t == AE_IFDIR || t == AE_IFLNK;
}

/* Splits a clean name; *last points into it. */
static void split(char *path, const char **dir, const char **last)
{
	char *slash = strrchr(path, '/');

	*dir = slash ? path : "";
	*last = slash ? slash + 1 : path;
	if (slash)
		*slash = 0;
}

static int open_dir(int root, const char *path)
{
	return open_below(root, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0);
}

/* The folder itself, made with all above it where it is missing. No link is followed. */
static int make_dir(struct unpack *u, const char *path)
{
	int fd = open_dir(u->root, path), at;
	char part[256];

	if (fd != -ENOENT)
		return fd;
	at = open_dir(u->root, "");
	while (at >= 0 && *path) {
		size_t len = strcspn(path, "/");
		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		int made = mkdirat(at, part, 0755);
		u->names += made == 0;
		if (made < 0 && errno != EEXIST)
			fd = -errno;
		else
			fd = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		close(at);
		at = fd;
		path += len + (path[len] == '/');
	}
	return at < 0 ? -EINVAL : at;
}

/* --- whiteouts ------------------------------------------------------------------------------- */

static int note_opaque(struct unpack *u, const char *path)
{
	size_t len = strlen(path) + 1;

	if (!*path) {
		u->ret->covers = 1;
		return 0;
	}
	u->opaque_len += (int64_t)len;
	if (u->opaque_len > OPAQUE_MAX)
		return refuse(u, EFBIG, "too many folders that hide what lies below");
	if (fd_write_full(u->opaque, path, len) < 0)
		return refuse(u, EIO, "note an opaque folder");
	return 0;
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static int delete_below(struct unpack *u, const char *dir, const char *name)
{
	_cleanup_close_ int fd = make_dir(u, dir);
	char path[4096 + 256];
	struct stat st;

	if (fd < 0)
		return refuse(u, EINVAL, "archive entry below something that is no folder");
	if (mknodat(fd, name, S_IFCHR, 0) == 0)
		return 0;
	if (errno != EEXIST || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return refuse(u, errno, "write a whiteout");
	if (!S_ISDIR(st.st_mode))
		return 0; /* the layer's own hides it already */
	snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", name);
	return note_opaque(u, path);
}

/* 1: it was one and is dealt with, 0: it is an ordinary name. */
static int take_whiteout(struct unpack *u, const char *name)
{
	char buf[4096];
	const char *dir, *last;
	int r;

	snprintf(buf, sizeof(buf), "%s", name);
	split(buf, &dir, &last);
	if (strncmp(last, WHITEOUT, 4) != 0)
		return 0;
	if (strcmp(last, ".wh..wh..opq") == 0) {
		_cleanup_close_ int fd = make_dir(u, dir);
		r = fd < 0 ? refuse(u, EINVAL, "opaque mark in something that is no folder")
			   : note_opaque(u, dir);
		return r < 0 ? r : 1;
	}
	if (strncmp(last, ".wh..wh.", 8) == 0)
		return 1; /* an old tool's own notes */
	last += 4;
	if (!*last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
		return refuse(u, EINVAL, "archive entry with a whiteout of no name");
	r = delete_below(u, dir, last);
	return r < 0 ? r : 1;
}

/* A folder that comes after the whiteout of its name is a new one. */
static int replace_whiteout(struct unpack *u, const char *name)
{
	char buf[4096];
	const char *dir, *last;
	struct stat st;

	snprintf(buf, sizeof(buf), "%s", name);
	split(buf, &dir, &last);
	_cleanup_close_ int fd = open_dir(u->root, dir);
	if (fd < 0 || fstatat(fd, last, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_whiteout(&st))
		return 0;
	if (unlinkat(fd, last, 0) < 0)
		return refuse(u, errno, "replace a whiteout");
	return note_opaque(u, name);
}

/* --- entries --------------------------------------------------------------------------------- */

/* The library would make the folders above an entry, and nobody would count them: one name of the longest kind has
 * hundreds. Where something else is in the way it has to, and is thought to make them all. */
static void make_way(struct unpack *u, const char *name)
{
	char buf[4096];
	const char *dir, *last;

	snprintf(buf, sizeof(buf), "%s", name);
	split(buf, &dir, &last);
	if (!*dir || strcmp(dir, u->last_dir) == 0)
		return;
	_cleanup_close_ int fd = make_dir(u, dir);
	u->last_dir[0] = 0;
	if (fd >= 0)
		memcpy(u->last_dir, dir, strlen(dir) + 1);
	for (const char *p = dir; fd < 0 && p; p = strchr(p + 1, '/'))
		u->names++;
}

static bool xattr_wanted(const char *name)
{
	if (strncmp(name, "user.", 5) == 0)
		return strncmp(name, "user.overlay.", 13) != 0;
	return strcmp(name, "security.capability") == 0;
}

/* What would mean something to overlayfs, or to the host's security modules, is left out. */
static int filter_xattrs(struct unpack *u, struct archive_entry *e)
{
	const struct unpack_lib *l = u->l;
	struct {
		char *name;
		void *value;
		size_t size;
	} kept[XATTRS_MAX];
	const void *value;
	const char *name;
	size_t size, n = 0, bytes = 0;
	int r = 0;

	if (l->archive_entry_xattr_reset(e) == 0)
		return 0;
	while (l->archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
		if (!name || !xattr_wanted(name))
			continue;
		bytes += size;
		if (n == XATTRS_MAX || bytes > XATTR_BYTES) {
			r = refuse(u, EFBIG, "archive entry with too many attributes");
			break;
		}
		kept[n].name = strdup(name);
		kept[n].value = malloc(size + 1);
		kept[n].size = size;
		if (kept[n].value && size)
			memcpy(kept[n].value, value, size);
		n++;
	}
	l->archive_entry_xattr_clear(e);
	u->total += (int64_t)bytes;
	u->ret->bytes += (int64_t)bytes;
	for (size_t i = 0; i < n; i++) {
		if (kept[i].name && kept[i].value && r == 0)
			l->archive_entry_xattr_add_entry(
				e, kept[i].name, kept[i].value, kept[i].size);
		free(kept[i].name);
		free(kept[i].value);
	}
	return r;
}

static int check_owner(struct unpack *u, struct archive_entry *e)
{
	const struct unpack_lib *l = u->l;

	if (l->archive_entry_uid(e) < 0 || l->archive_entry_uid(e) > 65535 ||
		l->archive_entry_gid(e) < 0 || l->archive_entry_gid(e) > 65535)
		return refuse(u, EINVAL, "archive entry with an owner above 65535");
	return 0;
}

/* 1: write it, 0: leave it out, < 0: the archive is refused. */
static int check_entry(struct unpack *u, struct archive_entry *e)
{
	const struct unpack_lib *l = u->l;
	char path[4096], link[4096];
	const char *name = clean_name(l->archive_entry_pathname(e), path, sizeof(path));
	int r;

	if (!name)
		return refuse(u, EINVAL, "archive entry with a name that leads out or too deep");
	if (u->oci && (r = take_whiteout(u, name)) != 0)
		return r < 0 ? r : 0;
	if (!wanted_type(l, e) || (!*name && l->archive_entry_filetype(e) != AE_IFDIR))
		return 0;
	if (check_owner(u, e) < 0)
		return -EINVAL;
	if (l->archive_entry_size(e) > BYTES_MAX)
		return refuse(u, EFBIG, "archive entry");
	if (l->archive_entry_hardlink(e)) {
		const char *to = clean_name(l->archive_entry_hardlink(e), link, sizeof(link));
		if (!to || !*to)
			return refuse(u, EINVAL, "archive link that leads out");
		l->archive_entry_set_hardlink(e, to);
	} else if (u->oci && *name && l->archive_entry_filetype(e) == AE_IFDIR &&
		   (r = replace_whiteout(u, name)) < 0) {
		return r;
	}
	l->archive_entry_set_pathname(e, *name ? name : ".");
	make_way(u, name);
	r = filter_xattrs(u, e);
	return r < 0 ? r : 1;
}

/* What the host keeps for itself. */
static bool is_room(const struct unpack *u)
{
	uint64_t least = NAMES_LEAST;
	struct statvfs st;

	if (fstatvfs(u->root, &st) < 0)
		return true;
	if (st.f_files / 8 < least)
		least = st.f_files / 8; /* 0: they are not counted */
	return (uint64_t)st.f_bavail * st.f_frsize >= SPACE_LEAST && st.f_favail >= least;
}

static int check_space(struct unpack *u)
{
	int64_t laid = u->total + u->names * BLOCK;

	if (u->total > BYTES_MAX || u->names > ENTRIES_MAX)
		return refuse(u, EFBIG, "archive");
	if (u->total > RATIO_FREE && u->total / RATIO_MAX > u->packed)
		return refuse(u, EFBIG, "the archive expands beyond all measure");
	if (laid - u->looked < SPACE_EVERY && u->names - u->looked_names < NAMES_EVERY)
		return 0;
	u->looked = laid;
	u->looked_names = u->names;
	return is_room(u) ? 0 : refuse(u, ENOSPC, "unpack");
}

static int copy_data(struct unpack *u)
{
	const struct unpack_lib *l = u->l;
	const void *buf;
	size_t len;
	int64_t pos;
	int r;

	while ((r = l->archive_read_data_block(u->in, &buf, &len, &pos)) == ARCHIVE_OK) {
		u->total += (int64_t)len;
		if (check_space(u) < 0)
			return -1;
		if (l->archive_write_data_block(u->out, buf, len, pos) < ARCHIVE_OK)
			return fail_set(&u->ret->fail, l->archive_errno(u->out), "write: %.100s",
				l->archive_error_string(u->out));
	}
	return r == ARCHIVE_EOF ? 0
				: fail_set(&u->ret->fail, EIO, "read: %.100s",
					  l->archive_error_string(u->in));
}

/* A file system that keeps no attributes is no reason to refuse an image. */
static bool bad_status(struct unpack *u, int status)
{
	if (status >= ARCHIVE_OK)
		return false;
	return status < ARCHIVE_WARN || u->l->archive_errno(u->out) != EOPNOTSUPP;
}

static int write_entry(struct unpack *u, struct archive_entry *e)
{
	const struct unpack_lib *l = u->l;
	int64_t size = l->archive_entry_hardlink(e) ? 0 : l->archive_entry_size(e);
	int r = check_entry(u, e);

	u->names++;
	if (r >= 0 && check_space(u) < 0)
		return -1;
	if (r <= 0)
		return r;
	if (bad_status(u, l->archive_write_header(u->out, e)))
		return fail_set(&u->ret->fail, l->archive_errno(u->out), "unpack: %.100s",
			l->archive_error_string(u->out));
	r = size > 0 ? copy_data(u) : 0;
	if (r >= 0 && bad_status(u, l->archive_write_finish_entry(u->out)))
		return fail_set(&u->ret->fail, l->archive_errno(u->out), "unpack: %.100s",
			l->archive_error_string(u->out));
	u->ret->bytes += (size + BLOCK - 1) / BLOCK * BLOCK;
	if (l->archive_entry_filetype(e) == AE_IFDIR)
		u->ret->bytes += BLOCK;
	return r < 0 ? r : 0;
}

static int copy_archive(struct unpack *u)
{
	struct archive_entry *e;
	int r = 0, status;

	while (r == 0 && (status = u->l->archive_read_next_header(u->in, &e)) >= ARCHIVE_WARN &&
		status != ARCHIVE_EOF)
		r = write_entry(u, e);
	if (r == 0 && status != ARCHIVE_EOF)
		return fail_set(
			&u->ret->fail, EINVAL, "read: %.100s", u->l->archive_error_string(u->in));
	return r;
}

static int begin(struct unpack *u, int in)
{
	const struct unpack_lib *l = u->l;

	l->archive_read_support_format_tar(u->in);
	if (u->oci) {
		l->archive_read_support_filter_gzip(u->in);
		l->archive_read_support_filter_zstd(u->in);
	} else {
		l->archive_read_support_filter_all(u->in);
	}
	/* Names are bytes: no conversion, and so nothing that would be loaded for one. */
	l->archive_read_set_options(u->in, "hdrcharset=BINARY");
	l->archive_write_disk_set_options(
		u->out, ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
				ARCHIVE_EXTRACT_XATTR | ARCHIVE_EXTRACT_UNLINK |
				ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
				ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
	if (l->archive_read_open_fd(u->in, in, 65536) == ARCHIVE_OK)
		return 0;
	return fail_set(&u->ret->fail, EINVAL, "read: %.100s", l->archive_error_string(u->in));
}

int unpack_tar(const struct unpack_lib *l, const struct unpack_job *job, int in, int root,
	int opaque, struct unpack_result *ret)
{
	struct unpack u = { .l = l,
		.in = l->archive_read_new(),
		.out = l->archive_write_disk_new(),
		.root = root,
		.opaque = opaque,
		.oci = job->kind == UNPACK_OCI,
		.ret = ret };
	struct stat st;
	int r = -ENOMEM;

	if (u.in && u.out && fstat(in, &st) == 0) {
		u.packed = st.st_size;
		r = begin(&u, in);
		if (r == 0)
			r = copy_archive(&u);
		if (l->archive_write_close(u.out) != ARCHIVE_OK && r == 0)
			r = fail_set(
				&ret->fail, EIO, "unpack: %.100s", l->archive_error_string(u.out));
	}
	l->archive_read_free(u.in);
	l->archive_write_free(u.out);
	return r < 0 && !ret->fail.sys ? fail_set(&ret->fail, ENOMEM, "unpack") : r;
}
