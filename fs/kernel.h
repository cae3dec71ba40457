/* SPDX-License-Identifier: MIT */
/*
 * The few pieces of the kernel's FUSE ABI that libfuse keeps to itself. They
 * are stable; defined here so that an older <linux/fuse.h> will do.
 */
#ifndef SF_FS_KERNEL_H
#define SF_FS_KERNEL_H

#include <assert.h>
#include <stdint.h>

struct sf_kernel_in {
	uint32_t len;
	uint32_t opcode;
	uint64_t unique;
	uint64_t nodeid;
	uint32_t uid;
	uint32_t gid;
	uint32_t pid;
	uint32_t extlen;
};
static_assert(sizeof(struct sf_kernel_in) == 40, "fuse_in_header");

struct sf_kernel_out {
	uint32_t len;
	int32_t error;
	uint64_t unique;
};
static_assert(sizeof(struct sf_kernel_out) == 16, "fuse_out_header");

struct sf_kernel_open_out {
	uint64_t fh;
	uint32_t open_flags;
	uint32_t padding;
};
static_assert(sizeof(struct sf_kernel_open_out) == 16, "fuse_open_out");

#define SF_FOPEN_DIRECT_IO		(1u << 0)
#define SF_FOPEN_PARALLEL_DIRECT_WRITES (1u << 6)

struct sf_kernel_init_in {
	uint32_t major;
	uint32_t minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint32_t flags2;	/* from 7.36 on, with SF_INIT_EXT */
	uint32_t unused[11];
};
static_assert(sizeof(struct sf_kernel_init_in) == 64, "fuse_init_in");

struct sf_kernel_init_out {
	uint32_t major;
	uint32_t minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint16_t max_background;
	uint16_t congestion_threshold;
	uint32_t max_write;
	uint32_t time_gran;
	uint16_t max_pages;
	uint16_t map_alignment;
	uint32_t flags2;
	uint32_t unused[7];
};
static_assert(sizeof(struct sf_kernel_init_out) == 64, "fuse_init_out");

#define SF_KERNEL_INIT		     26u	/* opcode */
#define SF_INIT_EXT		     (1u << 30)
#define SF_INIT2_DIRECT_IO_ALLOW_MMAP (1u << 4)	/* bit 36 of all flags */

#endif
