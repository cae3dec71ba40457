/* SPDX-License-Identifier: MIT */
/*
 * READ. The buffer that the request was received into takes the data, and the
 * reply is written straight from it, or from the pipes in which a transport
 * delivered the payload. Completion runs on the transport's thread.
 *
 * FSYNC is the same with a flush and without data: every write was acknowledged
 * by the peer before it was answered, and is now to be in the peer's memory for
 * all to see.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "fs/chain.h"
#include "fs/mem.h"
#include "iobuf.h"
#include "pipe.h"
#include "range.h"

/* Below this a pipe costs more than the copy it saves. */
#define PIPE_MIN (64u << 10)

struct read_req {
	struct sf_pending p;
	struct sf_chain c;
	struct sf_handle *h;
	struct sf_iobuf *buf;
	uint64_t unique;
	enum sf_op op;		/* SF_READ or SF_FLUSH */
	uint64_t off;
	uint32_t len;
	uint32_t done;		/* bytes of pieces that are there */
	bool started;
};

static struct read_req *from_pending(struct sf_pending *p)
{
	return (struct read_req *)((char *)p - offsetof(struct read_req, p));
}

static struct read_req *from_chain(struct sf_chain *c)
{
	return (struct read_req *)((char *)c - offsetof(struct read_req, c));
}

static void release(struct sf_pending *p)
{
	struct read_req *r = from_pending(p);

	sf_iobuf_put(p->fs->config.pool, r->buf);
	sf_handle_put(r->h);
	free(r);
}

static void cancel(struct sf_pending *p)
{
	sf_chain_cancel(&from_pending(p)->c);
}

static void hold(struct sf_chain *c)
{
	sf_pending_hold(&from_chain(c)->p);
}

static void drop(struct sf_chain *c)
{
	sf_pending_drop(&from_chain(c)->p);
}

/* A piece is there: in its place, unless the transport has memory of its
 * own. */
static void settle_piece(struct read_req *r)
{
	const struct sf_transfer *t = &r->c.t;

	if (t->io.data != t->mem)
		memcpy(t->mem, t->io.data, t->len);
	r->done += t->len;
}

static int next(struct sf_chain *c)
{
	struct read_req *r = from_chain(c);
	struct sf_transfer *t = &c->t;
	uint32_t left;

	if (r->started && (r->h->node->kind != SF_NODE_MEM ||
			   r->op == SF_FLUSH))
		return 0;
	if (r->started)
		settle_piece(r);
	left = r->len - r->done;
	if (!left)
		return 0;
	if (!sf_mem_piece(r->h, r->off + r->done, &left, &t->addr))
		return r->done ? 0 : -EFAULT;
	r->started = true;
	t->op = r->op;
	t->reg = r->h->reg;
	t->len = left;
	t->mem = r->buf->mem + r->done;
	t->may_pipe = left >= PIPE_MIN && r->p.fs->config.pipes &&
		      r->h->node->kind != SF_NODE_MEM;
	return 1;
}

static void put_pipes(struct read_req *r)
{
	struct sf_io *io = &r->c.t.io;

	for (unsigned int i = 0; i < io->nr_pipes; i++)
		sf_pipe_put(r->p.fs->config.pipes, io->pipes[i]);
}

static void reply(struct read_req *r, int res)
{
	struct sf_io *io = &r->c.t.io;

	if (res)
		sf_reply_err(r->p.req, res);
	else if (r->op == SF_FLUSH)
		fuse_reply_err(r->p.req, 0);
	else if (r->h->node->kind == SF_NODE_MEM)
		fuse_reply_buf(r->p.req, r->buf->mem, r->done);
	else if (io->nr_pipes)
		sf_reply_pipes(r->p.fs, r->p.req, r->unique, io->pipes,
			       io->nr_pipes, r->len, r->buf->mem);
	else
		fuse_reply_buf(r->p.req, io->data, r->len);
}

static void end(struct sf_chain *c, int res)
{
	struct read_req *r = from_chain(c);

	if (sf_pending_claim(&r->p)) {
		if (res == -ESTALE)
			sf_notify_stale(r->p.fs, r->h->node);
		reply(r, res);
		sf_pending_answered(&r->p);
	} else if (!res) {
		put_pipes(r);
	}
	sf_pending_end(&r->p);
}

static void start(fuse_req_t req, struct sf_handle *h, enum sf_op op,
		  uint64_t off, uint32_t len)
{
	struct sf_fs_thread *self = sf_fs_thread_self();
	const struct sf_kernel_in *in = (const void *)self->buf->mem;
	uint64_t unique = in->unique;
	struct read_req *r = calloc(1, sizeof(*r));

	if (r)
		r->buf = sf_fs_take_buffer(sf_registration_share(h->reg), 0,
					   0);
	if (!r || !r->buf) {
		free(r);
		sf_reply_err(req, -ENOMEM);
		return;
	}
	r->h = sf_handle_get(h);
	r->unique = unique;
	r->op = op;
	r->off = off;
	r->len = len;
	r->p.cancel = cancel;
	r->p.release = release;
	r->c.engine = h->fs->config.engine;
	r->c.next = next;
	r->c.end = end;
	r->c.hold = hold;
	r->c.drop = drop;
	sf_pending_begin(&r->p, h->fs, req, self->number);
	sf_chain_start(&r->c);
}

void sf_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		struct fuse_file_info *fi)
{
	struct sf_handle *h = sf_handle_of(fi);
	uint64_t len;

	if (off < 0) {
		sf_reply_err(req, -EINVAL);
		return;
	}
	if (h->text) {
		/* The handle may be released before the reply returns. */
		struct sf_blob *text = sf_blob_get(h->text);

		sf_reply_text(req, text, size, off);
		sf_blob_put(text);
		return;
	}
	if (size > SF_FS_MAX_IO)
		size = SF_FS_MAX_IO;
	len = sf_range_clip((uint64_t)off, size, h->length);
	if (!len)
		fuse_reply_buf(req, NULL, 0);
	else
		start(req, h, SF_READ, (uint64_t)off, (uint32_t)len);
}

void sf_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		 struct fuse_file_info *fi)
{
	struct sf_handle *h = sf_handle_of(fi);
	uint64_t off;

	/* A control file has nothing to flush, nor has a segment without
	 * buffers. */
	if (!h->reg || !sf_mem_first(h, &off))
		fuse_reply_err(req, 0);
	else
		start(req, h, SF_FLUSH, off, 1);
}
