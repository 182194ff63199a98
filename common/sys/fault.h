/* SPDX-License-Identifier: MIT */
/* Named points between two steps that a crash may separate. A test starts the server with
 * SBX_FAULT=NAME in its environment, and the process that comes to the point of that name is killed there,
 * as by kill -9; SBX_FAULT=stop:NAME stops it instead, so that something else can be killed meanwhile;
 * SBX_FAULT=wait:NAME lets it wait there until a signal ends it, as for a disk that does not answer.
 * Without the variable a point is nothing. Libc only. */
#ifndef COMMON_SYS_FAULT_H
#define COMMON_SYS_FAULT_H

void fault_point(const char *name);

#endif
