/* SPDX-License-Identifier: MIT */
/*
 * STATFS, READLINK and extended attributes. From memory, on the session thread.
 * Attributes say where a buffer is and how it was registered; never its keys.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "fs/tree.h"
#include "segment.h"

#define BLOCK 4096u

/* Nothing is free: what is registered is what there is. */
void sf_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_directory_info info = { 0 };
	struct statvfs st = {
		.f_bsize = BLOCK,
		.f_frsize = BLOCK,
		.f_namemax = SF_NAME_MAX,
	};

	sf_directory_info(fs->config.directory, &info);
	st.f_blocks = info.nr_bytes / BLOCK + (info.nr_bytes % BLOCK != 0);
	st.f_files = info.nr_buffers;
	fuse_reply_statfs(req, &st);
}

static struct sf_segment *snapshot_of(struct sf_fs *fs, struct sf_node *n)
{
	return sf_tree_in_segment(n->kind)
		       ? sf_directory_peek(fs->config.directory,
					   sf_node_segment(n))
		       : NULL;
}

void sf_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n = sf_node_get(fs->nodes, ino);
	struct sf_segment *seg = n ? snapshot_of(fs, n) : NULL;
	char text[SF_TREE_LINK_MAX];
	int res = -ESTALE;

	if (seg) {
		struct sf_node_key key = sf_node_key(n);

		res = sf_tree_is_link(n->kind)
			      ? sf_tree_link(&key, seg, text)
			      : -EINVAL;
	}
	if (res)
		sf_reply_err(req, res);
	else
		fuse_reply_readlink(req, text);
	sf_segment_put(seg);
	sf_node_put(fs->nodes, n);
}

/* ---- extended attributes ---- */

#define PREFIX "user.segfs."

struct xattr {
	const char *name;	/* without the prefix */
	void (*print)(FILE *out, const struct sf_segment *seg,
		      const struct sf_buffer *buf);
	bool of_segment;	/* segment directories have it too */
};

static void print_segment(FILE *out, const struct sf_segment *seg,
			  const struct sf_buffer *buf)
{
	fputs(seg->name, out);
}

static void print_address(FILE *out, const struct sf_segment *seg,
			  const struct sf_buffer *buf)
{
	fprintf(out, "0x%" PRIx64, buf->addr);
}

static void print_length(FILE *out, const struct sf_segment *seg,
			 const struct sf_buffer *buf)
{
	fprintf(out, "%" PRIu64, buf->length);
}

static void print_location(FILE *out, const struct sf_segment *seg,
			   const struct sf_buffer *buf)
{
	fputs(buf->location, out);
}

static void print_protocol(FILE *out, const struct sf_segment *seg,
			   const struct sf_buffer *buf)
{
	fputs(buf->protocol, out);
}

static void print_index(FILE *out, const struct sf_segment *seg,
			const struct sf_buffer *buf)
{
	fprintf(out, "%" PRIu32, buf->index);
}

/* Those that the owner has registered the buffer with: keys go by position. */
static void print_devices(FILE *out, const struct sf_segment *seg,
			  const struct sf_buffer *buf)
{
	const char *comma = "";

	for (uint32_t i = 0; i < seg->nr_devices && i < buf->nr_keys; i++) {
		if (!*seg->devices[i].name)
			continue;
		fprintf(out, "%s%s", comma, seg->devices[i].name);
		comma = ",";
	}
}

static const struct xattr xattrs[] = {
	{ "address", print_address, false },
	{ "devices", print_devices, false },
	{ "index", print_index, false },
	{ "length", print_length, false },
	{ "location", print_location, false },
	{ "protocol", print_protocol, false },
	{ "segment", print_segment, true },
};
#define NR_XATTRS (sizeof(xattrs) / sizeof(xattrs[0]))

static bool has(const struct sf_node *n, const struct xattr *x)
{
	return n->kind == SF_NODE_BUFFER ||
	       (n->kind == SF_NODE_SEGMENT && x->of_segment);
}

/* Size probing and the reply, for a value or a list. */
static void reply_value(fuse_req_t req, const char *value, size_t len,
			size_t size)
{
	if (!size)
		fuse_reply_xattr(req, len);
	else if (len > size)
		sf_reply_err(req, -ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

/* What PRINT makes for N: malloc'ed. */
static int print_value(struct sf_fs *fs, struct sf_node *n,
		       const struct xattr *x, char **value, size_t *len)
{
	struct sf_segment *seg = snapshot_of(fs, n);
	struct sf_node_key key = sf_node_key(n);
	const struct sf_buffer *buf = NULL;
	int res = seg ? 0 : -ESTALE;
	FILE *out;

	if (seg && n->kind == SF_NODE_BUFFER) {
		buf = sf_tree_buffer(&key, seg);
		res = buf ? 0 : -ESTALE;
	}
	if (!res) {
		out = open_memstream(value, len);
		if (out)
			x->print(out, seg, buf);
		if (!out || fclose(out))
			res = -ENOMEM;
	}
	sf_segment_put(seg);
	return res;
}

/* Another namespace is not ours: the kernel and ls(1) stop asking then. */
static int find_xattr(const struct sf_node *n, const char *name,
		      const struct xattr **out)
{
	if (strncmp(name, "user.", 5))
		return -EOPNOTSUPP;
	if (strncmp(name, PREFIX, strlen(PREFIX)))
		return -ENODATA;
	for (size_t i = 0; i < NR_XATTRS; i++)
		if (!strcmp(xattrs[i].name, name + strlen(PREFIX)) &&
		    has(n, &xattrs[i])) {
			*out = &xattrs[i];
			return 0;
		}
	return -ENODATA;
}

void sf_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		    size_t size)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n = sf_node_get(fs->nodes, ino);
	const struct xattr *x;
	char *value = NULL;
	size_t len = 0;
	int res = n ? find_xattr(n, name, &x) : -ESTALE;

	if (!res)
		res = print_value(fs, n, x, &value, &len);
	if (res)
		sf_reply_err(req, res);
	else
		reply_value(req, value, len, size);
	free(value);
	sf_node_put(fs->nodes, n);
}

void sf_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_node *n = sf_node_get(fs->nodes, ino);
	char list[NR_XATTRS * 32];
	size_t len = 0;

	if (!n) {
		sf_reply_err(req, -ESTALE);
		return;
	}
	for (size_t i = 0; i < NR_XATTRS; i++)
		if (has(n, &xattrs[i]))
			len += (size_t)sprintf(list + len, PREFIX "%s",
					       xattrs[i].name) + 1;
	reply_value(req, list, len, size);
	sf_node_put(fs->nodes, n);
}
