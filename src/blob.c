/* SPDX-License-Identifier: MIT */
/* Reference-counted bytes: see blob.h. */
#include "config.h"
#include "blob.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct sf_blob *sf_blob_new(const void *data, size_t len)
{
	struct sf_blob *blob;

	if (len > SIZE_MAX - sizeof(*blob) - 1)
		return NULL;
	blob = malloc(sizeof(*blob) + len + 1);
	if (!blob)
		return NULL;
	atomic_init(&blob->refs, 1);
	blob->len = len;
	if (data && len)
		memcpy(blob->data, data, len);
	blob->data[len] = '\0';
	return blob;
}

struct sf_blob *sf_blob_get(struct sf_blob *blob)
{
	atomic_fetch_add(&blob->refs, 1);
	return blob;
}

void sf_blob_put(struct sf_blob *blob)
{
	if (blob && atomic_fetch_sub(&blob->refs, 1) == 1)
		free(blob);
}
