/* SPDX-License-Identifier: MIT */
#include "tests/support/priv_rig.h"

#include "common/sys/fd.h"
#include "common/sys/fnv.h"
#include "tests/support/guest_rig.h"
#include "tests/support/linux_rig.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 60000 /* a loaded machine builds its first sandbox slowly */

const char *priv_rig_missing(void)
{
	if (geteuid() != 0)
		return "needs root";
	if (access("/dev/loop-control", F_OK) < 0)
		return "needs /dev/loop-control";
	return NULL;
}

/* --- broker ---------------------------------------------------------------------------------- */

static void exec_broker(const struct priv_rig *r, int sock)
{
	char program[4200], state[128], uid[16];
	int s = fcntl(sock, F_DUPFD, 16), d = fcntl(r->state_dirfd, F_DUPFD, 16);

	if (dup2(s, PRIV_FD_FRONT) < 0 || dup2(d, PRIV_FD_STATE) < 0)
		_exit(126);
	close_range(PRIV_FD_STATE + 1, ~0u, 0);
	snprintf(program, sizeof(program), "%s/sbx-priv", guest_rig_libexec());
	snprintf(state, sizeof(state), "%s/state", r->dir);
	snprintf(uid, sizeof(uid), "%u", PRIV_RIG_FRONT);
	if (r->trace)
		execlp("strace", "strace", "-D", "-f", "-y", "-s", "256", "-o", r->trace, "-e",
			"trace=%file,mount,umount2,move_mount,fsopen,fsmount,open_tree,mknodat,"
			"fchmod,fchown,ftruncate,pivot_root,setns,clone,clone3,fork,vfork",
			program, guest_rig_libexec(), state, uid, uid, "-", NULL);
	else
		execl(program, "sbx-priv", guest_rig_libexec(), state, uid, uid, "-", NULL);
	_exit(127);
}

static void start_broker(struct priv_rig *r)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	r->broker = fork();
	assert_true(r->broker >= 0);
	if (r->broker == 0)
		exec_broker(r, sv[1]);
	close(sv[1]);
	r->fd = sv[0];
}

static void put_file(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, text, strlen(text)), 0);
}

/* What hostile names would lead to, were they followed. */
static void plant_canaries(struct priv_rig *r)
{
	static const char *const dirs[] = { "run", "priv", "boxes", "layers", "areas", "empty" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdirat(r->canary_dirfd, dirs[i], 0755), 0);
	/* These anybody could write, so that only not following keeps them as they are. */
	assert_int_equal(fchmodat(r->canary_dirfd, "empty", 0777, 0), 0);
	assert_int_equal(fchmodat(r->canary_dirfd, "run", 0777, 0), 0);
	put_file(r->canary_dirfd, "file", "untouched\n");
	put_file(r->canary_dirfd, "sock", "no socket\n");
	put_file(r->canary_dirfd, "priv/lock", "not yours\n");
	put_file(r->canary_dirfd, "boxes/sbx_c", "no record\n");
	put_file(r->canary_dirfd, "layers/1", "no layer\n");
}

void priv_rig_open(struct priv_rig *r)
{
	int top;

	strcpy(r->dir, "/var/tmp/sbx-priv-XXXXXX");
	assert_non_null(mkdtemp(r->dir));
	assert_int_equal(chmod(r->dir, 0755), 0);
	top = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(top, "state", 0700), 0);
	assert_int_equal(mkdirat(top, "canary", 0755), 0);
	r->state_dirfd = openat(top, "state", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r->canary_dirfd = openat(top, "canary", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	close(top);
	assert_int_equal(mkdirat(r->state_dirfd, "run", 0700), 0);
	assert_int_equal(fchownat(r->state_dirfd, "run", PRIV_RIG_FRONT, PRIV_RIG_FRONT, 0), 0);
	assert_int_equal(fchown(r->state_dirfd, PRIV_RIG_FRONT, PRIV_RIG_FRONT), 0);
	plant_canaries(r);
	start_broker(r);
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void priv_rig_restart(struct priv_rig *r)
{
	kill(r->broker, SIGKILL);
	close(r->fd);
	reap(r->broker);
	start_broker(r);
}

static void remove_tree(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, "..") &&
			unlinkat(fd, de->d_name, 0) < 0)
			remove_tree(fd, de->d_name);
	if (d)
		closedir(d);
	(void)unlinkat(at, name, AT_REMOVEDIR);
}

static void groups_name(const struct priv_rig *r, char name[RIG_GROUPS_NAME])
{
	char state[128];

	snprintf(state, sizeof(state), "%s/state", r->dir);
	rig_groups_name(name, state);
}

/* Processes whose control group or command line names this rig's folder or its groups. */
static unsigned count_left(const struct priv_rig *r)
{
	char base[RIG_GROUPS_NAME], path[300], line[4096];
	DIR *d = opendir("/proc");
	struct dirent *de;
	unsigned n = 0;

	groups_name(r, base);
	while (d && (de = readdir(d))) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cgroup", de->d_name);
		FILE *f = fopen(path, "re");
		bool ours = false;
		while (f && fgets(line, sizeof(line), f))
			ours = ours || strstr(line, base);
		if (f)
			fclose(f);
		n += ours;
	}
	if (d)
		closedir(d);
	return n;
}

void priv_rig_close(struct priv_rig *r)
{
	struct timespec pause = { .tv_nsec = 20000000 };
	struct priv_req q = priv_rig_req(PRIV_SWEEP, "");
	int64_t end = mono_ms() + patience_ms(60000);
	char base[RIG_GROUPS_NAME];

	if (priv_rig_alive(r))
		(void)priv_rig_ask(r, &q, NULL, 0); /* nothing was kept: all of it ends */
	close(r->fd);
	reap(r->broker);
	while (count_left(r) > 0 && mono_ms() < end)
		nanosleep(&pause, NULL);
	close(r->state_dirfd);
	close(r->canary_dirfd);
	unsigned left = count_left(r);
	remove_tree(AT_FDCWD, r->dir);
	if (left)
		fail_msg("%u processes of the broker or its sandboxes are left", left);
	groups_name(r, base);
	rig_groups_gone(base);
}

void priv_rig_again(struct priv_rig *r)
{
	char base[RIG_GROUPS_NAME];

	close(r->fd);
	reap(r->broker);
	groups_name(r, base);
	rig_groups_gone(base);
	start_broker(r);
}

void priv_rig_ready(struct priv_rig *r)
{
	struct priv_req sweep = priv_rig_req(PRIV_SWEEP, "");
	struct priv_req import = { .magic = PRIV_MAGIC, .op = PRIV_LAYER_IMPORT,
		.num = PRIV_RIG_LAYER };
	char path[4200];
	int r2;

	assert_int_equal(priv_rig_ask(r, &sweep, NULL, 0), 0);
	if (getenv("SBX_IMAGES"))
		snprintf(path, sizeof(path), "%s/base.tar", getenv("SBX_IMAGES"));
	else
		snprintf(path, sizeof(path), "%s/../images/base.tar", guest_rig_libexec());
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s", path);
	r2 = priv_rig_ask(r, &import, &fd, 1);
	assert_true(r2 == 0 || r2 == EEXIST);
}

/* --- talk ------------------------------------------------------------------------------------ */

struct priv_req priv_rig_req(uint32_t op, const char *id)
{
	struct priv_req q = { .magic = PRIV_MAGIC, .op = op };

	snprintf(q.id, sizeof(q.id), "%s", id);
	if (op != PRIV_CREATE && op != PRIV_EXPECT && op != PRIV_POOL)
		return q;
	if (op == PRIV_CREATE)
		strcpy(q.hostname, "box");
	q.generation = 7;
	q.cpu_milli = 1000;
	q.memory_mb = 128;
	q.disk_mb = 64;
	q.nchain = 1;
	q.chain[0] = PRIV_RIG_LAYER;
	return q;
}

int priv_rig_send(struct priv_rig *r, const void *buf, size_t len, const int *fds, size_t nfds)
{
	union {
		char buf[CMSG_SPACE(128 * sizeof(int))];
		struct cmsghdr align;
	} ctl = { .buf = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	assert_true(nfds <= 128);
	if (nfds) {
		m.msg_control = ctl.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	return sendmsg(r->fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool priv_rig_next(struct priv_rig *r, struct priv_ans *ret, int ms)
{
	if (!fd_wait(r->fd, POLLIN, ms))
		return false;
	return recv(r->fd, ret, sizeof(*ret), 0) == sizeof(*ret) && ret->magic == PRIV_MAGIC;
}

int priv_rig_ask(struct priv_rig *r, struct priv_req *q, const int *fds, size_t nfds)
{
	int64_t end = mono_ms() + patience_ms(ANSWER_MS);
	struct priv_ans a;

	q->tag = ++r->tag;
	if (priv_rig_send(r, q, sizeof(*q), fds, nfds) < 0)
		return -1;
	while (mono_ms() < end && priv_rig_next(r, &a, (int)(end - mono_ms()))) {
		if (a.tag != q->tag)
			continue;
		assert_int_equal(a.op, q->op);
		assert_int_equal(a.error == 0, a.text[0] == '\0');
		return a.error;
	}
	return -1;
}

void priv_rig_run_dir(struct priv_rig *r, const char *id)
{
	char path[128];

	snprintf(path, sizeof(path), "run/%s", id);
	if (mkdirat(r->state_dirfd, path, 0700) == 0)
		assert_int_equal(
			fchownat(r->state_dirfd, path, PRIV_RIG_FRONT, PRIV_RIG_FRONT, 0), 0);
}

void priv_rig_box(struct priv_rig *r, const char *id)
{
	struct priv_req q = priv_rig_req(PRIV_CREATE, id);

	priv_rig_run_dir(r, id);
	assert_int_equal(priv_rig_ask(r, &q, NULL, 0), 0);
}

/* --- what it has ----------------------------------------------------------------------------- */

bool priv_rig_alive(struct priv_rig *r)
{
	return waitpid(r->broker, NULL, WNOHANG) == 0;
}

unsigned priv_rig_fds(struct priv_rig *r)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", r->broker);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

long priv_rig_rss_kib(struct priv_rig *r)
{
	char path[64], line[256];
	long kib = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", r->broker);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		(void)sscanf(line, "VmRSS: %ld", &kib);
	fclose(f);
	return kib;
}

/* The order of a folder's entries does not change while nobody changes it. */
static uint64_t look(int at, const char *name, uint64_t h)
{
	struct stat st;
	char buf[64] = "";
	int fd;

	assert_int_equal(fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	h = fnv64(h, name, strlen(name));
	h = fnv64(h, &st.st_mode, sizeof(st.st_mode));
	h = fnv64(h, &st.st_uid, sizeof(st.st_uid));
	h = fnv64(h, &st.st_size, sizeof(st.st_size));
	h = fnv64(h, &st.st_ctim, sizeof(st.st_ctim));
	fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	assert_true(fd >= 0);
	if (!S_ISDIR(st.st_mode)) {
		(void)!read(fd, buf, sizeof(buf));
		close(fd);
		return fnv64(h, buf, sizeof(buf));
	}
	DIR *d = fdopendir(fd);
	for (struct dirent *de; (de = readdir(d));)
		if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
			h = look(dirfd(d), de->d_name, h);
	closedir(d);
	return h;
}

uint64_t priv_rig_canaries(struct priv_rig *r)
{
	return look(r->canary_dirfd, ".", 1469598103934665603u);
}
