/* SPDX-License-Identifier: MIT */
/* Endpoints of the contract whose capability this server does not have. The frame refuses most of
 * them before their body is read; those whose body comes first decode it here. */
#include "sandboxd/api/call.h"

#include "common/sys/mem.h"

static int absent(const struct call *c, struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED, "this server lacks the capability %s",
		cap_word(c->match.route->cap));
}

#define ABSENT(name)                                                                               \
	int handle_##name(struct call *c, struct err *e)                                           \
	{                                                                                          \
		return absent(c, e);                                                               \
	}
ABSENT(image_list)
ABSENT(image_install)
ABSENT(image_remove)

