/* SPDX-License-Identifier: MIT */
/*
 * Blocking handlers of the handshake server: a pool of threads, and the list of
 * what they have done, which the server's thread empties when the descriptor
 * says so. The lock guards that list only.
 */
#include "config.h"
#include "handshake_work.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "workers.h"

struct sf_handshake_work {
	sf_handshake_handler *handler;
	void *arg;
	struct sf_workers *workers;
	int fd;
	atomic_bool stopping;
	pthread_mutex_t lock;
	STAILQ_HEAD(, sf_handshake_job) done;	/* under lock */
};

static void run(void *arg)
{
	struct sf_handshake_job *job = arg;
	struct sf_handshake_work *w = job->work;

	if (!atomic_load(&w->stopping))
		job->reply = w->handler(w->arg, job->type, job->body,
					job->len);
	pthread_mutex_lock(&w->lock);
	STAILQ_INSERT_TAIL(&w->done, job, link);
	pthread_mutex_unlock(&w->lock);
	eventfd_write(w->fd, 1);
}

int sf_handshake_work_new(struct sf_handshake_work **out,
			  unsigned int nr_threads,
			  sf_handshake_handler *handler, void *arg)
{
	struct sf_handshake_work *w = calloc(1, sizeof(*w));
	int res;

	if (!w)
		return -ENOMEM;
	w->handler = handler;
	w->arg = arg;
	pthread_mutex_init(&w->lock, NULL);
	STAILQ_INIT(&w->done);
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	res = w->fd < 0 ? -errno : sf_workers_new(&w->workers, nr_threads,
						  "sf-handshake-w");
	if (res < 0)
		sf_handshake_work_free(w);
	else
		*out = w;
	return res;
}

int sf_handshake_work_fd(const struct sf_handshake_work *w)
{
	return w->fd;
}

int sf_handshake_work_add(struct sf_handshake_work *w,
			  struct sf_handshake_job *job)
{
	job->work = w;
	job->reply = NULL;
	return sf_workers_run(w->workers, run, job);
}

/* The descriptor is emptied first: what comes after that makes it readable
 * again. */
struct sf_handshake_job *sf_handshake_work_next(struct sf_handshake_work *w)
{
	struct sf_handshake_job *job;
	eventfd_t n;

	eventfd_read(w->fd, &n);
	pthread_mutex_lock(&w->lock);
	job = STAILQ_FIRST(&w->done);
	if (job)
		STAILQ_REMOVE_HEAD(&w->done, link);
	pthread_mutex_unlock(&w->lock);
	return job;
}

void sf_handshake_work_stop(struct sf_handshake_work *w)
{
	atomic_store(&w->stopping, true);
	sf_workers_free(w->workers);
	w->workers = NULL;
}

void sf_handshake_work_free(struct sf_handshake_work *w)
{
	if (!w)
		return;
	sf_handshake_work_stop(w);
	if (w->fd >= 0)
		close(w->fd);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
