/* SPDX-License-Identifier: MIT */
/* Which way a request about guest files goes: over the sandbox's connection, else the plain way. Both
 * give the same results. A plain request that counted as use has woken the sandbox. */
#include "sbxfs/wire.h"

#include <string.h>

static int plain(struct req *q, const char *box, int rc)
{
	if (rc == 0 && (q->acts || q->uses || q->m->opt.use_all))
		fs1_awake(q->m, box);
	return rc;
}

#define W(name, params, args, changes)           \
	int wire_##name params                   \
	{                                        \
		int rc;                          \
                                                 \
		q->acts |= (changes);            \
		rc = frame_##name args;          \
		if (rc != FS1_PLAIN)             \
			return rc;               \
		rc = http_##name args;           \
		return plain(q, box, rc);        \
	}
#include "sbxfs/wire.def"
#undef W

void wire_close(struct req *q, const char *box, const char *handle)
{
	if (!frame_close(q, box, handle))
		http_close(q, box, handle);
}

/* Frames tell the file system's figures only; the plain way knows the sandbox's limits, too. Of a path that
 * is too long for it, those of a directory above. */
int wire_statfs(struct req *q, const char *box, const char *path, struct statvfs *ret)
{
	char above[GUEST_PATH_MAX];
	size_t len = strnlen(path, sizeof(above));

	if (len == sizeof(above))
		while (--len > 1 && path[len] != '/')
			;
	memcpy(above, path, len);
	above[len] = '\0';
	return http_statfs(q, box, above, ret);
}
