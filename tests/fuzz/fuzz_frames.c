/* SPDX-License-Identifier: MIT */
/* Attach frames of a client: the first byte says how the rest is cut. However it is cut, the same
 * calls come out, and no more bytes than went in. */
#include "tests/fuzz/fuzz.h"

#include "sandboxd/api/frames.h"

struct frames_seen {
	uint64_t sum; /* of all calls, independent of how input is split */
	size_t input;
};

static void seen_input(void *arg, const void *buf, size_t len)
{
	struct frames_seen *s = arg;
	const uint8_t *p = buf;

	for (size_t i = 0; i < len; i++)
		s->sum = s->sum * 31 + p[i] + 1;
	s->input += len;
}
static void seen_end(void *arg)
{
	((struct frames_seen *)arg)->sum += 1000003;
}
static void seen_signal(void *arg, const char *word)
{
	promise(strlen(word) <= 4);
	((struct frames_seen *)arg)->sum += 7 + (unsigned char)word[0];
}
static void seen_resize(void *arg, uint16_t rows, uint16_t cols)
{
	((struct frames_seen *)arg)->sum += rows * 65536u + cols;
}

static int feed_in_cuts(const uint8_t *p, size_t len, size_t cut, struct frames_seen *s)
{
	static const struct frame_calls calls = { seen_input, seen_end, seen_signal, seen_resize };
	struct frames f = { 0 };

	for (size_t n; len > 0; p += n, len -= n) {
		n = cut < len ? cut : len;
		if (frames_feed(&f, p, n, &calls, s) < 0)
			return -1;
	}
	return 0;
}

int fuzz_frames(const uint8_t *data, size_t size)
{
	struct frames_seen whole = { 0 }, cut = { 0 };
	int a, b;

	if (size == 0)
		return 0;
	a = feed_in_cuts(data + 1, size - 1, size, &whole);
	b = feed_in_cuts(data + 1, size - 1, data[0] % 16u + 1, &cut);
	promise(a == b);
	promise(whole.input == cut.input && whole.sum == cut.sum && whole.input <= size);
	return 0;
}
