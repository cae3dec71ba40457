/* SPDX-License-Identifier: MIT */
/* The priority_matrix of a descriptor, into a draft (protocol section 4.1). */
#ifndef SF_TOPOLOGY_JSON_H
#define SF_TOPOLOGY_JSON_H

struct cJSON;
struct sf_draft;

#define SF_TOPOLOGY_ROWS_MAX 1024
#define SF_TOPOLOGY_NAMES_MAX 1024	/* in a row, both lists together */

/*
 * ITEM may be NULL (missing). Mooncake gives a whole matrix up over one row
 * that is not two lists; here the other rows stay. A bad matrix is a problem
 * line and never more: it costs affinity, not access.
 */
void sf_topology_json_decode(struct sf_draft *d, const struct cJSON *item);

#endif
