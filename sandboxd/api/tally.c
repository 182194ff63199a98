/* SPDX-License-Identifier: MIT */
#include "sandboxd/api/tally.h"

#define HASH_NONFATAL_OOM 1
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define REF_LEN 64 /* longer than any id or name: such a request finds nothing and is not counted */

struct entry {
	char ref[REF_LEN];
	unsigned n;
	UT_hash_handle hh;
};
struct tally {
	unsigned most; /* fixed */
	pthread_mutex_t lock;
	struct entry *entries; /* under lock; only those above 0 */
};

struct tally *tally_new(unsigned most)
{
	struct tally *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->most = most;
	pthread_mutex_init(&t->lock, NULL);
	return t;
}

void tally_free(struct tally *t)
{
	struct entry *e, *next;

	if (!t)
		return;
	HASH_ITER(hh, t->entries, e, next) {
		HASH_DEL(t->entries, e);
		free(e);
	}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static struct entry *add(struct tally *t, const char *ref)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	memcpy(e->ref, ref, strlen(ref) + 1);
	HASH_ADD_STR(t->entries, ref, e);
	if (!e->hh.tbl) {
		free(e);
		return NULL;
	}
	return e;
}

bool tally_enter(struct tally *t, const char *ref)
{
	struct entry *e;
	bool ok;

	if (strlen(ref) >= REF_LEN)
		return true;
	pthread_mutex_lock(&t->lock);
	HASH_FIND_STR(t->entries, ref, e);
	if (!e)
		e = add(t, ref);
	ok = e && e->n < t->most;
	if (ok)
		e->n++;
	pthread_mutex_unlock(&t->lock);
	return ok;
}

void tally_leave(struct tally *t, const char *ref)
{
	struct entry *e;

	if (strlen(ref) >= REF_LEN)
		return;
	pthread_mutex_lock(&t->lock);
	HASH_FIND_STR(t->entries, ref, e);
	if (e && --e->n == 0) {
		HASH_DEL(t->entries, e);
		free(e);
	}
	pthread_mutex_unlock(&t->lock);
}
