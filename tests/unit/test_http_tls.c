/* SPDX-License-Identifier: MIT */
/* The HTTP server behind TLS: versions, client certificates, upgrades, deadlines. Certificates are
 * made on the spot. */
#include "common/http/http.h"
#include "tests/support/httpc.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct pair {
	gnutls_x509_privkey_t key;
	gnutls_x509_crt_t crt;
	char *key_pem, *crt_pem;
};
static struct pair ca, server, client, stranger_ca, stranger;

struct fixture {
	struct http_server *http;
	unsigned short port;
};

/* --- certificates --- */

static char *text_of(gnutls_datum_t *d)
{
	char *s = strndup((char *)d->data, d->size);

	gnutls_free(d->data);
	assert_non_null(s);
	return s;
}

static void make_pair(struct pair *p, const char *name, const struct pair *issuer)
{
	static unsigned char serial;
	gnutls_datum_t d;

	serial++;
	gnutls_x509_privkey_init(&p->key);
	gnutls_x509_crt_init(&p->crt);
	assert_int_equal(gnutls_x509_privkey_generate(p->key, GNUTLS_PK_ECDSA,
				 GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
		0);
	gnutls_x509_crt_set_version(p->crt, 3);
	gnutls_x509_crt_set_key(p->crt, p->key);
	gnutls_x509_crt_set_serial(p->crt, &serial, 1);
	gnutls_x509_crt_set_activation_time(p->crt, time(NULL) - 3600);
	gnutls_x509_crt_set_expiration_time(p->crt, time(NULL) + 3600);
	gnutls_x509_crt_set_dn_by_oid(
		p->crt, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned)strlen(name));
	gnutls_x509_crt_set_basic_constraints(p->crt, issuer == NULL, -1);
	assert_int_equal(gnutls_x509_crt_sign2(p->crt, issuer ? issuer->crt : p->crt,
				 issuer ? issuer->key : p->key, GNUTLS_DIG_SHA256, 0),
		0);
	assert_int_equal(gnutls_x509_privkey_export2(p->key, GNUTLS_X509_FMT_PEM, &d), 0);
	p->key_pem = text_of(&d);
	assert_int_equal(gnutls_x509_crt_export2(p->crt, GNUTLS_X509_FMT_PEM, &d), 0);
	p->crt_pem = text_of(&d);
}

static void free_pair(struct pair *p)
{
	gnutls_x509_crt_deinit(p->crt);
	gnutls_x509_privkey_deinit(p->key);
	free(p->key_pem);
	free(p->crt_pem);
}

static int make_all(void **state)
{
	(void)state;
	make_pair(&ca, "ca", NULL);
	make_pair(&server, "localhost", &ca);
	make_pair(&client, "client", &ca);
	make_pair(&stranger_ca, "other ca", NULL);
	make_pair(&stranger, "client", &stranger_ca);
	return 0;
}

static int free_all(void **state)
{
	struct pair *all[] = { &ca, &server, &client, &stranger_ca, &stranger };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		free_pair(all[i]);
	return 0;
}

/* --- the server --- */

static void echo_run(void *arg, int fd, const void *extra, size_t len)
{
	char buf[4096];
	ssize_t n;

	(void)arg;
	if (fd < 0)
		return;
	if (len)
		send(fd, extra, len, MSG_NOSIGNAL);
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		send(fd, buf, (size_t)n, MSG_NOSIGNAL);
}

/* Waits for the hang-up of its client alone; reads only what `reads` says. */
static _Atomic bool hung_up;

static void hold_run(void *arg, int fd, const void *extra, size_t len)
{
	struct pollfd p = { .fd = fd };
	bool reads = arg != NULL;
	char buf[4096];

	(void)extra;
	(void)len;
	while (reads && recv(fd, buf, sizeof(buf), 0) > 0)
		;
	if (fd >= 0)
		hung_up = poll(&p, 1, patience_ms(20000)) == 1;
}

static void app_begin(void *arg, struct http_req *r)
{
	(void)arg;
	if (!strcmp(http_path(r), "/refuse"))
		http_reply(r, 401, "text/plain", "no", 2);
}

static void app_data(void *arg, struct http_req *r, const void *buf, size_t len)
{
	(void)arg;
	(void)buf;
	(void)len;
	if (!strcmp(http_path(r), "/middle"))
		http_reply(r, 409, "text/plain", "stop", 4);
}

static void app_end(void *arg, struct http_req *r)
{
	size_t len;
	bool bad;

	(void)arg;
	if (!strcmp(http_path(r), "/up"))
		http_upgrade(r, "echo/1", echo_run, NULL);
	else if (!strcmp(http_path(r), "/hold"))
		http_upgrade(
			r, "hold/1", hold_run, http_query(r, "deaf", 0, &len, &bad) ? NULL : r);
	else
		http_reply(r, 200, "text/plain", "yes", 3);
}

static void app_gone(void *arg, struct http_req *r, bool complete)
{
	(void)arg;
	(void)r;
	(void)complete;
}

static int start(void **state, bool with_ca)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct http_app app = { f, app_begin, app_data, app_end, app_gone };
	struct sockaddr_in sa = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	struct err e = ERR_NULL;
	struct http_conf conf = {
		.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
		.tls_cert_pem = server.crt_pem,
		.tls_key_pem = server.key_pem,
		.client_ca_pem = with_ca ? ca.crt_pem : NULL,
		.max_connections = 8,
		.header_timeout_ms = 1500,
		.idle_timeout_ms = 3000,
		.body_timeout_ms = 1500,
		.gone_timeout_ms = 1000,
	};

	assert_non_null(f);
	assert_return_code(bind(conf.listen_fd, (struct sockaddr *)&sa, sizeof(sa)), errno);
	assert_return_code(listen(conf.listen_fd, 16), errno);
	assert_return_code(getsockname(conf.listen_fd, (struct sockaddr *)&sa, &len), errno);
	f->port = ntohs(sa.sin_port);
	if (http_server_start(&conf, &app, &f->http, &e) < 0)
		fail_msg("%s", e.msg);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return start(state, false);
}

static int setup_ca(void **state)
{
	return start(state, true);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	http_server_stop(f->http, 1000);
	free(f);
	return 0;
}

/* --- a client --- */

struct tls {
	int fd;
	gnutls_session_t s;
	gnutls_certificate_credentials_t cred;
};

static void tls_close(struct tls *t)
{
	gnutls_deinit(t->s);
	gnutls_certificate_free_credentials(t->cred);
	close(t->fd);
}

/* The handshake's result; the session can be closed in any case. */
static int tls_open(struct fixture *f, const char *priority, const struct pair *own, struct tls *t)
{
	int rc;

	t->fd = httpc_tcp(f->port);
	assert_true(t->fd >= 0);
	gnutls_certificate_allocate_credentials(&t->cred);
	gnutls_certificate_set_x509_trust(t->cred, &ca.crt, 1);
	if (own)
		gnutls_certificate_set_x509_key(
			t->cred, (gnutls_x509_crt_t *)(uintptr_t)&own->crt, 1, own->key);
	gnutls_init(&t->s, GNUTLS_CLIENT);
	assert_int_equal(gnutls_priority_set_direct(t->s, priority, NULL), 0);
	gnutls_credentials_set(t->s, GNUTLS_CRD_CERTIFICATE, t->cred);
	gnutls_session_set_verify_cert(t->s, NULL, 0);
	gnutls_transport_set_int(t->s, t->fd);
	gnutls_handshake_set_timeout(t->s, 10000);
	do
		rc = gnutls_handshake(t->s);
	while (rc < 0 && !gnutls_error_is_fatal(rc));
	return rc;
}

/* Sends and reads until `want` has arrived; false when the stream ends first. */
static bool exchange(struct tls *t, const char *text, const char *want)
{
	char got[4096] = { 0 };
	size_t n = 0;

	gnutls_record_set_timeout(t->s, 10000);
	if (gnutls_record_send(t->s, text, strlen(text)) < 0)
		return false;
	while (!strstr(got, want)) {
		ssize_t k = gnutls_record_recv(t->s, got + n, sizeof(got) - 1 - n);

		if (k == GNUTLS_E_AGAIN || k == GNUTLS_E_INTERRUPTED)
			continue;
		if (k <= 0)
			return false;
		n += (size_t)k;
	}
	return true;
}

#define GET "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

static void serves_over_tls(void **state)
{
	struct tls t;

	assert_int_equal(tls_open(*state, "NORMAL", NULL, &t), 0);
	assert_true(exchange(&t, GET, "\r\n\r\nyes"));
	assert_true(exchange(&t, GET, "\r\n\r\nyes"));
	tls_close(&t);
	assert_int_equal(tls_open(*state, "NORMAL:-VERS-ALL:+VERS-TLS1.2", NULL, &t), 0);
	assert_true(exchange(&t, GET, "\r\n\r\nyes"));
	tls_close(&t);
}

static void refuses_old_versions(void **state)
{
	struct tls t;

	assert_true(
		tls_open(*state,
			"NORMAL:-VERS-ALL:+VERS-TLS1.1:+VERS-TLS1.0:+SHA1:%VERIFY_ALLOW_SIGN_WITH_SHA1",
			NULL, &t) < 0);
	tls_close(&t);
}

static void refuses_plain_text(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);
	char got[16] = { 0 };

	httpc_send(fd, GET);
	(void)!recv(fd, got, sizeof(got) - 1, MSG_WAITALL);
	assert_null(strstr(got, "HTTP"));
}

static void upgrades_over_tls(void **state)
{
	struct tls t;
	char got[16];

	assert_int_equal(tls_open(*state, "NORMAL", NULL, &t), 0);
	assert_true(exchange(&t,
		"GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n",
		"101"));
	assert_true(exchange(&t, "one", "one"));
	assert_true(exchange(&t, "two", "two"));
	assert_int_equal(gnutls_bye(t.s, GNUTLS_SHUT_WR), 0); /* the half-close reaches the owner */
	assert_int_equal(gnutls_record_recv(t.s, got, sizeof(got)), 0);
	tls_close(&t);
}

/* The server's end of a client's connection, which is in this process, too. */
static int other_end(int mine)
{
	struct sockaddr_in me, peer;
	socklen_t len = sizeof(me);

	assert_int_equal(getsockname(mine, (struct sockaddr *)&me, &len), 0);
	for (int fd = 3; fd < 1024; fd++) {
		len = sizeof(peer);
		if (fd != mine && getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
			peer.sin_family == AF_INET && peer.sin_port == me.sin_port)
			return fd;
	}
	return -1;
}

/* A machine that has lost its power says nothing: it is asked. */
static void a_client_that_vanishes_is_found(void **state)
{
	int value, fd;
	socklen_t len = sizeof(value);
	struct tls t;

	assert_int_equal(tls_open(*state, "NORMAL", NULL, &t), 0);
	assert_true(exchange(&t, GET, "\r\n\r\nyes"));
	fd = other_end(t.fd);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &len), 0);
	assert_int_equal(value, 1);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, &len), 0);
	assert_int_equal(value, 60);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &value, &len), 0);
	assert_int_equal(value, 15);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &value, &len), 0);
	assert_int_equal(value, 4);
	tls_close(&t);
}

#define HOLD " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: hold/1\r\n\r\n"

/* After it has ended its half; while what it sent is waited for to be taken; without either. */
static void the_owner_of_a_stream_learns_that_its_client_has_gone(void **state)
{
	static const struct linger reset = { .l_onoff = 1 };
	static const char data[16384];
	struct fixture *f = *state;

	for (int way = 0; way < 3; way++) {
		struct tls t;

		hung_up = false;
		assert_int_equal(tls_open(f, "NORMAL", NULL, &t), 0);
		assert_true(
			exchange(&t, way == 1 ? "GET /hold?deaf=1" HOLD : "GET /hold" HOLD, "101"));
		if (way == 0)
			assert_int_equal(gnutls_bye(t.s, GNUTLS_SHUT_WR), 0);
		for (int i = 0; way == 1 && i < 64; i++) { /* more than a pair takes */
			struct pollfd p = { t.fd, POLLOUT, 0 };
			if (poll(&p, 1, 500) != 1)
				break;
			assert_true(gnutls_record_send(t.s, data, sizeof(data)) > 0);
		}
		usleep(300000);
		assert_false(hung_up);
		setsockopt(t.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		tls_close(&t);
		for (int i = 0; !hung_up && i < patience_ms(15000) / 50; i++)
			usleep(50000);
		assert_true(hung_up);
	}
}

static void refusals_arrive_over_tls(void **state)
{
	struct tls t;

	assert_int_equal(tls_open(*state, "NORMAL", NULL, &t), 0);
	assert_true(exchange(
		&t, "PUT /refuse HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc", "401"));
	tls_close(&t);
	assert_int_equal(tls_open(*state, "NORMAL", NULL, &t), 0);
	assert_true(exchange(&t,
		"PUT /middle HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc", "stop"));
	tls_close(&t);
}

static void a_handshake_that_stalls_is_cut(void **state)
{
	struct fixture *f = *state;
	_cleanup_close_ int fd = httpc_tcp(f->port);

	httpc_send_bytes(fd, "\x16\x03\x01", 3);
	assert_true(httpc_closed(fd, 8000));
}

static void lets_in_clients_of_the_ca(void **state)
{
	struct tls t;

	assert_int_equal(tls_open(*state, "NORMAL", &client, &t), 0);
	assert_true(exchange(&t, GET, "\r\n\r\nyes"));
	tls_close(&t);
}

/* With TLS 1.3 a client learns of its refusal only when it reads. */
static void lets_in_nobody_else(void **state)
{
	static const char *const priorities[] = { "NORMAL", "NORMAL:-VERS-ALL:+VERS-TLS1.2" };

	for (int i = 0; i < 4; i++) {
		struct tls t;

		if (tls_open(*state, priorities[i % 2], i < 2 ? NULL : &stranger, &t) == 0)
			assert_false(exchange(&t, GET, "HTTP/1.1"));
		tls_close(&t);
	}
}

#define T(fn, s) cmocka_unit_test_setup_teardown(fn, s, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(serves_over_tls, setup),
		T(refuses_old_versions, setup),
		T(refuses_plain_text, setup),
		T(upgrades_over_tls, setup),
		T(a_client_that_vanishes_is_found, setup),
		T(the_owner_of_a_stream_learns_that_its_client_has_gone, setup),
		T(refusals_arrive_over_tls, setup),
		T(a_handshake_that_stalls_is_cut, setup),
		T(lets_in_clients_of_the_ca, setup_ca),
		T(lets_in_nobody_else, setup_ca),
	};

	/* as the daemon does: a peer that hangs up first is an error of the write, not our end */
	signal(SIGPIPE, SIG_IGN);
	cmocka_set_test_filter(getenv("T"));
	return cmocka_run_group_tests(tests, make_all, free_all);
}
