/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/linux/images.h"

#include "sandboxd/backend/linux/disk.h"

#include <string.h>

#define IMPORT_MS (60 * 60 * 1000)
#define SHORT_MS  10000

static int put_chain(struct priv_req *q, const struct backend_chain *chain, struct err *e)
{
	if (chain->n > PRIV_CHAIN_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "too many layers");
	q->nchain = chain->n;
	memcpy(q->chain, chain->layers, chain->n * sizeof(q->chain[0]));
	return 0;
}

int images_layer_import(struct ask *a, uint32_t num, enum backend_layer_kind kind,
	const struct backend_chain *below, int fd, int64_t *bytes, bool *covers, struct err *e)
{
	struct priv_req q = { .op = PRIV_LAYER_IMPORT, .num = num, .kind = kind };
	struct priv_ans ans;

	if (kind == LAYER_FINISH && put_chain(&q, below, e) < 0)
		return -1;
	if (ask_call(a, &q, fd, IMPORT_MS, &ans, e) < 0)
		return -1;
	*bytes = ans.n[0];
	*covers = ans.n[1] != 0;
	return 0;
}

void images_expect(struct ask *a, const struct backend_spec *shape)
{
	struct priv_req q = { .op = PRIV_EXPECT,
		.cpu_milli = 1, /* set when it is taken */
		.memory_mb = shape->memory_mb,
		.disk_mb = shape->disk_mb };

	disk_fill_create(&q, shape);
	(void)ask_call(a, &q, -1, SHORT_MS, NULL, NULL);
}
