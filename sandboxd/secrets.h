/* SPDX-License-Identifier: MIT */
/* Files that are read once, before the server gives up its rights. */
#ifndef SANDBOXD_SECRETS_H
#define SANDBOXD_SECRETS_H

#include "common/base/err.h"

#define TOKEN_LEAST 16
#define TOKEN_MOST  1024

/* The token without the white space around it; caller wipes and frees. Refuses a file that group or
 * others may read, and a token too short or too long. */
int token_load(const char *path, char **ret, struct err *e);
/* A whole text file of at most 1 MiB, for certificates and keys. */
int text_load(const char *path, char **ret, struct err *e);

#endif
