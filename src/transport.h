/* SPDX-License-Identifier: MIT */
/*
 * The gate in front of the transport backends. The engine (transfer.h) is its
 * only caller besides segctl's bench. A backend exports one const struct
 * sf_transport_ops; transport.c lists them.
 *
 * Objects: a transport (one opened backend), its memory registrations, its
 * peers (one a segment owner), and I/O requests. Submission never blocks;
 * completion is asynchronous and happens exactly once, on a transport thread
 * or, when it can be known at once, on the submitting thread before submit
 * returns.
 */
#ifndef SF_TRANSPORT_H
#define SF_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "err.h"
#include "segment.h"

struct sf_introducer;
struct sf_mem;
struct sf_peer;
struct sf_pipe;
struct sf_pipe_pool;
struct sf_rdma_config;
struct sf_timers;
struct sf_transport;

enum sf_op {
	SF_READ,
	SF_WRITE,
	/* Done when every write to this peer that was acknowledged before is
	 * visible in its memory. For transports with SF_TRANSPORT_FLUSH only;
	 * addr is any byte of buffer, len 1, and mem a byte that may be
	 * overwritten. */
	SF_FLUSH,
};

/* What all backends are told; options of one backend only stay here too, so
 * that mains need not know which backend wants what. Borrowed pointers outlive
 * the transport. */
struct sf_transport_config {
	struct sf_timers *timers;
	struct sf_pipe_pool *pipes;	/* NULL: never deliver in pipes */
	unsigned int connect_timeout_ms;
	unsigned int timeout_ms;	/* of a request, for keepalives */
	unsigned int threads;		/* 0: one per CPU */
	unsigned int tcp_lanes;		/* connections a peer, 1..64 */
	size_t tcp_split;		/* split requests from twice this size
					 * up over idle lanes; 0: never */
	size_t tcp_splice;		/* deliver reads in pipes from this size
					 * up; 0: never */
	unsigned int tcp_version;	/* 0: what the descriptor offers; 1 */
	const struct sf_rdma_config *rdma;	/* NULL: its defaults */
	struct sf_introducer *introducer;	/* introduce.h; NULL: none */
};

#define SF_IO_PIPES_MAX 8

/*
 * One read or write of one contiguous range inside one registered buffer of
 * the peer. Owned by the caller, untouched by it between submit and done.
 */
struct sf_io {
	enum sf_op op;
	bool may_pipe;		/* a read may be delivered in pipes */
	uint64_t addr;		/* remote virtual address */
	uint32_t len;		/* bytes, > 0 */
	void *mem;		/* local memory, len bytes; always given */
	struct sf_mem *reg;	/* registration that holds mem, or NULL */
	const struct sf_buffer *buffer;	/* holds the range; lives until done */
	const struct sf_segment *seg;	/* the snapshot that buffer is in, by
					 * whose devices its keys go */
	uint64_t deadline_ms;	/* the engine's; a hint for the backend */

	/* Called once. RES 0 or a negative errno, see below. */
	void (*done)(struct sf_io *io, int res);

	/* Results of a read that succeeded. nr_pipes > 0: the payload is not in
	 * mem but in these pipes, in this order, exactly len bytes; done()
	 * owns them. data: where it is otherwise (mem, or memory of the
	 * transport's own, valid until done() returns or, if the caller asks
	 * no more, until the peer is closed). */
	unsigned int nr_pipes;
	struct sf_pipe *pipes[SF_IO_PIPES_MAX];
	const void *data;

	void *priv;		/* the backend's, between submit and done */
};

/* "read", "write", "flush" */
const char *sf_op_name(enum sf_op op);

/*
 * Results of an I/O:
 * 0			done: a write was acknowledged by the peer
 * -EREMOTEIO		the peer refused the range or the key
 * -ECONNRESET		the connection broke with the request on it (any
 *			further detail is in the peer's status); may or may
 *			not have been executed; repeating it is harmless
 * -ECONNREFUSED, -EHOSTUNREACH, -ENETUNREACH	could not connect
 * -ETIMEDOUT		could not connect in connect_timeout_ms
 * -EPROTO		the peer does not speak the protocol
 * -EIO			the peer broke off in a way that repeating won't mend
 *			(it accepted the range, then could not deliver)
 * -ECANCELED		after sf_peer_cancel()
 * -ENODEV		no usable local device
 * -ENOMEM
 */

enum sf_transport_caps {
	SF_TRANSPORT_NEEDS_MEM = 1,	/* mem must be registered */
	SF_TRANSPORT_PIPES = 2,		/* may deliver reads in pipes */
	SF_TRANSPORT_FLUSH = 4,		/* knows SF_FLUSH: that a write was
					 * acknowledged does not say that it
					 * is visible yet */
};

/* Backend I of the table, in order; NULL past the last. */
const struct sf_transport_ops *sf_transport_nth(unsigned int i);
/* Backends by name ("tcp", "null"), for options; NULL. */
const struct sf_transport_ops *sf_transport_find(const char *name);
/* The backend that speaks a descriptor's protocol; NULL: none. */
const struct sf_transport_ops *sf_transport_for(enum sf_protocol proto);

int sf_transport_open(struct sf_transport **out,
		      const struct sf_transport_ops *ops,
		      const struct sf_transport_config *config,
		      struct sf_err *err);
/* All peers closed before. NULL is fine. */
void sf_transport_close(struct sf_transport *t);
const char *sf_transport_name(const struct sf_transport *t);
unsigned int sf_transport_caps(const struct sf_transport *t);

/* Register LEN bytes of pool memory at BASE on NUMA node NODE (-1 unknown)
 * with every device. *OUT may become NULL when the backend needs none. */
int sf_transport_register(struct sf_transport *t, void *base, size_t len,
			  int node, struct sf_mem **out, struct sf_err *err);
void sf_transport_unregister(struct sf_transport *t, struct sf_mem *mem);

/* A peer for the owner SEG describes; connects when first needed. SEG is
 * referenced. Never blocks. -EADDRNOTAVAIL: no address to talk to (rpc_meta or
 * tcp_data_port missing); -ENOMEM. */
int sf_peer_open(struct sf_transport *t, struct sf_segment *seg,
		 struct sf_peer **out, struct sf_err *err);
/* A newer snapshot of the same owner (sf_segment_same_owner()). */
void sf_peer_update(struct sf_peer *p, struct sf_segment *seg);
/* Outstanding I/O is completed with -ECANCELED first; may wait for transport
 * threads to let go of it, never for the network. Not from done(). NULL ok. */
void sf_peer_close(struct sf_peer *p);

/* Checks len, addr and wrap-around (asserts: they are the engine's duty). */
void sf_peer_submit(struct sf_peer *p, struct sf_io *io);
/* Ask that IO complete soon, whatever the network does; it ends with
 * -ECANCELED, or as it was about to. It may have completed already: the caller
 * guarantees that IO's memory is still there and not submitted anew. May call
 * done() before it returns. Thread-safe. */
void sf_peer_cancel(struct sf_peer *p, struct sf_io *io);
/* Lines "key: value" for the segment's status file: version, lanes, peers,
 * last error. Never keys or payload. */
void sf_peer_status(struct sf_peer *p, FILE *out);

/* How far connecting to a peer got, for who looks for a fault. */
struct sf_peer_way {
	const char *failed;	/* the stage that failed first, since something
				 * worked; NULL: none */
	char via[256];		/* local end -> remote end, how connected */
	char text[SF_ERR_TEXT_MAX];	/* what was wrong, the peer's words */
};

/* -EOPNOTSUPP: this transport has no stages. -ENOENT: nothing has been tried
 * yet. */
int sf_peer_way(struct sf_peer *p, struct sf_peer_way *out);

struct sf_transport_ops {
	const char *name;
	enum sf_protocol proto;
	unsigned int caps;
	int (*open)(void **priv, const struct sf_transport_config *config,
		    struct sf_err *err);
	void (*close)(void *priv);
	int (*peer_open)(void *priv, struct sf_segment *seg, void **peer,
			 struct sf_err *err);
	void (*peer_close)(void *peer);
	void (*submit)(void *peer, struct sf_io *io);
	void (*cancel)(void *peer, struct sf_io *io);

	/* optional */
	int (*mem_register)(void *priv, void *base, size_t len, int node,
			    struct sf_mem **out, struct sf_err *err);
	void (*mem_unregister)(void *priv, struct sf_mem *mem);
	void (*peer_update)(void *peer, struct sf_segment *seg);
	void (*peer_status)(void *peer, FILE *out);
	int (*peer_way)(void *peer, struct sf_peer_way *out);
};

extern const struct sf_transport_ops sf_transport_null;
extern const struct sf_transport_ops sf_transport_rdma;	/* HAVE_RDMA */
extern const struct sf_transport_ops sf_transport_tcp;

#endif
