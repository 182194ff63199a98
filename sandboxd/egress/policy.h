/* SPDX-License-Identifier: MIT */
/* The rules of one sandbox, as one block of names and a hash table over it: a name is looked up
 * once for itself and once for each label that it could lie below, however many rules there are. */
#ifndef SANDBOXD_EGRESS_POLICY_H
#define SANDBOXD_EGRESS_POLICY_H

#include "sandboxd/proto/egress.h"

#include <stdbool.h>
#include <stddef.h>

struct rules {
	uint32_t *slots; /* 1 + offset into the block; 0: free */
	uint32_t mask, n;
};
struct policy {
	enum egress_mode mode;
	char *block;
	struct rules allow, deny;
};
/* Takes `head` and the names behind it as the front sent them; 0 or -errno, and then *ret is
 * untouched. */
int policy_parse(const struct egress_policy *head, const char *names, struct policy *ret);
void policy_free(struct policy *p);
/* name: as name_clean gives it. */
bool policy_permits(const struct policy *p, const char *name);
static inline bool policy_has_rules(const struct policy *p)
{
	return p->mode == EGRESS_ALLOWLIST || p->deny.n > 0;
}

/* Lower case, one trailing dot gone, labels of 1 to 63 of [a-z0-9_-], not an address: 0, else
 * -EINVAL. to: EGRESS_NAME_MAX + 1 bytes. */
int name_clean(const char *s, size_t len, char *to);

#endif
