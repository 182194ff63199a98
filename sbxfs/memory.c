/* SPDX-License-Identifier: MIT */
#include "sbxfs/memory.h"

#include "sbxfs/pool.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>

#define A_LOT (32u << 20)
#define LEAST (4u << 20) /* less is not worth looking through all that is free */

static atomic_size_t freed; /* since memory was given back */

/* True: the caller does, and nobody else. */
static bool is_due(size_t least)
{
	size_t n = atomic_load_explicit(&freed, memory_order_relaxed);

	return n >= least && atomic_compare_exchange_strong(&freed, &n, 0);
}

static void give_back(void *arg)
{
	(void)arg;
	malloc_trim(0);
}

void memory_freed(size_t bytes)
{
	atomic_fetch_add_explicit(&freed, bytes, memory_order_relaxed);
}

void memory_relieve(struct pool *pool)
{
	if (pool && is_due(A_LOT))
		(void)pool_run(pool, give_back, NULL);
}

void memory_tidy(void)
{
	if (is_due(LEAST))
		give_back(NULL);
}
