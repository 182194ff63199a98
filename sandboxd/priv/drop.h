/* SPDX-License-Identifier: MIT */
/* What a process of the sandbox gives up before it is executed. */
#ifndef SANDBOXD_PRIV_DROP_H
#define SANDBOXD_PRIV_DROP_H

#include "sandboxd/priv/filter.h"

#include <linux/capability.h>

#define CAP(x) (1ull << (CAP_##x))

enum drop_who { DROP_INIT, DROP_WORKER };

/* Called inside the guest's user namespace with every capability there: becomes guest root with the
 * capabilities of its kind, own keyring, limits, no_new_privs and the filter. */
int drop_rights(enum drop_who who, const struct filter *flt, struct fail *f);
/* Default signal actions, nothing blocked: what a program expects to start with. */
void drop_signals(void);

#endif
