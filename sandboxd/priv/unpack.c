/* SPDX-License-Identifier: MIT */
/* The jail and the archive loop. Names are checked by us before the library sees them, and the
 * library is told to refuse the same again. Devices, pipes and sockets are left out. */
#include "sandboxd/priv/unpack.h"

#include "common/sys/mem.h"

#include <archive.h>
#include <archive_entry.h>
#include <dlfcn.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ENTRIES_MAX (4 * 1000 * 1000)
#define BYTES_MAX   ((int64_t)64 << 30)
#define SECONDS_MAX 1800
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_MAX RLIM_INFINITY /* a sanitizer reserves terabytes */
#else
#define MEMORY_MAX ((rlim_t)1 << 30)
#endif

void unpack_layer_name(char *buf, size_t size, const char *image, const struct stat *st)
{
	const uint64_t what[] = { (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
		(uint64_t)st->st_mtim.tv_nsec, st->st_ino, st->st_dev };
	uint64_t h = 1469598103934665603u;

	for (size_t i = 0; i < sizeof(what); i++)
		h = (h ^ ((const unsigned char *)what)[i]) * 1099511628211u;
	snprintf(buf, size, "%s.%016llx", image, (unsigned long long)h);
}

/* --- the library ----------------------------------------------------------------------------- */

/* Loaded only here, in a child: the broker stays free of it and of the many libraries that it
 * brings along, and every fork of the broker stays cheap. */
#define CALLS(X)                                                                                   \
	X(archive_read_new)                                                                        \
	X(archive_write_disk_new)                                                                  \
	X(archive_read_support_format_tar)                                                         \
	X(archive_read_support_filter_all)                                                         \
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
	X(archive_entry_size)
struct lib {
#define X(name) __typeof__(&(name)) name;
	CALLS(X)
#undef X
};

static int load(struct lib *l, struct fail *f)
{
	static const char *const symbols[] = {
#define X(name) #name,
		CALLS(X)
#undef X
	};
	void *so = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);
	void *p;

	if (!so)
		return fail_set(f, ENOENT, "load libarchive (package libarchive13)");
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		p = dlsym(so, symbols[i]);
		if (!p)
			return fail_set(f, ENOSYS, "libarchive lacks %s", symbols[i]);
		memcpy((char *)l + i * sizeof(p), &p, sizeof(p));
	}
	return 0;
}

/* --- names ----------------------------------------------------------------------------------- */

/* "./a/b/" → "a/b"; NULL for names that lead, or could lead, anywhere else. "" is the root. */
static const char *clean_name(const char *name, char *buf, size_t size)
{
	size_t n = 0;

	if (!name || *name == '/')
		return NULL;
	while (*name) {
		size_t len = strcspn(name, "/");
		if (len == 2 && name[0] == '.' && name[1] == '.')
			return NULL;
		if (len > 0 && !(len == 1 && name[0] == '.')) {
			if (n + len + 2 > size || len > 255)
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

static bool wanted_type(const struct lib *l, struct archive_entry *e)
{
	mode_t t = l->archive_entry_filetype(e);

	return l->archive_entry_hardlink(e) || t == AE_IFREG || t == AE_IFDIR || t == AE_IFLNK;
}

/* 1: write it, 0: leave it out, < 0: the archive is refused. */
static int check_entry(const struct lib *l, struct archive_entry *e, struct fail *f)
{
	char path[4096], link[4096];
	const char *name = clean_name(l->archive_entry_pathname(e), path, sizeof(path));

	if (!name)
		return fail_set(f, EINVAL, "archive entry with a name that leads out");
	if (!wanted_type(l, e) || (!*name && l->archive_entry_filetype(e) != AE_IFDIR))
		return 0;
	if (l->archive_entry_uid(e) < 0 || l->archive_entry_uid(e) > 65535 ||
		l->archive_entry_gid(e) < 0 || l->archive_entry_gid(e) > 65535)
		return fail_set(f, EINVAL, "archive entry with an owner above 65535");
	if (l->archive_entry_hardlink(e)) {
		const char *to = clean_name(l->archive_entry_hardlink(e), link, sizeof(link));
		if (!to || !*to)
			return fail_set(f, EINVAL, "archive link that leads out");
		l->archive_entry_set_hardlink(e, to);
	}
	l->archive_entry_set_pathname(e, *name ? name : ".");
	return 1;
}

/* --- archive --------------------------------------------------------------------------------- */

static int copy_data(const struct lib *l, struct archive *in, struct archive *out, int64_t *total,
	struct fail *f)
{
	const void *buf;
	size_t len;
	int64_t pos;
	int r;

	while ((r = l->archive_read_data_block(in, &buf, &len, &pos)) == ARCHIVE_OK) {
		*total += (int64_t)len;
		if (*total > BYTES_MAX)
			return fail_set(f, EFBIG, "archive");
		if (l->archive_write_data_block(out, buf, len, pos) < ARCHIVE_OK)
			return fail_set(f, l->archive_errno(out), "write: %.100s",
				l->archive_error_string(out));
	}
	return r == ARCHIVE_EOF ? 0 : fail_set(f, EIO, "read: %.100s", l->archive_error_string(in));
}

static int write_entry(const struct lib *l, struct archive *in, struct archive *out,
	struct archive_entry *e, int64_t *total, struct fail *f)
{
	int r = check_entry(l, e, f);

	if (r <= 0)
		return r;
	if (l->archive_write_header(out, e) < ARCHIVE_OK)
		return fail_set(
			f, l->archive_errno(out), "unpack: %.100s", l->archive_error_string(out));
	if (l->archive_entry_size(e) > 0 && !l->archive_entry_hardlink(e))
		r = copy_data(l, in, out, total, f);
	if (r >= 0 && l->archive_write_finish_entry(out) < ARCHIVE_OK)
		return fail_set(
			f, l->archive_errno(out), "unpack: %.100s", l->archive_error_string(out));
	return r < 0 ? r : 0;
}

static int copy_archive(
	const struct lib *l, struct archive *in, struct archive *out, struct fail *f)
{
	struct archive_entry *e;
	int64_t total = 0;
	int r = 0, status;
	long entries = 0;

	while (r == 0 && (status = l->archive_read_next_header(in, &e)) >= ARCHIVE_WARN &&
		status != ARCHIVE_EOF) {
		if (++entries > ENTRIES_MAX)
			return fail_set(f, EFBIG, "archive");
		r = write_entry(l, in, out, e, &total, f);
	}
	if (r == 0 && status != ARCHIVE_EOF)
		return fail_set(f, EINVAL, "read: %.100s", l->archive_error_string(in));
	return r;
}

static int unpack_tar(const struct lib *l, int tar, struct fail *f)
{
	struct archive *in = l->archive_read_new(), *out = l->archive_write_disk_new();
	int r = -ENOMEM;

	if (in && out) {
		l->archive_read_support_format_tar(in);
		l->archive_read_support_filter_all(in);
		/* Names are bytes: no conversion, and so nothing that would be loaded for one. */
		l->archive_read_set_options(in, "hdrcharset=BINARY");
		l->archive_write_disk_set_options(out,
			ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
				ARCHIVE_EXTRACT_XATTR | ARCHIVE_EXTRACT_UNLINK |
				ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
				ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
		r = l->archive_read_open_fd(in, tar, 65536) == ARCHIVE_OK
			    ? copy_archive(l, in, out, f)
			    : fail_set(f, EINVAL, "read: %.100s", l->archive_error_string(in));
		if (l->archive_write_close(out) != ARCHIVE_OK && r == 0)
			r = fail_set(f, EIO, "unpack: %.100s", l->archive_error_string(out));
	}
	l->archive_read_free(in);
	l->archive_write_free(out);
	return r;
}

/* --- jail ------------------------------------------------------------------------------------ */

static int enter_layer(const struct unpack_env *env, const char *dir, struct fail *f)
{
	_cleanup_close_ int mnt = open_tree(
		env->layers, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

	if (mnt < 0 || fchdir(env->priv) < 0 ||
		unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
		return fail_set(f, errno, "make the jail");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		move_mount(mnt, "", AT_FDCWD, ".", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
		fchdir(mnt) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
		umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return fail_set(f, errno, "enter the jail");
	return 0;
}

static int limit(int what, rlim_t max)
{
	struct rlimit l = { max, max };

	return setrlimit(what, &l) < 0 ? -errno : 0;
}

#define CAP_BIT(c) (1ull << (c))
static int give_up_rights(const struct unpack_env *env, struct fail *f)
{
	/* chown, dac_override, dac_read_search, fowner, fsetid, setfcap */
	const uint64_t kept =
		CAP_BIT(0) | CAP_BIT(1) | CAP_BIT(2) | CAP_BIT(3) | CAP_BIT(4) | CAP_BIT(31);
	struct {
		uint32_t version;
		int pid;
	} head = { 0x20080522, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} caps[2] = { { (uint32_t)kept, (uint32_t)kept, 0 }, { 0, 0, 0 } };
	int r;

	if (limit(RLIMIT_CPU, SECONDS_MAX) < 0 || limit(RLIMIT_AS, MEMORY_MAX) < 0 ||
		limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NPROC, 0) < 0)
		return fail_set(f, errno, "limit the unpacker");
	if (syscall(SYS_capset, &head, caps) < 0)
		return fail_set(f, errno, "drop capabilities");
	r = filter_install(env->filter);
	return r < 0 ? fail_set(f, r, "install the system call filter") : 0;
}

static void jailed(
	const struct unpack_env *env, const struct lib *l, int tar, const char *dir, int out)
{
	struct fail f = { 0 };
	int in = fcntl(tar, F_DUPFD, 32), answer = fcntl(out, F_DUPFD, 32), root;

	if (enter_layer(env, dir, &f) == 0) {
		dup2(in, 3);
		dup2(answer, 4);
		close_range(5, ~0u, 0);
		in = 3;
		answer = 4;
		umask(0);
		root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (give_up_rights(env, &f) == 0 && unpack_tar(l, in, &f) == 0)
			unpack_fixup(root, &f);
	}
	ssize_t n = write(answer, &f, sizeof(f));
	_exit(n == sizeof(f) && !f.sys ? 0 : 1);
}

static int run_jail(
	const struct unpack_env *env, const struct lib *l, int tar, const char *dir, struct fail *f)
{
	struct fail got = { 0 };
	int p[2], status = 0;
	pid_t pid;
	ssize_t n;

	if (pipe2(p, O_CLOEXEC) < 0)
		return fail_set(f, errno, "make a pipe");
	pid = fork();
	if (pid == 0)
		jailed(env, l, tar, dir, p[1]);
	close(p[1]);
	n = pid < 0 ? -1 : read(p[0], &got, sizeof(got));
	close(p[0]);
	if (pid < 0)
		return fail_set(f, errno, "start the unpacker");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (n == sizeof(got) && got.sys) {
		*f = got;
		return -got.sys;
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return fail_set(f, EIO, "the unpacker ended with status %d", status);
	return 0;
}

int unpack_import(const struct unpack_env *env, int tar, const char *layer, struct fail *f)
{
	struct lib l;
	char tmp[160];
	int dir, r;

	signal(SIGCHLD, SIG_DFL);
	/* Names in extended headers are UTF-8: in another locale the library would change them. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	if (load(&l, f) < 0)
		return -f->sys;
	snprintf(tmp, sizeof(tmp), ".%s.tmp", layer);
	(void)fake_tree_remove(env->layers, tmp);
	dir = dir_make(env->layers, tmp, 0755);
	if (dir < 0)
		return fail_set(f, dir, "make the layer's folder");
	r = fchmod(dir, 0755) < 0 ? fail_set(f, errno, "make the layer's folder") : 0;
	if (r == 0)
		r = run_jail(env, &l, tar, tmp, f);
	if (r == 0 && syncfs(dir) < 0)
		r = fail_set(f, errno, "sync the layer");
	close(dir);
	if (r == 0 && renameat(env->layers, tmp, env->layers, layer) < 0)
		r = fail_set(f, errno, "name the layer");
	if (r < 0)
		(void)fake_tree_remove(env->layers, tmp);
	else
		(void)fsync(env->layers);
	return r;
}
