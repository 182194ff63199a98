/* SPDX-License-Identifier: MIT */
/* Frames of sbx-stream/1, the client's direction (node contract, 12). A push parser: bytes in,
 * calls out. It allocates nothing; input passes through it in the pieces it came in. */
#ifndef SANDBOXD_API_FRAMES_H
#define SANDBOXD_API_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD 5
#define FRAME_MAX  (1024 * 1024)

struct frame_calls {
	void (*input)(void *arg, const void *buf, size_t len);
	void (*end)(void *arg);
	void (*signal)(void *arg, const char *word); /* at most 4 letters, unchecked */
	void (*resize)(void *arg, uint16_t rows, uint16_t cols);
};
struct frames {
	uint8_t head[FRAME_HEAD];
	size_t nhead;
	uint32_t len, seen; /* of the payload */
	uint8_t small[8];   /* payload of the little ones */
};
/* A zeroed struct frames is a new stream. -1: a frame is larger than FRAME_MAX; the stream is over.
 */
int frames_feed(
	struct frames *f, const void *buf, size_t len, const struct frame_calls *calls, void *arg);
/* Writes a frame's head. */
void frame_head(char type, uint32_t len, uint8_t out[FRAME_HEAD]);

#endif
