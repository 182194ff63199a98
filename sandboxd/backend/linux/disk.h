/* SPDX-License-Identifier: MIT */
/* The linux backend's part for trees and volumes: layers, snapshots, what a create is made of. */
#ifndef SANDBOXD_BACKEND_LINUX_DISK_H
#define SANDBOXD_BACKEND_LINUX_DISK_H

#include "sandboxd/backend/backend.h"
#include "sandboxd/backend/linux/ask.h"

/* Chain, volumes and flags of a create. */
void disk_fill_create(struct priv_req *q, const struct backend_spec *spec);

#endif
