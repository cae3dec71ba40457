/* SPDX-License-Identifier: MIT */
/*
 * Truncation of a file that cannot be truncated (fuse-practice.md section 2).
 *
 * The size never changes, but a program that truncated the file believes that
 * what it skips from then on reads as zeros. While a file is "armed" it has a
 * logical end; an operation that begins behind that end must first zero what
 * lies between, and operations run one at a time. With a second writer nobody
 * can say what a gap is any more: the file is disarmed.
 *
 * This is the state machine and the queue only: it says who may run when, and
 * what is to be zeroed first; it moves no bytes and knows neither FUSE nor the
 * engine. Thread-safe; start() is called without locks.
 */
#ifndef SF_FS_GAP_H
#define SF_FS_GAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct sf_gap;

enum sf_gap_kind {
	SF_GAP_WRITE,	/* [off, off+len) gets new bytes */
	SF_GAP_EXTEND,	/* the logical end becomes at least off (fallocate) */
	SF_GAP_TRUNCATE,	/* the logical end becomes off: arms */
};

/* Embedded in the request; the caller fills the first part. */
struct sf_gap_op {
	enum sf_gap_kind kind;
	uint64_t off;
	uint64_t len;
	/* Go: zero [zero_from, zero_to) if that is not empty, then do it, then
	 * call sf_gap_leave(). Called once, from enter or from another
	 * operation's leave (or from sf_gap_opened()). */
	void (*start)(struct sf_gap_op *op);

	/* for start() to read */
	uint64_t zero_from, zero_to;

	/* private to gap.c */
	bool alone;
	TAILQ_ENTRY(sf_gap_op) link;
};

/* Of a file of SIZE bytes. NULL: out of memory. */
struct sf_gap *sf_gap_new(uint64_t size);
void sf_gap_free(struct sf_gap *g);	/* nothing runs or waits; NULL ok */

/* A writable handle was opened / closed. A second one disarms, the last close
 * too. */
void sf_gap_opened(struct sf_gap *g);
void sf_gap_closed(struct sf_gap *g);

void sf_gap_enter(struct sf_gap *g, struct sf_gap_op *op);
/* OP is over; OK: it did what it was to do (else the end stays where it was).
 * OP is not used any more. */
void sf_gap_leave(struct sf_gap *g, struct sf_gap_op *op, bool ok);

/* For tests and status: the logical end, or UINT64_MAX when not armed. */
uint64_t sf_gap_end(struct sf_gap *g);

#endif
