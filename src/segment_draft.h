/* SPDX-License-Identifier: MIT */
/*
 * A segment while it is being decoded: grows, collects problems, and is then
 * packed into an immutable snapshot by segment.c. Private to the segment
 * modules. Strings are offsets into one table, 0 being "". Running out of
 * memory is remembered in oom, so that the decoders need not check each step.
 */
#ifndef SF_SEGMENT_DRAFT_H
#define SF_SEGMENT_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"
#include "vec.h"

#define SF_PROBLEMS_MAX 32	/* lines, then a count of the rest */
#define SF_PROBLEM_LINE_MAX 200	/* bytes, newline included */
#define SF_DEVICES_MAX 256
#define SF_DRAFT_INTERN 64

struct sf_draft_device {
	uint32_t name;
	uint16_t lid;
	bool has_gid;
	uint8_t gid[16];
};

struct sf_draft_buffer {
	uint64_t addr, length;
	uint32_t location, protocol;
	uint32_t index;
	uint32_t first_key, nr_keys;	/* in keys */
	enum sf_protocol proto;
	bool long_name;
};

struct sf_draft_row {
	uint32_t location;
	uint32_t first_name, nr_names;	/* in row_names */
	uint32_t nr_preferred;
};

struct sf_draft {
	uint32_t name, self_name, protocol, timestamp, rdma_server_name;
	uint32_t tcp_data_host, rpc_host;
	uint16_t tcp_data_port, rpc_port;
	unsigned int tcp_version;

	struct sf_vec devices;		/* struct sf_draft_device */
	struct sf_vec buffers;		/* struct sf_draft_buffer */
	struct sf_vec keys;		/* uint64_t */
	struct sf_vec rows;		/* struct sf_draft_row */
	struct sf_vec row_names;	/* uint32_t, strings */

	struct sf_vec strings;		/* char */
	uint32_t interned[SF_DRAFT_INTERN];

	bool oom;
	int error;
	struct sf_vec problems;		/* char, lines */
	unsigned int nr_problems;
};

int sf_draft_init(struct sf_draft *d, const char *name);
void sf_draft_fini(struct sf_draft *d);

/* TEXT in the string table; equal texts mostly share one place. */
uint32_t sf_draft_string(struct sf_draft *d, const char *text);
const char *sf_draft_text(const struct sf_draft *d, uint32_t string);

/* N more elements of SIZE in V, zeroed; NULL sets oom. */
void *sf_draft_add(struct sf_draft *d, struct sf_vec *v, size_t size, size_t n);

/* One more line; made printable, cut, and from some number on only counted. */
void sf_draft_problem(struct sf_draft *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The descriptor cannot be used: ERROR, and a line that is never left out. */
void sf_draft_fail(struct sf_draft *d, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * When all is decoded: sort the buffers as struct sf_segment wants them, keep
 * one of those with the same range (the best to move it by), name those that
 * share an address, and close the problems with a NUL.
 */
void sf_draft_finish(struct sf_draft *d);

#endif
