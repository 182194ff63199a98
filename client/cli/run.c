/* SPDX-License-Identifier: MIT */
/* Commands in a sandbox. They are started and attached to rather than run in one request: output
 * then comes while it is made and without a limit, and input goes the other way. */
#include "client/cli/cmds.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <string.h>

/* The exit codes that shells give for commands which could not be started. */
static int code_of_start(const struct sbx_error *e)
{
	fail(e);
	/* The message names the folder or the command, which may be called anything: its beginning
	 * says which of the two it is, and the number why. */
	if (e->status != 400 || !strncmp(e->message, "cwd", 3))
		return EXIT_OURS;
	switch (e->sys) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case ENAMETOOLONG:
		return 127;
	case EACCES:
	case ENOEXEC:
		return 126;
	case E2BIG:
		return EXIT_OURS;
	case EINVAL: /* also of a server that gives none */
		if (strstr(e->message, "not found") || strstr(e->message, "no such command"))
			return 127;
	}
	return strstr(e->message, "not executable") ? 126 : EXIT_OURS;
}

static int add_env(struct cli *c, json_t *env)
{
	int at = 0;

	for (const char *v; (v = opt_next(c, OPT_ENV, &at));) {
		const char *eq = strchrnul(v, '='), *value = *eq ? eq + 1 : getenv(v);
		_cleanup_free_ char *key = strndup(v, (size_t)(eq - v));
		/* A name that is not set here is left out, as with env(1) and container tools. */
		if (value && json_object_set_new(env, key ? key : "", json_string(value)) < 0)
			return complain(-1, "-e %s: a name and a value in UTF-8 are expected", v);
	}
	return 0;
}

static json_t *start_body(struct cli *c, const char *const *argv, const char *cwd, bool tty)
{
	_cleanup_json_ json_t *o = json_object(), *list = json_array(), *env = json_object();
	const char *name = opt_get(c, OPT_NAME), *term = getenv("TERM");
	int rows, cols;

	for (; *argv; argv++)
		if (json_array_append_new(list, json_string(*argv)) < 0) {
			complain(-1, "an argument is not UTF-8 text, which is all the API takes");
			return NULL;
		}
	if (tty && term && *term && strcmp(term, "dumb") != 0)
		json_object_set_new(env, "TERM", json_string(term));
	if (add_env(c, env) < 0)
		return NULL;
	json_object_set(o, "argv", list);
	if (json_object_size(env))
		json_object_set(o, "env", env);
	/* Left out, the command would do its work in another folder. */
	if ((cwd && json_object_set_new(o, "cwd", json_string(cwd)) < 0) ||
		(name && json_object_set_new(o, "name", json_string(name)) < 0)) {
		complain(-1, "%s is not UTF-8 text, which is all the API takes",
			cwd && !json_object_get(o, "cwd") ? cwd : name);
		return NULL;
	}
	if (tty) {
		json_object_set_new(o, "tty", json_true());
		if (tty_size(&rows, &cols)) {
			json_object_set_new(o, "rows", json_integer(rows));
			json_object_set_new(o, "cols", json_integer(cols));
		}
	}
	return steal(o);
}

static int refused(struct cli *c, const char *const *argv, const struct sbx_error *e)
{
	bool no_access = e->status == 401 || (e->status == 0 && e->sys == EACCES);

	if (no_access && c->detour)
		c->detour(c, argv);
	return code_of_start(e);
}

/* The number, or minus the exit code. */
static long long start(struct cli *c, const char *ref, const char *const *argv, json_t *body,
	struct sbx_response *r)
{
	struct sbx_error e;
	_cleanup_json_ json_t *v = NULL;
	long long pid;

	if (ask(c, "POST", sbx_path("/v1/sandboxes/%s/processes", ref), body, r, &e) < 0)
		return -refused(c, argv, &e);
	if (json_parse_any(r->body, r->len, 1 << 20, &v, NULL) < 0)
		v = NULL;
	pid = json_integer_value(json_object_get(v, "pid"));
	return pid > 0 ? pid : -complain(EXIT_OURS, "the server's answer names no process");
}

/* Nobody will send input, so the command must see the end of it rather than wait for ever. */
static void end_input(struct cli *c, const char *ref, long long pid)
{
	struct sbx_error e;

	ask(c, "POST", sbx_path("/v1/sandboxes/%s/processes/%lld/stdin?close=1", ref, pid), NULL,
		NULL, &e);
}

static int attach(struct cli *c, const struct stream_conf *conf)
{
	_cleanup_free_ char *path =
		sbx_path("/v1/sandboxes/%s/processes/%lld/attach", conf->ref, conf->pid);
	struct sbx_error e;
	int sock;

	if (!path)
		return complain(EXIT_OURS, "out of memory");
	if (sbx_upgrade(c->s, path, "sbx-stream/1", false, &sock, &e) < 0) {
		fail(&e);
		return EXIT_OURS;
	}
	return stream_process(c, sock, conf);
}

static int detached(
	struct cli *c, const char *ref, long long pid, bool tty, const struct sbx_response *r)
{
	/* `process start` leaves the input to `process stdin` and `attach`. */
	if (!tty && opt_has(c, OPT_DETACH))
		end_input(c, ref, pid);
	if (c->json)
		put_json(r->body, r->len);
	else
		printf("%lld\n", pid);
	return 0;
}

int run_command(struct cli *c, const char *ref, const char *const *argv, const char *cwd, bool tty,
	bool detach)
{
	const char *timeout = opt_get(c, OPT_TIMEOUT);
	long long secs = timeout ? number_of(timeout, 86400 * 365, "--timeout") : 0, pid;
	json_t *body = secs < 0 ? NULL : start_body(c, argv, cwd, tty);
	struct sbx_response r = { 0 };
	int code;

	if (!body)
		return EXIT_OURS;
	pid = start(c, ref, argv, body, &r);
	if (pid < 0) {
		code = (int)-pid;
	} else if (detach) {
		code = detached(c, ref, pid, tty, &r);
	} else {
		struct stream_conf conf = { .ref = ref,
			.pid = pid,
			.tty = tty,
			.interactive = true,
			.timeout_secs = (int)secs,
			.kill_on_stop = true };
		code = attach(c, &conf);
	}
	sbx_response_free(&r);
	return code;
}

int cmd_run(struct cli *c)
{
	if (c->json && !opt_has(c, OPT_DETACH))
		return complain(EXIT_USAGE, "--json goes with -d; a command's output is its own");
	if (opt_has(c, OPT_TIMEOUT) && opt_has(c, OPT_DETACH))
		return complain(EXIT_USAGE, "--timeout needs somebody who waits, and -d does not");
	return run_command(c, c->pos[0], c->pos + 1, opt_get(c, OPT_WORKDIR), opt_has(c, OPT_TTY),
		opt_has(c, OPT_DETACH));
}

int cmd_start(struct cli *c)
{
	return run_command(
		c, c->pos[0], c->pos + 1, opt_get(c, OPT_WORKDIR), opt_has(c, OPT_TTY), true);
}

/* A login shell where the image has bash would be nicer, but every image has sh. */
int cmd_sh(struct cli *c)
{
	static const char *const shell[] = { "sh", NULL };

	return run_command(c, c->pos[0], c->n_pos > 1 ? c->pos + 1 : shell, opt_get(c, OPT_WORKDIR),
		isatty(STDIN_FILENO) && isatty(STDOUT_FILENO), false);
}

int cmd_attach(struct cli *c)
{
	_cleanup_json_ json_t *v = NULL;
	struct stream_conf conf = { .ref = c->pos[0], .interactive = true };

	/* The name of a process becomes its number, which signals and messages use. */
	if (ask_json(c, "GET", sbx_path("/v1/sandboxes/%s/processes/%s", c->pos[0], c->pos[1]),
		    NULL, &v) < 0)
		return EXIT_OURS;
	conf.pid = json_integer_value(json_object_get(v, "pid"));
	conf.tty = json_is_true(json_object_get(v, "tty")) && isatty(STDIN_FILENO);
	return attach(c, &conf);
}
