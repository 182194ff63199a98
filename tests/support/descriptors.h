/* SPDX-License-Identifier: MIT */
/* A process that has no descriptor left. */
#ifndef TESTS_SUPPORT_DESCRIPTORS_H
#define TESTS_SUPPORT_DESCRIPTORS_H

#include <sys/resource.h>
#include <sys/types.h>

/* Leaves the process that many beside those it has; returns what it had. */
struct rlimit descriptors_leave(pid_t pid, rlim_t n);
void descriptors_restore(pid_t pid, const struct rlimit *usual);

#endif
