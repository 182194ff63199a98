/* SPDX-License-Identifier: MIT */
/* Finds and ends process trees where no cgroup holds them. A mark is a number kept in the soft limit
 * RLIMIT_RTTIME: children inherit it through setsid and double fork, ordinary scheduling never looks
 * at it, and /proc/PID/limits shows it. A program that wants to hide can change it, so this is for
 * trusted guests (fake backend) and for hosts without cgroup2. Libc only. */
#ifndef COMMON_SYS_MARK_H
#define COMMON_SYS_MARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* owner: pid of init; num: the process's number, 0 for "any" in mark_kill. */
uint64_t mark_of(pid_t owner, uint32_t num);
/* Marks the calling process. Safe after vfork. */
int mark_self(uint64_t mark);
/* SIGKILL to everything that carries the mark, again and again until nothing does or ten seconds
 * have passed; any_num: all numbers of the mark's owner. The caller itself is spared. */
void mark_kill(uint64_t mark, bool any_num);
/* Field 22 of /proc/PID/stat: start time in ticks since boot; 0 when there is no such process or it
 * is a zombie. With the pid it names a process for good. */
uint64_t mark_start_time(pid_t pid);

#endif
