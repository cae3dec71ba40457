/* SPDX-License-Identifier: MIT */
/*
 * The contents of a directory, frozen when it was opened: entry I is at cookie
 * I + 1, for as long as the directory is open, whatever changes meanwhile.
 */
#ifndef SF_FS_DIR_H
#define SF_FS_DIR_H

#include <stddef.h>

#include "fs/node.h"
#include "names.h"

struct sf_dir;
struct sf_directory_list;
struct sf_segment;

/*
 * Of NODE's contents. SEG is referenced; NULL outside of segments. LIST is for
 * the root and is taken over, on failure too; else NULL. The segment's own
 * error when it has no contents (-EBADMSG); -ENOMEM.
 */
int sf_dir_new(struct sf_dir **out, const struct sf_node *node,
	       struct sf_segment *seg, struct sf_directory_list *list);
void sf_dir_free(struct sf_dir *d);	/* NULL is fine */

size_t sf_dir_count(const struct sf_dir *d);
/* Entry I. KEY points into D, NODE and NAME. */
void sf_dir_entry(const struct sf_dir *d, const struct sf_node *node,
		  size_t i, char name[SF_NAME_MAX + 1],
		  struct sf_node_key *key);
struct sf_segment *sf_dir_segment(const struct sf_dir *d);

#endif
