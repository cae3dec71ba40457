/* SPDX-License-Identifier: MIT */
/*
 * One connection of the TCP target: what it does with a readable or writable
 * socket. Private to tcp/target*.c; a connection belongs to one thread.
 */
#ifndef SF_TCP_TARGET_CONN_H
#define SF_TCP_TARGET_CONN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "ratelimit.h"
#include "tcp/target.h"
#include "tcp/wire.h"

/* Bytes one connection may move before the thread looks at the next one; also
 * the largest piece one system call is asked to move. */
#define SF_TARGET_CHUNK (1u << 20)
/* Headers (and what came in behind them) are received into this much. */
#define SF_TARGET_STAGE 4096
/* Answers that one sendmsg() can carry. */
#define SF_TARGET_ANSWERS 32

/* How long, and for how many bytes, a refused client is listened to so that it
 * can read the refusal. */
#define SF_TARGET_DRAIN_MS 2000
#define SF_TARGET_DRAIN_BYTES (64u << 20)

struct sf_target_counters {
	atomic_uint_least64_t reads, writes, read_bytes, written_bytes;
	atomic_uint_least64_t rejected;
};

/* What the connections of one thread share. */
struct sf_target_shared {
	const struct sf_region *regions;	/* sorted by addr */
	size_t nr_regions;
	struct sf_target_counters counters;	/* written by one thread */
	struct sf_ratelimit fault_log;
	int pipe[2];	/* for copies that may hit memory that is gone */
};

enum sf_conn_state {
	SF_CONN_HEADER,		/* a header comes next */
	SF_CONN_READ,		/* payload is still to be queued */
	SF_CONN_WRITE,		/* payload is still to be received */
	SF_CONN_REFUSED,	/* send what is queued, then drain */
	SF_CONN_LAST,		/* send what is queued, then close */
	SF_CONN_DRAIN,		/* half-closed, discarding */
};

/* Answers on their way out; emptied before it is used again. */
struct sf_conn_out {
	struct iovec iov[2 * SF_TARGET_ANSWERS];
	unsigned int first, nr;	/* iov[first..nr) are to be sent */
	uint8_t status[SF_TARGET_ANSWERS][SF_TCP_STATUS_LEN];
	unsigned int nr_status;
	size_t bytes;		/* queued, sent ones too */
	bool payload;		/* points into a region */
};

struct sf_conn {
	int fd;
	enum sf_conn_state state;
	uint32_t events;	/* epoll interest as set */
	bool readable;		/* the socket may have more right now */
	bool last_was_write;	/* then do not read past the next header */
	struct sf_target_shared *shared;
	LIST_ENTRY(sf_conn) link;		/* these three: target.c's */
	TAILQ_ENTRY(sf_conn) drain_link;
	uint64_t drain_until_ms;
	uint64_t drain_left;

	struct sf_tcp_request req;	/* being served */
	uint64_t addr, left;	/* of its payload, still to be moved */
	size_t stage_first, stage_end;
	uint8_t stage[SF_TARGET_STAGE];
	struct sf_conn_out out;
};

/*
 * Do what can be done without blocking, about SF_TARGET_CHUNK bytes of it.
 * Returns the epoll events to wait for, or a negative errno: close it
 * (-ENODATA: it is over and nothing is wrong). May enter SF_CONN_DRAIN.
 */
int sf_conn_run(struct sf_conn *c);

#endif
