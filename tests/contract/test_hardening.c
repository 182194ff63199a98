/* SPDX-License-Identifier: MIT */
/* The hardening checklist: tests/linux/attack runs inside a sandbox, once as the sandbox user and
 * once as guest root (by a broker built for that), and every attempt must end as this table says.
 * One row, one test. Skipped with a reason when not root. */
#include "tests/support/linux_rig.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

/* want: the answers that are right, between bars */
struct row {
	const char *name, *want;
};
static const struct row rows[] = {
	{ "descriptors", "|only-0-1-2|" },
	{ "init-exe", "|EACCES|EPERM|ETXTBSY|" },
	{ "own-exe", "|ETXTBSY|" },
	{ "core-pattern", "|EROFS|EACCES|" },
	{ "modprobe", "|EROFS|EACCES|ENOENT|" },
	{ "sysrq", "|EROFS|EACCES|EPERM|ENOENT|" },
	{ "uevent-helper", "|ENOENT|EROFS|" },
	{ "proc-sys-hostname", "|EROFS|EACCES|" },
	{ "cgroup-creat", "|EROFS|EACCES|EPERM|" },
	{ "release-agent", "|ENOENT|EROFS|EACCES|" },
	{ "sys-creat", "|EROFS|EACCES|" },
	{ "kcore", "|empty|ENOENT|" },
	{ "keys", "|empty|ENOENT|" },
	{ "kallsyms", "|empty|ENOENT|" },
	{ "kmsg", "|empty|" },
	{ "dev-kmsg", "|ENOENT|" },
	{ "dev-fuse", "|ENOENT|" },
	{ "dev-kvm", "|ENOENT|" },
	{ "dev-mem", "|ENOENT|" },
	{ "dev-loop", "|ENOENT|" },
	{ "dev-creat", "|EACCES|EPERM|" },
	{ "dev-unlink", "|EACCES|EPERM|" },
	{ "dev-chmod", "|EACCES|EPERM|" },
	{ "dev-rename", "|EACCES|EPERM|EBUSY|" },
	{ "mknod-char", "|EPERM|" },
	{ "mknod-block", "|EPERM|" },
	{ "ptrace-init", "|EPERM|" },
	{ "ptrace-seize-init", "|EPERM|" },
	{ "vm-read-init", "|EPERM|" },
	{ "mem-of-init", "|EACCES|EPERM|" },
	{ "environ-of-init", "|EACCES|EPERM|" },
	{ "root-of-init", "|EACCES|EPERM|" },
	{ "cwd-of-init", "|EACCES|EPERM|" },
	{ "mount", "|EPERM|" },
	{ "umount", "|EPERM|" },
	{ "pivot-root", "|EPERM|" },
	{ "fsopen", "|EPERM|ENOSYS|" },
	{ "open-tree", "|EPERM|ENOSYS|" },
	{ "move-mount", "|EPERM|ENOSYS|" },
	{ "mount-setattr", "|EPERM|ENOSYS|" },
	{ "io-uring", "|EPERM|ENOSYS|" },
	{ "bpf", "|EPERM|" },
	{ "perf", "|EPERM|" },
	{ "userfaultfd", "|EPERM|" },
	{ "keyctl", "|EPERM|" },
	{ "add-key", "|EPERM|" },
	{ "request-key", "|EPERM|" },
	{ "open-by-handle", "|EPERM|" },
	{ "kexec", "|EPERM|" },
	{ "init-module", "|EPERM|" },
	{ "finit-module", "|EPERM|" },
	{ "delete-module", "|EPERM|" },
	{ "swapon", "|EPERM|" },
	{ "quotactl", "|EPERM|" },
	{ "fanotify", "|EPERM|" },
	{ "acct", "|EPERM|" },
	{ "reboot", "|EPERM|" },
	{ "unknown-call", "|ENOSYS|" },
	{ "x32-call", "|SIGSYS|" },
	{ "int80-call", "|SIGSYS|" },
	{ "netfilter", "|EPROTONOSUPPORT|EPERM|" },
	{ "audit", "|EPROTONOSUPPORT|EPERM|" },
	{ "route", "|OK|" },
	{ "packet", "|EAFNOSUPPORT|EPERM|" },
	{ "raw", "|EPERM|" },
	{ "vsock", "|EAFNOSUPPORT|EPERM|" },
	{ "alg", "|EAFNOSUPPORT|EPERM|" },
	{ "vsock-high-bits", "|EAFNOSUPPORT|EPERM|" },
	{ "interface-down", "|EPERM|" },
	{ "metadata-address", "|ENETUNREACH|" },
	{ "private-address", "|ENETUNREACH|" },
	{ "public-address", "|ENETUNREACH|" },
	{ "loopback", "|ECONNREFUSED|" },
	{ "tiocsti", "|EPERM|" },
	{ "tiocsti-high-bits", "|EPERM|" },
	{ "tioclinux", "|EPERM|" },
	{ "tioclinux-high-bits", "|EPERM|" },
	{ "subvolume", "|ENOTTY|" },
	{ "clock-set", "|EPERM|" },
	{ "sethostname", "|EPERM|" },
	{ "dmesg", "|EPERM|" },
	{ "nice", "|EACCES|EPERM|" },
	{ "fifo", "|EPERM|" },
	{ "kill-far", "|ESRCH|" },
	{ "raise-core", "|EPERM|" },
	{ "strong-capabilities", "|none|" },
	{ "unshare-user", "|EPERM|" },
	{ "unshare-mnt", "|EPERM|" },
	{ "unshare-net", "|EPERM|" },
	{ "unshare-pid", "|EPERM|" },
	{ "unshare-ipc", "|EPERM|" },
	{ "unshare-uts", "|EPERM|" },
	{ "unshare-cgroup", "|EPERM|" },
	{ "unshare-time", "|EPERM|" },
	{ "clone-user", "|EPERM|" },
	{ "clone-mnt", "|EPERM|" },
	{ "clone-net", "|EPERM|" },
	{ "clone-pid", "|EPERM|" },
	{ "clone-ipc", "|EPERM|" },
	{ "clone-uts", "|EPERM|" },
	{ "clone-cgroup", "|EPERM|" },
	{ "clone3", "|ENOSYS|" },
	{ "setns", "|EPERM|" },
	{ "max-user-namespaces", "|0|" },
	{ "end", "|OK|" },
};

/* The off-test: guest root without any system call filter. What another barrier stops as well. */
static const struct row bare_rows[] = {
	{ "init-exe", "|EACCES|EPERM|ETXTBSY|" },
	{ "core-pattern", "|EROFS|EACCES|" },
	{ "proc-sys-hostname", "|EROFS|EACCES|" },
	{ "cgroup-creat", "|EROFS|EACCES|EPERM|" },
	{ "dev-creat", "|EACCES|EPERM|" },
	{ "dev-unlink", "|EACCES|EPERM|" },
	{ "dev-chmod", "|EACCES|EPERM|" },
	{ "mknod-char", "|EPERM|" },
	{ "mknod-block", "|EPERM|" },
	{ "ptrace-init", "|EPERM|" },
	{ "ptrace-seize-init", "|EPERM|" },
	{ "vm-read-init", "|EPERM|" },
	{ "mem-of-init", "|EACCES|EPERM|" },
	{ "environ-of-init", "|EACCES|EPERM|" },
	{ "mount", "|EPERM|EFAULT|EINVAL|" },
	{ "umount", "|EPERM|EFAULT|EINVAL|" },
	{ "pivot-root", "|EPERM|EFAULT|" },
	{ "fsopen", "|EPERM|EFAULT|" },
	{ "bpf", "|EPERM|EINVAL|" },
	{ "kexec", "|EPERM|ENOSYS|" },
	{ "init-module", "|EPERM|ENOSYS|" },
	{ "finit-module", "|EPERM|ENOSYS|" },
	{ "delete-module", "|EPERM|ENOSYS|" },
	{ "swapon", "|EPERM|ENOSYS|" },
	{ "acct", "|EPERM|ENOSYS|" },
	{ "reboot", "|EPERM|EINVAL|" },
	{ "packet", "|EPERM|EAFNOSUPPORT|" },
	{ "raw", "|EPERM|" },
	{ "interface-down", "|EPERM|" },
	{ "metadata-address", "|ENETUNREACH|" },
	{ "clock-set", "|EPERM|" },
	{ "sethostname", "|EPERM|" },
	{ "dmesg", "|EPERM|" },
	{ "fifo", "|EPERM|" },
	{ "strong-capabilities", "|none|" },
	{ "unshare-user", "|ENOSPC|" },
	{ "unshare-mnt", "|EPERM|ENOSPC|" },
	{ "unshare-net", "|EPERM|ENOSPC|" },
	{ "unshare-pid", "|EPERM|ENOSPC|" },
	{ "clone-user", "|ENOSPC|" },
	{ "clone-net", "|EPERM|ENOSPC|" },
	{ "end", "|OK|" },
};

static struct linux_rig rig;
static bool as_root;
static char *answers; /* of one run of all attacks */

/* --- getting the program in --------------------------------------------------------------------
 */

static char *load(const char *path, size_t *len)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	char *buf;

	if (!f || fstat(fileno(f), &st) < 0)
		fail_msg("%s is not built", path);
	buf = malloc((size_t)st.st_size);
	*len = fread(buf, 1, (size_t)st.st_size, f);
	fclose(f);
	return buf;
}

static void put_program(struct box *b)
{
	static const char *const argv[] = { "sh", "-c", "cat > attack && chmod 755 attack", NULL };
	struct guest_start s = box_cmd(b, argv);
	char exe[PATH_MAX] = "", path[PATH_MAX + 32];
	struct err e = ERR_NULL;
	size_t len;

	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	snprintf(path, sizeof(path), "%s/linux/attack", dirname(dirname(exe)));
	_cleanup_free_ char *data = load(path, &len);
	s.stdin_data = data;
	s.stdin_len = len;
	uint32_t num = box_start(b, &s, &e);
	if (!num)
		fail_msg("%s", e.msg);
	assert_true(box_wait_exit(b, num, 10000));
}

static int run_attacks(void **state)
{
	struct box *b = box_new(&rig.rig);
	struct spooled o;

	(void)state;
	put_program(b);
	box_run(b, "id -u", &o); /* who it really is */
	assert_string_equal(o.out[0], as_root ? "0\n" : "1001\n");
	spooled_free(&o);
	box_run(b, "./attack </dev/null", &o);
	answers = strdup(o.out[0]);
	spooled_free(&o);
	box_run(b, "echo usable", &o); /* and the sandbox is none the worse for it */
	assert_string_equal(o.out[0], "usable\n");
	spooled_free(&o);
	box_free(b);
	return 0;
}

/* --- rows --------------------------------------------------------------------------------------
 */

static bool answer_of(const char *name, char *buf, size_t size)
{
	size_t n = strlen(name);

	for (const char *p = answers; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, name, n) == 0 && p[n] == ' ') {
			snprintf(buf, size, "|%.*s|", (int)strcspn(p + n + 1, "\n"), p + n + 1);
			return true;
		}
	return false;
}

static void attack_fails(void **state)
{
	const struct row *r = *state;
	char got[128];

	if (!answer_of(r->name, got, sizeof(got)))
		fail_msg("no answer");
	if (!strstr(r->want, got))
		fail_msg("ended with %s, wanted one of %s", got, r->want);
}

static void nothing_crosses_between_two_sandboxes(void **state)
{
	struct box *a = box_new(&rig.rig), *b = box_new(&rig.rig);
	struct spooled o;

	(void)state;
	put_program(a);
	put_program(b);
	uint32_t server =
		box_sh(a, "echo secret > /dev/shm/x; echo secret > /tmp/x; ./attack serve");
	assert_true(box_wait_output(a, server, "serving OK", 5000));
	box_run(b, "./attack reach; ls /dev/shm /tmp; ls /sandbox/home", &o);
	assert_non_null(strstr(o.out[0], "reach ECONNREFUSED"));
	assert_null(strstr(o.out[0], "\nx\n"));
	spooled_free(&o);
	box_run(a, "./attack reach", &o); /* the same attempt works inside: the test can fail */
	assert_string_equal(o.out[0], "reach OK\n");
	spooled_free(&o);
	box_free(a);
	box_free(b);
}

static void a_whole_kill_stays_inside(void **state)
{
	struct box *a = box_new(&rig.rig), *b = box_new(&rig.rig);
	struct spooled o;

	(void)state;
	uint32_t n = box_sh(a, "kill -9 -1; sleep 0.1; kill -9 1");
	assert_true(box_wait_exit(a, n, 5000));
	box_run(b, "echo untouched", &o);
	assert_string_equal(o.out[0], "untouched\n");
	spooled_free(&o);
	box_free(a);
	box_free(b);
}

static int run_rows(const char *title, const struct row *list, size_t count)
{
	static struct CMUnitTest tests[ARRAY_LEN(rows) + 2];
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		tests[n++] = (struct CMUnitTest){ .name = list[i].name,
			.test_func = attack_fails,
			.initial_state = (void *)(uintptr_t)&list[i] };
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(nothing_crosses_between_two_sandboxes);
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_whole_kill_stays_inside);
	return _cmocka_run_group_tests(title, tests, n, run_attacks, NULL);
}

static int run_with(const char *title, const struct row *list, size_t count)
{
	int failed;

	rig = (struct linux_rig){ 0 };
	linux_rig_open(&rig);
	failed = run_rows(title, list, count);
	linux_rig_close(&rig);
	free(answers);
	answers = NULL;
	return failed;
}

/* Another broker, built for the test, with the programs and images of this build. */
static void use_broker(const char *kind)
{
	char exe[PATH_MAX] = "", bin[PATH_MAX + 32], images[PATH_MAX + 32];

	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	const char *out = dirname(dirname(dirname(exe)));
	snprintf(bin, sizeof(bin), "%s/tests/linux/%s", out, kind);
	snprintf(images, sizeof(images), "%s/images", out);
	setenv("SBX_LIBEXEC", bin, 1);
	setenv("SBX_IMAGES", images, 1);
}

int main(void)
{
	const char *why = linux_rig_missing();
	int failed;

	if (why) {
		printf("# SKIP hardening: %s\n", why);
		return 0;
	}
	cmocka_set_test_filter(getenv("T"));
	failed = run_with("attacks as the sandbox user", rows, ARRAY_LEN(rows));
	as_root = true;
	use_broker("root");
	failed += run_with("attacks as guest root", rows, ARRAY_LEN(rows));
	use_broker("bare");
	failed += run_with("attacks without a filter", bare_rows, ARRAY_LEN(bare_rows));
	return failed;
}
