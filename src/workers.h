/* SPDX-License-Identifier: MIT */
/* A small pool of threads for work that may block on a slow metadata store,
 * so that session and transport threads never do. */
#ifndef SF_WORKERS_H
#define SF_WORKERS_H

struct sf_workers;

/* Up to NR_THREADS, started when there is work for them. NAME (15 bytes at
 * most) becomes their name. -ENOMEM, -EAGAIN. */
int sf_workers_new(struct sf_workers **out, unsigned int nr_threads,
		   const char *name);
/* Runs what is queued, then joins the threads. NULL is fine. */
void sf_workers_free(struct sf_workers *w);
/* Queue fn(arg); it runs exactly once, on one of the threads. -ENOMEM. */
int sf_workers_run(struct sf_workers *w, void (*fn)(void *arg), void *arg);

#endif
