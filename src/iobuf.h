/* SPDX-License-Identifier: MIT */
/*
 * The pool of I/O buffers: NUMA-local memory that every transport has
 * registered, in pieces big enough for the largest FUSE request. A request is
 * received into one, its payload goes to the wire from there, and a reply goes
 * to the kernel from there; payload is never copied in user space.
 *
 * A peer may hold at most a share of the pool. Past its share, or when the
 * pool is empty, a buffer comes from plain memory instead ("overflow": not
 * registered, given back to the system on put), so that a dead peer with many
 * waiting requests costs address space and nobody else's progress.
 *
 * Thread-safe. Get and put take one short lock of the caller's NUMA node's
 * list.
 */
#ifndef SF_IOBUF_H
#define SF_IOBUF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct sf_iobuf_pool;
struct sf_mem;			/* transport.h: a registration */

/* What one peer holds; embed one per peer, zeroed. */
struct sf_share {
	atomic_uint held;
};

struct sf_iobuf {
	char *mem;		/* page aligned */
	size_t size;		/* bytes of mem */
	int node;		/* NUMA node of mem, -1 unknown */
	bool overflow;		/* plain memory, in no registered region */
	/* private to iobuf.c */
	struct sf_share *share;
	struct sf_iobuf *next;
};

/*
 * A pool of POOL_BYTES / BUF_BYTES buffers, at least 4, split evenly over the
 * NUMA nodes that have CPUs; huge pages are asked for, not required. -ENOMEM.
 */
int sf_iobuf_pool_new(struct sf_iobuf_pool **out, size_t pool_bytes,
		      size_t buf_bytes);
void sf_iobuf_pool_free(struct sf_iobuf_pool *pool);

/* A buffer for a thread that has no peer in mind yet, from the calling
 * thread's node if possible. NULL only when out of memory altogether. */
struct sf_iobuf *sf_iobuf_get(struct sf_iobuf_pool *pool);
void sf_iobuf_put(struct sf_iobuf_pool *pool, struct sf_iobuf *buf);

/*
 * Count BUF as held by SHARE until it is put. When the share (half the pool) is
 * used up, the peer must make do with overflow memory: bytes [off, off+len)
 * of BUF, a payload already received, are copied there (the one copy there is,
 * for a peer that is already far behind) and BUF goes back to the pool.
 * Returns the buffer to use, BUF or its replacement; NULL: out of memory, BUF
 * is unchanged and not charged.
 */
struct sf_iobuf *sf_iobuf_charge(struct sf_iobuf_pool *pool,
				 struct sf_iobuf *buf, struct sf_share *share,
				 size_t off, size_t len);

/* The contiguous regions the pool is made of, for registering them with
 * transports: region I, or false past the last. */
bool sf_iobuf_region(struct sf_iobuf_pool *pool, unsigned int i, void **base,
		     size_t *len, int *node);

struct sf_iobuf_stats {
	unsigned int total, free, overflow;
};
void sf_iobuf_stats(struct sf_iobuf_pool *pool, struct sf_iobuf_stats *st);

#endif
