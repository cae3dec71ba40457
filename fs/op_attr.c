/* SPDX-License-Identifier: MIT */
/*
 * GETATTR and SETATTR. Attributes come from memory, never from the network.
 * What SETATTR is asked to change cannot be changed: a request that changes
 * nothing succeeds, times are taken and have no effect, sizes have a file of
 * their own (op_truncate.c).
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>

#include "directory.h"
#include "fs/control.h"
#include "fs/modify.h"
#include "fs/tree.h"
#include "segment.h"

/* Is what N stands for in SEG? */
static bool is_there(const struct sf_node *n, struct sf_segment *seg)
{
	struct sf_node_key key = sf_node_key(n);

	if (n->kind == SF_NODE_BUFFER || sf_tree_is_link(n->kind))
		return sf_tree_buffer(&key, seg);
	return true;
}

/*
 * A file that is open keeps its attributes when its buffer is gone: they are in
 * the node's identity, and a shrink must not show through an old handle.
 * Otherwise ESTALE: the kernel walks the path again, and LOOKUP asks the store
 * what the name stands for now.
 */
static int get_attr(struct sf_fs *fs, struct sf_node *n, struct stat *st)
{
	struct sf_segment *seg = NULL;
	int res = 0;

	if (sf_tree_in_segment(n->kind)) {
		seg = sf_directory_peek(fs->config.directory,
					sf_node_segment(n));
		if (!seg || !is_there(n, seg))
			res = n->kind == SF_NODE_BUFFER &&
					      atomic_load(&n->nr_open)
				      ? 0
				      : -ESTALE;
	}
	if (!res)
		sf_control_attr(fs, n, seg, st);
	sf_segment_put(seg);
	return res;
}

void sf_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n = sf_node_get(fs->nodes, ino);
	struct stat st;
	int res = n ? get_attr(fs, n, &st) : -ESTALE;

	if (res)
		sf_reply_err(req, res);
	else
		sf_reply_attr(req, &st, sf_attr_timeout(fs, n->kind));
	sf_node_put(fs->nodes, n);
}

static bool changes_owner_or_mode(const struct stat *now,
				  const struct stat *wanted, int to_set)
{
	return ((to_set & FUSE_SET_ATTR_MODE) &&
		(wanted->st_mode & 07777) != (now->st_mode & 07777)) ||
	       ((to_set & FUSE_SET_ATTR_UID) &&
		wanted->st_uid != now->st_uid) ||
	       ((to_set & FUSE_SET_ATTR_GID) &&
		wanted->st_gid != now->st_gid);
}

void sf_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		   int to_set, struct fuse_file_info *fi)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n = sf_node_get(fs->nodes, ino);
	struct stat st;
	int res = n ? get_attr(fs, n, &st) : -ESTALE;

	if (!res && changes_owner_or_mode(&st, attr, to_set))
		res = -EPERM;
	if (res)
		sf_reply_err(req, res);
	else if (to_set & FUSE_SET_ATTR_SIZE)
		sf_truncate(req, n, fi ? sf_handle_of(fi) : NULL,
			    attr->st_size, &st);
	else
		sf_reply_attr(req, &st, sf_attr_timeout(fs, n->kind));
	sf_node_put(fs->nodes, n);
}
