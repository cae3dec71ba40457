/* SPDX-License-Identifier: MIT */
/*
 * Open files and directories: see handle.h. All of them are in one list, which
 * is touched at open and release only, because a session that ends by force
 * never releases what was open.
 */
#include "config.h"
#include "fs/handle.h"

#include <errno.h>
#include <stdlib.h>

#include "blob.h"
#include "fs/dir.h"
#include "fs/gap.h"
#include "fs/internal.h"
#include "transfer.h"

struct sf_handle *sf_handle_new(struct sf_fs *fs, struct sf_node *node)
{
	struct sf_handle *h = calloc(1, sizeof(*h));

	if (!h) {
		sf_node_put(fs->nodes, node);
		return NULL;
	}
	h->fs = fs;
	h->node = node;
	atomic_init(&h->refs, 1);
	atomic_fetch_add(&node->nr_open, 1);
	pthread_mutex_lock(&fs->handles_lock);
	LIST_INSERT_HEAD(&fs->handles, h, all);
	pthread_mutex_unlock(&fs->handles_lock);
	return h;
}

struct sf_handle *sf_handle_get(struct sf_handle *h)
{
	atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
	return h;
}

void sf_handle_put(struct sf_handle *h)
{
	if (!h || atomic_fetch_sub(&h->refs, 1) != 1)
		return;
	atomic_fetch_sub(&h->node->nr_open, 1);
	sf_registration_put(h->reg);
	sf_blob_put(h->text);
	sf_dir_free(h->dir);
	sf_node_put(h->fs->nodes, h->node);
	free(h);
}

int sf_handle_count_writer(struct sf_handle *h)
{
	struct sf_gap *gap = atomic_load(&h->node->gap);

	if (!gap) {
		struct sf_gap *mine = sf_gap_new(h->length);

		if (!mine)
			return -ENOMEM;
		if (atomic_compare_exchange_strong(&h->node->gap, &gap, mine))
			gap = mine;
		else
			sf_gap_free(mine);
	}
	h->counted_writer = true;
	sf_gap_opened(gap);
	return 0;
}

void sf_handle_close(struct sf_handle *h)
{
	pthread_mutex_lock(&h->fs->handles_lock);
	LIST_REMOVE(h, all);
	pthread_mutex_unlock(&h->fs->handles_lock);
	if (h->counted_writer)
		sf_gap_closed(atomic_load(&h->node->gap));
	sf_handle_put(h);
}

void sf_handles_close_all(struct sf_fs *fs)
{
	struct sf_handle *h;

	while ((h = LIST_FIRST(&fs->handles)))
		sf_handle_close(h);
}

struct sf_handle *sf_handle_of(const struct fuse_file_info *fi)
{
	return (struct sf_handle *)(uintptr_t)fi->fh;
}
