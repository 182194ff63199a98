/* SPDX-License-Identifier: MIT */
/* Starting sbx-egress: it stands in the host's network and in an empty root, as an id of its own,
 * and holds sockets of the guest's network. */
#ifndef SANDBOXD_PRIV_EGRESS_H
#define SANDBOXD_PRIV_EGRESS_H

#include "sandboxd/priv/build.h"
#include "sandboxd/priv/catch.h"

/* Once, in the broker: the empty root, and the namespace of the host's network. */
int egress_jail(struct build_env *env, struct fail *f);
/* From a process in the guest's network namespace and the sandbox's group svc: opens the catcher,
 * starts the program. shim: a pidfd. *ctl: where egress_claim names it; its end is the program's.
 */
int egress_start(
	const struct build_env *env, uint32_t block, int shim, bool test, int *ctl, struct fail *f);
/* Gives it its identity and run/<id>/egress. */
int egress_claim(const struct build_env *env, const char *id, const uint8_t secret[16],
	uint64_t generation, int ctl, struct fail *f);

#endif
