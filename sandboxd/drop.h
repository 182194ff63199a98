/* SPDX-License-Identifier: MIT */
/* How the server stops being root: after this it parses requests and can do little else. */
#ifndef SANDBOXD_DROP_H
#define SANDBOXD_DROP_H

#include "common/base/err.h"
#include "sandboxd/pull/pull.h"

#include <stdbool.h>
#include <sys/types.h>

#define DROP_OWN_ID   1878982655u /* below all ids that sandboxes and shims use */
#define DROP_CELLS_ID (DROP_OWN_ID - PULL_CELLS) /* and those of the cells in which images are fetched */

/* The user to become: a name, a number, or NULL for the user `sandboxd` and, where there is none,
 * DROP_OWN_ID. */
int drop_find_user(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct err *e);
/* Can that user walk to the directory and use it so (R_OK …)? Asked while still root. */
int drop_can_reach(const char *dir, int mode, uid_t uid, gid_t gid, bool *ret, struct err *e);
/* No way back: ids, groups, capabilities, core dumps, new programs, most of the kernel's admin
 * calls. Before the first thread. */
int drop_privileges(uid_t uid, gid_t gid, struct err *e);
/* The same, but the uid stays: files of that user can be read, and nothing else be done. */
int drop_capabilities(struct err *e);

#endif
