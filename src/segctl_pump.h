/* SPDX-License-Identifier: MIT */
/*
 * The pump of get and put: cuts a range into pieces and keeps several of them
 * in flight. Callbacks run on the calling thread.
 */
#ifndef SF_SEGCTL_PUMP_H
#define SF_SEGCTL_PUMP_H

#include "segctl.h"
#include "transport.h"

#define PUMP_PIECE (1u << 20)

struct segctl_piece {
	uint64_t off;		/* in the range */
	uint32_t len;
	char *mem;		/* len bytes: what is to be written goes here */
	const char *data;	/* what was read is here */
};

struct segctl_pump {
	struct segctl *s;
	struct segctl_range *range;
	enum sf_op op;
	bool ordered;		/* hand pieces over in order */
	/* Writes: put bytes into piece->mem and say how many in piece->len,
	 * fewer than asked at the end of the input only. Reads: not called. */
	int (*fill)(void *arg, struct segctl_piece *piece, struct sf_err *err);
	/* A piece has been moved. */
	int (*taken)(void *arg, struct segctl_piece *piece,
		     struct sf_err *err);
	void *arg;
	uint64_t moved;		/* bytes that arrived and were handed over */
};

/* Returns when nothing is in flight any more. */
enum sf_exit segctl_pump_run(struct segctl_pump *p, struct sf_err *err);

#endif
