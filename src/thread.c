/* SPDX-License-Identifier: MIT */
/* A thread inherits the signal mask of its maker, so that is set meanwhile. */
#include "config.h"
#include "thread.h"

#include <signal.h>

int sf_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}
