/* SPDX-License-Identifier: MIT */
/*
 * Memory for I/O whose own is not registered: what did not fit into the pool,
 * the byte of a probe, and everything if the limit on locked memory is too low
 * for the pool. Each endpoint has its own small area, made when it is first
 * needed, so that a peer that hangs holds up nobody else; the price is a copy.
 * The peer's lock is held by all callers.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "clock.h"
#include "err.h"
#include "log.h"

#define CHUNKS 16
#define AGAIN_MS 1000		/* memory that could not be registered */

struct sf_rdma_bounce {
	char *mem;
	struct ibv_mr *mr;
	unsigned int nr_free;
	int free[CHUNKS];
};

#define AREA ((size_t)CHUNKS * SF_RDMA_BOUNCE_CHUNK)

static int make(struct sf_rdma_endpoint *ep)
{
	struct sf_rdma_bounce *b = calloc(1, sizeof(*b));
	struct sf_err err = { 0 };
	int ret;

	if (!b)
		return -ENOMEM;
	b->mem = mmap(NULL, AREA, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->mem == MAP_FAILED) {
		free(b);
		return -ENOMEM;
	}
	ret = sf_rdma_context_register(ep->dev->ctx, b->mem, AREA,
				       IBV_ACCESS_LOCAL_WRITE, &b->mr, &err);
	if (ret) {
		sf_log(LOG_ERR, SF_LOG_RDMA, "%s", err.text);
		sf_rdma_bounce_free(b);
		ep->bounce_ms = sf_now_ms() + AGAIN_MS;
		return -ENOMEM;
	}
	for (int i = 0; i < CHUNKS; i++)
		b->free[b->nr_free++] = i;
	ep->bounce = b;
	return 0;
}

int sf_rdma_bounce_get(struct sf_rdma_endpoint *ep, int *chunk)
{
	int ret;

	if (!ep->bounce) {
		ret = sf_now_ms() < ep->bounce_ms ? -ENOMEM : make(ep);
		if (ret)
			return ret;
	}
	if (!ep->bounce->nr_free)
		return -EAGAIN;
	*chunk = ep->bounce->free[--ep->bounce->nr_free];
	return 0;
}

void sf_rdma_bounce_put(struct sf_rdma_endpoint *ep, int chunk)
{
	ep->bounce->free[ep->bounce->nr_free++] = chunk;
}

char *sf_rdma_bounce_mem(const struct sf_rdma_endpoint *ep, int chunk)
{
	return ep->bounce->mem + (size_t)chunk * SF_RDMA_BOUNCE_CHUNK;
}

uint32_t sf_rdma_bounce_lkey(const struct sf_rdma_endpoint *ep)
{
	return ep->bounce->mr->lkey;
}

void sf_rdma_bounce_free(struct sf_rdma_bounce *b)
{
	if (!b)
		return;
	if (b->mr)
		ibv_dereg_mr(b->mr);
	munmap(b->mem, AREA);
	free(b);
}
