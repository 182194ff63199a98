/* SPDX-License-Identifier: MIT */
/* The contract's acceptance list, seen from outside: what is kept beyond a moment: images, sleep,
 * snapshots, schedules, volumes. See test_conformance.c. */
#include "tests/support/conform.h"

static json_t *offline(void)
{
	return J("{s:{s:s}}", "network", "mode", "none");
}

static json_t *image_listed(const char *name)
{
	json_t *list = json_object_get(ask("GET", "/v1/images", NULL), "images"), *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (name ? !strcmp(str(v, "image"), name)
			 : json_is_true(json_object_get(v, "default")))
			return v;
	fail_msg("%s is not listed", name ? name : "the default image");
	return NULL;
}

/* 29 */
static void images_are_listed_installed_and_pinned(void **state)
{
	char unknown[80];
	const char *name;
	json_t *v;

	(void)state;
	if (!conform_can("images")) {
		refused("unsupported", "GET", "/v1/images", NULL);
		refused("unsupported", "POST", "/v1/images",
			J("{s:s}", "image", "example.com/a:1"));
		return;
	}
	box(NULL);
	v = image_listed(NULL);
	name = str(v, "image");
	assert_true(num(v, "in_use") >= 1);
	refused("conflict", "DELETE", at("/v1/images?image=%s", name), NULL);
	v = ask("POST", "/v1/images", J("{s:s}", "image", name));
	assert_string_equal(str(v, "image"), name);
	for (int i = 0; strcmp(str(v = image_listed(name), "state"), "installed") != 0; i++) {
		assert_string_not_equal(str(v, "state"), "failed");
		assert_true(i < 1800);
		pause_ms(100);
	}
	refused("invalid_request", "POST", "/v1/images", J("{s:s}", "image", "Not An Image!"));
	snprintf(unknown, sizeof(unknown), "registry.invalid/never/installed:tag-%08x",
		(unsigned)rand());
	refused("not_found", "DELETE", at("/v1/images?image=%s", unknown), NULL);
}

/* 35 */
static void a_suspend_keeps_the_sandbox(void **state)
{
	const char *id = box(NULL), *run = at("/v1/sandboxes/%s/run", id),
		   *suspend = at("/v1/sandboxes/%s/suspend", id),
		   *resume = at("/v1/sandboxes/%s/resume", id);
	long pid, code;

	(void)state;
	if (!conform_can("suspend")) {
		refused("unsupported", "POST", suspend, NULL);
		return;
	}
	file_put_in(id, "/sandbox/home/kept.txt", "kept", 4);
	pid = start_in(id, argv_of("sleep", "30", NULL));
	refused("conflict", "POST", suspend, NULL);
	ask("POST", at("/v1/sandboxes/%s/processes/%ld/signal", id, pid),
		J("{s:s}", "signal", "KILL"));
	follow(id, pid, &code);
	assert_string_equal(str(ask("POST", suspend, NULL), "state"), "suspended");
	refused("conflict", "POST", run, argv_of("true", NULL));
	refused("conflict", "POST", suspend, NULL);
	assert_string_equal(str(ask("POST", resume, NULL), "state"), "running");
	assert_string_equal(file_get_in(id, "/sandbox/home/kept.txt", NULL), "kept");
	assert_string_equal(run_in(id, argv_of("echo", "awake", NULL)).out, "awake\n");
	refused("conflict", "POST", resume, NULL);
}

static const char state_file[] = "/sandbox/home/state.txt";

static bool can_snapshot(void)
{
	return conform_can("memory_snapshot") || conform_can("disk_snapshot");
}

static json_t *fork_of(const char *snapshot)
{
	return with(offline(), "snapshot_id", json_string(snapshot));
}

static json_t *fork_with(const char *snapshot, const char *key, json_t *value)
{
	return with(fork_of(snapshot), key, value);
}

static void forks_diverge(const char *id, const char *snapshot)
{
	const char *forks[2] = { box(fork_of(snapshot)), box(fork_of(snapshot)) };

	for (size_t i = 0; i < ARRAY_LEN(forks); i++)
		assert_string_equal(file_get_in(forks[i], state_file, NULL), "at the snapshot");
	file_put_in(forks[0], state_file, "changed", 7);
	assert_string_equal(file_get_in(forks[0], state_file, NULL), "changed");
	assert_string_equal(file_get_in(forks[1], state_file, NULL), "at the snapshot");
	assert_string_equal(file_get_in(id, state_file, NULL), "at the snapshot");
}

/* 36.8, 36.9 */
static void resources_of_a_fork(const char *snapshot, long memory)
{
	json_t *s;

	if (conform_can("memory_snapshot")) {
		refused("invalid_request", "POST", "/v1/sandboxes",
			fork_with(snapshot, "memory_mb", json_integer(1)));
		refused("invalid_request", "POST", "/v1/sandboxes",
			fork_with(snapshot, "memory_mb", json_integer(2 * memory)));
		return;
	}
	s = box_made(fork_with(snapshot, "memory_mb", json_integer(2 * memory)));
	assert_int_equal(num(s, "memory_mb"), 2 * memory);
	assert_string_equal(file_get_in(str(s, "id"), state_file, NULL), "at the snapshot");
}

/* 36 */
static void a_snapshot_forks_the_sandbox(void **state)
{
	json_t *s = box_made(offline()), *snap;
	const char *id = str(s, "id"), *path = at("/v1/sandboxes/%s/snapshots", id);

	(void)state;
	if (!can_snapshot()) {
		refused("unsupported", "POST", path, NULL);
		refused("unsupported", "POST", "/v1/sandboxes", fork_of("snp_0000000000000000"));
		return;
	}
	file_put_in(id, state_file, "at the snapshot", 15);
	snap = ask("POST", path, NULL);
	later_delete(at("/v1/snapshots/%s", str(snap, "id")));
	assert_string_equal(str(snap, "kind"), conform_can("memory_snapshot") ? "memory" : "disk");
	assert_string_equal(run_in(id, argv_of("echo", "still", NULL)).out, "still\n");
	assert_true(json_array_size(
			    json_object_get(ask("GET", "/v1/snapshots", NULL), "snapshots")) > 0);
	forks_diverge(id, str(snap, "id"));
	refused("invalid_request", "POST", "/v1/sandboxes",
		fork_with(str(snap, "id"), "image", json_string("another:1")));
	resources_of_a_fork(str(snap, "id"), num(s, "memory_mb"));
	refused("not_found", "POST", "/v1/sandboxes", fork_of("snp_0000000000000000"));
}

static json_t *schedule(long every, long keep)
{
	json_t *v = offline();

	if (every)
		with(v, "snapshot_every_secs", json_integer(every));
	return keep ? with(v, "snapshot_keep", json_integer(keep)) : v;
}

static size_t scheduled_of(const char *id)
{
	json_t *list = json_object_get(ask("GET", "/v1/snapshots", NULL), "snapshots"), *v;
	size_t n = 0, i;

	json_array_foreach (list, i, v) {
		if (strcmp(str(v, "sandbox"), id) != 0 ||
			!json_is_true(json_object_get(v, "scheduled")))
			continue;
		n++;
		later_delete(at("/v1/snapshots/%s", str(v, "id")));
	}
	return n;
}

/* 38 */
static void a_schedule_keeps_the_newest_snapshots(void **state)
{
	long least = conform_limit("min_snapshot_every_secs"),
	     most = conform_limit("max_snapshot_keep");
	const char *id;
	json_t *s;

	(void)state;
	if (!can_snapshot()) {
		refused("unsupported", "POST", "/v1/sandboxes", schedule(least, 0));
		return;
	}
	assert_true(least >= 1 && most >= 1);
	refused("invalid_request", "POST", "/v1/sandboxes", schedule(least, most + 1));
	refused("invalid_request", "POST", "/v1/sandboxes", schedule(0, 1));
	if (least > 1)
		refused("invalid_request", "POST", "/v1/sandboxes", schedule(least - 1, 0));
	if (least > 3)
		return;
	s = box_made(schedule(least, 1));
	id = str(s, "id");
	assert_int_equal(num(s, "snapshot_every_secs"), least);
	assert_int_equal(num(s, "snapshot_keep"), 1);
	pause_ms((int)least * 3000 + 1500);
	assert_int_equal(scheduled_of(id), 1);
	s = ask("PUT", at("/v1/sandboxes/%s/snapshot-schedule", id),
		J("{s:i,s:i}", "every_secs", 0, "keep", 0));
	assert_null(json_object_get(s, "snapshot_every_secs"));
}

/* --- volumes --------------------------------------------------------------------------------- */

static const char *volume(void)
{
	const char *name = unused_name();

	ask("POST", "/v1/volumes", J("{s:s,s:i}", "name", name, "size_mb", 64));
	later_delete(at("/v1/volumes/%s", name));
	return name;
}

static json_t *mount_at(const char *name, const char *path, bool read_only)
{
	json_t *m = J("{s:s,s:s}", "name", name, "path", path);

	return read_only ? with(m, "read_only", json_true()) : m;
}

static json_t *mounts(json_t *one, json_t *other)
{
	json_t *list = json_array();

	json_array_append_new(list, one);
	if (other)
		json_array_append_new(list, other);
	return with(offline(), "volumes", list);
}

static json_t *writer(const char *name)
{
	return mounts(mount_at(name, "/data", false), NULL);
}

static json_t *reader(const char *name)
{
	return mounts(mount_at(name, "/data", true), NULL);
}

static const char *volume_path(const char *name)
{
	return at("/v1/volumes/%s", name);
}

static const char *holder_of(const char *name)
{
	json_t *list = json_object_get(ask("GET", "/v1/volumes", NULL), "volumes"), *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!strcmp(str(v, "name"), name))
			return str(v, "attached_to");
	fail_msg("volume %s is not listed", name);
	return "";
}

/* 45 */
static void a_volume_outlives_its_sandbox(void **state)
{
	const char *name, *a, *b;
	json_t *s, *shown;

	(void)state;
	if (!conform_can("volumes")) {
		refused("unsupported", "POST", "/v1/sandboxes", writer("any"));
		skip();
	}
	name = volume();
	refused("conflict", "POST", "/v1/volumes", J("{s:s,s:i}", "name", name, "size_mb", 64));
	s = box_made(writer(name));
	a = str(s, "id");
	shown = json_array_get(json_object_get(s, "volumes"), 0);
	assert_string_equal(str(shown, "name"), name);
	assert_string_equal(str(shown, "path"), "/data");
	file_put_in(a, "/data/kept.txt", "outlives", 8);
	refused("conflict", "POST", "/v1/sandboxes", writer(name));
	refused("conflict", "DELETE", volume_path(name), NULL);
	assert_string_equal(holder_of(name), a);
	if (conform_can("memory_snapshot"))
		refused("conflict", "POST", at("/v1/sandboxes/%s/snapshots", a), NULL);
	box_end(a);
	b = box(mounts(mount_at(name, "/srv/data", true), NULL));
	assert_string_equal(file_get_in(b, "/srv/data/kept.txt", NULL), "outlives");
	refused_bytes("conflict", "PUT", path_in(b, "files", "/srv/data/new", 13), "x");
	box_end(b);
	ask("DELETE", volume_path(name), NULL);
	refused("not_found", "DELETE", volume_path(name), NULL);
}

/* 46 */
static void mounts_of_volumes_are_checked(void **state)
{
	static const char *const paths[] = { "/usr/local", "/tmp/cache", "/proc/x", "/etc", "data",
		"/data/../etc", "/" };
	const char *one, *two;

	(void)state;
	if (!conform_can("volumes"))
		skip();
	one = volume();
	two = volume();
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		refused("invalid_request", "POST", "/v1/sandboxes",
			mounts(mount_at(one, paths[i], false), NULL));
	refused("invalid_request", "POST", "/v1/sandboxes",
		mounts(mount_at(one, "/data", false), mount_at(two, "/data/inner", false)));
	refused("invalid_request", "POST", "/v1/sandboxes",
		mounts(mount_at(one, "/a", false), mount_at(one, "/b", false)));
	refused("invalid_request", "POST", "/v1/sandboxes", writer("Bad_Name"));
	refused("not_found", "POST", "/v1/sandboxes", writer(unused_name()));
	refused("invalid_request", "POST", "/v1/volumes", J("{s:s}", "name", "Bad_Name"));
}

/* 47 */
static void a_volume_has_one_writer_or_many_readers(void **state)
{
	const char *name, *w, *readers[2];

	(void)state;
	if (!conform_can("volumes"))
		skip();
	name = volume();
	w = box(writer(name));
	file_put_in(w, "/data/kept.txt", "for all", 7);
	refused("conflict", "POST", "/v1/sandboxes", reader(name));
	box_end(w);
	for (size_t i = 0; i < ARRAY_LEN(readers); i++)
		readers[i] = box(reader(name));
	for (size_t i = 0; i < ARRAY_LEN(readers); i++)
		assert_string_equal(file_get_in(readers[i], "/data/kept.txt", NULL), "for all");
	refused("conflict", "POST", "/v1/sandboxes", writer(name));
	box_end(readers[0]);
	refused("conflict", "DELETE", volume_path(name), NULL);
	box_end(readers[1]);
	ask("DELETE", volume_path(name), NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		conform_test(images_are_listed_installed_and_pinned),
		conform_test(a_suspend_keeps_the_sandbox),
		conform_test(a_snapshot_forks_the_sandbox),
		conform_test(a_schedule_keeps_the_newest_snapshots),
		conform_test(a_volume_outlives_its_sandbox),
		conform_test(mounts_of_volumes_are_checked),
		conform_test(a_volume_has_one_writer_or_many_readers),
	};

	return conform_run("conformance: what is kept", tests, ARRAY_LEN(tests));
}
