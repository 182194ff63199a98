/* SPDX-License-Identifier: MIT */
/* Where things are when nothing is said: beside the program in a build tree, below its prefix once
 * installed. */
#ifndef SANDBOXD_PATHS_H
#define SANDBOXD_PATHS_H

#include "common/base/err.h"

/* All give an absolute path; caller frees. `given` (may be NULL) wins. */
int path_libexec(const char *given, char **ret, struct err *e);
int path_images(const char *given, char **ret, struct err *e);
/* Made if missing, 0700; its parents as the umask says. */
int path_state(const char *given, char **ret, struct err *e);

#endif
