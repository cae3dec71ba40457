/* SPDX-License-Identifier: MIT */
/* Test patterns: see enum sf_export_fill in export.h. */
#ifndef SF_EXPORT_FILL_H
#define SF_EXPORT_FILL_H

#include <stddef.h>
#include <stdint.h>

struct sf_export_buffer;

/* A pattern on its way through a buffer. */
struct sf_export_pattern {
	int fill;		/* enum sf_export_fill */
	uint64_t state, offset;
};

void sf_export_pattern_init(struct sf_export_pattern *p,
			    const struct sf_export_buffer *b);
/* The next LEN bytes of it; only the last piece may be no multiple of 8. */
void sf_export_pattern_next(struct sf_export_pattern *p, void *mem,
			    size_t len);

#endif
