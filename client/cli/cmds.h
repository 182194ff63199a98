/* SPDX-License-Identifier: MIT */
/* One function a row of commands.def. */
#ifndef CLIENT_CLI_CMDS_H
#define CLIENT_CLI_CMDS_H

#include "client/cli/cli.h"

#define C(noun, verb, brief, fn, ...) int fn(struct cli *c);
#include "client/cli/commands.def"
#undef C

#endif
