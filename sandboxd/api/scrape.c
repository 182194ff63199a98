/* SPDX-License-Identifier: MIT */
#include "sandboxd/api/scrape.h"

#include "common/sys/mem.h"
#include "sandboxd/api/guard.h"
#include "sandboxd/core/prometheus.h"

#include <string.h>

static void say(struct http_req *r, int status, const char *text)
{
	http_reply(r, status, "text/plain; charset=utf-8", text, strlen(text));
}

/* Before any body: nothing here takes one. */
static void on_begin(void *arg, struct http_req *r)
{
	static const struct strlist none = { NULL, 0 };
	_cleanup_free_ char *text = NULL;

	if (!guard_host_ok(http_header(r, "Host"), &none)) {
		say(r, 403, "the Host header must name this machine's loopback\n");
		return;
	}
	if (strcmp(http_path(r), "/metrics") != 0 ||
		(strcmp(http_method(r), "GET") != 0 && strcmp(http_method(r), "HEAD") != 0)) {
		say(r, 404, "only GET /metrics is answered here\n");
		return;
	}
	text = prometheus_text(arg);
	if (text)
		http_reply(r, 200, PROMETHEUS_TYPE, text, strlen(text));
	else
		say(r, 503, "out of memory\n");
}

static void on_data(void *arg, struct http_req *r, const void *buf, size_t len)
{
	(void)arg;
	(void)r;
	(void)buf;
	(void)len;
}

static void on_end(void *arg, struct http_req *r)
{
	(void)arg;
	(void)r;
}

static void on_gone(void *arg, struct http_req *r, bool complete)
{
	(void)arg;
	(void)r;
	(void)complete;
}

struct http_app scrape_app(struct core *core)
{
	return (struct http_app){ core, on_begin, on_data, on_end, on_gone };
}
