/* SPDX-License-Identifier: MIT */
/*
 * A connect: what is done to connect one pair, in the hands of one worker
 * thread. All of it is the worker's but the pointer to the peer: a peer that is
 * closed does not wait for the network, it cuts that pointer, and the worker
 * throws away what it made.
 */
#ifndef SF_RDMA_CONNECT_H
#define SF_RDMA_CONNECT_H

#include "err.h"
#include "rdma/initiator.h"

struct sf_rdma_connect {
	struct sf_rdma *rdma;
	struct sf_rdma_peer *peer;	/* rdma->lock; NULL: nobody waits */
	struct sf_rdma_pair *pair;	/* to be used with peer only */
	struct sf_rdma_dev *dev;
	struct sf_segment *seg;
	char own_path[SF_NICPATH_MAX], remote_path[SF_NICPATH_MAX];
	unsigned int nr_qps, mtu_cap;
	unsigned int gid_nth;	/* of ours by rank; other peers keep theirs */
	char own_name[SF_RDMA_NAME_MAX];
	bool introduce;		/* the peer looks us up, or may do so */
	uint64_t deadline_ms;

	/* of the attempt that goes on */
	struct sf_rdma_qps qps;
	struct sf_rdma_gid gid;		/* ours */
	struct sf_rdma_remote remote;
	uint32_t remote_qps[SF_HANDSHAKE_QPS_MAX];
	unsigned int wanted_qps;	/* the peer wants so many; 0: as is */
	bool was_short;		/* no whole reply came */
	bool misled;		/* refused: our GID may not lead there */
	bool was_null;		/* refused in the way of old releases */
	char introduced[SF_INTRODUCED_MAX];	/* as; "": not */
	bool unreachable;	/* the peer, by whatever pair */

	_Atomic(enum sf_rdma_stage) at;	/* what it waits for; anybody reads */
	enum sf_rdma_stage stage;	/* that failed */
	struct sf_err err;
	unsigned int mtu;
	struct sf_rdma_endpoint *ep;
};

static inline int sf_rdma_connect_failed(struct sf_rdma_connect *c,
					 enum sf_rdma_stage stage, int code)
{
	c->stage = stage;
	return code;
}

/* connect.c: nobody waits for it any more. */
bool sf_rdma_connect_is_orphan(struct sf_rdma_connect *c);

/* connect_try.c: until it is connected (c->ep), or another attempt makes no
 * sense (c->stage, c->err). Returns what its I/O is told (transport.h). Blocks
 * up to c->deadline_ms, and as long as a change to RTR takes. */
int sf_rdma_connect_try(struct sf_rdma_connect *c);

/* connect_ask.c: one handshake for c->qps and c->gid; UNTYPED as releases do
 * whose frames have no types. 0: c->remote is the peer's answer. Else c->stage,
 * c->err, and what may be done about it: c->wanted_qps, c->was_short,
 * c->was_null, c->unreachable. Blocks up to c->deadline_ms. */
int sf_rdma_connect_ask(struct sf_rdma_connect *c, bool untyped);

#endif
