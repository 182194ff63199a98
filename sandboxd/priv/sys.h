/* SPDX-License-Identifier: MIT */
/* System calls that the C library lacks, and the broker's one error value. All return >= 0 or
 * -errno. */
#ifndef SANDBOXD_PRIV_SYS_H
#define SANDBOXD_PRIV_SYS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What went wrong and where; the text is for people. */
struct fail {
	int sys; /* errno, 0: nothing failed */
	char text[200];
};
/* Fills f with "<what>: <reason>" unless it already says something; returns -sys. */
int fail_set(struct fail *f, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static inline int sys_openat2(
	int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .mode = mode, .resolve = resolve };
	int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));

	return fd < 0 ? -errno : fd;
}
/* One name, or a relative path, below dir: no link is followed, no way leads out. */
static inline int open_below(int dir, const char *path, uint64_t flags, uint64_t mode)
{
	return sys_openat2(dir, path, flags, mode,
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* Ids and names that come from the front, NUL-terminated inside their field. */
int name_is_id(const char *s, size_t room);    /* sbx_[a-z0-9_-]+ */
int name_is_host(const char *s, size_t room);  /* [a-z0-9_-]+ */
/* (/[A-Za-z0-9._-]+)+ with no element "." or ".." */
int name_is_guest_path(const char *s, size_t room);

/* A process that shared our memory has run on this stack and not returned: a sanitizer would go on
 * believing in its variables. */
#ifdef __SANITIZE_ADDRESS__
void __asan_unpoison_memory_region(const volatile void *addr, size_t size);
#define forget_stack(stack) __asan_unpoison_memory_region((stack), sizeof(stack))
#else
#define forget_stack(stack) ((void)0)
#endif

/* Small files: 0 or -errno. file_read terminates with NUL and cuts the newline. */
int file_write(int dir, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int file_read(int dir, const char *name, char *buf, size_t size);
/* A folder of ours below dir, to be read; what lies there as a link is none. NULL, and errno: why not. */
DIR *dir_read(int dir, const char *name);
static inline void closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}
#define _cleanup_dir_ __attribute__((cleanup(closedir_p)))
/* mkdir that accepts what exists, then opens it. */
int dir_make(int parent, const char *name, unsigned int mode);
/* field 22 of /proc/<pid>/stat, 0 when there is no such process */
uint64_t pid_start_time(int pid);

#endif
