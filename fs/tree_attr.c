/* SPDX-License-Identifier: MIT */
/*
 * Attributes of what is in the tree: modes, owners, sizes, times
 * (fuse-practice.md sections 5.5 and 8). Pure; no locks.
 */
#include "config.h"
#include "fs/tree.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/internal.h"
#include "segment.h"

#define NS 1000000000

/* "YYYY-MM-DD HH:MM:SS.uuuuuu", local time of the publisher: the best there
 * is. */
static bool parse_timestamp(const char *text, int64_t *ns)
{
	struct tm tm = { .tm_isdst = -1 };
	const char *rest = strptime(text, "%Y-%m-%d %H:%M:%S", &tm);
	long us = 0;
	time_t t;

	if (!rest)
		return false;
	if (*rest == '.') {
		char *end;

		us = strtol(rest + 1, &end, 10);
		if (end - rest != 7 || us < 0)
			us = 0;
	}
	t = mktime(&tm);
	if (t <= 0 || t > INT32_MAX * (int64_t)64)
		return false;
	*ns = (int64_t)t * NS + us * 1000;
	return true;
}

int64_t sf_tree_segment_mtime(const struct sf_fs *fs,
			      const struct sf_segment *seg)
{
	int64_t ns;

	if (seg && parse_timestamp(seg->timestamp, &ns))
		return ns;
	return fs->start_ns;
}

static mode_t mode_of(const struct sf_fs *fs, enum sf_node_kind kind)
{
	const struct sf_fs_config *c = &fs->config;

	switch (kind) {
	case SF_NODE_ROOT:
	case SF_NODE_SEGMENT:
		return 0777 & ~c->dmask;
	case SF_NODE_BUFFER:
	case SF_NODE_MEM:
		return (c->read_only ? 0444 : 0666) & ~c->fmask;
	case SF_NODE_SEGMENT_JSON:
	case SF_NODE_RPC_JSON:
		return 0400;	/* keys: for the owner's eyes only */
	default:
		if (sf_tree_is_link(kind))
			return 0777;
		if (sf_tree_is_dir(kind))
			return 0555 & ~c->dmask;
		return 0444 & ~c->dmask;
	}
}

/* Subdirectories, besides `.` and `..`. */
static nlink_t links_of(enum sf_node_kind kind)
{
	switch (kind) {
	case SF_NODE_CONTROL:
		return 4;
	case SF_NODE_ROOT:
	case SF_NODE_SEGMENT:
		return 3;
	default:
		return sf_tree_is_dir(kind) ? 2 : 1;
	}
}

static void set_size(const struct sf_node_key *key,
		     const struct sf_segment *seg, uint64_t len,
		     struct stat *st)
{
	char link[SF_TREE_LINK_MAX];
	uint64_t stored = len;

	if (key->kind == SF_NODE_BUFFER) {
		stored = len = key->length;
	} else if (key->kind == SF_NODE_MEM) {
		len = seg ? sf_tree_mem_size(seg) : 0;
		stored = seg ? seg->total_bytes : 0;	/* it is sparse */
	} else if (sf_tree_is_link(key->kind)) {
		len = seg && !sf_tree_link(key, seg, link) ? strlen(link) : 0;
		stored = 0;
	}
	if (len > INT64_MAX)
		len = INT64_MAX;
	st->st_size = (off_t)len;
	st->st_blocks = (blkcnt_t)(stored / 512 + (stored % 512 != 0));
}

void sf_tree_attr(const struct sf_fs *fs, const struct sf_node_key *key,
		  uint64_t ino, const struct sf_segment *seg,
		  int64_t mtime_ns, uint64_t len, struct stat *st)
{
	bool keys = key->kind == SF_NODE_SEGMENT_JSON ||
		    key->kind == SF_NODE_RPC_JSON;

	*st = (struct stat){
		.st_ino = ino,
		.st_mode = sf_tree_type(key->kind) | mode_of(fs, key->kind),
		.st_nlink = links_of(key->kind),
		/* uid= may give the buffers away, never the keys */
		.st_uid = keys ? getuid() : fs->config.uid,
		.st_gid = keys ? getgid() : fs->config.gid,
		.st_blksize = (blksize_t)fs->config.blksize,
		.st_mtim = { mtime_ns / NS, mtime_ns % NS },
	};
	st->st_atim = st->st_ctim = st->st_mtim;
	if (!sf_tree_is_dir(key->kind))
		set_size(key, seg, len, st);
}
