/* SPDX-License-Identifier: MIT */
/* Field cases on real sandboxes that no other test walks through as they are told, and further
 * checks of the contract (28) that need real ones. Where the others are:
 *
 * - NET-1: here, unit/test_egress_names, linux/70_network; NET-2: linux/70_network
 * - NET-3: linux/71_network_life
 * - SNP-1: here, contract/test_sleep; SNP-2: here, contract/test_sleep, linux/51_mount_node
 * - SNP-3: here
 * - LIF-1 to LIF-4: contract/test_life, fs/40_trouble
 * - SEC-1: api/test_12_secrets; MET-1: contract/test_metrics
 * - RES-1: contract/test_tunnel; RES-2: linux/71_volumes; RES-3: linux/80_images
 * - 28.1: api/test_10_http, test_20_sandboxes; 28.2: api/test_11_start
 * - 28.3: api/test_10_http_json; 28.4: here, api/test_30_run, test_31_processes
 * - 28.5: here, unit/test_netpolicy
 * - 28.6: contract/test_life, test_metrics, api/test_21_lifecycle
 * - 28.7: contract/test_sleep, api/test_22_sleep
 * - 28.8: contract/test_life, api/test_20_sandboxes
 * - 28.9: here, unit/test_snapshots, linux/70_snapshots
 * - 28.10: api/test_33_attach; 28.11: contract/test_tunnel
 * - 28.12: api/test_30_run, test_31_processes
 * - 28.13: contract/test_export, linux/72_export; 28.14: api/test_21_lifecycle
 * - 28.15: contract/test_life, linux/71_volumes
 * - 28.16: api/test_90_restart, contract/test_sleep, linux/70_snapshots */
#include "tests/support/suite.h"

#include <time.h>
#include <unistd.h>

static struct rig *rig;

static const char policy[] =
	"{\"network\":{\"default\":{\"mode\":\"allowlist\",\"allow\":[\"github.com\",\"pypi.org\"]},"
	"\"ceiling\":\"allowlist\",\"may_allow\":[\"*.example.com\",\"registry.npmjs.org\"]}}";

/* --- NET-1 ----------------------------------------------------------------------------------- */

/* 0: status 201 with this network; else the refusal. */
static const struct {
	const char *network;
	int status;
	const char *result;
} policies[] = {
	{ "{\"mode\":\"none\"}", 0, "{\"mode\":\"none\",\"allow\":null}" },
	{ "{\"mode\":\"none\",\"deny\":[\"x.example.com\"]}", 0,
		"{\"mode\":\"none\",\"allow\":null}" },
	{ "{\"mode\":\"none\",\"allow\":[\"github.com\"]}", 400, NULL },
	{ "{\"mode\":\"open\"}", 403, NULL },
	{ "{\"mode\":\"Open\"}", 400, NULL },
	{ "{\"mode\":\"all\"}", 400, NULL },
	{ "{}", 0, "{\"mode\":\"allowlist\",\"allow\":[\"github.com\",\"pypi.org\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":null,\"deny\":[\"Gist.GitHub.com.\",\"gist.github.com\"]}",
		0,
		"{\"mode\":\"allowlist\",\"allow\":[\"github.com\",\"pypi.org\"],\"deny\":[\"gist.github.com\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[]}", 403, NULL },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"GitHub.com.\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"github.com\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"registry.npmjs.org\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"registry.npmjs.org\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"A.EXAMPLE.Com.\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"a.example.com\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"*.a.example.com\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"*.a.example.com\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"*.example.com\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"*.example.com\"]}" },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"example.com\"]}", 403, NULL },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"*.com\"]}", 403, NULL },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"evil-example.com\"]}", 403, NULL },
	{ "{\"mode\":\"allowlist\",\"allow\":[\"attacker.net\"]}", 403, NULL },
	{ "{\"mode\":\"allowlist\",\"deny\":[\"https://example.com/path\"]}", 400, NULL },
	{ "{\"mode\":\"\",\"allow\":[\"pypi.org\"]}", 0,
		"{\"mode\":\"allowlist\",\"allow\":[\"pypi.org\"]}" },
	{ "{\"mode\":\"allowlist\",\"groups\":[\"web\"]}", 400, NULL },
};

static void the_worked_examples_hold_for_a_client(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
		const char *body = rig_path("{\"network\":%s}", policies[i].network);
		_cleanup_answer_ struct answer a =
			rig_send(rig, "POST", "/v1/sandboxes", NULL, NULL, body, strlen(body));
		json_t *got = answer_json(&a), *want;
		if (a.status != (policies[i].status ? policies[i].status : 201))
			fail_msg("%s: %d %s", policies[i].network, a.status, a.body);
		if (policies[i].result) {
			want = json_loads(policies[i].result, 0, NULL);
			if (!json_equal(json_object_get(got, "network"), want))
				fail_msg("%s: %s", policies[i].network, a.body);
			json_decref(want);
			rig_end(rig, json_string_value(json_object_get(got, "id")));
		}
		json_decref(got);
	}
}

static void an_entry_that_is_no_name_is_refused_and_never_changed(void **state)
{
	static const char *const entries[] = { "\"*example.com\"", "\"a.*.com\"", "\"*\"", "\"*.\"",
		"\"*.*.com\"", "\"http://a.com\"", "\"a.com:443\"", "\"a.com/x\"", "\"10.0.0.1\"",
		"\"[::1]\"", "\"a..com\"", "\"-a.com\"", "\"a b.com\"", "\"\"", "\".\"",
		"\"a.com\\u0000.b\"", "7", "null" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(entries); i++)
		rig_refuses(rig, "POST", "/v1/sandboxes",
			rig_path("{\"network\":{\"mode\":\"allowlist\",\"allow\":[%s]}}",
				entries[i]),
			400, "invalid_request");
}

/* --- SNP ------------------------------------------------------------------------------------- */

static void turn(const char *id, const char *verb)
{
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/%s", id, verb), NULL, 200));
}

static char *said(const char *id, const char *text)
{
	char *out = NULL;

	assert_int_equal(rig_sh(rig, id, text, &out), 0);
	return out;
}

static void assert_said(const char *id, const char *text, const char *want)
{
	_cleanup_free_ char *out = said(id, text);

	assert_string_equal(out, want);
}

static const char *snapshot_of(const char *id)
{
	json_t *v = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/snapshots", id), NULL, 201);
	const char *snap = rig_path("%s", json_string_value(json_object_get(v, "id")));

	json_decref(v);
	return snap;
}

static const char *fork_of(const char *id)
{
	const char *snap = snapshot_of(id), *made;

	made = rig_sandbox(rig, rig_path("{\"snapshot_id\":\"%s\"}", snap));
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/snapshots/%s", snap), NULL, 204));
	return made;
}

#define ROUND                                                                                      \
	"echo %d > f%d; dd if=/dev/urandom of=b%d bs=64k count=16 2>/dev/null; "                   \
	"sha256sum b%d >> sums; rm -f gone; [ %d -eq 3 ] && rm f2; touch gone"

/* Each pause, and then each fork of a fork, has all that was written up to it. */
static void every_pause_and_every_fork_keeps_all_before_it(void **state)
{
	static const char *const left[] = { "", "f1\n", "f1\nf2\n", "f1\nf3\n", "f1\nf3\nf4\n",
		"f1\nf3\nf4\nf5\n" };
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	for (int i = 1; i <= 5; i++) {
		free(said(id, rig_path(ROUND, i, i, i, i, i)));
		turn(id, "suspend");
		turn(id, "resume");
		assert_said(id, "ls -1 f*; sha256sum -c sums | grep -vc OK; true",
			rig_path("%s0\n", left[i]));
	}
	for (int i = 0; i < 3; i++) {
		const char *next = fork_of(id);
		rig_end(rig, id);
		id = next;
		assert_said(id, "cd /sandbox/home; ls -1 f*; sha256sum -c sums | grep -vc OK; true",
			"f1\nf3\nf4\nf5\n0\n");
	}
	rig_end(rig, id);
}

static bool is_asleep(void *id)
{
	return rig_in_state(rig, id, "suspended");
}

static void what_was_written_last_is_there_after_falling_asleep(void **state)
{
	static const char outside[] = "outside";
	const char *id = rig_sandbox(rig, "{\"idle_timeout_secs\":2,\"idle_action\":\"suspend\"}");

	(void)state;
	free(said(id, "for i in $(seq 300); do echo $i > g$i; done"));
	_cleanup_answer_ struct answer a =
		rig_send(rig, "PUT", rig_path("/v1/sandboxes/%s/files?path=/sandbox/home/last", id),
			NULL, "application/octet-stream", outside, sizeof(outside) - 1);
	assert_answer(&a, 204, NULL);
	rig_wait(is_asleep, (void *)(uintptr_t)id, 15000);
	assert_said(id, "ls -1 g* | wc -l; cat last", "300\noutside");
	assert_int_equal(rig_events(rig, id, "sandbox.resumed", "request"), 1);
	rig_end(rig, id);
}

static void assert_clock(const char *id)
{
	_cleanup_free_ char *out = said(id, "date +%s");
	long long off = atoll(out) - (long long)time(NULL);

	assert_true(off >= -1 && off <= 1);
	assert_said(id, "touch a; sleep 1; touch b; [ b -nt a ] && echo ordered", "ordered\n");
}

/* SNP-3. The sleeper is a child that its run left behind; a sandbox with a process is not put to
 * sleep. */
static void the_clock_is_right_after_waking_and_in_a_fork(void **state)
{
	const char *id = rig_sandbox(rig, NULL), *other;

	(void)state;
	free(said(id, "(sleep 2; echo over >> over; while sleep 0.5; do echo x >> ticks; done) "
		      ">/dev/null 2>&1 &"));
	turn(id, "suspend");
	rig_pause(6000);
	turn(id, "resume");
	free(said(
		id, "i=0; while [ ! -e over ] && [ $i -lt 30 ]; do sleep 0.1; i=$((i + 1)); done"));
	assert_said(id, "cat over; [ $(cat ticks 2>/dev/null | wc -l) -le 2 ] && echo no burst",
		"over\nno burst\n");
	assert_clock(id);
	other = fork_of(id);
	assert_clock(other);
	rig_end(rig, other);
	rig_end(rig, id);
}

/* --- 28.9 ------------------------------------------------------------------------------------ */

/* Every moment shows a whole progress or none. */
static void a_snapshot_shows_how_far_it_is_or_is_done(void **state)
{
	const char *id = rig_sandbox(rig, NULL), *path = rig_path("/v1/sandboxes/%s/snapshots", id);
	char *kept = strdup(path);
	int fd;

	(void)state;
	free(said(id, "dd if=/dev/urandom of=big bs=1M count=64 2>/dev/null"));
	fd = rig_open(rig, "POST", kept, NULL, NULL, NULL, 0);
	for (int i = 0; i < 200; i++) {
		json_t *s = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s", id), NULL, 200);
		json_t *p = json_object_get(s, "snapshotting");
		if (p) {
			const char *phase = json_string_value(json_object_get(p, "phase"));
			assert_true(!strcmp(phase, "capture") || !strcmp(phase, "store"));
			assert_non_null(json_object_get(p, "started_at"));
			assert_true(json_is_integer(json_object_get(p, "bytes")));
		}
		json_decref(s);
		if (!p && i > 0)
			break;
	}
	_cleanup_answer_ struct answer a = httpc_answer(fd);
	assert_answer(&a, 201, NULL);
	close(fd);
	free(kept);
	rig_end(rig, id);
}

/* --- 28.4 ------------------------------------------------------------------------------------ */

static void a_file_of_64_mib_passes_and_one_byte_more_does_not(void **state)
{
	const size_t most = (size_t)64 << 20;
	const char *id = rig_sandbox(rig, NULL),
		   *path = rig_path("/v1/sandboxes/%s/files?path=/sandbox/home/large", id);
	_cleanup_free_ char *buf = malloc(most + 1);

	(void)state;
	assert_non_null(buf);
	for (size_t i = 0; i <= most; i++)
		buf[i] = (char)(i * 2654435761u >> 24);
	for (size_t more = 0; more < 2; more++) {
		_cleanup_answer_ struct answer put = rig_send(
			rig, "PUT", path, NULL, "application/octet-stream", buf, most + more);
		assert_answer(&put, more ? 413 : 204, more ? "invalid_request" : NULL);
	}
	_cleanup_answer_ struct answer got = rig_send(rig, "GET", path, NULL, NULL, NULL, 0);
	assert_answer(&got, 200, NULL);
	assert_int_equal(got.len, most);
	assert_memory_equal(got.body, buf, most);
	rig_end(rig, id);
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true, .policy = policy };
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_worked_examples_hold_for_a_client),
		cmocka_unit_test(an_entry_that_is_no_name_is_refused_and_never_changed),
		cmocka_unit_test(every_pause_and_every_fork_keeps_all_before_it),
		cmocka_unit_test(what_was_written_last_is_there_after_falling_asleep),
		cmocka_unit_test(the_clock_is_right_after_waking_and_in_a_fork),
		cmocka_unit_test(a_snapshot_shows_how_far_it_is_or_is_done),
		cmocka_unit_test(a_file_of_64_mib_passes_and_one_byte_more_does_not),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
