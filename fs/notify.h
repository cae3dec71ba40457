/* SPDX-License-Identifier: MIT */
/* Between the queue of changes (notify.c) and what is told (notify_tell.c). */
#ifndef SF_FS_NOTIFY_H
#define SF_FS_NOTIFY_H

#include <sys/queue.h>

struct sf_fs;
struct sf_node;
struct sf_segment;

/* One segment's change, from the oldest untold to the newest snapshot; or, with
 * node set, a file whose registration is gone. */
struct sf_change {
	TAILQ_ENTRY(sf_change) link;
	struct sf_change *next;	/* in its bucket */
	struct sf_segment *old_seg, *new_seg;
	struct sf_node *node;
	char name[];
};

/* The kernel's node of a segment, referenced; NULL: it does not know it. */
struct sf_node *sf_notify_segment(struct sf_fs *fs, const char *name);
void sf_notify_tell(struct sf_fs *fs, const struct sf_change *c);
/* Look whether the watch stands, for sf_fs.watched. */
void sf_notify_check_watch(struct sf_fs *fs);

#endif
