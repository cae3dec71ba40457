/* SPDX-License-Identifier: MIT */
/* The texts under `.segfs`, made when they are opened. */
#ifndef SF_FS_CONTROL_H
#define SF_FS_CONTROL_H

struct sf_blob;
struct sf_fs;
struct sf_node;
struct sf_segment;
struct stat;

/* The text of a control file; a reference. SEG: its segment's snapshot, or NULL
 * at the root. Never waits. -ENOENT, -ENOMEM. */
int sf_control_text(struct sf_fs *fs, const struct sf_node *n,
		    struct sf_segment *seg, struct sf_blob **out);
/* Attributes of any node, a text's size being that of the text as of now. */
void sf_control_attr(struct sf_fs *fs, const struct sf_node *n,
		     struct sf_segment *seg, struct stat *st);

#endif
