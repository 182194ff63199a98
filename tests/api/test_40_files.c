/* SPDX-License-Identifier: MIT */
/* Whole files over a real socket: node contract 13, suite items 17 and 18, cases FIL-1 to FIL-4. */
#include "tests/support/suite.h"

#include <unistd.h>

#define RAW_HEAD "Content-Type: application/octet-stream\r\n"

static struct rig *rig;
static const char *id;

static const char *file(const char *path)
{
	return rig_path("/v1/sandboxes/%s/files?path=%s", id, path);
}

static int put(const char *path, const void *body, size_t len)
{
	_cleanup_answer_ struct answer a =
		rig_send(rig, "PUT", file(path), NULL, "application/octet-stream", body, len);

	return a.status;
}

static struct answer get(const char *path, const char *headers)
{
	return rig_send(rig, "GET", file(path), headers, NULL, NULL, 0);
}

static void assert_content(const char *path, const void *want, size_t len)
{
	_cleanup_answer_ struct answer a = get(path, NULL);

	assert_int_equal(a.status, 200);
	assert_int_equal(a.len, len);
	assert_memory_equal(a.body, want, len);
}

static void file_goes_round(void **state)
{
	static const char bytes[27] = "a\0b\xff then some more bytes!";
	json_t *list;

	(void)state;
	assert_int_equal(put("/sandbox/home/nested/dir/f.txt", bytes, sizeof(bytes)), 204);
	assert_content("/sandbox/home/nested/dir/f.txt", bytes, sizeof(bytes));
	list = rig_json(rig, "GET",
		rig_path("/v1/sandboxes/%s/dirs?path=/sandbox/home/nested/dir", id), NULL, 200);
	json_t *e = json_array_get(json_object_get(list, "entries"), 0);
	assert_int_equal(json_array_size(json_object_get(list, "entries")), 1);
	assert_string_equal(json_string_value(json_object_get(e, "name")), "f.txt");
	assert_string_equal(json_string_value(json_object_get(e, "type")), "file");
	assert_int_equal(json_integer_value(json_object_get(e, "size")), 27);
	json_decref(list);
	rig_refuses(rig, "DELETE", file("/sandbox/home/nested"), NULL, 409, "conflict");
	_cleanup_answer_ struct answer a = rig_send(
		rig, "DELETE", file("/sandbox/home/nested/dir/f.txt"), NULL, NULL, NULL, 0);
	assert_int_equal(a.status, 204);
	rig_refuses(rig, "GET", file("/sandbox/home/nested/dir/f.txt"), NULL, 404, "not_found");
}

static void large_file_is_streamed_both_ways(void **state)
{
	size_t len = 9 * 1024 * 1024 + 7;
	_cleanup_free_ char *body = malloc(len);

	(void)state;
	for (size_t i = 0; i < len; i++)
		body[i] = (char)(i * 31 + i / 65536);
	assert_int_equal(put("/sandbox/home/large", body, len), 204);
	assert_content("/sandbox/home/large", body, len);
}

static const struct refusal {
	const char *name, *method, *path;
	int status;
	const char *code;
} refusals[] = {
	{ "no path is 400", "GET", "/files", 400, "invalid_request" },
	{ "relative path is 400", "GET", "/files?path=etc", 400, "invalid_request" },
	{ "parent element is 400", "GET", "/files?path=/a/%2e%2e/b", 400, "invalid_request" },
	{ "encoded slash and parent is 400", "GET", "/files?path=/a/..%2fb", 400,
		"invalid_request" },
	{ "zero byte is 400", "GET", "/files?path=/a%00b", 400, "invalid_request" },
	{ "bad escape is 400", "GET", "/files?path=/a%zz", 400, "invalid_request" },
	{ "missing file is 404", "GET", "/files?path=/missing", 404, "not_found" },
	{ "directory is 400", "GET", "/files?path=/sandbox", 400, "invalid_request" },
	{ "listing a missing directory is 404", "GET", "/dirs?path=/missing", 404, "not_found" },
	{ "removing the root is 409", "DELETE", "/files?path=/", 409, "conflict" },
	{ "removing what is missing is 404", "DELETE", "/files?path=/missing", 404, "not_found" },
};

static void check_refusal(void **state)
{
	const struct refusal *r = *state;

	rig_refuses(rig, r->method, rig_path("/v1/sandboxes/%s%s", id, r->path), NULL, r->status,
		r->code);
}

static void path_is_checked_before_the_sandbox(void **state)
{
	(void)state;
	rig_refuses(rig, "GET", "/v1/sandboxes/nobody/files?path=x", NULL, 400, "invalid_request");
	rig_refuses(rig, "GET", "/v1/sandboxes/nobody/files?path=/x", NULL, 404, "not_found");
	_cleanup_answer_ struct answer a = rig_send(rig, "PUT", "/v1/sandboxes/nobody/files?path=x",
		NULL, "application/octet-stream", "x", 1);
	assert_answer(&a, 400, "invalid_request");
}

static void file_on_the_way_is_400(void **state)
{
	(void)state;
	assert_int_equal(put("/sandbox/home/plain", "x", 1), 204);
	assert_int_equal(put("/sandbox/home/plain/below", "x", 1), 400);
	assert_int_equal(put("/sandbox/home", "x", 1), 400);
	rig_refuses(rig, "GET", rig_path("/v1/sandboxes/%s/dirs?path=/sandbox/home/plain", id),
		NULL, 400, "invalid_request");
}

static const struct {
	const char *in, *shown;
} names[] = {
	/* FIL-4 */
	{ "/sandbox/names/%252e%252e", "%2e%2e" },
	{ "/sandbox/names/..x", "..x" },
	{ "/sandbox/names/100%25.txt", "100%.txt" },
	{ "/sandbox/names/a%20b", "a b" },
	{ "/sandbox/names/a%2Bb", "a+b" },
	{ "/sandbox/names/a..b", "a..b" },
	{ "/sandbox/names//dd/./e", "dd" },
	{ "%2Fsandbox%2Fnames%2Fslash", "slash" },
};

static void names_are_decoded_once_and_sorted_by_bytes(void **state)
{
	json_t *list, *entries;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(put(names[i].in, "x", 1), 204);
	list = rig_json(
		rig, "GET", rig_path("/v1/sandboxes/%s/dirs?path=/sandbox/names", id), NULL, 200);
	entries = json_object_get(list, "entries");
	assert_int_equal(json_array_size(entries), ARRAY_LEN(names));
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_string_equal(
			json_string_value(json_object_get(json_array_get(entries, i), "name")),
			names[i].shown);
	json_decref(list);
}

static void bad_names_stay_two_names(void **state) /* FIL-3 */
{
	json_t *list, *entries;

	(void)state;
	assert_int_equal(put("/sandbox/bad/x%FFy", "one", 3), 204);
	assert_int_equal(put("/sandbox/bad/x%FEy", "two", 3), 204);
	list = rig_json(
		rig, "GET", rig_path("/v1/sandboxes/%s/dirs?path=/sandbox/bad", id), NULL, 200);
	entries = json_object_get(list, "entries");
	assert_int_equal(json_array_size(entries), 2);
	assert_string_equal(json_string_value(json_object_get(json_array_get(entries, 0), "name")),
		"x\xef\xbf\xbd"
		"FEy");
	assert_string_equal(json_string_value(json_object_get(json_array_get(entries, 1), "name")),
		"x\xef\xbf\xbd"
		"FFy");
	json_decref(list);
	assert_content("/sandbox/bad/x%FFy", "one", 3);
	_cleanup_answer_ struct answer a =
		rig_send(rig, "DELETE", file("/sandbox/bad/x%FEy"), NULL, NULL, NULL, 0);
	assert_int_equal(a.status, 204);
	assert_content("/sandbox/bad/x%FFy", "one", 3);
}

static void pipes_never_block(void **state) /* FIL-1 */
{
	static const char *const paths[] = { "/sandbox/home/pipe", "/sandbox/home/viapipe",
		"/sandbox/home/d" };

	(void)state;
	assert_int_equal(rig_sh(rig, id, "mkfifo pipe && ln -s pipe viapipe && mkdir d", NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		rig_refuses(rig, "GET", file(paths[i]), NULL, 400, "invalid_request");
		assert_int_equal(put(paths[i], "x", 1), 400);
	}
	assert_int_equal(rig_sh(rig, id, "test -p pipe && test -d d", NULL), 0);
}

static void files_and_processes_share_one_tree(void **state)
{
	char *out = NULL;

	(void)state;
	assert_int_equal(put("/sandbox/home/shared.txt", "from outside\n", 13), 204);
	assert_int_equal(rig_sh(rig, id, "cat shared.txt; echo inside > back.txt", &out), 0);
	assert_string_equal(out, "from outside\n");
	free(out);
	assert_content("/sandbox/home/back.txt", "inside\n", 7);
}

static bool home_is_clean(void *arg)
{
	(void)arg;
	return rig_sh(rig, id, "test \"$(ls -A cut)\" = f", NULL) == 0;
}

static void upload_cut_short_changes_nothing(void **state) /* FIL-2 */
{
	_cleanup_free_ char *half = malloc(3 * 1024 * 1024);

	(void)state;
	memset(half, 'z', 3 * 1024 * 1024);
	assert_int_equal(put("/sandbox/home/cut/f", "precious\n", 9), 204);
	for (size_t n = 14; n <= 3 * 1024 * 1024; n += 3 * 1024 * 1024 - 14) {
		/* Two and a half mebibytes are with the worker when the client leaves. */
		int fd = rig_open(rig, "PUT", file("/sandbox/home/cut/f"),
			RAW_HEAD "Content-Length: 9000000\r\n", NULL, NULL, 0);
		httpc_send_bytes(fd, half, n);
		close(fd);
	}
	rig_wait(home_is_clean, NULL, 20000);
	assert_content("/sandbox/home/cut/f", "precious\n", 9);
}

static void large_bodies_are_413_from_the_header(void **state)
{
	(void)state;
	int fd = rig_open(rig, "PUT", file("/sandbox/home/big"),
		RAW_HEAD "Content-Length: 67108865\r\n", NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_answer(fd);
	close(fd);
	assert_answer(&a, 413, "invalid_request");
	rig_refuses(rig, "GET", file("/sandbox/home/big"), NULL, 404, "not_found");
}

static void too_large_a_file_is_413_but_its_parts_are_not(void **state)
{
	(void)state;
	assert_int_equal(rig_sh(rig, id, "truncate -s 65M sparse", NULL), 0);
	rig_refuses(rig, "GET", file("/sandbox/home/sparse"), NULL, 413, "invalid_request");
	_cleanup_answer_ struct answer a =
		get("/sandbox/home/sparse", "Range: bytes=67108864-67108873\r\n");
	assert_int_equal(a.status, 206);
	assert_int_equal(a.len, 10);
}

static const struct range_row {
	const char *name, *range;
	int status;
	const char *want;
} ranges[] = {
	{ "range from the middle", "bytes=2-4", 206, "234" },
	{ "range to the end", "bytes=7-", 206, "789" },
	{ "range of the last bytes", "bytes=-2", 206, "89" },
	{ "range longer than the file", "bytes=8-100", 206, "89" },
	{ "more last bytes than there are", "bytes=-100", 206, "0123456789" },
	{ "range behind the end", "bytes=10-", 416, NULL },
	{ "no last bytes", "bytes=-0", 416, NULL },
	{ "several ranges give the whole", "bytes=0-1,4-5", 200, "0123456789" },
	{ "backward range gives the whole", "bytes=4-2", 200, "0123456789" },
	{ "unknown unit gives the whole", "lines=1-2", 200, "0123456789" },
};

static void check_range(void **state)
{
	const struct range_row *r = *state;

	assert_int_equal(put("/sandbox/home/digits", "0123456789", 10), 204);
	_cleanup_answer_ struct answer a =
		get("/sandbox/home/digits", rig_path("Range: %s\r\n", r->range));
	assert_int_equal(a.status, r->status);
	if (r->want)
		assert_string_equal(a.body, r->want);
}

/* More often than a client may hold handles: one that is not closed shows as a 503. */
static void answers_that_are_not_read_leave_no_handle(void **state)
{
	char length[32];

	(void)state;
	assert_int_equal(rig_sh(rig, id, "truncate -s 1M mega", NULL), 0);
	for (int i = 0; i < 1100; i++) {
		_cleanup_answer_ struct answer a =
			rig_send(rig, "HEAD", file("/sandbox/home/mega"), NULL, NULL, NULL, 0);
		assert_int_equal(a.status, 200);
		assert_string_equal(
			answer_header(&a, "Content-Length", length, sizeof(length)), "1048576");
	}
	for (int i = 0; i < 1100; i++) {
		int fd = rig_open(rig, "GET", file("/sandbox/home/mega"), NULL, NULL, NULL, 0);
		char some[100];
		assert_true(read(fd, some, sizeof(some)) > 0);
		assert_memory_equal(some, "HTTP/1.1 200", 12);
		close(fd);
	}
}

static void etag_saves_the_body(void **state)
{
	char etag[64];

	(void)state;
	assert_int_equal(put("/sandbox/home/tagged", "first", 5), 204);
	usleep(30000); /* older than the coarsest change time, so that its version is settled */
	_cleanup_answer_ struct answer a = get("/sandbox/home/tagged", NULL);
	assert_non_null(answer_header(&a, "ETag", etag, sizeof(etag)));
	_cleanup_answer_ struct answer b =
		get("/sandbox/home/tagged", rig_path("If-None-Match: %s\r\n", etag));
	assert_int_equal(b.status, 304);
	assert_int_equal(put("/sandbox/home/tagged", "other", 5), 204);
	_cleanup_answer_ struct answer c =
		get("/sandbox/home/tagged", rig_path("If-None-Match: %s\r\n", etag));
	assert_int_equal(c.status, 200);
	assert_string_equal(c.body, "other");
}

static json_t *last_event(const char *type, const char *path)
{
	json_t *all = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200), *e,
	       *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(all, "events"), i, e)
		if (!strcmp(json_string_value(json_object_get(e, "type")), type) &&
			!strcmp(json_string_value(json_object_get(e, "path")), path))
			found = e;
	json_incref(found);
	json_decref(all);
	return found;
}

static void events_name_path_and_bytes(void **state)
{
	json_t *e;

	(void)state;
	assert_int_equal(put("/sandbox/home//./audited", "12345", 5), 204);
	assert_int_equal(put("/sandbox/home/nothing", "", 0), 204);
	assert_content("/sandbox/home/audited", "12345", 5);
	e = last_event("file.written", "/sandbox/home/audited");
	assert_int_equal(json_integer_value(json_object_get(e, "bytes")), 5);
	json_decref(e);
	e = last_event("file.read", "/sandbox/home/audited");
	assert_int_equal(json_integer_value(json_object_get(e, "bytes")), 5);
	json_decref(e);
	e = last_event("file.written", "/sandbox/home/nothing");
	assert_non_null(e);
	assert_null(json_object_get(e, "bytes"));
	json_decref(e);
}

static void terminated_sandbox_refuses(void **state)
{
	const char *old = rig_sandbox(rig, NULL);

	(void)state;
	_cleanup_answer_ struct answer d =
		rig_send(rig, "DELETE", rig_path("/v1/sandboxes/%s", old), NULL, NULL, NULL, 0);
	assert_int_equal(d.status, 204);
	rig_refuses(
		rig, "GET", rig_path("/v1/sandboxes/%s/files?path=/x", old), NULL, 409, "conflict");
	_cleanup_answer_ struct answer a =
		rig_send(rig, "PUT", rig_path("/v1/sandboxes/%s/files?path=/x", old), NULL,
			"application/octet-stream", "x", 1);
	assert_answer(&a, 409, "conflict");
}

#define T(text, fn)                                                                                \
	{                                                                                          \
		.name = text, .test_func = fn                                                      \
	}
int main(void)
{
	static const struct CMUnitTest plain[] = {
		T("file goes round", file_goes_round),
		T("large file is streamed both ways", large_file_is_streamed_both_ways),
		T("path is checked before the sandbox", path_is_checked_before_the_sandbox),
		T("file on the way is 400", file_on_the_way_is_400),
		T("names are decoded once and sorted by bytes",
			names_are_decoded_once_and_sorted_by_bytes),
		T("bad names stay two names", bad_names_stay_two_names),
		T("pipes never block", pipes_never_block),
		T("files and processes share one tree", files_and_processes_share_one_tree),
		T("upload cut short changes nothing", upload_cut_short_changes_nothing),
		T("large bodies are 413 from the header", large_bodies_are_413_from_the_header),
		T("too large a file is 413, its parts are not",
			too_large_a_file_is_413_but_its_parts_are_not),
		T("answers that are not read leave no handle",
			answers_that_are_not_read_leave_no_handle),
		T("etag saves the body", etag_saves_the_body),
		T("events name path and bytes", events_name_path_and_bytes),
		T("terminated sandbox refuses", terminated_sandbox_refuses),
	};
	struct CMUnitTest tests[ARRAY_LEN(plain) + ARRAY_LEN(refusals) + ARRAY_LEN(ranges)];
	size_t n = ARRAY_LEN(plain);

	memcpy(tests, plain, sizeof(plain));
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		tests[n++] = (struct CMUnitTest){ .name = refusals[i].name,
			.test_func = check_refusal,
			.initial_state = (void *)(uintptr_t)&refusals[i] };
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		tests[n++] = (struct CMUnitTest){ .name = ranges[i].name,
			.test_func = check_range,
			.initial_state = (void *)(uintptr_t)&ranges[i] };
	return run_suite(tests, NULL, &rig, &id);
}
