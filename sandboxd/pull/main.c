/* SPDX-License-Identifier: MIT */
/* sbx-pull fetches images with skopeo for a server that may not start a program. It begins as root
 * to make its mounts and process ids, and the cells in which the tool will run; then it is the front's user without
 * any right, and reads its first request. */
#include "sandboxd/pull/parts.h"

#include "common/sys/caps.h"
#include "common/sys/core.h"
#include "common/sys/fd.h"
#include "common/sys/mem.h"
#include "common/sys/mounts.h"
#include "common/sys/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_GROUP 65534 /* of the runs */

struct args {
	uid_t uid;
	gid_t gid;
	uid_t cells; /* the first of PULL_CELLS */
	const char *state;
};

static int fail(const char *what)
{
	fprintf(stderr, "<error> sbx-pull: %s: %s\n", what, strerror(errno));
	return -1;
}

static int usage(void)
{
	fprintf(stderr, "usage: sbx-pull UID GID CELLS_UID STATE_DIR STALL_SECS p|-\n"
			"sbx-pull is started by sandboxd; it is not run by hand.\n");
	return 2;
}

static bool number(const char *s, unsigned long *ret)
{
	char *end;

	*ret = strtoul(s, &end, 10);
	return *s && !*end;
}

static int parse(int argc, char **argv, struct args *a, struct pull_conf *conf)
{
	unsigned long uid, gid, cells, stall;

	if (argc != 7 || !number(argv[1], &uid) || !number(argv[2], &gid) || !number(argv[3], &cells) ||
		!number(argv[5], &stall) || uid == 0 || gid == 0 || cells == 0 || stall == 0 ||
		stall > PULL_STALL_MAX)
		return -1;
	a->uid = (uid_t)uid;
	a->gid = (gid_t)gid;
	a->cells = (uid_t)cells;
	a->state = argv[4];
	conf->stall_secs = (int)stall;
	conf->allow_private = strcmp(argv[6], "p") == 0;
	return 0;
}

/* --- mounts ---------------------------------------------------------------------------------- */

/* One for each cell, for what it is lent. Root's, and we write to it by our group, which a run has not: it can neither
 * take what it was lent away from there, nor leave anything beside it. */
static int make_lent(int pull, const struct args *a)
{
	char name[32];

	for (int i = 0; i < PULL_CELLS; i++) {
		snprintf(name, sizeof(name), PULL_LENT, i);
		if (mkdirat(pull, name, 0700) < 0 ||
			fchownat(pull, name, 0, a->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
			fchmodat(pull, name, 0775, 0) < 0)
			return -1;
	}
	return 0;
}

/* What an earlier run left there, and the folder itself. The current directory is the state's. */
static int make_folder(const struct args *a)
{
	const struct dirent *de;
	DIR *d;
	int fd;

	if (mkdir("pull", 0700) < 0 && errno != EEXIST)
		return fail("make the folder pull");
	fd = open("pull", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return fail("open the folder pull");
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			(void)tree_remove(fd, de->d_name);
	if (fchown(fd, a->uid, a->gid) < 0 || fchmod(fd, 0700) < 0 || make_lent(fd, a) < 0) {
		closedir(d);
		return fail("own the folder pull");
	}
	closedir(d);
	return 0;
}

/* Before: the current directory is the state's, in this mount namespace. */
static int make_mounts(const struct args *a)
{
	_cleanup_free_ char *state = getcwd(NULL, 0);
	_cleanup_close_ int pull = -1;

	if (!state || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail("make mounts private");
	mounts_leave((const char *const[]){ state, NULL });
	if (make_folder(a) < 0)
		return -1;
	pull = (int)syscall(SYS_open_tree, AT_FDCWD, "pull", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (pull < 0)
		return fail("clone the folder pull");
	/* The state's secrets are out of reach, and so are other people's temporary files. */
	if (mount("none", a->state, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		    "size=4k,mode=0700") < 0)
		return fail("hide the state directory");
	if (mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=0755") <
			0 ||
		mkdir(PULL_ROOT, 0755) < 0 || mkdir(PULL_NEW, 0755) < 0)
		return fail("make an own /tmp");
	if (syscall(SYS_move_mount, pull, "", AT_FDCWD, PULL_ROOT, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return fail("mount the folder pull");
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return fail("mount an own /proc");
	return 0;
}

/* --- rights ---------------------------------------------------------------------------------- */

int pull_prepare_drop(void)
{
	const struct rlimit none = { CORE_NEVER, CORE_NEVER };

	int r = caps_bound(0);

	if (r == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0))
		r = -errno;
	if (r < 0)
		errno = -r;
	return r;
}

int pull_drop(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		return -1;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) /* also where the host has set fs.suid_dumpable */
		return -1;
	if (setuid(0) < 0)
		return 0;
	errno = EEXIST; /* could go back to root */
	return -1;
}

/* --- cells ------------------------------------------------------------------------------------ */

static int start_cells(const struct args *a, struct cell cells[PULL_CELLS], int listeners[PULL_CELLS])
{
	gid_t gid = a->gid == NO_GROUP ? NO_GROUP - 1 : NO_GROUP;
	struct cell_user u = { .own = true };
	char path[64];

	for (int i = 0; i < PULL_CELLS; i++) {
		snprintf(path, sizeof(path), PULL_ROOT "/" PULL_LENT, i);
		u = (struct cell_user){ .uid = a->cells + (uid_t)i, .gid = gid };
		_cleanup_close_ int lent = cell_lent(path, a->uid, a->gid, &u);
		if (lent < 0 || cell_start(i, &u, lent, &cells[i], &listeners[i]) < 0)
			return fail("start a cell");
	}
	if (!u.own)
		fprintf(stderr, "<warning> sbx-pull: the file system of the state directory cannot shift ids: "
				"the tool runs as the server's user\n");
	return 0;
}

static int open_ways(const struct pull_conf *conf, struct cell cells[PULL_CELLS],
	const int listeners[PULL_CELLS])
{
	char name[32];

	if (proxy_start(conf) < 0)
		return fail("start the proxy");
	for (int i = 0; i < PULL_CELLS; i++) {
		snprintf(name, sizeof(name), PULL_LENT, i);
		cells[i].dirfd = openat(
			conf->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (cells[i].dirfd < 0 || proxy_add(i, listeners[i]) < 0)
			return fail(name);
	}
	return 0;
}

/* First process of a process namespace: when it ends, for whatever reason, the cells end with it. */
static int live(const struct args *a, struct pull_conf *conf)
{
	const struct pull_ans ready = { .magic = PULL_MAGIC, .result = PULL_OK };
	struct cell cells[PULL_CELLS];
	int listeners[PULL_CELLS];

	signal(SIGPIPE, SIG_IGN);
	if (make_mounts(a) < 0 || start_cells(a, cells, listeners) < 0)
		return 1;
	signal(SIGCHLD, SIG_IGN); /* that one has ended is seen by its socket */
	if (pull_prepare_drop() < 0 || pull_drop(a->uid, a->gid) < 0)
		return fail("give up rights") < 0;
	umask(077);
	if (chdir(PULL_ROOT) < 0)
		return fail(PULL_ROOT) < 0;
	conf->dirfd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (conf->dirfd < 0)
		return fail(PULL_ROOT) < 0;
	if (open_ways(conf, cells, listeners) < 0)
		return 1;
	if (send(PULL_FD_FRONT, &ready, sizeof(ready), MSG_NOSIGNAL) != sizeof(ready))
		return 0;
	jobs_serve(conf, cells);
	return 0;
}

int main(int argc, char **argv)
{
	struct pull_conf conf = { .dirfd = -1 };
	struct args a;
	pid_t pid;

	if (parse(argc, argv, &a, &conf) < 0)
		return usage();
	if (geteuid() != 0) {
		fprintf(stderr, "<error> sbx-pull: needs root\n");
		return 1;
	}
	umask(022);
	if (fcntl(PULL_FD_FRONT, F_SETFD, FD_CLOEXEC) < 0 || fchdir(PULL_FD_STATE) < 0)
		return usage();
	close(PULL_FD_STATE);
	if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) < 0)
		return fail("make namespaces") < 0;
	pid = fork();
	if (pid == 0)
		_exit(live(&a, &conf));
	/* At once: what a library wants to do at an exit, it could not do between the namespaces. */
	_exit(pid < 0 ? fail("start") < 0 : 0);
}
