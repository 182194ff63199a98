/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 from the network: over TCP and over TLS the same frames arrive, whole and in both
 * directions, and the worker never gets a socket of the network. */
#include "tests/support/fsc.h"
#include "tests/support/suite.h"

#include "sandboxd/api/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig *rig;
static const char *id;

/* A second entrance to the server of the rig. */
struct door {
	struct api *api;
	struct http_server *http;
	char port[8], *cert, *key;
};

static char *make_pem(const char *file)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = fopen(rig_path("%s/%s", rig->dir, file), "re");

	assert_non_null(f);
	assert_true(getdelim(&text, &size, '\0', f) > 0);
	fclose(f);
	return text;
}

static void door_open(struct door *d, bool tls)
{
	struct api_conf conf = { .core = rig_core(rig) };
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*d = (struct door){ .api = NULL };
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	snprintf(d->port, sizeof(d->port), "%u", ntohs(a.sin_port));
	if (tls) {
		assert_int_equal(system(rig_path("cd %s && openssl req -x509 -newkey ec -pkeyopt "
						 "ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -days 2 "
						 "-keyout key.pem -out cert.pem 2>/dev/null",
					 rig->dir)),
			0);
		d->cert = make_pem("cert.pem");
		d->key = make_pem("key.pem");
	}
	assert_int_equal(api_new(&conf, &d->api, NULL), 0);
	assert_int_equal(api_set_token(d->api, rig->token[0] ? rig->token : NULL, NULL), 0);
	struct http_app app = api_app(d->api);
	struct http_conf http = { .listen_fd = fd,
		.tls_cert_pem = d->cert,
		.tls_key_pem = d->key,
		.max_connections = 16,
		.header_timeout_ms = 10000,
		.idle_timeout_ms = 10000,
		.body_timeout_ms = 10000 };
	struct err e = ERR_NULL;
	if (http_server_start(&http, &app, &d->http, &e) < 0)
		fail_msg("%s", e.msg);
}

static void door_close(struct door *d)
{
	http_server_stop(d->http, 1000);
	api_free(d->api);
	free(d->cert);
	free(d->key);
}

/* A socket whose other end is a program that speaks TLS. */
static int tls_connect(const char *port, pid_t *ret_pid)
{
	char to[32];
	int pair[2];

	snprintf(to, sizeof(to), "127.0.0.1:%s", port);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pair[1], 0);
		dup2(pair[1], 1);
		dup2(open("/dev/null", O_WRONLY), 2);
		execlp("openssl", "openssl", "s_client", "-quiet", "-connect", to, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	return pair[0];
}

static void speak(bool tls)
{
	struct door d;
	struct fsc c;
	struct fsc_answer a;
	pid_t pid = 0;
	size_t len = 3u * 1024 * 1024;
	char *big = malloc(len);

	assert_non_null(big);
	for (size_t i = 0; i < len; i++)
		big[i] = (char)(i * 7 + i / 4096);
	door_open(&d, tls);
	int fd = tls ? tls_connect(d.port, &pid) : httpc_tcp((unsigned short)atoi(d.port));
	httpc_send(fd, rig_path("GET /v1/sandboxes/%s/fs HTTP/1.1\r\nHost: localhost\r\n%s%s%s"
				"Connection: Upgrade\r\nUpgrade: sbx-fs/1\r\n\r\n",
			       id, rig->token[0] ? "Authorization: Bearer " : "", rig->token,
			       rig->token[0] ? "\r\n" : ""));
	_cleanup_answer_ struct answer head = httpc_head(fd);
	assert_int_equal(head.status, 101);
	fsc_init(&c, fd);
	(void)fsc_hello(&c);
	assert_int_equal(fsc_call(&c, FILES_OPEN,
				 &(struct guestfs_args){ .path = "/sandbox/home/big", .mode = 0644,
					 .flags = FILES_O_READ | FILES_O_WRITE | FILES_O_CREATE | FILES_O_TRUNC },
				 &a),
		0);
	uint64_t h = a.rep.handle;
	fsc_answer_free(&a);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(FSC(&c, FILES_WRITE, .handle = h, .offset = i * len, .data = big,
					 .data_len = len),
			len);
	for (unsigned i = 0; i < 4; i++)
		(void)fsc_send(&c, FILES_READ,
			&(struct guestfs_args){ .handle = h, .offset = i * len, .length = len });
	for (unsigned i = 0; i < 4; i++) {
		assert_true(fsc_recv(&c, &a));
		assert_int_equal(a.f.value, len);
		assert_memory_equal(a.data, big, len);
		fsc_answer_free(&a);
	}
	int64_t w = FSC(&c, FILES_WATCH, .path = "/sandbox/home");
	assert_int_equal(rig_sh(rig, id, "echo x > told", NULL), 0);
	fsc_await(&c, (uint64_t)w, "told", FS_INVAL_DATA);
	/* the server's stop ends it */
	door_close(&d);
	assert_true(fsc_ended(&c, 10000));
	fsc_fini(&c);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	free(big);
}

static void over_tcp(void **state)
{
	(void)state;
	speak(false);
}

static void over_tls(void **state)
{
	(void)state;
	speak(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(over_tcp), cmocka_unit_test(over_tls) };

	return run_suite(tests, NULL, &rig, &id);
}
