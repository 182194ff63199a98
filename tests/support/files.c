/* SPDX-License-Identifier: MIT */
#include "tests/support/files.h"

#include "common/sys/fd.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* <build>/tests/<kind>/test_x stands beside <build>/bin, and beside the worker with sanitizers if
 * this is such a build. */
static void worker_path(char *out, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *dir = getenv("SBX_LIBEXEC");
	char *tests;

	assert_true(n > 0);
	self[n] = '\0';
	tests = dirname(dirname(self));
	snprintf(out, size, "%s/san/sbx-worker", tests);
	if (access(out, X_OK) == 0)
		return;
	if (dir)
		snprintf(out, size, "%s/sbx-worker", dir);
	else
		snprintf(out, size, "%s/bin/sbx-worker", dirname(tests));
}

static void become_worker(
	const char *path, int control, int root, const char *mode, unsigned expire_secs)
{
	char secs[16];

	snprintf(secs, sizeof(secs), "%u", expire_secs);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* High first: neither may sit where the other goes. */
	int c = fcntl(control, F_DUPFD, 100), d = fcntl(root, F_DUPFD, 100);
	if (dup2(c, 3) != 3 || dup2(d, 4) != 4)
		_exit(126);
	execl(path, "sbx-worker", "1001", "1001", mode, expire_secs ? secs : NULL, (char *)NULL);
	_exit(127);
}

static int dial(void *arg, int *ret_fd, struct err *e)
{
	struct files_rig *r = arg;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, errno, "socketpair");
	int n = fd_send_msg(r->control, "F", 1, &pair[1], 1);
	close(pair[1]);
	if (n < 0) {
		close(pair[0]);
		return err_set(e, ERR_UNAVAILABLE, "worker is gone");
	}
	*ret_fd = pair[0];
	return 0;
}

void files_rig_init(struct files_rig *r, const char *mode, unsigned expire_secs)
{
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX];
	int pair[2];

	tmp = tmp && strlen(tmp) < 30 ? tmp : "/tmp";
	snprintf(r->dir, sizeof(r->dir), "%s/sbxfiles.XXXXXX", tmp);
	snprintf(r->out, sizeof(r->out), "%s/sbxout.XXXXXX", tmp);
	assert_non_null(mkdtemp(r->dir));
	assert_non_null(mkdtemp(r->out));
	worker_path(path, sizeof(path));
	if (access(path, X_OK) < 0)
		fail_msg("%s is not built", path);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	int root = open(r->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(root >= 0);
	r->pid = fork();
	if (r->pid == 0)
		become_worker(path, pair[1], root, mode, expire_secs);
	assert_true(r->pid > 0);
	close(pair[1]);
	close(root);
	r->control = pair[0];
	assert_int_equal(guestfs_new_on(dial, r, &r->fs, NULL), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

void files_rig_remove(const char *dir)
{
	(void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void files_rig_fini(struct files_rig *r)
{
	int status;

	guestfs_free(r->fs);
	close(r->control);
	(void)waitpid(r->pid, &status, 0);
	files_rig_remove(r->dir);
	files_rig_remove(r->out);
}

const char *files_rig_path(struct files_rig *r, const char *fmt, ...)
{
	static char buf[8][PATH_MAX];
	static unsigned next;
	char *p = buf[next++ % 8];
	va_list ap;
	int n = snprintf(p, PATH_MAX, "%s", r->dir);

	va_start(ap, fmt);
	vsnprintf(p + n, (size_t)(PATH_MAX - n), fmt, ap);
	va_end(ap);
	return p;
}

void files_rig_write(const char *path, const void *buf, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, buf, len), 0);
	close(fd);
}

char *files_rig_read(const char *path, size_t *ret_len)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p;

	if (fd < 0)
		return NULL;
	assert_int_equal(fstat(fd, &st), 0);
	p = malloc((size_t)st.st_size + 1);
	assert_non_null(p);
	assert_int_equal(fd_read_full(fd, p, (size_t)st.st_size), 0);
	p[st.st_size] = '\0';
	close(fd);
	if (ret_len)
		*ret_len = (size_t)st.st_size;
	return p;
}

int files_rig_count(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *en;
	int n = -2;

	assert_non_null(d);
	while ((en = readdir(d)))
		n++;
	closedir(d);
	return n;
}

int files_rig_up(void **state)
{
	struct files_rig *r = calloc(1, sizeof(*r));

	files_rig_init(r, "fake", 0);
	*state = r;
	return 0;
}

int files_rig_down(void **state)
{
	struct files_rig *r = *state;

	files_rig_fini(r);
	free(r);
	return 0;
}

struct guestfs_result must(struct files_rig *r, enum files_op op, struct guestfs_args a)
{
	struct err e = ERR_NULL;
	struct guestfs_result res = { .data = NULL };

	if (guestfs_call(r->fs, op, &a, &res, &e) < 0)
		fail_msg("op %d %s: %s", op, a.path ? a.path : "", e.msg);
	return res;
}

void refuses(
	struct files_rig *r, enum files_op op, struct guestfs_args a, enum err_code code, int sys)
{
	struct err e = ERR_NULL;
	struct guestfs_result res = { .data = NULL };

	if (guestfs_call(r->fs, op, &a, &res, &e) == 0)
		fail_msg("op %d %s: was carried out", op, a.path ? a.path : "");
	if (e.code != code || (sys && e.sys != sys))
		fail_msg("op %d %s: %s %d: %s", op, a.path ? a.path : "", err_word(e.code), e.sys,
			e.msg);
}

uint64_t opened(struct files_rig *r, const char *path, unsigned flags)
{
	struct guestfs_result res = must(r, FILES_OPEN,
		(struct guestfs_args){ .path = path, .flags = flags | FILES_FOLLOW, .mode = 0644 });
	uint64_t h = res.handle;

	assert_true(h != 0);
	guestfs_result_free(&res);
	return h;
}

void put(struct files_rig *r, const char *path, const char *text)
{
	MUST(r, FILES_PUT, .path = path, .data = text, .data_len = strlen(text));
}

void assert_file(const char *path, const char *want)
{
	_cleanup_free_ char *got = files_rig_read(path, NULL);

	assert_non_null(got);
	assert_string_equal(got, want);
}
