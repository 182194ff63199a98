/* SPDX-License-Identifier: MIT */
/* Folders that the environment names for sockets. */
#ifndef COMMON_SYS_RUNTIME_H
#define COMMON_SYS_RUNTIME_H

#include <stdbool.h>

/* Nobody but this user and root can put something else in the place of what lies in it (or it does not exist yet). An
 * environment that su or sudo kept names the folder of another user, who could put his own socket there. */
bool runtime_dir_ok(const char *dir);

#endif
