/* SPDX-License-Identifier: MIT */
#include "sandboxd/backend/linux/disk.h"

#include <stdio.h>
#include <string.h>

void disk_fill_create(struct priv_req *q, const struct backend_spec *spec)
{
	if (spec->chain && spec->chain->n <= PRIV_CHAIN_MAX) {
		q->nchain = spec->chain->n;
		memcpy(q->chain, spec->chain->layers, q->nchain * sizeof(q->chain[0]));
	}
	for (size_t i = 0; i < spec->nvolumes && i < PRIV_VOLS_MAX; i++) {
		struct priv_volume *v = &q->volumes[q->nvolumes++];
		v->num = spec->volumes[i].num;
		v->read_only = spec->volumes[i].read_only;
		memcpy(v->path, spec->volumes[i].path, sizeof(v->path));
	}
	if (spec->egress)
		q->flags |= PRIV_EGRESS;
}

/* Removing, making and copying trees take as long as they take; a broker that is gone is noticed at once. */
#define SLOW_MS  (60 * 60 * 1000)
#define SHORT_MS 10000

static int ask_num(struct backend *b, enum priv_op op, uint32_t num, int64_t disk_mb, struct err *e)
{
	struct priv_req q = { .op = op, .num = num, .disk_mb = disk_mb };

	return ask_call(disk_ask(b), &q, -1, SLOW_MS, NULL, e);
}

int disk_layer_drop(struct backend *b, uint32_t num, struct err *e)
{
	return ask_num(b, PRIV_LAYER_DROP, num, 0, e);
}

int disk_volume_make(struct backend *b, uint32_t num, int64_t size_mb, struct err *e)
{
	return ask_num(b, PRIV_VOLUME_MAKE, num, size_mb, e);
}

int disk_volume_drop(struct backend *b, uint32_t num, struct err *e)
{
	return ask_num(b, PRIV_VOLUME_DROP, num, 0, e);
}

/* At least one question: naming none is different from not asking. */
static int keep(struct backend *b, enum priv_op op, const uint32_t *nums, size_t n, struct err *e)
{
	do {
		struct priv_req q = { .op = op };
		size_t k = n < PRIV_CHAIN_MAX ? n : PRIV_CHAIN_MAX;

		if (k)
			memcpy(q.chain, nums, k * sizeof(q.chain[0]));
		q.nchain = (uint32_t)k;
		if (ask_call(disk_ask(b), &q, -1, SHORT_MS, NULL, e) < 0)
			return -1;
		nums += k;
		n -= k;
	} while (n);
	return 0;
}

int disk_keep_layers(struct backend *b, const uint32_t *nums, size_t n, struct err *e)
{
	return keep(b, PRIV_KEEP_LAYERS, nums, n, e);
}

int disk_keep_volumes(struct backend *b, const uint32_t *nums, size_t n, struct err *e)
{
	return keep(b, PRIV_KEEP_VOLUMES, nums, n, e);
}

int disk_snapshot(struct backend *b, const char *id, uint32_t num, int64_t *bytes, struct err *e)
{
	struct priv_req q = { .op = PRIV_SNAPSHOT, .num = num };
	struct priv_ans a;

	if (snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	if (ask_call(disk_ask(b), &q, -1, SLOW_MS, &a, e) < 0)
		return -1;
	*bytes = a.n[0];
	return 0;
}

int disk_usage(struct backend *b, const char *id, uint32_t volume, int64_t *used, int64_t *size,
	struct err *e)
{
	struct priv_req q = { .op = PRIV_USAGE, .num = volume };
	struct priv_ans a;

	if (id && snprintf(q.id, sizeof(q.id), "%s", id) >= (int)sizeof(q.id))
		return err_set(e, ERR_INVALID_REQUEST, "sandbox id too long");
	if (ask_call(disk_ask(b), &q, -1, SHORT_MS, &a, e) < 0)
		return -1;
	*used = a.n[0];
	*size = a.n[1];
	return 0;
}
