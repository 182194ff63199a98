/* SPDX-License-Identifier: MIT */
#include "sandboxd/priv/works.h"

#include "common/sys/mem.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 2000

static int measure(int parent, const char *name, int depth, int64_t *bytes);

static int measure_one(int dir, const char *name, int depth, int64_t *bytes)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	/* Each name of a file with several counts its part. */
	*bytes += (int64_t)st.st_blocks * 512 /
		  (st.st_nlink > 1 && !S_ISDIR(st.st_mode) ? (int64_t)st.st_nlink : 1);
	return S_ISDIR(st.st_mode) ? measure(dir, name, depth + 1, bytes) : 0;
}

static int measure(int parent, const char *name, int depth, int64_t *bytes)
{
	int fd = open_below(parent, name, O_RDONLY | O_DIRECTORY, 0), r = 0;
	DIR *d = fd < 0 || depth > DEPTH_MAX ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!d) {
		close_p(&fd);
		return fd < 0 ? fd : -ELOOP;
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = measure_one(fd, de->d_name, depth, bytes);
	closedir(d);
	return r;
}

int seal_measure(int dir, int64_t *bytes)
{
	*bytes = 0;
	return measure(dir, ".", 0, bytes);
}
