/* SPDX-License-Identifier: MIT */
/* The devices of a descriptor, into a draft (protocol section 2.2). */
#ifndef SF_DEVICES_JSON_H
#define SF_DEVICES_JSON_H

struct cJSON;
struct sf_draft;
struct sf_json;

/* ARRAY may be NULL (missing). Every entry keeps its position, because keys
 * belong to positions; a bad one is a problem line and is never used. */
void sf_devices_json_decode(struct sf_draft *d, const struct sf_json *json,
			    const struct cJSON *array);

#endif
