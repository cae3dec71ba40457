/* SPDX-License-Identifier: MIT */
/*
 * Slots: slices of jobs on the rings of an endpoint's queue pairs (see
 * initiator.h). The peer's lock is held by all callers.
 *
 * Work of a queue pair completes in order, so only the last slice of a job in
 * one posting asks for a completion: its success is that of all before it.
 * Errors are reported for every slice, asked for or not.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "rdma/verdict.h"

static struct sf_rdma_slot *slot_at(const struct sf_rdma_endpoint *ep,
				    unsigned int lane, uint32_t n)
{
	return &ep->lanes[lane].ring[n % ep->depth];
}

static unsigned int lane_taken(const struct sf_rdma_lane *lane)
{
	return lane->tail - lane->head;
}

static bool lane_is_full(const struct sf_rdma_endpoint *ep,
			 const struct sf_rdma_lane *lane)
{
	uint32_t posted = lane->tail - lane->posting_from;

	return lane_taken(lane) >= ep->depth ||
	       (lane->posting && posted >= ep->depth);
}

/* Of those with room, where fewest are waiting. */
static unsigned int best_lane(const struct sf_rdma_endpoint *ep)
{
	const struct sf_rdma_lane *best = &ep->lanes[0];

	for (unsigned int i = 1; i < ep->nr_lanes; i++) {
		const struct sf_rdma_lane *l = &ep->lanes[i];

		if (!lane_is_full(ep, l) && (lane_is_full(ep, best) ||
					     lane_taken(l) < lane_taken(best)))
			best = l;
	}
	return (unsigned int)(best - ep->lanes);
}

bool sf_rdma_endpoint_carries(const struct sf_rdma_endpoint *ep,
			      const struct sf_rdma_job *job)
{
	for (unsigned int i = 0; i < ep->nr_lanes; i++)
		for (uint32_t n = ep->lanes[i].head; n != ep->lanes[i].tail;
		     n++)
			if (slot_at(ep, i, n)->job == job)
				return true;
	return false;
}

/* ---- sending ---- */

static int find_memory(struct sf_rdma_endpoint *ep, struct sf_rdma_slot *slot)
{
	const struct sf_io *io = slot->job->io;
	const struct ibv_mr *mr = io->reg ? io->reg->mrs[ep->dev->index] : NULL;
	char *mem = (char *)io->mem + slot->off;
	int ret;

	slot->bounce = -1;
	if (mr) {
		slot->sge.addr = (uintptr_t)mem;
		slot->sge.lkey = mr->lkey;
		return 0;
	}
	ret = sf_rdma_bounce_get(ep, &slot->bounce);
	if (ret)
		return ret;
	if (slot->len > SF_RDMA_BOUNCE_CHUNK)
		slot->len = SF_RDMA_BOUNCE_CHUNK;
	if (io->op == SF_WRITE)
		memcpy(sf_rdma_bounce_mem(ep, slot->bounce), mem, slot->len);
	slot->sge.addr = (uintptr_t)sf_rdma_bounce_mem(ep, slot->bounce);
	slot->sge.lkey = sf_rdma_bounce_lkey(ep);
	return 0;
}

static void chain(struct sf_rdma_endpoint *ep, unsigned int lane_index,
		  struct sf_rdma_slot *slot)
{
	struct sf_rdma_lane *lane = &ep->lanes[lane_index];
	struct sf_rdma_slot *before;

	slot->wr.next = NULL;
	slot->wr.send_flags = IBV_SEND_SIGNALED;
	if (lane->nr_chained++) {
		before = slot_at(ep, lane_index, lane->tail - 1);
		before->wr.next = &slot->wr;
		if (before->job == slot->job)
			before->wr.send_flags = 0;
	}
	lane->tail++;
	if (!ep->chained && !lane->posting) {
		ep->chained = true;
		TAILQ_INSERT_TAIL(&ep->peer->chained, ep, chain_link);
	}
}

static int take(struct sf_rdma_endpoint *ep, unsigned int lane,
		struct sf_rdma_job *job, uint32_t off, uint32_t *len,
		uint64_t rkey)
{
	uint32_t n = ep->lanes[lane].tail;
	struct sf_rdma_slot *slot = slot_at(ep, lane, n);
	int ret;

	if (lane_is_full(ep, &ep->lanes[lane]))
		return -EAGAIN;
	slot->job = job;
	slot->off = off;
	slot->len = *len;
	ret = find_memory(ep, slot);
	if (ret)
		return ret;
	slot->sge.length = slot->len;
	slot->wr = (struct ibv_send_wr){
		.wr_id = sf_rdma_wr_id(ep, lane, n),
		.sg_list = &slot->sge,
		.num_sge = 1,
		.opcode = job->io->op == SF_WRITE ? IBV_WR_RDMA_WRITE
						  : IBV_WR_RDMA_READ,
		.wr.rdma = {
			.remote_addr = job->io->addr + slot->off,
			.rkey = (uint32_t)rkey,
		},
	};
	chain(ep, lane, slot);
	job->out++;
	atomic_fetch_add_explicit(&ep->taken, 1, memory_order_relaxed);
	*len = slot->len;
	return 0;
}

int sf_rdma_slot_take(struct sf_rdma_endpoint *ep, struct sf_rdma_job *job,
		      uint32_t len, uint64_t rkey, uint32_t *taken)
{
	int ret = take(ep, best_lane(ep), job, job->next, &len, rkey);

	if (ret)
		return ret;
	if (job->io->op == SF_WRITE)
		ep->pair->wrote = true;
	job->next += len;
	*taken = len;
	return 0;
}

int sf_rdma_slot_take_flush(struct sf_rdma_endpoint *ep,
			    struct sf_rdma_job *job, uint64_t rkey)
{
	uint32_t len = 1;
	int ret = 0;

	for (unsigned int i = 0; !ret && i < ep->nr_lanes; i++)
		ret = take(ep, i, job, 0, &len, rkey);
	return ret;
}

/* Post a lane's chain; 0 or an errno, and what did not go out is chained. */
static int post_chain(struct sf_rdma_endpoint *ep, unsigned int index)
{
	struct sf_rdma_lane *lane = &ep->lanes[index];
	struct ibv_send_wr *bad = NULL, *wr;
	struct sf_rdma_slot *first;
	uint32_t left = 0;
	int ret;

	lane->posting_from = lane->tail - lane->nr_chained;
	first = slot_at(ep, index, lane->posting_from);
	/* Before the completions can come. */
	atomic_fetch_add(&ep->dev->ctx->pending, lane->nr_chained);
	lane->nr_chained = 0;
	pthread_mutex_unlock(&ep->peer->lock);
	ret = ibv_post_send(ep->qps.qp[index], &first->wr, &bad);
	pthread_mutex_lock(&ep->peer->lock);
	if (ret)
		for (wr = bad; wr; wr = wr->next)
			left++;
	atomic_fetch_sub(&ep->dev->ctx->pending, left);
	lane->nr_chained += left;
	return ret;
}

static int post_lane(struct sf_rdma_endpoint *ep, unsigned int index)
{
	struct sf_rdma_lane *lane = &ep->lanes[index];
	int ret = 0;

	if (lane->posting)
		return 0;	/* by somebody who goes on with these */
	lane->posting = true;
	while (!ret && lane->nr_chained)
		ret = post_chain(ep, index);
	lane->posting = false;
	return ret;
}

void sf_rdma_endpoint_post(struct sf_rdma_endpoint *ep)
{
	struct sf_rdma_peer *p = ep->peer;
	int ret = 0, error;
	char text[96];

	TAILQ_REMOVE(&p->chained, ep, chain_link);
	ep->chained = false;
	ep->used_ms = sf_now_ms();
	atomic_fetch_add(&ep->posters, 1);
	for (unsigned int i = 0; i < ep->nr_lanes; i++) {
		error = post_lane(ep, i);
		if (error)
			ret = error;
	}
	/* Who found no room while the slots could not be used anew. */
	p->queue_moved |= !TAILQ_EMPTY(&p->queue);
	if (ret && ep->draining) {
		sf_rdma_endpoint_drop(ep, false);
	} else if (ret) {
		snprintf(text, sizeof(text), "cannot post work: %s",
			 strerror(ret));
		sf_rdma_pair_note(ep->pair, SF_RDMA_COMPLETION, -ret, text);
		sf_rdma_endpoint_retire(ep, false);
	}
	/* It may be gone from here on. */
	atomic_fetch_sub(&ep->posters, 1);
}

/* ---- coming back ---- */

static void give_back(struct sf_rdma_endpoint *ep, struct sf_rdma_slot *slot)
{
	if (slot->bounce >= 0)
		sf_rdma_bounce_put(ep, slot->bounce);
	slot->job->out--;
	/* The reaper looks at this without the lock. */
	if (atomic_fetch_sub(&ep->taken, 1) == 1 && ep->draining)
		sf_rdma_reaper_kick(ep->dev->rdma->reaper);
}

static void succeed(struct sf_rdma_endpoint *ep, struct sf_rdma_slot *slot)
{
	struct sf_rdma_job *job = slot->job;

	if (slot->bounce >= 0 && job->io->op == SF_READ)
		memcpy((char *)job->io->mem + slot->off,
		       sf_rdma_bounce_mem(ep, slot->bounce), slot->len);
	give_back(ep, slot);
	sf_rdma_job_settle(ep->peer, job);
}

static void lose(struct sf_rdma_endpoint *ep, struct sf_rdma_slot *slot,
		 int res)
{
	struct sf_rdma_job *job = slot->job;

	job->lost = true;
	job->blamed |= !ep->forgiving;
	if (res && !job->res)
		job->res = res;
	give_back(ep, slot);
	sf_rdma_job_settle(ep->peer, job);
}

void sf_rdma_endpoint_drop(struct sf_rdma_endpoint *ep, bool all)
{
	for (unsigned int i = 0; i < ep->nr_lanes; i++) {
		struct sf_rdma_lane *lane = &ep->lanes[i];

		for (; lane->nr_chained; lane->nr_chained--)
			lose(ep, slot_at(ep, i, --lane->tail), 0);
		for (; all && lane->head != lane->tail; lane->head++) {
			atomic_fetch_sub(&ep->dev->ctx->pending, 1);
			lose(ep, slot_at(ep, i, lane->head), 0);
		}
	}
	if (ep->chained) {
		TAILQ_REMOVE(&ep->peer->chained, ep, chain_link);
		ep->chained = false;
	}
}

static bool lower_mtu(struct sf_rdma_pair *pair, enum ibv_wc_status status)
{
	return !pair->health.worked &&
	       sf_rdma_verdict_mtu(status, pair->mtu, &pair->mtu_cap);
}

static void break_down(struct sf_rdma_endpoint *ep, const struct ibv_wc *wc,
		       int res)
{
	struct sf_rdma_pair *pair = ep->pair;
	bool lowered = lower_mtu(pair, wc->status);
	char text[160];

	snprintf(text, sizeof(text), "%s%s", sf_rdma_status_name(wc->status),
		 lowered ? ": trying a smaller path MTU, in case the two "
			   "ends differ" : "");
	sf_rdma_pair_note(pair, SF_RDMA_COMPLETION, res ? res : -ECONNRESET,
			  text);
	pair->breaks++;
	if (!res && !lowered)
		sf_pair_broke(&pair->health, sf_now_ms(),
			      ep->dev->rdma->config.pause_ms);
	sf_rdma_endpoint_retire(ep, res || lowered);
}

void sf_rdma_endpoint_complete(struct sf_rdma_endpoint *ep, unsigned int lane,
			       uint32_t index, const struct ibv_wc *wc)
{
	struct sf_rdma_lane *l = &ep->lanes[lane];
	uint32_t ahead = (index - l->head) % ep->depth;
	int res;

	if (ahead >= lane_taken(l) - l->nr_chained)
		return;		/* a driver's mistake: no such one is out */
	for (; ahead; ahead--) {
		atomic_fetch_sub(&ep->dev->ctx->pending, 1);
		succeed(ep, slot_at(ep, lane, l->head++));
	}
	atomic_fetch_sub(&ep->dev->ctx->pending, 1);
	if (wc->status == IBV_WC_SUCCESS) {
		if (!ep->pair->health.worked) {
			sf_pair_worked(&ep->pair->health);
			ep->pair->healed = true;
		}
		succeed(ep, slot_at(ep, lane, l->head++));
		return;
	}
	res = sf_rdma_verdict_completion(wc->status);
	/* First, for whom to blame is decided there. */
	if (!ep->draining && wc->status != IBV_WC_WR_FLUSH_ERR)
		break_down(ep, wc, res);
	else if (!ep->draining)
		sf_rdma_endpoint_retire(ep, false);
	lose(ep, slot_at(ep, lane, l->head++), res);
}
