/* SPDX-License-Identifier: MIT */
/*
 * SETATTR with a size. The size of a buffer never changes; what a truncation
 * means instead is in gap.h and in segfs(5). Growing fails without touching
 * anything.
 */
#include "config.h"
#include "fs/modify.h"

#include <errno.h>

#include "directory.h"
#include "fs/internal.h"
#include "segment.h"

static void reply(struct sf_modify *m, int res)
{
	if (res)
		sf_reply_err(m->p.req, res);
	else
		sf_reply_attr(m->p.req, &m->st,
			      sf_attr_timeout(m->p.fs, m->node->kind));
}

/* truncate(2), and open(2) with O_TRUNC, come without a handle. */
static struct sf_modify *without_handle(struct sf_fs *fs, struct sf_node *n)
{
	struct sf_segment *seg = sf_directory_peek(fs->config.directory,
						   sf_node_segment(n));
	const struct sf_buffer *buf =
		seg ? sf_segment_find(seg, n->addr, n->length) : NULL;
	struct sf_registration *reg;
	struct sf_modify *m = NULL;

	if (buf && !sf_registration_bind(fs->config.engine, seg, buf, &reg))
		m = sf_modify_new_node(fs, n, reg);
	sf_segment_put(seg);
	return m;
}

static int check(const struct sf_fs *fs, const struct sf_node *n, off_t size,
		 const struct stat *st)
{
	if (n->kind != SF_NODE_BUFFER)
		return -EPERM;
	if (size < 0)
		return -EINVAL;
	if (size > st->st_size)
		return -EFBIG;
	if (fs->config.truncate == SF_FS_TRUNCATE_REFUSE &&
	    size != st->st_size)
		return -EPERM;
	return 0;
}

void sf_truncate(fuse_req_t req, struct sf_node *n, struct sf_handle *h,
		 off_t size, const struct stat *st)
{
	struct sf_fs *fs = sf_fs_of(req);
	int res = check(fs, n, size, st);
	struct sf_modify *m;

	if (res) {
		sf_reply_err(req, res);
		return;
	}
	/* Nobody who could leave a gap has it open for writing. */
	if (fs->config.truncate == SF_FS_TRUNCATE_IGNORE ||
	    !atomic_load(&n->gap)) {
		sf_reply_attr(req, st, sf_attr_timeout(fs, n->kind));
		return;
	}
	m = h ? sf_modify_new(h) : without_handle(fs, n);
	if (!m) {
		sf_reply_err(req, -ENOMEM);
		return;
	}
	m->op.kind = SF_GAP_TRUNCATE;
	m->op.off = (uint64_t)size;
	m->st = *st;
	m->reply = reply;
	sf_modify_start(fs, req, m);
}
