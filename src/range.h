/* SPDX-License-Identifier: MIT */
/*
 * Ranges of remote addresses. Addresses and lengths come from peers and
 * metadata, so every sum is checked here and nowhere else.
 */
#ifndef SF_RANGE_H
#define SF_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* addr + len does not pass 2^64 (a range may end exactly there only if its
 * last byte is 2^64-1; then the end, 2^64, is not representable: refused). */
static inline bool sf_range_ok(uint64_t addr, uint64_t len)
{
	return len <= UINT64_MAX - addr;
}

/* [addr, addr+len) lies inside [base, base+size); both must not wrap. */
static inline bool sf_range_within(uint64_t addr, uint64_t len, uint64_t base,
				   uint64_t size)
{
	return addr >= base && addr - base <= size &&
	       len <= size - (addr - base);
}

/* How many of LEN bytes at OFF exist in an object of SIZE bytes. */
static inline uint64_t sf_range_clip(uint64_t off, uint64_t len, uint64_t size)
{
	if (off >= size)
		return 0;
	return len < size - off ? len : size - off;
}

#endif
