/* SPDX-License-Identifier: MIT */
/*
 * Open files and directories: what FUSE's `fh` points to. Counted: the kernel's
 * open file holds one reference, every request under way another one, so that
 * a release does not pull it from under a transfer that nobody waits for.
 */
#ifndef SF_FS_HANDLE_H
#define SF_FS_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct fuse_file_info;
struct sf_blob;
struct sf_dir;
struct sf_fs;
struct sf_node;
struct sf_registration;

struct sf_handle {
	struct sf_fs *fs;
	struct sf_node *node;	/* referenced */
	bool writable;
	bool counted_writer;	/* in the node's gap */

	/* buffers and mem: what it is bound to for good */
	struct sf_registration *reg;
	uint64_t addr;		/* of offset 0 */
	uint64_t length;	/* of the file, as it was at open */

	struct sf_blob *text;	/* control files: frozen at open */
	struct sf_dir *dir;	/* directories: frozen at open */

	/* private to handle.c */
	atomic_uint refs;
	LIST_ENTRY(sf_handle) all;
};

/* Takes over the reference to NODE. NULL: out of memory, NODE is put. */
struct sf_handle *sf_handle_new(struct sf_fs *fs, struct sf_node *node);
struct sf_handle *sf_handle_get(struct sf_handle *h);
void sf_handle_put(struct sf_handle *h);	/* NULL is fine */
/* The kernel's own reference ends: no more requests through it. */
void sf_handle_close(struct sf_handle *h);
/* When the session is over: close what the kernel never released. */
void sf_handles_close_all(struct sf_fs *fs);
struct sf_handle *sf_handle_of(const struct fuse_file_info *fi);
/* Count H as a writer of its file's gap. -ENOMEM. */
int sf_handle_count_writer(struct sf_handle *h);

#endif
