/* SPDX-License-Identifier: MIT */
/*
 * A FUSE request that waits for something: it may be completed, interrupted or
 * ended by the daemon's stop, on different threads at once, and is answered
 * exactly once.
 *
 *	sf_pending_begin()	after that any thread may answer it
 *	sf_pending_claim()	true for the one caller who must answer, now,
 *				and then call sf_pending_answered()
 *	sf_pending_end()	the operation behind it is over; frees it
 *
 * An interrupt answers EINTR after the grace, and calls cancel() so that the
 * operation ends soon; its memory lives until then. Nothing is armed for a
 * request that is not interrupted.
 */
#ifndef SF_FS_PENDING_H
#define SF_FS_PENDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <pthread.h>
#include <sys/queue.h>

#include "timer.h"

struct fuse_req;
struct sf_fs;
struct sf_pending_shard;

struct sf_pending {
	struct sf_fs *fs;
	struct fuse_req *req;
	void (*cancel)(struct sf_pending *p);	/* may be NULL; may be called
						 * more than once */
	void (*release)(struct sf_pending *p);	/* frees what embeds P */

	/* private to pending.c */
	atomic_int state;
	atomic_uint refs;
	atomic_bool interrupted;
	struct sf_timer grace;
	struct sf_pending_shard *shard;
	TAILQ_ENTRY(sf_pending) link;
};

#define SF_PENDING_SHARDS 16

struct sf_pending_shard {
	pthread_mutex_t lock;
	TAILQ_HEAD(, sf_pending) list;
} __attribute__((aligned(64)));

/* The registry inside struct sf_fs. */
struct sf_pendings {
	struct sf_pending_shard shards[SF_PENDING_SHARDS];
	atomic_bool stopping;	/* interrupts need no grace any more */
};

void sf_pendings_init(struct sf_pendings *all);
void sf_pendings_fini(struct sf_pendings *all);
/* Answer whatever is not answered yet with EINTR and cancel it; with more each
 * time new ones may have come. Returns how many have not ended. */
unsigned int sf_pendings_stop(struct sf_fs *fs);
/* No thread is writing an answer at this moment (after the session threads
 * have ended). */
bool sf_pendings_quiet(struct sf_fs *fs);

/* SLOT spreads the registry: the session thread's number. */
void sf_pending_begin(struct sf_pending *p, struct sf_fs *fs,
		      struct fuse_req *req, unsigned int slot);
bool sf_pending_claim(struct sf_pending *p);
void sf_pending_answered(struct sf_pending *p);
void sf_pending_end(struct sf_pending *p);
bool sf_pending_is_waiting(const struct sf_pending *p);

/* Keep P's memory while it might be ended by somebody else. */
void sf_pending_hold(struct sf_pending *p);
void sf_pending_drop(struct sf_pending *p);

#endif
