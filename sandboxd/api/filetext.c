/* SPDX-License-Identifier: MIT */
/* Names and attributes as JSON text, written straight into a buffer: a listing of many thousand
 * entries is not worth a tree of values. */
#include "sandboxd/api/files.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void text_free(struct text *t)
{
	free(t->buf);
	*t = (struct text)TEXT_NULL;
}

static bool room_for(struct text *t, size_t more)
{
	size_t want = t->len + more + 1, room = t->room ? t->room : 512;
	char *p;

	if (t->failed || want > t->max) {
		t->failed = true;
		return false;
	}
	if (want <= t->room)
		return true;
	while (room < want)
		room *= 2;
	p = realloc(t->buf, room);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->buf = p;
	t->room = room;
	return true;
}

void text_add(struct text *t, const char *s, size_t len)
{
	if (!room_for(t, len))
		return;
	memcpy(t->buf + t->len, s, len);
	t->len += len;
	t->buf[t->len] = '\0';
}

void text_str(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

void text_fmt(struct text *t, const char *fmt, ...)
{
	char small[512];
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(small))
		t->failed = true;
	else
		text_add(t, small, (size_t)n);
}

/* Length of the valid UTF-8 character at s, 0 when there is none. */
static size_t utf8_len(const char *s, size_t left)
{
	unsigned char c = (unsigned char)*s;
	size_t n = c < 0x80                ? 1
		   : c >= 0xc2 && c < 0xe0 ? 2
		   : c >= 0xe0 && c < 0xf0 ? 3
		   : c >= 0xf0 && c < 0xf5 ? 4
					   : 0;

	return n && n <= left && utf8_ok(s, n) ? n : 0;
}

static void escape(struct text *t, unsigned char c)
{
	static const char named[] = "b\bf\fn\nr\rt\t\"\"\\\\";

	for (size_t i = 0; named[i]; i += 2)
		if ((unsigned char)named[i + 1] == c) {
			char two[2] = { '\\', named[i] };
			text_add(t, two, 2);
			return;
		}
	text_fmt(t, "\\u%04x", c);
}

bool filetext_json(struct text *t, const char *s, size_t len)
{
	bool exact = true;
	size_t plain = 0;

	text_add(t, "\"", 1);
	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)s[i];
		size_t n = utf8_len(s + i, len - i);
		bool shown = n && !(n == 3 && !memcmp(s + i, "\xef\xbf\xbd", 3));
		bool c1 = n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0;
		if (shown && !c1 && c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
			i += n;
			continue;
		}
		text_add(t, s + plain, i - plain);
		if (c1) {
			/* to a terminal these may be commands as well */
			escape(t, (unsigned char)s[++i]);
		} else if (shown) {
			escape(t, c);
		} else {
			text_fmt(t, "\xef\xbf\xbd%02X", c);
			exact = false;
		}
		/* The rest of a genuine U+FFFD is no character by itself, so it follows byte by
		 * byte. */
		plain = ++i;
	}
	text_add(t, s + plain, len - plain);
	text_add(t, "\"", 1);
	return exact;
}

void text_b64(struct text *t, const void *buf, size_t len)
{
	_cleanup_free_ char *b = base64_encode(buf, len);

	text_add(t, "\"", 1);
	if (b)
		text_str(t, b);
	else
		t->failed = true;
	text_add(t, "\"", 1);
}

void text_name(struct text *t, const char *key, const char *s, size_t len)
{
	text_fmt(t, "\"%s\":", key);
	if (filetext_json(t, s, len))
		return;
	text_fmt(t, ",\"%s_b64\":", key);
	text_b64(t, s, len);
}

void text_time(struct text *t, const struct files_time *tm)
{
	/* Before 1970 a time is minus its distance: -1.5 is -2 seconds and half a second. */
	if (tm->sec >= 0 || !tm->nsec)
		text_fmt(t, "\"%lld.%09u\"", (long long)tm->sec, tm->nsec);
	else
		text_fmt(t, "\"-%lld.%09u\"", -(long long)(tm->sec + 1), 1000000000 - tm->nsec);
}

static const char *type_word(uint32_t mode)
{
	static const char *const words[16] = { [S_IFREG >> 12] = "file",
		[S_IFDIR >> 12] = "dir",
		[S_IFLNK >> 12] = "link",
		[S_IFIFO >> 12] = "fifo",
		[S_IFSOCK >> 12] = "sock",
		[S_IFCHR >> 12] = "chr",
		[S_IFBLK >> 12] = "blk" };
	const char *w = words[(mode & S_IFMT) >> 12];

	return w ? w : "file";
}

void text_attr(struct text *t, const struct files_attr *a, const char *target, size_t target_len)
{
	text_fmt(t,
		"\"type\":\"%s\",\"mode\":%u,\"uid\":%u,\"gid\":%u,\"nlink\":%u,\"size\":%llu,"
		"\"blocks\":%llu,\"ino\":%lld,\"dev\":%lld,\"gen\":%lld,\"atime\":",
		type_word(a->mode), a->mode & 07777, a->uid, a->gid, a->nlink,
		(unsigned long long)a->size, (unsigned long long)a->blocks,
		(long long)(a->ino & INT64_MAX), (long long)(a->dev & INT64_MAX),
		(long long)(a->gen & INT64_MAX));
	text_time(t, &a->atime);
	text_str(t, ",\"mtime\":");
	text_time(t, &a->mtime);
	text_str(t, ",\"ctime\":");
	text_time(t, &a->ctime);
	text_fmt(t, ",\"version\":\"%016llx\"", (unsigned long long)a->version);
	if (target && S_ISLNK(a->mode)) {
		text_add(t, ",", 1);
		text_name(t, "target", target, target_len);
	}
}

void text_error(struct text *t, const struct err *e, bool with_errno)
{
	const char *name = with_errno && e->sys ? err_errno_name(e->sys) : NULL;

	text_fmt(t, "{\"code\":\"%s\",\"message\":", err_word(e->code));
	filetext_json(t, e->msg, strlen(e->msg));
	if (name)
		text_fmt(t, ",\"errno\":\"%s\"", name);
	text_add(t, "}", 1);
}

int reply_text(struct call *c, int status, struct text *t, struct err *e)
{
	if (t->failed)
		return err_set(e, ERR_INTERNAL, "the answer is too large");
	http_reply(c->req, status, "application/json", t->buf, t->len);
	return 0;
}
