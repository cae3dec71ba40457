/* SPDX-License-Identifier: MIT */
/*
 * The shape of the tree: see tree.h. No state, no locks, no FUSE, nothing that
 * waits.
 */
#include "config.h"
#include "fs/tree.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "fs/internal.h"
#include "segment.h"

struct fixed {
	enum sf_node_kind dir;
	const char *name;
	enum sf_node_kind kind;
};

static const struct fixed fixed_entries[] = {
	{ SF_NODE_ROOT_CONTROL, "config", SF_NODE_CONFIG },
	{ SF_NODE_ROOT_CONTROL, "stats", SF_NODE_STATS },
	{ SF_NODE_ROOT_CONTROL, "status", SF_NODE_STATUS },
	{ SF_NODE_ROOT_CONTROL, "version", SF_NODE_VERSION },
	{ SF_NODE_CONTROL, "by-index", SF_NODE_BY_INDEX },
	{ SF_NODE_CONTROL, "by-location", SF_NODE_BY_LOCATION },
	{ SF_NODE_CONTROL, "mem", SF_NODE_MEM },
	{ SF_NODE_CONTROL, "rpc.json", SF_NODE_RPC_JSON },
	{ SF_NODE_CONTROL, "segment.json", SF_NODE_SEGMENT_JSON },
	{ SF_NODE_CONTROL, "status", SF_NODE_SEGMENT_STATUS },
};
#define NR_FIXED (sizeof(fixed_entries) / sizeof(fixed_entries[0]))

bool sf_tree_in_segment(enum sf_node_kind kind)
{
	return kind >= SF_NODE_SEGMENT;
}

bool sf_tree_is_dir(enum sf_node_kind kind)
{
	switch (kind) {
	case SF_NODE_ROOT:
	case SF_NODE_ROOT_CONTROL:
	case SF_NODE_SEGMENT:
	case SF_NODE_CONTROL:
	case SF_NODE_BY_INDEX:
	case SF_NODE_BY_LOCATION:
	case SF_NODE_LOCATION:
		return true;
	default:
		return false;
	}
}

bool sf_tree_is_link(enum sf_node_kind kind)
{
	return kind == SF_NODE_INDEX || kind == SF_NODE_LOCATION_BUFFER;
}

bool sf_tree_is_text(enum sf_node_kind kind)
{
	return !sf_tree_is_dir(kind) && !sf_tree_is_link(kind) &&
	       kind != SF_NODE_BUFFER && kind != SF_NODE_MEM;
}

mode_t sf_tree_type(enum sf_node_kind kind)
{
	if (sf_tree_is_dir(kind))
		return S_IFDIR;
	return sf_tree_is_link(kind) ? S_IFLNK : S_IFREG;
}

static enum sf_node_kind parent_kind(enum sf_node_kind kind)
{
	switch (kind) {
	case SF_NODE_BUFFER:
	case SF_NODE_CONTROL:
		return SF_NODE_SEGMENT;
	case SF_NODE_INDEX:
		return SF_NODE_BY_INDEX;
	case SF_NODE_LOCATION:
		return SF_NODE_BY_LOCATION;
	case SF_NODE_LOCATION_BUFFER:
		return SF_NODE_LOCATION;
	default:
		break;
	}
	for (size_t i = 0; i < NR_FIXED; i++)
		if (fixed_entries[i].kind == kind)
			return fixed_entries[i].dir;
	return SF_NODE_ROOT;
}

struct sf_node_key sf_tree_parent(const struct sf_node_key *key)
{
	struct sf_node_key parent = { .kind = parent_kind(key->kind),
				      .segment = "",
				      .place = "" };

	if (sf_tree_in_segment(parent.kind))
		parent.segment = key->segment;
	if (parent.kind == SF_NODE_LOCATION)
		parent.place = key->place;
	return parent;
}

static bool exists(enum sf_node_kind kind, const struct sf_segment *seg)
{
	if (kind == SF_NODE_SEGMENT_JSON)
		return seg && seg->raw;
	if (kind == SF_NODE_RPC_JSON)
		return seg && seg->raw_rpc;
	return true;
}

const char *sf_tree_control_entry(enum sf_node_kind dir,
				  const struct sf_segment *seg, unsigned int i,
				  enum sf_node_kind *kind)
{
	for (size_t k = 0; k < NR_FIXED; k++) {
		const struct fixed *f = &fixed_entries[k];

		if (f->dir != dir || !exists(f->kind, seg) || i--)
			continue;
		*kind = f->kind;
		return f->name;
	}
	return NULL;
}

static int find_fixed(enum sf_node_kind dir, const struct sf_segment *seg,
		      const char *name, struct sf_node_key *key)
{
	const char *entry;

	for (unsigned int i = 0;
	     (entry = sf_tree_control_entry(dir, seg, i, &key->kind)); i++)
		if (!strcmp(entry, name))
			return 0;
	return -ENOENT;
}

void sf_tree_place_name(const char *location, char out[SF_NAME_MAX + 1])
{
	if (*location)
		sf_name_encode(location, out);
	else
		strcpy(out, "_none");
}

static bool is_at(const struct sf_buffer *buf, const char *place)
{
	char name[SF_NAME_MAX + 1];

	sf_tree_place_name(buf->location, name);
	return !strcmp(name, place);
}

/* Only the name that listings show leads to a buffer. */
static const struct sf_buffer *buffer_called(const struct sf_segment *seg,
					     const char *name)
{
	char real[SF_BUFFER_NAME_MAX];
	const struct sf_buffer *buf;
	uint64_t addr, length;

	if (sf_buffer_name_parse(name, &addr, &length))
		return NULL;
	buf = sf_segment_find(seg, addr, length);
	if (!buf)
		return NULL;
	sf_segment_buffer_name(buf, real);
	return strcmp(real, name) ? NULL : buf;
}

static int find_buffer(const struct sf_segment *seg, const char *name,
		       struct sf_node_key *key)
{
	const struct sf_buffer *buf;

	if (seg->error && seg->error != -ENOENT)
		return seg->error;
	buf = buffer_called(seg, name);
	if (!buf || (key->kind == SF_NODE_LOCATION_BUFFER &&
		     !is_at(buf, key->place)))
		return -ENOENT;
	key->addr = buf->addr;
	key->length = buf->length;
	return 0;
}

static int find_index(const struct sf_segment *seg, const char *name,
		      struct sf_node_key *key)
{
	char again[16];
	uint32_t index = (uint32_t)strtoul(name, NULL, 10);

	snprintf(again, sizeof(again), "%" PRIu32, index);
	if (strcmp(again, name) || !sf_segment_by_index(seg, index))
		return -ENOENT;
	key->addr = index;
	return 0;
}

static int find_place(const struct sf_segment *seg, const char *name,
		      struct sf_node_key *key)
{
	key->place = name;
	for (uint32_t i = 0; i < seg->nr_buffers; i++)
		if (is_at(&seg->buffers[i], name))
			return 0;
	return -ENOENT;
}

int sf_tree_find(const struct sf_node *parent, const struct sf_segment *seg,
		 const char *name, struct sf_node_key *key)
{
	*key = (struct sf_node_key){
		.segment = sf_node_segment(parent),
		.place = sf_node_place(parent),
	};
	switch (parent->kind) {
	case SF_NODE_ROOT:
		key->kind = SF_NODE_ROOT_CONTROL;
		return strcmp(name, ".segfs") ? -ENOENT : 0;
	case SF_NODE_SEGMENT:
		key->kind = SF_NODE_CONTROL;
		if (!strcmp(name, ".segfs"))
			return 0;
		key->kind = SF_NODE_BUFFER;
		return find_buffer(seg, name, key);
	case SF_NODE_ROOT_CONTROL:
	case SF_NODE_CONTROL:
		return find_fixed(parent->kind, seg, name, key);
	case SF_NODE_BY_INDEX:
		key->kind = SF_NODE_INDEX;
		return find_index(seg, name, key);
	case SF_NODE_BY_LOCATION:
		key->kind = SF_NODE_LOCATION;
		return find_place(seg, name, key);
	case SF_NODE_LOCATION:
		key->kind = SF_NODE_LOCATION_BUFFER;
		return find_buffer(seg, name, key);
	default:
		return -ENOTDIR;
	}
}

const struct sf_buffer *sf_tree_buffer(const struct sf_node_key *key,
				       const struct sf_segment *seg)
{
	if (key->kind == SF_NODE_INDEX)
		return sf_segment_by_index(seg, (uint32_t)key->addr);
	return sf_segment_find(seg, key->addr, key->length);
}

void sf_tree_name(const struct sf_node_key *key, const struct sf_buffer *buf,
		  char out[SF_NAME_MAX + 1])
{
	switch (key->kind) {
	case SF_NODE_SEGMENT:
		sf_name_encode(key->segment, out);
		break;
	case SF_NODE_INDEX:
		snprintf(out, SF_NAME_MAX + 1, "%" PRIu64, key->addr);
		break;
	case SF_NODE_LOCATION:
		snprintf(out, SF_NAME_MAX + 1, "%s", key->place);
		break;
	case SF_NODE_BUFFER:
	case SF_NODE_LOCATION_BUFFER:
		if (buf)
			sf_segment_buffer_name(buf, out);
		else
			sf_buffer_name_format(out, key->addr, 0);
		break;
	default:
		strcpy(out, ".segfs");
	}
}

int sf_tree_link(const struct sf_node_key *key, const struct sf_segment *seg,
		 char out[SF_TREE_LINK_MAX])
{
	const struct sf_buffer *buf = sf_tree_buffer(key, seg);
	char name[SF_BUFFER_NAME_MAX];

	if (!buf)
		return -ENOENT;
	sf_segment_buffer_name(buf, name);
	snprintf(out, SF_TREE_LINK_MAX, "%s%s",
		 key->kind == SF_NODE_INDEX ? "../../" : "../../../", name);
	return 0;
}

uint64_t sf_tree_mem_size(const struct sf_segment *seg)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		if (b->addr <= INT64_MAX && b->addr + b->length > end)
			end = b->addr + b->length;
	}
	return end < INT64_MAX ? end : INT64_MAX;
}
