/* SPDX-License-Identifier: MIT */
/* One program that runs inside a sandbox and tries what must not work there, by subject. */
#ifndef TESTS_ATTACK_INSIDE_H
#define TESTS_ATTACK_INSIDE_H

#include "tests/attack/said.h"

#include <stdbool.h>

void try_first_process(void); /* sbx-init: its memory, descriptors, namespaces; signals */
void try_procfs(void);        /* everything that could be written below /proc and /sys */
void try_mounts(void);        /* mounts, device nodes, set-id files, the way out by chroot */
void try_kernel(void);        /* calls that reach far into the kernel or into what all share */
void try_network(void);       /* families, protocols, netlink, what leads out */

#endif
