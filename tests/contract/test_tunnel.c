/* SPDX-License-Identifier: MIT */
/* Tunnels to real sandboxes (node contract 14; 27 row 39; 28 row 11; 29.2 rows 9 to 11; case
 * RES-1): what is refused and in which order, both half-closes, what an open one keeps awake, and
 * who closes it. */
#include "tests/support/patience.h"
#include "tests/support/suite.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UPGRADE    "Connection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n"
#define BACKGROUND "Sandbox-Background: 1\r\n"

static struct rig *rig;

static bool is_asleep(void *id)
{
	return rig_in_state(rig, id, "suspended");
}

/* One try; the status, and the socket when it is 101. */
static int try(const char *id, const char *port, const char *headers, int *ret_fd)
{
	int fd = rig_open(rig, "GET", rig_path("/v1/sandboxes/%s/tunnel?port=%s", id, port),
		headers, NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);

	if (a.status == 101) {
		char v[64];
		assert_string_equal(answer_header(&a, "Upgrade", v, sizeof(v)), "sbx-tunnel/1");
		assert_non_null(answer_header(&a, "Connection", v, sizeof(v)));
		*ret_fd = fd;
	} else {
		close(fd);
	}
	return a.status;
}

/* As a client does: again and again until somebody listens, which is answered before any 101. */
static int open_tunnel(const char *id, const char *port, const char *headers)
{
	int fd = -1, status = 404;

	for (int i = 0; i < 100 && status == 404; i++) {
		if (i)
			rig_pause(50);
		status = try(id, port, headers, &fd);
	}
	assert_int_equal(status, 101);
	return fd;
}

static void serve(const char *id, const char *script)
{
	json_t *body = json_pack("{s:[s,s,s]}", "argv", "sh", "-c", script);
	_cleanup_free_ char *text = json_dumps(body, JSON_COMPACT);

	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", id), text, 201));
	json_decref(body);
}

/* Everything up to the end; fails the test when it does not come. */
static size_t read_all(int fd, char *buf, size_t size)
{
	size_t at = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char more[65536];
		ssize_t n;
		assert_int_equal(poll(&p, 1, patience_ms(15000)), 1);
		n = recv(fd, more, sizeof(more), 0);
		assert_true(n >= 0);
		if (n == 0)
			return at;
		for (ssize_t i = 0; i < n; i++, at++)
			if (at < size)
				buf[at] = more[i];
	}
}

static void what_is_wrong_is_said_before_the_switch(void **state)
{
	static const struct {
		const char *port, *headers;
		int want;
	} rows[] = {
		{ "0", UPGRADE, 400 },
		{ "-1", UPGRADE, 400 },
		{ "65536", UPGRADE, 400 },
		{ "99999999999", UPGRADE, 400 },
		{ "abc", UPGRADE, 400 },
		{ "80x", UPGRADE, 400 },
		{ "%2B80", UPGRADE, 400 },
		{ "", UPGRADE, 400 },
		{ "80", NULL, 400 },
		{ "80", "Connection: Upgrade\r\nUpgrade: sbx-stream/1\r\n", 400 },
		{ "80", "Upgrade: sbx-tunnel/1\r\n", 400 },
		{ "1", UPGRADE, 404 },
		{ "65535", UPGRADE, 404 },
		{ "80", "Connection: keep-alive, upgrade\r\nUpgrade: SBX-TUNNEL/1\r\n", 404 },
	};
	const char *id = rig_sandbox(rig, NULL);
	int fd;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int got = try(id, rows[i].port, rows[i].headers, &fd);
		if (got != rows[i].want)
			fail_msg("port %s: %d, wanted %d", rows[i].port, got, rows[i].want);
	}
	assert_int_equal(try("sbx_0000000000000000", "80", UPGRADE, &fd), 404);
	assert_int_equal(try("sbx_0000000000000000", "0", UPGRADE, &fd), 400);
	rig_end(rig, id);
	assert_int_equal(try(id, "80", UPGRADE, &fd), 409);
}

/* The client ends its sending first: the guest's whole answer still comes. */
static void the_clients_end_is_passed_on_and_the_answer_comes_back(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	_cleanup_free_ char *sent = calloc(1, 100000), *got = calloc(1, 300100);
	size_t n;
	int fd;

	(void)state;
	serve(id, "nc -l -p 7777 -e sh -c 'wc -c; sleep 1; head -c 300000 /dev/zero; echo END'");
	fd = open_tunnel(id, "7777", UPGRADE);
	memset(sent, 'x', 100000);
	httpc_send_bytes(fd, sent, 100000);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	n = read_all(fd, got, 300099);
	assert_int_equal(n, 300000 + strlen("100000\n") + strlen("END\n"));
	assert_memory_equal(got, "100000\n", 7);
	assert_string_equal(got + n - 4, "END\n");
	close(fd);
	rig_end(rig, id);
}

/* The guest ends its sending first: the client may go on, and the guest gets all of it. */
static void the_guests_end_is_passed_on_and_it_still_listens(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	_cleanup_free_ char *sent = calloc(1, 200000), *out = NULL;
	char got[16] = "";
	int fd;

	(void)state;
	serve(id,
		"nc -l -p 7778 -e sh -c 'echo done; exec >/dev/null 2>&1; wc -c > /tmp/n; touch /tmp/over'");
	fd = open_tunnel(id, "7778", UPGRADE);
	assert_int_equal(recv(fd, got, 5, MSG_WAITALL), 5);
	assert_string_equal(got, "done\n");
	httpc_send_bytes(fd, sent, 200000);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	rig_sh(rig, id,
		"for i in $(seq 100); do [ -e /tmp/over ] && break; sleep 0.1; done; cat /tmp/n",
		&out);
	assert_string_equal(out, "200000\n");
	assert_int_equal(
		read_all(fd, got, sizeof(got)), 0); /* both have ended: so has the tunnel */
	close(fd);
	rig_end(rig, id);
}

static void a_tunnel_reaches_its_own_sandbox_only(void **state)
{
	const char *ids[2] = { rig_sandbox(rig, NULL), rig_sandbox(rig, NULL) };
	static const char *const words[] = { "first\n", "second\n" };

	(void)state;
	serve(ids[0], "nc -l -p 8765 -e echo first");
	serve(ids[1], "nc -l -p 8765 -e echo second");
	for (int i = 0; i < 2; i++) {
		char got[16] = "";
		int fd = open_tunnel(ids[i], "8765", UPGRADE);
		json_t *o, *last;
		shutdown(fd, SHUT_WR);
		read_all(fd, got, sizeof(got) - 1);
		assert_string_equal(got, words[i]);
		close(fd);
		o = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", ids[i]), NULL, 200);
		last = NULL;
		for (size_t k = 0; k < json_array_size(json_object_get(o, "events")); k++) {
			json_t *ev = json_array_get(json_object_get(o, "events"), k);
			if (!strcmp(json_string_value(json_object_get(ev, "type")),
				    "tunnel.opened"))
				last = ev;
		}
		assert_int_equal(json_integer_value(json_object_get(last, "port")), 8765);
		json_decref(o);
		rig_end(rig, ids[i]);
	}
}

/* A server of the guest that is no process of the API's, so that only the tunnel can be use. */
#define DAEMON "nc -l -p 9000 -e sleep 100 >/dev/null 2>&1 &"

static void an_open_tunnel_is_use_unless_it_says_otherwise(void **state)
{
	static const char *const body = "{\"idle_timeout_secs\":1,\"idle_action\":\"suspend\"}";
	const char *held = rig_sandbox(rig, body), *watched = rig_sandbox(rig, body);
	int a, b;

	(void)state;
	assert_int_equal(rig_sh(rig, held, DAEMON, NULL), 0);
	assert_int_equal(rig_sh(rig, watched, DAEMON, NULL), 0);
	a = open_tunnel(held, "9000", UPGRADE);
	b = open_tunnel(watched, "9000", UPGRADE BACKGROUND);
	rig_wait(is_asleep, (void *)(uintptr_t)watched, 30000);
	assert_true(httpc_closed(b, 10000)); /* its sandbox sleeps */
	rig_pause(1500);
	assert_true(rig_in_state(rig, held, "running"));
	close(a);
	close(b);
	rig_wait(is_asleep, (void *)(uintptr_t)held, 30000);
	rig_end(rig, held);
	rig_end(rig, watched);
}

static void a_suspend_and_an_end_close_what_is_open(void **state)
{
	const char *id = rig_sandbox(rig, NULL);
	int fd;

	(void)state;
	assert_int_equal(
		rig_sh(rig, id, "(while :; do nc -l -p 9000 -e cat; done) >/dev/null 2>&1 &", NULL),
		0);
	fd = open_tunnel(id, "9000", UPGRADE);
	assert_true(httpc_silent(fd, 200));
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/suspend", id), NULL, 200));
	assert_true(httpc_closed(fd, 10000));
	close(fd);
	json_decref(rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/resume", id), NULL, 200));
	fd = open_tunnel(id, "9000", UPGRADE);
	assert_true(httpc_silent(fd, 200));
	rig_end(rig, id);
	assert_true(httpc_closed(fd, 10000));
	close(fd);
}

/* Its tunnel's client has sent more than anybody holds, and is there or not. */
static void a_stop_does_not_wait_for_a_guest_that_does_not_read(void **state)
{
	static const char data[65536];
	const char *id = rig_sandbox(rig, NULL);

	(void)state;
	serve(id, "nc -l -p 7090 -e sleep 3600");
	serve(id, "nc -l -p 7091 -e sleep 3600");
	for (int gone = 0; gone < 2; gone++) {
		int fd = open_tunnel(id, gone ? "7091" : "7090", UPGRADE), status;
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		while (poll(&p, 1, 1000) == 1 &&
			send(fd, data, sizeof(data), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			;
		if (gone)
			close(fd);
		kill(rig_pid(rig), SIGTERM);
		assert_int_equal(waitpid(rig_pid(rig), &status, 0), rig_pid(rig));
		rig_stop(rig);
		rig_start(rig);
		if (!gone)
			close(fd);
		assert_int_equal(status, 0); /* its alarm has not ended it */
	}
}

int main(void)
{
	static const struct rig_conf conf = { .linux_backend = true };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_wrong_is_said_before_the_switch),
		cmocka_unit_test(the_clients_end_is_passed_on_and_the_answer_comes_back),
		cmocka_unit_test(the_guests_end_is_passed_on_and_it_still_listens),
		cmocka_unit_test(a_tunnel_reaches_its_own_sandbox_only),
		cmocka_unit_test(an_open_tunnel_is_use_unless_it_says_otherwise),
		cmocka_unit_test(a_suspend_and_an_end_close_what_is_open),
		cmocka_unit_test(a_stop_does_not_wait_for_a_guest_that_does_not_read),
	};

	return run_suite(tests, &conf, &rig, NULL);
}
