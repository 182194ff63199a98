/* SPDX-License-Identifier: MIT */
/* Host and Origin come first, so that a web page learns nothing about the token; then the token;
 * then what the body claims to be. Nothing here has an effect. */
#include "sandboxd/api/guard.h"

#include "common/json/json.h"
#include "common/sys/mem.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define HOST_LEN 256

/* The name in a Host value, port and brackets removed; false when it has no such form. */
static bool host_name(const char *host, char out[HOST_LEN])
{
	const char *end, *port;
	size_t len;

	if (host[0] == '[') {
		host++;
		end = strchr(host, ']');
		if (!end)
			return false;
		port = end + 1;
	} else {
		end = strchr(host, ':');
		if (end && strchr(end + 1, ':')) /* an address without its brackets */
			end = NULL;
		if (!end)
			end = host + strlen(host);
		port = end;
	}
	len = (size_t)(end - host);
	if (len == 0 || len >= HOST_LEN)
		return false;
	if (*port && (*port != ':' || port[1 + strspn(port + 1, "0123456789")]))
		return false;
	memcpy(out, host, len);
	out[len] = '\0';
	return true;
}

static bool is_loopback(const char *name)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!strcasecmp(name, "localhost"))
		return true;
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, name, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool guard_host_ok(const char *host, const struct strlist *allowed)
{
	char name[HOST_LEN];

	if (!host || !host_name(host, name))
		return false;
	if (is_loopback(name))
		return true;
	for (size_t i = 0; i < allowed->n; i++)
		if (!strcasecmp(allowed->v[i], name))
			return true;
	return false;
}

static bool origin_configured(const char *origin, const struct strlist *origins)
{
	for (size_t i = 0; i < origins->n; i++)
		if (!strcmp(origins->v[i], origin))
			return true;
	return false;
}

static bool origin_is_host(const char *origin, const char *host)
{
	const char *at = strstr(origin, "://");

	return at && !strcasecmp(at + 3, host);
}

/* A browser says of each request who asks. Of what another site's page loads as an image or a
 * script this is all it says. */
static bool is_foreign_page(struct http_req *r)
{
	const char *site = http_header(r, "Sec-Fetch-Site");

	return site && strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0;
}

int guard_origin(struct http_req *r, const struct strlist *hosts, const struct strlist *origins,
	bool *ret_cors, struct err *e)
{
	const char *host = http_header(r, "Host");
	const char *origin = http_header(r, "Origin");

	*ret_cors = false;
	if (!guard_host_ok(host, hosts))
		return err_set(e, ERR_FORBIDDEN_ORIGIN,
			"the Host header names no host of this server; allow one with --allowed-host");
	if (!origin && !is_foreign_page(r))
		return 0;
	if (origin && http_header_count(r, "Origin") == 1) {
		*ret_cors = origin_configured(origin, origins);
		if (*ret_cors || origin_is_host(origin, host))
			return 0;
	}
	return err_set(e, ERR_FORBIDDEN_ORIGIN, "requests from this Origin are not allowed");
}

/* Takes as long for a wrong token as for the right one. */
static bool same_secret(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	volatile unsigned char diff = la != lb;

	for (size_t i = 0; i < la; i++)
		diff |= (unsigned char)(a[i] ^ b[lb ? i % lb : 0]);
	return !diff;
}

bool guard_bearer_ok(const char *authorization, const char *token)
{
	static const char scheme[] = "Bearer ";

	if (!authorization || strncmp(authorization, scheme, sizeof(scheme) - 1))
		return false;
	return same_secret(authorization + sizeof(scheme) - 1, token);
}

int guard_token(struct http_req *r, const char *token, struct err *e)
{
	if (!token)
		return 0;
	if (http_header_count(r, "Authorization") == 1 &&
		guard_bearer_ok(http_header(r, "Authorization"), token))
		return 0;
	return err_set(
		e, ERR_UNAUTHORIZED, "the request needs the header Authorization: Bearer TOKEN");
}

static bool media_is(const char *type, const char *want)
{
	size_t len = strcspn(type, "; \t");

	return len == strlen(want) && !strncasecmp(type, want, len);
}

int guard_body(struct http_req *r, const struct route *route, struct err *e)
{
	bool raw = route->body == BODY_RAW;
	const char *want = raw ? "application/octet-stream" : "application/json";
	int64_t max = raw ? RAW_BODY_MAX : JSON_BODY_MAX;
	const char *type = http_header(r, "Content-Type");
	const char *coding = http_header(r, "Content-Encoding");

	if (http_content_length(r) == 0)
		return 0;
	if (!type || !media_is(type, want)) {
		err_set(e, ERR_INVALID_REQUEST, "the body's Content-Type must be %s", want);
		e->http = 415;
		return -1;
	}
	if (coding && strcasecmp(coding, "identity") != 0) {
		err_set(e, ERR_INVALID_REQUEST, "Content-Encoding: a body is taken as it is");
		e->http = 415;
		return -1;
	}
	if (http_content_length(r) > max) {
		err_set(e, ERR_INVALID_REQUEST, "the body is larger than %lld bytes",
			(long long)max);
		if (raw)
			e->http = 413;
		return -1;
	}
	return 0;
}

/* Left unread they would be broken: what must not be carried out unless something holds is not carried out. */
int guard_conditions(struct http_req *r, const struct route *route, struct err *e)
{
	static const char *const names[] = { "If-Match", "If-None-Match", "If-Unmodified-Since" };

	for (size_t i = 0; route->method != M_GET && i < ARRAY_LEN(names); i++)
		if (http_header(r, names[i]))
			return err_set(e, ERR_UNSUPPORTED,
				"%s: this server changes nothing on a condition", names[i]);
	return 0;
}
