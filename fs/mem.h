/* SPDX-License-Identifier: MIT */
/*
 * Offsets to remote addresses. For a buffer that is one addition; the `mem`
 * view finds the buffer for each piece anew, in the newest snapshot.
 *
 * In `mem` a read or write that begins where no buffer is fails with EFAULT;
 * one that begins inside goes on through buffers that adjoin and is cut short
 * at the first byte that is in none. Its holes can be skipped with SEEK_DATA.
 */
#ifndef SF_FS_MEM_H
#define SF_FS_MEM_H

#include <stdint.h>

struct sf_handle;

/* Where OFF is and how many of LEN bytes (> 0) follow it there: 1; or 0: there
 * is nothing at OFF. Writes *LEN and *ADDR. */
int sf_mem_piece(struct sf_handle *h, uint64_t off, uint32_t *len,
		 uint64_t *addr);

/* The first offset at which there is something: 1; or 0: there is none. */
int sf_mem_first(struct sf_handle *h, uint64_t *off);

#endif
