/* SPDX-License-Identifier: MIT */
/*
 * Endpoints as objects: their place in a device's table, how many a device may
 * have, and their end. A device's completion queue has room for everything that
 * its endpoints may have on the wire at once, so it cannot overflow.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"

#define DRAIN_MS 2000		/* flushing takes the device microseconds */

/* ---- capacity ---- */

static bool try_reserve(struct sf_rdma_dev *dev, unsigned int wrs)
{
	if (atomic_fetch_add(&dev->cq_used, wrs) + wrs <= dev->ctx->cq_depth)
		return true;
	atomic_fetch_sub(&dev->cq_used, wrs);
	return false;
}

static bool is_idle(const struct sf_rdma_endpoint *ep,
		    const struct sf_rdma_dev *dev)
{
	return ep->dev == dev && !ep->draining && !atomic_load(&ep->taken);
}

bool sf_rdma_dev_evict(struct sf_rdma_dev *dev)
{
	struct sf_rdma *rdma = dev->rdma;
	struct sf_rdma_endpoint *ep, *oldest = NULL;
	struct sf_rdma_peer *p, *owner = NULL;
	uint64_t used_ms = UINT64_MAX;
	bool closed = false;

	pthread_mutex_lock(&rdma->lock);
	TAILQ_FOREACH(p, &rdma->peers, link) {
		pthread_mutex_lock(&p->lock);
		TAILQ_FOREACH(ep, &p->endpoints, link) {
			if (!is_idle(ep, dev) || ep->used_ms >= used_ms)
				continue;
			used_ms = ep->used_ms;
			owner = p;
		}
		pthread_mutex_unlock(&p->lock);
	}
	if (owner) {
		/* Meanwhile it may be busy, or gone. */
		pthread_mutex_lock(&owner->lock);
		TAILQ_FOREACH(ep, &owner->endpoints, link)
			if (is_idle(ep, dev) && ep->used_ms == used_ms)
				oldest = ep;
		if (oldest) {
			sf_rdma_endpoint_retire(oldest, true);
			closed = true;
		}
		pthread_mutex_unlock(&owner->lock);
	}
	pthread_mutex_unlock(&rdma->lock);
	return closed;
}

int sf_rdma_dev_reserve(struct sf_rdma_dev *dev, unsigned int wrs)
{
	/* The limit that was configured is a wish: if nothing is idle, a few
	 * more are better than a transfer that waits. */
	if (atomic_load(&dev->nr_endpoints) >= dev->rdma->config.max_endpoints)
		sf_rdma_dev_evict(dev);
	if (atomic_load(&dev->nr_endpoints) < SF_RDMA_TABLE_SIZE &&
	    try_reserve(dev, wrs)) {
		atomic_fetch_add(&dev->nr_endpoints, 1);
		return 0;
	}
	sf_rdma_dev_evict(dev);
	return -EAGAIN;
}

void sf_rdma_dev_unreserve(struct sf_rdma_dev *dev, unsigned int wrs)
{
	atomic_fetch_sub(&dev->cq_used, wrs);
	atomic_fetch_sub(&dev->nr_endpoints, 1);
}

/* ---- birth and death ---- */

static int enlist(struct sf_rdma_endpoint *ep)
{
	struct sf_rdma_dev *dev = ep->dev;
	int ret = -EAGAIN;

	pthread_mutex_lock(&dev->table_lock);
	for (uint32_t i = 0; i < SF_RDMA_TABLE_SIZE; i++) {
		if (atomic_load(&dev->table[i]))
			continue;
		ep->id = i;
		ep->generation = ++dev->generation;
		atomic_store(&dev->table[i], ep);
		ret = 0;
		break;
	}
	pthread_mutex_unlock(&dev->table_lock);
	return ret;
}

int sf_rdma_endpoint_new(struct sf_rdma_endpoint **out,
			 struct sf_rdma_dev *dev, struct sf_rdma_qps *qps)
{
	struct sf_rdma_endpoint *ep;
	struct sf_rdma_slot *slots;
	int ret;

	ep = calloc(1, sizeof(*ep) + qps->nr * sizeof(ep->lanes[0]));
	slots = calloc((size_t)qps->nr * qps->depth, sizeof(*slots));
	if (!ep || !slots) {
		free(ep);
		free(slots);
		return -ENOMEM;
	}
	ep->dev = dev;
	ep->reserved = qps->nr * qps->depth;
	ep->qps = *qps;
	ep->nr_lanes = qps->nr;
	ep->depth = qps->depth;
	ep->used_ms = sf_now_ms();
	for (unsigned int i = 0; i < qps->nr; i++)
		ep->lanes[i].ring = slots + (size_t)i * qps->depth;
	ret = enlist(ep);
	if (ret) {
		free(slots);
		free(ep);
		return ret;
	}
	*out = ep;
	return 0;
}

void sf_rdma_endpoint_attach(struct sf_rdma_endpoint *ep,
			     struct sf_rdma_pair *pair)
{
	struct sf_rdma_peer *p = pair->peer;

	ep->peer = p;
	ep->pair = pair;
	pair->ep = ep;
	TAILQ_INSERT_TAIL(&p->endpoints, ep, link);
	/* Whoever finds it there sees its peer too. */
	atomic_store(&ep->dev->table[ep->id], ep);
}

void sf_rdma_endpoint_unlist(struct sf_rdma_endpoint *ep)
{
	atomic_store(&ep->dev->table[ep->id], NULL);
	sf_rdma_context_sync(ep->dev->ctx);
}

void sf_rdma_endpoint_free(struct sf_rdma_endpoint *ep)
{
	sf_rdma_dev_unreserve(ep->dev, ep->reserved);
	sf_rdma_bounce_free(ep->bounce);
	free(ep->lanes[0].ring);
	free(ep);
}

void sf_rdma_endpoint_retire(struct sf_rdma_endpoint *ep, bool forgiving)
{
	if (ep->draining)
		return;
	ep->draining = true;
	ep->forgiving = forgiving;
	ep->pair->ep = NULL;
	sf_rdma_qps_fail(&ep->qps);
	sf_rdma_endpoint_drop(ep, false);
	/* A device that is gone flushes nothing. */
	ep->drain_until_ms = sf_now_ms() +
			     (atomic_load(&ep->dev->ctx->fatal) ? 0 : DRAIN_MS);
	sf_rdma_reaper_add(ep->dev->rdma->reaper, ep);
}

void sf_rdma_dev_retire_all(struct sf_rdma_dev *dev)
{
	struct sf_rdma *rdma = dev->rdma;
	struct sf_rdma_endpoint *ep;
	struct sf_rdma_peer *p;

	pthread_mutex_lock(&rdma->lock);
	TAILQ_FOREACH(p, &rdma->peers, link) {
		pthread_mutex_lock(&p->lock);
		TAILQ_FOREACH(ep, &p->endpoints, link)
			if (ep->dev == dev)
				sf_rdma_endpoint_retire(ep, false);
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&rdma->lock);
}
