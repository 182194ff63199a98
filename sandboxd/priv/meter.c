/* SPDX-License-Identifier: MIT */
/* What a sandbox uses, measured from outside: the guest is never asked. */
#include "sandboxd/priv/broker.h"

_Static_assert(CG_FIGURES <= sizeof(((struct priv_ans *)0)->n) / sizeof(int64_t), "fits an answer");

void op_meter(struct broker *b, const struct priv_req *q, int fd)
{
	struct priv_ans a = { 0 };
	char group[BOX_NAME_MAX];
	struct fail f = { 0 };
	struct record box;
	int r;

	(void)fd;
	if (!name_is_id(q->id, sizeof(q->id))) {
		fail_set(&f, EINVAL, "id");
	} else if (broker_find(b, q->id, &box, &f) == 0) {
		box_group(group, box.block);
		r = cg_meter(&b->env.cg, group, a.n);
		if (r < 0)
			fail_set(&f, r, "measure %.63s", q->id);
	}
	broker_answer(b, q->op, q->tag, &f, &a);
}

bool meter_works(const struct broker *b, uint32_t block)
{
	char group[BOX_NAME_MAX];
	int64_t n[CG_FIGURES];

	box_group(group, block);
	return cg_meter(&b->env.cg, group, n) == 0 && n[0] >= 0 && n[1] >= 0;
}
