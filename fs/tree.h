/* SPDX-License-Identifier: MIT */
/*
 * What exists: the shape of the tree that segfs(5) describes, as pure functions
 * of identities (node.h) and segment snapshots.
 *
 * `.segfs` is there by name at the root and in every segment but is in no
 * listing, so that "for f in MNT/SEGMENT/(star)" and recursive tools see
 * segments and buffers only; `.segfs/mem` alone is as large as an address
 * space.
 */
#ifndef SF_FS_TREE_H
#define SF_FS_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/node.h"
#include "names.h"

struct sf_fs;
struct sf_segment;
struct sf_buffer;

/* Kinds whose node belongs to a segment. */
bool sf_tree_in_segment(enum sf_node_kind kind);
bool sf_tree_is_dir(enum sf_node_kind kind);
bool sf_tree_is_link(enum sf_node_kind kind);
bool sf_tree_is_text(enum sf_node_kind kind);

/* The identity of the directory KEY is in. */
struct sf_node_key sf_tree_parent(const struct sf_node_key *key);

/*
 * NAME in PARENT, which is not the root (op_lookup.c asks the directory there)
 * unless NAME is ".segfs". *KEY points into PARENT and NAME. -ENOENT; or the
 * segment's own error (-EBADMSG) for a buffer of a descriptor that does not
 * parse. SEG is NULL for nodes outside of segments.
 */
int sf_tree_find(const struct sf_node *parent, const struct sf_segment *seg,
		 const char *name, struct sf_node_key *key);

/* The fixed entries of a control directory, one after another from I = 0, that
 * exist for SEG. NULL: no more. */
const char *sf_tree_control_entry(enum sf_node_kind dir,
				  const struct sf_segment *seg, unsigned int i,
				  enum sf_node_kind *kind);

/* The name in its directory of a node that has one and is not a fixed entry:
 * segments, buffers and links. */
void sf_tree_name(const struct sf_node_key *key, const struct sf_buffer *buf,
		  char out[SF_NAME_MAX + 1]);

/* Directory of a location: as segment names are encoded; "_none" for "". Two
 * locations with one such name share the directory. */
void sf_tree_place_name(const char *location, char out[SF_NAME_MAX + 1]);

/* The buffer an INDEX, BUFFER or LOCATION_BUFFER node stands for. NULL. */
const struct sf_buffer *sf_tree_buffer(const struct sf_node_key *key,
				       const struct sf_segment *seg);
/* Where a link leads. -ENOENT. */
#define SF_TREE_LINK_MAX (SF_NAME_MAX + 16)
int sf_tree_link(const struct sf_node_key *key, const struct sf_segment *seg,
		 char out[SF_TREE_LINK_MAX]);

/* The `mem` view: one past the highest byte that an off_t can reach. */
uint64_t sf_tree_mem_size(const struct sf_segment *seg);

/* When SEG's owner says it was published, else when the mount began; ns. */
int64_t sf_tree_segment_mtime(const struct sf_fs *fs,
			      const struct sf_segment *seg);
/*
 * Attributes. SEG may be NULL for a buffer (its identity says it all) and
 * outside of segments. MTIME_NS as above; LEN is the size of a text.
 */
void sf_tree_attr(const struct sf_fs *fs, const struct sf_node_key *key,
		  uint64_t ino, const struct sf_segment *seg,
		  int64_t mtime_ns, uint64_t len, struct stat *st);
/* File type bits only, for listings. */
mode_t sf_tree_type(enum sf_node_kind kind);

#endif
