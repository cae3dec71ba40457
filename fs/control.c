/* SPDX-License-Identifier: MIT */
/*
 * The control files: version, config, stats and status of the mount;
 * descriptor, rpc_meta and status of a segment. Made from what is in memory, so
 * that they answer when nothing else does. Never keys or credentials, except in
 * the two documents that are shown as stored, which only the mount's owner may
 * read.
 */
#include "config.h"
#include "fs/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "directory.h"
#include "fs/internal.h"
#include "fs/tree.h"
#include "iobuf.h"
#include "net.h"
#include "segment.h"
#include "transfer.h"

static void print_version(struct sf_fs *fs, FILE *out)
{
	fprintf(out, "segfs %s\n", PACKAGE_VERSION);
}

static void print_config(struct sf_fs *fs, FILE *out)
{
	const char *text = fs->config.options_text;
	size_t len = strlen(text);

	fprintf(out, "%s%s", text, len && text[len - 1] != '\n' ? "\n" : "");
}

static void print_status(struct sf_fs *fs, FILE *out)
{
	struct sf_directory_info info = { 0 };
	struct sf_iobuf_stats pool;
	struct sf_engine_stats st;

	sf_directory_info(fs->config.directory, &info);
	sf_iobuf_stats(fs->config.pool, &pool);
	sf_engine_stats(fs->config.engine, &st);
	fprintf(out, "source: %s\n", fs->config.source);
	fprintf(out, "mountpoint: %s\n", fs->config.mountpoint);
	fprintf(out, "mode: %s\n",
		fs->config.read_only ? "read-only" : "read-write");
	fprintf(out, "kernel: FUSE %u.%u\n", fs->kernel_major,
		fs->kernel_minor);
	fprintf(out, "shared mappings: %s\n", fs->can_mmap ? "yes" : "no");
	fprintf(out, "watch: %s\n", info.watched ? "yes" : "no");
	if (*info.text)
		fprintf(out, "store: %s\n", info.text);
	fprintf(out, "known segments: %zu\n", info.known);
	fprintf(out, "known buffers: %" PRIu64 "\n",
		info.nr_buffers);
	fprintf(out, "known bytes: %" PRIu64 "\n", info.nr_bytes);
	fprintf(out, "descriptor pulls: %" PRIu64 "\n", info.pulls);
	fprintf(out, "inodes: %zu\n", sf_nodes_count(fs->nodes));
	fprintf(out, "buffer pool: %u of %u free, %u beyond it\n", pool.free,
		pool.total, pool.overflow);
	fprintf(out, "transfers under way: %u\n", st.in_flight);
	fprintf(out, "peers: %u\n", st.sessions);
	fprintf(out, "errors: %" PRIu64 "\n", st.errors);
	fprintf(out, "retries: %" PRIu64 "\n", st.retries);
}

static void metric(FILE *out, const char *name, const char *type,
		   const char *help, uint64_t value)
{
	fprintf(out, "# HELP segfs_%s %s\n# TYPE segfs_%s %s\n"
		     "segfs_%s %" PRIu64 "\n",
		name, help, name, type, name, value);
}

static void print_stats(struct sf_fs *fs, FILE *out)
{
	struct sf_directory_info info = { 0 };
	struct sf_iobuf_stats pool;
	struct sf_engine_stats st;

	sf_directory_info(fs->config.directory, &info);
	sf_iobuf_stats(fs->config.pool, &pool);
	sf_engine_stats(fs->config.engine, &st);
	metric(out, "reads_total", "counter", "Transfers from peers.",
	       st.reads);
	metric(out, "writes_total", "counter", "Transfers to peers.",
	       st.writes);
	metric(out, "read_bytes_total", "counter",
	       "Bytes transferred from peers.", st.read_bytes);
	metric(out, "written_bytes_total", "counter",
	       "Bytes transferred to peers.", st.written_bytes);
	metric(out, "errors_total", "counter", "Transfers that failed.",
	       st.errors);
	metric(out, "retries_total", "counter", "Transfers tried again.",
	       st.retries);
	metric(out, "transfers_in_flight", "gauge", "Transfers under way.",
	       st.in_flight);
	metric(out, "peers", "gauge", "Segment owners talked to.",
	       st.sessions);
	metric(out, "descriptor_pulls_total", "counter",
	       "Descriptors asked of the metadata store.", info.pulls);
	metric(out, "known_segments", "gauge", "Segments with a snapshot.",
	       info.known);
	metric(out, "known_buffers", "gauge", "Buffers of known segments.",
	       info.nr_buffers);
	metric(out, "known_bytes", "gauge", "Bytes of known buffers.",
	       info.nr_bytes);
	metric(out, "watched", "gauge",
	       "1 while the store tells about changes.", info.watched);
	metric(out, "inodes", "gauge", "Inodes the kernel knows.",
	       sf_nodes_count(fs->nodes));
	metric(out, "pool_buffers", "gauge", "I/O buffers in the pool.",
	       pool.total);
	metric(out, "pool_buffers_free", "gauge", "I/O buffers not in use.",
	       pool.free);
	metric(out, "overflow_buffers", "gauge",
	       "I/O buffers in use beyond the pool.", pool.overflow);
}

static void print_age(struct sf_fs *fs, const char *name, FILE *out)
{
	uint64_t age;
	int error;

	if (!sf_directory_age(fs->config.directory, name, &age, &error))
		return;
	fprintf(out, "age: %" PRIu64 ".%03u s\n", age / 1000,
		(unsigned int)(age % 1000));
	if (error)
		fprintf(out, "last pull: failed: %s; served from the last "
			     "snapshot\n", strerror(-error));
}

static void print_owner(const struct sf_segment *seg, FILE *out)
{
	const char *host = *seg->tcp_data_host ? seg->tcp_data_host
					       : seg->rpc_host;

	if (*seg->rpc_host)
		fprintf(out, "handshake: %s port %u\n", seg->rpc_host,
			seg->rpc_port);
	if (seg->tcp_data_port)
		fprintf(out, "tcp data: %s port %u, version %u\n",
			*host ? host : "(host unknown)", seg->tcp_data_port,
			seg->tcp_version);
	if ((*host && sf_net_is_loopback(host)) ||
	    (*seg->rpc_host && sf_net_is_loopback(seg->rpc_host)))
		fprintf(out, "warning: the owner advertises a loopback "
			     "address; only programs on its own host can "
			     "reach it\n");
}

/* Text from the store, if there is any, in one line. */
static void print_text(const char *key, const char *text, FILE *out)
{
	if (!*text)
		return;
	fprintf(out, "%s: ", key);
	for (; *text; text++)
		fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?'
								   : *text,
		      out);
	fputc('\n', out);
}

static void print_segment_status(struct sf_fs *fs, const struct sf_segment *seg,
				 FILE *out)
{
	print_text("segment", seg->name, out);
	print_text("source", fs->config.source, out);
	print_age(fs, seg->name, out);
	print_text("protocol", seg->protocol, out);
	print_text("published", seg->timestamp, out);
	if (!seg->raw)
		fprintf(out, "missing: the descriptor; only rpc_meta is in the "
			     "store\n");
	if (!seg->raw_rpc)
		fprintf(out, "missing: rpc_meta; the owner's handshake address "
			     "is unknown\n");
	print_owner(seg, out);
	fprintf(out, "buffers: %" PRIu32 "\n", seg->nr_buffers);
	fprintf(out, "bytes: %" PRIu64 "\n", seg->total_bytes);
	if (seg->error)
		fprintf(out, "error: %s\n", strerror(-seg->error));
	for (const char *p = seg->problems; *p;) {
		int len = (int)strcspn(p, "\n");

		fprintf(out, "problem: %.*s\n", len, p);
		p += len;
		p += *p == '\n';
	}
	sf_engine_status(fs->config.engine, seg->name, out);
}

static void print(struct sf_fs *fs, const struct sf_node *n,
		  const struct sf_segment *seg, FILE *out)
{
	switch (n->kind) {
	case SF_NODE_VERSION:
		print_version(fs, out);
		break;
	case SF_NODE_CONFIG:
		print_config(fs, out);
		break;
	case SF_NODE_STATS:
		print_stats(fs, out);
		break;
	case SF_NODE_STATUS:
		print_status(fs, out);
		break;
	case SF_NODE_SEGMENT_STATUS:
		print_segment_status(fs, seg, out);
		break;
	default:
		break;
	}
}

int sf_control_text(struct sf_fs *fs, const struct sf_node *n,
		    struct sf_segment *seg, struct sf_blob **out)
{
	struct sf_blob *blob = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *f;

	if (sf_tree_in_segment(n->kind) && !seg)
		return -ENOENT;
	if (n->kind == SF_NODE_SEGMENT_JSON || n->kind == SF_NODE_RPC_JSON) {
		blob = n->kind == SF_NODE_RPC_JSON ? seg->raw_rpc : seg->raw;
		if (!blob)
			return -ENOENT;
		*out = sf_blob_get(blob);
		return 0;
	}
	f = open_memstream(&text, &len);
	if (!f)
		return -ENOMEM;
	print(fs, n, seg, f);
	if (!fclose(f))
		blob = sf_blob_new(text, len);
	free(text);
	if (!blob)
		return -ENOMEM;
	*out = blob;
	return 0;
}

void sf_control_attr(struct sf_fs *fs, const struct sf_node *n,
		     struct sf_segment *seg, struct stat *st)
{
	struct sf_node_key key = sf_node_key(n);
	int64_t mtime = atomic_load(&n->mtime_ns);
	struct sf_blob *text;
	uint64_t len = 0;

	if (sf_tree_is_text(n->kind) &&
	    !sf_control_text(fs, n, seg, &text)) {
		len = text->len;
		sf_blob_put(text);
	}
	if (!mtime)
		mtime = sf_tree_segment_mtime(fs, seg);
	sf_tree_attr(fs, &key, n->id, seg, mtime, len, st);
}
