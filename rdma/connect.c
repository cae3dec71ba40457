/* SPDX-License-Identifier: MIT */
/*
 * Which pair of a peer is connected when, and what becomes of it: one at a time
 * a peer, on a worker thread (connect_try.c).
 */
#include "config.h"
#include "rdma/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "gid.h"
#include "segment.h"
#include "workers.h"

#define RETRY_MS 200		/* after a peer could not be reached */

bool sf_rdma_connect_is_orphan(struct sf_rdma_connect *c)
{
	bool orphan;

	pthread_mutex_lock(&c->rdma->lock);
	orphan = !c->peer;
	pthread_mutex_unlock(&c->rdma->lock);
	return orphan;
}

static void show(struct sf_rdma_pair *pair, const struct sf_rdma_connect *c)
{
	const struct sf_rdma_endpoint *ep = c->ep;

	memcpy(pair->introduced, c->introduced, sizeof(pair->introduced));
	memcpy(pair->remote_gid, c->remote.gid, sizeof(pair->remote_gid));
	pair->mtu = c->mtu;
	pair->nr_qps = ep->nr_lanes;
	for (unsigned int i = 0; i < ep->nr_lanes && i < SF_RDMA_SHOWN_QPS;
	     i++) {
		pair->own_qp[i] = ep->qps.qp[i]->qp_num;
		pair->remote_qp[i] = c->remote_qps[i];
	}
	pair->connects++;
}

static void attach(struct sf_rdma_peer *p, struct sf_rdma_connect *c)
{
	struct sf_rdma_endpoint *ep = c->ep;

	show(c->pair, c);
	sf_pair_connected(&c->pair->health);
	sf_rdma_endpoint_attach(ep, c->pair);
	p->nr_qps = c->nr_qps;
	p->looks_us_up = c->introduce;
	p->connect_error = 0;
	/* What happened meanwhile has not reached this one. */
	if (p->closing || !sf_rdma_dev_is_usable(c->dev) ||
	    !sf_rdma_context_has_gid(c->dev->ctx, &c->gid))
		sf_rdma_endpoint_retire(ep, true);
}

static void note_failure(struct sf_rdma_peer *p, struct sf_rdma_connect *c,
			 int code)
{
	uint64_t now_ms = sf_now_ms();

	sf_rdma_pair_note(c->pair, c->stage, code, c->err.text);
	p->connect_error = code;
	if (c->unreachable) {
		p->retry_ms = now_ms + RETRY_MS;
		for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++)
			if (p->pairs[i])
				p->pairs[i]->wanted = false;
		return;
	}
	sf_pair_refused(&c->pair->health, now_ms, p->rdma->config.pause_ms);
}

static void start_next(struct sf_rdma_peer *p)
{
	for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++)
		if (p->pairs[i] && p->pairs[i]->wanted && !p->pairs[i]->ep &&
		    sf_rdma_connect_want(p, p->pairs[i]))
			return;
}

static void connect_free(struct sf_rdma_connect *c)
{
	sf_segment_put(c->seg);
	free(c);
}

/* Nobody waits for it any more. */
static void discard(struct sf_rdma_endpoint *ep)
{
	if (!ep)
		return;
	sf_rdma_qps_destroy(&ep->qps);
	sf_rdma_endpoint_unlist(ep);
	sf_rdma_endpoint_free(ep);
}

static void run(void *arg)
{
	struct sf_rdma_connect *c = arg;
	struct sf_rdma_peer *p;
	int code = 0;

	if (!sf_rdma_connect_is_orphan(c))
		code = sf_rdma_connect_try(c);
	pthread_mutex_lock(&c->rdma->lock);
	p = c->peer;
	if (p)
		sf_rdma_peer_enter(p);
	pthread_mutex_unlock(&c->rdma->lock);
	if (!p) {
		discard(c->ep);
		connect_free(c);
		return;
	}
	p->connect = NULL;
	c->pair->wanted = false;
	c->pair->gid = c->gid;
	c->pair->gid_nth = c->gid_nth;
	if (code)
		note_failure(p, c, code);
	else
		attach(p, c);
	start_next(p);
	sf_rdma_job_unpark_all(p);
	sf_rdma_peer_leave(p);
	connect_free(c);
}

static int start(struct sf_rdma_peer *p, struct sf_rdma_pair *pair)
{
	struct sf_rdma_connect *c = calloc(1, sizeof(*c));
	int ret;

	if (!c)
		return -ENOMEM;
	c->rdma = p->rdma;
	c->peer = p;
	c->pair = pair;
	c->dev = pair->dev;
	c->nr_qps = p->nr_qps;
	c->introduce = p->looks_us_up;
	c->mtu_cap = pair->mtu_cap;
	c->gid_nth = pair->gid_nth;
	c->deadline_ms = sf_now_ms() + p->rdma->handshake_ms;
	memcpy(c->own_name, p->own_name, sizeof(c->own_name));
	ret = sf_nicpath_join(c->own_path, p->own_name,
			      pair->dev->ctx->dev.name);
	if (!ret)
		ret = sf_nicpath_join(c->remote_path, p->server, pair->remote);
	if (ret) {
		sf_rdma_pair_note(pair, SF_RDMA_METADATA, -EPROTO,
				  "its name cannot be part of a NIC path");
		ret = -EPROTO;
	}
	c->seg = sf_segment_get(p->seg);
	if (!ret)
		ret = sf_workers_run(p->rdma->workers, run, c);
	if (ret) {
		connect_free(c);
		return ret;
	}
	p->connect = c;
	return 0;
}

bool sf_rdma_connect_want(struct sf_rdma_peer *p, struct sf_rdma_pair *pair)
{
	int ret;

	if (p->closing || sf_now_ms() < p->retry_ms)
		return false;
	pair->wanted = true;
	if (p->connect)
		return true;
	ret = start(p, pair);
	if (ret) {
		p->connect_error = ret;
		pair->wanted = false;
	}
	return !ret;
}

void sf_rdma_connect_orphan(struct sf_rdma_peer *p)
{
	pthread_mutex_lock(&p->rdma->lock);
	pthread_mutex_lock(&p->lock);
	if (p->connect) {
		p->connect->peer = NULL;
		p->connect = NULL;
	}
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->rdma->lock);
}
