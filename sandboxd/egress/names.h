/* SPDX-License-Identifier: MIT */
/* Placeholder addresses: in mode allowlist a name is answered with an address of 198.18.0.0/15 that
 * stands for it in this sandbox only. A later connection to it tells the name, whatever is spoken
 * on it. The table is bounded; the name that was asked for longest ago makes room. Addresses are
 * given out in turn, so that one that was taken back is not soon another name. */
#ifndef SANDBOXD_EGRESS_NAMES_H
#define SANDBOXD_EGRESS_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define NAMES_MAX     2048
#define NAMES_BUCKETS 256

struct name_entry;
struct names {
	struct name_entry **by_name, **by_addr; /* made with the first name */
	struct name_entry *first, *last;        /* asked for last; longest ago */
	uint32_t n, next;
};
/* Address (host order) that stands for the name; 0: out of memory. */
uint32_t names_give(struct names *t, const char *name);
/* The name that the address stands for, or NULL. */
const char *names_find(const struct names *t, uint32_t addr);
/* Forgets every name that keep() does not want. */
void names_filter(
	struct names *t, bool (*keep)(const void *arg, const char *name), const void *arg);
void names_free(struct names *t);

#endif
