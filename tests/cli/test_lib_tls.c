/* SPDX-License-Identifier: MIT */
/* libsbx over TLS: trust, tokens, and a stream that is taken over, half-close included. */
#include "client/include/sbx.h"
#include "tests/support/patience.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_MS 30000

struct server {
	int fd, port;
	SSL_CTX *ctx;
	char ca[64];
	pthread_t thread;
	int connections;  /* how many it serves before it ends */
	char heard[4096]; /* the last request; read after the join, as is the next */
	size_t got;       /* by two_ways */
};

static X509 *make_cert(EVP_PKEY *key)
{
	X509 *x = X509_new();
	X509_EXTENSION *san = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
		(const unsigned char *)"test", -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(x));
	X509_set_pubkey(x, key);
	X509_add_ext(x, san, -1);
	X509_EXTENSION_free(san);
	assert_true(X509_sign(x, key, EVP_sha256()) > 0);
	return x;
}

static bool read_request(SSL *ssl, char *buf, size_t size)
{
	size_t len = 0;

	while (len + 1 < size) {
		int n = SSL_read(ssl, buf + len, (int)(size - 1 - len));
		if (n <= 0)
			return false;
		len += (size_t)n;
		buf[len] = '\0';
		if (strstr(buf, "\r\n\r\n"))
			return true;
	}
	return false;
}

/* Echoes until the client ends its half, then says goodbye: the other half must still be open. */
static void echo(SSL *ssl)
{
	static const char head[] =
		"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n\r\nearly";
	char buf[65536];
	int n;

	SSL_write(ssl, head, (int)strlen(head));
	while ((n = SSL_read(ssl, buf, sizeof(buf))) > 0)
		SSL_write(ssl, buf, n);
	if (SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN) /* said goodbye, not just cut */
		SSL_write(ssl, "bye", 3);
}

#define MUCH (16u << 20) /* more than all buffers on the way hold */

static char much_at(size_t at)
{
	return (char)(at * 7 + at / 256);
}

static size_t fill(char *buf, size_t size, size_t at)
{
	size_t n = MUCH - at < size ? MUCH - at : size;

	for (size_t i = 0; i < n; i++)
		buf[i] = much_at(at + i);
	return n;
}

static bool is_much(const char *buf, size_t n, size_t at)
{
	for (size_t i = 0; i < n; i++)
		if (buf[i] != much_at(at + i))
			return false;
	return at + n <= MUCH;
}

/* Much both ways, neither waiting for the other. */
static void two_ways(struct server *s, SSL *ssl, int fd)
{
	static const char head[] = "HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: sbx-tunnel/1\r\n\r\n";
	size_t sent = 0;
	char buf[16384];
	int n;

	SSL_write(ssl, head, (int)strlen(head));
	SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	while (s->got < MUCH || sent < MUCH) {
		struct pollfd f = { .fd = fd, .events = (s->got < MUCH ? POLLIN : 0) | (sent < MUCH ? POLLOUT : 0) };

		if (poll(&f, 1, patience_ms(WAIT_MS)) <= 0)
			return;
		while ((n = SSL_read(ssl, buf, sizeof(buf))) > 0 && is_much(buf, (size_t)n, s->got))
			s->got += (size_t)n;
		if (n > 0 || SSL_get_error(ssl, n) != SSL_ERROR_WANT_READ)
			return;
		if (sent == MUCH)
			continue;
		n = SSL_write(ssl, buf, (int)fill(buf, sizeof(buf), sent));
		if (n <= 0 && SSL_get_error(ssl, n) != SSL_ERROR_WANT_WRITE)
			return;
		sent += n > 0 ? (size_t)n : 0;
	}
}

static void *serve(void *arg)
{
	struct server *s = arg;
	static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

	for (int i = 0; i < s->connections; i++) {
		int fd = accept(s->fd, NULL, NULL);
		SSL *ssl = SSL_new(s->ctx);
		SSL_set_fd(ssl, fd);
		if (SSL_accept(ssl) == 1 && read_request(ssl, s->heard, sizeof(s->heard))) {
			if (strstr(s->heard, "GET /much"))
				two_ways(s, ssl, fd);
			else if (strstr(s->heard, "Upgrade: sbx-tunnel/1"))
				echo(ssl);
			else
				SSL_write(ssl, ok, (int)strlen(ok));
			SSL_shutdown(ssl);
		}
		SSL_free(ssl);
		close(fd);
	}
	return NULL;
}

static void server_start(struct server *s, int connections)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = make_cert(key);
	FILE *f;

	*s = (struct server){ .connections = connections, .ctx = SSL_CTX_new(TLS_server_method()) };
	assert_int_equal(SSL_CTX_use_certificate(s->ctx, cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(s->ctx, key), 1);
	strcpy(s->ca, "/tmp/tls-ca-XXXXXX");
	f = fdopen(mkstemp(s->ca), "w");
	PEM_write_X509(f, cert);
	fclose(f);
	X509_free(cert);
	EVP_PKEY_free(key);
	s->fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(s->fd, 8), 0);
	getsockname(s->fd, (struct sockaddr *)&a, &len);
	s->port = ntohs(a.sin_port);
	assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_join(struct server *s)
{
	pthread_join(s->thread, NULL);
	close(s->fd);
	unlink(s->ca);
	SSL_CTX_free(s->ctx);
}

static struct sbx *open_at(const struct server *s, bool trusted)
{
	char url[64];
	struct sbx_options opt = { .endpoint = url, .ca_file = trusted ? s->ca : NULL };
	struct sbx_error e;
	struct sbx *c;

	snprintf(url, sizeof(url), "https://127.0.0.1:%d", s->port);
	assert_int_equal(sbx_open(&opt, &c, &e), 0);
	return c;
}

static void a_trusted_server_gets_the_token(void **state)
{
	struct sbx_request q = { .method = "GET", .path = "/x" };
	struct sbx_response r;
	struct sbx_error e;
	struct server s;
	struct sbx *c;

	(void)state;
	server_start(&s, 1);
	setenv("SBX_TOKEN", "0123456789abcdef", 1);
	c = open_at(&s, true);
	unsetenv("SBX_TOKEN");
	assert_int_equal(sbx_call(c, &q, &r, &e), 0);
	sbx_response_free(&r);
	sbx_close(c);
	server_join(&s);
	assert_non_null(strstr(s.heard, "Authorization: Bearer 0123456789abcdef\r\n"));
}

static void an_unknown_certificate_gets_nothing(void **state)
{
	struct sbx_request q = { .method = "GET", .path = "/x" };
	struct sbx_error e;
	struct server s;
	struct sbx *c;
	int fd;

	(void)state;
	server_start(&s, 2);
	c = open_at(&s, false);
	assert_int_equal(sbx_call(c, &q, NULL, &e), -1);
	assert_string_equal(e.code, "unreachable");
	assert_non_null(strstr(e.message, "SBX_CA"));
	assert_false(e.sent);
	assert_int_equal(sbx_upgrade(c, "/t", "sbx-tunnel/1", false, &fd, &e), -1);
	assert_non_null(strstr(e.message, "SBX_CA"));
	sbx_close(c);
	server_join(&s);
	assert_string_equal(s.heard, "");
}

static void read_all(int fd, char *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, buf + got, len - got);
		assert_true(n > 0);
		got += (size_t)n;
	}
}

static void a_stream_over_tls_carries_bytes_and_half_closes(void **state)
{
	size_t size = 1 << 20;
	char *out = malloc(size), *in = malloc(size), small[16];
	struct sbx_error e;
	struct server s;
	struct sbx *c;
	int fd;

	(void)state;
	for (size_t i = 0; i < size; i++)
		out[i] = (char)(i * 7 + i / 256);
	server_start(&s, 1);
	c = open_at(&s, true);
	assert_int_equal(sbx_upgrade(c, "/t", "sbx-tunnel/1", false, &fd, &e), 0);
	sbx_close(c); /* the stream does not need it */
	read_all(fd, small, 5);
	assert_memory_equal(small, "early", 5);
	for (size_t at = 0; at < size; at += 4096) {
		assert_int_equal(write(fd, out + at, 4096), 4096);
		read_all(fd, in + at, 4096);
	}
	assert_memory_equal(in, out, size);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	read_all(fd, small, 3);
	assert_memory_equal(small, "bye", 3);
	assert_int_equal(read(fd, small, 1), 0);
	close(fd);
	server_join(&s);
	free(out);
	free(in);
}

static void both_ways_of_a_stream_over_tls_go_on_by_themselves(void **state)
{
	const int wait = patience_ms(WAIT_MS);
	const struct timeval tv = { .tv_sec = wait / 1000 };
	char buf[16384];
	struct sbx_error e;
	struct server s;
	struct sbx *c;
	int fd;

	(void)state;
	server_start(&s, 1);
	c = open_at(&s, true);
	assert_int_equal(sbx_upgrade(c, "/much", "sbx-tunnel/1", false, &fd, &e), 0);
	sbx_close(c);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	for (size_t at = 0, n; at < MUCH; at += n) { /* and reads nothing meanwhile */
		n = fill(buf, sizeof(buf), at);
		assert_int_equal(write(fd, buf, n), n);
	}
	for (size_t at = 0, n; at < MUCH; at += n) {
		n = MUCH - at < sizeof(buf) ? MUCH - at : sizeof(buf);
		read_all(fd, buf, n);
		assert_true(is_much(buf, n, at));
	}
	server_join(&s);
	assert_int_equal(s.got, MUCH);
	assert_int_equal(read(fd, buf, 1), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_trusted_server_gets_the_token),
		cmocka_unit_test(an_unknown_certificate_gets_nothing),
		cmocka_unit_test(a_stream_over_tls_carries_bytes_and_half_closes),
		cmocka_unit_test(both_ways_of_a_stream_over_tls_go_on_by_themselves),
	};

	return run_table(tests);
}
