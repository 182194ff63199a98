/* SPDX-License-Identifier: MIT */
/* sbx-fs/1 (doc/sbx-fs.md): the client's connection is handed to the sandbox's file worker. */
#include "sandboxd/api/call.h"

int handle_fs_stream(struct call *c, struct err *e)
{
	(void)c;
	return err_set(e, ERR_UNSUPPORTED, "file operations as frames are not offered here");
}
