/* SPDX-License-Identifier: MIT */
/*
 * The pool of pipes. Pipes are made when first needed and kept until the pool
 * goes: making one costs more than the splice it serves. One short lock.
 */
#include "config.h"
#include "pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct sf_pipe_pool {
	pthread_mutex_t lock;
	struct sf_pipe *idle;	/* under lock */
	unsigned int nr_made;	/* under lock */
	unsigned int nr_max;
	size_t capacity;
};

int sf_pipe_pool_new(struct sf_pipe_pool **out, unsigned int nr_max,
		     size_t capacity)
{
	struct sf_pipe_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pthread_mutex_init(&pool->lock, NULL);
	pool->nr_max = nr_max;
	pool->capacity = capacity;
	*out = pool;
	return 0;
}

static void pipe_free(struct sf_pipe *p)
{
	close(p->rd);
	close(p->wr);
	free(p);
}

void sf_pipe_pool_free(struct sf_pipe_pool *pool)
{
	struct sf_pipe *p;

	if (!pool)
		return;
	while ((p = pool->idle)) {
		pool->idle = p->next;
		pipe_free(p);
	}
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static struct sf_pipe *pipe_make(size_t capacity)
{
	struct sf_pipe *p = calloc(1, sizeof(*p));
	int fds[2], size;

	if (!p)
		return NULL;
	if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0) {
		free(p);
		return NULL;
	}
	p->rd = fds[0];
	p->wr = fds[1];
	/* Past fs.pipe-max-size (or the user's page quota) the kernel says no:
	 * settle for what it gives, halving from there. */
	while (fcntl(p->wr, F_SETPIPE_SZ, (int)capacity) < 0 &&
	       capacity > 65536)
		capacity /= 2;
	size = fcntl(p->wr, F_GETPIPE_SZ);
	p->capacity = size > 0 ? (size_t)size : 65536;
	return p;
}

struct sf_pipe *sf_pipe_get(struct sf_pipe_pool *pool)
{
	struct sf_pipe *p;
	bool make = false;

	pthread_mutex_lock(&pool->lock);
	p = pool->idle;
	if (p)
		pool->idle = p->next;
	else if (pool->nr_made < pool->nr_max)
		make = ++pool->nr_made;
	pthread_mutex_unlock(&pool->lock);

	if (make) {
		p = pipe_make(pool->capacity);
		if (!p) {
			pthread_mutex_lock(&pool->lock);
			pool->nr_made--;
			pthread_mutex_unlock(&pool->lock);
		}
	}
	if (p) {
		p->filled = 0;
		p->next = NULL;
	}
	return p;
}

static void pipe_drain(struct sf_pipe *p)
{
	char waste[4096];

	while (p->filled) {
		ssize_t n = read(p->rd, waste, sizeof(waste));

		if (n <= 0)
			return;
		p->filled -= (size_t)n < p->filled ? (size_t)n : p->filled;
	}
}

void sf_pipe_put(struct sf_pipe_pool *pool, struct sf_pipe *p)
{
	if (!p)
		return;
	pipe_drain(p);
	if (p->filled) {
		/* Its contents are not what its holder believed: never lend
		 * it again, or the next reader would get these bytes. */
		pipe_free(p);
		pthread_mutex_lock(&pool->lock);
		pool->nr_made--;
		pthread_mutex_unlock(&pool->lock);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	p->next = pool->idle;
	pool->idle = p;
	pthread_mutex_unlock(&pool->lock);
}
