/* SPDX-License-Identifier: MIT */
/* Members of JSON objects that others wrote. */
#ifndef SF_JSON_FIELD_H
#define SF_JSON_FIELD_H

#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct sf_json;

struct sf_json_field {
	const char *name;
	const struct cJSON *item;	/* NULL: missing, or null */
};

/* Fill in the items of NR fields in one walk over OBJECT: cJSON's own look-up
 * is linear for each name. Of a member given twice the last counts. */
void sf_json_fields(const struct cJSON *object, struct sf_json_field *fields,
		    size_t nr);

/* NULL and *OUT, or what is wrong with the integer ITEM (which is not NULL), to
 * be written behind its name. */
const char *sf_json_integer(const struct sf_json *json,
			    const struct cJSON *item, uint64_t max,
			    uint64_t *out);

#endif
