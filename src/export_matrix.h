/* SPDX-License-Identifier: MIT */
/*
 * The priority matrix that an exporter publishes, and the order of devices that
 * goes with it (protocol section 4.3): readers number the devices by walking
 * the matrix in the order of a hash table, and take that number for the
 * position in "devices". Pure. Private to export*.c.
 */
#ifndef SF_EXPORT_MATRIX_H
#define SF_EXPORT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology.h"

struct sf_export_nic {
	const char *name;
	int node;		/* NUMA node; -1: unknown */
};

struct sf_export_matrix {
	struct sf_topology topology;	/* names are the callers' */
	uint32_t *order;	/* order[i]: the NIC to publish as device i */
	bool affinity;		/* locations really prefer something */
	struct sf_topology_row *rows;
	const char **names;
	char *texts;		/* "cpu:N" */
};

/*
 * NR NICs (not 0); a row for each of NR_NODES NUMA nodes and for each of the
 * NR_LOCATIONS. Every location prefers all NICs alike; with WANT_AFFINITY,
 * "cpu:N" prefers those of its node, where the walk is known: all locations
 * are cpu:0 to cpu:3 or resolve to them, and some NIC's node is known.
 * What NICS and LOCATIONS point to is borrowed. -ENOMEM.
 */
int sf_export_matrix_init(struct sf_export_matrix *m,
			  const struct sf_export_nic *nics, uint32_t nr,
			  unsigned int nr_nodes,
			  const char *const *locations, size_t nr_locations,
			  bool want_affinity);
void sf_export_matrix_fini(struct sf_export_matrix *m);

#endif
