/* SPDX-License-Identifier: MIT */
/* Output as NDJSON and as bytes (node contract 11.5; addition output_range; suite items 14-16;
 * cases RUN-3, TTY-2, TTY-3, LIF-4). */

#include "common/json/json.h"
#include "tests/support/suite.h"

#include <sys/socket.h>
#include <time.h>

static struct rig *rig;
static const char *id;

static json_int_t start(const char *box, const char *body)
{
	json_t *p = rig_json(rig, "POST", rig_path("/v1/sandboxes/%s/processes", box), body, 201);
	json_int_t pid = json_integer_value(json_object_get(p, "pid"));

	json_decref(p);
	return pid;
}

/* What a follower got. */
struct heard {
	char *out[2];
	size_t len[2];
	json_int_t code;
	bool ended; /* by an exit line, after which nothing came */
};

static void add(struct heard *h, int stream, const char *b64)
{
	void *raw = NULL;
	size_t n;

	assert_int_equal(base64_decode(b64, strlen(b64), &raw, &n), 0);
	assert_true(n > 0);
	h->out[stream] = realloc(h->out[stream], h->len[stream] + n + 1);
	memcpy(h->out[stream] + h->len[stream], raw, n);
	h->len[stream] += n;
	h->out[stream][h->len[stream]] = '\0';
	free(raw);
}

static void take_line(struct heard *h, json_t *line)
{
	const char *stream = json_string_value(json_object_get(line, "stream"));

	assert_false(h->ended);
	if (stream) {
		add(h, !strcmp(stream, "stderr"), json_string_value(json_object_get(line, "data")));
	} else {
		assert_true(json_is_integer(json_object_get(line, "exit_code")));
		h->code = json_integer_value(json_object_get(line, "exit_code"));
		h->ended = true;
	}
	json_decref(line);
}

static struct heard follow(const char *box, json_int_t pid)
{
	int fd = rig_open(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/output", box, (long long)pid), NULL, NULL,
		NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);
	struct httpc_stream st = { 0 };
	struct heard h = { 0 };
	json_t *line;
	char type[64];

	assert_int_equal(a.status, 200);
	assert_string_equal(
		answer_header(&a, "Content-Type", type, sizeof(type)), "application/x-ndjson");
	while ((line = httpc_line(fd, &st)))
		take_line(&h, line);
	httpc_stream_free(&st);
	close(fd);
	return h;
}

static void heard_free(struct heard *h)
{
	free(h->out[0]);
	free(h->out[1]);
}

static void late_followers_hear_everything_from_the_start(void **state)
{
	json_int_t pid =
		start(id, "{\"argv\":[\"sh\",\"-c\",\"echo early; echo oops >&2; exit 3\"]}");

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct heard h = follow(id, pid);
		assert_string_equal(h.out[0], "early\n");
		assert_string_equal(h.out[1], "oops\n");
		assert_int_equal(h.code, 3);
		assert_true(h.ended);
		heard_free(&h);
	}
}

static void when_the_exit_line_is_there_the_process_has_exited(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		json_int_t pid = start(id, "{\"argv\":[\"cat\"]}");
		_cleanup_answer_ struct answer a = rig_send(rig, "POST",
			rig_path("/v1/sandboxes/%s/processes/%lld/stdin?close=1", id,
				(long long)pid),
			NULL, "application/octet-stream", "ping\npong\n", 10);
		assert_answer(&a, 204, NULL);
		struct heard h = follow(id, pid);
		json_t *p = rig_json(rig, "GET",
			rig_path("/v1/sandboxes/%s/processes/%lld", id, (long long)pid), NULL, 200);
		assert_string_equal(json_string_value(json_object_get(p, "state")), "exited");
		assert_int_equal(json_integer_value(json_object_get(p, "exit_code")), 0);
		rig_refuses(rig, "POST",
			rig_path("/v1/sandboxes/%s/processes/%lld/stdin", id, (long long)pid), "",
			409, "conflict");
		assert_string_equal(h.out[0], "ping\npong\n");
		json_decref(p);
		heard_free(&h);
	}
}

static void the_header_is_sent_before_any_output(void **state)
{
	json_int_t pid = start(id, "{\"argv\":[\"sh\",\"-c\",\"read x; echo $x\"]}");
	int fd = rig_open(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/output", id, (long long)pid), NULL, NULL,
		NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd), b = { 0 };
	struct httpc_stream st = { 0 };
	struct heard h = { 0 };
	json_t *line;

	(void)state;
	assert_int_equal(a.status, 200);
	b = rig_send(rig, "POST",
		rig_path("/v1/sandboxes/%s/processes/%lld/stdin", id, (long long)pid), NULL,
		"application/octet-stream", "go\n", 3);
	assert_answer(&b, 204, NULL);
	while ((line = httpc_line(fd, &st)))
		take_line(&h, line);
	assert_string_equal(h.out[0], "go\n");
	assert_true(h.ended);
	heard_free(&h);
	httpc_stream_free(&st);
	close(fd);
}

/* 128 of one sandbox, by whatever it is called; what ends it gets in all the same. */
static void streams_are_counted_by_the_sandbox_and_not_by_its_name(void **state)
{
	enum { MOST = 128 };
	char box[64];
	int fds[MOST];
	json_int_t pid;

	(void)state;
	snprintf(box, sizeof(box), "%s", rig_sandbox(rig, "{\"name\":\"busy\"}"));
	pid = start(box, "{\"argv\":[\"sleep\",\"600\"]}");
	for (int i = 0; i < MOST; i++) {
		fds[i] = rig_open(rig, "GET",
			rig_path("/v1/sandboxes/%s/processes/%lld/output", i % 2 ? "busy" : box,
				(long long)pid),
			NULL, NULL, NULL, 0);
		_cleanup_answer_ struct answer a = httpc_head(fds[i]);
		assert_int_equal(a.status, 200);
	}
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s", box), NULL, 503, "unavailable");
	rig_refuses(rig, "GET", "/v1/sandboxes/busy", NULL, 503, "unavailable");
	rig_end(rig, "busy");
	for (int i = 0; i < MOST; i++)
		close(fds[i]);
}

static void output_that_is_split_anywhere_stays_the_same_bytes(void **state)
{
	json_int_t pid =
		start(id, "{\"argv\":[\"sh\",\"-c\",\"printf '\\\\360\\\\220'; sleep .1; printf "
			  "'\\\\215'; sleep .1; printf '\\\\210\\\\n\\\\377\\\\000\\\\376'\"]}");
	struct heard h = follow(id, pid);

	(void)state;
	assert_int_equal(h.len[0], 8);
	assert_memory_equal(h.out[0], "\xf0\x90\x8d\x88\n\xff\0\xfe", 8);
	heard_free(&h);
}

static void kept_are_8_mib_a_stream_and_the_exit_line_comes_last(void **state)
{
	json_int_t pid = start(id,
		"{\"argv\":[\"sh\",\"-c\",\"head -c 9437184 /dev/zero; seq 1 1000000 >&2; exit 5\"]}");
	struct heard h = follow(id, pid);

	(void)state;
	assert_int_equal(h.len[0], 8 * 1024 * 1024);
	assert_int_equal(h.len[1], 6888896);
	assert_string_equal(h.out[1] + h.len[1] - 8, "1000000\n");
	assert_int_equal(h.code, 5);
	assert_true(h.ended);
	heard_free(&h);
}

static void a_reader_that_stops_reading_harms_nobody(void **state)
{
	const char *box = rig_sandbox(rig, NULL);
	json_int_t pid = start(
		box, "{\"argv\":[\"sh\",\"-c\",\"head -c 16000000 /dev/zero; echo done >&2\"]}");
	int stuck = rig_open(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/output", box, (long long)pid), NULL, NULL,
		NULL, 0);
	struct heard h;
	time_t began;

	(void)state;
	h = follow(box, pid);
	assert_int_equal(h.len[0], 8 * 1024 * 1024);
	assert_string_equal(h.out[1], "done\n");
	assert_int_equal(h.code, 0);
	heard_free(&h);
	began = time(NULL);
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", box), NULL, 204));
	assert_true(time(NULL) - began < 20);
	close(stuck);
}

static void a_follower_that_leaves_changes_nothing(void **state)
{
	json_int_t pid = start(id, "{\"argv\":[\"sh\",\"-c\",\"echo a; read x; echo $x\"]}");
	struct heard h;

	(void)state;
	for (int i = 0; i < 5; i++)
		close(rig_open(rig, "GET",
			rig_path("/v1/sandboxes/%s/processes/%lld/output", id, (long long)pid),
			NULL, NULL, NULL, 0));
	_cleanup_answer_ struct answer a = rig_send(rig, "POST",
		rig_path("/v1/sandboxes/%s/processes/%lld/stdin", id, (long long)pid), NULL,
		"application/octet-stream", "b\n", 2);
	assert_answer(&a, 204, NULL);
	h = follow(id, pid);
	assert_string_equal(h.out[0], "a\nb\n");
	heard_free(&h);
}

static void a_stream_of_an_ended_sandbox_ends_with_137(void **state)
{
	const char *box = rig_sandbox(rig, NULL);
	json_int_t pid = start(box, "{\"argv\":[\"sh\",\"-c\",\"echo x; exec sleep 60\"]}");
	int fd = rig_open(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/output", box, (long long)pid), NULL, NULL,
		NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);
	struct httpc_stream st = { 0 };
	struct heard h = { 0 };
	json_t *line;

	(void)state;
	assert_int_equal(a.status, 200);
	take_line(&h, httpc_line(fd, &st));
	json_decref(rig_json(rig, "DELETE", rig_path("/v1/sandboxes/%s", box), NULL, 204));
	while ((line = httpc_line(fd, &st)))
		take_line(&h, line);
	assert_true(h.ended);
	assert_int_equal(h.code, 137);
	assert_string_equal(h.out[0], "x\n");
	heard_free(&h);
	httpc_stream_free(&st);
	close(fd);
}

/* output_range */
static struct answer bytes(json_int_t pid, const char *rest, const char *range)
{
	return rig_send(rig, "GET",
		rig_path("/v1/sandboxes/%s/processes/%lld/output/%s", id, (long long)pid, rest),
		range ? rig_path("Range: %s\r\n", range) : NULL, NULL, NULL, 0);
}

static void ranges_of_the_kept_output_are_served(void **state)
{
	static const struct {
		const char *rest, *range;
		int status;
		const char *body, *content_range;
	} rows[] = {
		{ "stdout", NULL, 200, "0123456789", NULL },
		{ "stderr", NULL, 200, "err", NULL },
		{ "both", NULL, 200, "0123456789err", NULL },
		{ "stdout", "bytes=0-", 206, "0123456789", "bytes 0-9/10" },
		{ "stdout", "bytes=3-5", 206, "345", "bytes 3-5/10" },
		{ "stdout", "bytes=8-100", 206, "89", "bytes 8-9/10" },
		{ "stdout", "bytes=-4", 206, "6789", "bytes 6-9/10" },
		{ "stdout", "bytes=-400", 206, "0123456789", "bytes 0-9/10" },
		{ "both", "bytes=8-11", 206, "89er", "bytes 8-11/13" },
		{ "stdout?follow=1", "bytes=7-", 200, "789", NULL },
		{ "both?follow=1", NULL, 200, "0123456789err", NULL },
		{ "stdout", "bytes=10-", 416, NULL, "bytes */10" },
		{ "stdout", "bytes=99-", 416, NULL, "bytes */10" },
		{ "stdout", "bytes=5-3", 400, NULL, NULL },
		{ "stdout", "bytes=a-", 400, NULL, NULL },
		{ "stdout", "bytes=1-2,4-5", 400, NULL, NULL },
		{ "stdout", "lines=1-", 400, NULL, NULL },
		{ "stdin", NULL, 404, NULL, NULL },
	};
	json_int_t pid = start(
		id, "{\"argv\":[\"sh\",\"-c\",\"printf 0123456789; sleep .1; printf err >&2\"]}");
	struct heard h = follow(id, pid);
	char value[64];

	(void)state;
	heard_free(&h);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_answer_ struct answer a = bytes(pid, rows[i].rest, rows[i].range);
		if (a.status != rows[i].status || (rows[i].body && strcmp(a.body, rows[i].body)))
			fail_msg("%s %s: %d %s", rows[i].rest, rows[i].range ? rows[i].range : "",
				a.status, a.body);
		const char *cr = answer_header(&a, "Content-Range", value, sizeof(value));
		if (rows[i].content_range)
			assert_string_equal(cr, rows[i].content_range);
		else
			assert_null(cr);
		if (a.status < 300) {
			assert_string_equal(
				answer_header(&a, "Sbx-First-Offset", value, sizeof(value)), "0");
			assert_string_equal(
				answer_header(&a, "Sbx-Complete", value, sizeof(value)), "1");
		}
	}
}

static void following_bytes_go_on_to_the_end_of_the_process(void **state)
{
	json_int_t pid = start(id, "{\"argv\":[\"sh\",\"-c\",\"printf abc; read x; printf def\"]}");
	int fd = rig_open(rig, "GET",
		rig_path(
			"/v1/sandboxes/%s/processes/%lld/output/both?follow=1", id, (long long)pid),
		"Range: bytes=1-\r\n", NULL, NULL, 0);
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };

	(void)state;
	b = rig_send(rig, "POST",
		rig_path("/v1/sandboxes/%s/processes/%lld/stdin", id, (long long)pid), NULL,
		"application/octet-stream", "\n", 1);
	assert_answer(&b, 204, NULL);
	a = httpc_answer(fd);
	close(fd);
	/* A range that starts behind what is there when it is asked for is refused for `both`. */
	if (a.status == 200)
		assert_string_equal(a.body, "bcdef");
	else
		assert_answer(&a, 416, "invalid_request");
}

static void what_is_there_of_a_running_process_is_answered_at_once(void **state)
{
	json_int_t pid = start(id, "{\"argv\":[\"sh\",\"-c\",\"exec sleep 60\"]}");
	_cleanup_answer_ struct answer a = bytes(pid, "stdout", NULL);
	char value[64];

	(void)state;
	assert_answer(&a, 200, NULL);
	assert_int_equal(a.len, 0);
	assert_string_equal(answer_header(&a, "Sbx-Complete", value, sizeof(value)), "0");
	assert_string_equal(answer_header(&a, "Sbx-Size", value, sizeof(value)), "0");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_followers_hear_everything_from_the_start),
		cmocka_unit_test(when_the_exit_line_is_there_the_process_has_exited),
		cmocka_unit_test(the_header_is_sent_before_any_output),
		cmocka_unit_test(streams_are_counted_by_the_sandbox_and_not_by_its_name),
		cmocka_unit_test(output_that_is_split_anywhere_stays_the_same_bytes),
		cmocka_unit_test(kept_are_8_mib_a_stream_and_the_exit_line_comes_last),
		cmocka_unit_test(a_reader_that_stops_reading_harms_nobody),
		cmocka_unit_test(a_follower_that_leaves_changes_nothing),
		cmocka_unit_test(a_stream_of_an_ended_sandbox_ends_with_137),
		cmocka_unit_test(ranges_of_the_kept_output_are_served),
		cmocka_unit_test(following_bytes_go_on_to_the_end_of_the_process),
		cmocka_unit_test(what_is_there_of_a_running_process_is_answered_at_once),
	};

	return run_suite(tests, NULL, &rig, &id);
}
