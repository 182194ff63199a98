/* SPDX-License-Identifier: MIT */
/* Threads that nobody joins. */
#ifndef COMMON_SYS_THREAD_H
#define COMMON_SYS_THREAD_H

#include <stddef.h>

/* Starts one; stack 0: as large as the system makes it. 0 or -errno, then fn was not called. */
int thread_detached(void *(*fn)(void *arg), void *arg, size_t stack);

#endif
