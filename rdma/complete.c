/* SPDX-License-Identifier: MIT */
/*
 * What a device's thread brings: completions, to be led to the endpoint they
 * belong to, and events of the device. A completion's wr_id says which table
 * entry, which generation of it, which queue pair and which slot; one that
 * comes for an endpoint that is no longer there is nobody's.
 */
#include "config.h"
#include "rdma/initiator.h"

#include "clock.h"

#define ID_BITS 16
#define GENERATION_BITS 24
#define LANE_BITS 8
#define INDEX_BITS 16

#define REST_MS 2000		/* of a port that has come up */

uint64_t sf_rdma_wr_id(const struct sf_rdma_endpoint *ep, unsigned int lane,
		       uint32_t index)
{
	uint64_t id = ep->id;

	id = id << GENERATION_BITS |
	     (ep->generation & ((1u << GENERATION_BITS) - 1));
	id = id << LANE_BITS | lane;
	return id << INDEX_BITS | (index & ((1u << INDEX_BITS) - 1));
}

static uint32_t take_bits(uint64_t *id, unsigned int bits)
{
	uint32_t v = (uint32_t)(*id & ((1ull << bits) - 1));

	*id >>= bits;
	return v;
}

/* The endpoint lives until the callback that asks has returned. */
static struct sf_rdma_endpoint *find(struct sf_rdma_dev *dev, uint64_t id,
				     unsigned int *lane, uint32_t *index)
{
	struct sf_rdma_endpoint *ep;
	uint32_t generation;

	*index = take_bits(&id, INDEX_BITS);
	*lane = take_bits(&id, LANE_BITS);
	generation = take_bits(&id, GENERATION_BITS);
	ep = id < SF_RDMA_TABLE_SIZE ? atomic_load(&dev->table[id]) : NULL;
	if (!ep || (ep->generation & ((1u << GENERATION_BITS) - 1)) !=
			   generation || *lane >= ep->nr_lanes)
		return NULL;
	return ep;
}

static void on_completions(void *arg, const struct ibv_wc *wc, unsigned int nr)
{
	struct sf_rdma_dev *dev = arg;
	struct sf_rdma_peer *p = NULL;
	struct sf_rdma_endpoint *ep;
	unsigned int lane;
	uint32_t index;

	for (unsigned int i = 0; i < nr; i++) {
		ep = find(dev, wc[i].wr_id, &lane, &index);
		if (!ep)
			continue;
		if (ep->peer != p) {
			if (p)
				sf_rdma_peer_leave(p);
			p = ep->peer;
			sf_rdma_peer_enter(p);
		}
		sf_rdma_endpoint_complete(ep, lane, index, &wc[i]);
		/* Who waits for room may go on. */
		p->queue_moved |= !TAILQ_EMPTY(&p->queue);
	}
	if (p)
		sf_rdma_peer_leave(p);
}

static void on_event(void *arg, enum sf_rdma_event event)
{
	struct sf_rdma_dev *dev = arg;

	switch (event) {
	case SF_RDMA_PORT_UP:
		atomic_store(&dev->rest_until_ms, sf_now_ms() + REST_MS);
		break;
	case SF_RDMA_PORT_DOWN:
	case SF_RDMA_GID_CHANGED:
	case SF_RDMA_FATAL:
		sf_rdma_dev_retire_all(dev);
		break;
	}
}

const struct sf_rdma_handlers sf_rdma_initiator_handlers = {
	.completions = on_completions,
	.event = on_event,
};
