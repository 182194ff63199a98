/* SPDX-License-Identifier: MIT */
/* Usage of real sandboxes (node contract, 19; 27 row 37; 28 row 6; case MET-1): the figures are
 * held against what the sandbox was made to use and what the kernel's groups say. One server, and
 * sandboxes that are watched at the same time, as every sample takes five seconds. Skipped when not
 * root. */
#include "tests/support/suite.h"

#include "sandboxd/priv/box.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024 * 1024)

static struct rig *rig;

/* --- small words ----------------------------------------------------------------------------- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *sandbox(const char *more)
{
	return rig_sandbox(rig, rig_path("{\"network\":{\"mode\":\"none\"}%s}", more ? more : ""));
}

/* The list of samples; caller owns. */
static json_t *samples(const char *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/metrics", id), NULL, 200);
	json_t *list = json_incref(json_object_get(o, "samples"));

	assert_int_equal(json_integer_value(json_object_get(o, "interval_secs")), 5);
	assert_true(json_is_array(list));
	json_decref(o);
	return list;
}

static size_t count(const char *id)
{
	json_t *list = samples(id);
	size_t n = json_array_size(list);

	json_decref(list);
	return n;
}

struct awaited {
	const char *id;
	size_t n;
};

static bool has_samples(void *arg)
{
	const struct awaited *a = arg;

	return count(a->id) >= a->n;
}

static void await_samples(const char *id, size_t n)
{
	struct awaited a = { id, n };

	rig_wait(has_samples, &a, 30000);
}

static void start_process(const char *id, const char *script)
{
	json_t *body = json_pack("{s:[s,s,s]}", "argv", "sh", "-c", script);
	_cleanup_free_ char *text = json_dumps(body, 0);

	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id), text, 201));
	json_decref(body);
}

static void end(const char *id)
{
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, 204));
}

static double number(const json_t *s, const char *key)
{
	const json_t *v = json_object_get(s, key);

	assert_true(json_is_number(v));
	assert_true(json_number_value(v) >= 0);
	return json_number_value(v);
}

static void assert_sound(const json_t *list)
{
	static const char *const counters[] = { "net_rx_bytes", "net_tx_bytes", "disk_read_bytes",
		"disk_write_bytes" };
	const json_t *before = NULL, *s;
	size_t i;

	json_array_foreach (list, i, s) {
		assert_true(number(s, "cpu_percent") <= 100);
		assert_true(number(s, "memory_bytes") <= number(s, "memory_limit_bytes"));
		for (size_t k = 0; before && k < ARRAY_LEN(counters); k++)
			assert_true(number(s, counters[k]) >= number(before, counters[k]));
		assert_true(
			!before || strcmp(json_string_value(json_object_get(s, "time")),
					   json_string_value(json_object_get(before, "time"))) > 0);
		before = s;
	}
	assert_true(number(json_array_get(list, 0), "cpu_percent") == 0);
}

/* --- held against the kernel ----------------------------------------------------------------- */

/* The group of the guest's first process in one hierarchy, as its folder in this test's mounts. */
static bool group_of(pid_t pid, const char *controller, char *out, size_t size)
{
	char path[64], line[512], point[256], want[64];
	bool v2 = !*controller;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	snprintf(want, sizeof(want), ":%s:/", controller);
	f = fopen(path, "re");
	*out = '\0';
	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, v2 ? "0::/" : want) == (v2 ? line : strchr(line, ':')))
			snprintf(out, size, "%s", strchr(strchr(line, ':') + 1, ':') + 1);
	if (f)
		fclose(f);
	out[strcspn(out, "\n")] = '\0';
	if (!*out)
		return false;
	f = fopen("/proc/self/mountinfo", "re");
	*point = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		const char *dash = strstr(line, " - ");
		if (dash && !*point &&
			(v2 ? strstr(dash, " - cgroup2 ") != NULL
			    : strstr(dash, " - cgroup ") && strstr(dash, controller)))
			sscanf(line, "%*s %*s %*s %*s %255s", point);
	}
	if (f)
		fclose(f);
	memmove(out + strlen(point), out, strlen(out) + 1);
	memcpy(out, point, strlen(point));
	return *point != '\0';
}

static pid_t first_process(const char *id)
{
	char path[160], buf[64] = "";
	struct record rec;
	int fd;

	snprintf(path, sizeof(path), "%s/priv/boxes/%s", rig->state, id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, &rec, sizeof(rec)), sizeof(rec));
	close(fd);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", rec.shim_pid, rec.shim_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, buf, sizeof(buf) - 1) > 0);
	close(fd);
	return (pid_t)strtol(buf, NULL, 10);
}

/* Processor seconds of the guest; -1: this host counts them somewhere else. */
static double kernel_seconds(const char *id)
{
	char path[768], line[128];
	double us = -1;
	FILE *f;

	if (!group_of(first_process(id), "", path, 512))
		return -1;
	*strrchr(path, '/') = '\0'; /* from guest/init to guest */
	strcat(path, "/cpu.stat");
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "usage_usec %lf", &us) == 1)
			break;
	if (f)
		fclose(f);
	return us < 0 ? -1 : us / 1e6;
}

/* What the kernel counted between two moments. */
struct span {
	double used, at;
};

static struct span look(const char *id)
{
	return (struct span){ kernel_seconds(id), now() };
}

/* The machine may be busy with other tests, so only the kernel knows what is right. The samples and
 * the test's own looks do not begin at the same moment. */
static void assert_share(double shown, struct span from, struct span to)
{
	double want = 100 * (to.used - from.used) / (to.at - from.at);

	if (from.used < 0)
		return; /* this host counts it where the test does not look */
	assert_true(to.used > from.used);
	if (shown < want * 0.6 - 8 || shown > want * 1.4 + 8)
		fail_msg("shown %.1f%%, the kernel counts %.1f%%", shown, want);
}

static double mean_from(const json_t *list, size_t first)
{
	double sum = 0;

	for (size_t i = first; i < json_array_size(list); i++)
		sum += number(json_array_get(list, i), "cpu_percent");
	return sum / (double)(json_array_size(list) - first);
}

static void processor_time_is_what_the_kernel_counts(void **state)
{
	const char *one = sandbox(",\"cpus\":1"), *half = sandbox(",\"cpus\":0.5");
	struct span from, to;
	json_t *list;
	size_t n;

	(void)state;
	for (int i = 0; i < 2; i++) {
		start_process(one, "while :; do :; done");
		start_process(half, "while :; do :; done");
	}
	await_samples(one, 2);
	n = count(one);
	from = look(one);
	await_samples(one, n + 2);
	to = look(one);
	list = samples(one);
	assert_sound(list);
	assert_share(mean_from(list, n), from, to);
	json_decref(list);
	/* half a processor is all that this one was given */
	n = count(half);
	from = look(half);
	await_samples(half, n + 2);
	to = look(half);
	from.used *= 2;
	to.used *= 2;
	list = samples(half);
	assert_sound(list);
	assert_share(mean_from(list, n), from, to);
	json_decref(list);
	end(one);
	end(half);
}

/* cgroup2 counts what has reached the disk, and a guest's own fsync does not bring it there. */
static bool has_written(void *arg)
{
	const struct awaited *a = arg;
	json_t *list = samples(a->id);
	const json_t *first = json_array_get(list, 0), *last = json_array_get(list, json_array_size(list) - 1);
	bool has = number(last, "disk_write_bytes") - number(first, "disk_write_bytes") >= 32.0 * MIB;

	json_decref(list);
	return has;
}

static void memory_disk_and_processes_are_what_was_used(void **state)
{
	const char *id = sandbox(",\"memory_mb\":256");
	struct awaited a = { .id = id };
	json_t *list, *first, *last;

	(void)state;
	await_samples(id, 1);
	start_process(id, "sleep 1000 & sleep 1000 & wait");
	assert_int_equal(rig_sh(rig, id,
				 "dd if=/dev/zero of=/dev/shm/x bs=1M count=64 2>/dev/null && "
				 "dd if=/dev/zero of=/sandbox/home/x bs=1M count=32 2>/dev/null",
				 NULL),
		0);
	await_samples(id, count(id) + 1);
	rig_wait(has_written, &a, 90000);
	list = samples(id);
	assert_sound(list);
	first = json_array_get(list, 0);
	last = json_array_get(list, json_array_size(list) - 1);
	assert_true(number(last, "memory_limit_bytes") == 256.0 * MIB);
	assert_true(number(last, "memory_bytes") - number(first, "memory_bytes") > 60.0 * MIB);
	assert_true(number(last, "memory_bytes") - number(first, "memory_bytes") < 90.0 * MIB);
	assert_true(
		number(last, "disk_write_bytes") - number(first, "disk_write_bytes") < 64.0 * MIB);
	assert_true(number(last, "processes") == 3);
	assert_true(number(last, "net_rx_bytes") == 0); /* it has no network */
	json_decref(list);
	end(id);
}

static void put_file(const char *id, const char *path, size_t size)
{
	_cleanup_free_ char *data = calloc(1, size);

	assert_non_null(data);
	_cleanup_answer_ struct answer a = rig_send(rig, "PUT",
		rig_path("/v1/sandboxes/%s/files?path=%s", id, path), NULL, "application/octet-stream", data, size);
	assert_int_equal(a.status, 204);
}

static void memory_that_the_server_writes_to_is_the_sandboxs(void **state)
{
	const char *id = sandbox(",\"memory_mb\":256");
	json_t *list;
	double more;

	(void)state;
	await_samples(id, 1);
	put_file(id, "/tmp/x", 32 * MIB);
	put_file(id, "/dev/shm/x", 32 * MIB);
	await_samples(id, count(id) + 2);
	list = samples(id);
	assert_sound(list);
	more = number(json_array_get(list, json_array_size(list) - 1), "memory_bytes") -
	       number(json_array_get(list, 0), "memory_bytes");
	assert_true(more > 60.0 * MIB);
	assert_true(more < 90.0 * MIB);
	json_decref(list);
	end(id);
}

/* --- when there are samples ------------------------------------------------------------------ */

static void the_end_keeps_the_history_as_it_is(void **state)
{
	const char *id = sandbox(NULL);
	struct timespec t = { .tv_sec = 7 };
	json_t *before, *after;

	(void)state;
	await_samples(id, 2);
	end(id);
	before = samples(id);
	nanosleep(&t, NULL);
	after = samples(id);
	assert_true(json_array_size(before) >= 2);
	assert_true(json_equal(before, after));
	json_decref(before);
	json_decref(after);
}

static void asleep_it_is_not_measured(void **state)
{
	const char *id = sandbox(NULL);
	struct timespec t = { .tv_sec = 8 };
	struct span from;
	json_t *list;
	size_t n;

	(void)state;
	await_samples(id, 1);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, 200));
	n = count(id);
	nanosleep(&t, NULL);
	assert_int_equal(count(id), n);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/resume", id), NULL, 200));
	start_process(id, "while :; do :; done");
	from = look(id);
	await_samples(id, n + 1);
	list = samples(id);
	assert_sound(list);
	/* of the time since it woke; with the sleep in it, this would be a third */
	assert_share(number(json_array_get(list, n), "cpu_percent"), from, look(id));
	json_decref(list);
	end(id);
}

static bool has_ended(void *id)
{
	json_t *o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", (char *)id), NULL, 200);
	bool is = !strcmp(json_string_value(json_object_get(o, "state")), "terminated");

	json_decref(o);
	return is;
}

static bool has_ended_while_polled(void *id)
{
	(void)count(id);
	return has_ended(id);
}

static void asking_is_no_use(void **state)
{
	const char *id = sandbox(",\"idle_timeout_secs\":3");

	(void)state;
	rig_wait(has_ended_while_polled, (void *)(uintptr_t)id, 10000);
}

static void a_restart_begins_anew(void **state)
{
	const char *id = sandbox(NULL);
	json_t *before, *after;

	(void)state;
	await_samples(id, 2);
	before = samples(id);
	rig_restart(rig);
	await_samples(id, 1);
	after = samples(id);
	assert_sound(after);
	assert_true(
		strcmp(json_string_value(json_object_get(json_array_get(after, 0), "time")),
			json_string_value(json_object_get(
				json_array_get(before, json_array_size(before) - 1), "time"))) > 0);
	/* counted by the kernel since the start of the sandbox, not of the server */
	assert_true(number(json_array_get(after, 0), "disk_read_bytes") >=
		    number(json_array_get(before, 0), "disk_read_bytes"));
	json_decref(before);
	json_decref(after);
	end(id);
}

static void what_is_asked_for_wrongly_is_refused(void **state)
{
	const char *id = sandbox(NULL);
	json_t *o;

	(void)state;
	rig_refuses(
		rig, "GET", "/v1/sandboxes/sbx_0000000000000000/metrics", NULL, 404, "not_found");
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s/metrics?last=0", id), NULL, 400,
		"invalid_request");
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s/metrics?last=x", id), NULL, 400,
		"invalid_request");
	await_samples(id, 2);
	o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/metrics?last=1", id), NULL, 200);
	assert_int_equal(json_array_size(json_object_get(o, "samples")), 1);
	json_decref(o);
	end(id);
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true };
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(processor_time_is_what_the_kernel_counts),
		cmocka_unit_test(memory_disk_and_processes_are_what_was_used),
		cmocka_unit_test(memory_that_the_server_writes_to_is_the_sandboxs),
		cmocka_unit_test(the_end_keeps_the_history_as_it_is),
		cmocka_unit_test(asleep_it_is_not_measured),
		cmocka_unit_test(asking_is_no_use),
		cmocka_unit_test(a_restart_begins_anew),
		cmocka_unit_test(what_is_asked_for_wrongly_is_refused),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
