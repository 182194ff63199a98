/* SPDX-License-Identifier: MIT */
/* The limit of core files for whatever hostile hands can crash. 0 means none on a disk, but where
 * the host gives cores to a program (core_pattern begins with a bar), that is started all the same,
 * as the host's root; 1 means to the kernel that it is not to be. */
#ifndef COMMON_SYS_CORE_H
#define COMMON_SYS_CORE_H

#define CORE_NEVER 1

#endif
