/* SPDX-License-Identifier: MIT */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

/* A process is named by its number, or by its name where the server keeps names. */
static char *process_path(struct cli *c, const char *more)
{
	_cleanup_free_ char *base = sbx_path("/v1/sandboxes/%s/processes/%s", c->pos[0], c->pos[1]);
	char *path;

	return base && asprintf(&path, "%s%s", base, more) >= 0 ? path : NULL;
}

static char *show_exit(json_t *row, const char *key)
{
	json_t *v = json_object_get(row, key);
	char *text;

	if (!json_is_integer(v))
		return strdup("");
	return asprintf(&text, "%lld", (long long)json_integer_value(v)) < 0 ? NULL : text;
}

static void show_list(json_t *v)
{
	static const struct column cols[] = {
		{ "PID", "pid", NULL },
		{ "STATE", "state", NULL },
		{ "EXIT", "exit_code", show_exit },
		{ "AGE", "started_at", show_age },
		{ "COMMAND", "argv", NULL },
	};

	put_table(json_object_get(v, "processes"), cols, ARRAY_LEN(cols));
}

int cmd_process_ls(struct cli *c)
{
	char *path = sbx_path("/v1/sandboxes/%s/processes", c->pos[0]);
	_cleanup_json_ json_t *v = NULL;
	json_t *p;
	size_t i;

	if (!opt_has(c, OPT_QUIET))
		return ask_show(c, "GET", path, NULL, show_list);
	if (ask_json(c, "GET", path, NULL, &v) < 0)
		return 1;
	json_array_foreach (json_object_get(v, "processes"), i, p)
		printf("%lld\n", (long long)json_integer_value(json_object_get(p, "pid")));
	return 0;
}

int cmd_process_show(struct cli *c)
{
	return ask_show(c, "GET", process_path(c, ""), NULL, put_members);
}

/* "TERM" also as kill(1) takes it: "term", "SIGTERM". By hand, for in some languages the large i is no I. */
int cmd_signal(struct cli *c)
{
	const char *given = c->n_pos > 2 ? c->pos[2] : "TERM";
	char name[16];
	size_t n = 0;

	for (; given[n] && n + 1 < sizeof(name); n++)
		name[n] = given[n] >= 'a' && given[n] <= 'z' ? (char)(given[n] - 'a' + 'A') : given[n];
	name[n] = '\0';
	return ask_show(c, "POST", process_path(c, "/signal"),
		json_pack("{s:s}", "signal", name + (strncmp(name, "SIG", 3) ? 0 : 3)), NULL);
}

int cmd_stdin(struct cli *c)
{
	int fd = STDIN_FILENO;
	_cleanup_free_ char *path =
		process_path(c, opt_has(c, OPT_CLOSE) ? "/stdin?close=1" : "/stdin");
	struct sbx_request q = { .method = "POST",
		.path = path,
		.on_read = body_from_fd,
		.arg = &fd,
		.timeout_ms = -1,
		.body_type = "application/octet-stream" };
	struct sbx_error e;

	if (!path)
		return complain(1, "out of memory");
	return sbx_call(c->s, &q, NULL, &e) == 0 ? 0 : fail(&e);
}

/* Output as it is kept and as it comes. */
struct follow {
	struct cli *c;
	bool quiet; /* only the exit code is wanted */
	bool has_code;
	int code;
	size_t seen[2], skip[2]; /* bytes of each stream, and of those what comes once more */
};

static bool write_bytes(FILE *f, const void *p, size_t n)
{
	return fwrite(p, 1, n, f) == n && fflush(f) == 0;
}

static bool put_new(struct follow *f, bool err, const char *p, size_t n)
{
	size_t known = f->skip[err] < n ? f->skip[err] : n;

	f->skip[err] -= known;
	f->seen[err] += n - known;
	return known == n || write_bytes(err ? stderr : stdout, p + known, n - known);
}

static bool on_line(void *arg, const char *text, size_t len)
{
	struct follow *f = arg;
	_cleanup_json_ json_t *v = NULL;
	_cleanup_free_ void *data = NULL;
	json_t *code, *b64;
	const char *stream;
	size_t n;

	if (json_parse_any(text, len, 16 << 20, &v, NULL) < 0)
		return false;
	code = json_object_get(v, "exit_code");
	if (json_is_integer(code)) {
		f->has_code = true;
		f->code = (int)json_integer_value(code);
	}
	if (f->c->json && !f->quiet) {
		put_json(text, len);
		return fflush(stdout) == 0;
	}
	b64 = json_object_get(v, "data");
	stream = json_string_value(json_object_get(v, "stream"));
	if (f->quiet || !stream || !json_is_string(b64))
		return true;
	if (base64_decode(json_string_value(b64), json_string_length(b64), &data, &n) < 0)
		return false;
	return put_new(f, strcmp(stream, "stderr") == 0, data, n);
}

static int follow(struct follow *f)
{
	struct sbx_error e = { 0 };
	int r;

	do {
		struct lines l = { .line = on_line, .arg = f };

		memcpy(f->skip, f->seen, sizeof(f->skip));
		r = ask_lines(f->c, process_path(f->c, "/output"), &l, &e);
		/* Lines that are passed on as they are cannot be told apart. */
	} while (r < 0 && !f->has_code && !ferror(stdout) && (!f->c->json || f->quiet) &&
		server_came_back(f->c, &e));
	if (r < 0)
		return fail(&e);
	if (!f->has_code && !ferror(stdout))
		return complain(1, "the output broke off");
	return 0;
}

static bool to_stdout(void *arg, const void *buf, size_t len)
{
	(void)arg;
	return write_bytes(stdout, buf, len);
}

/* What there is so far: the plain output request always follows, the addition does not. */
static int so_far(struct cli *c)
{
	_cleanup_free_ char *path = process_path(c, "/output/both");
	struct sbx_request q = { .method = "GET", .path = path, .on_data = to_stdout };
	struct sbx_error e;

	if (!path)
		return complain(1, "out of memory");
	if (sbx_call(c->s, &q, NULL, &e) == 0)
		return 0;
	if (e.status == 501)
		return complain(1,
			"this server cannot give the output of a running process so far; -f follows it");
	return fail(&e);
}

int cmd_logs(struct cli *c)
{
	struct follow f = { .c = c };
	_cleanup_json_ json_t *v = NULL;
	const char *state;

	if (opt_has(c, OPT_FOLLOW))
		return follow(&f);
	if (ask_json(c, "GET", process_path(c, ""), NULL, &v) < 0)
		return 1;
	state = json_string_value(json_object_get(v, "state"));
	return state && !strcmp(state, "exited") ? follow(&f) : so_far(c);
}

int cmd_wait(struct cli *c)
{
	struct follow f = { .c = c, .quiet = true };

	if (follow(&f) != 0)
		return EXIT_OURS;
	if (c->json)
		printf("{\"exit_code\":%d}\n", f.code);
	return f.code < 0 ? EXIT_OURS : f.code;
}
