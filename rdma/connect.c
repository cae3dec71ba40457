/* SPDX-License-Identifier: MIT */
/*
 * Connecting a pair, on a worker thread: queue pairs, one handshake with the
 * peer, and the way to RTS (protocol section 6.3). Always with new queue pairs:
 * a peer that is asked again with the old numbers leaves its own as they are.
 *
 * While it runs, a connect belongs to its worker, all but the pointer to its
 * peer, which rdma->lock guards: a peer that is closed does not wait for the
 * network, it cuts that pointer, and the worker throws away what it made.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "gid.h"
#include "handshake.h"
#include "log.h"
#include "rdma/verdict.h"
#include "segment.h"
#include "workers.h"

#define RETRY_MS 200		/* after a peer could not be reached */
#define SHORT_TRIES 4		/* of replies that end early; see backoff */
#define SHORT_PAUSE_MS 50	/* doubles from there */
#define RESERVE_PAUSE_MS 10
#define REPLY_SHOWN "400"	/* bytes of a peer's reason */

struct sf_rdma_connect {
	struct sf_rdma *rdma;
	struct sf_rdma_peer *peer;	/* rdma->lock; NULL: nobody waits */
	struct sf_rdma_pair *pair;	/* to be used with peer only */
	struct sf_rdma_dev *dev;
	struct sf_segment *seg;
	char own_path[SF_NICPATH_MAX], remote_path[SF_NICPATH_MAX];
	unsigned int nr_qps, mtu_cap;
	unsigned int gid_nth;	/* of ours by rank; other peers keep theirs */
	uint64_t deadline_ms;

	/* of the attempt that goes on */
	struct sf_rdma_qps qps;
	struct sf_rdma_gid gid;		/* ours */
	struct sf_rdma_remote remote;
	uint32_t remote_qps[SF_HANDSHAKE_QPS_MAX];
	unsigned int wanted_qps;	/* the peer wants so many; 0: as is */
	bool was_short;		/* no whole reply came */
	bool unreachable;	/* the peer, by whatever pair */

	enum sf_rdma_stage stage;
	struct sf_err err;
	unsigned int mtu;
	struct sf_rdma_endpoint *ep;
};

static bool is_orphan(struct sf_rdma_connect *c)
{
	bool orphan;

	pthread_mutex_lock(&c->rdma->lock);
	orphan = !c->peer;
	pthread_mutex_unlock(&c->rdma->lock);
	return orphan;
}

static void pause_ms(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000,
			       .tv_nsec = ms % 1000 * 1000000l };

	nanosleep(&ts, NULL);
}

static int failed(struct sf_rdma_connect *c, enum sf_rdma_stage stage, int code)
{
	c->stage = stage;
	return code;
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
		if (is_orphan(c) || sf_now_ms() >= c->deadline_ms)
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

/* ---- the handshake ---- */

static int call(struct sf_rdma_connect *c, const char *body, bool untyped,
		struct sf_blob **reply)
{
	int left = sf_ms_left(c->deadline_ms);
	int ret = sf_handshake_call_unless(
		c->rdma->closing_fd, c->seg->rpc_host, c->seg->rpc_port,
		untyped ? SF_HANDSHAKE_UNTYPED : SF_HANDSHAKE_CONNECTION, body,
		SF_HANDSHAKE_MAX_DEFAULT, left > 0 ? (unsigned int)left : 1,
		reply, &c->err);

	switch (ret) {
	case 0:
		return 0;
	case -ENOENT:
	case -EAGAIN:
		c->unreachable = true;
		return failed(c, SF_RDMA_RESOLVE, -EHOSTUNREACH);
	case -EPROTO:
		c->was_short = true;
		return failed(c, SF_RDMA_HANDSHAKE, ret);
	case -ETIMEDOUT:
		/* It may have been busy with this pair only. */
		return failed(c, SF_RDMA_CONNECT, ret);
	default:
		c->unreachable = true;
		return failed(c, SF_RDMA_CONNECT, ret);
	}
}

static int ask(struct sf_rdma_connect *c, bool untyped, struct sf_blob **reply)
{
	uint32_t numbers[SF_RDMA_QPS_MAX];
	char gid[SF_GID_TEXT_MAX];
	struct sf_handshake_rdma m = {
		.local_nic_path = c->own_path,
		.peer_nic_path = c->remote_path,
		.local_gid = gid,
		.local_lid = sf_rdma_context_lid(c->dev->ctx),
		.nr_qps = c->qps.nr,
		.qp_num = numbers,
	};
	char *body;
	int ret;

	sf_gid_format(gid, c->gid.gid);
	sf_rdma_qps_numbers(&c->qps, numbers);
	body = sf_handshake_rdma_encode(&m);
	if (!body) {
		sf_err_set(&c->err, -ENOMEM, "out of memory");
		return failed(c, SF_RDMA_HANDSHAKE, -ENOMEM);
	}
	ret = call(c, body, untyped, reply);
	free(body);
	return ret;
}

/* Releases before 0.3.11 do not say where they are: the descriptor does. */
static int published_gid(struct sf_rdma_connect *c)
{
	const char *name = strchr(c->remote_path, '@') + 1;

	for (uint32_t i = 0; i < c->seg->nr_devices; i++) {
		const struct sf_device *d = &c->seg->devices[i];

		if (strcmp(d->name, name) || !d->has_gid)
			continue;
		memcpy(c->remote.gid, d->gid, sizeof(c->remote.gid));
		c->remote.lid = d->lid;
		return 0;
	}
	return sf_err_set(&c->err, -EPROTO,
			  "the peer gives no GID, and its descriptor has none "
			  "of this device");
}

static int take_gid(struct sf_rdma_connect *c,
		    const struct sf_handshake_rdma *m)
{
	if (!*m->local_gid)
		return published_gid(c);
	if (sf_gid_parse(m->local_gid, c->remote.gid) ||
	    sf_gid_is_zero(c->remote.gid))
		return sf_err_set(&c->err, -EPROTO,
				  "the peer gives a GID that is none: %.64s",
				  m->local_gid);
	c->remote.lid = m->local_lid;
	return 0;
}

/* Protocol section 6.3, 3. */
static int check_reply(struct sf_rdma_connect *c,
		       const struct sf_handshake_rdma *m)
{
	if (m->nr_qps != c->nr_qps && m->nr_qps &&
	    m->nr_qps <= SF_RDMA_QPS_MAX)
		c->wanted_qps = m->nr_qps;
	if (*m->reply_msg)
		return sf_err_set(&c->err, -ECONNREFUSED,
				  "the peer says: %." REPLY_SHOWN "s",
				  m->reply_msg);
	if (!*m->local_nic_path && !*m->peer_nic_path)
		return sf_err_set(&c->err, -EPROTO,
				  "the peer refused and gave no reason, see "
				  "its log");
	if (strcmp(m->local_nic_path, c->remote_path) ||
	    strcmp(m->peer_nic_path, c->own_path))
		return sf_err_set(&c->err, -EPROTO,
				  "the answer is for another pair: %.100s, "
				  "%.100s", m->local_nic_path,
				  m->peer_nic_path);
	if (m->nr_qps != c->nr_qps)
		return sf_err_set(&c->err, -EPROTO,
				  "the peer has %u QPs for our %u", m->nr_qps,
				  c->nr_qps);
	return take_gid(c, m);
}

static int handshake(struct sf_rdma_connect *c, bool untyped)
{
	struct sf_handshake_rdma m;
	struct sf_blob *reply;
	int ret = ask(c, untyped, &reply);

	if (ret)
		return ret;
	ret = sf_handshake_rdma_decode(&m, reply->data, reply->len, &c->err);
	sf_blob_put(reply);
	if (ret == -ENODATA) {
		sf_err_set(&c->err, -EPROTO, "the peer refused and gave no "
					     "reason, see its log");
		return failed(c, SF_RDMA_HANDSHAKE, -EPROTO);
	}
	if (ret) {
		sf_err_prefix(&c->err, "the answer makes no sense");
		return failed(c, SF_RDMA_HANDSHAKE,
			      ret == -ENOMEM ? ret : -EPROTO);
	}
	ret = check_reply(c, &m);
	if (!ret) {
		memcpy(c->remote_qps, m.qp_num,
		       m.nr_qps * sizeof(*m.qp_num));
		c->remote.qp_num = c->remote_qps;
	}
	sf_handshake_rdma_fini(&m);
	return ret ? failed(c, SF_RDMA_HANDSHAKE, ret) : 0;
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
		return failed(c, SF_RDMA_RTS, ret);
	}
	memset(&c->qps, 0, sizeof(c->qps));
	return 0;
}

static int attempt(struct sf_rdma_connect *c, bool untyped)
{
	int ret;

	c->err.code = 0;
	c->err.text[0] = '\0';
	c->wanted_qps = 0;
	c->was_short = c->unreachable = false;
	if (sf_rdma_context_nth_gid(c->dev->ctx, c->gid_nth, &c->gid)) {
		c->gid_nth = 0;	/* the table has changed */
		sf_rdma_context_gid(c->dev->ctx, &c->gid);
	}
	if (sf_gid_is_zero(c->gid.gid)) {
		sf_err_set(&c->err, -ENODEV, "%s: port %u has no GID",
			   c->dev->ctx->dev.name, c->dev->ctx->dev.port);
		return failed(c, SF_RDMA_INIT, -ENODEV);
	}
	ret = make_qps(c);
	if (ret)
		return failed(c, SF_RDMA_INIT, ret);
	ret = handshake(c, untyped);
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
	if (is_orphan(c) || sf_now_ms() >= c->deadline_ms)
		return false;
	if (c->wanted_qps && !(*counts)++) {
		c->nr_qps = c->wanted_qps;
		return true;
	}
	if (c->stage == SF_RDMA_RTR && ret == -EINVAL)
		return try_next_gid(c, gids);
	if (c->was_short && ++*shorts < SHORT_TRIES) {
		pause_ms(SHORT_PAUSE_MS << (*shorts - 1));
		return true;
	}
	return false;
}

static int connect_pair(struct sf_rdma_connect *c)
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

/* ---- the end, in the peer ---- */

static void show(struct sf_rdma_pair *pair, const struct sf_rdma_connect *c)
{
	const struct sf_rdma_endpoint *ep = c->ep;

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
		for (size_t i = 0; i < (size_t)p->rdma->nr_devs *
					       SF_RDMA_REMOTES_MAX; i++)
			if (p->pairs[i])
				p->pairs[i]->wanted = false;
		return;
	}
	sf_pair_refused(&c->pair->health, now_ms, p->rdma->config.pause_ms);
}

static void start_next(struct sf_rdma_peer *p)
{
	for (size_t i = 0;
	     i < (size_t)p->rdma->nr_devs * SF_RDMA_REMOTES_MAX; i++)
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

	if (!is_orphan(c))
		code = connect_pair(c);
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
	c->mtu_cap = pair->mtu_cap;
	c->gid_nth = pair->gid_nth;
	c->deadline_ms = sf_now_ms() + p->rdma->handshake_ms;
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
