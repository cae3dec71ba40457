/* SPDX-License-Identifier: MIT */
/* The buffers of a descriptor, into a draft (protocol sections 2.2-2.4). */
#ifndef SF_BUFFERS_JSON_H
#define SF_BUFFERS_JSON_H

struct cJSON;
struct sf_draft;
struct sf_json;

/*
 * ARRAY may be NULL (missing). PROTOCOL is that of buffers that name none. A
 * buffer whose range is not certain is left out, one whose keys do not fit has
 * none; either is a problem line. After the devices: keys are counted against
 * them.
 */
void sf_buffers_json_decode(struct sf_draft *d, const struct sf_json *json,
			    const struct cJSON *array, const char *protocol);

#endif
