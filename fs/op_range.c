/* SPDX-License-Identifier: MIT */
/*
 * FALLOCATE and COPY_FILE_RANGE. Space is always allocated; zeroing a range is
 * a write of zeros. A copy inside the mount goes through the daemon's buffers,
 * not through the caller.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>

#include "fs/modify.h"
#include "iobuf.h"
#include "range.h"

/* A reply can be interrupted only as a whole, so it must not be a long one. */
#define COPY_MAX (64u << 20)

static void reply_ok(struct sf_modify *m, int res)
{
	if (res)
		sf_reply_err(m->p.req, res);
	else
		fuse_reply_err(m->p.req, 0);
}

static bool zeroes(int mode)
{
	return mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE);
}

static bool is_known(int mode)
{
	switch (mode) {
	case 0:
	case FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_ZERO_RANGE:
	case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
	case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
		return true;
	default:
		return false;
	}
}

static int check(const struct sf_handle *h, int mode, off_t off, off_t len)
{
	if (h->node->kind != SF_NODE_BUFFER || !is_known(mode))
		return -EOPNOTSUPP;
	if (!h->writable)
		return -EBADF;
	if (off < 0 || len <= 0)
		return -EINVAL;
	if (!sf_range_within((uint64_t)off, (uint64_t)len, 0, h->length))
		return -ENOSPC;
	return 0;
}

void sf_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
		     off_t len, struct fuse_file_info *fi)
{
	struct sf_handle *h = sf_handle_of(fi);
	int res = check(h, mode, off, len);
	struct sf_modify *m;

	if (res) {
		sf_reply_err(req, res);
		return;
	}
	if (mode == FALLOC_FL_KEEP_SIZE) {
		fuse_reply_err(req, 0);
		return;
	}
	m = sf_modify_new(h);
	if (!m) {
		sf_reply_err(req, -ENOMEM);
		return;
	}
	m->reply = reply_ok;
	m->op.kind = SF_GAP_EXTEND;
	m->op.off = (uint64_t)off + (uint64_t)len;
	if (zeroes(mode)) {
		m->op.kind = SF_GAP_WRITE;
		m->op.off = (uint64_t)off;
		m->op.len = (uint64_t)len;
		sf_modify_zero(m);
	}
	sf_modify_start(h->fs, req, m);
}

/* ---- copying ---- */

static int read_piece(struct sf_modify *m)
{
	struct sf_transfer *t = &m->c.t;
	uint32_t left = m->len - m->done;

	if (!left)
		return 0;
	m->piece = left < SF_FS_MAX_IO ? left : SF_FS_MAX_IO;
	m->to_write = true;
	t->op = SF_READ;
	t->may_pipe = false;
	t->reg = m->from->reg;
	t->addr = m->from->addr + m->from_off + m->done;
	t->len = m->piece;
	t->mem = m->buf->mem;
	return 1;
}

static int write_piece(struct sf_modify *m)
{
	struct sf_transfer *t = &m->c.t;

	if (t->io.data != t->mem)
		memcpy(t->mem, t->io.data, t->len);
	m->to_write = false;
	t->op = SF_WRITE;
	t->reg = m->reg;
	t->addr = m->addr + m->op.off + m->done;
	return 1;
}

static int copy_body(struct sf_modify *m)
{
	if (m->to_write)
		return write_piece(m);
	m->done += m->piece;
	m->piece = 0;
	return read_piece(m);
}

static void reply_copied(struct sf_modify *m, int res)
{
	if (res && !m->done)
		sf_reply_err(m->p.req, res);
	else
		fuse_reply_write(m->p.req, m->done);
}

static int check_copy(const struct sf_handle *in, off_t off_in,
		      const struct sf_handle *out, off_t off_out, int flags)
{
	if (in->node->kind != SF_NODE_BUFFER ||
	    out->node->kind != SF_NODE_BUFFER || flags)
		return -EOPNOTSUPP;	/* the kernel copies by itself then */
	if (!out->writable)
		return -EBADF;
	if (off_in < 0 || off_out < 0)
		return -EINVAL;
	return 0;
}

static int get_buffer(struct sf_modify *m)
{
	struct sf_iobuf_pool *pool = m->h->fs->config.pool;
	struct sf_iobuf *buf = sf_iobuf_get(pool);

	if (!buf)
		return -ENOMEM;
	m->buf = sf_iobuf_charge(pool, buf, sf_registration_share(m->reg), 0,
				 0);
	if (m->buf)
		return 0;
	sf_iobuf_put(pool, buf);
	return -ENOMEM;
}

static void start_copy(fuse_req_t req, struct sf_handle *in, off_t off_in,
		       struct sf_handle *out, off_t off_out, uint32_t len)
{
	struct sf_modify *m = sf_modify_new(out);

	if (!m || get_buffer(m)) {
		if (m)
			sf_modify_free(out->fs, m);
		sf_reply_err(req, -ENOMEM);
		return;
	}
	m->from = sf_handle_get(in);
	m->from_off = (uint64_t)off_in;
	m->len = len;
	m->op.kind = SF_GAP_WRITE;
	m->op.off = (uint64_t)off_out;
	m->op.len = len;
	m->body = copy_body;
	m->reply = reply_copied;
	sf_modify_start(out->fs, req, m);
}

void sf_op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			   struct fuse_file_info *fi_in, fuse_ino_t ino_out,
			   off_t off_out, struct fuse_file_info *fi_out,
			   size_t len, int flags)
{
	struct sf_handle *in = sf_handle_of(fi_in);
	struct sf_handle *out = sf_handle_of(fi_out);
	int res = check_copy(in, off_in, out, off_out, flags);

	if (res) {
		sf_reply_err(req, res);
		return;
	}
	len = sf_range_clip((uint64_t)off_in, len < COPY_MAX ? len : COPY_MAX,
			    in->length);
	if (!len) {
		fuse_reply_write(req, 0);
		return;
	}
	len = sf_range_clip((uint64_t)off_out, len, out->length);
	if (!len)
		sf_reply_err(req, -ENOSPC);
	else
		start_copy(req, in, off_in, out, off_out, (uint32_t)len);
}
