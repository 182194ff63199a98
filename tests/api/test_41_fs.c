/* SPDX-License-Identifier: MIT */
/* The additions for mounts over a real socket: attributes, listings, handles, batches. */
#include "tests/support/suite.h"

static struct rig *rig;
static const char *id;

static const char *fs(const char *rest)
{
	return rig_path("/v1/sandboxes/%s/fs/%s", id, rest);
}

static const char *str(json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	assert_non_null(s);
	return s;
}

static int64_t num(json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static json_t *ops(const char *list)
{
	return rig_json(rig, "POST", fs("ops"), rig_path("{\"ops\":%s}", list), 200);
}

static json_t *result(json_t *answer, size_t i)
{
	json_t *r = json_array_get(json_object_get(answer, "results"), i);

	assert_non_null(r);
	return r;
}

/* Every operation of the batch succeeds. */
static void do_ops(const char *list)
{
	json_t *a = ops(list), *r;
	size_t i;

	json_array_foreach (json_object_get(a, "results"), i, r)
		if (json_object_get(r, "error"))
			fail_msg("ops[%zu] of %s: %s", i, list,
				json_string_value(
					json_object_get(json_object_get(r, "error"), "message")));
	json_decref(a);
}

static void stat_shows_all_attributes(void **state)
{
	static const char *const numbers[] = { "mode", "uid", "gid", "nlink", "size", "blocks",
		"ino", "dev", "gen" };
	json_t *o;

	(void)state;
	assert_int_equal(
		rig_sh(rig, id, "echo hello > f; chmod 640 f; ln -s f l; mkfifo p", NULL), 0);
	o = rig_json(rig, "GET", fs("stat?path=/sandbox/home/f"), NULL, 200);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		(void)num(o, numbers[i]);
	assert_string_equal(str(o, "type"), "file");
	assert_int_equal(num(o, "size"), 6);
	assert_int_equal(num(o, "mode"), 0640);
	assert_non_null(strchr(str(o, "mtime"), '.'));
	assert_int_equal(strlen(strchr(str(o, "mtime"), '.')), 10);
	(void)str(o, "version");
	json_decref(o);
	o = rig_json(rig, "GET", fs("stat?path=/sandbox/home/l"), NULL, 200);
	assert_string_equal(str(o, "type"), "link");
	assert_string_equal(str(o, "target"), "f");
	json_decref(o);
	o = rig_json(rig, "GET", fs("stat?path=/sandbox/home/l&follow=1"), NULL, 200);
	assert_string_equal(str(o, "type"), "file");
	json_decref(o);
	o = rig_json(rig, "POST", fs("stat"),
		"{\"paths\":[\"/sandbox/home/p\",\"/missing\",\"relative\"]}", 200);
	assert_string_equal(str(result(o, 0), "type"), "fifo");
	assert_string_equal(str(json_object_get(result(o, 1), "error"), "errno"), "ENOENT");
	assert_string_equal(str(json_object_get(result(o, 2), "error"), "code"), "invalid_request");
	json_decref(o);
}

/* Reads a whole listing; the last line is *ret_end. */
static json_t *list(const char *query, json_t **ret_end)
{
	struct httpc_stream st = { .buf = NULL };
	json_t *all = json_array(), *line;
	int fd = rig_open(rig, "GET", fs(query), NULL, NULL, NULL, 0);
	_cleanup_answer_ struct answer a = httpc_head(fd);

	assert_int_equal(a.status, 200);
	*ret_end = NULL;
	while (!*ret_end && (line = httpc_line(fd, &st))) {
		if (json_object_get(line, "end"))
			*ret_end = line;
		else
			json_array_append_new(all, line);
	}
	assert_non_null(*ret_end);
	httpc_stream_free(&st);
	close(fd);
	return all;
}

static int64_t size_of(const char *path)
{
	json_t *o = rig_json(rig, "GET", fs(rig_path("stat?path=%s", path)), NULL, 200);
	int64_t n = num(o, "size");

	json_decref(o);
	return n;
}

/* How much there is to copy is the guest's word; nobody goes on with it for a client that has left. */
static void a_copy_ends_with_its_client(void **state)
{
	static const char body[] = "{\"ops\":[{\"op\":\"copy\",\"from\":\"/sandbox/home/endless\","
				   "\"to\":\"/sandbox/home/copied\"}]}";
	int64_t seen = -1, size = 0;
	int fd;

	(void)state;
	assert_int_equal(rig_sh(rig, id, "truncate -s 3G endless; touch copied", NULL), 0);
	fd = rig_open(rig, "POST", fs("ops"), NULL, "application/json", body, sizeof(body) - 1);
	close(fd);
	for (int quiet = 0; quiet < 10; quiet = size == seen ? quiet + 1 : 0) {
		seen = size;
		rig_pause(50);
		size = size_of("/sandbox/home/copied");
	}
	assert_true(size < (int64_t)3 << 30);
	assert_int_equal(rig_sh(rig, id, "rm endless copied", NULL), 0);
}

static void listing_pages_and_goes_deep(void **state)
{
	json_t *all, *end;
	size_t seen = 0;
	char after[64] = "";

	(void)state;
	assert_int_equal(
		rig_sh(rig, id,
			"mkdir -p deep/a/b/c; touch deep/x deep/a/y deep/a/b/z; "
			"touch \"deep/$(printf 'q\\377')\"; mkdir many; cd many; seq 2500 | xargs touch",
			NULL),
		0);
	all = list("list?path=/sandbox/home/deep&depth=1", &end);
	assert_int_equal(json_array_size(all), 5); /* a, q, x, then a/b and a/y */
	json_decref(all);
	json_decref(end);
	do {
		all = list(rig_path("list?path=/sandbox/home/many&limit=1000%s%s",
				   *after ? "&after=" : "", after),
			&end);
		seen += json_array_size(all);
		json_t *next = json_object_get(end, "next");
		snprintf(after, sizeof(after), "%s", next ? json_string_value(next) : "");
		json_decref(all);
		json_decref(end);
	} while (*after && seen < 10000);
	assert_int_equal(seen, 2500);
	rig_refuses(rig, "GET", fs("list?path=/missing"), NULL, 404, "not_found");
	rig_refuses(rig, "GET", fs("list?path=/&depth=9"), NULL, 400, "invalid_request");
}

static json_t *open_file(const char *body, char handle[32])
{
	json_t *o = rig_json(rig, "POST", fs("open"), body, 200);

	snprintf(handle, 32, "%s", str(o, "handle"));
	return o;
}

static json_t *write_handle(const char *handle, const char *query, const char *text, int status)
{
	_cleanup_answer_ struct answer a =
		rig_send(rig, "PUT", fs(rig_path("handles/%s?%s", handle, query)), NULL,
			"application/octet-stream", text, strlen(text));

	assert_int_equal(a.status, status);
	return answer_json(&a);
}

static void assert_reads(const char *handle, const char *query, const char *want)
{
	_cleanup_answer_ struct answer a = rig_send(
		rig, "GET", fs(rig_path("handles/%s?%s", handle, query)), NULL, NULL, NULL, 0);

	assert_int_equal(a.status, 200);
	assert_string_equal(a.body, want);
}

static int close_handle(const char *handle)
{
	_cleanup_answer_ struct answer a =
		rig_send(rig, "DELETE", fs(rig_path("handles/%s", handle)), NULL, NULL, NULL, 0);

	return a.status;
}

static void handle_writes_appends_and_survives_rename(void **state)
{
	char h[32];
	json_t *o =
		open_file("{\"path\":\"/sandbox/home/h\",\"flags\":[\"read\",\"write\",\"create\"],"
			  "\"mode\":\"0600\",\"inline\":100}",
			h);

	(void)state;
	assert_int_equal(num(json_object_get(o, "attr"), "mode"), 0600);
	assert_string_equal(str(o, "data"), "");
	json_decref(o);
	o = write_handle(h, "offset=0", "hello", 200);
	assert_int_equal(num(o, "size"), 5);
	assert_int_equal(num(o, "written"), 5);
	json_decref(o);
	do_ops("[{\"op\":\"rename\",\"from\":\"/sandbox/home/h\",\"to\":\"/sandbox/home/h2\"}]");
	json_decref(write_handle(h, "append=1&sync=1", " world", 200));
	assert_reads(h, "offset=0", "hello world");
	assert_reads(h, "offset=6&length=3", "wor");
	assert_reads(h, "offset=100", "");
	json_decref(rig_json(
		rig, "POST", fs(rig_path("handles/%s/sync", h)), "{\"data_only\":true}", 200));
	assert_int_equal(close_handle(h), 204);
	assert_int_equal(close_handle(h), 404);
	assert_int_equal(close_handle("nonsense"), 404);
	assert_int_equal(
		rig_sh(rig, id, "test \"$(cat h2)\" = 'hello world' && test ! -e h", NULL), 0);
}

static void handle_belongs_to_its_client(void **state)
{
	static const char body[] =
		"{\"path\":\"/sandbox/home/mine\",\"flags\":[\"write\",\"create\"]}";
	_cleanup_answer_ struct answer a =
		rig_send(rig, "POST", fs("open"), "Sbx-Client: one\r\n", NULL, body, strlen(body));
	json_t *o = answer_json(&a);
	char h[32];

	(void)state;
	snprintf(h, sizeof(h), "%s", str(o, "handle"));
	json_decref(o);
	assert_int_equal(close_handle(h), 404);
	_cleanup_answer_ struct answer b = rig_send(
		rig, "DELETE", fs(rig_path("handles/%s", h)), "Sbx-Client: one\r\n", NULL, NULL, 0);
	assert_int_equal(b.status, 204);
}

static const struct open_row {
	const char *name, *body;
	int status;
	const char *code;
} opens[] = {
	{ "open without flags", "{\"path\":\"/x\"}", 400, "invalid_request" },
	{ "open with an unknown flag", "{\"path\":\"/x\",\"flags\":[\"excite\"]}", 400,
		"invalid_request" },
	{ "open without read or write", "{\"path\":\"/x\",\"flags\":[\"create\"]}", 400,
		"invalid_request" },
	{ "open of two paths", "{\"path\":\"/x\",\"path_b64\":\"L3g=\",\"flags\":[\"read\"]}", 400,
		"invalid_request" },
	{ "open of a path that is missing", "{\"path\":\"/x\",\"flags\":[\"read\"]}", 404,
		"not_found" },
	{ "open with an unknown member", "{\"path\":\"/x\",\"flags\":[\"read\"],\"colour\":1}", 400,
		"invalid_request" },
	{ "exclusive open of what exists",
		"{\"path\":\"/sandbox/home\",\"flags\":[\"write\",\"exclusive\"]}", 409,
		"conflict" },
	{ "open of a directory for writing", "{\"path\":\"/sandbox/home\",\"flags\":[\"write\"]}",
		400, "invalid_request" },
};

static void check_open(void **state)
{
	const struct open_row *r = *state;

	rig_refuses(rig, "POST", fs("open"), r->body, r->status, r->code);
}

static void batch_does_everything_in_order(void **state)
{
	json_t *a;

	(void)state;
	do_ops("[{\"op\":\"mkdir\",\"path\":\"/sandbox/home/b\"},"
	       "{\"op\":\"symlink\",\"path\":\"/sandbox/home/b/l\",\"target\":\"../x y\"},"
	       "{\"op\":\"mknod\",\"path\":\"/sandbox/home/b/p\",\"type\":\"fifo\",\"mode\":\"0600\"}]");
	assert_int_equal(rig_sh(rig, id, "printf 0123456789 > b/f; test -p b/p", NULL), 0);
	a = ops("[{\"op\":\"truncate\",\"path\":\"/sandbox/home/b/f\",\"size\":4},"
		"{\"op\":\"chmod\",\"path\":\"/sandbox/home/b/f\",\"mode\":\"0444\"},"
		"{\"op\":\"utimes\",\"path\":\"/sandbox/home/b/f\",\"mtime\":\"981173106.789000001\"},"
		"{\"op\":\"link\",\"from\":\"/sandbox/home/b/f\",\"to\":\"/sandbox/home/b/g\"},"
		"{\"op\":\"rmdir\",\"path\":\"/sandbox/home/b\"},"
		"{\"op\":\"unlink\",\"path\":\"/sandbox/home/b/f\"}]");
	json_t *attr = json_object_get(result(a, 2), "attr");
	assert_int_equal(num(attr, "size"), 4);
	assert_int_equal(num(attr, "mode"), 0444);
	assert_string_equal(str(attr, "mtime"), "981173106.789000001");
	assert_int_equal(num(json_object_get(result(a, 3), "attr"), "nlink"), 2);
	assert_string_equal(str(json_object_get(result(a, 4), "error"), "errno"), "ENOTEMPTY");
	/* The first error ends the batch. */
	assert_int_equal(json_array_size(json_object_get(a, "results")), 5);
	json_decref(a);
	a = rig_json(rig, "POST", fs("ops"),
		"{\"stop\":false,\"ops\":["
		"{\"op\":\"unlink\",\"path\":\"/missing\"},"
		"{\"op\":\"unlink\",\"path\":\"/sandbox/home/b/f\"}]}",
		200);
	assert_non_null(json_object_get(result(a, 0), "error"));
	assert_null(json_object_get(result(a, 1), "error"));
	json_decref(a);
}

static const struct ops_row {
	const char *name, *body;
} bad_ops[] = {
	{ "unknown operation", "{\"ops\":[{\"op\":\"mkdir\",\"path\":\"/nn\"},{\"op\":\"fly\"}]}" },
	{ "member of another operation",
		"{\"ops\":[{\"op\":\"mkdir\",\"path\":\"/nn\"},{\"op\":\"rmdir\",\"path\":\"/x\",\"size\":1}]}" },
	{ "operation without its path",
		"{\"ops\":[{\"op\":\"mkdir\",\"path\":\"/nn\"},{\"op\":\"unlink\"}]}" },
	{ "operation on a parent path",
		"{\"ops\":[{\"op\":\"mkdir\",\"path\":\"/nn\"},{\"op\":\"unlink\",\"path\":\"/a/../b\"}]}" },
	{ "operations that are no list", "{\"ops\":{\"op\":\"mkdir\",\"path\":\"/nn\"}}" },
	{ "time that is none",
		"{\"ops\":[{\"op\":\"mkdir\",\"path\":\"/nn\"},{\"op\":\"utimes\",\"path\":\"/nn\",\"mtime\":\"x\"}]}" },
};

static void check_bad_ops(void **state)
{
	const struct ops_row *r = *state;

	rig_refuses(rig, "POST", fs("ops"), r->body, 400, "invalid_request");
	rig_refuses(rig, "GET", fs("stat?path=/nn"), NULL, 404, "not_found");
}

static void copy_and_attributes_of_bytes(void **state)
{
	json_t *a;

	(void)state;
	assert_int_equal(rig_sh(rig, id, "seq 100000 > src; : > dst", NULL), 0);
	a = ops("[{\"op\":\"copy\",\"from\":\"/sandbox/home/src\",\"to\":\"/sandbox/home/dst\"},"
		"{\"op\":\"setxattr\",\"path\":\"/sandbox/home/dst\",\"name\":\"user.k\",\"value\":\"AAE=\"},"
		"{\"op\":\"getxattr\",\"path\":\"/sandbox/home/dst\",\"name\":\"user.k\"},"
		"{\"op\":\"listxattr\",\"path\":\"/sandbox/home/dst\"}]");
	assert_int_equal(num(result(a, 0), "copied"), 588895);
	if (!json_object_get(result(a, 1), "error")) {
		assert_string_equal(str(result(a, 2), "value"), "AAE=");
		assert_int_equal(json_array_size(json_object_get(result(a, 3), "names")), 1);
	}
	json_decref(a);
	assert_int_equal(rig_sh(rig, id, "cmp src dst", NULL), 0);
}

static void statfs_is_never_empty(void **state)
{
	json_t *o = rig_json(rig, "GET", fs("statfs?path=/"), NULL, 200);

	(void)state;
	assert_true(num(o, "blocks") > 0 && num(o, "bsize") > 0);
	assert_int_equal(num(o, "namelen"), 255);
	json_decref(o);
}

static void a_handle_is_recorded_once(void **state)
{
	char h[32];
	json_t *all, *e,
		*o = open_file(
			"{\"path\":\"/sandbox/home/rec\",\"flags\":[\"write\",\"create\"]}", h);
	size_t i, n = 0;

	(void)state;
	json_decref(o);
	for (int k = 0; k < 5; k++)
		json_decref(write_handle(h, "append=1", "12345", 200));
	assert_int_equal(close_handle(h), 204);
	all = rig_json(rig, "GET", rig_path("/v1/sandboxes/%s/events", id), NULL, 200);
	json_array_foreach (json_object_get(all, "events"), i, e) {
		json_t *path = json_object_get(e, "path");
		if (!path || strcmp(json_string_value(path), "/sandbox/home/rec"))
			continue;
		assert_string_equal(str(e, "type"), "file.written");
		assert_int_equal(num(e, "bytes"), 25);
		n++;
	}
	assert_int_equal(n, 1);
	json_decref(all);
}

#define T(text, fn)                                                                                \
	{                                                                                          \
		.name = text, .test_func = fn                                                      \
	}
int main(void)
{
	static const struct CMUnitTest plain[] = {
		T("stat shows all attributes", stat_shows_all_attributes),
		T("listing pages and goes deep", listing_pages_and_goes_deep),
		T("a copy ends with its client", a_copy_ends_with_its_client),
		T("handle writes, appends and survives a rename",
			handle_writes_appends_and_survives_rename),
		T("handle belongs to its client", handle_belongs_to_its_client),
		T("batch does everything in order", batch_does_everything_in_order),
		T("copy and extended attributes", copy_and_attributes_of_bytes),
		T("statfs is never empty", statfs_is_never_empty),
		T("a handle is recorded once", a_handle_is_recorded_once),
	};
	struct CMUnitTest tests[ARRAY_LEN(plain) + ARRAY_LEN(opens) + ARRAY_LEN(bad_ops)];
	size_t n = ARRAY_LEN(plain);

	memcpy(tests, plain, sizeof(plain));
	for (size_t i = 0; i < ARRAY_LEN(opens); i++)
		tests[n++] = (struct CMUnitTest){ .name = opens[i].name,
			.test_func = check_open,
			.initial_state = (void *)(uintptr_t)&opens[i] };
	for (size_t i = 0; i < ARRAY_LEN(bad_ops); i++)
		tests[n++] = (struct CMUnitTest){ .name = bad_ops[i].name,
			.test_func = check_bad_ops,
			.initial_state = (void *)(uintptr_t)&bad_ops[i] };
	return run_suite(tests, NULL, &rig, &id);
}
