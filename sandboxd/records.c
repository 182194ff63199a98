/* SPDX-License-Identifier: MIT */
/* What has no record is removed by a start: without records that would be every volume and snapshot. So the file of
 * records comes before the broker's folder, and a folder without the file has lost it. */
#include "sandboxd/records.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "records.db"

/* Root's folder: what somebody else has put in its place the broker refuses by itself. */
static bool broker_was_here(int dirfd)
{
	struct stat st;

	return fstatat(dirfd, "priv", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == 0;
}

/* As a backup that was put back by root leaves them. */
static int check_owners(int dirfd, const char *dir, uid_t uid, struct err *e)
{
	static const char *const names[] = { NAME, NAME "-wal", "run", "audit" };
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid != uid)
			return err_set(e, ERR_CONFLICT,
				"\"%s/%s\" belongs to uid %u, the server runs as uid %u: chown -R it, and all but priv/ beside it",
				dir, names[i], (unsigned)st.st_uid, (unsigned)uid);
	return 0;
}

int records_ready(int dirfd, const char *dir, uid_t uid, gid_t gid, struct err *e)
{
	_cleanup_close_ int fd = -1;

	if (check_owners(dirfd, dir, uid, e) < 0)
		return -1;
	if (faccessat(dirfd, NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (broker_was_here(dirfd))
		return err_set(e, ERR_CONFLICT,
			"state directory \"%s\" has lost " NAME ", without which volumes and snapshots there "
			"would be removed: put it back, or move the whole directory away",
			dir);
	fd = openat(dirfd, NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	/* Synced, or a power cut could leave the folder without the file. */
	if (fd < 0 || fchown(fd, uid, gid) < 0 || fsync(fd) < 0 || fsync(dirfd) < 0)
		return err_sys(e, errno, NAME " in \"%s\"", dir);
	return 0;
}
