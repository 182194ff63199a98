/* SPDX-License-Identifier: MIT */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level level = LOG_LVL_INFO;

void log_set_level(enum log_level l)
{
	level = l;
}

/* A message may hold what somebody else has written: no byte of it begins a line or moves a cursor. */
static size_t plain(const char *s, char *out, size_t size)
{
	size_t o = 0;

	for (; *s && o + 5 < size; s++)
		if (*s >= ' ' && *s < 0x7f)
			out[o++] = *s;
		else
			o += (size_t)snprintf(out + o, size - o, "\\x%02x", (unsigned char)*s);
	return o;
}

void log_write(enum log_level l, const char *fmt, ...)
{
	static const char *const words[] = { "error", "warn", "info", "debug" };
	char line[1024], out[2048];
	struct timespec ts;
	struct tm tm;
	size_t n;
	va_list ap;
	int saved = errno;

	if (l > level)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %s ", ts.tv_nsec / 1000000, words[l]);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = plain(line, out, sizeof(out) - 1);
	out[n++] = '\n';
	/* One write per line, so that lines of several threads never mix. */
	if (write(STDERR_FILENO, out, n) < 0)
		errno = 0;
	errno = saved;
}

const char *log_quote(const char *s, char *buf, size_t size)
{
	size_t o = 0;

	for (const unsigned char *p = (const unsigned char *)(s ? s : ""); *p && o + 5 < size; p++) {
		if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
			o += (size_t)snprintf(buf + o, size - o, "\\x%02x", *p);
		else
			buf[o++] = (char)*p;
	}
	buf[o] = '\0';
	return buf;
}
