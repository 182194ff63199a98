/* SPDX-License-Identifier: MIT */
/* Pools: sandboxes of a shape that the operator wants ready, in the number that he named. They are
 * spare sandboxes like those of the usual shape (creates.c), and a create takes whichever fits.
 * Making them is nobody's hurry: it waits for whoever waits, and a shape that cannot be made is
 * tried again ever more rarely. */
#include "sandboxd/priv/broker.h"

#include "common/sys/mem.h"

#define RETRY_FIRST_MS 1000
#define RETRY_LAST_MS  60000

bool pools_want(const struct broker *b, const struct build_shape *shape)
{
	for (int i = 0; i < POOLS_MAX; i++)
		if (b->pools[i].size > 0 && creates_same_shape(&b->pools[i].shape, shape))
			return true;
	return false;
}

const struct build_shape *pools_lacking(const struct broker *b)
{
	int64_t now = broker_now_ms();

	for (int i = 0; i < POOLS_MAX; i++) {
		const struct pool *p = &b->pools[i];
		struct creates_count n;
		if (p->size == 0 || now < p->not_before_ms)
			continue;
		creates_count(b, &p->shape, &n);
		if (n.ready + n.building < p->size)
			return &p->shape;
	}
	return NULL;
}

void pools_result(struct broker *b, const struct build_shape *shape, bool made)
{
	for (int i = 0; i < POOLS_MAX; i++) {
		struct pool *p = &b->pools[i];
		if (p->size == 0 || !creates_same_shape(&p->shape, shape))
			continue;
		p->wait_ms = made ? 0 : p->wait_ms ? p->wait_ms * 2 : RETRY_FIRST_MS;
		if (p->wait_ms > RETRY_LAST_MS)
			p->wait_ms = RETRY_LAST_MS;
		p->not_before_ms = broker_now_ms() + p->wait_ms;
	}
}

static int check(const struct priv_req *q, struct fail *f)
{
	if (q->num >= POOLS_MAX || q->kind > POOL_SIZE_MAX || q->nvolumes > 0)
		return fail_set(f, EINVAL, "pool");
	return q->kind ? creates_check_shape(q, f) : 0;
}

/* The same words again ask how it stands. */
void op_pool(struct broker *b, const struct priv_req *q, int fd)
{
	struct creates_count n = { 0 };
	struct priv_ans a = { 0 };
	struct build_shape shape;
	struct fail f = { 0 };

	(void)fd;
	if (check(q, &f) == 0) {
		struct pool *p = &b->pools[q->num];
		creates_shape_of(&shape, q);
		if (!creates_same_shape(&p->shape, &shape))
			*p = (struct pool){ .shape = shape };
		p->size = (int)q->kind;
		if (p->size > 0)
			creates_count(b, &p->shape, &n);
		a.n[0] = n.ready < p->size ? n.ready : p->size;
		a.n[1] = n.building < p->size - a.n[0] ? n.building : p->size - a.n[0];
	}
	broker_answer(b, q->op, q->tag, &f, &a);
}
