/* SPDX-License-Identifier: MIT */
/* The records before anything that they tell from garbage. */
#ifndef SANDBOXD_RECORDS_H
#define SANDBOXD_RECORDS_H

#include "common/base/err.h"

#include <sys/types.h>

/* Makes an empty records.db for uid where the broker has not worked yet, and refuses a state directory that has
 * lost its own, or whose parts are not uid's. Asked by root, before the broker starts; dir is how to call the
 * directory. */
int records_ready(int dirfd, const char *dir, uid_t uid, gid_t gid, struct err *e);

#endif
