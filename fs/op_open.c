/* SPDX-License-Identifier: MIT */
/*
 * OPEN and RELEASE. Opening binds the handle to one registration, taken from
 * the newest snapshot; it asks nobody but the directory, and connects to
 * nobody.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <fcntl.h>

#include "fs/ask.h"
#include "fs/control.h"
#include "fs/tree.h"
#include "segment.h"
#include "transfer.h"

static bool wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* A buffer that is not there any more is ESTALE, not ENOENT: the kernel then
 * walks the path again and finds what has the name now. */
static int bind_buffer(struct sf_handle *h, struct sf_segment *seg)
{
	const struct sf_buffer *buf =
		sf_segment_find(seg, h->node->addr, h->node->length);
	int res;

	if (!buf)
		return -ESTALE;
	h->addr = buf->addr;
	h->length = buf->length;
	atomic_store(&h->node->stale_told, false);
	res = sf_registration_bind(h->fs->config.engine, seg, buf, &h->reg);
	if (!res && h->writable)
		res = sf_handle_count_writer(h);
	return res;
}

static int bind_mem(struct sf_handle *h, struct sf_segment *seg)
{
	h->length = sf_tree_mem_size(seg);
	return sf_registration_bind(h->fs->config.engine, seg, NULL, &h->reg);
}

static int bind(struct sf_handle *h, struct sf_segment *seg)
{
	switch (h->node->kind) {
	case SF_NODE_BUFFER:
		return bind_buffer(h, seg);
	case SF_NODE_MEM:
		return bind_mem(h, seg);
	default:
		return h->writable
			       ? -EACCES
			       : sf_control_text(h->fs, h->node, seg, &h->text);
	}
}

/* SEG is NULL for the mount's own control files. Takes NODE's reference. */
static void open_node(fuse_req_t req, struct sf_node *node, int flags,
		      struct sf_segment *seg)
{
	struct sf_handle *h = sf_handle_new(sf_fs_of(req), node);
	int res;

	if (!h) {
		sf_reply_err(req, -ENOMEM);
		return;
	}
	h->writable = wants_write(flags);
	res = bind(h, seg);
	if (!res) {
		sf_reply_open(req, h);
	} else {
		sf_handle_close(h);
		sf_reply_err(req, res);
	}
}

static void answer(struct sf_ask *ask, int res, struct sf_segment *seg)
{
	struct sf_nodes *nodes = ask->p.fs->nodes;

	if (res) {
		sf_reply_err(ask->p.req, res == -ENOENT ? -ESTALE : res);
		return;
	}
	sf_node_hold(nodes, ask->node);
	open_node(ask->p.req, ask->node, ask->flags, seg);
}

void sf_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *node = sf_node_get(fs->nodes, ino);
	struct sf_ask *ask;

	if (!node) {
		sf_reply_err(req, -ESTALE);
	} else if (wants_write(fi->flags) && fs->config.read_only) {
		sf_node_put(fs->nodes, node);
		sf_reply_err(req, -EROFS);
	} else if (!sf_tree_in_segment(node->kind)) {
		open_node(req, node, fi->flags, NULL);
	} else {
		ask = sf_ask_new(req, node, NULL, answer);
		if (!ask)
			return;
		ask->flags = fi->flags;
		sf_ask_segment(ask, sf_node_segment(node));
	}
}

void sf_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	sf_handle_close(sf_handle_of(fi));
	fuse_reply_err(req, 0);
}
