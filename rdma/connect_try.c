/* SPDX-License-Identifier: MIT */
/*
 * Connecting a pair, on a worker thread: queue pairs, one handshake with the
 * peer, and the way to RTS (protocol section 6.3). Always with new queue pairs:
 * a peer that is asked again with the old numbers leaves its own as they are.
 */
#include "config.h"
#include "rdma/connect.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "gid.h"
#include "rdma/verdict.h"

#define SHORT_TRIES 4		/* of replies that end early; see backoff */
#define SHORT_PAUSE_MS 50	/* doubles from there */
#define RESERVE_PAUSE_MS 10

static void pause_ms(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000,
			       .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&ts, NULL);
}

/* ---- queue pairs ---- */

/* A power of two, so that slot numbers may wrap. */
static unsigned int depth_for(const struct sf_rdma_connect *c)
{
	unsigned int depth = SF_RDMA_DEPTH;

	while (depth > 4 && (depth * c->nr_qps > 2 * SF_RDMA_DEPTH ||
			     depth > c->dev->ctx->dev.max_qp_wr))
		depth /= 2;
	return depth;
}

/* -EAGAIN: there may be room in a while. */
static int try_make_qps(struct sf_rdma_connect *c, unsigned int depth)
{
	unsigned int wrs = c->nr_qps * depth;
	int ret = sf_rdma_dev_reserve(c->dev, wrs);

	if (ret) {
		sf_err_set(&c->err, -ENOMEM, "%s: too many connections",
			   c->dev->ctx->dev.name);
		return -EAGAIN;
	}
	ret = sf_rdma_qps_create(&c->qps, c->dev->ctx, c->nr_qps, depth, NULL,
				 &c->err);
	if (ret)
		sf_rdma_dev_unreserve(c->dev, wrs);
	/* The device may have room for fewer than we know of. */
	if (ret == -ENOMEM && sf_rdma_dev_evict(c->dev))
		return -EAGAIN;
	return ret == -EAGAIN ? -ENOMEM : ret;
}

static int make_qps(struct sf_rdma_connect *c)
{
	unsigned int depth = depth_for(c);
	int ret;

	while ((ret = try_make_qps(c, depth)) == -EAGAIN) {
		if (sf_rdma_connect_is_orphan(c) ||
		    sf_now_ms() >= c->deadline_ms)
			return -ENOMEM;
		pause_ms(RESERVE_PAUSE_MS);
	}
	return ret;
}

static void drop_qps(struct sf_rdma_connect *c)
{
	unsigned int wrs = c->qps.nr * c->qps.depth;

	if (!c->qps.qp)
		return;
	sf_rdma_qps_destroy(&c->qps);
	sf_rdma_dev_unreserve(c->dev, wrs);
}

/* ---- attempts ---- */

static int go_on(struct sf_rdma_connect *c)
{
	int ret;

	c->mtu = sf_rdma_context_mtu(c->dev->ctx);
	if (c->mtu_cap && c->mtu_cap < c->mtu)
		c->mtu = c->mtu_cap;
	ret = sf_rdma_qps_connect(&c->qps, &c->gid, c->mtu, &c->remote, false,
				  &c->stage, &c->err);
	if (ret)
		return ret;
	ret = sf_rdma_endpoint_new(&c->ep, c->dev, &c->qps);
	if (ret) {
		sf_err_set(&c->err, ret, "no room for another connection");
		return sf_rdma_connect_failed(c, SF_RDMA_RTS, ret);
	}
	memset(&c->qps, 0, sizeof(c->qps));
	return 0;
}

static int attempt(struct sf_rdma_connect *c, bool untyped)
{
	int ret;

	c->err.code = 0;
	c->err.text[0] = '\0';
	atomic_store(&c->at, SF_RDMA_INIT);
	c->wanted_qps = 0;
	c->was_short = c->was_null = c->unreachable = c->misled = false;
	if (sf_rdma_context_nth_gid(c->dev->ctx, c->gid_nth, &c->gid)) {
		c->gid_nth = 0;	/* the table has changed */
		sf_rdma_context_gid(c->dev->ctx, &c->gid);
	}
	if (sf_gid_is_zero(c->gid.gid)) {
		sf_err_set(&c->err, -ENODEV, "%s: port %u has no GID",
			   c->dev->ctx->dev.name, c->dev->ctx->dev.port);
		return sf_rdma_connect_failed(c, SF_RDMA_INIT, -ENODEV);
	}
	ret = make_qps(c);
	if (ret)
		return sf_rdma_connect_failed(c, SF_RDMA_INIT, ret);
	atomic_store(&c->at, SF_RDMA_HANDSHAKE);
	ret = sf_rdma_connect_ask(c, untyped);
	atomic_store(&c->at, SF_RDMA_RTR);
	if (!ret)
		ret = go_on(c);
	drop_qps(c);
	return ret;
}

/* To the peer's network may lead another of our GIDs. */
static bool try_next_gid(struct sf_rdma_connect *c, unsigned int *tries)
{
	struct sf_rdma_gid gid;

	if ((*tries)++ < c->rdma->config.gid_retries &&
	    !sf_rdma_context_nth_gid(c->dev->ctx, c->gid_nth + 1, &gid)) {
		c->gid_nth++;
		return true;
	}
	c->gid_nth = 0;
	return false;
}

/* Worth another attempt? What to do otherwise is noted in C. */
static bool try_again(struct sf_rdma_connect *c, int ret, unsigned int *shorts,
		      unsigned int *gids, unsigned int *counts)
{
	if (sf_rdma_connect_is_orphan(c) || sf_now_ms() >= c->deadline_ms)
		return false;
	if (c->wanted_qps && !(*counts)++) {
		c->nr_qps = c->wanted_qps;
		return true;
	}
	/* It may be so old that it looks us up (protocol section 6.4). It may
	 * as well be a little younger, and mean something else. */
	if (c->was_null && !c->introduce) {
		c->introduce = true;
		return true;
	}
	if (c->misled || (c->stage == SF_RDMA_RTR && ret == -EINVAL))
		return try_next_gid(c, gids);
	if (c->was_short && ++*shorts < SHORT_TRIES) {
		pause_ms(SHORT_PAUSE_MS << (*shorts - 1));
		return true;
	}
	return false;
}

int sf_rdma_connect_try(struct sf_rdma_connect *c)
{
	unsigned int shorts = 0, gids = 0, counts = 0;
	struct sf_err first = { 0 };
	int ret;

	/* The last of several answers that are no answers: perhaps it is so old
	 * that its frames have no types. */
	do {
		ret = attempt(c, shorts == SHORT_TRIES - 1);
		if (ret && c->was_short && !first.code)
			first = c->err;
	} while (ret && try_again(c, ret, &shorts, &gids, &counts));
	/* What the first of them was says more than what followed. */
	if (ret && c->was_short)
		c->err = first;
	return ret ? sf_rdma_verdict_connect(c->stage, ret) : 0;
}
