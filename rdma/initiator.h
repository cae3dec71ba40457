/* SPDX-License-Identifier: MIT */
/*
 * The inside of the RDMA initiator, shared by the files of this folder only.
 *
 * An I/O becomes a job. A job waits in its peer's queue until some of the pairs
 * (local device, remote device) that are good for it are connected, is then cut
 * into slices, and each slice takes a slot in the ring of one queue pair until
 * its completion comes. A job whose slices were lost with a connection starts
 * again when the last of them has come back.
 *
 *   pair:      nothing -> (connect.c) -> endpoint READY -> DRAINING -> freed
 *   job:       QUEUED <-> PARKED (a connection is being made) -> FLYING -> done
 *
 * One lock a peer guards its jobs, pairs and endpoints; a thread that posts
 * lets go of it meanwhile.
 * Whoever works on a peer does it between sf_rdma_peer_enter() and _leave();
 * what was put off under the lock is done by leave(): placing jobs, posting
 * work, calling done() (without the lock). Other threads: one a device for
 * completions and events (events.c), workers for handshakes (connect.c), and
 * the reaper, which destroys queue pairs once they are flushed (reap.c).
 *
 * Locks, in the order they may be taken: sf_rdma.lock, sf_rdma_peer.lock, all
 * others. Neither of the first two is held while done() is called, a queue pair
 * is made or destroyed, or the network is waited for.
 */
#ifndef SF_RDMA_INITIATOR_H
#define SF_RDMA_INITIATOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "err.h"
#include "handshake_rdma.h"
#include "introduce.h"
#include "rdma/context.h"
#include "rdma/nicpath.h"
#include "rdma/pairs.h"
#include "rdma/qp.h"
#include "rdma_config.h"
#include "transport.h"

struct sf_rdma_bounce;
struct sf_rdma_connect;
struct sf_rdma_endpoint;
struct sf_rdma_peer;
struct sf_rdma_reaper;
struct sf_workers;

#define SF_RDMA_REMOTES_MAX 64	/* devices of one peer that are used */
#define SF_RDMA_TABLE_SIZE 4096	/* endpoints of a device, draining ones too */
#define SF_RDMA_NAME_MAX 160
#define SF_RDMA_DEPTH 64	/* slots of a QP, if there are not many */

/* ---- the transport and its devices ---- */

struct sf_rdma_dev {
	struct sf_rdma *rdma;
	unsigned int index;
	struct sf_rdma_context *ctx;
	atomic_uint nr_endpoints;	/* draining ones too */
	atomic_uint cq_used;	/* completions that may come at once */
	atomic_uint_fast64_t rest_until_ms;	/* its port came up lately */

	pthread_mutex_t table_lock;	/* for writing */
	_Atomic(struct sf_rdma_endpoint *) table[SF_RDMA_TABLE_SIZE];
	uint32_t generation;	/* under table_lock */
};

TAILQ_HEAD(sf_rdma_peers, sf_rdma_peer);

struct sf_rdma {
	struct sf_rdma_config config;
	bool own_config;	/* to be freed with us */
	unsigned int handshake_ms;	/* limit of one handshake */
	struct sf_introducer *introducer;	/* may be NULL */
	struct sf_workers *workers;
	int closing_fd;		/* readable: handshakes are of no use now */
	struct sf_rdma_reaper *reaper;
	char server_name[128];
	unsigned int nr_devs;
	struct sf_rdma_dev *devs;

	pthread_mutex_t lock;
	struct sf_rdma_peers peers;	/* under lock */
};

struct sf_mem {
	char *base;
	size_t len;
	int node;
	struct ibv_mr *mrs[SF_RDMA_DEVICES_MAX];	/* NULL: bounce */
};

/* ---- jobs ---- */

enum sf_rdma_job_state {
	SF_RDMA_JOB_QUEUED,	/* in peer->queue: not all of it is placed */
	SF_RDMA_JOB_PARKED,	/* in peer->parked: until a connect is over */
	SF_RDMA_JOB_FLYING,	/* in no list: waits for its slices */
};

struct sf_rdma_job {
	TAILQ_ENTRY(sf_rdma_job) link;
	STAILQ_ENTRY(sf_rdma_job) done_link;	/* done, then free */
	struct sf_io *io;
	enum sf_rdma_job_state state;
	uint32_t next;		/* first byte that is in no slot yet */
	unsigned int out;	/* slots it has */
	unsigned int turn;	/* of the pair that takes the next slice */
	int res;		/* first error that settles it */
	bool lost;		/* a slice was lost: all over again */
	bool blamed;		/* by a failure, not by our own doing */
	bool cancelled;
	unsigned int redrives, restarts;
};

TAILQ_HEAD(sf_rdma_jobs, sf_rdma_job);
STAILQ_HEAD(sf_rdma_done_jobs, sf_rdma_job);

/* ---- endpoints ---- */

struct sf_rdma_slot {
	struct sf_rdma_job *job;
	uint32_t off, len;	/* of the job's memory */
	int bounce;		/* chunk of endpoint->bounce; -1: none */
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

/* One QP of an endpoint and what is on it. Slots [head, tail) are taken, of
 * them the last nr_chained are not posted yet. One thread at a time posts, in
 * order and without the peer's lock: it sees to what is chained meanwhile, and
 * no slot from posting_from on is used anew before it is done. */
struct sf_rdma_lane {
	struct sf_rdma_slot *ring;	/* depth of them */
	uint32_t head, tail;		/* count on */
	uint32_t nr_chained;
	bool posting;
	uint32_t posting_from;
};

struct sf_rdma_endpoint {
	TAILQ_ENTRY(sf_rdma_endpoint) link;	/* peer->endpoints */
	TAILQ_ENTRY(sf_rdma_endpoint) reap_link;
	struct sf_rdma_peer *peer;
	struct sf_rdma_dev *dev;
	struct sf_rdma_pair *pair;
	uint32_t id, generation;	/* in dev->table */
	bool draining;
	bool forgiving;		/* its end is nobody's fault on it */
	bool chained;		/* in peer->chained */
	atomic_uint posters;	/* threads in sf_rdma_endpoint_post() */
	TAILQ_ENTRY(sf_rdma_endpoint) chain_link;
	atomic_uint taken;	/* slots, all lanes */
	uint64_t used_ms;	/* last time a slot was taken */
	uint64_t drain_until_ms;
	struct sf_rdma_bounce *bounce;	/* made when first needed */
	uint64_t bounce_ms;	/* which failed; not again before */
	unsigned int reserved;	/* of dev->cq_used */
	struct sf_rdma_qps qps;
	unsigned int nr_lanes, depth;	/* as those of qps, which go first */
	struct sf_rdma_lane lanes[];
};

TAILQ_HEAD(sf_rdma_endpoints, sf_rdma_endpoint);

/* ---- pairs and peers ---- */

#define SF_RDMA_SHOWN_QPS 4

struct sf_rdma_pair {
	struct sf_rdma_peer *peer;
	struct sf_rdma_dev *dev;
	const char *remote;	/* device name */
	struct sf_rdma_endpoint *ep;	/* READY; NULL: none */
	bool wanted;		/* to be connected, or just being so */
	bool wrote;		/* what it wrote may want a flush */
	struct sf_pair_health health;
	unsigned int mtu_cap;	/* 0: none; lowered when lengths disagree */
	unsigned int gid_nth;	/* of ours by rank: it worked last time */
	unsigned int connects, breaks;

	/* for status: our side of the last attempt, and what connected last */
	struct sf_rdma_gid gid;
	char introduced[SF_INTRODUCED_MAX];	/* as; "": it was not */
	uint8_t remote_gid[16];
	unsigned int mtu, nr_qps;
	uint32_t own_qp[SF_RDMA_SHOWN_QPS], remote_qp[SF_RDMA_SHOWN_QPS];
	/* and the first error since something worked before it */
	bool healed;		/* something has worked since */
	enum sf_rdma_stage stage;
	int error;
	char text[SF_ERR_TEXT_MAX];
	uint64_t error_ms;
};

/* The devices that are good for some location, worked out once. */
struct sf_rdma_route {
	char location[64];
	int node;
	bool valid;
	uint32_t local[SF_RDMA_DEVICES_MAX];
	uint32_t remote[SF_RDMA_REMOTES_MAX];	/* descriptor's indices */
	struct sf_pairs_list locals, remotes;
};

struct sf_rdma_peer {
	TAILQ_ENTRY(sf_rdma_peer) link;	/* rdma->lock */
	struct sf_rdma *rdma;
	char *server;		/* its part of NIC paths */
	unsigned int name_index;	/* rdma->lock: of our own name */
	char own_name[SF_RDMA_NAME_MAX];	/* our part of NIC paths */
	pthread_mutex_t lock;
	pthread_cond_t left;	/* users or endpoints fell to 0 */

	/* all under lock */
	struct sf_segment *seg;		/* newest */
	unsigned int users;
	bool closing;
	bool queue_moved;	/* leave() has to place jobs */
	struct sf_rdma_jobs queue, parked;
	struct sf_rdma_done_jobs done, free;
	struct sf_rdma_endpoints endpoints;	/* draining ones too */
	struct sf_rdma_endpoints chained;

	struct sf_segment *map_seg;	/* whose devices these are; NULL */
	uint8_t map[256];	/* descriptor's index -> remotes; 255 none */
	struct sf_rdma_route route;	/* for map_seg */
	unsigned int nr_remotes;
	char *remotes[SF_RDMA_REMOTES_MAX];
	struct sf_rdma_pair **pairs;	/* [dev * REMOTES_MAX + remote] */

	struct sf_rdma_connect *connect;	/* running; at most one */
	unsigned int nr_qps;	/* of an endpoint; as the peer wants it */
	bool looks_us_up;	/* a release up to 0.3.10 */
	int connect_error;	/* of the last attempt; 0: it worked */
	uint64_t retry_ms;	/* no attempt before */
	unsigned int turn;
	uint64_t redrives;
};

/* How many p->pairs there are, most of them NULL. */
static inline size_t sf_rdma_peer_nr_pairs(const struct sf_rdma_peer *p)
{
	return (size_t)p->rdma->nr_devs * SF_RDMA_REMOTES_MAX;
}

/* peer.c */
int sf_rdma_peer_new(struct sf_rdma_peer **out, struct sf_rdma *rdma,
		     struct sf_segment *seg);
void sf_rdma_peer_free(struct sf_rdma_peer *p);
void sf_rdma_peer_enter(struct sf_rdma_peer *p);
void sf_rdma_peer_leave(struct sf_rdma_peer *p);
/* Between enter and leave, as all below until said otherwise. The device at
 * DEVICE of SEG as an index into p->remotes; -1: not used. */
int sf_rdma_peer_remote(struct sf_rdma_peer *p, struct sf_segment *seg,
			uint32_t device);
/* NULL: out of memory. */
struct sf_rdma_pair *sf_rdma_peer_pair(struct sf_rdma_peer *p,
				       unsigned int dev, unsigned int remote);
/* Remember an error of PAIR for status. */
void sf_rdma_pair_note(struct sf_rdma_pair *pair, enum sf_rdma_stage stage,
		       int code, const char *text);

/* job.c */
struct sf_rdma_job *sf_rdma_job_new(struct sf_rdma_peer *p, struct sf_io *io);
void sf_rdma_job_queue(struct sf_rdma_peer *p, struct sf_rdma_job *job);
void sf_rdma_job_park(struct sf_rdma_peer *p, struct sf_rdma_job *job);
void sf_rdma_job_fly(struct sf_rdma_peer *p, struct sf_rdma_job *job);
void sf_rdma_job_unpark_all(struct sf_rdma_peer *p);
/* It is decided, or its last slice is back: go on with it if none is out. */
void sf_rdma_job_settle(struct sf_rdma_peer *p, struct sf_rdma_job *job);
void sf_rdma_job_cancel(struct sf_rdma_peer *p, struct sf_rdma_job *job);

/* place.c */
void sf_rdma_place_all(struct sf_rdma_peer *p);
bool sf_rdma_dev_is_usable(const struct sf_rdma_dev *dev);

/* slot.c */
/* Has JOB a slot there? */
bool sf_rdma_endpoint_carries(const struct sf_rdma_endpoint *ep,
			      const struct sf_rdma_job *job);
/* Put up to LEN bytes of JOB from job->next on into a slot of EP. *TAKEN: how
 * many. -EAGAIN: no room; -ENOMEM: no registered memory to be had. */
int sf_rdma_slot_take(struct sf_rdma_endpoint *ep, struct sf_rdma_job *job,
		      uint32_t len, uint64_t rkey, uint32_t *taken);
/* Put a read of JOB's byte behind everything that is on EP. Results as before,
 * but nothing is noted in job->next. */
int sf_rdma_slot_take_flush(struct sf_rdma_endpoint *ep,
			    struct sf_rdma_job *job, uint64_t rkey);
/* Post what was taken, without the lock while the driver is at it: Soft-RoCE
 * moves the bytes right then. */
void sf_rdma_endpoint_post(struct sf_rdma_endpoint *ep);
/* Slots that will not complete are lost: the last nr_chained of each lane, or
 * ALL of them. */
void sf_rdma_endpoint_drop(struct sf_rdma_endpoint *ep, bool all);
/* A completion for slot INDEX of lane LANE. */
void sf_rdma_endpoint_complete(struct sf_rdma_endpoint *ep, unsigned int lane,
			       uint32_t index, const struct ibv_wc *wc);
uint64_t sf_rdma_wr_id(const struct sf_rdma_endpoint *ep, unsigned int lane,
		       uint32_t index);

/* complete.c: callbacks of a context; no lock held. */
extern const struct sf_rdma_handlers sf_rdma_initiator_handlers;

/* endpoint.c; no lock held. */
/* Takes over QPS (made with depth slots each, capacity reserved). */
int sf_rdma_endpoint_new(struct sf_rdma_endpoint **out,
			 struct sf_rdma_dev *dev, struct sf_rdma_qps *qps);
/* PAIR's from now on; its peer's lock is held. No work was posted before. */
void sf_rdma_endpoint_attach(struct sf_rdma_endpoint *ep,
			     struct sf_rdma_pair *pair);
/* Its queue pairs are destroyed; no callback has it when this returns. */
void sf_rdma_endpoint_unlist(struct sf_rdma_endpoint *ep);
void sf_rdma_endpoint_free(struct sf_rdma_endpoint *ep);
/* Make room for an endpoint of NR * DEPTH completions, closing idle ones if
 * need be. -EAGAIN: in a while, perhaps. */
int sf_rdma_dev_reserve(struct sf_rdma_dev *dev, unsigned int wrs);
/* Close the endpoint that has been idle for longest. False: none is idle. */
bool sf_rdma_dev_evict(struct sf_rdma_dev *dev);
void sf_rdma_dev_unreserve(struct sf_rdma_dev *dev, unsigned int wrs);
/* Between enter and leave (or with the peer's lock, when nothing is chained):
 * its QPs go to ERR; it is freed when all its slots are back. */
void sf_rdma_endpoint_retire(struct sf_rdma_endpoint *ep, bool forgiving);
/* Retire all endpoints of DEV; no lock held. */
void sf_rdma_dev_retire_all(struct sf_rdma_dev *dev);

/* bounce.c */
#define SF_RDMA_BOUNCE_CHUNK (64u << 10)
/* A registered chunk for EP. -EAGAIN: all are in use; -ENOMEM. */
int sf_rdma_bounce_get(struct sf_rdma_endpoint *ep, int *chunk);
void sf_rdma_bounce_put(struct sf_rdma_endpoint *ep, int chunk);
char *sf_rdma_bounce_mem(const struct sf_rdma_endpoint *ep, int chunk);
uint32_t sf_rdma_bounce_lkey(const struct sf_rdma_endpoint *ep);
void sf_rdma_bounce_free(struct sf_rdma_bounce *b);	/* NULL is fine */

/* connect.c; the rest of it is in connect.h */
/* PAIR is to be connected: start with it, or with another one that is wanted,
 * unless a connect is running. False: not now (p->connect_error says why). */
bool sf_rdma_connect_want(struct sf_rdma_peer *p, struct sf_rdma_pair *pair);
/* P is closing: whoever connects for it shall not come back. No lock held. */
void sf_rdma_connect_orphan(struct sf_rdma_peer *p);

/* reap.c; no lock but the peer's held. */
int sf_rdma_reaper_new(struct sf_rdma_reaper **out);
/* All endpoints are reaped before. NULL is fine. */
void sf_rdma_reaper_free(struct sf_rdma_reaper *r);
void sf_rdma_reaper_add(struct sf_rdma_reaper *r, struct sf_rdma_endpoint *ep);
/* An endpoint that drains has its last slot back. */
void sf_rdma_reaper_kick(struct sf_rdma_reaper *r);

/* memory.c */
int sf_rdma_mem_register(void *priv, void *base, size_t len, int node,
			 struct sf_mem **out, struct sf_err *err);
void sf_rdma_mem_unregister(void *priv, struct sf_mem *mem);

/* status.c */
void sf_rdma_peer_status(void *peer, FILE *out);
int sf_rdma_peer_way(void *peer, struct sf_peer_way *out);

#endif
