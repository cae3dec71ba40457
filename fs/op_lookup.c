/* SPDX-License-Identifier: MIT */
/*
 * LOOKUP and FORGET. A name at the root is asked of the directory, one in a
 * segment is looked for in the newest snapshot that the directory believes in;
 * neither holds a session thread while the store is slow.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "err.h"
#include "fs/ask.h"
#include "fs/control.h"
#include "fs/tree.h"
#include "segment.h"

static void reply_key(fuse_req_t req, const struct sf_node_key *key,
		      const struct sf_node *near, struct sf_segment *seg)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n;
	struct stat st;
	int res = sf_node_obtain(fs->nodes, key, near, &n);

	if (res) {
		sf_reply_err(req, res == -EEXIST ? -EIO : res);
		return;
	}
	sf_control_attr(fs, n, seg, &st);
	sf_reply_entry(req, n, &st, sf_attr_timeout(fs, n->kind));
	sf_node_put(fs->nodes, n);
}

static void reply_found(struct sf_ask *ask, int res,
			const struct sf_node_key *key, struct sf_segment *seg)
{
	if (res == -ENOENT)
		sf_reply_negative(ask->p.req);
	else if (res)
		sf_reply_err(ask->p.req, res);
	else
		reply_key(ask->p.req, key, ask->node, seg);
}

/* At the root: the segment is there, whatever its descriptor is worth. */
static void answer_root(struct sf_ask *ask, int res, struct sf_segment *seg)
{
	struct sf_node_key key = { .kind = SF_NODE_SEGMENT,
				   .segment = ask->segment,
				   .place = "" };

	/* The store knows no leading slashes; one segment has one name. */
	if (!res && strcmp(seg->name, ask->segment))
		res = -ENOENT;
	reply_found(ask, res, &key, seg);
}

static void answer_inside(struct sf_ask *ask, int res, struct sf_segment *seg)
{
	struct sf_node_key key;

	if (!res)
		res = sf_tree_find(ask->node, seg, ask->name, &key);
	reply_found(ask, res, &key, seg);
}

/* A cut name says only what its segment's encoding is: look through all. */
static void find_cut_name(struct sf_ask *ask)
{
	struct sf_directory_list *list;
	char encoded[SF_NAME_MAX + 1];
	int res = sf_directory_list(ask->p.fs->config.directory, &list, NULL);

	if (res) {
		sf_ask_finish(ask, res, NULL);
		return;
	}
	for (size_t i = 0; i < list->nr && !ask->segment; i++) {
		sf_name_encode(list->names[i], encoded);
		if (!strcmp(encoded, ask->name))
			ask->segment = strdup(list->names[i]);
	}
	sf_directory_list_free(list);
	if (ask->segment)
		sf_ask_segment(ask, ask->segment);
	else
		sf_ask_finish(ask, -ENOENT, NULL);
}

static void lookup_segment(fuse_req_t req, struct sf_node *root,
			   const char *name)
{
	struct sf_ask *ask;
	int res;

	ask = sf_ask_new(req, root, name, answer_root);
	if (!ask)
		return;
	res = sf_name_decode(name, &ask->segment);
	if (res == -ENAMETOOLONG)
		sf_ask_worker(ask, find_cut_name);
	else if (res)
		sf_ask_finish(ask, res, NULL);
	else
		sf_ask_segment(ask, ask->segment);
}

void sf_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *dir = sf_node_get(fs->nodes, parent);
	struct sf_node_key key;
	struct sf_ask *ask;

	if (!dir) {
		sf_reply_err(req, -ESTALE);
		return;
	}
	if (strlen(name) > SF_NAME_MAX) {
		sf_reply_err(req, -ENAMETOOLONG);
	} else if (dir->kind == SF_NODE_ROOT && strcmp(name, ".segfs")) {
		lookup_segment(req, dir, name);
		return;
	} else if (sf_tree_in_segment(dir->kind)) {
		ask = sf_ask_new(req, dir, name, answer_inside);
		if (ask)
			sf_ask_segment(ask, sf_node_segment(ask->node));
		return;
	} else if (sf_tree_find(dir, NULL, name, &key)) {
		sf_reply_negative(req);
	} else {
		reply_key(req, &key, dir, NULL);
	}
	sf_node_put(fs->nodes, dir);
}

void sf_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nr)
{
	sf_node_forget(sf_fs_of(req)->nodes, ino, nr);
	fuse_reply_none(req);
}

void sf_op_forget_multi(fuse_req_t req, size_t count,
			struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		sf_node_forget(sf_fs_of(req)->nodes, forgets[i].ino,
			       forgets[i].nlookup);
	fuse_reply_none(req);
}
