/* SPDX-License-Identifier: MIT */
/* The handle and its idle connections. A connection belongs to one call at a time; the pool's lock
 * is held for a list operation only. */
#include "client/lib/exchange.h"

#include "common/curl/curl.h"
#include "common/sys/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void handle_free(struct sbx *s)
{
	for (struct conn *c; (c = s->idle);) {
		s->idle = c->next;
		sbx_conn_free(c);
	}
	if (s->token)
		explicit_bzero(s->token, strlen(s->token));
	free(s->token);
	free(s->endpoint);
	free(s->base);
	free(s->socket_path);
	free(s->ca_file);
	free(s->token_file);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int sbx_open(const struct sbx_options *opt, struct sbx **ret, struct sbx_error *e)
{
	static const struct sbx_options none;
	struct sbx *s = calloc(1, sizeof(*s));

	if (!s)
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	pthread_mutex_init(&s->lock, NULL);
	if (sbx_resolve(opt ? opt : &none, s, e) < 0) {
		handle_free(s);
		return -1;
	}
	*ret = s;
	return 0;
}

void sbx_close(struct sbx *s)
{
	if (s)
		handle_free(s);
}

const char *sbx_endpoint(const struct sbx *s)
{
	return s->endpoint;
}

int sbx_reload_token(struct sbx *s, struct sbx_error *e)
{
	char *fresh, *old;

	if (sbx_read_token(s->token_file, &fresh, e) < 0)
		return -1;
	pthread_mutex_lock(&s->lock);
	old = s->token;
	s->token = fresh;
	pthread_mutex_unlock(&s->lock);
	if (old)
		explicit_bzero(old, strlen(old));
	free(old);
	return 0;
}

void sbx_easy_setup(const struct sbx *s, CURL *easy)
{
	/* With NOSIGNAL the library leaves SIGPIPE alone; curl.c guards the TLS case. */
	K->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	K->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	K->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	K->easy_setopt(easy, CURLOPT_PROXY, ""); /* a proxy would see the token */
	K->easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	K->easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	K->easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L * 1024);
	K->easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 2L * 1024 * 1024);
	K->easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	K->easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	K->easy_setopt(easy, CURLOPT_MAXAGE_CONN, 60L);
	K->easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	K->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)s->connect_timeout_ms);
	if (s->ca_file)
		K->easy_setopt(easy, CURLOPT_CAINFO, s->ca_file);
}

static struct conn *conn_new(void)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (c)
		c->fd = -1;
	return c;
}

void sbx_conn_free(struct conn *c)
{
	if (!c)
		return;
	if (c->easy)
		K->easy_cleanup(c->easy);
	if (c->multi)
		K->multi_cleanup(c->multi);
	if (c->fd >= 0)
		close(c->fd);
	free(c->in);
	free(c);
}

/* The newest idle one, so that the others can grow old; those too old are given to *ret_old. */
static struct conn *take_newest(struct sbx *s, struct conn **ret_old)
{
	int64_t oldest = sbx_now_ms() - SBX_IDLE_SECS * 1000;
	struct conn *c, **p = &s->idle;

	while (*p && (*p)->idle_since_ms > oldest)
		p = &(*p)->next;
	*ret_old = *p;
	*p = NULL;
	for (struct conn *o = *ret_old; o; o = o->next)
		s->n_idle--;
	c = s->idle;
	if (c) {
		s->idle = c->next;
		s->n_idle--;
	}
	return c;
}

struct conn *sbx_conn_take(struct sbx *s)
{
	struct conn *c, *old, *next;

	pthread_mutex_lock(&s->lock);
	c = take_newest(s, &old);
	pthread_mutex_unlock(&s->lock);
	for (; old; old = next) {
		next = old->next;
		sbx_conn_free(old);
	}
	return c ? c : conn_new();
}

void sbx_conn_give(struct sbx *s, struct conn *c, bool keep)
{
	c->idle_since_ms = sbx_now_ms();
	if (keep) {
		pthread_mutex_lock(&s->lock);
		keep = s->n_idle < SBX_POOL_IDLE;
		if (keep) {
			c->next = s->idle;
			s->idle = c;
			s->n_idle++;
		}
		pthread_mutex_unlock(&s->lock);
	}
	if (!keep)
		sbx_conn_free(c);
}
