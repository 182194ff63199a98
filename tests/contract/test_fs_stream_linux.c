/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 on real sandboxes: sleep and waking, changes that a guest makes on each kind of mount,
 * the death of the worker. Skipped when not root. */
#include "tests/support/fsc.h"
#include "tests/support/suite.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define UPGRADE "Connection: Upgrade\r\nUpgrade: sbx-fs/1\r\n"
#define BACK    "Sandbox-Background: 1\r\n"

static struct rig *rig;

static int try(const char *ref, const char *headers, struct fsc *c)
{
	int fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/fs", ref), headers, NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);

	if (a.status != 101) {
		close(fd);
		return a.status;
	}
	fsc_init(c, fd);
	(void)fsc_hello(c);
	return 101;
}

static bool is_asleep(void *id)
{
	return rig_in_state(rig, id, "suspended");
}

static bool has_ended(void *id)
{
	return rig_in_state(rig, id, "terminated");
}

static void suspending_cuts_and_refuses(void **state)
{
	char *id = strdup(rig_sandbox(rig, NULL));
	struct fsc c;

	(void)state;
	assert_int_equal(try(id, UPGRADE "Sbx-Client: me\r\n", &c), 101);
	assert_int_equal(rig_sh(rig, id, "printf abc > f", NULL), 0);
	struct fsc_answer a;
	assert_int_equal(
		fsc_call(&c, FILES_OPEN,
			&(struct guestfs_args){ .path = "/sandbox/home/f", .flags = FILES_O_READ },
			&a),
		0);
	uint64_t h = a.rep.handle;
	fsc_answer_free(&a);
	assert_int_equal(
		rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, NULL), 200);
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
	assert_int_equal(try(id, UPGRADE, &c), 409);
	assert_int_equal(try(id, UPGRADE BACK, &c), 409);
	assert_int_equal(
		rig_status(rig, "POST", rig_path("/v1/sandboxes/%s/resume", id), NULL, NULL), 200);
	assert_int_equal(try(id, UPGRADE "Sbx-Client: me\r\n", &c), 101);
	assert_int_equal(
		fsc_call(&c, FILES_READ, &(struct guestfs_args){ .handle = h, .length = 9 }, &a),
		3);
	assert_string_equal(a.data, "abc");
	fsc_answer_free(&a);
	fsc_fini(&c);
	rig_end(rig, id);
	free(id);
}

static void an_open_stream_lets_it_fall_asleep_and_opening_wakes_it(void **state)
{
	char *id =
		strdup(rig_sandbox(rig, "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}"));
	struct fsc c;

	(void)state;
	assert_int_equal(try(id, UPGRADE BACK, &c), 101);
	rig_wait(is_asleep, id, 15000);
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
	assert_int_equal(try(id, UPGRADE BACK, &c), 409);
	assert_true(is_asleep(id));
	assert_int_equal(try(id, UPGRADE, &c), 101);
	assert_int_equal(FSC(&c, FILES_STAT, .path = "/"), 0);
	fsc_fini(&c);
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 1);
	rig_end(rig, id);
	free(id);
}

/* The guest writes, its command returns, and what is opened then is what it wrote; told before. */
static void changes_on_each_kind_of_mount_are_told(void **state)
{
	static const char *const dirs[] = { "/sandbox/home", "/tmp", "/vol" };
	json_t *v = rig_json(rig, "POST", "/v1/volumes", "{\"name\":\"v\"}", 201);
	char *id = strdup(rig_sandbox(rig, "{\"volumes\":[{\"name\":\"v\",\"path\":\"/vol\"}]}"));
	struct fsc c;

	(void)state;
	json_decref(v);
	assert_int_equal(try(id, UPGRADE BACK, &c), 101);
	for (size_t d = 0; d < ARRAY_LEN(dirs); d++) {
		char path[64], want[32];
		assert_int_equal(
			rig_sh(rig, id, rig_path("mkdir %s/w && echo - > %s/w/f", dirs[d], dirs[d]),
				NULL),
			0);
		snprintf(path, sizeof(path), "%s/w", dirs[d]);
		int64_t w = FSC(&c, FILES_WATCH, .path = path);
		assert_true(w > 0);
		snprintf(path, sizeof(path), "%s/w/f", dirs[d]);
		for (int i = 0; i < 20; i++) {
			struct fsc_answer a;
			fsc_forget(&c);
			snprintf(want, sizeof(want), "%d\n", i);
			assert_int_equal(
				rig_sh(rig, id,
					rig_path(i % 2 ? "echo %d > %s"
						       : "echo %d > /tmp/x && mv /tmp/x %s",
						i, path),
					NULL),
				0);
			assert_int_equal(
				fsc_call(&c, FILES_OPEN,
					&(struct guestfs_args){ .path = path,
						.length = 10,
						.flags = FILES_O_READ | FILES_INLINE_CLOSE },
					&a),
				0);
			assert_string_equal(a.data, want);
			fsc_answer_free(&a);
			if (!fsc_changed(&c, (uint64_t)w, "f", FS_INVAL_DATA | FS_INVAL_NAME))
				fail_msg("%s: change %d was not told", path, i);
		}
	}
	/* new files are the sandbox user's */
	struct fsc_answer a;
	assert_int_equal(
		fsc_call(&c, FILES_MKDIR,
			&(struct guestfs_args){ .path = "/sandbox/home/mine", .mode = 0755 }, &a),
		0);
	assert_int_equal(a.rep.attr.uid, 1001);
	fsc_answer_free(&a);
	assert_int_equal(FSC(&c, FILES_OPEN, .path = "/proc/cpuinfo", .flags = FILES_O_READ),
		-FILES_E_REFUSED);
	assert_int_equal(FSC(&c, FILES_WATCH, .path = "/proc"), -FILES_E_REFUSED);
	fsc_fini(&c);
	rig_end(rig, id);
	free(id);
}

/* Which of the workers is the sandbox's is known by the handle that it holds. */
static bool holds(pid_t pid, const char *name)
{
	char path[64], target[512];
	DIR *d;
	struct dirent *en;
	bool yes = false;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && (en = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), en->d_name, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		yes |= strstr(target, name) != NULL;
	}
	if (d)
		closedir(d);
	return yes;
}

static pid_t worker_with(const char *name)
{
	DIR *d = opendir("/proc");
	struct dirent *en;
	pid_t found = 0;

	assert_non_null(d);
	while (!found && (en = readdir(d)))
		if (atoi(en->d_name) > 0 && holds(atoi(en->d_name), name))
			found = atoi(en->d_name);
	closedir(d);
	return found;
}

static void a_killed_worker_ends_stream_and_sandbox(void **state)
{
	char *id = strdup(rig_sandbox(rig, NULL));
	struct fsc c;

	(void)state;
	assert_int_equal(try(id, UPGRADE, &c), 101);
	assert_int_equal(FSC(&c, FILES_OPEN, .path = "/tmp/only-this-one-has-it", .mode = 0600,
				 .flags = FILES_O_WRITE | FILES_O_CREATE),
		0);
	pid_t pid = worker_with("/only-this-one-has-it");
	assert_true(pid > 0);
	kill(pid, SIGKILL);
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
	rig_wait(has_ended, id, 15000);
	free(id);
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suspending_cuts_and_refuses),
		cmocka_unit_test(an_open_stream_lets_it_fall_asleep_and_opening_wakes_it),
		cmocka_unit_test(changes_on_each_kind_of_mount_are_told),
		cmocka_unit_test(a_killed_worker_ends_stream_and_sandbox),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
