/* SPDX-License-Identifier: MIT */
/* Reads the token file again for a server that may no longer. The file is root's and unreadable to
 * others, as it should be; so a process that is still uid 0, but has no capability and answers one
 * question about one path, stays behind. */
#ifndef SANDBOXD_KEEPER_H
#define SANDBOXD_KEEPER_H

#include "common/base/err.h"
#include "sandboxd/secrets.h"

#include <stdint.h>

/* A question is a byte, and the answer has it too: one that came too late is nobody's. */
struct kept {
	int32_t code; /* enum err_code; ERR_NONE: text is the token */
	uint8_t no;
	char text[TOKEN_MOST + 1];
};
/* Before rights are dropped and before the first thread. The process ends when *ret_fd is closed.
 */
int keeper_start(const char *token_file, int *ret_fd, struct err *e);
/* token_load() over there: its result or its refusal. Caller wipes and frees *ret. */
int keeper_ask(int fd, char **ret, struct err *e);

#endif
