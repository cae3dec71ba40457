/* SPDX-License-Identifier: MIT */
/*
 * Inside segctl: what its commands share. Each command is one function in a
 * file of its own that prints, explains its failure, and returns the exit
 * status.
 */
#ifndef SF_SEGCTL_H
#define SF_SEGCTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "context.h"
#include "core_options.h"
#include "err.h"

struct sf_buffer;
struct sf_registration;
struct sf_segment;

enum segctl_bench_op { BENCH_READ, BENCH_WRITE };
enum segctl_bench_order { BENCH_SEQ, BENCH_RANDOM };

struct segctl {
	struct sf_core_options core;
	char *metadata;
	bool json;
	/* ls */
	bool details;
	/* get, put */
	char *output, *input;
	bool quiet;
	/* get, put, bench */
	unsigned int depth;
	/* bench */
	int op, order;
	size_t block;
	unsigned int jobs, time_ms;
	char *buffer;
	bool may_overwrite;

	struct sf_context *ctx;		/* after segctl_open() */
};

enum sf_exit segctl_ls(struct segctl *s, char **args, int nr);
enum sf_exit segctl_get(struct segctl *s, char **args, int nr);
enum sf_exit segctl_put(struct segctl *s, char **args, int nr);
enum sf_exit segctl_probe(struct segctl *s, char **args, int nr);
enum sf_exit segctl_bench(struct segctl *s, char **args, int nr);

/* "segctl: text" on stderr; returns STATUS. */
enum sf_exit segctl_fail(enum sf_exit status, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Connect to the store; the pool gets NR_BUFS buffers of BUF_BYTES. */
enum sf_exit segctl_open(struct segctl *s, size_t nr_bufs, size_t buf_bytes,
			 struct sf_err *err);
/* A reference to the newest snapshot of NAME. SF_EXIT_META: the store; PEER: no
 * such segment, or its descriptor cannot be used. */
enum sf_exit segctl_lookup(struct segctl *s, const char *name,
			   struct sf_segment **seg, struct sf_err *err);
/* What a failed transfer means for the exit status. */
enum sf_exit segctl_transfer_status(int res);

/* TEXT as a JSON string, quotes included; what is not UTF-8 is replaced. */
void segctl_json_string(FILE *out, const char *text);
/* TEXT for people: control characters are replaced. */
void segctl_plain(FILE *out, const char *text);

/*
 * A range of a segment, cut into pieces that each lie in one buffer. What is
 * read is bound to the registrations of one snapshot, so that a range never
 * mixes two of them.
 */
struct segctl_range {
	struct sf_segment *seg;		/* a reference */
	const struct sf_buffer *only;	/* named exactly: stay in it; or NULL */
	uint64_t addr, len;
	/* cursor */
	uint64_t done;
	uint64_t run;			/* what is left in reg's buffer */
	struct sf_registration *reg;
};

/* ADDR is 0x.. (or decimal), or a buffer's file name; LEN is a size, or NULL or
 * "all": up to the end of the buffer. */
enum sf_exit segctl_range_init(struct segctl *s, struct segctl_range *r,
			       const char *segment, const char *addr,
			       const char *len, struct sf_err *err);
void segctl_range_fini(struct segctl_range *r);
/* The next piece of at most MAX bytes. *LEN 0 at the end. *REG is borrowed
 * until the next call. */
int segctl_range_next(struct segctl *s, struct segctl_range *r, uint32_t max,
		      uint64_t *addr, uint32_t *len,
		      struct sf_registration **reg);

#endif
