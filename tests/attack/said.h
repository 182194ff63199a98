/* SPDX-License-Identifier: MIT */
/* How programs that attack from inside report: a line for each attempt, its name and how it ended
 * (an errno's name, a signal's, "OK", or a short text). What is right is known outside. */
#ifndef TESTS_ATTACK_SAID_H
#define TESTS_ATTACK_SAID_H

#include <errno.h>
#include <stdio.h>

static const struct {
	int num;
	const char *name;
} names[] = {
	{ EPERM, "EPERM" },
	{ EACCES, "EACCES" },
	{ ENOSYS, "ENOSYS" },
	{ EROFS, "EROFS" },
	{ ENOENT, "ENOENT" },
	{ ETXTBSY, "ETXTBSY" },
	{ EAFNOSUPPORT, "EAFNOSUPPORT" },
	{ EPROTONOSUPPORT, "EPROTONOSUPPORT" },
	{ ENETUNREACH, "ENETUNREACH" },
	{ ESRCH, "ESRCH" },
	{ EINVAL, "EINVAL" },
	{ ENOTTY, "ENOTTY" },
	{ EBADF, "EBADF" },
	{ EFAULT, "EFAULT" },
	{ ENOSPC, "ENOSPC" },
	{ ENODEV, "ENODEV" },
	{ ENXIO, "ENXIO" },
	{ EIO, "EIO" },
	{ ECONNREFUSED, "ECONNREFUSED" },
	{ EBUSY, "EBUSY" },
	{ EEXIST, "EEXIST" },
	{ ENOTDIR, "ENOTDIR" },
	{ EISDIR, "EISDIR" },
	{ ENOMEM, "ENOMEM" },
	{ ENOPROTOOPT, "ENOPROTOOPT" },
	{ EADDRNOTAVAIL, "EADDRNOTAVAIL" },
	{ EOPNOTSUPP, "EOPNOTSUPP" },
	{ EMFILE, "EMFILE" },
	{ EAGAIN, "EAGAIN" },
	{ ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT" },
};

static inline void say(const char *name, const char *how)
{
	printf("%s %s\n", name, how);
	fflush(stdout);
}

static inline void result(const char *name, long r)
{
	char num[24];
	int e = errno;

	if (r >= 0) {
		say(name, "OK");
		return;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].num == e) {
			say(name, names[i].name);
			return;
		}
	snprintf(num, sizeof(num), "errno=%d", e);
	say(name, num);
}

#endif
