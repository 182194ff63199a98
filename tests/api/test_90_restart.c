/* SPDX-License-Identifier: MIT */
/* The server goes and comes back: what it was told to keep goes on with the same processes, what it
 * was told not to keep has ended, and nothing is left behind. */
#include "tests/support/rig.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

static const char *text(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static json_t *get(struct rig *r, const char *id)
{
	return rig_json(r, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
}

static void assert_state(struct rig *r, const char *id, const char *want)
{
	json_t *o = get(r, id);

	assert_string_equal(text(o, "state"), want);
	json_decref(o);
}

static size_t run_folders(struct rig *r)
{
	char path[160];
	const struct dirent *d;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/run", r->state);
	dir = opendir(path);
	while (dir && (d = readdir(dir)))
		n += d->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static const char *const no_keep[] = { "--no-keep-sandboxes", NULL };
static const struct rig_conf keeps_none = { .args = no_keep };

static void kept_sandboxes_go_on(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(rig_sandbox(r, "{\"name\":\"lasting\",\"labels\":{\"a\":\"b\"},"
					 "\"env\":{\"K\":\"zq7secret\"},\"lifetime_secs\":3600}"));
	char *out = NULL;
	json_t *before = get(r, id), *after;

	(void)state;
	json_decref(rig_json(r, "POST", rig_path("/v1/sandboxes/%s/processes", id),
		"{\"argv\":[\"sh\",\"-c\",\"echo early; read x; echo got $x; exit 3\"]}", 201));
	rig_restart(r);
	after = get(r, id);
	assert_true(json_equal(before, after));
	json_decref(before);
	json_decref(after);
	assert_int_equal(rig_sh(r, "lasting", "printenv K", &out), 0);
	assert_string_equal(out, "zq7secret\n");
	free(out);
	/* the same process: its input still works, its output is whole, its exit arrives */
	json_decref(rig_json(r, "GET", rig_path("/v1/sandboxes/%s/processes/1", id), NULL, 200));
	{
		struct answer a = rig_send(r, "POST",
			rig_path("/v1/sandboxes/%s/processes/1/stdin?close=1", id), NULL,
			"application/octet-stream", "it\n", 3);
		assert_int_equal(a.status, 204);
		answer_free(&a);
		a = rig_send(r, "GET", rig_path("/v1/sandboxes/%s/processes/1/output", id), NULL,
			NULL, NULL, 0);
		assert_non_null(strstr(a.body, "{\"exit_code\":3}"));
		answer_free(&a);
	}
	rig_free(r);
	free(id);
}

static void the_name_stays_claimed_and_numbers_go_on(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(rig_sandbox(r, "{\"name\":\"claimed\"}")), *out = NULL;
	json_t *o;

	(void)state;
	assert_int_equal(rig_sh(r, id, "true", &out), 0);
	free(out);
	rig_restart(r);
	rig_refuses(r, "POST", "/v1/sandboxes", "{\"name\":\"claimed\"}", 409, "conflict");
	o = rig_json(r, "POST", rig_path("/v1/sandboxes/%s/processes", id), "{\"argv\":[\"true\"]}",
		201);
	assert_int_equal(json_integer_value(json_object_get(o, "pid")), 2);
	json_decref(o);
	rig_free(r);
	free(id);
}

static void a_lifetime_goes_on_while_the_server_is_away(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(rig_sandbox(r, "{\"lifetime_secs\":1}"));

	(void)state;
	rig_stop(r);
	usleep(1200000);
	rig_start(r);
	for (int i = 0; i < 3000; i++) {
		json_t *o = get(r, id);
		bool over = !strcmp(text(o, "state"), "terminated");
		json_decref(o);
		if (over)
			break;
		usleep(10000);
	}
	assert_state(r, id, "terminated");
	rig_free(r);
	free(id);
}

static void sandboxes_that_are_not_kept_have_ended(void **state)
{
	struct rig *r = rig_new(&keeps_none);
	char *id = strdup(rig_sandbox(r, "{\"name\":\"short\",\"env\":{\"K\":\"zq7secret\"}}"));
	char *again, *out = NULL;
	json_t *o;

	(void)state;
	assert_int_equal(rig_sh(r, id, "echo kept output", &out), 0);
	free(out);
	rig_restart(r);
	assert_state(r, id, "terminated");
	o = get(r, id);
	assert_int_equal(json_array_size(json_object_get(o, "env_names")), 1);
	json_decref(o);
	o = rig_json(r, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
	{
		json_t *l = json_object_get(o, "events");
		json_t *last = json_array_get(l, json_array_size(l) - 1);
		assert_string_equal(text(last, "type"), "sandbox.terminated");
		assert_string_equal(text(last, "reason"), "restart");
	}
	json_decref(o);
	again = strdup(rig_sandbox(r, "{\"name\":\"short\"}"));
	assert_string_not_equal(id, again);
	free(again);
	rig_free(r);
	free(id);
}

static void ended_sandboxes_stay_readable_over_a_restart(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(rig_sandbox(r, NULL)), *out = NULL;
	struct answer a;

	(void)state;
	assert_int_equal(rig_sh(r, id, "echo kept", &out), 0);
	free(out);
	json_decref(rig_json(r, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, 204));
	rig_restart(r);
	assert_state(r, id, "terminated");
	a = rig_send(
		r, "GET", rig_path("/v1/sandboxes/%s/processes/1/output", id), NULL, NULL, NULL, 0);
	assert_int_equal(a.status, 200);
	assert_non_null(strstr(a.body, "a2VwdAo="));
	answer_free(&a);
	rig_free(r);
	free(id);
}

static void a_cordon_is_forgotten_and_the_instance_changes(void **state)
{
	struct rig *r = rig_new(NULL);
	json_t *a = rig_json(r, "GET", "/v1/capabilities", NULL, 200), *b;

	(void)state;
	json_decref(rig_json(r, "POST", "/v1/node/cordon", "{\"cordoned\":true}", 200));
	rig_restart(r);
	b = rig_json(r, "GET", "/v1/capabilities", NULL, 200);
	assert_string_not_equal(text(a, "instance"), text(b, "instance"));
	json_decref(rig_json(r, "POST", "/v1/sandboxes", "{}", 201));
	json_decref(a);
	json_decref(b);
	rig_free(r);
}

static void nothing_is_left_in_the_run_folder(void **state)
{
	struct rig *r = rig_new(&keeps_none);

	(void)state;
	for (int i = 0; i < 5; i++)
		json_decref(rig_json(r, "DELETE",
			rig_path("/v1/sandboxes/%s", rig_sandbox(r, NULL)), NULL, 204));
	/* nobody waits for folders */
	for (int i = 0; i < 3000 && run_folders(r) > 0; i++)
		usleep(10000);
	assert_int_equal(run_folders(r), 0);
	rig_sandbox(r, NULL);
	assert_int_equal(run_folders(r), 1);
	rig_restart(r);
	assert_int_equal(run_folders(r), 0);
	rig_free(r);
}

static bool lives(const int *pid)
{
	return kill(*pid, 0) == 0;
}

/* Its socket is gone, so the server cannot come back to it; the sweep finds it by the rest. */
static void what_cannot_be_taken_back_does_not_run_on(void **state)
{
	struct rig *r = rig_new(NULL);
	char *id = strdup(rig_sandbox(r, NULL)), path[200], line[200] = "";
	int pid[3];
	FILE *f;

	(void)state;
	rig_stop(r);
	snprintf(path, sizeof(path), "%s/run/%s/sock", r->state, id);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/run/%s/pid", r->state, id);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_int_equal(sscanf(line, "%*s %d %*s %d %*s %d", &pid[0], &pid[1], &pid[2]), 3);
	assert_true(lives(&pid[0]) && lives(&pid[1]) && lives(&pid[2]));
	rig_start(r);
	assert_state(r, id, "terminated");
	for (int i = 0; i < 3; i++)
		for (int n = 0; n < 3000 && lives(&pid[i]); n++)
			usleep(10000);
	assert_false(lives(&pid[0]) || lives(&pid[1]) || lives(&pid[2]));
	free(id);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept_sandboxes_go_on),
		cmocka_unit_test(the_name_stays_claimed_and_numbers_go_on),
		cmocka_unit_test(a_lifetime_goes_on_while_the_server_is_away),
		cmocka_unit_test(sandboxes_that_are_not_kept_have_ended),
		cmocka_unit_test(ended_sandboxes_stay_readable_over_a_restart),
		cmocka_unit_test(a_cordon_is_forgotten_and_the_instance_changes),
		cmocka_unit_test(nothing_is_left_in_the_run_folder),
		cmocka_unit_test(what_cannot_be_taken_back_does_not_run_on),
	};
	return run_table(tests);
}
