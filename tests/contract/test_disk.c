/* SPDX-License-Identifier: MIT */
/* Disk areas, layers, snapshots and volumes on real isolation, with each provider that this host can
 * offer: what is promised holds on all of them, and nothing stays behind, whatever is killed. Skipped with
 * a reason when not root. */
#include "sandboxd/priv/priv.h"
#include "tests/support/linux_rig.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static struct linux_rig rig;

#define BASE    1
#define MIDDLE  2
#define TOP     3
static uint32_t next_layer = 100;

static void pause_ms(int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

/* --- layers made by hand ---------------------------------------------------------------------- */

static void import_base(void)
{
	char path[4200];
	int64_t bytes;
	bool covers;
	struct err e = ERR_NULL;

	snprintf(path, sizeof(path), "%s/../images/base.tar", guest_rig_libexec());
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (rig.rig.ops->layer_import(rig.rig.backend, BASE, LAYER_ROOTFS, NULL, fd, &bytes, &covers, &e))
		fail_msg("%s", e.msg);
}

static void put(const char *path, const char *text)
{
	char full[300];

	snprintf(full, sizeof(full), "priv/layers/%s", path);
	_cleanup_close_ int fd =
		openat(rig.rig.state_dirfd, full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void dir(const char *path)
{
	char full[300];

	snprintf(full, sizeof(full), "priv/layers/%s", path);
	assert_int_equal(mkdirat(rig.rig.state_dirfd, full, 0755), 0);
}

static void delete_below(const char *path)
{
	char full[300];

	snprintf(full, sizeof(full), "priv/layers/%s", path);
	assert_int_equal(mknodat(rig.rig.state_dirfd, full, S_IFCHR, 0), 0);
}

static void opaque(const char *path)
{
	char full[400];

	snprintf(full, sizeof(full), "%s/priv/layers/%s", rig.rig.state_dir, path);
	assert_int_equal(setxattr(full, "trusted.overlay.opaque", "y", 1, 0), 0);
}

static void make_layers(void)
{
	mode_t mask = umask(0);

	import_base();
	dir("2"), dir("2/t"), dir("2/t/hidden"), dir("2/t/seen");
	put("2/t/both", "middle"), put("2/t/gone", "x"), put("2/t/only", "middle");
	put("2/t/hidden/a", "x"), put("2/t/seen/a", "middle");
	dir("3"), dir("3/t"), dir("3/t/hidden"), dir("3/t/seen");
	put("3/t/both", "top"), put("3/t/seen/b", "top"), put("3/t/hidden/b", "top");
	delete_below("3/t/gone");
	opaque("3/t/hidden");
	umask(mask);
}

static struct box *new_box(const struct backend_chain *chain, int64_t disk_mb)
{
	struct backend_spec like = { .disk_mb = disk_mb, .chain = chain };

	return box_like(&rig.rig, &like);
}

static const struct backend_chain plain = { .n = 1, .layers = { BASE } };

static void assert_output(struct box *b, const char *script, const char *want)
{
	_cleanup_(spooled_free_p) struct spooled o = { 0 };

	box_run(b, script, &o);
	if (strcmp(o.out[0], want) != 0)
		fail_msg("%s: got \"%s\" \"%s\", wanted \"%s\"", script, o.out[0], o.out[1], want);
}

static uint32_t snapshot_of(const struct box *b, int64_t *bytes)
{
	struct err e = ERR_NULL;
	uint32_t num = next_layer++;

	if (rig.rig.ops->snapshot(rig.rig.backend, b->id, num, bytes, &e) < 0)
		fail_msg("%s", e.msg);
	return num;
}

static void drop_layer(uint32_t num)
{
	struct err e = ERR_NULL;

	if (rig.rig.ops->layer_drop(rig.rig.backend, num, &e) < 0)
		fail_msg("%s", e.msg);
}

/* A script as root in the guest's namespaces, with every capability there: more than any guest has. */
static int as_guest_root(struct box *b, const char *script, char *out, size_t size)
{
	int pidfd = (int)syscall(SYS_pidfd_open, rig.rig.part(&rig.rig, b->id, RIG_INIT), 0);
	int p[2], status;
	size_t n = 0;
	pid_t pid;

	assert_true(pidfd >= 0);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		if (setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
			_exit(99);
		pid = fork();
		if (pid == 0) {
			dup2(p[1], 1);
			dup2(p[1], 2);
			if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
				_exit(98);
			execl("/bin/sh", "sh", "-c", script, NULL);
			_exit(97);
		}
		close(p[1]);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 96);
	}
	close(p[1]);
	close(pidfd);
	for (ssize_t got; n < size - 1 && (got = read(p[0], out + n, size - 1 - n)) > 0;)
		n += (size_t)got;
	out[n] = 0;
	close(p[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* --- areas ------------------------------------------------------------------------------------ */

static void the_size_holds_and_comes_back(void **state)
{
	struct box *b = new_box(&plain, 64);
	_cleanup_(spooled_free_p) struct spooled o = { 0 };

	(void)state;
	box_run(b, "dd if=/dev/zero of=big bs=1M count=200; ls -l big | awk '{print ($5 < 68000000)}'", &o);
	if (!strstr(o.out[1], "No space left") && !strstr(o.out[1], "quota exceeded"))
		fail_msg("nothing refused: %s", o.out[1]);
	assert_string_equal(o.out[0], "1\n");
	assert_output(b, "rm big; dd if=/dev/zero of=again bs=1M count=40 2>/dev/null && echo ok", "ok\n");
	box_free(b);
}

static void one_full_disk_is_not_anothers(void **state)
{
	struct box *a = new_box(&plain, 32), *b = new_box(&plain, 64);

	(void)state;
	assert_output(a, "dd if=/dev/zero of=big bs=1M count=64 2>/dev/null; echo $?", "1\n");
	assert_output(b, "dd if=/dev/zero of=big bs=1M count=40 2>/dev/null; echo $?", "0\n");
	box_free(a);
	box_free(b);
}

static void the_usage_is_the_sandboxs_own(void **state)
{
	struct box *b = new_box(&plain, 64);
	int64_t used, size;
	struct err e = ERR_NULL;

	(void)state;
	assert_output(b, "dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; sync; echo ok", "ok\n");
	if (rig.rig.ops->disk_usage(rig.rig.backend, b->id, 0, &used, &size, &e) < 0) {
		assert_int_equal(e.code, ERR_UNSUPPORTED); /* then df says it */
		assert_output(b, "df -m / | awk 'NR == 2 { print ($2 <= 64 && $3 >= 20) }'", "1\n");
	} else {
		assert_int_equal(size, 64 << 20);
		assert_true(used >= 20 << 20 && used < 24 << 20);
	}
	box_free(b);
}

/* --- layers ----------------------------------------------------------------------------------- */

static const struct {
	const char *script, *want;
} stacked[] = {
	{ "cat /t/both", "top" },
	{ "cat /t/only", "middle" },
	{ "ls /t", "both\nhidden\nonly\nseen\n" },
	{ "ls /t/hidden", "b\n" },
	{ "ls /t/seen", "a\nb\n" },
	{ "cat /t/seen/a", "middle" },
	{ "id -un", "sandbox\n" }, /* the lowest is there */
	{ "grep -c . /proc/self/mountinfo >/dev/null && ! grep -q priv/layers /proc/self/mountinfo && echo ok",
		"ok\n" },
};

static void layers_lie_on_each_other_in_order(void **state)
{
	struct backend_chain chain = { .n = 3, .layers = { TOP, MIDDLE, BASE } };
	struct box *b = new_box(&chain, 32);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(stacked); i++)
		assert_output(b, stacked[i].script, stacked[i].want);
	box_free(b);
	chain = (struct backend_chain){ .n = 3, .layers = { MIDDLE, TOP, BASE } };
	b = new_box(&chain, 32);
	assert_output(b, "cat /t/both; ls /t/gone", "middle/t/gone\n");
	box_free(b);
}

static void a_long_chain_works(void **state)
{
	struct backend_chain chain = { .n = 0 };
	char path[32];

	(void)state;
	for (uint32_t i = 0; i < 127; i++) {
		snprintf(path, sizeof(path), "%u", 1000 + i);
		dir(path);
		chain.layers[126 - i] = 1000 + i;
		snprintf(path, sizeof(path), "%u/n", 1000 + i);
		put(path, i == 126 ? "last" : "x");
	}
	chain.layers[127] = BASE;
	chain.n = 128;
	struct box *b = new_box(&chain, 32);
	assert_output(b, "cat /n", "last");
	box_free(b);
	for (uint32_t i = 0; i < 127; i++)
		drop_layer(1000 + i);
}

static void a_layer_that_is_not_there_refuses_the_create(void **state)
{
	struct backend_chain chain = { .n = 2, .layers = { 99999, BASE } };
	struct backend_spec spec = { .id = "sbx_missing", .image = "x", .hostname = "box", .cpus = 1,
		.memory_mb = 64, .disk_mb = 32, .generation = 1, .chain = &chain };
	struct err e = ERR_NULL;

	(void)state;
	assert_int_equal(mkdirat(rig.rig.state_dirfd, "run/sbx_missing", 0700), 0);
	assert_int_equal(rig.rig.ops->create(rig.rig.backend, &spec, NULL, &e), -1);
	assert_non_null(strstr(e.msg, "99999"));
}

/* --- snapshots -------------------------------------------------------------------------------- */

/* Two files are written in turn: in a moment between, the second is never ahead of the first. */
static const char writer[] = "i=0; while :; do i=$((i+1)); echo $i > .a; mv .a a; echo $i > .b; mv .b b; "
			     "[ $i = 5 ] && echo going; done";

static void a_snapshot_of_a_writer_is_one_moment(void **state)
{
	struct box *b = new_box(&plain, 64);
	uint32_t num = box_sh(b, writer);
	int64_t bytes;

	(void)state;
	assert_true(box_wait_output(b, num, "going", 5000));
	for (int i = 0; i < 3; i++) {
		uint32_t layer = snapshot_of(b, &bytes);
		struct backend_chain chain = { .n = 2, .layers = { layer, BASE } };
		struct box *fork = new_box(&chain, 64);
		assert_output(fork, "a=$(cat a) b=$(cat b); [ $a = $b ] || [ $a = $((b+1)) ] && echo ok",
			"ok\n");
		assert_output(fork, "echo mine > c; ls a b c", "a\nb\nc\n");
		assert_output(b, "ls c 2>&1", "ls: c: No such file or directory\n");
		box_free(fork);
		drop_layer(layer);
	}
	assert_output(b, "x=$(cat a); sleep 0.3; [ $(cat a) != $x ] && echo goes on", "goes on\n");
	box_free(b);
}

static const char fill[] =
	"mkdir -p d/e; echo one > d/e/f; ln d/e/f d/g; ln -s /nowhere l; truncate -s 50M sparse; "
	"echo end >> sparse; chmod 4750 d/e/f; mkfifo fifo; touch -d '2001-02-03 04:05:06' d/e; "
	"rm /sandbox/home/.profile 2>/dev/null; dd if=/dev/urandom of=data bs=64k count=40 2>/dev/null; "
	"mkdir -p x/y/z; i=0; while [ $i -lt 300 ]; do echo $i > x/y/z/$i; i=$((i+1)); done; "
	"md5sum data | cut -c1-32; stat -c '%a %h' d/e/f";
static const char look[] =
	"md5sum data | cut -c1-32; stat -c '%a %h' d/e/f; [ $(stat -c %i d/e/f) = $(stat -c %i d/g) ] "
	"&& echo linked; readlink l; stat -c '%s' sparse; [ $(stat -c %b sparse) -lt 100 ] && echo sparse; "
	"tail -c4 sparse; stat -c %Y d/e; stat -c %u data; ls x/y/z | wc -l; cat x/y/z/299; "
	"[ -e /etc/profile ] || echo deleted; ls -d /etc/ssl 2>&1; find /etc/tls | sort | head -n3";

static void mark_file(struct box *b)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/%d/root/sandbox/home/data",
		rig.rig.part(&rig.rig, b->id, RIG_INIT));
	assert_int_equal(setxattr(path, "user.note", "kept", 4, 0), 0);
}

static void assert_mark(struct box *b)
{
	char path[300], value[8] = "";

	snprintf(path, sizeof(path), "/proc/%d/root/sandbox/home/data",
		rig.rig.part(&rig.rig, b->id, RIG_INIT));
	assert_int_equal(getxattr(path, "user.note", value, sizeof(value)), 4);
	assert_string_equal(value, "kept");
}

static void a_snapshot_keeps_what_files_are(void **state)
{
	struct box *b = new_box(&plain, 64);
	_cleanup_(spooled_free_p) struct spooled before = { 0 }, after = { 0 };
	char out[500];
	int64_t bytes;

	(void)state;
	box_run(b, fill, &before);
	mark_file(b);
	/* Deletions and a folder of the layer below under another name need guest root. */
	assert_int_equal(as_guest_root(b, "rm /etc/profile && mv /etc/ssl /etc/tls", out, sizeof(out)), 0);
	spooled_free(&before);
	box_run(b, look, &before);
	assert_non_null(strstr(before.out[0], "linked"));
	assert_non_null(strstr(before.out[0], "sparse"));
	if (!strstr(before.out[0], "deleted"))
		fail_msg("%s\n%s", before.out[0], before.out[1]);
	uint32_t layer = snapshot_of(b, &bytes);
	assert_true(bytes > 2500000 && bytes < 8000000); /* 2.5 MB of data, no holes */
	box_free(b);
	struct backend_chain chain = { .n = 2, .layers = { layer, BASE } };
	b = new_box(&chain, 64);
	box_run(b, look, &after);
	assert_string_equal(after.out[0], before.out[0]);
	assert_mark(b);
	box_free(b);
	drop_layer(layer);
}

static void snapshots_of_forks_form_a_chain(void **state)
{
	struct backend_chain chain = plain;
	char script[64], want[64] = "";
	int64_t bytes;

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct box *b = new_box(&chain, 32);
		snprintf(script, sizeof(script), "echo %d >> log; rm -f f%d; touch f%d; cat log", i, i - 1, i);
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%d\n", i);
		assert_output(b, script, want);
		uint32_t layer = snapshot_of(b, &bytes);
		memmove(chain.layers + 1, chain.layers, chain.n * sizeof(chain.layers[0]));
		chain.layers[0] = layer;
		chain.n++;
		box_free(b);
	}
	struct box *b = new_box(&chain, 32);
	assert_output(b, "cat log; ls f*", "0\n1\n2\n3\nf3\n");
	box_free(b);
	for (uint32_t i = 0; i + 1 < chain.n; i++)
		drop_layer(chain.layers[i]);
}

static void a_snapshot_does_not_use_up_the_disk(void **state)
{
	struct box *b = new_box(&plain, 64);
	int64_t bytes;

	(void)state;
	/* The old data stays in the snapshots; the sandbox has its own size beside that. */
	for (int i = 0; i < 3; i++) {
		assert_output(b, "rm -f big; dd if=/dev/urandom of=big bs=1M count=24 2>/dev/null; echo $?",
			"0\n");
		snapshot_of(b, &bytes);
		assert_true(bytes >= 24 << 20);
	}
	assert_output(b, "dd if=/dev/zero of=more bs=1M count=64 2>/dev/null; echo $?; rm more", "1\n");
	/* Nor when what is in it is written anew afterwards, a part at a time. */
	assert_output(b, "rm big; for i in 1 2 3 4; do dd if=/dev/urandom of=s$i bs=1M count=12 2>/dev/null "
			 "|| echo full; sleep 1.5; done; echo done", "done\n");
	snapshot_of(b, &bytes);
	uint32_t num = box_sh(b, "for i in 1 2 3 4; do sleep 2; rm s$i; dd if=/dev/urandom of=s$i bs=1M count=12 "
				 "2>/dev/null || echo full; done; echo done");
	_cleanup_(spooled_free_p) struct spooled o = { 0 };
	assert_true(box_wait_exit(b, num, 40000));
	box_read(b, num, &o);
	assert_string_equal(o.out[0], "done\n");
	assert_output(b, "dd if=/dev/zero of=more bs=1M count=64 2>/dev/null; echo $?", "1\n");
	box_free(b);
	for (int i = 0; i < 4; i++)
		drop_layer(next_layer - 1 - (uint32_t)i);
}

/* What a guest keeps without a name, or in pieces of what was larger, is charged and in no file, just as what only a
 * snapshot holds: no reason for more than a snapshot can hold. */
static void garbage_of_a_guest_raises_no_limit(void **state)
{
	struct box *b = new_box(&plain, 32);
	int64_t bytes, size;

	(void)state;
	if (rig.rig.ops->disk_usage(rig.rig.backend, b->id, 0, &bytes, &size, NULL) < 0) {
		box_free(b); /* a limit that is never set anew */
		return;
	}
	uint32_t layer = snapshot_of(b, &bytes);
	assert_output(b, "exec 3>x; rm x; dd if=/dev/urandom of=/proc/self/fd/3 bs=1M count=24 2>/dev/null; echo $?; "
			 "exec 4>y; rm y; n=0; until dd if=/dev/urandom of=/proc/self/fd/4 bs=1M count=24 2>/dev/null; "
			 "do n=$((n+1)); [ $n -lt 5 ] || { echo refused; break; }; sleep 0.5; done",
		"0\nrefused\n");
	box_free(b);
	drop_layer(layer);
}

/* A file with many names, the first of which is too long to be named again. */
static void a_snapshot_is_no_larger_than_the_disk(void **state)
{
	struct box *b = new_box(&plain, 32);
	int64_t bytes, size;

	(void)state;
	if (rig.rig.ops->disk_usage(rig.rig.backend, b->id, 0, &bytes, &size, NULL) == 0) {
		box_free(b); /* it is not copied */
		return;
	}
	assert_output(b, "d=$(printf '%0200d' 0); for i in 0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j; do mkdir $d; "
			 "cd $d; done; dd if=/dev/urandom of=$d bs=1M count=8 2>/dev/null; for i in 0 1 2 3 4 5 6 7; do "
			 "ln $d $d$i; done; ls | grep -c .",
		"9\n");
	uint32_t layer = snapshot_of(b, &bytes);
	if (bytes > 12 << 20)
		fail_msg("a disk with 8 MiB in it made a snapshot of %lld bytes", (long long)bytes);
	box_free(b);
	drop_layer(layer);
}

static void a_suspended_sandbox_stays_so(void **state)
{
	struct box *b = new_box(&plain, 32);
	struct err e = ERR_NULL;
	int64_t bytes;
	uint32_t num = box_sh(b, "i=0; while :; do i=$((i+1)); echo $i > n; echo $i; sleep 0.02; done");

	(void)state;
	assert_true(box_wait_output(b, num, "3", 5000));
	assert_int_equal(rig.rig.ops->freeze(rig.rig.backend, b->id, true, &e), 0);
	uint32_t layer = snapshot_of(b, &bytes);
	_cleanup_(spooled_free_p) struct spooled one = { 0 }, two = { 0 };
	box_read(b, num, &one);
	pause_ms(150);
	box_read(b, num, &two);
	assert_int_equal(one.len[0], two.len[0]);
	assert_int_equal(rig.rig.ops->freeze(rig.rig.backend, b->id, false, &e), 0);
	box_free(b);
	drop_layer(layer);
}

/* --- volumes ---------------------------------------------------------------------------------- */

static void make_volume(uint32_t num, int64_t mb)
{
	struct err e = ERR_NULL;

	if (rig.rig.ops->volume_make(rig.rig.backend, num, mb, &e) < 0)
		fail_msg("%s", e.msg);
}

static void drop_volume(uint32_t num)
{
	struct err e = ERR_NULL;

	if (rig.rig.ops->volume_drop(rig.rig.backend, num, &e) < 0)
		fail_msg("%s", e.msg);
}

static struct box *box_with(uint32_t num, const char *path, bool read_only)
{
	struct backend_volume v = { .num = num, .read_only = read_only };
	struct backend_spec like = { .disk_mb = 32, .chain = &plain, .volumes = &v, .nvolumes = 1 };

	snprintf(v.path, sizeof(v.path), "%s", path);
	return box_like(&rig.rig, &like);
}

static void a_volume_outlives_its_sandboxes(void **state)
{
	(void)state;
	make_volume(5, 50);
	struct box *b = box_with(5, "/data/deep/v", false);
	assert_output(b, "stat -c '%u %a' /data/deep/v; ls -A /data/deep/v; echo kept > /data/deep/v/f",
		"1001 755\n");
	box_free(b);
	b = box_with(5, "/sandbox/home/v", false);
	assert_output(b, "cat v/f; dd if=/dev/zero of=v/big bs=1M count=80 2>/dev/null; echo $?; rm v/big",
		"kept\n1\n");
	box_free(b);
	drop_volume(5);
}

static const struct {
	const char *what, *script;
} ways_to_write[] = {
	{ "a plain write", "echo x > /v/f" },
	{ "a new file", "touch /v/new" },
	{ "a removal", "rm -f /v/f && [ ! -e /v/f ]" },
	{ "a mode", "chmod 777 /v/f" },
	{ "a remount", "mount -o remount,rw /v && echo x > /v/f" },
	{ "a remount of the bind", "mount -o remount,bind,rw /v && echo x > /v/f" },
	{ "another bind", "mkdir -p /tmp/b && mount -o bind /v /tmp/b && mount -o remount,bind,rw /tmp/b && "
			  "echo x > /tmp/b/f" },
	{ "a second bind", "mkdir -p /tmp/c && mount -o bind /v /tmp/c && echo x > /tmp/c/f" },
	{ "a reopen", "exec 7</v/f && echo x > /proc/self/fd/7" },
	{ "taking it off", "umount /v" },
	{ "moving it", "mkdir -p /tmp/m && mount -o move /v /tmp/m" },
};

static void read_only_holds_against_guest_root(void **state)
{
	char out[2000];

	(void)state;
	make_volume(6, 50);
	struct box *b = box_with(6, "/v", false);
	assert_output(b, "echo kept > /v/f; cat /v/f", "kept\n");
	box_free(b);
	b = box_with(6, "/v", true);
	for (size_t i = 0; i < ARRAY_LEN(ways_to_write); i++) {
		if (as_guest_root(b, ways_to_write[i].script, out, sizeof(out)) == 0)
			fail_msg("%s went through: %s", ways_to_write[i].what, out);
		assert_output(b, "cat /v/f; ls /v", "kept\nf\n");
	}
	box_free(b);
	drop_volume(6);
}

static void readers_share_a_volume(void **state)
{
	struct leftovers before, now;

	(void)state;
	make_volume(7, 50);
	struct box *w = box_with(7, "/v", false);
	assert_output(w, "echo shared > /v/f; cat /v/f", "shared\n");
	box_free(w);
	linux_rig_count(&rig, &before);
	struct box *a = box_with(7, "/v", true), *b = box_with(7, "/elsewhere", true);
	assert_output(a, "cat /v/f; echo x > /v/f 2>/dev/null; echo $?", "shared\n1\n");
	assert_output(b, "cat /elsewhere/f", "shared\n");
	linux_rig_count(&rig, &now);
	assert_true(now.loops <= before.loops + 3); /* their own disks, and one for the volume */
	box_free(a);
	assert_output(b, "cat /elsewhere/f", "shared\n");
	box_free(b);
	drop_volume(7);
}

/* Who may only read a volume can give its data a place in another one, where the file system shares them: what the
 * first one's writer then removes would go on being charged to him. */
static void a_reader_keeps_no_data_of_a_volume_alive(void **state)
{
	struct backend_volume v[2] = { { .num = 11, .read_only = true, .path = "/a" }, { .num = 12, .path = "/b" } };
	struct backend_spec like = { .disk_mb = 32, .chain = &plain, .volumes = v, .nvolumes = 2 };

	(void)state;
	make_volume(11, 50);
	make_volume(12, 50);
	struct box *b = box_with(11, "/a", false);
	assert_output(b, "dd if=/dev/urandom of=/a/f bs=1M count=30 2>/dev/null; sync; echo $?", "0\n");
	box_free(b);
	b = box_like(&rig.rig, &like);
	assert_output(b, "cp --reflink=always /a/f /b/f 2>/dev/null || cp /a/f /b/f; sync; cmp /a/f /b/f && echo same",
		"same\n");
	box_free(b);
	b = box_with(11, "/a", false);
	assert_output(b, "rm /a/f; n=0; until dd if=/dev/urandom of=/a/g bs=1M count=40 2>/dev/null; do n=$((n+1)); "
			 "[ $n -lt 20 ] || { echo full; break; }; sync; sleep 0.5; done; echo done",
		"done\n");
	box_free(b);
	drop_volume(11);
	drop_volume(12);
}

static void a_link_in_the_way_of_a_volume_refuses_the_create(void **state)
{
	static const char *const bad[] = { "/bin/sh", "/link/x", "/etc/hostname", "/file/below" };

	(void)state;
	make_volume(8, 50);
	dir("50");
	put("50/file", "x");
	assert_int_equal(symlinkat("/proc", rig.rig.state_dirfd, "priv/layers/50/link"), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct backend_volume v = { .num = 8 };
		struct backend_chain chain = { .n = 2, .layers = { 50, BASE } };
		struct backend_spec spec = { .image = "x", .hostname = "box", .cpus = 1, .memory_mb = 64,
			.disk_mb = 32, .generation = 1, .chain = &chain, .volumes = &v, .nvolumes = 1 };
		struct err e = ERR_NULL;
		char path[128];

		snprintf(v.path, sizeof(v.path), "%s", bad[i]);
		snprintf(spec.id, sizeof(spec.id), "sbx_bad%zu", i);
		snprintf(path, sizeof(path), "run/%s", spec.id);
		assert_int_equal(mkdirat(rig.rig.state_dirfd, path, 0700), 0);
		assert_int_equal(rig.rig.ops->create(rig.rig.backend, &spec, NULL, &e), -1);
		assert_int_equal(e.code, ERR_INVALID_REQUEST);
		assert_non_null(strstr(e.msg, bad[i]));
	}
	drop_volume(8);
	drop_layer(50);
}

/* Guests have their disks measured, and may make that last: who wants something else done does not wait for it. */
static void disks_that_are_measured_keep_nobody_waiting(void **state)
{
	struct box *b[7];
	const char *keep[ARRAY_LEN(b)];
	int64_t bytes, size;
	struct err e = ERR_NULL;

	(void)state;
	b[0] = new_box(&plain, 16);
	bool has = rig.rig.ops->disk_usage(rig.rig.backend, b[0]->id, 0, &bytes, &size, NULL) == 0;
	for (size_t i = 1; has && i < ARRAY_LEN(b); i++)
		b[i] = new_box(&plain, 16);
	size_t n = has ? ARRAY_LEN(b) : 1;
	for (size_t i = 0; i < n; i++) {
		snapshot_of(b[i], &bytes);
		keep[i] = b[i]->id;
	}
	linux_rig_kill_broker(&rig);
	rig.fault = "stop:limit";
	linux_rig_restart(&rig);
	assert_int_equal(rig.rig.ops->sweep(rig.rig.backend, keep, n, &e), 0);
	for (size_t i = 0; i < n; i++)
		assert_output(b[i], "dd if=/dev/urandom of=f bs=1M count=6 2>/dev/null; sync; echo $?", "0\n");
	pause_ms(2500); /* they are looked at each second */
	make_volume(13, 50);
	linux_rig_kill_broker(&rig);
	rig.fault = NULL;
	linux_rig_restart(&rig);
	assert_int_equal(rig.rig.ops->sweep(rig.rig.backend, keep, n, &e), 0);
	for (size_t i = 0; i < n; i++) {
		box_free(b[i]);
		drop_layer(next_layer - 1 - (uint32_t)i);
	}
	drop_volume(13);
}

/* --- crashes ---------------------------------------------------------------------------------- */

static void kill_and_restart(const char *keep_id, const uint32_t *layers, size_t nlayers,
	const uint32_t *volumes, size_t nvolumes)
{
	const char *const ids[] = { keep_id };
	struct err e = ERR_NULL;

	linux_rig_kill_broker(&rig);
	linux_rig_restart(&rig);
	if (rig.rig.ops->keep_layers(rig.rig.backend, layers, nlayers, &e) < 0 ||
	    rig.rig.ops->keep_volumes(rig.rig.backend, volumes, nvolumes, &e) < 0 ||
	    rig.rig.ops->sweep(rig.rig.backend, ids, keep_id ? 1 : 0, &e) < 0)
		fail_msg("%s", e.msg);
}

static bool makes_box(const struct backend_chain *chain, uint32_t volume)
{
	static int n;
	struct backend_volume v = { .num = volume, .path = "/v" };
	struct backend_spec spec = { .image = "x", .hostname = "box", .cpus = 1, .memory_mb = 64,
		.disk_mb = 32, .generation = 1, .chain = chain, .volumes = &v, .nvolumes = volume ? 1 : 0 };
	char path[128];

	snprintf(spec.id, sizeof(spec.id), "sbx_try%d", n++);
	snprintf(path, sizeof(path), "run/%s", spec.id);
	assert_int_equal(mkdirat(rig.rig.state_dirfd, path, 0700), 0);
	if (rig.rig.ops->create(rig.rig.backend, &spec, NULL, NULL) < 0)
		return false;
	assert_int_equal(rig.rig.ops->destroy(rig.rig.backend, spec.id, NULL), 0);
	return true;
}

static void a_new_broker_knows_the_disks_of_running_sandboxes(void **state)
{
	static const uint32_t layers[] = { BASE, MIDDLE, TOP }, volumes[] = { 9 };
	struct box *b = new_box(&plain, 64);
	int64_t bytes;

	(void)state;
	make_volume(9, 50);
	make_volume(10, 50);
	uint32_t lost = snapshot_of(b, &bytes);
	assert_output(b, "echo before > f; cat f", "before\n");
	kill_and_restart(b->id, layers, ARRAY_LEN(layers), volumes, 1);
	assert_output(b, "cat f; echo after >> f", "before\n");
	uint32_t layer = snapshot_of(b, &bytes);
	struct backend_chain chain = { .n = 2, .layers = { layer, BASE } };
	struct box *fork = new_box(&chain, 64);
	assert_output(fork, "cat f", "before\nafter\n");
	box_free(fork);
	box_free(b);
	drop_layer(layer);
	/* What nobody named is gone, what was named is there. */
	chain.layers[0] = lost;
	assert_false(makes_box(&chain, 0));
	assert_true(makes_box(&plain, 9));
	assert_false(makes_box(&plain, 10));
	drop_volume(9);
}

/* Every write is refused then, so nothing more is charged; that it was emptied must be seen. */
static void a_disk_that_was_full_when_its_snapshot_was_taken_can_be_emptied(void **state)
{
	struct box *b = new_box(&plain, 32);
	int64_t bytes;

	(void)state;
	assert_output(b, "dd if=/dev/urandom of=big bs=64k 2>/dev/null; echo $?", "1\n");
	uint32_t layer = snapshot_of(b, &bytes);
	const uint32_t layers[] = { BASE, MIDDLE, TOP, layer };
	kill_and_restart(b->id, layers, ARRAY_LEN(layers), NULL, 0); /* a new broker knows, too */
	assert_output(b, "rm big; n=0; until dd if=/dev/urandom of=new bs=1M count=24 2>/dev/null; do "
			 "n=$((n+1)); [ $n -lt 60 ] || break; sleep 0.5; done; du -m new | cut -f1",
		"24\n");
	assert_output(b, "dd if=/dev/zero of=more bs=1M count=32 2>/dev/null; echo $?", "1\n");
	box_free(b);
	drop_layer(layer);
}

/* Each: the step at which the helper is killed; what is left is nothing, and the sandbox goes on. */
static const char *const seal_faults[] = { "seal-frozen", "seal-made", "seal-copied" };

static void set_fault(const char *name, const char *keep_id)
{
	static const uint32_t layers[] = { BASE, MIDDLE, TOP };

	rig.fault = name;
	kill_and_restart(keep_id, layers, ARRAY_LEN(layers), NULL, 0);
}

static void a_snapshot_that_is_cut_short_leaves_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(seal_faults); i++) {
		struct box *b = new_box(&plain, 32);
		struct err e = ERR_NULL;
		int64_t bytes;
		uint32_t layer = next_layer++;

		set_fault(seal_faults[i], b->id);
		int r = rig.rig.ops->snapshot(rig.rig.backend, b->id, layer, &bytes, &e);
		assert_output(b, "echo goes on", "goes on\n");
		set_fault(NULL, b->id);
		assert_output(b, "echo still", "still\n");
		struct backend_chain chain = { .n = 2, .layers = { layer, BASE } };
		if (r < 0) /* a point that this provider does not come to changes nothing */
			assert_false(makes_box(&chain, 0));
		uint32_t next = snapshot_of(b, &bytes);
		box_free(b);
		drop_layer(next);
	}
}

static bool is_stopped(int pid)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'T';
}

static void a_sandbox_that_stood_still_when_all_was_killed_goes_on(void **state)
{
	struct box *b = new_box(&plain, 32);
	struct priv_req q = { .magic = PRIV_MAGIC, .op = PRIV_SNAPSHOT, .tag = 1, .num = next_layer++ };
	uint32_t num = box_sh(b, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done");
	char mark[128], path[200];

	(void)state;
	assert_true(box_wait_output(b, num, "3", 5000));
	set_fault("stop:seal-frozen", b->id);
	snprintf(q.id, sizeof(q.id), "%s", b->id);
	/* Past the backend, which would wait for the answer. */
	assert_int_equal(send(rig.broker_fd, &q, sizeof(q), 0), sizeof(q));
	snprintf(mark, sizeof(mark), "priv/boxes/.seal-%s", b->id);
	for (int i = 0; faccessat(rig.rig.state_dirfd, mark, F_OK, 0) < 0; i++) {
		assert_true(i < 500);
		pause_ms(10);
	}
	pause_ms(100); /* it stops after the mark */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", rig.broker, rig.broker);
	FILE *f = fopen(path, "re");
	for (int pid; f && fscanf(f, "%d", &pid) == 1;)
		if (is_stopped(pid))
			kill(pid, SIGKILL);
	if (f)
		fclose(f);
	set_fault(NULL, b->id);
	_cleanup_(spooled_free_p) struct spooled one = { 0 }, two = { 0 };
	box_read(b, num, &one);
	pause_ms(300);
	box_read(b, num, &two);
	assert_true(two.len[0] > one.len[0]);
	box_free(b);
}

static void a_volume_that_is_cut_short_is_gone_or_whole(void **state)
{
	static const char *const points[] = { "volume-made", "volume-prepared", "volume-drop" };
	struct err e = ERR_NULL;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(points); i++) {
		uint32_t num = 20 + i;
		set_fault(points[i], NULL);
		int r = rig.rig.ops->volume_make(rig.rig.backend, num, 50, &e);
		assert_int_equal(r, i < 2 ? -1 : 0);
		if (r == 0) {
			assert_int_equal(rig.rig.ops->volume_drop(rig.rig.backend, num, &e), -1);
			assert_true(makes_box(&plain, num)); /* not begun: still whole */
		}
		set_fault(NULL, NULL);
		assert_false(makes_box(&plain, num));
		make_volume(num, 50);
		assert_true(makes_box(&plain, num));
		drop_volume(num);
	}
}

static void a_layer_whose_removal_is_cut_short_is_gone(void **state)
{
	struct backend_chain chain = { .n = 2, .layers = { 60, BASE } };
	struct err e = ERR_NULL;

	(void)state;
	dir("60");
	put("60/f", "x");
	assert_true(makes_box(&chain, 0));
	rig.fault = "layer-hidden";
	kill_and_restart(NULL, (const uint32_t[]){ BASE, MIDDLE, TOP, 60 }, 4, NULL, 0);
	assert_int_equal(rig.rig.ops->layer_drop(rig.rig.backend, 60, &e), -1);
	assert_false(makes_box(&chain, 0));
	set_fault(NULL, NULL);
	drop_layer(60);
}

/* --- all of it -------------------------------------------------------------------------------- */

static void nothing_is_left(void **state)
{
	struct leftovers l = { 0 };

	(void)state;
	assert_true(linux_rig_wait_clean(&rig, &l, 5000));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_size_holds_and_comes_back),
	cmocka_unit_test(one_full_disk_is_not_anothers),
	cmocka_unit_test(the_usage_is_the_sandboxs_own),
	cmocka_unit_test(layers_lie_on_each_other_in_order),
	cmocka_unit_test(a_long_chain_works),
	cmocka_unit_test(a_layer_that_is_not_there_refuses_the_create),
	cmocka_unit_test(a_snapshot_of_a_writer_is_one_moment),
	cmocka_unit_test(a_snapshot_keeps_what_files_are),
	cmocka_unit_test(snapshots_of_forks_form_a_chain),
	cmocka_unit_test(a_snapshot_does_not_use_up_the_disk),
	cmocka_unit_test(a_disk_that_was_full_when_its_snapshot_was_taken_can_be_emptied),
	cmocka_unit_test(garbage_of_a_guest_raises_no_limit),
	cmocka_unit_test(a_snapshot_is_no_larger_than_the_disk),
	cmocka_unit_test(a_suspended_sandbox_stays_so),
	cmocka_unit_test(a_volume_outlives_its_sandboxes),
	cmocka_unit_test(read_only_holds_against_guest_root),
	cmocka_unit_test(readers_share_a_volume),
	cmocka_unit_test(a_reader_keeps_no_data_of_a_volume_alive),
	cmocka_unit_test(a_link_in_the_way_of_a_volume_refuses_the_create),
	cmocka_unit_test(a_new_broker_knows_the_disks_of_running_sandboxes),
	cmocka_unit_test(a_snapshot_that_is_cut_short_leaves_nothing),
	cmocka_unit_test(a_sandbox_that_stood_still_when_all_was_killed_goes_on),
	cmocka_unit_test(a_volume_that_is_cut_short_is_gone_or_whole),
	cmocka_unit_test(a_layer_whose_removal_is_cut_short_is_gone),
	cmocka_unit_test(nothing_is_left),
};
/* For tests/attack/40_priv_long.bats. */
static const struct CMUnitTest long_tests[] = {
	cmocka_unit_test(disks_that_are_measured_keep_nobody_waiting),
	cmocka_unit_test(nothing_is_left),
};

static int run_with(const char *provider)
{
	int r;

	rig = (struct linux_rig){ .provider = provider };
	linux_rig_open(&rig);
	if (!rig.rig.backend) {
		fprintf(stderr, "disk provider %s does not work here: its tests are left out\n", provider);
		return 0;
	}
	make_layers();
	fprintf(stderr, "disk areas by %s\n", provider);
	r = getenv("ATTACK_SECS") ? run_table(long_tests) : run_table(tests);
	linux_rig_close(&rig);
	return r;
}

int main(void)
{
	static const char *const providers[] = { "btrfs", "loop", "xfs", "ext4" };
	const char *only = getenv("DISK");
	int r = 0;

	if (linux_rig_missing()) {
		printf("1..0 # SKIP %s\n", linux_rig_missing());
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(providers); i++)
		if (!only || strcmp(only, providers[i]) == 0)
			r |= run_with(providers[i]);
	return r;
}
