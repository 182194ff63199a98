/* SPDX-License-Identifier: MIT */
#include "sandboxd/secrets.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT_MAX (1024 * 1024)
#define SPACE    " \t\r\n\v\f"

static int read_text(int fd, const char *path, char **ret, struct err *e)
{
	_cleanup_free_ char *buf = malloc(TEXT_MAX + 1);
	size_t len = 0;
	ssize_t n = 1;

	if (!buf)
		return err_sys(e, ENOMEM, "\"%s\"", path);
	while (len < TEXT_MAX && (n = read(fd, buf + len, TEXT_MAX - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		return err_sys(e, errno, "\"%s\"", path);
	if (len == TEXT_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "\"%s\" is too large", path);
	buf[len] = '\0';
	*ret = strdup(buf);
	explicit_bzero(buf, len);
	return *ret ? 0 : err_sys(e, ENOMEM, "\"%s\"", path);
}

int text_load(const char *path, char **ret, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return err_sys(e, errno, "\"%s\"", path);
	return read_text(fd, path, ret, e);
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, SPACE);
	n = strlen(s);
	while (n > 0 && strchr(SPACE, s[n - 1]))
		n--;
	s[n] = '\0';
	return s;
}

static int check_token(const char *path, const char *token, struct err *e)
{
	if (strlen(token) < TOKEN_LEAST)
		return err_set(e, ERR_INVALID_REQUEST,
			"the token in \"%s\" is shorter than %d characters", path, TOKEN_LEAST);
	if (strlen(token) > TOKEN_MOST)
		return err_set(e, ERR_INVALID_REQUEST,
			"the token in \"%s\" is longer than %d characters", path, TOKEN_MOST);
	for (const char *p = token; *p; p++)
		if (*p <= ' ' || *p == 0x7f)
			return err_set(e, ERR_INVALID_REQUEST,
				"the token in \"%s\" holds white space or control characters",
				path);
	return 0;
}

int token_load(const char *path, char **ret, struct err *e)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	const char *token;
	int rc = -1;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, errno, "token file \"%s\"", path);
	if (!S_ISREG(st.st_mode))
		return err_set(
			e, ERR_INVALID_REQUEST, "token file \"%s\" is not a regular file", path);
	if (st.st_mode & 077)
		return err_set(e, ERR_INVALID_REQUEST,
			"token file \"%s\" can be read by others: chmod 600 it", path);
	if (read_text(fd, path, &text, e) < 0)
		return -1;
	token = trim(text);
	if (check_token(path, token, e) == 0) {
		*ret = strdup(token);
		rc = *ret ? 0 : err_sys(e, ENOMEM, "token");
	}
	explicit_bzero(text, strlen(text));
	return rc;
}
