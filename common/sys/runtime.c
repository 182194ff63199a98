/* SPDX-License-Identifier: MIT */
#include "common/sys/runtime.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

bool runtime_dir_ok(const char *dir)
{
	struct stat st;

	if (!dir || dir[0] != '/')
		return false;
	if (stat(dir, &st) < 0)
		return errno == ENOENT;
	return (st.st_uid == geteuid() || st.st_uid == 0) &&
	       (!(st.st_mode & 022) || (st.st_mode & S_ISVTX));
}
