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

/* What somebody else has written neither begins a line nor moves a cursor; nor is it any byte of `too`. */
static size_t plain(const char *s, const char *too, char *out, size_t size)
{
	size_t o = 0;

	for (; *s && o + 5 < size; s++)
		if (*s >= ' ' && *s < 0x7f && !strchr(too, *s))
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
	n = plain(line, "", out, sizeof(out) - 1);
	out[n++] = '\n';
	/* One write per line, so that lines of several threads never mix. */
	if (write(STDERR_FILENO, out, n) < 0)
		errno = 0;
	errno = saved;
}

const char *log_quote(const char *s, char *buf, size_t size)
{
	buf[plain(s ? s : "", "\"\\", buf, size)] = '\0';
	return buf;
}
