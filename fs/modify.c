/* SPDX-License-Identifier: MIT */
/*
 * Requests that change remote memory: see modify.h. Started on a session
 * thread, continued on whatever thread completes a transfer or ends the
 * operation before it in the file's queue. Zeroing goes in pieces of one
 * buffer, so that it is bounded in memory whatever the gap.
 */
#include "config.h"
#include "fs/modify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/internal.h"
#include "iobuf.h"

static struct sf_modify *from_pending(struct sf_pending *p)
{
	return (struct sf_modify *)((char *)p - offsetof(struct sf_modify, p));
}

static struct sf_modify *from_chain(struct sf_chain *c)
{
	return (struct sf_modify *)((char *)c - offsetof(struct sf_modify, c));
}

static struct sf_modify *from_op(struct sf_gap_op *op)
{
	return (struct sf_modify *)((char *)op -
				    offsetof(struct sf_modify, op));
}

void sf_modify_free(struct sf_fs *fs, struct sf_modify *m)
{
	if (m->buf)
		sf_iobuf_put(fs->config.pool, m->buf);
	if (m->zeros)
		sf_iobuf_put(fs->config.pool, m->zeros);
	sf_registration_put(m->reg);
	sf_handle_put(m->from);
	sf_handle_put(m->h);
	if (m->own_node)
		sf_node_put(fs->nodes, m->node);
	free(m);
}

static void release(struct sf_pending *p)
{
	sf_modify_free(p->fs, from_pending(p));
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

/* ---- zeroing ---- */

static int get_zeros(struct sf_modify *m)
{
	struct sf_iobuf_pool *pool = m->p.fs->config.pool;
	uint64_t need = m->zero_end - m->zero_pos;
	struct sf_iobuf *buf = sf_iobuf_get(pool);
	struct sf_iobuf *charged;

	if (!buf)
		return -ENOMEM;
	charged = sf_iobuf_charge(pool, buf, sf_registration_share(m->reg), 0,
				  0);
	if (!charged) {
		sf_iobuf_put(pool, buf);
		return -ENOMEM;
	}
	memset(charged->mem, 0, need < SF_FS_MAX_IO ? need : SF_FS_MAX_IO);
	m->zeros = charged;
	return 0;
}

static int zero_piece(struct sf_modify *m)
{
	uint64_t left = m->zero_end - m->zero_pos;
	int res = m->zeros ? 0 : get_zeros(m);

	if (res)
		return res;
	m->c.t.op = SF_WRITE;
	m->c.t.may_pipe = false;
	m->c.t.reg = m->reg;
	m->c.t.addr = m->addr + m->zero_pos;
	m->c.t.len = left < SF_FS_MAX_IO ? (uint32_t)left : SF_FS_MAX_IO;
	m->c.t.mem = m->zeros->mem;
	m->zero_pos += m->c.t.len;
	return 1;
}

/* The gap has been dealt with when this is called for the first time. */
static int zero_body(struct sf_modify *m)
{
	if (m->done)
		return 0;
	m->done = 1;
	m->zero_pos = m->op.off;
	m->zero_end = m->op.off + m->op.len;
	/* What is there may be shorter than this needs. */
	if (m->zeros) {
		sf_iobuf_put(m->p.fs->config.pool, m->zeros);
		m->zeros = NULL;
	}
	return zero_piece(m);
}

void sf_modify_zero(struct sf_modify *m)
{
	m->body = zero_body;
}

/* ---- one after another ---- */

static int next(struct sf_chain *c)
{
	struct sf_modify *m = from_chain(c);

	if (m->zero_pos < m->zero_end)
		return zero_piece(m);
	return m->body ? m->body(m) : 0;
}

static void touch(struct sf_node *n)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	atomic_store_explicit(&n->mtime_ns,
			      now.tv_sec * (int64_t)1000000000 + now.tv_nsec,
			      memory_order_relaxed);
}

static void end(struct sf_chain *c, int res)
{
	struct sf_modify *m = from_chain(c);
	bool ok = !res;

	if (ok && m->body)
		touch(m->node);
	if (res && m->len && m->done) {
		ok = true;	/* of a copy, this much is done */
		m->op.len = m->done;
	}
	if (sf_pending_claim(&m->p)) {
		m->reply(m, res);
		sf_pending_answered(&m->p);
	}
	if (m->gap)
		sf_gap_leave(m->gap, &m->op, ok);
	sf_pending_end(&m->p);
}

/* It is our turn. */
static void start(struct sf_gap_op *op)
{
	struct sf_modify *m = from_op(op);

	m->zero_pos = op->zero_from;
	m->zero_end = op->zero_to;
	sf_chain_start(&m->c);
}

static struct sf_modify *new_modify(struct sf_node *node,
				    struct sf_registration *reg)
{
	struct sf_modify *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->node = node;
	m->reg = reg;
	m->gap = atomic_load(&node->gap);
	return m;
}

struct sf_modify *sf_modify_new(struct sf_handle *h)
{
	struct sf_modify *m = new_modify(h->node, h->reg);

	if (!m)
		return NULL;
	sf_registration_get(h->reg);
	m->h = sf_handle_get(h);
	m->addr = h->addr;
	return m;
}

struct sf_modify *sf_modify_new_node(struct sf_fs *fs, struct sf_node *node,
				     struct sf_registration *reg)
{
	struct sf_modify *m = new_modify(node, reg);

	if (!m) {
		sf_registration_put(reg);
		return NULL;
	}
	sf_node_hold(fs->nodes, node);
	m->own_node = true;
	m->addr = node->addr;
	return m;
}

void sf_modify_start(struct sf_fs *fs, fuse_req_t req, struct sf_modify *m)
{
	m->p.cancel = cancel;
	m->p.release = release;
	m->c.engine = fs->config.engine;
	m->c.next = next;
	m->c.end = end;
	m->c.hold = hold;
	m->c.drop = drop;
	m->op.start = start;
	sf_pending_begin(&m->p, fs, req, sf_fs_thread_self()->number);
	if (m->gap)
		sf_gap_enter(m->gap, &m->op);
	else
		sf_chain_start(&m->c);
}
