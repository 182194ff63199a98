/* SPDX-License-Identifier: MIT */
/* Pools (node contract 25, 26.4): filled, counted, taken by what fits and by nothing else, unseen
 * until then, gone with the server. Skipped when not root. */
#include "common/sys/fnv.h"
#include "tests/support/suite.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#define SIZE 3
#define POLICY                                                                                     \
	"{\"defaults\":{\"cpus\":0.5,\"memory_mb\":192,\"disk_mb\":300},\"pools\":[{\"size\":3}]}"

static struct rig *rig;

static json_int_t pooled(void)
{
	json_t *o = rig_json(rig, "GET", "/v1/node", NULL, 200);
	json_int_t n = json_integer_value(json_object_get(json_object_get(o, "pooled"), "base"));

	json_decref(o);
	return n;
}

static bool is_full(void *arg)
{
	(void)arg;
	return pooled() == SIZE;
}

static void wait_full(void)
{
	rig_wait(is_full, NULL, 20000);
}

static double amount(const json_t *node, const char *which, const char *what)
{
	return json_number_value(json_object_get(json_object_get(node, which), what));
}

static bool came_from_pool(const char *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
	json_t *first = json_array_get(json_object_get(o, "events"), 0);
	const char *why = json_string_value(json_object_get(first, "reason"));
	bool yes = why && !strcmp(why, "pool");

	assert_string_equal(json_string_value(json_object_get(first, "type")), "sandbox.created");
	json_decref(o);
	return yes;
}

static void it_fills_and_counts_and_nobody_sees_it(void **state)
{
	json_t *node, *list;

	(void)state;
	wait_full();
	node = rig_json(rig, "GET", "/v1/node", NULL, 200);
	/* what is given away may be more than a small machine has; free is never below 0 */
	assert_true(amount(node, "free", "cpus") ==
		    (amount(node, "capacity", "cpus") > SIZE * 0.5
				    ? amount(node, "capacity", "cpus") - SIZE * 0.5
				    : 0));
	assert_true(amount(node, "capacity", "memory_mb") - amount(node, "free", "memory_mb") ==
		    SIZE * 192);
	assert_true(amount(node, "capacity", "disk_mb") - amount(node, "free", "disk_mb") ==
		    SIZE * 300);
	assert_int_equal(json_integer_value(json_object_get(node, "running")), 0);
	json_decref(node);
	list = rig_json(rig, "GET", "/v1/sandboxes", NULL, 200);
	assert_int_equal(json_array_size(json_object_get(list, "sandboxes")), 0);
	json_decref(list);
}

static void a_create_that_fits_takes_one_and_makes_it_its_own(void **state)
{
	_cleanup_free_ char *out = NULL;
	const char *id;
	json_t *o;

	(void)state;
	wait_full();
	id = rig_sandbox(rig,
		"{\"name\":\"mine\",\"env\":{\"WORD\":\"given\"},\"labels\":{\"a\":\"b\"},"
		"\"idle_timeout_secs\":77,\"lifetime_secs\":1000}");
	assert_true(pooled() < SIZE);
	assert_true(came_from_pool(id));
	rig_sh(rig, id, "echo $WORD; hostname; id -u; ls -A /sandbox/home | wc -l", &out);
	assert_string_equal(out, "given\nmine\n1001\n0\n");
	o = rig_json(rig, "GET", "/v1/sandboxes/mine", NULL, 200);
	assert_string_equal(json_string_value(json_object_get(o, "id")), id);
	assert_int_equal(json_integer_value(json_object_get(o, "idle_timeout_secs")), 77);
	assert_int_equal(json_integer_value(json_object_get(o, "lifetime_secs")), 1000);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(o, "labels"), "a")), "b");
	json_decref(o);
	wait_full(); /* another one is made in its place */
	rig_end(rig, id);
}

/* What is asked for as the default is the default. */
static void the_shape_may_be_spelled_out(void **state)
{
	const char *id;

	(void)state;
	wait_full();
	id = rig_sandbox(
		rig, "{\"image\":\"base\",\"cpus\":0.5,\"memory_mb\":192,\"disk_mb\":300}");
	assert_true(came_from_pool(id));
	rig_end(rig, id);
}

static bool default_is_none(void)
{
	json_t *o = rig_json(rig, "GET", "/v1/capabilities", NULL, 200);
	json_t *n = json_object_get(json_object_get(o, "network"), "default");
	bool is = !strcmp(json_string_value(json_object_get(n, "mode")), "none");

	json_decref(o);
	return is;
}

static void what_does_not_fit_is_made_for_the_request(void **state)
{
	static const char *const bodies[] = { "{\"memory_mb\":200}", "{\"disk_mb\":301}",
		"{\"cpus\":0.25}", "{\"network\":{\"mode\":\"none\"}}" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bodies) - default_is_none(); i++) {
		const char *id;
		wait_full();
		id = rig_sandbox(rig, bodies[i]);
		assert_false(came_from_pool(id));
		rig_end(rig, id);
	}
}

static void a_burst_takes_what_there_is_and_makes_the_rest(void **state)
{
	const char *ids[2 * SIZE];
	int from_pool = 0;

	(void)state;
	wait_full();
	for (int i = 0; i < 2 * SIZE; i++)
		ids[i] = rig_sandbox(rig, NULL);
	for (int i = 0; i < 2 * SIZE; i++) {
		from_pool += came_from_pool(ids[i]);
		assert_int_equal(rig_sh(rig, ids[i], "true", NULL), 0);
		rig_end(rig, ids[i]);
	}
	assert_true(from_pool >= SIZE);
	wait_full();
}

static void a_cordon_refuses_them_too(void **state)
{
	(void)state;
	wait_full();
	json_decref(rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200));
	rig_refuses(rig, "POST", "/v1/sandboxes", "{}", 503, "unavailable");
	assert_int_equal(pooled(), SIZE);
	json_decref(rig_json(rig, "POST", "/v1/node/cordon", "{\"cordoned\":false}", 200));
}

static void its_image_is_in_use(void **state)
{
	json_t *o, *img;
	size_t i;
	bool seen = false;

	(void)state;
	wait_full();
	o = rig_json(rig, "GET", "/v1/images", NULL, 200);
	json_array_foreach (json_object_get(o, "images"), i, img)
		if (!strcmp(json_string_value(json_object_get(img, "image")), "base")) {
			assert_true(json_is_true(json_object_get(img, "pooled")));
			seen = true;
		}
	assert_true(seen);
	json_decref(o);
	rig_refuses(rig, "DELETE", "/v1/images?image=base", NULL, 409, "conflict");
}

/* Groups of sandboxes, spare or not, that this server has on the host. */
static unsigned groups(void)
{
	uint64_t h = fnv64(1469598103934665603u, rig->state, strlen(rig->state));
	char path[400];
	unsigned n = 0;
	struct dirent *de;
	DIR *d;

	snprintf(path, sizeof(path), "/sys/fs/cgroup/%ssandboxd-%08x",
		access("/sys/fs/cgroup/pids", F_OK) ? "" : "pids/", (unsigned)(h ^ (h >> 32)));
	d = opendir(path);
	while (d && (de = readdir(d)))
		n += de->d_name[0] == 'n' && de->d_name[1] >= '0' && de->d_name[1] <= '9';
	if (d)
		closedir(d);
	return n;
}

static bool no_more_than_before(void *arg)
{
	return groups() <= *(unsigned *)arg;
}

static void a_killed_server_leaves_none_behind(void **state)
{
	unsigned before;

	(void)state;
	wait_full();
	rig_end(rig, rig_sandbox(rig, NULL)); /* so that the usual spares are there as well */
	wait_full();
	before = groups() + 4; /* the usual ones may still be on their way */
	for (int i = 0; i < 3; i++) {
		rig_kill(rig);
		rig_start(rig);
		wait_full();
	}
	rig_wait(no_more_than_before, &before, 20000);
	rig_end(rig, rig_sandbox(rig, NULL));
}

static void with_the_server_they_end(void **state)
{
	unsigned none = 0;

	(void)state;
	wait_full();
	rig_stop(rig);
	rig_wait(no_more_than_before, &none, 20000);
	rig_start(rig);
	wait_full();
}

static bool one_is_ready(void *arg)
{
	(void)arg;
	return pooled() == 1;
}

/* An image that cannot be had costs that pool, and no more than a line in the log now and then. */
static void a_pool_that_cannot_be_filled_is_in_nobodys_way(void **state)
{
	static const struct rig_conf conf = { .linux_backend = true,
		.policy = "{\"pools\":[{\"image\":\"no-such-image\",\"size\":2},{\"size\":1}]}" };
	struct rig *outer = rig;
	json_t *node;

	(void)state;
	rig = rig_new(&conf);
	rig_wait(one_is_ready, NULL, 20000);
	node = rig_json(rig, "GET", "/v1/node", NULL, 200);
	assert_int_equal(json_object_size(json_object_get(node, "pooled")), 1);
	json_decref(node);
	assert_true(came_from_pool(rig_sandbox(rig, NULL)));
	rig_free(rig);
	rig = outer;
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true, .policy = POLICY };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_fills_and_counts_and_nobody_sees_it),
		cmocka_unit_test(a_create_that_fits_takes_one_and_makes_it_its_own),
		cmocka_unit_test(the_shape_may_be_spelled_out),
		cmocka_unit_test(what_does_not_fit_is_made_for_the_request),
		cmocka_unit_test(a_burst_takes_what_there_is_and_makes_the_rest),
		cmocka_unit_test(a_cordon_refuses_them_too),
		cmocka_unit_test(its_image_is_in_use),
		cmocka_unit_test(a_killed_server_leaves_none_behind),
		cmocka_unit_test(with_the_server_they_end),
		cmocka_unit_test(a_pool_that_cannot_be_filled_is_in_nobodys_way),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
