/* SPDX-License-Identifier: MIT */
/* Names that the front sends, small files. */
#include "sandboxd/priv/sys.h"

#include "common/sys/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int fail_set(struct fail *f, int sys, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (sys < 0)
		sys = -sys;
	if (!f || f->sys)
		return -sys;
	f->sys = sys ? sys : EIO;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	n = strlen(f->text);
	snprintf(f->text + n, sizeof(f->text) - n, ": %s", strerror(f->sys));
	return -f->sys;
}

static int name_made_of(const char *s, size_t room, const char *first, const char *rest)
{
	size_t n = strnlen(s, room);

	if (n == 0 || n == room || !strchr(first, s[0]))
		return 0;
	return strspn(s, rest) == n;
}

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"

int name_is_id(const char *s, size_t room)
{
	return name_made_of(s, room, "s", LOWER "_-") && strncmp(s, "sbx_", 4) == 0 && s[4];
}

int name_is_host(const char *s, size_t room)
{
	return name_made_of(s, room, LOWER, LOWER "_-");
}

int name_is_guest_path(const char *s, size_t room)
{
	size_t n = strnlen(s, room), len;

	if (n == 0 || n == room || s[0] != '/')
		return 0;
	for (const char *p = s; *p; p += len) {
		p++; /* the slash */
		len = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-" LOWER);
		if (len == 0 || (p[len] && p[len] != '/') || (len == 1 && p[0] == '.') ||
			(len == 2 && p[0] == '.' && p[1] == '.'))
			return 0;
	}
	return 1;
}

int file_write(int dir, const char *name, const char *fmt, ...)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	char buf[256];
	va_list ap;
	int n;

	if (fd < 0)
		return -errno;
	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(buf))
		return -EINVAL;
	return write(fd, buf, (size_t)n) == n ? 0 : -errno;
}

int file_read(int dir, const char *name, char *buf, size_t size)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = 0;
	buf[strcspn(buf, "\n")] = 0;
	return 0;
}

DIR *dir_read(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0) {
		close(fd);
		errno = ENOMEM; /* all that can be wrong with an open folder */
	}
	return d;
}

int dir_make(int parent, const char *name, unsigned int mode)
{
	if (mkdirat(parent, name, mode) < 0 && errno != EEXIST)
		return -errno;
	return open_below(parent, name, O_RDONLY | O_DIRECTORY, 0);
}

uint64_t pid_start_time(int pid)
{
	char path[40], buf[1024];
	const char *p;
	unsigned long long start = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (file_read(AT_FDCWD, path, buf, sizeof(buf)) < 0)
		return 0;
	/* The command may hold spaces and brackets: fields count from the last bracket. */
	p = strrchr(buf, ')');
	if (!p || sscanf(p + 1,
			  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
			  "%*d %*d %*d %llu",
			  &start) != 1)
		return 0;
	return start;
}
