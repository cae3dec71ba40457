/* SPDX-License-Identifier: MIT */
/* Threads of the library's own. */
#ifndef SF_THREAD_H
#define SF_THREAD_H

#include <pthread.h>

/* Run FN(ARG) on a new thread that takes no signals: those are for the threads
 * of the program. To be joined or detached. A negative errno. */
int sf_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg);

#endif
