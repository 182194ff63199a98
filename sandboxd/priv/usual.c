/* SPDX-License-Identifier: MIT */
/* The shapes that have been asked for lately, the last one first. Sandboxes are kept ready in each, most of them
 * in the last, unless that was asked for once only: one odd request must not take away what the others use. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#include <string.h>

static int find(const struct broker *b, const struct build_shape *s)
{
	for (int i = 0; i < BROKER_SHAPES; i++)
		if (build_shape_known(&b->usual[i].shape) && creates_same_shape(&b->usual[i].shape, s))
			return i;
	return -1;
}

static int wanted(const struct broker *b, int i)
{
	return i == 0 && b->usual[i].again ? BROKER_SPARES : 1;
}

void usual_asked(struct broker *b, const struct build_shape *s)
{
	int at = find(b, s);
	struct usual now = { .shape = *s, .again = at >= 0 };

	if (at < 0)
		at = BROKER_SHAPES - 1;
	memmove(b->usual + 1, b->usual, (size_t)at * sizeof(b->usual[0]));
	b->usual[0] = now;
}

void usual_expect(struct broker *b, const struct build_shape *s)
{
	for (int i = 0; i < BROKER_SHAPES; i++)
		if (build_shape_known(&b->usual[i].shape))
			return;
	b->usual[0] = (struct usual){ .shape = *s, .again = true };
}

bool usual_wants(const struct broker *b, const struct build_shape *s)
{
	return find(b, s) >= 0;
}

const struct build_shape *usual_lacking(const struct broker *b)
{
	for (int i = 0; i < BROKER_SHAPES; i++) {
		struct creates_count n;
		if (!build_shape_known(&b->usual[i].shape))
			continue;
		creates_count(b, &b->usual[i].shape, &n);
		if (n.ready + n.building < wanted(b, i))
			return &b->usual[i].shape;
	}
	return NULL;
}

void usual_failed(struct broker *b, const struct build_shape *s)
{
	int at = find(b, s);

	if (at >= 0)
		b->usual[at] = (struct usual){ 0 };
}

void usual_forget_layer(struct broker *b, uint32_t num)
{
	for (int i = 0; i < BROKER_SHAPES; i++)
		if (creates_stand_on(&b->usual[i].shape, num))
			b->usual[i] = (struct usual){ 0 };
}
