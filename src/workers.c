/* SPDX-License-Identifier: MIT */
/*
 * A pool of threads and one queue, first in, first out. Threads are started
 * when there are more jobs than threads that wait for one, and stay. The lock
 * guards the queue only; jobs run without it. Knows nothing of what the jobs
 * do: a job that blocks holds its thread, so callers bound their waits.
 */
#include "config.h"
#include "workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "thread.h"

struct job {
	STAILQ_ENTRY(job) link;
	void (*fn)(void *arg);
	void *arg;
};

struct sf_workers {
	pthread_mutex_t lock;
	pthread_cond_t work;	  /* queue or stop changed */
	STAILQ_HEAD(, job) queue; /* under lock */
	unsigned int nr_queued;	  /* under lock */
	unsigned int nr_idle;	  /* under lock: threads that wait */
	bool stop;		  /* under lock */
	char name[16];
	unsigned int max_threads;
	unsigned int nr_threads;  /* under lock; constant once stop is set */
	pthread_t threads[];
};

/* The next job, or NULL when the pool ends and nothing is left to run. */
static struct job *next_job(struct sf_workers *w)
{
	struct job *job;

	pthread_mutex_lock(&w->lock);
	w->nr_idle++;
	while (STAILQ_EMPTY(&w->queue) && !w->stop)
		pthread_cond_wait(&w->work, &w->lock);
	w->nr_idle--;
	job = STAILQ_FIRST(&w->queue);
	if (job) {
		STAILQ_REMOVE_HEAD(&w->queue, link);
		w->nr_queued--;
	}
	pthread_mutex_unlock(&w->lock);
	return job;
}

static void *worker_main(void *arg)
{
	struct sf_workers *w = arg;
	struct job *job;

	pthread_setname_np(pthread_self(), w->name);
	while ((job = next_job(w))) {
		job->fn(job->arg);
		free(job);
	}
	return NULL;
}

/* w->lock held, or nobody else knows W yet. */
static int start_thread(struct sf_workers *w)
{
	int res = sf_thread_start(&w->threads[w->nr_threads], worker_main, w);

	if (!res)
		w->nr_threads++;
	return res;
}

int sf_workers_new(struct sf_workers **out, unsigned int nr_threads,
		   const char *name)
{
	struct sf_workers *w;
	int res;

	if (!nr_threads)
		nr_threads = 1;
	w = calloc(1, sizeof(*w) + nr_threads * sizeof(w->threads[0]));
	if (!w)
		return -ENOMEM;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	STAILQ_INIT(&w->queue);
	strncpy(w->name, name, sizeof(w->name) - 1);
	w->max_threads = nr_threads;
	/* What is queued must run: one at least there is. */
	res = start_thread(w);
	if (res) {
		sf_workers_free(w);
		return res;
	}
	*out = w;
	return 0;
}

void sf_workers_free(struct sf_workers *w)
{
	unsigned int i;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (i = 0; i < w->nr_threads; i++)
		pthread_join(w->threads[i], NULL);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Also from a running job: what it queues runs before free returns. */
int sf_workers_run(struct sf_workers *w, void (*fn)(void *arg), void *arg)
{
	struct job *job = malloc(sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->fn = fn;
	job->arg = arg;
	pthread_mutex_lock(&w->lock);
	STAILQ_INSERT_TAIL(&w->queue, job, link);
	/* If there can be no more, those that are will get to it. */
	if (++w->nr_queued > w->nr_idle && w->nr_threads < w->max_threads &&
	    !w->stop)
		start_thread(w);
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return 0;
}
