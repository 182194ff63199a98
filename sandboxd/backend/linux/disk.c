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
