/* SPDX-License-Identifier: MIT */
/* The server: life cycle, connections and their deadlines, and the way of one request from the
 * library's single callback to the application's four. */
#include "common/base/log.h"
#include "common/http/internal.h"
#include "common/sys/deadline.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int64_t http_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Who was evicted stays so: it is another thread that decided, and that may have answered. */
static bool take_turn(struct conn *c, enum turn turn)
{
	int was = c->turn;

	while (was != TURN_EVICTED)
		if (atomic_compare_exchange_weak(&c->turn, &was, turn))
			return true;
	return false;
}

bool conn_busy(struct conn *c)
{
	c->deadline_ms = 0;
	return take_turn(c, TURN_OURS);
}

void conn_waits(struct conn *c, unsigned ms, enum turn turn)
{
	c->deadline_ms = http_now_ms() + ms;
	(void)take_turn(c, turn);
}

void http_trust(struct http_req *r)
{
	r->conn->trusted = true;
}

void http_cut_at_stop(struct http_req *r)
{
	r->conn->endless = true;
}

/* --- the sweeper --- */

static void sweep(struct http_server *s)
{
	int64_t now = http_now_ms();

	for (struct conn *c = s->conns; c; c = c->next) {
		int64_t at = c->deadline_ms;

		if ((at && at <= now) ||
			(s->stopping && (c->turn == TURN_HEADER || c->endless))) {
			(void)conn_busy(c);
			shutdown(c->fd, SHUT_RDWR);
		}
	}
}

static void wait_ms(struct http_server *s, int64_t ms)
{
	(void)cond_wait_ms(&s->changed, &s->lock, ms);
}

/* It sleeps for good only after a while without connections, so that one now and then does not have
 * to wake it. */
#define QUIET_TICKS 40
static void *sweeper_main(void *arg)
{
	struct http_server *s = arg;
	int64_t tick = s->conf.header_timeout_ms / 8;
	unsigned quiet = 0;

	if (tick > 250)
		tick = 250;
	if (tick < 10)
		tick = 10;
	pthread_mutex_lock(&s->lock);
	while (!s->quit) {
		sweep(s);
		quiet = s->conns ? 0 : quiet + 1;
		if (quiet < QUIET_TICKS) {
			wait_ms(s, tick);
			continue;
		}
		s->sweeper_sleeps = true;
		pthread_cond_wait(&s->changed, &s->lock);
		s->sweeper_sleeps = false;
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* --- connections --- */

static struct conn *conn_new(struct http_server *s, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *fd =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct conn *c = calloc(1, sizeof(*c));
	/* A unix socket has none of these, and needs none. A peer that has vanished is found within
	 * two minutes. */
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 60 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 15 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};

	if (!c || !fd) {
		free(c);
		return NULL;
	}
	c->server = s;
	c->fd = fd->connect_fd;
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		(void)setsockopt(c->fd, options[i].level, options[i].name, &options[i].value,
			sizeof(options[i].value));
	conn_waits(c, s->conf.header_timeout_ms, TURN_HEADER);
	return c;
}

/* The library asks for a client's certificate but lets any through; here it must be there and be
 * signed by the CA, or the handshake fails. */
static void conn_tls(struct conn *c, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);

	if (!info || !info->tls_session)
		return;
	c->tls = info->tls_session;
	if (c->server->conf.client_ca_pem) {
		gnutls_certificate_server_set_request(c->tls, GNUTLS_CERT_REQUIRE);
		gnutls_session_set_verify_cert(c->tls, NULL, 0);
	}
}

#define SPARED_MAX 16
#define SPARED_MS  1000
#define YOUNG_MS   1000
#define PAUSE_US   1000
static unsigned rank(const struct conn *c, int turn)
{
	return (turn == TURN_ANSWER ? 2 : 0) + (c->served ? 1 : 0);
}

/* The one that is missed least, or NULL: of one rank whose time is up first. */
static struct conn *least_needed(struct http_server *s, int *ret_turn)
{
	struct conn *best = NULL;

	for (struct conn *c = s->conns; c; c = c->next) {
		int turn = c->turn;

		if (c->trusted || (turn != TURN_HEADER && turn != TURN_ANSWER))
			continue;
		if (!best || rank(c, turn) < rank(best, *ret_turn) ||
			(rank(c, turn) == rank(best, *ret_turn) &&
				c->deadline_ms <= best->deadline_ms)) {
			best = c;
			*ret_turn = turn;
		}
	}
	return best;
}

/* It has said something; only its thread had no time yet. */
static bool has_unread(const struct conn *c)
{
	int n = 0;

	return ioctl(c->fd, FIONREAD, &n) == 0 && n > 0;
}

/* Unless it has got going just now: then it has none, or another. */
static void spare(struct conn *c)
{
	int64_t at = c->deadline_ms;

	if (at)
		(void)atomic_compare_exchange_strong(&c->deadline_ms, &at, at + SPARED_MS);
}

/* Lock held. Makes a place; false when every connection works. *ret_young: of one that came just now. */
static bool evict_one(struct http_server *s, bool *ret_young)
{
	struct conn *c;
	int turn, spared = 0;

	while ((c = least_needed(s, &turn))) {
		if (turn == TURN_HEADER && spared++ < SPARED_MAX && has_unread(c)) {
			spare(c);
			continue;
		}
		if (!atomic_compare_exchange_strong(&c->turn, &turn, TURN_EVICTED))
			continue; /* it has got going just now */
		s->evicted++;
		*ret_young = c->deadline_ms - s->conf.header_timeout_ms > http_now_ms() - YOUNG_MS;
		if (turn == TURN_HEADER && !c->served)
			conn_turn_away(c);
		shutdown(c->fd, SHUT_RDWR);
		return true;
	}
	return false;
}

static void conn_started(struct http_server *s, struct MHD_Connection *mhd, void **ctx)
{
	struct conn *c = conn_new(s, mhd);
	bool young = false;

	*ctx = c;
	if (!c)
		return;
	conn_tls(c, mhd);
	pthread_mutex_lock(&s->lock);
	c->over_limit = ++s->nconns - s->evicted > s->conf.max_connections &&
			!evict_one(s, &young);
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	if (s->sweeper_sleeps)
		pthread_cond_broadcast(&s->changed);
	s->conns = c;
	pthread_mutex_unlock(&s->lock);
	if (young) /* so many come that none would have time to ask for something */
		usleep(PAUSE_US);
}

static void conn_closed(struct http_server *s, struct conn *c)
{
	pthread_mutex_lock(&s->lock);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	s->nconns--;
	s->evicted -= c->turn == TURN_EVICTED;
	pthread_mutex_unlock(&s->lock);
	free(c);
}

static void on_connection(
	void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_ConnectionNotificationCode what)
{
	if (what == MHD_CONNECTION_NOTIFY_STARTED)
		conn_started(cls, mhd, ctx);
	else if (*ctx)
		conn_closed(cls, steal(*ctx));
}

void conn_linger(struct conn *c)
{
	int64_t until = http_now_ms() + HTTP_LINGER_MS;
	size_t total = 0;
	char buf[16384];

	conn_waits(c, HTTP_LINGER_MS + 1000, TURN_ANSWER);
	shutdown(c->fd, SHUT_WR);
	while (total < HTTP_LINGER_BYTES && !c->server->stopping) {
		struct pollfd p = { .fd = c->fd, .events = POLLIN };
		int64_t left = until - http_now_ms();
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			return;
		n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n <= 0)
			return;
		total += (size_t)n;
	}
}

/* --- one request --- */

static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *s)
{
	(void)cls;
	(void)mhd;
	return strlen(s);
}

/* The request line has arrived. Its header has the rest of the connection's first deadline, or, on
 * a kept-alive connection, a deadline of its own. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_server *s = cls;
	struct conn *c = info ? info->socket_context : NULL;
	struct http_req *r = c ? req_new(s, c, mhd, uri) : NULL;
	int64_t at;

	if (!r)
		return NULL;
	c->thread = pthread_self();
	c->has_thread = true;
	at = http_now_ms() + s->conf.header_timeout_ms;
	if (c->deadline_ms > at)
		c->deadline_ms = at;
	pthread_mutex_lock(&s->lock);
	s->open++;
	pthread_mutex_unlock(&s->lock);
	return r;
}

static void begin(struct http_req *r)
{
	r->begun = true;
	r->server->app.begin(r->server->app.arg, r);
}

/* The library closes a connection whose answer it gets before the end of a request, even of one
 * without a body: those begin at their end, so that a refusal does not cost the connection. */
static void header_seen(struct http_req *r, const char *url, const char *version)
{
	const char *fault = req_lines_fault(r, url, version);

	if (!fault)
		fault = req_framing_fault(r);
	if (r->content_length < 0)
		r->close_after = true; /* it is not we who find the end of its chunks */

	if (fault)
		req_refuse(r, 400, "invalid_request", fault);
	else if (r->conn->over_limit)
		req_refuse(r, 503, "unavailable", "too many connections");
	else if (req_has_body(r))
		begin(r);
}

static void request_complete(struct http_req *r)
{
	r->phase = PH_END;
	if (!r->begun)
		begin(r);
	if (!r->answered)
		r->server->app.end(r->server->app.arg, r);
}

static void body_piece(struct http_req *r, const char *buf, size_t len)
{
	const struct http_app *app = &r->server->app;

	r->body_seen += len;
	if (r->body_seen > r->body_max)
		req_refuse(r, 413, "invalid_request", "the body is too large");
	else
		app->data(app->arg, r, buf, len);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
	const char *method, const char *version, const char *data, size_t *len, void **ctx)
{
	struct http_server *s = cls;
	struct http_req *r = *ctx;

	(void)mhd;
	if (!r || r->answered || !conn_busy(r->conn))
		return MHD_NO;
	if (r->phase == PH_HEADER) {
		r->method = method;
		r->http10 = !strcmp(version, "HTTP/1.0");
		header_seen(r, url, version);
		if (r->answered)
			return r->queued ? MHD_YES : MHD_NO;
		r->phase = PH_BODY;
	} else if (*len > 0) {
		body_piece(r, data, *len);
		*len = 0;
		if (r->answered)
			return MHD_NO;
	} else {
		request_complete(r);
		return r->queued ? MHD_YES : MHD_NO;
	}
	if (req_has_body(r)) /* a stranger's, for what needs no token, may go on for ever */
		conn_waits(r->conn, s->conf.body_timeout_ms,
			r->conn->trusted ? TURN_OURS : TURN_HEADER);
	return MHD_YES;
}

static void on_completed(
	void *cls, struct MHD_Connection *mhd, void **ctx, enum MHD_RequestTerminationCode why)
{
	struct http_server *s = cls;
	struct http_req *r = steal(*ctx);

	(void)mhd;
	if (!r)
		return;
	upgrade_drop(steal(r->upgrade));
	if (!r->streams)
		req_gone(r, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
	if (r->linger)
		conn_linger(r->conn);
	r->conn->served = true;
	r->conn->endless = false;
	if (!r->conn->upgraded)
		conn_waits(r->conn, s->conf.idle_timeout_ms, TURN_HEADER);
	req_unref(r);
	pthread_mutex_lock(&s->lock);
	s->open--;
	if (s->stopping)
		pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* --- life --- */

static struct conn *own_conn(struct http_server *s)
{
	struct conn *c;

	pthread_mutex_lock(&s->lock);
	for (c = s->conns; c; c = c->next)
		if (c->has_thread && pthread_equal(c->thread, pthread_self()))
			break;
	pthread_mutex_unlock(&s->lock);
	return c;
}

/* The thread that lets in tells of this each time it fails, and would ask again at once. Who was let in as a
 * stranger makes room here, too: there may be fewer descriptors than connections that are allowed. */
#define FULL_US      10000
#define FULL_TELL_MS 60000
static void out_of_descriptors(struct http_server *s)
{
	int64_t now = http_now_ms();
	bool young;

	if (!s->full_told_ms || now - s->full_told_ms >= FULL_TELL_MS) {
		log_warn("no descriptor or memory is left for those who connect; see LimitNOFILE");
		s->full_told_ms = now;
	}
	pthread_mutex_lock(&s->lock);
	(void)evict_one(s, &young);
	pthread_mutex_unlock(&s->lock);
	usleep(FULL_US);
}

/* What the library refuses by itself it only tells the log, in the connection's thread and before
 * it answers. Version 0.9.75 then sends a header twice for a bad Content-Length, and resets what
 * the client still sends; so the answer is given here, and the library finds the stream closed. */
static void library_refuses(struct http_server *s, unsigned status)
{
	struct conn *c = own_conn(s);

	if (!c || status < 400 || status > 499 || !conn_busy(c))
		return;
	conn_refuse(c, status);
	conn_linger(c);
}

static void on_log(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
static void on_log(void *cls, const char *fmt, va_list ap)
{
	static const char refusal[] = "Error processing request (HTTP response code is %u";
	static const char full[] = "Hit process or system resource limit";
	char text[256], safe[512];
	va_list ap2;

	if (!fmt)
		return;
	va_copy(ap2, ap);
	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", log_quote(text, safe, sizeof(safe)));
	if (!strncmp(fmt, full, sizeof(full) - 1))
		out_of_descriptors(cls);
	if (!strncmp(fmt, refusal, sizeof(refusal) - 1))
		library_refuses(cls, va_arg(ap2, unsigned));
	va_end(ap2);
}

static int start_mhd(struct http_server *s, struct err *e)
{
	const struct http_conf *c = &s->conf;
	unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
			 MHD_USE_POLL | MHD_USE_ITC | MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG;
	struct MHD_OptionItem more[8];
	size_t n = 0;

	if (c->tls_cert_pem) {
		flags |= MHD_USE_TLS;
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0,
			(void *)(uintptr_t)c->tls_cert_pem };
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0,
			(void *)(uintptr_t)c->tls_key_pem };
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0,
			(void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2" };
		if (c->client_ca_pem)
			more[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_TRUST, 0,
				(void *)(uintptr_t)c->client_ca_pem };
	}
	if (!req_lines_known())
		more[n++] = (struct MHD_OptionItem){ MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL };
	more[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
	/* An option and its values a line. */
	/* clang-format off */
	s->mhd = MHD_start_daemon(flags, 0, NULL, NULL, on_request, s,
		MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
		MHD_OPTION_LISTEN_SOCKET, c->listen_fd,
		MHD_OPTION_CONNECTION_LIMIT, c->max_connections + HTTP_SPARE_CONNECTIONS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_POOL_BYTES,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)HTTP_STACK_BYTES,
		MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
		MHD_OPTION_URI_LOG_CALLBACK, on_uri, s,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
		MHD_OPTION_ARRAY, more, MHD_OPTION_END);
	/* clang-format on */
	if (!s->mhd)
		return err_set(e, ERR_INTERNAL, "cannot start the HTTP server%s",
			c->tls_cert_pem ? "; are certificate and key a valid pair?" : "");
	return 0;
}

static void server_free(struct http_server *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct http_server *server_new(const struct http_conf *conf, const struct http_app *app)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->conf = *conf;
	s->app = *app;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	return s;
}

static void stop_sweeper(struct http_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->quit = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->sweeper, NULL);
}

int http_server_start(const struct http_conf *conf, const struct http_app *app,
	struct http_server **ret, struct err *e)
{
	struct http_server *s = server_new(conf, app);

	if (!s)
		return err_sys(e, ENOMEM, "http server");
	if (pthread_create(&s->sweeper, NULL, sweeper_main, s) != 0) {
		server_free(s);
		return err_sys(e, EAGAIN, "http server thread");
	}
	if (start_mhd(s, e) < 0) {
		stop_sweeper(s);
		server_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

static void cut_all(struct http_server *s)
{
	for (struct conn *c = s->conns; c; c = c->next)
		shutdown(c->fd, SHUT_RDWR);
}

void http_server_stop(struct http_server *s, unsigned grace_ms)
{
	int64_t until = http_now_ms() + grace_ms;
	int fd;

	if (!s)
		return;
	fd = MHD_quiesce_daemon(s->mhd);
	if (fd >= 0)
		shutdown(fd, SHUT_RDWR); /* who connects from now on is refused at once */
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	sweep(s);
	while ((s->open || s->upgrades) && http_now_ms() < until)
		wait_ms(s, until - http_now_ms() + 1);
	cut_all(s);
	/* The library wants every upgraded stream to have been given back before it stops. */
	while (s->upgrades) {
		wait_ms(s, 200);
		cut_all(s);
	}
	pthread_mutex_unlock(&s->lock);
	MHD_stop_daemon(s->mhd);
	if (fd >= 0)
		close(fd);
	stop_sweeper(s);
	server_free(s);
}
