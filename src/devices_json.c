/* SPDX-License-Identifier: MIT */
/* Devices from JSON: see devices_json.h. Pure; its input is a peer's. */
#include "config.h"
#include "devices_json.h"

#include <inttypes.h>

#include <cjson/cJSON.h>

#include "gid.h"
#include "json_field.h"
#include "segment_draft.h"

static const char *decode_device(struct sf_draft *d,
				 const struct sf_json *json, const cJSON *item,
				 struct sf_draft_device *dev)
{
	enum { NAME, LID, GID, NR };
	struct sf_json_field f[NR] = { { "name", NULL }, { "lid", NULL },
			       { "gid", NULL } };
	const char *why = NULL;
	uint64_t lid = 0;

	if (!cJSON_IsObject(item))
		return "is not an object";
	sf_json_fields(item, f, NR);
	if (!cJSON_IsString(f[NAME].item) || !*f[NAME].item->valuestring)
		return "has no name";
	dev->name = sf_draft_string(d, f[NAME].item->valuestring);
	if (f[LID].item)
		why = sf_json_integer(json, f[LID].item, UINT16_MAX, &lid);
	if (why)
		return "has a bad lid";
	dev->lid = (uint16_t)lid;
	if (!cJSON_IsString(f[GID].item) ||
	    sf_gid_parse(f[GID].item->valuestring, dev->gid))
		return "has a bad gid";
	dev->has_gid = !sf_gid_is_zero(dev->gid);
	return dev->has_gid ? NULL : "has a gid of zeros: not in use";
}

void sf_devices_json_decode(struct sf_draft *d, const struct sf_json *json,
			    const cJSON *array)
{
	struct sf_draft_device *dev;
	const char *why;
	uint32_t i = 0;

	if (!array)
		return;
	if (!cJSON_IsArray(array)) {
		sf_draft_problem(d, "devices is not an array");
		return;
	}
	for (const cJSON *item = array->child; item; item = item->next, i++) {
		if (i == SF_DEVICES_MAX) {
			sf_draft_problem(d, "more than %d devices: none used",
					 SF_DEVICES_MAX);
			d->devices.nr = 0;
			return;
		}
		dev = sf_draft_add(d, &d->devices, sizeof(*dev), 1);
		if (!dev)
			return;
		why = decode_device(d, json, item, dev);
		if (why)
			sf_draft_problem(d, "device %" PRIu32 " %s", i, why);
	}
}
