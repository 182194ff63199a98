/* SPDX-License-Identifier: MIT */
/* Work in sandboxes for conformance tests: processes, streams, files. */
#include "common/json/json.h"
#include "tests/support/conform_internal.h"

#include <unistd.h>

/* --- processes ------------------------------------------------------------------------------- */

static const char *decoded(const char *text, size_t *ret_len)
{
	void *buf = NULL;
	char *out;

	assert_int_equal(base64_decode(text, strlen(text), &buf, ret_len), 0);
	out = conform_keep(calloc(1, *ret_len + 1));
	if (*ret_len)
		memcpy(out, buf, *ret_len);
	free(buf);
	return out;
}

struct ran run_in(const char *ref, json_t *body)
{
	json_t *v = ask("POST", at("/v1/sandboxes/%s/run", ref), body);
	struct ran r = { .code = num(v, "exit_code"),
		.truncated = json_is_true(json_object_get(v, "truncated")),
		.timed_out = json_is_true(json_object_get(v, "timed_out")) };

	r.out = decoded(str(v, "stdout"), &r.len);
	return r;
}

struct ran sh_in(const char *ref, const char *text)
{
	return run_in(ref, argv_of("sh", "-c", text, NULL));
}

long start_in(const char *ref, json_t *body)
{
	json_t *v = ask("POST", at("/v1/sandboxes/%s/processes", ref), body);

	assert_true(num(v, "pid") > 0);
	return num(v, "pid");
}

struct text {
	char *buf;
	size_t len;
};
static void text_add(struct text *t, const void *buf, size_t len)
{
	t->buf = realloc(t->buf, t->len + len + 1);
	assert_non_null(t->buf);
	if (len)
		memcpy(t->buf + t->len, buf, len);
	t->len += len;
	t->buf[t->len] = '\0';
}

static bool take(void *arg, const void *buf, size_t len)
{
	text_add(arg, buf, len);
	return true;
}

const char *follow(const char *ref, long pid, long *ret_code)
{
	struct text lines = { 0 }, out = { 0 };
	struct sbx_response r = { 0 };
	struct sbx_error e;
	struct sbx_request q = { .method = "GET",
		.path = at("/v1/sandboxes/%s/processes/%ld/output", ref, pid),
		.timeout_ms = CONFORM_CALL_MS,
		.on_data = take,
		.arg = &lines };
	char *rest;

	*ret_code = -1000;
	if (sbx_call(conform_api(), &q, &r, &e) < 0)
		fail_msg("output of %ld: %s", pid, e.message);
	sbx_response_free(&r);
	text_add(&out, "", 0);
	text_add(&lines, "", 0);
	rest = lines.buf;
	for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		json_t *v = conform_keep_json(json_loads(line, 0, NULL));
		size_t len;
		assert_non_null(v);
		assert_int_equal(*ret_code, -1000); /* nothing follows the exit line */
		if (json_object_get(v, "exit_code")) {
			*ret_code = num(v, "exit_code");
			continue;
		}
		const char *data = decoded(str(v, "data"), &len);
		text_add(&out, data, len);
	}
	free(lines.buf);
	return conform_keep(out.buf);
}

void stdin_to(const char *ref, long pid, const char *text, bool end)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	struct sbx_request q = { .method = "POST",
		.path = at(end ? "/v1/sandboxes/%s/processes/%ld/stdin?close=1"
			       : "/v1/sandboxes/%s/processes/%ld/stdin",
			ref, pid),
		.body = text,
		.body_len = strlen(text),
		.body_type = "application/octet-stream" };

	if (sbx_call(conform_api(), &q, &r, &e) < 0)
		fail_msg("stdin: %s", e.message);
	sbx_response_free(&r);
}

struct conform_stream attach(const char *ref, long pid, const char *text, bool end, bool stay)
{
	static char frame[SBX_FRAME_MAX];
	struct conform_stream got = { .code = -1000 };
	struct text out = { 0 };
	struct sbx_error e;
	size_t len;
	char type;
	int fd;

	if (sbx_upgrade(conform_api(), at("/v1/sandboxes/%s/processes/%ld/attach", ref, pid),
		    "sbx-stream/1", false, &fd, &e) < 0)
		fail_msg("attach: %s", e.message);
	if (text)
		assert_int_equal(sbx_frame_write(fd, 'i', text, strlen(text)), 0);
	if (end)
		assert_int_equal(sbx_frame_write(fd, 'e', NULL, 0), 0);
	text_add(&out, "", 0);
	while (stay && sbx_frame_read(fd, &type, frame, &len) > 0) {
		assert_int_equal(got.code, -1000); /* nothing follows the exit frame */
		if (type == 'o' || type == 'E')
			text_add(&out, frame, len);
		if (type == 'x' && len == 4)
			got.code = (int32_t)((uint32_t)(uint8_t)frame[0] << 24 |
					     (uint32_t)(uint8_t)frame[1] << 16 |
					     (uint32_t)(uint8_t)frame[2] << 8 | (uint8_t)frame[3]);
	}
	close(fd);
	got.out = conform_keep(out.buf);
	return got;
}

int tunnel(const char *ref, int port)
{
	struct sbx_error e;
	int fd;

	return sbx_tunnel(conform_api(), ref, port, &fd, &e) < 0 ? -1 : fd;
}

/* --- files ----------------------------------------------------------------------------------- */

const char *path_in(const char *ref, const char *what, const char *path, size_t len)
{
	char *buf = conform_keep(calloc(1, 256 + 3 * len)), *to = buf;

	to += sprintf(to, "/v1/sandboxes/%s/%s?path=", ref, what);
	conform_escape(&to, path, len);
	return buf;
}

void file_put_in(const char *ref, const char *path, const void *buf, size_t len)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	struct sbx_request q = { .method = "PUT",
		.path = path_in(ref, "files", path, strlen(path)),
		.body = buf,
		.body_len = len,
		.body_type = "application/octet-stream" };

	if (sbx_call(conform_api(), &q, &r, &e) < 0)
		fail_msg("write %s: %s", path, e.message);
	sbx_response_free(&r);
}

const char *file_get_in(const char *ref, const char *path, size_t *ret_len)
{
	struct sbx_response r = { 0 };
	struct sbx_error e;
	struct sbx_request q = { .method = "GET",
		.path = path_in(ref, "files", path, strlen(path)) };
	char *out;

	if (sbx_call(conform_api(), &q, &r, &e) < 0)
		fail_msg("read %s: %s", path, e.message);
	out = conform_keep(calloc(1, r.len + 1));
	if (r.len)
		memcpy(out, r.body, r.len);
	if (ret_len)
		*ret_len = r.len;
	sbx_response_free(&r);
	return out;
}
