/* SPDX-License-Identifier: MIT */
/* A log-linear histogram: exact below 32 ns, then 32 buckets for each power of
 * two. Not thread-safe. */
#include "config.h"
#include "segctl_hist.h"

#include <stddef.h>

#define SUB (1u << HIST_SUB_BITS)

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int shift;

	if (ns < SUB)
		return (unsigned int)ns;
	shift = 63u - (unsigned int)__builtin_clzll(ns) - HIST_SUB_BITS;
	return ((shift + 1) << HIST_SUB_BITS) +
	       (unsigned int)((ns >> shift) & (SUB - 1));
}

/* The largest value of a bucket. */
static uint64_t top_of(unsigned int bucket)
{
	unsigned int shift = bucket >> HIST_SUB_BITS;

	if (!shift)
		return bucket;
	shift--;
	return ((((uint64_t)SUB | (bucket & (SUB - 1))) + 1) << shift) - 1;
}

void segctl_hist_add(struct segctl_hist *h, uint64_t ns)
{
	h->nr++;
	h->sum += ns;
	if (ns > h->max)
		h->max = ns;
	h->count[bucket_of(ns)]++;
}

void segctl_hist_merge(struct segctl_hist *a, const struct segctl_hist *b)
{
	a->nr += b->nr;
	a->sum += b->sum;
	if (b->max > a->max)
		a->max = b->max;
	for (size_t i = 0; i < HIST_BUCKETS; i++)
		a->count[i] += b->count[i];
}

uint64_t segctl_hist_quantile(const struct segctl_hist *h,
			      unsigned int per_mille)
{
	uint64_t want = (h->nr * per_mille + 999) / 1000, seen = 0;

	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += h->count[i];
		if (seen && seen >= want)
			return top_of(i) < h->max ? top_of(i) : h->max;
	}
	return 0;
}
