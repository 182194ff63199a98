/* SPDX-License-Identifier: MIT */
#include "sandboxd/api/tally.h"

#include "common/sys/mem.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REF_LEN 64 /* longer than any id or name: such a request finds nothing and is not counted  \
		    */
#define BUCKETS 256

struct entry {
	struct entry *next;
	unsigned n;
	char ref[REF_LEN];
};
struct tally {
	unsigned most; /* fixed */
	pthread_mutex_t lock;
	struct entry *buckets[BUCKETS]; /* under lock; only entries above 0 */
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
	struct entry *e;

	if (!t)
		return;
	for (size_t i = 0; i < BUCKETS; i++)
		while ((e = t->buckets[i])) {
			t->buckets[i] = e->next;
			free(e);
		}
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* The place that points to the entry of `ref`, or to NULL where it would be added. */
static struct entry **find(struct tally *t, const char *ref)
{
	uint32_t h = 2166136261u;
	struct entry **at;

	for (const char *p = ref; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619u;
	at = &t->buckets[h % BUCKETS];
	while (*at && strcmp((*at)->ref, ref))
		at = &(*at)->next;
	return at;
}

bool tally_enter(struct tally *t, const char *ref)
{
	struct entry **at;
	bool ok;

	if (strlen(ref) >= REF_LEN)
		return true;
	pthread_mutex_lock(&t->lock);
	at = find(t, ref);
	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (*at)
			strcpy((*at)->ref, ref);
	}
	ok = *at && (*at)->n < t->most;
	if (ok)
		(*at)->n++;
	pthread_mutex_unlock(&t->lock);
	return ok;
}

void tally_leave(struct tally *t, const char *ref)
{
	struct entry **at, *e;

	if (strlen(ref) >= REF_LEN)
		return;
	pthread_mutex_lock(&t->lock);
	at = find(t, ref);
	e = *at;
	if (e && --e->n == 0) {
		*at = e->next;
		free(e);
	}
	pthread_mutex_unlock(&t->lock);
}
