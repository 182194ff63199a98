/* SPDX-License-Identifier: MIT */
#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *word;
	int status;
	int sys;
} codes[ERR_COUNT] = {
	[ERR_NONE] = { "ok", 200, 0 },
#define E(name, word, status, sys) [ERR_##name] = { word, status, sys },
#include "common/base/errors.def"
#undef E
};

/* The errnos that a client may see by name, and the code each has by itself. Anything else is
 * `internal`: its number says nothing to the sender of the request. */
static const struct {
	int sys;
	const char *name;
	enum err_code code;
} errnos[] = {
#define N(sys, code) { sys, #sys, ERR_##code }
	N(ENOENT, NOT_FOUND),          N(EISDIR, INVALID_REQUEST),  N(ENOTDIR, INVALID_REQUEST),
	N(ENOTEMPTY, CONFLICT),        N(EEXIST, CONFLICT),         N(EROFS, CONFLICT),
	N(ENOSPC, CONFLICT),           N(EDQUOT, CONFLICT),         N(EBUSY, CONFLICT),
	N(EACCES, CONFLICT),           N(EPERM, CONFLICT),          N(ETXTBSY, CONFLICT),
	N(EMLINK, CONFLICT),           N(ESTALE, NOT_FOUND),        N(EXDEV, INVALID_REQUEST),
	N(ELOOP, INVALID_REQUEST),     N(ENAMETOOLONG, INVALID_REQUEST),
	N(EINVAL, INVALID_REQUEST),    N(EFBIG, INVALID_REQUEST),   N(ENODATA, NOT_FOUND),
	N(E2BIG, INVALID_REQUEST),     N(ENOEXEC, INVALID_REQUEST), N(ENXIO, INVALID_REQUEST),
	N(ERANGE, INVALID_REQUEST),    N(EBADF, INVALID_REQUEST),   N(EOPNOTSUPP, UNSUPPORTED),
	N(ENOSYS, UNSUPPORTED),        N(EAGAIN, CONFLICT),         N(ENOMEM, UNAVAILABLE),
	N(EMFILE, UNAVAILABLE),        N(ENFILE, UNAVAILABLE),      N(ETIMEDOUT, UNAVAILABLE),
	N(EOVERFLOW, INVALID_REQUEST), N(EIO, INTERNAL),            N(EPIPE, CONFLICT),
	N(ENODEV, INVALID_REQUEST),    N(ECANCELED, CONFLICT),      N(ESRCH, NOT_FOUND),
#undef N
};

static int fill(struct err *e, enum err_code code, int sys, const char *fmt, va_list ap)
{
	if (!e)
		return -1;
	e->code = code;
	e->sys = sys;
	e->http = 0;
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	return -1;
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, code, 0, fmt, ap);
	va_end(ap);
	return -1;
}

int err_set_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, code, sys, fmt, ap);
	va_end(ap);
	return -1;
}

static enum err_code code_of_errno(int sys)
{
	for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (errnos[i].sys == sys)
			return errnos[i].code;
	return ERR_INTERNAL;
}

/* strerror() of EROFS reads "Read-only file system"; the contract wants "read-only" as written. */
static const char *reason(int sys, char *buf, size_t len)
{
	if (sys == EROFS)
		return "read-only file system";
	return strerror_r(sys, buf, len);
}

int err_sys(struct err *e, int sys, const char *fmt, ...)
{
	char buf[128];
	va_list ap;

	va_start(ap, fmt);
	fill(e, code_of_errno(sys), sys, fmt, ap);
	va_end(ap);
	if (e) {
		size_t n = strlen(e->msg);
		snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", reason(sys, buf, sizeof(buf)));
	}
	return -1;
}

int err_oom(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "out of memory");
}

bool err_is_short(int sys)
{
	return sys == EMFILE || sys == ENFILE || sys == ENOMEM || sys == ENOBUFS;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char old[sizeof(e->msg)];
	va_list ap;
	size_t n;

	if (!e)
		return -1;
	memcpy(old, e->msg, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, "%s", old);
	return -1;
}

const char *err_word(enum err_code code)
{
	return code < ERR_COUNT ? codes[code].word : "internal";
}

int err_http(const struct err *e)
{
	return e->http ? e->http : codes[e->code].status;
}

int err_errno(enum err_code code)
{
	return codes[code].sys;
}

enum err_code err_code_of_word(const char *word)
{
	for (int i = 1; i < ERR_COUNT; i++)
		if (word && !strcmp(codes[i].word, word))
			return (enum err_code)i;
	return ERR_INTERNAL;
}

const char *err_errno_name(int sys)
{
	for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (errnos[i].sys == sys)
			return errnos[i].name;
	return NULL;
}

int err_errno_of_name(const char *name)
{
	for (size_t i = 0; name && i < sizeof(errnos) / sizeof(errnos[0]); i++)
		if (!strcmp(errnos[i].name, name))
			return errnos[i].sys;
	return 0;
}
