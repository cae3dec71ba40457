/* SPDX-License-Identifier: MIT */
/* Latencies, counted in buckets that are at most 1/32 wide of their value. */
#ifndef SF_SEGCTL_HIST_H
#define SF_SEGCTL_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 5
#define HIST_BUCKETS ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct segctl_hist {
	uint64_t nr, sum, max;		/* nanoseconds */
	uint32_t count[HIST_BUCKETS];
};

void segctl_hist_add(struct segctl_hist *h, uint64_t ns);
/* Add all of B to A. */
void segctl_hist_merge(struct segctl_hist *a, const struct segctl_hist *b);
/* The value that PER_MILLE of 1000 do not exceed; 0 when empty. */
uint64_t segctl_hist_quantile(const struct segctl_hist *h,
			      unsigned int per_mille);

#endif
