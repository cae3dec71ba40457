/* SPDX-License-Identifier: MIT */
/*
 * struct segment: an immutable, reference-counted snapshot of what the metadata
 * store said about one segment at one moment: its descriptor (protocol page,
 * section 2) and where its owner's handshake channel is (rpc_meta, section
 * 5.1). Shared freely between threads; everything in it lives as long as a
 * reference is held.
 */
#ifndef SF_SEGMENT_H
#define SF_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_blob;
struct sf_err;
struct sf_topology;

/* Protocols segfs can name; only those with a transport backend are moved. */
enum sf_protocol {
	SF_PROTOCOL_OTHER,	/* anything else: listed, never moved */
	SF_PROTOCOL_TCP,
	SF_PROTOCOL_RDMA,
};

struct sf_device {
	const char *name;	/* verbs device name; "" when the entry is bad:
				 * it keeps its place, as keys go by position */
	uint16_t lid;
	uint8_t gid[16];
	bool has_gid;		/* usable: gid parsed and is not all zero */
};

struct sf_buffer {
	uint64_t addr;		/* remote virtual address, not 0 */
	uint64_t length;	/* bytes, not 0; addr + length does not wrap */
	const char *location;	/* descriptor "name": "cpu:0", "*", ... ; "" */
	const char *protocol;	/* its own, or the descriptor's first */
	enum sf_protocol proto;
	uint32_t index;		/* position in the descriptor's "buffers" */
	bool long_name;		/* file name carries the length, names.h */
	uint32_t nr_keys;	/* 0: local only, or no RDMA */
	const uint64_t *rkeys;	/* rkeys[i] belongs to devices[i] */
};

struct sf_segment {
	const char *name;	/* the name it was looked up by */
	const char *self_name;	/* descriptor "name"; "" if missing */
	const char *protocol;	/* as text: "rdma", "tcp,rdma", "" */
	const char *timestamp;	/* as text, "" if missing */
	const char *rdma_server_name;	/* "" if missing */
	const char *tcp_data_host;	/* where tcp_data_port is; "" if
					 * missing: rpc_host then. 0.3.13.post1
					 * prefers it to rpc_meta */
	uint16_t tcp_data_port;	/* 0 = none */
	unsigned int tcp_version;	/* 1 or 2 */

	uint32_t nr_devices;
	const struct sf_device *devices;
	uint32_t nr_buffers;	/* usable ones, sorted by addr, then by length
				 * descending, then by index */
	const struct sf_buffer *buffers;
	uint64_t total_bytes;	/* sum of lengths, saturating */
	const struct sf_topology *topology;	/* NULL: none usable */

	/* Owner's handshake channel. */
	const char *rpc_host;	/* "" when rpc_meta is missing or bad */
	uint16_t rpc_port;

	struct sf_blob *raw;	/* descriptor as stored; NULL if missing */
	struct sf_blob *raw_rpc;	/* rpc_meta as stored; NULL: missing */

	/*
	 * What was wrong. error: the descriptor as a whole cannot be used
	 * (-EBADMSG; -ENOENT when only rpc_meta exists), there are no buffers
	 * then and problems says why. A descriptor that is fine but for some
	 * buffers has error 0 and a line per problem. "" when all is well;
	 * lines end in newlines, are printable, bounded in number and length.
	 */
	int error;
	const char *problems;
};

/* Decoding limits; a descriptor beyond them is -EBADMSG. Readers take at least
 * 32 MiB (Mooncake's gRPC limit, protocol section 1.4). */
#define SF_DESCRIPTOR_MAX (128u << 20)
#define SF_DESCRIPTOR_DEPTH_MAX 64

/*
 * Decode. RAW and RAW_RPC may be NULL (missing key); references are taken.
 * Whatever is in the values, this makes a snapshot: bad values are described
 * by error and problems. Returns 0, or -ENOMEM.
 */
int sf_segment_decode(struct sf_segment **out, const char *name,
		      struct sf_blob *raw, struct sf_blob *raw_rpc);

struct sf_segment *sf_segment_get(struct sf_segment *seg);
void sf_segment_put(struct sf_segment *seg);	/* NULL is fine */
/* Does anybody hold a reference beside the caller's? */
bool sf_segment_is_shared(const struct sf_segment *seg);

/* By address; *LENGTH 0 finds the one with the plain name at ADDR. NULL. */
const struct sf_buffer *sf_segment_find(const struct sf_segment *seg,
					uint64_t addr, uint64_t length);
/* The buffer that holds all of [addr, addr+len), by the rule of the `mem` view:
 * the one with the lowest index. NULL: none holds all of it. */
const struct sf_buffer *sf_segment_covering(const struct sf_segment *seg,
					    uint64_t addr, uint64_t len);
/* As above for the single byte ADDR, and how far that buffer goes from it. */
const struct sf_buffer *sf_segment_covering_run(const struct sf_segment *seg,
						uint64_t addr, uint64_t *run);
/* By descriptor index. NULL. */
const struct sf_buffer *sf_segment_by_index(const struct sf_segment *seg,
					    uint32_t index);
void sf_segment_buffer_name(const struct sf_buffer *buf,
			    char out[/* SF_BUFFER_NAME_MAX */]);

/* Same owner: handshake and data endpoints and server names are equal, so that
 * an open connection to one serves the other. */
bool sf_segment_same_owner(const struct sf_segment *a,
			   const struct sf_segment *b);
/* Same registration: address, length, protocol and keys are equal. Keys are
 * matched by device name, so each buffer comes with the snapshot it is in. */
bool sf_buffer_same(const struct sf_segment *seg_a, const struct sf_buffer *a,
		    const struct sf_segment *seg_b, const struct sf_buffer *b);

/*
 * Writing a descriptor, for the exporter: exactly the fields of protocol
 * sections 2.2 and 2.3. Unused members are zero.
 */
char *sf_segment_encode(const struct sf_segment *seg);	/* malloc'ed; NULL */
char *sf_rpc_meta_encode(const char *host, uint16_t port);	/* same */

#endif
