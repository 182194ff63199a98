/* SPDX-License-Identifier: MIT */
#include "tests/support/descriptors.h"

#include "tests/support/test.h"

#include <fcntl.h>
#include <unistd.h>

/* The lowest number that it has no descriptor of. */
static rlim_t next_descriptor(pid_t pid)
{
	char path[64];

	for (rlim_t n = 0;; n++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)n);
		if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return n;
	}
}

struct rlimit descriptors_leave(pid_t pid, rlim_t n)
{
	struct rlimit usual, few;

	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, NULL, &usual), 0);
	few = (struct rlimit){ next_descriptor(pid) + n, usual.rlim_max };
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, &few, NULL), 0);
	return usual;
}

void descriptors_restore(pid_t pid, const struct rlimit *usual)
{
	assert_int_equal(prlimit(pid, RLIMIT_NOFILE, usual, NULL), 0);
}
