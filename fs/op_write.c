/* SPDX-License-Identifier: MIT */
/*
 * WRITE. The payload goes to the wire from the buffer in which the
 * request was received. Answered when the peer has acknowledged it.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>

#include "fs/mem.h"
#include "fs/modify.h"
#include "iobuf.h"
#include "range.h"

/* One piece, in `mem` one a buffer. */
static int body(struct sf_modify *m)
{
	struct sf_transfer *t = &m->c.t;
	uint32_t left;

	m->done += m->piece;
	m->piece = 0;
	left = m->len - m->done;
	if (!left)
		return 0;
	if (!sf_mem_piece(m->h, m->op.off + m->done, &left, &t->addr))
		return m->done ? 0 : -EFAULT;
	t->op = SF_WRITE;
	t->may_pipe = false;
	t->reg = m->reg;
	t->len = m->piece = left;
	t->mem = m->data + m->done;
	return 1;
}

static void reply(struct sf_modify *m, int res)
{
	if (res == -ESTALE)
		sf_notify_stale(m->p.fs, m->node);
	if (res)
		sf_reply_err(m->p.req, res);
	else
		fuse_reply_write(m->p.req, m->done);
}

static void start(fuse_req_t req, struct sf_handle *h, const char *data,
		  uint64_t off, uint32_t len)
{
	size_t at = (size_t)(data - sf_fs_thread_self()->buf->mem);
	struct sf_modify *m = sf_modify_new(h);

	if (m)
		m->buf = sf_fs_take_buffer(sf_registration_share(h->reg), at,
					   len);
	if (!m || !m->buf) {
		if (m)
			sf_modify_free(h->fs, m);
		sf_reply_err(req, -ENOMEM);
		return;
	}
	m->data = m->buf->mem + at;
	m->len = len;
	m->op.kind = SF_GAP_WRITE;
	m->op.off = off;
	m->op.len = len;
	m->body = body;
	m->reply = reply;
	sf_modify_start(h->fs, req, m);
}

/* 0, or why nothing of it can be written. Never a success of 0 bytes: many
 * programs would try again for ever. */
static int check(const struct sf_handle *h, off_t off, bool mapped)
{
	if (!h->writable)
		return -EBADF;
	/* Whole pages from a mapping would undo what a peer has changed in
	 * the rest of them. */
	if (mapped && h->fs->config.mmap != SF_FS_MMAP_RW)
		return -EIO;
	if (off < 0)
		return -EINVAL;
	return (uint64_t)off >= h->length ? -ENOSPC : 0;
}

void sf_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
		 off_t off, struct fuse_file_info *fi)
{
	struct sf_handle *h = sf_handle_of(fi);
	int res = check(h, off, fi->writepage);

	if (res)
		sf_reply_err(req, res);
	else if (!size)
		fuse_reply_write(req, 0);
	else
		start(req, h, buf, (uint64_t)off,
		      (uint32_t)sf_range_clip((uint64_t)off, size,
					      h->length));
}
