/* SPDX-License-Identifier: MIT */
/* Threads for what may last. */
#include "sbxfs/pool.h"

#include "common/sys/deadline.h"
#include "common/sys/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 1024
#define IDLE_MS 5000
#define STACK_BYTES (256u * 1024)

struct job {
	struct job *next;
	void (*fn)(void *);
	void *arg;
};
struct pool {
	pthread_mutex_t lock;
	pthread_cond_t work, ended;
	struct job *first, **last;
	unsigned threads, idle, queued;
	bool stopping;
};

int pool_new(struct pool **ret)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->ended, NULL);
	p->last = &p->first;
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->work);
	while (p->threads)
		pthread_cond_wait(&p->ended, &p->lock);
	pthread_mutex_unlock(&p->lock);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->ended);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Lock held. False: nothing came for a while, or the end. */
static bool wait_for_job(struct pool *p)
{
	struct timespec until = deadline_ms(IDLE_MS);

	p->idle++;
	while (!p->first && !p->stopping && cond_wait_until(&p->work, &p->lock, &until))
		;
	p->idle--;
	return p->first != NULL;
}

static void *worker(void *arg)
{
	struct pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (wait_for_job(p)) {
		struct job *j = p->first;

		p->first = j->next;
		if (!p->first)
			p->last = &p->first;
		p->queued--;
		pthread_mutex_unlock(&p->lock);
		j->fn(j->arg);
		free(j);
		pthread_mutex_lock(&p->lock);
	}
	p->threads--;
	pthread_cond_broadcast(&p->ended);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static int thread_start(struct pool *p)
{
	return thread_detached(worker, p, STACK_BYTES);
}

int pool_run(struct pool *p, void (*fn)(void *), void *arg)
{
	struct job *j = calloc(1, sizeof(*j));
	int rc = 0;

	if (!j)
		return -ENOMEM;
	j->fn = fn;
	j->arg = arg;
	pthread_mutex_lock(&p->lock);
	if (p->idle <= p->queued) {
		rc = p->threads < THREADS_MAX && !p->stopping ? thread_start(p) : -EAGAIN;
		if (rc == 0)
			p->threads++;
	}
	if (rc == 0) {
		*p->last = j;
		p->last = &j->next;
		p->queued++;
		pthread_cond_signal(&p->work);
	}
	pthread_mutex_unlock(&p->lock);
	if (rc < 0)
		free(j);
	return rc;
}
