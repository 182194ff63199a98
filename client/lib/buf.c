/* SPDX-License-Identifier: MIT */
#include "client/lib/internal.h"

#include <stdlib.h>
#include <string.h>

bool sbx_buf_add(struct sbx_buf *b, const void *p, size_t n)
{
	if (n > b->max || b->len > b->max - n)
		return false;
	if (b->len + n + 1 > b->room) {
		size_t room = b->room ? b->room : 4096;
		while (room < b->len + n + 1)
			room *= 2;
		char *fresh = realloc(b->data, room);
		if (!fresh)
			return false;
		b->data = fresh;
		b->room = room;
	}
	if (n)
		memcpy(b->data + b->len, p, n);
	b->len += n;
	b->data[b->len] = '\0';
	return true;
}
