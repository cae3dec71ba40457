/* SPDX-License-Identifier: MIT */
/*
 * The target side: regions of local memory, published as a segment that
 * Mooncake and segfs can read and write (protocol sections 1.7, 2, 5, 8).
 *
 * Publishes rpc_meta first, then the descriptor, under one lease; keeps the
 * lease alive; publishes again when its keys vanish; answers the handshake
 * channel; removes both keys when stopped.
 */
#ifndef SF_EXPORT_H
#define SF_EXPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_err;
struct sf_export;
struct sf_meta;
struct sf_rdma_config;

/* Where a region's memory comes from. */
enum sf_export_source {
	SF_EXPORT_ANON,		/* anonymous, bound to location's NUMA node */
	SF_EXPORT_FILE,		/* a file, mapped shared */
	SF_EXPORT_SHM,		/* a POSIX shared-memory object, the same */
	SF_EXPORT_DMABUF,	/* a device's memory: over RDMA only */
};

enum sf_export_fill {
	SF_EXPORT_FILL_NONE,	/* zeros, or what the file holds */
	SF_EXPORT_FILL_OFFSET,	/* each aligned 8 bytes hold their own offset in
				 * the buffer, little-endian */
	SF_EXPORT_FILL_RANDOM,	/* xorshift64* from fill_seed */
	SF_EXPORT_FILL_BYTE,	/* fill_seed's low byte */
};

struct sf_export_buffer {
	enum sf_export_source source;
	const char *path;	/* FILE, SHM */
	int dmabuf;		/* DMABUF: its descriptor, borrowed by start */
	uint64_t size;		/* bytes; 0 with all but ANON: all of it */
	uint64_t offset;	/* not ANON; a multiple of the page size */
	const char *location;	/* published; "cpu:N" also binds ANON; NULL:
				 * "cpu:N" of the only node, else "*" */
	bool huge;		/* huge pages; an error if there are none */
	bool read_only;
	enum sf_export_fill fill;
	uint64_t fill_seed;
};

/* "size=1G,location=cpu:0,huge,ro,file=PATH,shm=NAME,dmabuf=FD,offset=N,fill=",
 * where fill is none, offset, random[:SEED] or byte:VALUE. -EINVAL, -ENOMEM. */
int sf_export_buffer_parse(const char *text, struct sf_export_buffer *out,
			   struct sf_err *err);
void sf_export_buffer_fini(struct sf_export_buffer *b);

enum sf_export_protocol {
	SF_EXPORT_TCP = 1,
	SF_EXPORT_RDMA = 2,
};

/* The segment of RDMA beside one of TCP: a descriptor of both protocols would
 * abort most Mooncakes that read it (protocol section 2.4). */
#define SF_EXPORT_RDMA_SUFFIX "-rdma"

struct sf_export_config {
	struct sf_meta *meta;	/* borrowed; must be able to write */
	const char *name;	/* segment name; not empty, no '@' */
	unsigned int protocols;	/* 0: TCP. Of both, RDMA's segment is NAME
				 * with the suffix above */
	const struct sf_rdma_config *rdma;	/* RDMA; borrowed until stop */
	bool affinity;		/* locations prefer near devices where that
				 * can be published (protocol section 4.3) */
	const char *listen;	/* address both ports bind; NULL: loopback */
	const char *advertise;	/* host put into rpc_meta; NULL: from listen */
	uint16_t rpc_port;	/* 0: pick */
	uint16_t data_port;	/* 0: pick */
	unsigned int lease_s;	/* 0: none */
	bool force;		/* take the name even from a live owner */
	unsigned int threads;	/* of the data server; 0: one per CPU */
	const struct sf_export_buffer *buffers;
	size_t nr_buffers;
};

/*
 * Map, serve, publish. -EEXIST: the name's present owner answers a probe;
 * -EINVAL: name, location, overlap; -ENOMEM, -ENOENT, -EACCES: memory or file;
 * -ENODEV: no RDMA device; and the errors of meta.h, tcp/target.h and
 * rdma_target.h. Nothing stays published or mapped on failure.
 */
int sf_export_start(struct sf_export **out,
		    const struct sf_export_config *config,
		    struct sf_err *err);
/* What was published as buffer I, in all segments alike. What is too long for
 * one registration is several. */
struct sf_export_info {
	uint64_t addr, length;
	const char *location;
	bool read_only;
};
bool sf_export_info(const struct sf_export *x, size_t i,
		    struct sf_export_info *info);
uint16_t sf_export_rpc_port(const struct sf_export *x);
uint16_t sf_export_data_port(const struct sf_export *x);	/* 0: no TCP */
/* Segment I: its name, and "tcp" or "rdma". NULL past the last. */
const char *sf_export_segment(const struct sf_export *x, size_t i,
			      const char **protocol);
/* Removes the keys (errors are logged), stops serving, unmaps. NULL ok. */
void sf_export_stop(struct sf_export *x);

#endif
