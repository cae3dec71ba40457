/* SPDX-License-Identifier: MIT */
/*
 * The engine: moves bytes between local memory and registered remote memory,
 * over whichever transport the segment's owner speaks. It checks ranges, keeps
 * a session per owner, retries over broken connections, refreshes descriptors,
 * notices stale registrations, and ends every transfer exactly once, by its
 * deadline (architecture.md sections 3 and 4).
 *
 * Thread-safe; submission never blocks.
 */
#ifndef SF_TRANSFER_H
#define SF_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/queue.h>

#include "timer.h"
#include "transport.h"

struct sf_directory;
struct sf_engine;
struct sf_iobuf_pool;
struct sf_registration;
struct sf_share;

struct sf_engine_config {
	struct sf_directory *directory;	/* borrowed, as all pointers here */
	struct sf_timers *timers;
	struct sf_iobuf_pool *pool;	/* registered with every transport */
	/* NULL: by each buffer's protocol; else this one for all */
	const struct sf_transport_ops *transport;
	struct sf_transport_config io;	/* for the backends */
	unsigned int timeout_ms;	/* of one transfer, retries included */
};

int sf_engine_new(struct sf_engine **out, const struct sf_engine_config *config,
		  struct sf_err *err);
/* Fails new transfers, completes the outstanding ones (-ESHUTDOWN), closes
 * peers and transports. All registrations released before. NULL is fine. */
void sf_engine_free(struct sf_engine *e);

/*
 * What an open file is bound to: one buffer of SEG as it is now, or with BUF
 * NULL the owner only (the `mem` view: the buffer is found anew each time).
 * While the newest descriptor still says the same, the binding holds across
 * any number of broken connections; once it says something else the binding
 * is stale for good. -ENOMEM.
 */
int sf_registration_bind(struct sf_engine *e, struct sf_segment *seg,
			 const struct sf_buffer *buf,
			 struct sf_registration **out);
struct sf_registration *sf_registration_get(struct sf_registration *reg);
void sf_registration_put(struct sf_registration *reg);	/* NULL is fine */
/* The newest known snapshot no longer agrees with it. */
bool sf_registration_is_stale(struct sf_registration *reg);
/* Whom its I/O buffers are charged to (iobuf.h); lives as long as REG. */
struct sf_share *sf_registration_share(struct sf_registration *reg);

/*
 * One read, write or flush. Embedded in the caller's request; the caller fills
 * the first part, keeps it until done() and may then reuse it. A flush has the
 * address of any byte the registration covers and one byte of memory; where
 * the transport has nothing to flush it completes at once.
 */
struct sf_transfer {
	enum sf_op op;
	bool may_pipe;		/* see struct sf_io */
	uint64_t addr;		/* remote virtual address */
	uint32_t len;		/* 0 completes at once with success */
	void *mem;		/* len bytes */
	struct sf_registration *reg;	/* the transfer takes a reference */
	/* Called once, on any thread; must not block. Results of a read are
	 * in io.nr_pipes, io.pipes and io.data. */
	void (*done)(struct sf_transfer *t, int res);

	/* the engine's */
	struct sf_io io;
	struct sf_engine *engine;
	struct sf_segment *seg;	/* snapshot that io.buffer belongs to */
	uint64_t deadline_ms;
	int state;		/* engine.h; under the session's lock */
	int verdict;		/* how it must end: 0, or a negative errno */
	int result;		/* how it ended while it was being cancelled */
	int last_error;
	unsigned int attempt;
	TAILQ_ENTRY(sf_transfer) link;	/* session's list, by deadline */
	TAILQ_ENTRY(sf_transfer) wait;	/* session's list of those waiting for
					 * a refresh */
	struct sf_timer retry;
};

/*
 * Start T. Results, besides those of sf_io that are not mended by retrying:
 * 0; -EFAULT: range outside what T->reg is bound to (`mem`: in no buffer);
 * -ESTALE: the registration is no longer there; -EREMOTEIO: the peer refused
 * the range although its descriptor has it; -EOPNOTSUPP: no transport for the
 * protocol; -EADDRNOTAVAIL: the owner's address is not in the metadata;
 * -ETIMEDOUT: the deadline passed, or the peer is suspect (it let a deadline
 * pass and has not answered a probe since); -ESHUTDOWN: the engine is ending;
 * -ENOMEM; when a refresh was needed and the store failed, the first error
 * stands.
 */
void sf_transfer_submit(struct sf_engine *e, struct sf_transfer *t);

/* Give up on T (its caller no longer wants the result): no more retries, and
 * done(-ECANCELED) as soon as the wire has let go of its memory, perhaps before
 * this returns. T may be completing at this moment, but must still exist: the
 * caller keeps done() from freeing it until this has returned. */
void sf_transfer_cancel(struct sf_engine *e, struct sf_transfer *t);

/* "key: value" lines about NAME's session: transport, peers, state, first and
 * last error with their ages. Nothing when there has been no I/O. */
void sf_engine_status(struct sf_engine *e, const char *name, FILE *out);
/* How far the way to NAME's owner got, if its transport has stages to tell of.
 * -ENOENT: there has been no I/O; -EOPNOTSUPP. */
int sf_engine_way(struct sf_engine *e, const char *name,
		  struct sf_peer_way *out);

struct sf_engine_stats {
	uint64_t reads, writes, read_bytes, written_bytes, errors, retries;
	unsigned int sessions, in_flight;
};
void sf_engine_stats(struct sf_engine *e, struct sf_engine_stats *st);

#endif
