/* SPDX-License-Identifier: MIT */
/*
 * The inside of the TCP initiator: a peer, its lanes (connections), and the
 * requests on them. Shared by the files of this folder only.
 *
 * An I/O becomes a job of one or more parts; a part is one request on the
 * wire. A part waits in the peer's queue until a lane takes it, then stands in
 * that lane's queue, in the order of the wire, until it is answered.
 *
 * One lock a peer guards all of this; system calls on a lane's socket and
 * calls of done() are made without it. Who sends on a lane has set its sending
 * flag, the loop's thread sets receiving; a part that either may be using
 * stays where it is until both have let go, even when the lane is dying. So
 * when a job is finished nobody touches its memory.
 *
 * Whoever works on a peer does it between sf_tcp_peer_enter() and _leave();
 * what was put off under the lock is done by leave(): completions first, then
 * lanes that have something to send.
 */
#ifndef SF_TCP_PEER_H
#define SF_TCP_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "tcp/loop.h"
#include "tcp/wire.h"
#include "timer.h"
#include "transport.h"

struct addrinfo;
struct sf_err;
struct sf_tcp_job;
struct sf_tcp_lane;
struct sf_tcp_lookup;
struct sf_tcp_lookups;

#define SF_TCP_LANES_MAX 64
#define SF_TCP_ADDRS_MAX 8

struct sf_tcp {
	struct sf_transport_config config;
	struct sf_tcp_lookups *lookups;
	unsigned int nr_loops;
	struct sf_tcp_loop **loops;
	atomic_uint next_loop;	/* of the next peer's first lane */
};

enum sf_tcp_part_state {
	SF_TCP_PART_WAITING,	/* in the peer's queue */
	SF_TCP_PART_ON_LANE,	/* in its lane's queue */
	SF_TCP_PART_ANSWERED,	/* in no queue: answered while its sender had
				 * not returned yet; he will finish it */
	SF_TCP_PART_DONE,
};

struct sf_tcp_part {
	TAILQ_ENTRY(sf_tcp_part) link;
	struct sf_tcp_job *job;
	struct sf_tcp_lane *lane;
	enum sf_tcp_part_state state;
	uint32_t off, len;	/* of the job's memory */
	unsigned int redrives;
	int fail;		/* how it ends when its lane dies; 0: not */

	/* To be sent: head, a write's payload, and for a v1 write the proof, a
	 * read of its last byte, which is served after it. */
	bool in_batch;		/* in the sendmsg() that is going on */
	uint64_t to_send, sent;
	uint8_t head[SF_TCP_HEADER_LEN];
	uint8_t proof[SF_TCP_HEADER_LEN];

	/* To be received: a v2 status, a read's payload or the proof's byte. */
	uint64_t to_get, got;
	uint32_t status_len;
	bool lone;		/* has its connection to itself */
	bool until_eof;		/* a lone v1 write: proven by a clean FIN */
	bool no_pipe;
	uint8_t status[SF_TCP_STATUS_LEN];
	uint8_t proof_byte;
	struct sf_pipe *pipe;	/* holds what came of the payload, or NULL */
};

struct sf_tcp_job {
	STAILQ_ENTRY(sf_tcp_job) link;	/* peer's done or free */
	struct sf_io *io;
	int res;		/* first error */
	bool cancelled;
	bool placed;		/* cut into parts for good */
	bool may_pipe;
	unsigned int nr_parts, left;
	struct sf_tcp_part parts[SF_IO_PIPES_MAX];
};

enum sf_tcp_lane_state {
	SF_TCP_LANE_FREE,
	SF_TCP_LANE_CONNECTING,
	SF_TCP_LANE_OPEN,
	SF_TCP_LANE_NR_STATES
};

TAILQ_HEAD(sf_tcp_parts, sf_tcp_part);
STAILQ_HEAD(sf_tcp_jobs, sf_tcp_job);

struct sf_tcp_lane {
	struct sf_tcp_source source;
	struct sf_tcp_peer *peer;
	struct sf_tcp_loop *loop;
	unsigned int index;

	enum sf_tcp_lane_state state;
	int fd;
	bool sending, receiving;
	bool dying;		/* buried when neither is sending/receiving */
	bool forgiving;		/* its death is nobody's fault on it */
	bool full;		/* socket took no more: an event will come */
	bool writable;		/* that event came while sending */
	bool mute;		/* sending failed; only listen to what comes */
	bool lone;		/* its one request must stay the only one */
	unsigned int nr_taken;	/* parts ever put on this connection */
	unsigned int answered;	/* requests answered on this connection */
	uint32_t last_len;	/* of the last one of them */
	unsigned int nr_suspects;	/* parts on it that were on a lane that
					 * broke: each travels alone */
	uint64_t load;		/* of the parts on it, see place.c */
	struct sf_tcp_parts parts;
	struct sf_tcp_part *unsent;	/* first one not handed to a sendmsg()
					 * in full; NULL: none */
	unsigned int addr_tries;
	uint64_t connect_deadline_ms;	/* for all addresses */
	uint64_t addr_deadline_ms;	/* for this one */
	struct sf_timer timer;
};

struct sf_tcp_addr {
	struct sockaddr_storage ss;
	socklen_t len;
};

struct sf_tcp_peer {
	struct sf_tcp *tcp;
	pthread_mutex_t lock;
	pthread_cond_t left;	/* users fell to 0 while closing */

	/* all under lock */
	struct sf_segment *seg;
	unsigned int users;
	bool closing;
	bool v2;
	bool persistent;	/* v1: was seen to answer twice */
	bool one_shot;		/* v1: closes after each request */
	struct sf_tcp_parts waiting;
	unsigned int nr_waiting;
	struct sf_tcp_jobs done, free;

	struct sf_tcp_lookup *lookup;	/* running */
	unsigned int nr_addrs, good_addr;
	struct sf_tcp_addr addrs[SF_TCP_ADDRS_MAX];
	int connect_error;	/* of the last attempt; 0: it worked */
	unsigned int backoff_ms;
	uint64_t retry_ms;	/* no attempt before */
	uint64_t extra_ms;	/* no further lanes before */

	uint64_t reconnects;
	char last_error[256];
	uint64_t last_error_ms;

	unsigned int nr_state[SF_TCP_LANE_NR_STATES];	/* lanes, by state */
	uint64_t kick;		/* lanes with something to send, by index */
	unsigned int nr_lanes;
	struct sf_tcp_lane lanes[];
};

/* peer.c */
int sf_tcp_peer_new(struct sf_tcp_peer **out, struct sf_tcp *tcp,
		    struct sf_segment *seg);
void sf_tcp_peer_free(struct sf_tcp_peer *p);
void sf_tcp_peer_enter(struct sf_tcp_peer *p);
void sf_tcp_peer_leave(struct sf_tcp_peer *p);
/* All below, in all files: with the lock held, between enter and leave. */

/* Deliver finished jobs; drops the lock meanwhile. */
void sf_tcp_peer_deliver(struct sf_tcp_peer *p);
/* Record a sentence for the status file. */
void sf_tcp_peer_note(struct sf_tcp_peer *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* job.c */
/* With one part, for all of IO. */
struct sf_tcp_job *sf_tcp_job_new(struct sf_tcp_peer *p, struct sf_io *io);
/* Add a part for LEN bytes OFF bytes into the job's memory. */
struct sf_tcp_part *sf_tcp_job_add(struct sf_tcp_peer *p,
				   struct sf_tcp_job *job, uint32_t off,
				   uint32_t len);
/* A part is in no queue any more: its job is done when all are. */
void sf_tcp_part_finish(struct sf_tcp_peer *p, struct sf_tcp_part *part,
			int res);
/* Ready for another connection: nothing sent, nothing received. */
void sf_tcp_part_rewind(struct sf_tcp_peer *p, struct sf_tcp_part *part);
/* What part asks of a server that speaks as P's does. */
void sf_tcp_part_prepare(struct sf_tcp_peer *p, struct sf_tcp_part *part);

/* piped.c; both without the lock */
/* Move payload of PART from LANE's socket to its pipe: bytes, 0 at the end of
 * the stream, -errno of splice(2), -EIO; SF_TCP_NO_PIPE: it has to be received
 * in memory, from where it stands. */
#define SF_TCP_NO_PIPE (-EXFULL)
ssize_t sf_tcp_part_splice(struct sf_tcp_lane *lane, struct sf_tcp_part *part);
/* Hand JOB's pipes to its I/O, or empty them into memory when not all parts are
 * in pipes. The job's result. */
int sf_tcp_job_settle_pipes(struct sf_tcp *tcp, struct sf_tcp_job *job);

/* place.c: which lane takes which part */
void sf_tcp_peer_queue(struct sf_tcp_peer *p, struct sf_tcp_part *part);
/* Give waiting parts to lanes, open lanes, or fail what has to wait for a
 * connection that can't be had. */
void sf_tcp_peer_pump(struct sf_tcp_peer *p);
/* Nothing is under way on any lane. */
bool sf_tcp_peer_is_idle(const struct sf_tcp_peer *p);
/* A new connection was of no use: be content with those there are for now. */
void sf_tcp_peer_no_extra(struct sf_tcp_peer *p);
/* Connecting has failed for now: whoever needs a connection is told so. */
void sf_tcp_peer_unreachable(struct sf_tcp_peer *p, int error);
void sf_tcp_peer_reachable(struct sf_tcp_peer *p);
/* Finish all that wait. */
void sf_tcp_peer_fail_waiting(struct sf_tcp_peer *p, int res);

/* connect.c */
/* Where SEG's owner serves; false: it does not say. */
bool sf_tcp_endpoint(const struct sf_segment *seg, const char **host,
		     uint16_t *port);
/* Begin to open LANE, a free one. 0 also while a name is being looked up; or
 * why not, as results of I/O. */
int sf_tcp_lane_connect(struct sf_tcp_lane *lane);
void sf_tcp_lane_connect_event(struct sf_tcp_lane *lane);
/* Give up on connecting. */
void sf_tcp_lane_connect_stop(struct sf_tcp_lane *lane);

/* lane.c */
void sf_tcp_lane_init(struct sf_tcp_lane *lane, struct sf_tcp_peer *p,
		      unsigned int index, struct sf_tcp_loop *loop);
void sf_tcp_lane_set_state(struct sf_tcp_lane *lane,
			   enum sf_tcp_lane_state state);
void sf_tcp_lane_append(struct sf_tcp_lane *lane, struct sf_tcp_part *part);
/* Take PART out of its lane's queue. */
void sf_tcp_lane_remove(struct sf_tcp_lane *lane, struct sf_tcp_part *part);
/* No byte of PART is on the wire and nobody is using it. */
bool sf_tcp_part_is_untouched(const struct sf_tcp_part *part);
/* Close the connection. Parts on it whose fail is set end so, others go to
 * another lane. FORGIVING: that does not count as a failed attempt. */
void sf_tcp_lane_break(struct sf_tcp_lane *lane, bool forgiving);
/* sending or receiving has ended: bury the lane if it is dying. */
void sf_tcp_lane_settle(struct sf_tcp_lane *lane);

/* send.c, receive.c; both drop the lock meanwhile */
void sf_tcp_lane_send(struct sf_tcp_lane *lane);
void sf_tcp_lane_receive(struct sf_tcp_lane *lane, uint32_t events);

#endif
