/* SPDX-License-Identifier: MIT */
#include "sandboxd/listen.h"

#include "common/sys/mem.h"
#include "common/sys/runtime.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 512

static int parse_unix(const char *path, struct listen_addr *a, struct err *e)
{
	if (path[0] != '/')
		return err_set(
			e, ERR_INVALID_REQUEST, "--listen: the socket's path must be absolute");
	if (strlen(path) >= UNIX_PATH_MAX_LEN)
		return err_set(e, ERR_INVALID_REQUEST,
			"--listen: the socket's path has %zu bytes, at most %d fit an address",
			strlen(path), UNIX_PATH_MAX_LEN - 1);
	a->is_unix = true;
	strcpy(a->path, path);
	return 0;
}

static bool host_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!strcasecmp(host, "localhost"))
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static int parse_tcp(const char *text, struct listen_addr *a, struct err *e)
{
	const char *colon = strrchr(text, ':');
	const char *host = text;
	size_t len;

	if (!colon || strstr(text, "://"))
		return err_set(
			e, ERR_INVALID_REQUEST, "the address must be unix:///path or HOST:PORT");
	len = (size_t)(colon - text);
	if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
		host++;
		len -= 2;
	} else if (memchr(host, ':', len)) {
		return err_set(
			e, ERR_INVALID_REQUEST, "an IPv6 address stands in brackets, [::1]:PORT");
	}
	colon++;
	if (len >= sizeof(a->host) || !*colon || strlen(colon) > 5 ||
		strspn(colon, "0123456789") != strlen(colon) || atoi(colon) > 65535)
		return err_set(e, ERR_INVALID_REQUEST, "the port must be a number up to 65535");
	memcpy(a->host, host, len);
	a->host[len] = '\0';
	strcpy(a->port, colon);
	a->is_loopback = host_is_loopback(a->host);
	return 0;
}

static int parse_default(struct listen_addr *a, struct err *e)
{
	const char *run = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
	char path[4096];

	if (runtime_dir_ok(run))
		snprintf(path, sizeof(path), "%s/sandboxd.sock", run);
	else if (home && *home)
		snprintf(path, sizeof(path), "%s/.config/sandbox/sandboxd.sock", home);
	else
		return err_set(e, ERR_INVALID_REQUEST,
			"neither XDG_RUNTIME_DIR nor HOME is set: say --listen");
	return parse_unix(path, a, e);
}

int listen_parse(const char *text, struct listen_addr *ret, struct err *e)
{
	static const char scheme[] = "unix://";

	*ret = (struct listen_addr){ 0 };
	if (!text)
		return parse_default(ret, e);
	if (!strncmp(text, scheme, sizeof(scheme) - 1))
		return parse_unix(text + sizeof(scheme) - 1, ret, e);
	return parse_tcp(text, ret, e);
}

/* Makes the folders above path that are missing. */
static int make_parents(const char *path, struct err *e)
{
	char buf[UNIX_PATH_MAX_LEN];

	snprintf(buf, sizeof(buf), "%s", path);
	for (char *p = strchr(buf + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(buf, 0700) < 0 && errno != EEXIST)
			return err_sys(e, errno, "folder \"%s\" of the socket", buf);
		*p = '/';
	}
	return 0;
}

/* Removes a socket that nobody answers on, and nothing else. */
static int clear_path(const struct sockaddr_un *sa, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (lstat(sa->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "\"%s\"", sa->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, ERR_CONFLICT, "\"%s\" exists and is not a socket", sa->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(e, errno, "socket");
	if (connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0 || errno == EAGAIN)
		return err_set(e, ERR_CONFLICT, "another server answers on \"%s\"", sa->sun_path);
	if (errno != ECONNREFUSED)
		return err_sys(e, errno, "socket \"%s\"", sa->sun_path);
	if (unlink(sa->sun_path) < 0)
		return err_sys(e, errno, "stale socket \"%s\"", sa->sun_path);
	return 0;
}

static int open_unix(const struct listen_addr *a, int *ret_fd, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t old;
	int rc;

	if (fd < 0)
		return err_sys(e, errno, "socket");
	strcpy(sa.sun_path, a->path);
	if (make_parents(a->path, e) < 0 || clear_path(&sa, e) < 0)
		return -1;
	old = umask(0177);
	rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	umask(old);
	if (rc < 0)
		return err_sys(e, errno, "socket \"%s\"", a->path);
	if (listen(fd, BACKLOG) < 0)
		return err_sys(e, errno, "listen on \"%s\"", a->path);
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int bind_tcp(const struct addrinfo *ai, int *ret_fd)
{
	_cleanup_close_ int fd =
		socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, zero = 0;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (ai->ai_family == AF_INET6) /* every address means IPv4 too */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -1;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Every address: one IPv6 socket serves both. A name such as localhost: IPv4 first, as clients try.
 */
static int open_tcp(const struct listen_addr *a, int *ret_fd, struct err *e)
{
	static const int orders[2][2] = { { AF_INET6, AF_INET }, { AF_INET, AF_INET6 } };
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *list = NULL;
	int rc = getaddrinfo(a->host[0] ? a->host : NULL, a->port, &hints, &list);
	int saved = EADDRNOTAVAIL;

	if (rc != 0)
		return err_set(
			e, ERR_INVALID_REQUEST, "--listen: \"%s\": %s", a->host, gai_strerror(rc));
	rc = -1;
	for (int i = 0; rc < 0 && i < 2; i++)
		for (const struct addrinfo *ai = list; rc < 0 && ai; ai = ai->ai_next) {
			if (ai->ai_family != orders[!!a->host[0]][i])
				continue;
			rc = bind_tcp(ai, ret_fd);
			saved = rc < 0 ? errno : saved;
		}
	freeaddrinfo(list);
	if (rc < 0)
		return err_sys(e, saved, "listen on %s:%s", a->host, a->port);
	return 0;
}

int listen_open(const struct listen_addr *a, int *ret_fd, struct err *e)
{
	return a->is_unix ? open_unix(a, ret_fd, e) : open_tcp(a, ret_fd, e);
}

unsigned short listen_port(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return 0;
	if (ss.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&ss)->sin_port);
	if (ss.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return 0;
}
