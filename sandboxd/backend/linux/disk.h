/* SPDX-License-Identifier: MIT */
/* The linux backend's part for trees and volumes: layers, snapshots, what a create is made of. */
#ifndef SANDBOXD_BACKEND_LINUX_DISK_H
#define SANDBOXD_BACKEND_LINUX_DISK_H

#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/linux/ask.h"

/* Chain, volumes and flags of a create. */
void disk_fill_create(struct priv_req *q, const struct backend_spec *spec);

/* backend_ops of this part */
int disk_layer_drop(struct backend *b, uint32_t num, struct err *e);
int disk_keep_layers(struct backend *b, const uint32_t *nums, size_t n, struct err *e);
int disk_keep_volumes(struct backend *b, const uint32_t *nums, size_t n, struct err *e);
int disk_snapshot(struct backend *b, const char *id, uint32_t num, int64_t *bytes, struct err *e);
int disk_volume_make(struct backend *b, uint32_t num, int64_t size_mb, struct err *e);
int disk_volume_drop(struct backend *b, uint32_t num, struct err *e);
int disk_usage(struct backend *b, const char *id, uint32_t volume, int64_t *used, int64_t *size,
	struct err *e);

struct ask *disk_ask(struct backend *b); /* linux.c */

#endif
