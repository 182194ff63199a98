/* SPDX-License-Identifier: MIT */
/* The program itself: reasons not to start, its socket, signals and readiness. Node contract, 1.1
 * and 26; run as a child, with the fake backend. */
#include "tests/support/httpc.h"
#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TOKEN    "0123456789abcdef-token"
#define MAX_ARGS 24

static char dir[64], bin[PATH_MAX];

struct child {
	pid_t pid;
	int out_fd;
	char text[16384]; /* what it wrote so far */
	size_t len;
};

/* --- files and folders of one test --- */

static const char *at(const char *name)
{
	static char bufs[8][128];
	static unsigned next;
	char *buf = bufs[next++ % 8];

	snprintf(buf, sizeof(bufs[0]), "%s/%s", dir, name);
	return buf;
}

static void put(const char *name, const char *text, mode_t mode)
{
	FILE *f = fopen(at(name), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_return_code(chmod(at(name), mode), errno);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");

	(void)state;
	snprintf(dir, sizeof(dir), "%s/start-XXXXXX", tmp && strlen(tmp) < 40 ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	put("token", " " TOKEN "\n", 0600);
	put("open-token", TOKEN, 0644);
	put("short-token", "  0123456789abcde \n", 0600);
	put("file", "x", 0600);
	put("bad-key.json", "{\"nope\":1}", 0600);
	put("pools.json", "{\"pools\":[{\"size\":2}]}", 0600);
	put("contradiction.json", "{\"limits\":{\"max_cpus\":1},\"defaults\":{\"cpus\":2}}", 0600);
	put("images.json", "{\"images\":[\"base\"]}", 0600);
	assert_return_code(mkdir(at("open-state"), 0755), errno);
	assert_return_code(chmod(at("open-state"), 0755), errno);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	nftw(dir, remove_one, 16, FTW_PHYS | FTW_DEPTH);
	return 0;
}

/* --- the child --- */

/* "@x" becomes DIR/x, "unix:@x" becomes unix://DIR/x. */
static const char *expand(const char *arg, char *buf, size_t size)
{
	if (arg[0] == '@')
		snprintf(buf, size, "%s/%s", dir, arg + 1);
	else if (!strncmp(arg, "unix:@", 6))
		snprintf(buf, size, "unix://%s/%s", dir, arg + 6);
	else
		return arg;
	return buf;
}

static struct child start(const char *const *args)
{
	char bufs[MAX_ARGS][256];
	const char *argv[MAX_ARGS + 1] = { bin };
	struct child c = { 0 };
	int p[2], n = 1;

	for (; args[n - 1]; n++) {
		assert_true(n < MAX_ARGS);
		argv[n] = expand(args[n - 1], bufs[n], sizeof(bufs[n]));
	}
	assert_return_code(pipe2(p, O_CLOEXEC), errno);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		dup2(p[1], STDOUT_FILENO);
		dup2(p[1], STDERR_FILENO);
		execv(bin, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(p[1]);
	c.out_fd = p[0];
	return c;
}

/* Reads what it writes until `text` is there or it ends; true when it came. */
static bool says(struct child *c, const char *text)
{
	for (;;) {
		struct pollfd p = { .fd = c->out_fd, .events = POLLIN };
		ssize_t n;

		if (strstr(c->text, text))
			return true;
		if (poll(&p, 1, 15000) != 1)
			return false;
		n = read(c->out_fd, c->text + c->len, sizeof(c->text) - 1 - c->len);
		if (n <= 0)
			return false;
		c->len += (size_t)n;
		c->text[c->len] = '\0';
	}
}

static int end(struct child *c, int sig)
{
	int status = 0;

	if (sig)
		kill(c->pid, sig);
	says(c, "\1"); /* to the end of its output */
	close(c->out_fd);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define FAKE "--backend", "fake", "--state-dir", "@state"
#define UNIX "--listen", "unix:@sock"
static const char *const plain[] = { FAKE, UNIX, NULL };

/* --- refusals --- */

static const struct refusal {
	const char *name, *says;
	const char *args[MAX_ARGS];
} refusals[] = {
	{ "loopback TCP without a token", "TCP needs --token-file",
		{ FAKE, "--listen", "127.0.0.1:0" } },
	{ "localhost without a token", "TCP needs --token-file",
		{ FAKE, "--listen", "localhost:0" } },
	{ "IPv6 loopback without a token", "TCP needs --token-file",
		{ FAKE, "--listen", "[::1]:0" } },
	{ "every address without TLS", "needs --tls-cert",
		{ FAKE, "--listen", "0.0.0.0:0", "--token-file", "@token" } },
	{ "empty host without TLS", "needs --tls-cert",
		{ FAKE, "--listen", ":0", "--token-file", "@token" } },
	{ "network address without TLS", "needs --tls-cert",
		{ FAKE, "--listen", "192.0.2.1:0", "--token-file", "@token" } },
	{ "certificate without key", "go together",
		{ FAKE, "--listen", "127.0.0.1:0", "--token-file", "@token", "--tls-cert",
			"@file" } },
	{ "client CA without certificate", "--client-ca needs",
		{ FAKE, "--listen", "127.0.0.1:0", "--token-file", "@token", "--client-ca",
			"@file" } },
	{ "TCP with the fake backend", "unix socket only",
		{ FAKE, "--listen", "127.0.0.1:0", "--token-file", "@token" } },
	{ "token file open to others", "read by others",
		{ FAKE, UNIX, "--token-file", "@open-token" } },
	{ "short token", "shorter than 16", { FAKE, UNIX, "--token-file", "@short-token" } },
	{ "missing token file", "token file", { FAKE, UNIX, "--token-file", "@none" } },
	{ "long socket path", "at most 103",
		{ FAKE, "--listen",
			"unix:///aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa" } },
	{ "relative socket path", "must be absolute", { FAKE, "--listen", "unix://sock" } },
	{ "file at the socket's path", "is not a socket", { FAKE, "--listen", "unix:@file" } },
	{ "address without a port", "HOST:PORT", { FAKE, "--listen", "localhost" } },
	{ "unknown policy key", "nope", { FAKE, UNIX, "--policy", "@bad-key.json" } },
	{ "contradicting policy", "policy", { FAKE, UNIX, "--policy", "@contradiction.json" } },
	{ "pools on the fake backend", "keeps no sandboxes ready",
		{ FAKE, UNIX, "--policy", "@pools.json" } },
	{ "missing policy", "policy", { FAKE, UNIX, "--policy", "@none" } },
	{ "default image off the list", "--default-image",
		{ FAKE, UNIX, "--policy", "@images.json", "--default-image", "other" } },
	{ "bad node name", "--node-id", { FAKE, UNIX, "--node-id", "a_b" } },
	{ "bad node label", "--node-label", { FAKE, UNIX, "--node-label", "x" } },
	{ "metrics beyond loopback", "loopback",
		{ FAKE, UNIX, "--metrics-listen", "0.0.0.0:9000" } },
	{ "metrics on a unix socket", "loopback",
		{ FAKE, UNIX, "--metrics-listen", "unix:///tmp/metrics" } },
	{ "egress ports", "no port of the host", { FAKE, UNIX, "--egress-proxy-port", "3128" } },
	{ "egress resolver", "--egress-resolver", { FAKE, UNIX, "--egress-resolver", "dns.test" } },
	{ "open state directory", "open to others",
		{ "--backend", "fake", UNIX, "--state-dir", "@open-state" } },
	{ "unknown disk provider", "--disk-provider: one of btrfs xfs", { FAKE, UNIX, "--disk-provider", "zfs" } },
	{ "origin that no browser sends", "--allowed-origin: ",
		{ FAKE, UNIX, "--allowed-origin", "box.example" } },
	{ "origin with a path", "--allowed-origin: ",
		{ FAKE, UNIX, "--allowed-origin", "https://box.example/" } },
	{ "host with a scheme", "--allowed-host: ",
		{ FAKE, UNIX, "--allowed-host", "https://box.example" } },
	{ "unknown backend", "--backend", { "--backend", "vm", UNIX, "--state-dir", "@state" } },
	{ "unknown flag", "unknown flag", { FAKE, UNIX, "--nope" } },
	{ "stray word", "flags only", { FAKE, UNIX, "nope" } },
	{ "missing value", "value is missing", { FAKE, "--listen" } },
	{ "bad number", "--max-connections", { FAKE, UNIX, "--max-connections", "many" } },
	{ "more connections than a number holds", "--max-connections: at most",
		{ FAKE, UNIX, "--max-connections", "4294967296" } },
	{ "a pull that may stand still for hours", "--pull-stall-secs: at most 3600",
		{ FAKE, UNIX, "--pull-stall-secs", "7200" } },
	{ "more memory than there are numbers", "--capacity-memory-mb: at most",
		{ FAKE, UNIX, "--capacity-memory-mb", "9223372036854775807" } },
	{ "more processors than there are", "--capacity-cpus: at most",
		{ FAKE, UNIX, "--capacity-cpus", "1e300" } },
	{ "both keeps", "exclude each other",
		{ FAKE, UNIX, "--keep-sandboxes", "--no-keep-sandboxes" } },
};

static void refuses_to_start(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		const struct refusal *row = &refusals[i];
		struct child c = start(row->args);
		int code = end(&c, 0);

		if (code != 1 || !strstr(c.text, row->says) ||
			strchr(c.text, '\n') != c.text + c.len - 1)
			fail_msg("%s: exit %d, said: %s", row->name, code, c.text);
		if (!access(at("sock"), F_OK))
			fail_msg("%s: left a socket behind", row->name);
	}
}

static void a_live_server_keeps_its_socket_and_state(void **state)
{
	static const char *const other_state[] = { "--backend", "fake", "--state-dir", "@state2",
		UNIX, NULL };
	static const char *const other_sock[] = { FAKE, "--listen", "unix:@sock2", NULL };
	struct child a = start(plain), b, c;

	(void)state;
	assert_true(says(&a, "started"));
	b = start(other_state);
	assert_int_equal(end(&b, 0), 1);
	assert_non_null(strstr(b.text, "another server answers"));
	c = start(other_sock);
	assert_int_equal(end(&c, 0), 1);
	assert_non_null(strstr(c.text, "another sandboxd uses the state directory"));
	assert_int_equal(end(&a, SIGTERM), 0);
}

static int health(const char *name, const char *token)
{
	_cleanup_close_ int fd = httpc_unix(at(name));
	_cleanup_answer_ struct answer a = { 0 };
	char text[256];

	snprintf(text, sizeof(text),
		"GET /v1/node HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
		token);
	assert_true(fd >= 0);
	httpc_send(fd, text);
	a = httpc_answer(fd);
	return a.status;
}

static void replaces_a_stale_socket(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct child c;

	(void)state;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", at("sock"));
	assert_return_code(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), errno);
	close(fd);
	c = start(plain);
	assert_true(says(&c, "started"));
	assert_int_equal(health("sock", "none"), 200);
	assert_int_equal(end(&c, SIGTERM), 0);
}

static void socket_and_folders_are_private(void **state)
{
	static const char *const deep[] = { "--backend", "fake", "--state-dir", "@a/b/state",
		"--listen", "unix:@run/x/sock", NULL };
	struct child c = start(deep);
	struct stat st;

	(void)state;
	assert_true(says(&c, "started"));
	assert_return_code(stat(at("run/x/sock"), &st), errno);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_return_code(stat(at("run/x"), &st), errno);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_return_code(stat(at("a/b/state"), &st), errno);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(end(&c, SIGINT), 0);
	assert_int_equal(access(at("run/x/sock"), F_OK), -1);
}

static void tells_readiness_and_the_end(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct child c;
	char got[64] = { 0 };

	(void)state;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", at("notify"));
	assert_return_code(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), errno);
	setenv("NOTIFY_SOCKET", sa.sun_path, 1);
	c = start(plain);
	unsetenv("NOTIFY_SOCKET");
	assert_true(recv(fd, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, "READY=1");
	assert_int_equal(health("sock", "none"), 200); /* ready means ready */
	kill(c.pid, SIGTERM);
	memset(got, 0, sizeof(got));
	assert_true(recv(fd, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, "STOPPING=1");
	assert_int_equal(end(&c, 0), 0);
}

static void reads_the_token_again_on_hangup(void **state)
{
	static const char *const with_token[] = { FAKE, UNIX, "--token-file", "@token", NULL };
	struct child c = start(with_token);

	(void)state;
	assert_true(says(&c, "started"));
	assert_int_equal(health("sock", TOKEN), 200);
	put("token", "another-token-of-16", 0600);
	kill(c.pid, SIGHUP);
	assert_true(says(&c, "token file read again"));
	assert_int_equal(health("sock", TOKEN), 401);
	assert_int_equal(health("sock", "another-token-of-16"), 200);
	put("token", "short", 0600);
	kill(c.pid, SIGHUP);
	assert_true(says(&c, "the old token stays"));
	assert_int_equal(health("sock", "another-token-of-16"), 200);
	assert_int_equal(end(&c, SIGTERM), 0);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void followers_do_not_delay_the_end(void **state)
{
	static const char *const paths[] = { "/v1/events?follow=1", "/v1/sandboxes?watch=1" };
	struct child c = start(plain);
	int fds[2];
	int64_t t0;

	(void)state;
	assert_true(says(&c, "started"));
	for (int i = 0; i < 2; i++) {
		_cleanup_answer_ struct answer a = { 0 };
		char text[128];

		fds[i] = httpc_unix(at("sock"));
		snprintf(
			text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", paths[i]);
		httpc_send(fds[i], text);
		a = httpc_head(fds[i]);
		assert_int_equal(a.status, 200);
	}
	t0 = now_ms();
	assert_int_equal(end(&c, SIGTERM), 0);
	assert_true(now_ms() - t0 < 4000);
	close(fds[0]);
	close(fds[1]);
}

/* A run under way when the end is asked for is answered, and what connects after that is refused.
 */
static void open_requests_are_answered_before_the_end(void **state)
{
	static const char create[] =
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"name\":\"a\"}";
	static const char run[] =
		"POST /v1/sandboxes/a/run HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"argv\":[\"sleep\",\"1\"]}";
	static const char *const ends[] = { FAKE, UNIX, "--no-keep-sandboxes", NULL };
	struct child c = start(ends);
	_cleanup_close_ int fd = -1;
	_cleanup_answer_ struct answer a = { 0 }, b = { 0 };
	int late = -1;

	(void)state;
	assert_true(says(&c, "started"));
	fd = httpc_unix(at("sock"));
	httpc_send(fd, create);
	a = httpc_answer(fd);
	assert_int_equal(a.status, 201);
	httpc_send(fd, run);
	assert_true(httpc_silent(fd, 300));
	kill(c.pid, SIGTERM);
	for (int i = 0; i < 100 && (late = httpc_unix(at("sock"))) >= 0; i++) {
		close(late);
		usleep(5000);
	}
	assert_int_equal(late, -1);
	b = httpc_answer(fd);
	assert_int_equal(b.status, 200);
	assert_int_equal(end(&c, 0), 0);
}

static void the_manual_names_every_flag(void **state)
{
	static const char *const help[] = { "--help", NULL };
	struct child c = start(help);
	FILE *f = fopen("doc/man/sandboxd.8", "re");
	static char manual[65536];

	(void)state;
	assert_int_equal(end(&c, 0), 0);
	if (!f)
		skip();
	manual[fread(manual, 1, sizeof(manual) - 1, f)] = '\0';
	fclose(f);
	for (char *p = strstr(c.text, "--"); p; p = strstr(p + 2, "\n  --")) {
		char flag[64];

		p += p[0] == '\n' ? 5 : 2;
		snprintf(flag, sizeof(flag), "Fl -%.*s", (int)strcspn(p, " \n"), p);
		if (!strstr(manual, flag))
			fail_msg("the manual does not name %s", flag);
	}
}

static void help_and_version_need_nothing(void **state)
{
	static const char *const help[] = { "--help", NULL };
	static const char *const version[] = { "--version", NULL };
	struct child a = start(help), b = start(version);

	(void)state;
	assert_int_equal(end(&a, 0), 0);
	assert_int_equal(end(&b, 0), 0);
}

/* sandboxd lies in bin/ of the build folder, two levels above tests/api/test_x. */
static void find_program(void)
{
	const char *env = getenv("SBX_LIBEXEC");
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 32);

	if (n < 0)
		n = 0;
	exe[n] = '\0';
	*strrchr(exe, '/') = '\0';
	if (env)
		snprintf(bin, sizeof(bin), "%s/sandboxd", env);
	else
		snprintf(bin, sizeof(bin), "%.*s/../../bin/sandboxd", PATH_MAX - 32, exe);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(refuses_to_start),
		T(a_live_server_keeps_its_socket_and_state),
		T(replaces_a_stale_socket),
		T(socket_and_folders_are_private),
		T(tells_readiness_and_the_end),
		T(reads_the_token_again_on_hangup),
		T(followers_do_not_delay_the_end),
		T(open_requests_are_answered_before_the_end),
		T(the_manual_names_every_flag),
		T(help_and_version_need_nothing),
	};

	find_program();
	return run_table(tests);
}
