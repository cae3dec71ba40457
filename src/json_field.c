/* SPDX-License-Identifier: MIT */
/* Members of JSON objects: see json_field.h. Pure, no state. */
#include "config.h"
#include "json_field.h"

#include <errno.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "json.h"

void sf_json_fields(const struct cJSON *object, struct sf_json_field *fields,
		    size_t nr)
{
	for (const cJSON *m = object->child; m; m = m->next)
		for (size_t i = 0; i < nr; i++)
			if (!strcmp(fields[i].name, m->string))
				fields[i].item = cJSON_IsNull(m) ? NULL : m;
}

const char *sf_json_integer(const struct sf_json *json,
			    const struct cJSON *item, uint64_t max,
			    uint64_t *out)
{
	uint64_t v = 0;
	int rc = sf_json_u64(json, item, &v);

	if (rc == -EINVAL)
		return "is not a plain integer";
	if (rc || v > max)
		return "is too large";
	*out = v;
	return NULL;
}
