/* SPDX-License-Identifier: MIT */
/* The version of all programs: they are built and installed together. */
#ifndef COMMON_BASE_VERSION_H
#define COMMON_BASE_VERSION_H

#define SBX_VERSION "0.1.0"

#endif
