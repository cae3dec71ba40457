/* SPDX-License-Identifier: MIT */
/* A growable array: elements of one size, doubling, freed as a whole. */
#ifndef SF_VEC_H
#define SF_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct sf_vec {
	void *data;
	size_t nr;	/* elements in use */
	size_t cap;	/* elements there is room for */
};

/* N more elements of SIZE bytes, not initialised; the first of them. NULL when
 * out of memory, the array is as it was then. Moves the older elements. */
static inline void *sf_vec_add(struct sf_vec *v, size_t size, size_t n)
{
	size_t cap = v->cap ? v->cap : 16;
	void *data;

	while (cap - v->nr < n) {
		if (cap > SIZE_MAX / 2 / size)
			return NULL;
		cap *= 2;
	}
	if (cap != v->cap) {
		data = realloc(v->data, cap * size);
		if (!data)
			return NULL;
		v->data = data;
		v->cap = cap;
	}
	v->nr += n;
	return (char *)v->data + (v->nr - n) * size;
}

static inline void sf_vec_free(struct sf_vec *v)
{
	free(v->data);
	*v = (struct sf_vec){ 0 };
}

#endif
