/* SPDX-License-Identifier: MIT */
#include "common/sys/thread.h"

#include <pthread.h>

int thread_detached(void *(*fn)(void *arg), void *arg, size_t stack)
{
	pthread_attr_t attr;
	pthread_t t;
	int rc = pthread_attr_init(&attr);

	if (rc != 0)
		return -rc;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack)
		pthread_attr_setstacksize(&attr, stack);
	rc = pthread_create(&t, &attr, fn, arg);
	pthread_attr_destroy(&attr);
	return -rc;
}
