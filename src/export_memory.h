/* SPDX-License-Identifier: MIT */
/* The memory behind exported buffers: mapping, binding to a NUMA node, filling.
 * Private to export*.c. */
#ifndef SF_EXPORT_MEMORY_H
#define SF_EXPORT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sf_err;
struct sf_export_buffer;

struct sf_export_memory {
	char *base;
	uint64_t length;	/* exported */
	size_t mapped;		/* rounded up to pages */
	char *location;		/* never NULL, not empty */
	bool read_only;
	int dmabuf;		/* ours; -1: plain memory. BASE is a place in
				 * our address space where nothing is, then */
	uint64_t dmabuf_offset;
	/* what a file mapping is of, to see overlaps */
	bool is_file;
	dev_t dev;
	ino_t ino;
	uint64_t offset;
};

/* Everything at once: mapped, bound, filled. PIN: it will be registered with a
 * device. -EINVAL, -ENOMEM, and the errors of open, mmap, mbind, pwrite;
 * nothing stays mapped then. */
int sf_export_memory_map(struct sf_export_memory *m,
			 const struct sf_export_buffer *b, bool pin,
			 struct sf_err *err);
void sf_export_memory_unmap(struct sf_export_memory *m);
/* -EINVAL when two of NR share bytes of one file. */
int sf_export_memory_overlap(const struct sf_export_memory *list, size_t nr,
			     struct sf_err *err);

#endif
