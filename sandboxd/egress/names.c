/* SPDX-License-Identifier: MIT */
#include "sandboxd/egress/names.h"

#include "sandboxd/proto/egress.h"

#include <stdlib.h>
#include <string.h>

#define ADDRESSES (~EGRESS_FAKE_MASK - 1) /* the first and the last are not used */

struct name_entry {
	struct name_entry *next_name, *next_addr;
	struct name_entry *newer, *older;
	uint32_t addr;
	char name[];
};

static uint32_t hash(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return (h ^ h >> 15) % NAMES_BUCKETS;
}

static struct name_entry **at_name(const struct names *t, const char *name)
{
	struct name_entry **p = &t->by_name[hash(name)];

	while (*p && strcmp((*p)->name, name) != 0)
		p = &(*p)->next_name;
	return p;
}

static struct name_entry **at_addr(const struct names *t, uint32_t addr)
{
	struct name_entry **p = &t->by_addr[addr % NAMES_BUCKETS];

	while (*p && (*p)->addr != addr)
		p = &(*p)->next_addr;
	return p;
}

static void unlink_age(struct names *t, struct name_entry *e)
{
	*(e->newer ? &e->newer->older : &t->first) = e->older;
	*(e->older ? &e->older->newer : &t->last) = e->newer;
}

static void link_first(struct names *t, struct name_entry *e)
{
	e->newer = NULL;
	e->older = t->first;
	*(t->first ? &t->first->newer : &t->last) = e;
	t->first = e;
}

static void drop(struct names *t, struct name_entry *e)
{
	*at_name(t, e->name) = e->next_name;
	*at_addr(t, e->addr) = e->next_addr;
	unlink_age(t, e);
	t->n--;
	free(e);
}

static int make_tables(struct names *t)
{
	if (t->by_name)
		return 0;
	t->by_name = calloc(2 * NAMES_BUCKETS, sizeof(*t->by_name));
	if (!t->by_name)
		return -1;
	t->by_addr = t->by_name + NAMES_BUCKETS;
	return 0;
}

static uint32_t free_address(struct names *t)
{
	uint32_t addr;

	do
		addr = EGRESS_FAKE_NET + 1 + t->next++ % ADDRESSES;
	while (*at_addr(t, addr));
	return addr;
}

uint32_t names_give(struct names *t, const char *name)
{
	size_t n = strlen(name) + 1;
	struct name_entry *e;

	if (make_tables(t) < 0)
		return 0;
	e = *at_name(t, name);
	if (e) {
		unlink_age(t, e);
		link_first(t, e);
		return e->addr;
	}
	if (t->n >= NAMES_MAX)
		drop(t, t->last);
	e = calloc(1, sizeof(*e) + n);
	if (!e)
		return 0;
	memcpy(e->name, name, n);
	e->addr = free_address(t);
	*at_name(t, name) = e;
	*at_addr(t, e->addr) = e;
	link_first(t, e);
	t->n++;
	return e->addr;
}

const char *names_find(const struct names *t, uint32_t addr)
{
	const struct name_entry *e = t->by_addr ? *at_addr(t, addr) : NULL;

	return e ? e->name : NULL;
}

void names_filter(struct names *t, bool (*keep)(const void *arg, const char *name), const void *arg)
{
	struct name_entry *older;

	for (struct name_entry *e = t->first; e; e = older) {
		older = e->older;
		if (!keep(arg, e->name))
			drop(t, e);
	}
}

void names_free(struct names *t)
{
	while (t->first)
		drop(t, t->first);
	free(t->by_name);
	*t = (struct names){ 0 };
}
