/* SPDX-License-Identifier: MIT */
#include "sandboxd/pull/parts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static void add(struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct tool *t, const char *fmt, ...)
{
	size_t n = 0;
	va_list ap;

	while (t->argv[n])
		n++;
	va_start(ap, fmt);
	vsnprintf(t->args[n], sizeof(t->args[n]), fmt, ap);
	va_end(ap);
	t->argv[n] = t->args[n];
}

static void put_env(struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_env(struct tool *t, const char *fmt, ...)
{
	size_t n = 0;
	va_list ap;

	while (t->env[n])
		n++;
	va_start(ap, fmt);
	vsnprintf(t->env_text[n], sizeof(t->env_text[n]), fmt, ap);
	va_end(ap);
	t->env[n] = t->env_text[n];
}

static const char *arch(void)
{
	static const char *const words[][2] = { { "x86_64", "amd64" }, { "aarch64", "arm64" },
		{ "armv7l", "arm" }, { "i686", "386" } };
	struct utsname u;

	if (uname(&u) == 0)
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (strcmp(u.machine, words[i][0]) == 0)
				return words[i][1];
	return "amd64";
}

static void source(const struct tool_run *r, char *buf, size_t size)
{
	static const char *const archives[] = {
		[PULL_OCI_TAR] = "oci-archive", [PULL_DOCKER_TAR] = "docker-archive"
	};

	if (r->source == PULL_REGISTRY)
		snprintf(buf, size, "docker://%s", r->ref);
	else
		snprintf(buf, size, "%s:%s/%u/source.tar", archives[r->source], PULL_ROOT, r->tag);
}

/* Nothing of the host's own configuration, logins or environment reaches the tool. */
static void environment(int proxy_port, const struct tool_run *r, struct tool *t)
{
	put_env(t, "PATH=/usr/bin:/bin");
	put_env(t, "HOME=%s/%u", PULL_ROOT, r->tag);
	put_env(t, "TMPDIR=%s/%u", PULL_ROOT, r->tag);
	put_env(t, "XDG_RUNTIME_DIR=%s/%u", PULL_ROOT, r->tag);
	put_env(t, "REGISTRY_AUTH_FILE=%s/%u/auth.json", PULL_ROOT, r->tag);
	put_env(t, "CONTAINERS_REGISTRIES_CONF=%s/registries.conf", PULL_CONF);
	put_env(t, "HTTPS_PROXY=http://127.0.0.1:%d", proxy_port);
	put_env(t, "HTTP_PROXY=http://127.0.0.1:%d", proxy_port);
}

void tool_command(int proxy_port, const struct tool_run *r, struct tool *ret)
{
	const char *tls = r->verify_tls ? "true" : "false";
	char from[PULL_REF_MAX + 64];

	memset(ret, 0, sizeof(*ret));
	source(r, from, sizeof(from));
	add(ret, "skopeo");
	add(ret, "--policy=%s/policy.json", PULL_CONF);
	add(ret, "--registries.d=%s/registries.d", PULL_CONF);
	add(ret, "--tmpdir=%s/%u", PULL_ROOT, r->tag);
	add(ret, "--override-os=linux");
	add(ret, "--override-arch=%s", arch());
	if (r->op == PULL_MANIFEST) {
		add(ret, "inspect");
		add(ret, "--raw");
		add(ret, "--authfile=%s/%u/auth.json", PULL_ROOT, r->tag);
		add(ret, "--cert-dir=%s/certs", PULL_CONF);
		add(ret, "--tls-verify=%s", tls);
		add(ret, "%s", from);
	} else {
		add(ret, "copy");
		add(ret, "--quiet");
		add(ret, "--preserve-digests");
		add(ret, "--remove-signatures");
		add(ret, "--src-authfile=%s/%u/auth.json", PULL_ROOT, r->tag);
		add(ret, "--src-cert-dir=%s/certs", PULL_CONF);
		add(ret, "--src-tls-verify=%s", tls);
		add(ret, "%s", from);
		add(ret, "dir:%s/%u/image", PULL_ROOT, r->tag);
	}
	environment(proxy_port, r, ret);
}

/* --- last words ------------------------------------------------------------------------------ */

/* The message of the last line that says "fatal", else the last line. */
static const char *last_message(const char *all)
{
	const char *fatal = NULL, *line = all, *msg;

	for (const char *p = all; (p = strstr(p, "level=fatal")); p++)
		fatal = p;
	for (const char *p = all; *p; p++)
		if (p[0] == '\n' && p[1])
			line = p + 1;
	if (!fatal)
		return line;
	msg = strstr(fatal, "msg=\"");
	return msg ? msg + 5 : fatal;
}

/* "initializing source docker://host/name:tag: reading manifest…": what was asked is known. */
static const char *skip_subject(const char *msg)
{
	const char *at = strstr(msg, "://"), *end;

	if (!at || at - msg > 60)
		return msg;
	end = strstr(at, ": ");
	return end && !memchr(at, '\n', (size_t)(end - at)) ? end + 2 : msg;
}

/* Signed addresses carry their secret after the question mark. */
static void clean(const char *msg, char text[PULL_TEXT_MAX])
{
	size_t n = 0;
	bool query = false;

	for (; *msg && *msg != '\n' && n + 1 < PULL_TEXT_MAX; msg++) {
		if (msg[0] == '\\' && msg[1] == '"')
			continue;
		if (msg[0] == '"' && (msg[1] == '\n' || msg[1] == '\0'))
			break;
		if (*msg == '?')
			query = true;
		else if (query && (isspace((unsigned char)*msg) || *msg == '"'))
			query = false;
		if (!query && isprint((unsigned char)*msg))
			text[n++] = *msg;
	}
	text[n] = '\0';
}

static const struct {
	const char *word;
	enum pull_result result;
} verdicts[] = {
	{ "sbx-address-refused", PULL_REFUSED },
	{ "sbx-name-unknown", PULL_UNREACHABLE },
	{ "sbx-unreachable", PULL_UNREACHABLE },
	{ "sbx-stalled", PULL_STALLED },
	{ "no space left on device", PULL_FULL },
	{ "invalid username/password", PULL_DENIED },
	{ "unauthorized", PULL_DENIED },
	{ "authentication required", PULL_DENIED },
	{ "access to the resource is denied", PULL_DENIED },
	{ "manifest unknown", PULL_NOT_FOUND },
	{ "name unknown", PULL_NOT_FOUND },
	{ "repository name not known", PULL_NOT_FOUND },
	{ "no image found", PULL_NOT_FOUND },
	{ "404", PULL_NOT_FOUND },
	{ "connection refused", PULL_UNREACHABLE },
	{ "no route to host", PULL_UNREACHABLE },
	{ "network is unreachable", PULL_UNREACHABLE },
	{ "no such host", PULL_UNREACHABLE },
	{ "timeout", PULL_UNREACHABLE },
	{ "x509", PULL_UNREACHABLE },
	{ "tls:", PULL_UNREACHABLE },
	{ "server gave HTTP response", PULL_UNREACHABLE },
	{ "connection reset", PULL_UNREACHABLE },
	{ "server closed idle connection", PULL_UNREACHABLE },
	{ ": EOF", PULL_UNREACHABLE },
	{ "igest", PULL_DAMAGED },
	{ "unexpected EOF", PULL_DAMAGED },
	{ "unexpected end of JSON", PULL_DAMAGED },
	{ "archive/tar", PULL_DAMAGED },
};

enum pull_result tool_verdict(const char *stderr_text, bool had_login, char text[PULL_TEXT_MAX])
{
	const char *msg = skip_subject(last_message(stderr_text));
	enum pull_result result = PULL_FAILED;

	clean(msg, text);
	for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++)
		if (strstr(msg, verdicts[i].word)) {
			result = verdicts[i].result;
			break;
		}
	/* Most registries do not say whether something exists to who may not see it. */
	if (result == PULL_DENIED && !had_login)
		return PULL_NOT_FOUND;
	if (result == PULL_REFUSED)
		text[0] = '\0';
	return result;
}

/* --- loopback -------------------------------------------------------------------------------- */

bool tool_loopback(const char *ref, struct sockaddr_in *ret)
{
	size_t n = strcspn(ref, "/"), host;
	char text[256];
	char *colon;

	if (n >= sizeof(text))
		return false;
	memcpy(text, ref, n);
	text[n] = '\0';
	*ret = (struct sockaddr_in){ .sin_family = AF_INET };
	colon = strrchr(text, ':');
	if (colon) {
		ret->sin_port = htons((uint16_t)atoi(colon + 1));
		*colon = '\0';
	}
	host = strlen(text);
	if (strcasecmp(text, "localhost") == 0 ||
		(host > 10 && strcasecmp(text + host - 10, ".localhost") == 0)) {
		ret->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return true;
	}
	return inet_pton(AF_INET, text, &ret->sin_addr) == 1 &&
	       ntohl(ret->sin_addr.s_addr) >> 24 == 127;
}
