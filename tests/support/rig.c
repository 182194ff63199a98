/* SPDX-License-Identifier: MIT */
#include "tests/support/rig.h"

#include "common/json/json.h"
#include "sandboxd/daemon.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_ARGS 32
#define START_MS 60000

struct rig_inside {
	struct options options;
	struct daemon *daemon;
	pid_t server, watcher; /* linux backend */
	int alive;             /* the watcher's pipe */
	char policy[96], token_file[96], libexec[PATH_MAX], images[PATH_MAX + 16];
	char *argv[MAX_ARGS + 1];
	int argc;
	char *ids[256]; /* handed out by rig_sandbox */
	size_t nids;
};

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_return_code(chmod(path, 0600), errno);
}

/* The programs lie in bin/ of the build folder, two levels above tests/<kind>/test_x. */
static void libexec_dir(char out[PATH_MAX])
{
	const char *env = getenv("SBX_LIBEXEC");
	char exe[PATH_MAX];
	ssize_t n;

	if (env) {
		snprintf(out, PATH_MAX, "%s", env);
		return;
	}
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	assert_true(n > 0);
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	snprintf(out, PATH_MAX, "%.*s/../../bin", PATH_MAX - 16, exe);
}

static void arg(struct rig_inside *k, const char *a)
{
	assert_true(k->argc < MAX_ARGS);
	k->argv[k->argc++] = (char *)(uintptr_t)a;
	k->argv[k->argc] = NULL;
}

static void make_args(struct rig *r, struct rig_inside *k)
{
	k->argc = 0;
	arg(k, "sandboxd");
	arg(k, "--backend");
	arg(k, r->conf.linux_backend ? "linux" : "fake");
	arg(k, "--listen");
	arg(k, r->endpoint);
	arg(k, "--state-dir");
	arg(k, r->state);
	arg(k, "--libexec-dir");
	arg(k, k->libexec);
	arg(k, "--log-level");
	arg(k, getenv("SBX_TEST_LOG") ? getenv("SBX_TEST_LOG") : "error");
	if (r->conf.policy) {
		arg(k, "--policy");
		arg(k, k->policy);
	}
	if (r->conf.token) {
		arg(k, "--token-file");
		arg(k, k->token_file);
	}
	if (r->conf.linux_backend) {
		arg(k, "--image-dir");
		arg(k, k->images);
	}
	for (size_t i = 0; r->conf.args && r->conf.args[i]; i++)
		arg(k, r->conf.args[i]);
}

/* --- the program ----------------------------------------------------------------------------- */

const char *rig_linux_missing(void)
{
	if (geteuid() != 0)
		return "needs root";
	if (access("/dev/loop-control", F_OK) < 0)
		return "needs /dev/loop-control";
	return NULL;
}

static bool answers(struct rig *r)
{
	int fd = httpc_unix(r->sock);
	char buf[16];
	bool yes;

	if (fd < 0)
		return false;
	httpc_send(fd, "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
	yes = recv(fd, buf, 12, MSG_WAITALL) == 12 && memcmp(buf + 9, "200", 3) == 0;
	close(fd);
	return yes;
}

/* A test that dies must not leave its server running: another process waits for the end of this one. */
static void watch_over(struct rig_inside *k)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	k->watcher = fork();
	assert_true(k->watcher >= 0);
	if (k->watcher == 0) {
		char c;
		close(ends[1]);
		if (read(ends[0], &c, 1) == 0)
			kill(k->server, SIGTERM);
		_exit(0);
	}
	close(ends[0]);
	k->alive = ends[1];
}

static void dismiss_watcher(struct rig_inside *k)
{
	if (k->watcher <= 0)
		return;
	assert_int_equal(write(k->alive, "x", 1), 1);
	close(k->alive);
	while (waitpid(k->watcher, NULL, 0) < 0 && errno == EINTR)
		;
	k->watcher = 0;
}

static void start_program(struct rig *r)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	struct rig_inside *k = r->in;
	char program[PATH_MAX + 16];

	snprintf(program, sizeof(program), "%s/sandboxd", k->libexec);
	k->server = fork();
	assert_true(k->server >= 0);
	if (k->server == 0) {
		execv(program, k->argv);
		_exit(127);
	}
	watch_over(k);
	for (int waited = 0; !answers(r); waited += 10) {
		bool ended = waitpid(k->server, NULL, WNOHANG) == k->server;
		if (ended) {
			k->server = 0;
			dismiss_watcher(k);
		}
		if (ended || waited >= patience_ms(START_MS))
			fail_msg("the server did not start");
		nanosleep(&pause, NULL);
	}
}

static void end_program(struct rig_inside *k, int sig)
{
	dismiss_watcher(k);
	if (k->server <= 0)
		return;
	kill(k->server, sig);
	while (waitpid(k->server, NULL, 0) < 0 && errno == EINTR)
		;
	k->server = 0;
}

void rig_kill(struct rig *r)
{
	assert_true(r->conf.linux_backend);
	end_program(r->in, SIGKILL);
}

pid_t rig_pid(struct rig *r)
{
	return r->in->server;
}

void rig_start(struct rig *r)
{
	struct rig_inside *k = r->in;
	struct err e = ERR_NULL;

	make_args(r, k);
	if (r->conf.linux_backend) {
		start_program(r);
		return;
	}
	if (options_parse(k->argc, k->argv, &k->options, &e) < 0 ||
		daemon_prepare(&k->options, &k->daemon, &e) < 0)
		fail_msg("the server did not start: %s", e.msg);
	if (daemon_start(k->daemon, &e) < 0) {
		daemon_stop(k->daemon, 0);
		k->daemon = NULL;
		fail_msg("the server did not start: %s", e.msg);
	}
}

struct rig *rig_new(const struct rig_conf *conf)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct rig_inside *k = calloc(1, sizeof(*k));
	const char *tmp = getenv("TMPDIR");

	assert_non_null(r);
	assert_non_null(k);
	signal(SIGPIPE, SIG_IGN);
	r->in = k;
	if (conf)
		r->conf = *conf;
	if (!tmp || strlen(tmp) >= 40)
		tmp = r->conf.linux_backend ? "/var/tmp" : "/tmp"; /* disk areas are large */
	snprintf(r->dir, sizeof(r->dir), "%s/rig-XXXXXX", tmp);
	assert_non_null(mkdtemp(r->dir));
	snprintf(r->state, sizeof(r->state), "%s/state", r->dir);
	snprintf(r->sock, sizeof(r->sock), "%s/sock", r->dir);
	snprintf(r->endpoint, sizeof(r->endpoint), "unix://%s", r->sock);
	snprintf(k->policy, sizeof(k->policy), "%s/policy", r->dir);
	snprintf(k->token_file, sizeof(k->token_file), "%s/token", r->dir);
	libexec_dir(k->libexec);
	if (getenv("SBX_IMAGES"))
		snprintf(k->images, sizeof(k->images), "%s", getenv("SBX_IMAGES"));
	else
		snprintf(k->images, sizeof(k->images), "%s/../images", k->libexec);
	if (r->conf.policy)
		write_file(k->policy, r->conf.policy);
	if (r->conf.token) {
		snprintf(r->token, sizeof(r->token), "%s", r->conf.token);
		write_file(k->token_file, r->conf.token);
	}
	rig_start(r);
	return r;
}

void rig_stop(struct rig *r)
{
	struct rig_inside *k = r->in;

	if (r->conf.linux_backend) {
		end_program(k, SIGTERM);
		return;
	}
	daemon_stop(k->daemon, 2000);
	k->daemon = NULL;
	options_free(&k->options);
}

void rig_restart(struct rig *r)
{
	rig_stop(r);
	rig_start(r);
}

struct core *rig_core(struct rig *r)
{
	return daemon_core(r->in->daemon);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

static int open_up(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_D || type == FTW_DNR)
		(void)chmod(path, st->st_mode | 0700);
	return 0;
}

static void end_all(struct rig *r)
{
	struct answer a = rig_send(r, "GET", "/v1/sandboxes", NULL, NULL, NULL, 0);
	json_t *v = json_loadb(a.body, a.len, 0, NULL), *s;
	size_t i;

	json_array_foreach (json_object_get(v, "sandboxes"), i, s) {
		const char *id = json_string_value(json_object_get(s, "id"));
		const char *state = json_string_value(json_object_get(s, "state"));
		struct answer d;

		if (!id || !state || !strcmp(state, "terminated"))
			continue;
		d = rig_send(r, "DELETE", rig_path("/v1/sandboxes/%s", id), NULL, NULL, NULL, 0);
		answer_free(&d);
	}
	json_decref(v);
	answer_free(&a);
}

void rig_free(struct rig *r)
{
	struct rig_inside *k;

	if (!r)
		return;
	k = r->in;
	if (!k->daemon && !k->server)
		rig_start(r);
	end_all(r);
	rig_stop(r);
	nftw(r->dir, open_up, 16, FTW_PHYS);
	nftw(r->dir, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	for (size_t i = 0; i < k->nids; i++)
		free(k->ids[i]);
	free(k);
	free(r);
}

int rig_open(struct rig *r, const char *method, const char *path, const char *headers,
	const char *type, const void *body, size_t len)
{
	int fd = httpc_unix(r->sock);
	char head[16384];
	int n;

	if (fd < 0)
		fail_msg("cannot connect to %s: %s", r->sock, strerror(errno));
	n = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, path);
	assert_true(n > 0 && (size_t)n < sizeof(head));
	httpc_send_bytes(fd, head, (size_t)n);
	if (r->token[0]) {
		n = snprintf(head, sizeof(head), "Authorization: Bearer %s\r\n", r->token);
		httpc_send_bytes(fd, head, (size_t)n);
	}
	if (headers)
		httpc_send(fd, headers);
	if (body) {
		n = snprintf(head, sizeof(head), "Content-Type: %s\r\nContent-Length: %zu\r\n",
			type ? type : "application/json", len);
		httpc_send_bytes(fd, head, (size_t)n);
	}
	httpc_send(fd, "\r\n");
	if (body)
		httpc_send_bytes(fd, body, len);
	return fd;
}

struct answer rig_send(struct rig *r, const char *method, const char *path, const char *headers,
	const char *type, const void *body, size_t len)
{
	_cleanup_close_ int fd = rig_open(r, method, path, headers, type, body, len);

	return strcmp(method, "HEAD") ? httpc_answer(fd) : httpc_answer_head(fd);
}

json_t *rig_json(struct rig *r, const char *method, const char *path, const char *body, int status)
{
	_cleanup_answer_ struct answer a =
		rig_send(r, method, path, NULL, NULL, body, body ? strlen(body) : 0);

	assert_answer(&a, status, NULL);
	return a.len ? answer_json(&a) : NULL;
}

void rig_refuses(struct rig *r, const char *method, const char *path, const char *body, int status,
	const char *code)
{
	_cleanup_answer_ struct answer a =
		rig_send(r, method, path, NULL, NULL, body, body ? strlen(body) : 0);

	assert_answer(&a, status, code);
}

const char *rig_sandbox(struct rig *r, const char *body)
{
	struct rig_inside *k = r->in;
	json_t *v = rig_json(r, "POST", "/v1/sandboxes", body ? body : "{}", 201);
	const char *id = json_string_value(json_object_get(v, "id"));

	assert_non_null(id);
	assert_true(k->nids < ARRAY_LEN(k->ids));
	k->ids[k->nids] = strdup(id);
	assert_non_null(k->ids[k->nids]);
	json_decref(v);
	return k->ids[k->nids++];
}

const char *rig_path(const char *fmt, ...)
{
	static _Thread_local char bufs[8][4096];
	static _Thread_local unsigned next;
	char *buf = bufs[next++ % 8];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(bufs[0]), fmt, ap);
	va_end(ap);
	return buf;
}

static void decode64(const char *s, char **ret_out)
{
	void *buf = NULL;
	size_t len = 0;

	assert_int_equal(base64_decode(s, strlen(s), &buf, &len), 0);
	*ret_out = strndup(buf ? buf : "", len);
	free(buf);
}

int rig_sh(struct rig *r, const char *id, const char *text, char **ret_out)
{
	json_t *body = json_pack("{s:[s,s,s]}", "argv", "sh", "-c", text);
	_cleanup_free_ char *json = json_dumps(body, JSON_COMPACT);
	json_t *v = rig_json(r, "POST", rig_path("/v1/sandboxes/%s/run", id), json, 200);
	const char *out = json_string_value(json_object_get(v, "stdout"));
	int code = (int)json_integer_value(json_object_get(v, "exit_code"));

	if (ret_out)
		decode64(out ? out : "", ret_out);
	json_decref(v);
	json_decref(body);
	return code;
}

int rig_status(
	struct rig *r, const char *method, const char *path, const char *headers, const char *body)
{
	_cleanup_answer_ struct answer a =
		rig_send(r, method, path, headers, NULL, body, body ? strlen(body) : 0);

	return a.status;
}

bool rig_in_state(struct rig *r, const char *ref, const char *state)
{
	json_t *o = rig_json(r, "GET", rig_path("/v1/sandboxes/%s", ref), NULL, 200);
	bool is = !strcmp(json_string_value(json_object_get(o, "state")), state);

	json_decref(o);
	return is;
}

void rig_end(struct rig *r, const char *ref)
{
	json_decref(rig_json(r, "DELETE", rig_path("/v1/sandboxes/%s", ref), NULL, 204));
}

int rig_events(struct rig *r, const char *ref, const char *type, const char *reason)
{
	json_t *o = rig_json(r, "GET", rig_path("/v1/sandboxes/%s/events", ref), NULL, 200), *ev;
	int n = 0;
	size_t i;

	json_array_foreach (json_object_get(o, "events"), i, ev) {
		const char *why = json_string_value(json_object_get(ev, "reason"));
		n += !strcmp(json_string_value(json_object_get(ev, "type")), type) &&
		     (reason ? why && !strcmp(why, reason) : !why);
	}
	json_decref(o);
	return n;
}

void rig_pause(int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

void rig_wait(bool (*fn)(void *arg), void *arg, int ms)
{
	struct timespec pause = { .tv_nsec = 5000000 };

	for (int waited = 0; !fn(arg); waited += 5) {
		if (waited >= patience_ms(ms))
			fail_msg("what was waited for did not come within %d ms", patience_ms(ms));
		nanosleep(&pause, NULL);
	}
}
