/* SPDX-License-Identifier: MIT */
/*
 * Offsets to remote addresses, and LSEEK, which knows where `mem` has holes.
 * Reads snapshots only; any thread.
 */
#include "config.h"
#include "fs/mem.h"

#include <errno.h>
#include <unistd.h>

#include "blob.h"
#include "directory.h"
#include "fs/internal.h"
#include "segment.h"

static struct sf_segment *snapshot_of(struct sf_fs *fs, struct sf_node *n)
{
	return sf_directory_peek(fs->config.directory, sf_node_segment(n));
}

int sf_mem_piece(struct sf_handle *h, uint64_t off, uint32_t *len,
		 uint64_t *addr)
{
	struct sf_segment *seg;
	uint64_t run = 0;

	if (h->node->kind != SF_NODE_MEM) {
		*addr = h->addr + off;	/* inside the buffer, see op_open.c */
		return 1;
	}
	seg = snapshot_of(h->fs, h->node);
	if (seg && sf_segment_covering_run(seg, off, &run)) {
		*addr = off;
		if (run < *len)
			*len = (uint32_t)run;
	}
	sf_segment_put(seg);
	return run > 0;
}

/* The first byte at or after OFF that is in a buffer; buffers are sorted by
 * address. */
static int64_t next_data(const struct sf_segment *seg, uint64_t off)
{
	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		if (b->addr + b->length <= off)
			continue;
		if (b->addr > INT64_MAX)
			break;
		return (int64_t)(b->addr > off ? b->addr : off);
	}
	return -ENXIO;
}

static int64_t next_hole(const struct sf_segment *seg, uint64_t off)
{
	uint64_t run;

	while (off < INT64_MAX && sf_segment_covering_run(seg, off, &run))
		off += run;
	return off < INT64_MAX ? (int64_t)off : INT64_MAX;
}

int sf_mem_first(struct sf_handle *h, uint64_t *off)
{
	struct sf_segment *seg;
	int64_t at = 0;

	if (h->node->kind == SF_NODE_MEM) {
		seg = snapshot_of(h->fs, h->node);
		at = seg ? next_data(seg, 0) : -ENXIO;
		sf_segment_put(seg);
	}
	*off = (uint64_t)at;
	return at >= 0;
}

static int64_t seek_mem(struct sf_handle *h, uint64_t off, int whence)
{
	struct sf_segment *seg = snapshot_of(h->fs, h->node);
	int64_t at = -ESTALE;

	if (seg)
		at = whence == SEEK_DATA ? next_data(seg, off)
					 : next_hole(seg, off);
	sf_segment_put(seg);
	return at;
}

void sf_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		 struct fuse_file_info *fi)
{
	struct sf_handle *h = sf_handle_of(fi);
	uint64_t size = h->text ? h->text->len : h->length;
	int64_t at;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		at = -EINVAL;
	else if (off < 0 || (uint64_t)off >= size)
		at = -ENXIO;
	else if (h->node->kind == SF_NODE_MEM)
		at = seek_mem(h, (uint64_t)off, whence);
	else
		at = whence == SEEK_DATA ? off : (int64_t)size;
	if (at < 0)
		sf_reply_err(req, (int)at);
	else
		fuse_reply_lseek(req, at);
}
