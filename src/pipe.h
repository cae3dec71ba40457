/* SPDX-License-Identifier: MIT */
/*
 * A bounded pool of pipes, for transports that can hand over a read's payload
 * as pipe contents (pages that came off a socket) in place of memory.
 *
 * Thread-safe.
 */
#ifndef SF_PIPE_H
#define SF_PIPE_H

#include <stddef.h>

struct sf_pipe_pool;

struct sf_pipe {
	int rd, wr;		/* both O_NONBLOCK | O_CLOEXEC */
	size_t capacity;	/* bytes, as the kernel granted them */
	size_t filled;		/* bytes in it now; kept by its holder */
	struct sf_pipe *next;	/* for lists of its holder */
};

/* Up to NR_MAX pipes of about CAPACITY bytes each, made when first needed. The
 * kernel may grant less (fs.pipe-max-size). -ENOMEM. */
int sf_pipe_pool_new(struct sf_pipe_pool **out, unsigned int nr_max,
		     size_t capacity);
void sf_pipe_pool_free(struct sf_pipe_pool *pool);

/* An empty pipe, or NULL when none is free and none can be made: use memory. */
struct sf_pipe *sf_pipe_get(struct sf_pipe_pool *pool);
/* Give a pipe back; contents left in it are thrown away. NULL is fine. */
void sf_pipe_put(struct sf_pipe_pool *pool, struct sf_pipe *p);

#endif
