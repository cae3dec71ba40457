/* SPDX-License-Identifier: MIT */
/*
 * The exporter's priority matrix: see export_matrix.h.
 *
 * Mooncake's readers never compare the names in the matrix with those in
 * "devices". When every row lists all devices, the first row of their walk
 * alone decides the numbering; when all rows are the same, none does. So there
 * is affinity only where the first row is known: with up to four keys cpu:0,
 * cpu:1, ... the walk begins at the highest.
 */
#include "config.h"
#include "export_matrix.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_WALKED 4		/* with more, the first is not known */
#define CPU_TEXT_MAX 16

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Readers resolve these by themselves, or do not look them up. */
static bool needs_row(const char *location)
{
	switch (sf_location_parse(location).kind) {
	case SF_LOCATION_STRIPED:
		return false;
	case SF_LOCATION_ANY:
		return *location && strcmp(location, "*");
	default:
		return true;
	}
}

/* The keys, sorted, each once: LIST has room for all. Returns how many. */
static uint32_t collect(struct sf_export_matrix *m, const char **list,
			unsigned int nr_nodes, const char *const *locations,
			size_t nr_locations)
{
	size_t nr = 0;
	uint32_t kept = 0;

	for (unsigned int i = 0; i < nr_nodes; i++) {
		char *text = m->texts + i * CPU_TEXT_MAX;

		snprintf(text, CPU_TEXT_MAX, "cpu:%u", i);
		list[nr++] = text;
	}
	for (size_t i = 0; i < nr_locations; i++)
		if (needs_row(locations[i]))
			list[nr++] = locations[i];
	qsort(list, nr, sizeof(*list), compare);
	for (size_t i = 0; i < nr; i++)
		if (!kept || strcmp(list[kept - 1], list[i]))
			list[kept++] = list[i];
	return kept;
}

static bool is_walk_known(const char *const *keys, uint32_t nr,
			  const struct sf_export_nic *nics, uint32_t nr_nics)
{
	char text[CPU_TEXT_MAX];

	if (nr < 2 || nr > NODES_WALKED)
		return false;
	for (uint32_t i = 0; i < nr; i++) {
		snprintf(text, sizeof(text), "cpu:%u", i);
		if (strcmp(keys[i], text))
			return false;
	}
	for (uint32_t i = 0; i < nr_nics; i++)
		if (nics[i].node >= 0 && nics[i].node < (int)nr)
			return true;
	return false;
}

/* A NIC of an unknown node is as near to one as to any other. */
static bool is_near(const struct sf_export_nic *nic, uint32_t node)
{
	return nic->node < 0 || nic->node == (int)node;
}

/* NAMES: the near ones, then the others, both in their order. */
static void fill_row(struct sf_topology_row *row, const char **names,
		     const struct sf_export_nic *nics, uint32_t nr,
		     uint32_t node, uint32_t *order)
{
	uint32_t at = 0;

	for (int near = 1; near >= 0; near--) {
		for (uint32_t i = 0; i < nr; i++) {
			if (is_near(&nics[i], node) != near)
				continue;
			if (order)
				order[at] = i;
			names[at++] = nics[i].name;
		}
		if (near)
			row->nr_preferred = at;
	}
	row->names = names;
	row->nr_names = nr;
}

static int allocate(struct sf_export_matrix *m, uint32_t nr,
		    unsigned int nr_nodes, size_t nr_keys)
{
	m->texts = calloc(nr_nodes + 1, CPU_TEXT_MAX);
	m->order = calloc(nr, sizeof(*m->order));
	m->rows = calloc(nr_keys + 1, sizeof(*m->rows));
	m->names = calloc((size_t)nr * NODES_WALKED, sizeof(*m->names));
	return m->texts && m->order && m->rows && m->names ? 0 : -ENOMEM;
}

int sf_export_matrix_init(struct sf_export_matrix *m,
			  const struct sf_export_nic *nics, uint32_t nr,
			  unsigned int nr_nodes,
			  const char *const *locations, size_t nr_locations,
			  bool want_affinity)
{
	const char **keys = calloc(nr_nodes + nr_locations + 1, sizeof(*keys));
	uint32_t nr_keys;

	*m = (struct sf_export_matrix){ 0 };
	if (!keys || allocate(m, nr, nr_nodes, nr_nodes + nr_locations) < 0) {
		free(keys);
		sf_export_matrix_fini(m);
		return -ENOMEM;
	}
	nr_keys = collect(m, keys, nr_nodes, locations, nr_locations);
	m->affinity = want_affinity && is_walk_known(keys, nr_keys, nics, nr);
	for (uint32_t i = 0; i < nr; i++) {
		m->order[i] = i;
		m->names[i] = nics[i].name;
	}
	for (uint32_t i = 0; i < nr_keys; i++) {
		m->rows[i] = (struct sf_topology_row){
			.location = keys[i], .names = m->names,
			.nr_names = nr, .nr_preferred = nr,
		};
		/* The last one is walked first. */
		if (m->affinity)
			fill_row(&m->rows[i], m->names + (size_t)i * nr, nics,
				 nr, i, m->order);
	}
	m->topology = (struct sf_topology){
		.nr_rows = nr_keys, .rows = m->rows,
	};
	free(keys);
	return 0;
}

void sf_export_matrix_fini(struct sf_export_matrix *m)
{
	free(m->texts);
	free(m->order);
	free(m->rows);
	free(m->names);
	*m = (struct sf_export_matrix){ 0 };
}
