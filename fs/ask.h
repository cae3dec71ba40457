/* SPDX-License-Identifier: MIT */
/*
 * A FUSE request that waits for the directory: LOOKUP, OPEN, OPENDIR. Answered
 * inline when the directory's cache can, else from a worker; interruptible.
 */
#ifndef SF_FS_ASK_H
#define SF_FS_ASK_H

#include "fs/pending.h"
#include "names.h"

struct sf_node;
struct sf_segment;

struct sf_ask {
	struct sf_pending p;
	struct sf_node *node;	/* the request's, referenced */
	int flags;		/* of open */
	char name[SF_NAME_MAX + 1];	/* of lookup */
	char *segment;		/* the name asked for, malloc'ed, or NULL */
	/* Reply to p.req, exactly once. RES 0: SEG is a borrowed snapshot. */
	void (*answer)(struct sf_ask *ask, int res, struct sf_segment *seg);
};

/* Takes over the reference to NODE. NULL after having replied: no memory. */
struct sf_ask *sf_ask_new(struct fuse_req *req, struct sf_node *node,
			  const char *name,
			  void (*answer)(struct sf_ask *ask, int res,
					 struct sf_segment *seg));
/* For the newest snapshot of SEGMENT. The last use of ASK by the caller. */
void sf_ask_segment(struct sf_ask *ask, const char *segment);
/* RUN on a worker; it ends with sf_ask_finish() or sf_ask_segment(). */
void sf_ask_worker(struct sf_ask *ask, void (*run)(struct sf_ask *ask));
void sf_ask_finish(struct sf_ask *ask, int res, struct sf_segment *seg);

#endif
