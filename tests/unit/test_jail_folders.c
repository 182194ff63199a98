/* SPDX-License-Identifier: MIT */
/* What a jail holds leads nowhere: its root bounds a walk that meets it, and no walk that begins at another mount. The
 * jails are the real ones, of every kind; in the place of jail_drop, when all is open, stands somebody who has taken
 * one over and climbs from each folder by "..", under the filter and with the rights that are left. */
#include "common/sys/tree.h"
#include "sandboxd/priv/jail.h"
#include "sandboxd/priv/root.h"
#include "sandboxd/priv/unpack.h"
#include "sandboxd/priv/works.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MOST 64
#define UP_MOST  100

int __real_jail_drop(uint64_t caps, const struct jail_limit *most, size_t n, const struct filter *flt, struct fail *f);
int __wrap_jail_drop(uint64_t caps, const struct jail_limit *most, size_t n, const struct filter *flt, struct fail *f);

static struct seen {
	int folders;     /* that were climbed from */
	int out;         /* the descriptor that led further than it may, or -1 */
	int write_error; /* of a folder made below the jail's root */
	int result;
} *seen; /* by the test, which shares it with the jail */
static struct stat area; /* what the copier reads lies in: the sandbox's own */

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Where ".." ends that begins there: what is its own parent. */
static int climb(int from, struct stat *end)
{
	int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat before = { 0 };

	for (int i = 0; fd >= 0 && i < UP_MOST; i++) {
		int up = fstat(fd, end) == 0 ? openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
		close(fd);
		fd = up;
		if (i > 0 && same(end, &before)) {
			close(fd);
			return 0;
		}
		before = *end;
	}
	return -1;
}

static void look(int fd)
{
	struct stat self, end, root;

	if (fstat(fd, &self) < 0 || !S_ISDIR(self.st_mode))
		return;
	seen->folders++;
	if (stat("/", &root) < 0 || climb(fd, &end) < 0 ||
		(!same(&end, &root) && !same(&end, &self) && !same(&end, &area)))
		seen->out = fd;
}

int __wrap_jail_drop(uint64_t caps, const struct jail_limit *most, size_t n, const struct filter *flt, struct fail *f)
{
	int r = __real_jail_drop(caps, most, n, flt, f);

	for (int fd = 0; r == 0 && fd < FDS_MOST; fd++)
		look(fd);
	if (r == 0)
		seen->write_error = mkdir("/taken", 0700) < 0 ? errno : 0;
	return r;
}

static struct build_env env;
#define ABOVE "/var/tmp/"
static char dir[] = ABOVE "sbx-jail-XXXXXX";

static int finish(uint32_t n)
{
	static const uint32_t chain[] = { 1, 2 };
	const struct unpack_env e = { -1, env.layers, &env.jail_filter };
	const struct unpack_job job = { .kind = UNPACK_FINISH, .in = -1, .name = "9", .nchain = n, .chain = chain };
	struct unpack_result ret = { .bytes = 0 };

	return unpack_import(&e, &job, &ret);
}

static int finish_one(void) { return finish(1); }
static int finish_two(void) { return finish(2); }

/* The least that is an archive: zeros. */
static int unpack(enum unpack_kind kind)
{
	const struct unpack_env e = { -1, env.layers, &env.jail_filter };
	const struct unpack_job job = { .kind = kind, .in = jail_memory(10240), .name = "9" };
	struct unpack_result ret = { .bytes = 0 };

	return unpack_import(&e, &job, &ret);
}

static int unpack_rootfs(void) { return unpack(UNPACK_ROOTFS); }
static int unpack_oci(void) { return unpack(UNPACK_OCI); }

/* As seal.c opens them. */
static int copy(void)
{
	struct fail f = { 0 };
	int mnt = root_clone_of(env.layers, "area"), from = open_below(mnt, "upper", O_RDONLY | O_DIRECTORY, 0);
	int to = dir_make(env.layers, "9", 0700);

	close(mnt);
	return from < 0 || to < 0 ? -EBADF : seal_copy(&env, from, to, 64, &f);
}

static const struct {
	const char *name;
	int (*run)(void);
	int write_error;
} rows[] = {
	{ "a root", unpack_rootfs, 0 },
	{ "a layer", unpack_oci, 0 },
	{ "what finishes one layer", finish_one, EROFS },
	{ "what finishes two", finish_two, EROFS },
	{ "the copier", copy, 0 },
};

static void a_row(size_t i)
{
	int status = 0;

	assert_int_equal(tree_remove(env.layers, "9"), 0); /* the row before's */
	*seen = (struct seen){ .out = -1, .result = -1, .write_error = -1 };
	pid_t pid = fork(); /* each makes one jail only */
	if (pid == 0) {
		seen->result = rows[i].run();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	if (seen->out >= 0)
		fail_msg("%s: the descriptor %d leads out", rows[i].name, seen->out);
	if (seen->result != 0 || seen->folders == 0)
		fail_msg("%s: %d, with %d folders", rows[i].name, seen->result, seen->folders);
	if (seen->write_error != rows[i].write_error)
		fail_msg("%s: a folder in its root: %d", rows[i].name, seen->write_error);
}

static void no_folder_of_a_jail_leads_out(void **state)
{
	struct fail f = { 0 };

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(filter_compile(&env.jail_filter, FILTER_JAIL, &f), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		a_row(i);
}

static int make_folders(void **state)
{
	static const char *const names[] = { "1", "2", "area", "area/upper", "area/upper/a", "area/work" };

	(void)state;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED || !mkdtemp(dir))
		return -1;
	env.layers = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (mkdirat(env.layers, names[i], 0755) < 0)
			return -1;
	return fstatat(env.layers, "area", &area, 0);
}

static int remove_folders(void **state)
{
	_cleanup_close_ int above = open(ABOVE, O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	return tree_remove(above, dir + strlen(ABOVE));
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(
		no_folder_of_a_jail_leads_out, make_folders, remove_folders) };

	return run_table(tests);
}
