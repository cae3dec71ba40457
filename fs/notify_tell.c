/* SPDX-License-Identifier: MIT */
/*
 * What the kernel is told about a change, and that it must not trust what it
 * was allowed to keep for long when the store's watch is lost. On the
 * notification thread only: any of these calls may wait in the kernel.
 */
#include "config.h"
#include "fs/notify.h"

#include <string.h>
#include <time.h>

#include "directory.h"
#include "fs/internal.h"
#include "fs/tree.h"
#include "log.h"
#include "segment.h"

struct sf_node *sf_notify_segment(struct sf_fs *fs, const char *name)
{
	struct sf_node_key key = { .kind = SF_NODE_SEGMENT,
				   .segment = name,
				   .place = "" };

	return sf_node_find(fs->nodes, &key);
}

/* ---- telling; the kernel's "no such entry" is as good ---- */

static void inval_entry(struct sf_fs *fs, uint64_t dir, const char *name)
{
	fuse_lowlevel_notify_inval_entry(fs->se, dir, name, strlen(name));
}

static void inval_data(struct sf_fs *fs, uint64_t id)
{
	fuse_lowlevel_notify_inval_inode(fs->se, id, 0, 0);
}

/* A watcher of the file sees it deleted. */
static void deleted(struct sf_fs *fs, uint64_t dir, uint64_t id,
		    const char *name)
{
	if (fuse_lowlevel_notify_delete(fs->se, dir, id, name, strlen(name)))
		inval_entry(fs, dir, name);
}

static struct sf_node *find_buffer(struct sf_fs *fs, const char *segment,
				   const struct sf_buffer *b)
{
	struct sf_node_key key = { .kind = SF_NODE_BUFFER,
				   .segment = segment,
				   .place = "",
				   .addr = b->addr,
				   .length = b->length };

	return sf_node_find(fs->nodes, &key);
}

static void tell_gone(struct sf_fs *fs, const char *segment, uint64_t dir,
		      const struct sf_buffer *b)
{
	struct sf_node *n = find_buffer(fs, segment, b);
	char name[SF_BUFFER_NAME_MAX];

	if (!n)
		return;
	sf_segment_buffer_name(b, name);
	deleted(fs, dir, n->id, name);
	inval_data(fs, n->id);
	sf_node_put(fs->nodes, n);
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

/* Other memory under the same name: another process's, or registered anew. */
static void tell_replaced(struct sf_fs *fs, const char *segment, uint64_t dir,
			  const struct sf_buffer *b)
{
	struct sf_node *n = find_buffer(fs, segment, b);
	char name[SF_BUFFER_NAME_MAX];

	if (!n)
		return;
	atomic_store(&n->mtime_ns, now_ns());
	sf_segment_buffer_name(b, name);
	inval_data(fs, n->id);
	inval_entry(fs, dir, name);
	sf_node_put(fs->nodes, n);
}

static void tell_new(struct sf_fs *fs, uint64_t dir,
		     const struct sf_buffer *b)
{
	char name[SF_BUFFER_NAME_MAX];

	sf_segment_buffer_name(b, name);
	inval_entry(fs, dir, name);
}

/* False when buffers came or went. */
static bool tell_old(struct sf_fs *fs, const struct sf_change *c, uint64_t dir)
{
	const struct sf_segment *was = c->old_seg, *is = c->new_seg;
	bool same_owner = is && sf_segment_same_owner(was, is);
	bool same = true;

	for (uint32_t i = 0; i < was->nr_buffers; i++) {
		const struct sf_buffer *b = &was->buffers[i];
		const struct sf_buffer *now =
			is ? sf_segment_find(is, b->addr, b->length) : NULL;

		if (!now || now->long_name != b->long_name) {
			same = false;
			tell_gone(fs, c->name, dir, b);
		} else if (!same_owner || !sf_buffer_same(was, b, is, now)) {
			tell_replaced(fs, c->name, dir, b);
		}
	}
	return same;
}

static bool tell_fresh(struct sf_fs *fs, const struct sf_change *c,
		       uint64_t dir)
{
	const struct sf_segment *was = c->old_seg, *is = c->new_seg;
	bool same = true;

	for (uint32_t i = 0; i < is->nr_buffers; i++) {
		const struct sf_buffer *b = &is->buffers[i];
		const struct sf_buffer *then =
			was ? sf_segment_find(was, b->addr, b->length) : NULL;

		if (then && then->long_name == b->long_name)
			continue;
		same = false;
		tell_new(fs, dir, b);
	}
	return same;
}

static void tell_change(struct sf_fs *fs, const struct sf_change *c)
{
	struct sf_node *dir = sf_notify_segment(fs, c->name);
	char name[SF_NAME_MAX + 1];
	bool same = true;

	if (!dir)
		return;
	if (c->old_seg)
		same = tell_old(fs, c, dir->id);
	if (c->new_seg) {
		same = tell_fresh(fs, c, dir->id) && same;
	} else {
		/* Not as deleted: the kernel marks such a directory dead, and
		 * keeps it so, empty, when the segment comes back while
		 * somebody has a file of it open. */
		sf_name_encode(c->name, name);
		inval_entry(fs, SF_NODE_ROOT_ID, name);
	}
	if (!same || !c->old_seg || !c->new_seg)
		inval_data(fs, dir->id);
	sf_node_put(fs->nodes, dir);
}

/* By both names it can have. */
static void drop_entry(struct sf_fs *fs, struct sf_node *n)
{
	char name[SF_NAME_MAX + 1];
	struct sf_node *dir;

	if (n->kind == SF_NODE_SEGMENT) {
		sf_name_encode(sf_node_segment(n), name);
		inval_entry(fs, SF_NODE_ROOT_ID, name);
	}
	if (n->kind != SF_NODE_BUFFER)
		return;
	dir = sf_notify_segment(fs, sf_node_segment(n));
	if (!dir)
		return;
	sf_buffer_name_format(name, n->addr, 0);
	inval_entry(fs, dir->id, name);
	sf_buffer_name_format(name, n->addr, n->length);
	inval_entry(fs, dir->id, name);
	sf_node_put(fs->nodes, dir);
}

void sf_notify_tell(struct sf_fs *fs, const struct sf_change *c)
{
	if (!c->node) {
		tell_change(fs, c);
		return;
	}
	inval_data(fs, c->node->id);
	drop_entry(fs, c->node);
}

/* ---- the watch ---- */

static void distrust(void *arg, struct sf_node *n)
{
	struct sf_fs *fs = arg;

	drop_entry(fs, n);
	fuse_lowlevel_notify_inval_inode(fs->se, n->id, -1, 0);
	sf_node_put(fs->nodes, n);
}

/* Entries were handed out for as long as the watch stands: no more. */
void sf_notify_check_watch(struct sf_fs *fs)
{
	struct sf_directory_info info = { 0 };
	bool was = atomic_load(&fs->watched);

	sf_directory_info(fs->config.directory, &info);
	atomic_store(&fs->watched, info.watched);
	if (was && !info.watched) {
		sf_log(LOG_INFO, SF_LOG_FS,
		       "the store's watch is lost: %s", info.text);
		sf_nodes_each(fs->nodes, distrust, fs);
	}
}
