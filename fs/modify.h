/* SPDX-License-Identifier: MIT */
/*
 * A request that changes remote memory: WRITE, a zeroing FALLOCATE, a
 * truncation that leaves a gap, COPY_FILE_RANGE. It waits for its turn at the
 * file's gap, zeroes what it has to zero first, does its own pieces one after
 * another, and is answered. The file of each operation fills one in and starts
 * it.
 */
#ifndef SF_FS_MODIFY_H
#define SF_FS_MODIFY_H

#include <stdint.h>
#include <sys/stat.h>

#include "fs/chain.h"
#include "fs/gap.h"
#include "fs/pending.h"

struct sf_handle;
struct sf_iobuf;
struct sf_node;

struct sf_modify {
	struct sf_pending p;
	struct sf_chain c;
	struct sf_gap_op op;	/* kind, off, len: of the file */

	struct sf_node *node;	/* what is changed; held by H or itself */
	struct sf_handle *h;	/* a reference, or NULL */
	bool own_node;
	struct sf_registration *reg;	/* a reference */
	uint64_t addr;		/* of offset 0 */

	/* Prepare c.t for the next piece of the operation itself; the results
	 * are those of struct sf_chain. NULL: nothing but the gap. */
	int (*body)(struct sf_modify *m);
	/* Once, unless somebody answered before: RES 0 or the error. */
	void (*reply)(struct sf_modify *m, int res);

	struct sf_iobuf *buf;	/* payload, or a copy in transit */
	char *data;		/* in it */
	uint32_t len;		/* what there is to do */
	uint32_t done;		/* what is done */

	struct stat st;		/* truncation: the answer */

	struct sf_handle *from;	/* copy: a reference */
	uint64_t from_off;
	bool to_write;		/* copy: a piece was read and is in BUF */
	uint32_t piece;

	/* private to modify.c */
	struct sf_gap *gap;
	struct sf_iobuf *zeros;
	uint64_t zero_pos, zero_end;
};

/* For a request on H, which is referenced. NULL: out of memory. */
struct sf_modify *sf_modify_new(struct sf_handle *h);
/* For one without a handle: NODE is referenced, REG taken over. */
struct sf_modify *sf_modify_new_node(struct sf_fs *fs, struct sf_node *node,
				     struct sf_registration *reg);
/* Frees one that was never started. */
void sf_modify_free(struct sf_fs *fs, struct sf_modify *m);
/* REQ is M's from here on. */
void sf_modify_start(struct sf_fs *fs, struct fuse_req *req,
		     struct sf_modify *m);
/* The body of an operation that zeroes [off, off+len) of its op; sets it up
 * before the start. */
void sf_modify_zero(struct sf_modify *m);

/* SETATTR(size) on N, through H if it came with one. Replies. */
void sf_truncate(struct fuse_req *req, struct sf_node *n, struct sf_handle *h,
		 off_t size, const struct stat *st);

#endif
