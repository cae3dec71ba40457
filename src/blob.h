/* SPDX-License-Identifier: MIT */
/* Reference-counted immutable bytes, such as a metadata value as it was
 * stored. data[len] is always a NUL that does not belong to the value. */
#ifndef SF_BLOB_H
#define SF_BLOB_H

#include <stdatomic.h>
#include <stddef.h>

struct sf_blob {
	atomic_uint refs;
	size_t len;
	char data[];
};

/* A copy of LEN bytes (of nothing when DATA is NULL: the caller fills it before
 * sharing); one reference, the caller's. NULL when out of memory. */
struct sf_blob *sf_blob_new(const void *data, size_t len);
struct sf_blob *sf_blob_get(struct sf_blob *blob);
void sf_blob_put(struct sf_blob *blob);		/* NULL is fine */

#endif
