/* SPDX-License-Identifier: MIT */
#include "sandboxd/egress/policy.h"

#include "common/sys/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash(const char *s, size_t n)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)s[i]) * 16777619u;
	return h ^ h >> 15;
}

static uint32_t *slot_of(const struct rules *r, const char *block, const char *s, size_t n)
{
	uint32_t i = hash(s, n) & r->mask;

	while (r->slots[i]) {
		const char *at = block + r->slots[i] - 1;
		if (strncmp(at, s, n) == 0 && at[n] == 0)
			break;
		i = (i + 1) & r->mask;
	}
	return &r->slots[i];
}

static bool has(const struct rules *r, const char *block, const char *s, size_t n)
{
	return r->n && *slot_of(r, block, s, n);
}

/* "*.x" is kept under ".x", so that a name's tail is looked up as it stands. */
static bool covers(const struct rules *r, const char *block, const char *name)
{
	size_t n = strlen(name);

	if (!r->n)
		return false;
	if (has(r, block, name, n))
		return true;
	for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
		if (has(r, block, dot, n - (size_t)(dot - name)))
			return true;
	return false;
}

/* Room for twice as many, a power of two. */
static int rules_make(struct rules *r, uint32_t n)
{
	uint32_t size = 4;

	*r = (struct rules){ 0 };
	if (n == 0)
		return 0;
	while (size < n * 2)
		size *= 2;
	r->slots = calloc(size, sizeof(*r->slots));
	if (!r->slots)
		return -ENOMEM;
	r->mask = size - 1;
	return 0;
}

static int rule_ok(const char *s, size_t n)
{
	char clean[EGRESS_NAME_MAX + 1];

	if (n > 2 && s[0] == '*' && s[1] == '.') {
		s += 2;
		n -= 2;
	}
	return name_clean(s, n, clean) == 0 && strlen(clean) == n && memcmp(clean, s, n) == 0;
}

/* Fills r with the next n names of the block; where they end, or -EINVAL. */
static int64_t rules_fill(struct rules *r, const char *block, size_t at, size_t len, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const char *s = block + at;
		size_t k = strnlen(s, len - at);
		if (k == len - at || !rule_ok(s, k))
			return -EINVAL;
		size_t skip = s[0] == '*' ? 1 : 0;
		uint32_t *slot = slot_of(r, block, s + skip, k - skip);
		if (!*slot) {
			*slot = (uint32_t)(at + skip) + 1;
			r->n++;
		}
		at += k + 1;
	}
	return (int64_t)at;
}

int policy_parse(const struct egress_policy *h, const char *names, struct policy *ret)
{
	struct policy p = { .mode = (enum egress_mode)h->mode };
	int64_t at = 0;
	int r = -EINVAL;

	if (h->mode > EGRESS_OPEN || h->len > PROTO_FRAME_MAX || h->nallow > h->len ||
		h->ndeny > h->len)
		return -EINVAL;
	p.block = malloc(h->len + 1u);
	if (!p.block)
		return -ENOMEM;
	memcpy(p.block, names, h->len);
	p.block[h->len] = 0;
	if ((r = rules_make(&p.allow, h->nallow)) == 0)
		r = rules_make(&p.deny, h->ndeny);
	if (r == 0)
		at = rules_fill(&p.allow, p.block, 0, h->len, h->nallow);
	if (r == 0 && at >= 0)
		at = rules_fill(&p.deny, p.block, (size_t)at, h->len, h->ndeny);
	if (r == 0 && at != (int64_t)h->len)
		r = -EINVAL;
	if (r < 0) {
		policy_free(&p);
		return r;
	}
	*ret = p;
	return 0;
}

void policy_free(struct policy *p)
{
	free(p->block);
	free(p->allow.slots);
	free(p->deny.slots);
	*p = (struct policy){ .mode = EGRESS_NONE };
}

bool policy_permits(const struct policy *p, const char *name)
{
	if (p->mode == EGRESS_NONE || covers(&p->deny, p->block, name))
		return false;
	return p->mode == EGRESS_OPEN || covers(&p->allow, p->block, name);
}

static bool label_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

int name_clean(const char *s, size_t len, char *to)
{
	size_t label = 0;
	bool digits = true;

	if (len && s[len - 1] == '.')
		len--;
	if (len == 0 || len > EGRESS_NAME_MAX)
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		char c = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i];
		if (c == '.') {
			if (label == 0)
				return -EINVAL;
			label = 0;
			digits = true;
		} else if (!label_char(c) || ++label > 63) {
			return -EINVAL;
		} else if (c < '0' || c > '9') {
			digits = false;
		}
		to[i] = c;
	}
	if (label == 0 || digits) /* a last label of digits makes it an address */
		return -EINVAL;
	to[len] = 0;
	return 0;
}
