/* SPDX-License-Identifier: MIT */
/*
 * Answers to the kernel. One place turns a negative errno into FUSE's positive
 * one, and one place gives back what a reply handed out when the kernel does
 * not want it any more (ENOENT: the request was interrupted). May run on any
 * thread; never blocks.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <string.h>

#include "blob.h"

void sf_reply_err(fuse_req_t req, int res)
{
	int err = -res;

	if (err <= 0 || err > 511)
		err = EIO;
	if (err == ENOSYS)	/* would switch the operation off for good */
		err = EOPNOTSUPP;
	if (err == ECANCELED)
		err = EINTR;
	fuse_reply_err(req, err);
}

double sf_entry_timeout(struct sf_fs *fs)
{
	return (atomic_load(&fs->watched) ? fs->config.watched_timeout_ms
					  : fs->config.entry_timeout_ms) /
	       1000.0;
}

double sf_attr_timeout(struct sf_fs *fs, enum sf_node_kind kind)
{
	switch (kind) {
	case SF_NODE_STATS:
	case SF_NODE_STATUS:
	case SF_NODE_SEGMENT_STATUS:
		return 0;	/* their size changes all the time */
	default:
		return (atomic_load(&fs->watched)
				? fs->config.watched_timeout_ms
				: fs->config.attr_timeout_ms) /
		       1000.0;
	}
}

void sf_reply_entry(fuse_req_t req, struct sf_node *n, const struct stat *st,
		    double attr_timeout)
{
	struct sf_fs *fs = sf_fs_of(req);
	uint64_t id = n->id;
	struct fuse_entry_param e = {
		.ino = id,
		.attr = *st,
		.attr_timeout = attr_timeout,
		.entry_timeout = sf_entry_timeout(fs),
	};

	/* Before the reply: a forget may overtake whatever comes after it. */
	sf_node_looked_up(fs->nodes, n);
	if (fuse_reply_entry(req, &e))
		sf_node_forget(fs->nodes, id, 1);
}

void sf_reply_negative(fuse_req_t req)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct fuse_entry_param e = {
		.entry_timeout = fs->config.negative_timeout_ms / 1000.0,
	};

	fuse_reply_entry(req, &e);
}

/*
 * By hand in place of fuse_reply_open(): libfuse before 3.14.1 cannot say that
 * writes may run in parallel. They never extend a file here. Every handle is
 * direct: nothing of remote memory belongs in a page cache.
 */
void sf_reply_open(fuse_req_t req, struct sf_handle *h)
{
	struct sf_kernel_open_out out = {
		.fh = (uintptr_t)h,
		.open_flags = h->dir ? 0
				     : SF_FOPEN_DIRECT_IO |
					SF_FOPEN_PARALLEL_DIRECT_WRITES,
	};

	if (fuse_reply_buf(req, (const char *)&out, sizeof(out)))
		sf_handle_close(h);
}

void sf_reply_attr(fuse_req_t req, const struct stat *st, double attr_timeout)
{
	fuse_reply_attr(req, st, attr_timeout);
}

void sf_reply_text(fuse_req_t req, struct sf_blob *text, size_t size,
		   off_t off)
{
	if (off < 0 || (uint64_t)off >= text->len) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	if (size > text->len - (size_t)off)
		size = text->len - (size_t)off;
	fuse_reply_buf(req, text->data + off, size);
}
