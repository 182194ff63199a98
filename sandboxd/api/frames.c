/* SPDX-License-Identifier: MIT */
#include "sandboxd/api/frames.h"

#include <string.h>

void frame_head(char type, uint32_t len, uint8_t out[FRAME_HEAD])
{
	out[0] = (uint8_t)type;
	for (int i = 0; i < 4; i++)
		out[1 + i] = (uint8_t)(len >> (24 - 8 * i));
}

/* The frame is complete. Unknown types, and known ones of a wrong length, do nothing. */
static void apply(const struct frames *f, const struct frame_calls *calls, void *arg)
{
	char word[8] = "";

	if (f->head[0] == 'e')
		calls->end(arg);
	if (f->head[0] == 's' && f->len <= 4) {
		memcpy(word, f->small, f->len);
		calls->signal(arg, word);
	}
	if (f->head[0] == 'r' && f->len == 4)
		calls->resize(arg, (uint16_t)(f->small[0] << 8 | f->small[1]),
			(uint16_t)(f->small[2] << 8 | f->small[3]));
}

static size_t take_head(struct frames *f, const uint8_t *p, size_t len)
{
	size_t n = FRAME_HEAD - f->nhead < len ? FRAME_HEAD - f->nhead : len;

	memcpy(f->head + f->nhead, p, n);
	f->nhead += n;
	f->seen = 0;
	f->len = 0;
	if (f->nhead == FRAME_HEAD)
		for (int i = 1; i < FRAME_HEAD; i++)
			f->len = f->len << 8 | f->head[i];
	return n;
}

static size_t take_payload(
	struct frames *f, const uint8_t *p, size_t len, const struct frame_calls *calls, void *arg)
{
	size_t n = f->len - f->seen < len ? f->len - f->seen : len;

	if (f->head[0] == 'i' && n)
		calls->input(arg, p, n);
	for (size_t i = 0; i < n && f->seen + i < sizeof(f->small); i++)
		f->small[f->seen + i] = p[i];
	f->seen += (uint32_t)n;
	return n;
}

int frames_feed(
	struct frames *f, const void *buf, size_t len, const struct frame_calls *calls, void *arg)
{
	const uint8_t *p = buf;

	while (len > 0) {
		size_t n = f->nhead < FRAME_HEAD ? take_head(f, p, len)
						 : take_payload(f, p, len, calls, arg);
		p += n;
		len -= n;
		if (f->len > FRAME_MAX)
			return -1;
		if (f->nhead == FRAME_HEAD && f->seen == f->len) {
			apply(f, calls, arg);
			f->nhead = 0;
		}
	}
	return 0;
}
