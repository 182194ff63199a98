/* SPDX-License-Identifier: MIT */
/* Where the server is and what it is told: options, then the environment, then the server's own
 * default. A token goes over TLS, a unix socket or the loopback interface, never further. */
#include "client/lib/internal.h"


#include "common/curl/curl.h"
#include "common/sys/mem.h"
#include "common/sys/runtime.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static char *home_socket(void)
{
	const char *home = env("HOME");
	struct passwd pw, *found = NULL;
	char buf[4096], *path;

	if (!home && getpwuid_r(getuid(), &pw, buf, sizeof(buf), &found) == 0 && found)
		home = found->pw_dir;
	return asprintf(&path, "%s/.config/sandbox/sandboxd.sock", home ? home : "") < 0 ? NULL
											 : path;
}

/* su and sudo may keep the environment of who calls them: what he has there is no server of ours. */
static bool is_others(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_uid != geteuid() && st.st_uid != 0;
}

/* The server's default. A server started from a session without a runtime directory listens below
 * the home directory, so that one is taken when only it is there. */
static char *default_endpoint(void)
{
	_cleanup_free_ char *home = home_socket();
	_cleanup_free_ char *run = NULL;
	const char *dir = env("XDG_RUNTIME_DIR"), *use;
	char *url;

	if (runtime_dir_ok(dir) && asprintf(&run, "%s/sandboxd.sock", dir) < 0)
		run = NULL;
	if (run && is_others(run))
		free_p(&run), run = NULL;
	use = run && (access(run, F_OK) == 0 || !home || access(home, F_OK) < 0) ? run : home;
	return !use || asprintf(&url, "unix://%s", use) < 0 ? NULL : url;
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;
	char bare[64];
	size_t n = strlen(host);

	if (!strcasecmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (n < 3 || n >= sizeof(bare) || host[0] != '[')
		return false;
	snprintf(bare, sizeof(bare), "%.*s", (int)(n - 2), host + 1);
	struct in6_addr v6;
	return inet_pton(AF_INET6, bare, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int resolve_unix(struct sbx *s, struct sbx_error *e)
{
	const char *path = s->endpoint + strlen("unix://");
	struct sockaddr_un sun;

	if (path[0] != '/')
		return sbx_fail(e, "invalid_request", EINVAL,
			"endpoint %s: a socket is named as unix:///absolute/path", s->endpoint);
	if (strlen(path) >= sizeof(sun.sun_path))
		return sbx_fail(e, "invalid_request", ENAMETOOLONG,
			"endpoint %s: a socket's path has at most %zu bytes", s->endpoint,
			sizeof(sun.sun_path) - 1);
	s->socket_path = strdup(path);
	s->base = strdup("http://localhost");
	return s->socket_path && s->base ? 0 : sbx_fail(e, "internal", ENOMEM, "out of memory");
}

static void url_p(CURLU **u)
{
	if (*u)
		K->url_cleanup(*u);
}
static void curl_free_p(char **p)
{
	if (*p)
		K->free(*p);
}

static int parse_url(struct sbx *s, struct sbx_error *e)
{
	_cleanup_(url_p) CURLU *u = K->url();
	_cleanup_(curl_free_p) char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL,
				    *path = NULL;

	if (!u || K->url_set(u, CURLUPART_URL, s->endpoint, 0) != CURLUE_OK ||
		K->url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
		K->url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
		K->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
		(strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
		return sbx_fail(e, "invalid_request", EINVAL,
			"endpoint %s: use unix:///path, "
			"https://host:port or http://127.0.0.1:port",
			s->endpoint);
	K->url_get(u, CURLUPART_USER, &user, 0);
	K->url_get(u, CURLUPART_PATH, &path, 0);
	if (user || (path && strcmp(path, "/") != 0))
		return sbx_fail(
			e, "invalid_request", EINVAL, "an endpoint has neither a user nor a path");
	s->tls = !strcmp(scheme, "https");
	if (!s->tls && !is_loopback(host))
		return sbx_fail(e, "invalid_request", EINVAL,
			"endpoint %s: another machine is reached over https only", s->endpoint);
	if (asprintf(&s->base, "%s://%s:%s", scheme, host, port) < 0) {
		s->base = NULL;
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	}
	return 0;
}

static int resolve_url(struct sbx *s, struct sbx_error *e)
{
	if (!K)
		return sbx_fail(e, "unsupported", EOPNOTSUPP,
			"endpoint %s needs libcurl, which is not installed here (package libcurl4)",
			s->endpoint);
	return parse_url(s, e);
}

static const char *pick(const char *option, const char *name)
{
	return option ? option : env(name);
}

int sbx_resolve(const struct sbx_options *opt, struct sbx *s, struct sbx_error *e)
{
	const char *endpoint = pick(opt->endpoint, "SBX_ENDPOINT");
	const char *ca = pick(opt->ca_file, "SBX_CA");
	/* A token in the environment is the nearer statement than a file named there. */
	const char *file = opt->token_file    ? opt->token_file
			   : env("SBX_TOKEN") ? NULL
					      : env("SBX_TOKEN_FILE");

	s->endpoint = endpoint ? strdup(endpoint) : default_endpoint();
	s->ca_file = ca ? strdup(ca) : NULL;
	s->token_file = file ? strdup(file) : NULL;
	s->connect_timeout_ms = opt->connect_timeout_ms ? opt->connect_timeout_ms : 5000;
	s->timeout_ms = opt->timeout_ms ? opt->timeout_ms : 30000;
	if (!s->endpoint || (ca && !s->ca_file) || (file && !s->token_file))
		return sbx_fail(e, "internal", ENOMEM, "out of memory");
	if (!endpoint && is_others(s->endpoint + strlen("unix://")))
		return sbx_fail(e, "unreachable", EACCES,
			"%s belongs to another user; name it as the endpoint if you trust him", s->endpoint);
	if ((!strncmp(s->endpoint, "unix:", 5) ? resolve_unix : resolve_url)(s, e) < 0)
		return -1;
	return sbx_read_token(s->token_file, &s->token, e);
}

static int check_token(const char *token, const char *from, struct sbx_error *e)
{
	for (const char *p = token; *p; p++)
		if (*p <= 0x20 || *p >= 0x7f)
			return sbx_fail(e, "invalid_request", EINVAL,
				"the token in %s holds a byte that cannot be in a header", from);
	return 0;
}

static int read_file(const char *path, char *buf, size_t size, struct sbx_error *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return sbx_fail(e, "invalid_request", errno, "token file %s: %s", path,
			strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode))
		return sbx_fail(e, "invalid_request", EINVAL, "token file %s is not a file", path);
	if (st.st_mode & 077)
		return sbx_fail(e, "invalid_request", EACCES,
			"token file %s can be read by other users; chmod 600 it", path);
	n = read(fd, buf, size - 1);
	if (n < 0 || (size_t)n == size - 1)
		return sbx_fail(e, "invalid_request", n < 0 ? errno : EFBIG,
			"token file %s is not readable or too large", path);
	buf[n] = '\0';
	return 0;
}

int sbx_read_token(const char *token_file, char **ret, struct sbx_error *e)
{
	char buf[SBX_TOKEN_MAX];
	const char *given = token_file ? NULL : env("SBX_TOKEN");
	const char *from = token_file ? token_file : "SBX_TOKEN";
	char *p, *end;
	int r = -1;

	*ret = NULL;
	if (!token_file && !given)
		return 0;
	if (token_file && read_file(token_file, buf, sizeof(buf), e) < 0)
		goto out;
	if (given && strlen(given) >= sizeof(buf)) {
		sbx_fail(e, "invalid_request", EFBIG, "SBX_TOKEN is too large");
		goto out;
	}
	if (given)
		strcpy(buf, given);
	p = buf + strspn(buf, " \t\r\n");
	for (end = p + strlen(p); end > p && strchr(" \t\r\n", end[-1]); end--)
		;
	*end = '\0';
	if (check_token(p, from, e) < 0)
		goto out;
	*ret = strdup(p);
	r = *ret ? 0 : sbx_fail(e, "internal", ENOMEM, "out of memory");
out:
	explicit_bzero(buf, sizeof(buf));
	return r;
}
