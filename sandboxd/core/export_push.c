/* SPDX-License-Identifier: MIT */
/* What a push is made of: where it may connect, what it carries, what its end means. Its words
 * about a collector are our own; nothing that a collector says is repeated but its status. */
#include "sandboxd/core/export_internal.h"

#include "common/base/addr.h"
#include "common/json/json.h"
#include "common/sys/mem.h"
#include "sandboxd/core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PUSH_MS      10000
#define BODY_MOST    4096 /* of the answer */
#define HEAD_MOST    16384
#define CA_CACHE_SEC 3600

/* --- one push -------------------------------------------------------------------------------- */

bool export_may_connect(bool allow_private, bool plain, const struct sockaddr *sa)
{
	if (plain)
		return allow_private && addr_kind_of(sa) == ADDR_LOOPBACK;
	return allow_private || addr_dialable(sa);
}

/* The library asks for each address that it is about to connect to: no second look-up can come
 * between. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct push *p = arg;

	(void)purpose;
	if (export_may_connect(p->s->core->export_private, p->plain, &a->addr))
		return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
	p->refused = true;
	return CURL_SOCKET_BAD;
}

static size_t on_head(char *data, size_t size, size_t n, void *arg)
{
	struct push *p = arg;

	(void)data;
	p->got_head += size * n;
	return p->got_head > HEAD_MOST ? 0 : size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct push *p = arg;

	(void)data;
	p->got_body += size * n;
	return p->got_body > BODY_MOST ? 0 : size * n; /* cuts the transfer */
}

static void headers_free(struct curl_slist *list)
{
	for (struct curl_slist *i = list; i; i = i->next)
		explicit_bzero(i->data, strlen(i->data));
	if (list)
		K->slist_free_all(list);
}

void push_free(struct push *p)
{
	if (p->easy)
		K->easy_cleanup(p->easy);
	headers_free(p->headers);
	sandbox_unref(p->s);
	free(p->url);
	free(p->body);
	free(p);
}

static bool add_header(struct push *p, const char *line)
{
	struct curl_slist *more = K->slist_append(p->headers, line);

	if (more)
		p->headers = more;
	return more != NULL;
}

/* A value of blanks only would mean "do not send" to the library; it has another form for that. */
static bool add_pair(struct push *p, const char *name, const char *value)
{
	bool blank = value[strspn(value, " \t")] == '\0', ok;
	char *line;

	if (asprintf(&line, blank ? "%s;" : "%s: %s", name, value) < 0)
		return false;
	ok = add_header(p, line);
	explicit_bzero(line, strlen(line));
	free(line);
	return ok;
}

static bool add_headers(struct push *p, const struct strmap *h)
{
	bool ok = add_header(p, "Content-Type: application/json") &&
		  add_header(p, "Content-Encoding: gzip") && add_header(p, "Expect:");

	for (size_t i = 0; ok && i < h->n; i++)
		ok = add_pair(p, h->keys[i], h->values[i]);
	return ok;
}

/* Where it may go; a library that does not know one of these is not used. */
static bool set_limits(struct push *p)
{
	CURL *h = p->easy;

	/* Nobody else's settings, and nowhere but where the endpoint says. */
	return K->easy_setopt(h, CURLOPT_PROTOCOLS_STR, p->plain ? "http" : "https") == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_PROXY, "") == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_OPENSOCKETDATA, p) == CURLE_OK &&
	       K->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)PUSH_MS) == CURLE_OK;
}

bool push_set_options(struct push *p)
{
	CURL *h = p->easy;

	K->easy_setopt(h, CURLOPT_URL, p->url);
	K->easy_setopt(h, CURLOPT_PRIVATE, p);
	K->easy_setopt(h, CURLOPT_POSTFIELDS, p->body);
	K->easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)p->len);
	K->easy_setopt(h, CURLOPT_HTTPHEADER, p->headers);
	K->easy_setopt(h, CURLOPT_USERAGENT, "sandboxd/" SANDBOXD_VERSION);
	K->easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	K->easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)PUSH_MS);
	K->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	K->easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* a resolver that hangs is left behind */
	/* Each push asks and connects anew: an address that was good an hour ago is not one now. */
	K->easy_setopt(h, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
	K->easy_setopt(h, CURLOPT_FRESH_CONNECT, 1L);
	K->easy_setopt(h, CURLOPT_FORBID_REUSE, 1L);
	K->easy_setopt(h, CURLOPT_SSL_SESSIONID_CACHE, 0L);
	K->easy_setopt(h, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	/* One bundle, read once an hour; with a folder beside it the library would not keep it. */
	K->easy_setopt(h, CURLOPT_CAPATH, NULL);
	K->easy_setopt(h, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_SEC);
	K->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_head);
	K->easy_setopt(h, CURLOPT_HEADERDATA, p);
	K->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	K->easy_setopt(h, CURLOPT_WRITEDATA, p);
	K->easy_setopt(h, CURLOPT_BUFFERSIZE, 2048L);
	K->easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
	return set_limits(p);
}

static void pack_body(struct push *p, const struct sample *m)
{
	_cleanup_json_ json_t *v = otlp_json(p->s, m);
	_cleanup_free_ char *text = v ? json_text(v) : NULL;

	if (text)
		p->body = otlp_gzip(text, strlen(text), &p->len);
}

/* Lock of the sandbox held; NULL: out of memory. */
struct push *push_new(struct sandbox *s, enum lane lane)
{
	struct export *set = s->metrics_export;
	struct push *p = calloc(1, sizeof(*p));
	struct sample m;

	if (!p)
		return NULL;
	sandbox_ref(s);
	p->s = s;
	p->serial = set->serial;
	p->lane = lane;
	p->plain = !strncasecmp(set->endpoint, "http:", 5);
	p->url = strdup(set->endpoint);
	p->easy = K->easy_init();
	if (metrics_newest(s, &m))
		pack_body(p, &m);
	if (p->url && p->easy && p->body && add_headers(p, &set->headers))
		return p;
	push_free(p);
	return NULL;
}

/* --- its end --------------------------------------------------------------------------------- */

static const struct {
	CURLcode code;
	const char *text;
} reasons[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, "the collector's name does not resolve" },
	{ CURLE_COULDNT_CONNECT, "the collector does not accept connections" },
	{ CURLE_OPERATION_TIMEDOUT, "the collector did not answer within 10 seconds" },
	{ CURLE_PEER_FAILED_VERIFICATION, "the collector's certificate is not valid for its name" },
	{ CURLE_SSL_CACERT_BADFILE, "the server has no certificates to check the collector with" },
	{ CURLE_SSL_CONNECT_ERROR, "the TLS handshake with the collector failed" },
	{ CURLE_GOT_NOTHING, "the collector closed the connection without an answer" },
	{ CURLE_RECV_ERROR, "the connection to the collector broke" },
	{ CURLE_SEND_ERROR, "the connection to the collector broke" },
};

static const char *reason_of(const struct push *p, CURLcode code)
{
	if (p->refused && code == CURLE_COULDNT_CONNECT)
		return "the collector's address is not a public one";
	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].code == code)
			return reasons[i].text;
	return "the collector's answer cannot be understood";
}

/* "" when it went well. Any 2xx is success, however long the answer is. */
void push_judge(const struct push *p, CURLcode code, char *text, size_t size)
{
	long status = 0;

	text[0] = '\0';
	K->easy_getinfo(p->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && p->got_body > BODY_MOST))
		snprintf(text, size, "%s", reason_of(p, code));
	else if (status >= 300 && status < 400)
		snprintf(text, size, "the collector answered %ld; redirects are not followed",
			status);
	else if (status < 200 || status >= 300)
		snprintf(text, size, "the collector answered %ld", status);
}
