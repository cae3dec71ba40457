/* SPDX-License-Identifier: MIT */
/*
 * A chain of transfers, one after another, through one struct sf_transfer:
 * what a request needs that cannot be done in one piece. A plain read or write
 * is a chain of one.
 */
#ifndef SF_FS_CHAIN_H
#define SF_FS_CHAIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "transfer.h"

struct sf_chain {
	struct sf_engine *engine;
	struct sf_transfer t;	/* zeroed; t.reg stays valid until release */
	/* Fill t for the next piece: 1; or 0: all done; or a negative errno,
	 * which ends the chain. */
	int (*next)(struct sf_chain *c);
	/* Once, on any thread: 0 or the error of the piece that failed. */
	void (*end)(struct sf_chain *c, int res);
	/* Somebody holds C's memory between these two. */
	void (*hold)(struct sf_chain *c);
	void (*drop)(struct sf_chain *c);

	/* private to chain.c */
	atomic_int phase;
	atomic_bool stop;
	int res;
};

void sf_chain_start(struct sf_chain *c);
/* No further pieces, and the present one as soon as possible: end() gets
 * -EINTR, or the piece's own error. Any thread but one that is inside next();
 * C's memory must be held, and C must have been started or be zeroed. */
void sf_chain_cancel(struct sf_chain *c);

#endif
