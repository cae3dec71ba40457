/* SPDX-License-Identifier: MIT */
/*
 * OPENDIR, READDIR, READDIRPLUS. A directory's contents are frozen when it is
 * opened: of a segment from its snapshot, of the root from the store's listing,
 * which is asked for on a worker. Listing the root pulls no descriptors: that
 * a segment is there is all that its directory's attributes need.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <string.h>

#include "directory.h"
#include "fs/ask.h"
#include "fs/control.h"
#include "fs/dir.h"
#include "fs/tree.h"
#include "iobuf.h"
#include "segment.h"

/* Takes over NODE's reference and LIST. */
static void open_dir(fuse_req_t req, struct sf_node *node,
		     struct sf_segment *seg, struct sf_directory_list *list)
{
	struct sf_handle *h = sf_handle_new(sf_fs_of(req), node);
	int res;

	if (!h) {
		sf_directory_list_free(list);
		sf_reply_err(req, -ENOMEM);
		return;
	}
	res = sf_dir_new(&h->dir, node, seg, list);
	if (!res) {
		sf_reply_open(req, h);
	} else {
		sf_handle_close(h);
		sf_reply_err(req, res);
	}
}

static void answer(struct sf_ask *ask, int res, struct sf_segment *seg)
{
	if (res) {
		sf_reply_err(ask->p.req, res);
		return;
	}
	sf_node_hold(ask->p.fs->nodes, ask->node);
	open_dir(ask->p.req, ask->node, seg, NULL);
}

/* On a worker. */
static void list_root(struct sf_ask *ask)
{
	struct sf_fs *fs = ask->p.fs;
	struct sf_directory_list *list;
	int res = sf_directory_list(fs->config.directory, &list, NULL);

	if (res) {
		sf_ask_finish(ask, res, NULL);
		return;
	}
	if (sf_pending_claim(&ask->p)) {
		sf_node_hold(fs->nodes, ask->node);
		open_dir(ask->p.req, ask->node, NULL, list);
		sf_pending_answered(&ask->p);
	} else {
		sf_directory_list_free(list);
	}
	sf_pending_end(&ask->p);
}

void sf_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *node = sf_node_get(fs->nodes, ino);
	struct sf_ask *ask;

	if (!node) {
		sf_reply_err(req, -ESTALE);
	} else if (node->kind == SF_NODE_ROOT) {
		ask = sf_ask_new(req, node, NULL, answer);
		if (ask)
			sf_ask_worker(ask, list_root);
	} else if (sf_tree_in_segment(node->kind)) {
		ask = sf_ask_new(req, node, NULL, answer);
		if (ask)
			sf_ask_segment(ask, sf_node_segment(node));
	} else {
		open_dir(req, node, NULL, NULL);
	}
}

/* One reply under construction. */
struct listing {
	fuse_req_t req;
	struct sf_fs *fs;
	struct sf_handle *h;
	bool plus;
	char *mem;
	size_t size;
	size_t used;
};

/* The snapshot that an entry's attributes come from; put it. */
static struct sf_segment *snapshot_of(struct listing *l,
				      const struct sf_node_key *key)
{
	struct sf_segment *seg = sf_dir_segment(l->h->dir);

	if (key->kind == SF_NODE_SEGMENT)
		return sf_directory_peek(l->fs->config.directory,
					 key->segment);
	return seg ? sf_segment_get(seg) : NULL;
}

/*
 * Attributes and a lookup reference. Without memory E stays as it is: a name
 * and a type, which the kernel looks up when it wants more. What has no
 * snapshot is followed by no watch, so the kernel may not keep it for long.
 */
static void fill_entry(struct listing *l, const struct sf_node_key *key,
		       struct fuse_entry_param *e)
{
	const struct sf_fs_config *config = &l->fs->config;
	struct sf_segment *seg = snapshot_of(l, key);
	bool unknown = key->kind == SF_NODE_SEGMENT && !seg;
	struct sf_node *n;

	if (!sf_node_obtain(l->fs->nodes, key, l->h->node, &n)) {
		sf_control_attr(l->fs, n, seg, &e->attr);
		e->ino = n->id;
		e->entry_timeout = unknown ? config->entry_timeout_ms / 1000.0
					   : sf_entry_timeout(l->fs);
		e->attr_timeout = unknown ? config->attr_timeout_ms / 1000.0
					  : sf_attr_timeout(l->fs, n->kind);
		sf_node_looked_up(l->fs->nodes, n);
		sf_node_put(l->fs->nodes, n);
	}
	sf_segment_put(seg);
}

/* False: NAME does not fit any more. Only what fits gets a reference. */
static bool add(struct listing *l, const char *name,
		const struct sf_node_key *key, bool dot, off_t next)
{
	struct fuse_entry_param e = {
		.attr = {
			.st_ino = sf_node_number(l->fs->nodes, key),
			.st_mode = sf_tree_type(key->kind),
		},
	};
	char *at = l->mem + l->used;
	size_t left = l->size - l->used;
	size_t need;

	if (!l->plus) {
		need = fuse_add_direntry(l->req, at, left, name, &e.attr,
					 next);
	} else {
		need = fuse_add_direntry_plus(l->req, NULL, 0, name, NULL, 0);
		if (need <= left) {
			if (!dot)
				fill_entry(l, key, &e);
			fuse_add_direntry_plus(l->req, at, left, name, &e,
					       next);
		}
	}
	if (need > left)
		return false;
	l->used += need;
	return true;
}

static bool add_dots(struct listing *l, uint64_t *at)
{
	struct sf_node_key self = sf_node_key(l->h->node);
	struct sf_node_key up = sf_tree_parent(&self);

	if (*at == 0) {
		if (!add(l, ".", &self, true, 1))
			return false;
		*at = 1;
	}
	if (*at == 1) {
		if (!add(l, "..", &up, true, 2))
			return false;
		*at = 2;
	}
	return true;
}

/* The kernel did not take the reply: take its references back. */
static void undo(struct listing *l, uint64_t from, uint64_t to)
{
	char name[SF_NAME_MAX + 1];
	struct sf_node_key key;
	struct sf_node *n;

	for (uint64_t i = from < 2 ? 2 : from; i < to; i++) {
		sf_dir_entry(l->h->dir, l->h->node, i - 2, name, &key);
		n = sf_node_find(l->fs->nodes, &key);
		if (n) {
			sf_node_forget(l->fs->nodes, n->id, 1);
			sf_node_put(l->fs->nodes, n);
		}
	}
}

static void list(fuse_req_t req, size_t size, off_t off,
		 struct fuse_file_info *fi, bool plus)
{
	struct sf_fs_thread *self = sf_fs_thread_self();
	struct listing l = {
		.req = req,
		.fs = sf_fs_of(req),
		.h = sf_handle_of(fi),
		.plus = plus,
		/* the request in it has been taken apart by now */
		.mem = self->buf->mem,
		.size = size < self->buf->size ? size : self->buf->size,
	};
	char name[SF_NAME_MAX + 1];
	struct sf_node_key key;
	uint64_t at = (uint64_t)off;
	uint64_t end = 2 + (uint64_t)sf_dir_count(l.h->dir);
	bool room;

	if (off < 0) {
		sf_reply_err(req, -EINVAL);
		return;
	}
	room = add_dots(&l, &at);
	while (room && at < end) {
		sf_dir_entry(l.h->dir, l.h->node, at - 2, name, &key);
		room = add(&l, name, &key, false, (off_t)(at + 1));
		at += room;
	}
	if (fuse_reply_buf(req, l.mem, l.used) && plus)
		undo(&l, (uint64_t)off, at);
}

void sf_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	list(req, size, off, fi, false);
}

void sf_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	list(req, size, off, fi, true);
}
