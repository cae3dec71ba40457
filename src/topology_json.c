/* SPDX-License-Identifier: MIT */
/* The matrix from JSON: see topology_json.h. Pure; its input is a peer's. */
#include "config.h"
#include "topology_json.h"

#include <string.h>

#include <cjson/cJSON.h>

#include "segment_draft.h"

/* The names of one list; those that are not strings name no device. False:
 * LIST is not a list, or too long. */
static bool decode_list(struct sf_draft *d, struct sf_draft_row *row,
			const cJSON *list)
{
	uint32_t *to;

	if (!cJSON_IsArray(list))
		return false;
	for (const cJSON *n = list->child; n; n = n->next) {
		if (!cJSON_IsString(n) || !*n->valuestring)
			continue;
		if (row->nr_names == SF_TOPOLOGY_NAMES_MAX)
			return false;
		to = sf_draft_add(d, &d->row_names, sizeof(*to), 1);
		if (!to)
			return false;
		*to = sf_draft_string(d, n->valuestring);
		row->nr_names++;
	}
	return true;
}

static bool decode_row(struct sf_draft *d, const cJSON *item)
{
	struct sf_draft_row row = {
		.first_name = (uint32_t)d->row_names.nr,
	}, *to;
	const cJSON *preferred, *available;

	preferred = cJSON_IsArray(item) ? item->child : NULL;
	available = preferred ? preferred->next : NULL;
	if (!available || available->next || !decode_list(d, &row, preferred))
		goto bad;
	row.nr_preferred = row.nr_names;
	if (!decode_list(d, &row, available))
		goto bad;
	row.location = sf_draft_string(d, item->string);
	to = sf_draft_add(d, &d->rows, sizeof(*to), 1);
	if (to)
		*to = row;
	return true;
bad:
	d->row_names.nr = row.first_name;
	return false;
}

void sf_topology_json_decode(struct sf_draft *d, const cJSON *item)
{
	if (!item)
		return;
	if (!cJSON_IsObject(item)) {
		sf_draft_problem(d, "priority_matrix is not an object");
		return;
	}
	for (const cJSON *r = item->child; r && !d->oom; r = r->next) {
		if (d->rows.nr == SF_TOPOLOGY_ROWS_MAX) {
			sf_draft_problem(d, "priority_matrix has more than %d "
					    "rows", SF_TOPOLOGY_ROWS_MAX);
			return;
		}
		if (!decode_row(d, r))
			sf_draft_problem(d, "priority_matrix: row %.64s is not "
					    "two lists of devices", r->string);
	}
}
