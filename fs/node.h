/* SPDX-License-Identifier: MIT */
/*
 * Inodes the kernel knows. A node is an identity (what kind of thing, of which
 * segment, at which address and of which length) and two counts: the kernel's
 * lookups and our own references. It lives while either is there, so memory
 * follows what is in use, not what exists.
 *
 * Its number is a hash of the identity: the same across remounts, and used
 * both as FUSE node id and as st_ino. Thread-safe.
 */
#ifndef SF_FS_NODE_H
#define SF_FS_NODE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct sf_blob;
struct sf_gap;
struct sf_nodes;

enum sf_node_kind {
	SF_NODE_ROOT,
	SF_NODE_ROOT_CONTROL,	/* .segfs of the mount */
	SF_NODE_VERSION,
	SF_NODE_CONFIG,
	SF_NODE_STATS,
	SF_NODE_STATUS,
	SF_NODE_SEGMENT,
	SF_NODE_BUFFER,		/* addr, length */
	SF_NODE_CONTROL,	/* .segfs of a segment */
	SF_NODE_SEGMENT_JSON,
	SF_NODE_RPC_JSON,
	SF_NODE_SEGMENT_STATUS,
	SF_NODE_MEM,
	SF_NODE_BY_INDEX,
	SF_NODE_INDEX,		/* a link; addr is the index */
	SF_NODE_BY_LOCATION,
	SF_NODE_LOCATION,	/* a directory; place is its name */
	SF_NODE_LOCATION_BUFFER,	/* a link; place, addr, length */
};

struct sf_node_key {
	enum sf_node_kind kind;
	const char *segment;	/* "" at the root */
	const char *place;	/* "" mostly */
	uint64_t addr;
	uint64_t length;
};

struct sf_node {
	uint64_t id;
	enum sf_node_kind kind;
	uint64_t addr;
	uint64_t length;
	struct sf_blob *segment;	/* NUL-terminated names */
	struct sf_blob *place;
	_Atomic int64_t mtime_ns;	/* local write or new registration; 0 */
	atomic_uint nr_open;		/* handles */
	atomic_bool stale_told;		/* notify.c: said so already */
	_Atomic(struct sf_gap *) gap;	/* op_write.c's; made when first
					 * opened for writing */
	/* private to node.c, under the shard's lock */
	uint64_t nr_lookups;
	unsigned int refs;
	struct sf_node *next;
};

#define SF_NODE_ROOT_ID 1u

/* HASH replaces the hash of identities, for tests; else NULL. -ENOMEM. */
int sf_nodes_new(struct sf_nodes **out,
		 uint64_t (*hash)(const struct sf_node_key *key));
void sf_nodes_free(struct sf_nodes *t);		/* NULL is fine */

/* A reference to a node by number, or NULL. */
struct sf_node *sf_node_get(struct sf_nodes *t, uint64_t id);
/* By identity; NULL when the kernel does not know it. */
struct sf_node *sf_node_find(struct sf_nodes *t, const struct sf_node_key *key);
/* By identity, made when missing. NEAR may be NULL, or a node whose segment
 * name is shared when it is the same. -ENOMEM; -EEXIST: no free number (four
 * identities with one hash). */
int sf_node_obtain(struct sf_nodes *t, const struct sf_node_key *key,
		   const struct sf_node *near, struct sf_node **out);
void sf_node_hold(struct sf_nodes *t, struct sf_node *n);	/* one more */
void sf_node_put(struct sf_nodes *t, struct sf_node *n);	/* NULL ok */

/* The kernel was given N in a reply / gives NR of those back. */
void sf_node_looked_up(struct sf_nodes *t, struct sf_node *n);
void sf_node_forget(struct sf_nodes *t, uint64_t id, uint64_t nr);

/* The number KEY has, or most likely will get. */
uint64_t sf_node_number(struct sf_nodes *t, const struct sf_node_key *key);
size_t sf_nodes_count(struct sf_nodes *t);
/* Every node, each with a reference that FN takes over. No lock is held. */
int sf_nodes_each(struct sf_nodes *t,
		  void (*fn)(void *arg, struct sf_node *n), void *arg);

const char *sf_node_segment(const struct sf_node *n);
const char *sf_node_place(const struct sf_node *n);
struct sf_node_key sf_node_key(const struct sf_node *n);

#endif
