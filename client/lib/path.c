/* SPDX-License-Identifier: MIT */
/* Builds request paths. Only this file turns a name into a part of a URL. */
#include "client/lib/internal.h"

#include "common/api/api.h"
#include "common/sys/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_MAX_BYTES (1024 * 1024)

static bool add_text(struct sbx_buf *b, const char *text, const char *keep)
{
	_cleanup_free_ char *enc = percent_encode(text, strlen(text), keep);

	return enc && sbx_buf_add(b, enc, strlen(enc));
}

static bool add_number(struct sbx_buf *b, long long n)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%lld", n);

	return sbx_buf_add(b, text, (size_t)len);
}

/* One conversion at *f (behind the '%'); moves *f behind it. The list goes by address of a struct,
 * since the type of va_list may be an array. */
struct args {
	va_list ap;
};
static bool convert(struct sbx_buf *b, const char **f, struct args *a)
{
	const char *at = *f;

	*f = at + 1;
	if (*at == 's')
		return add_text(b, va_arg(a->ap, const char *), NULL);
	if (*at == 'S')
		return add_text(b, va_arg(a->ap, const char *), "/");
	if (*at == 'd')
		return add_number(b, va_arg(a->ap, int));
	if (*at == '%')
		return sbx_buf_add(b, "%", 1);
	if (!strncmp(at, "lld", 3)) {
		*f = at + 3;
		return add_number(b, va_arg(a->ap, long long));
	}
	return false; /* not a conversion we have */
}

char *sbx_path(const char *fmt, ...)
{
	struct sbx_buf b = { .max = PATH_MAX_BYTES };
	struct args a;
	bool ok = true;

	va_start(a.ap, fmt);
	while (ok && *fmt) {
		size_t n = strcspn(fmt, "%");
		ok = sbx_buf_add(&b, fmt, n);
		fmt += n;
		if (ok && *fmt == '%') {
			fmt++;
			ok = convert(&b, &fmt, &a);
		}
	}
	va_end(a.ap);
	if (ok)
		return b.data ? b.data : strdup("");
	free(b.data);
	return NULL;
}

bool sbx_path_ok(const char *path)
{
	if (!path || path[0] != '/')
		return false;
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p <= 0x20 || *p == 0x7f || *p == '#')
			return false;
	return true;
}
