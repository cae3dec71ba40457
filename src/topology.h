/* SPDX-License-Identifier: MIT */
/*
 * Locations ("cpu:0", "cuda:1", "*", "segments:4096:0,1": protocol section 3)
 * and the priority matrix (section 4): which devices serve a location best.
 * Immutable after parsing.
 */
#ifndef SF_TOPOLOGY_H
#define SF_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

struct sf_device;

/* One row of the matrix. The arrays belong to whoever made the topology (for a
 * segment's, the segment). */
struct sf_topology_row {
	const char *location;
	uint32_t nr_names;
	uint32_t nr_preferred;	/* the first so many of names */
	const char *const *names;
};

struct sf_topology {
	uint32_t nr_rows;
	const struct sf_topology_row *rows;	/* of two for one location
						 * the last counts */
};

/* What a location names. */
enum sf_location_kind {
	SF_LOCATION_ANY,	/* "*", "" or anything unknown */
	SF_LOCATION_CPU,	/* cpu:N, N = NUMA node */
	SF_LOCATION_ACCEL,	/* cuda:N and the like, N = device ordinal */
	SF_LOCATION_STRIPED,	/* segments:PAGE:N0,N1,... */
};

struct sf_location {
	enum sf_location_kind kind;
	uint32_t number;	/* CPU, ACCEL */
};

/* Never fails: unknown text is SF_LOCATION_ANY. */
struct sf_location sf_location_parse(const char *text);

/*
 * The location of address OFF bytes into a buffer of LENGTH bytes whose
 * descriptor location is TEXT, resolved as protocol section 3 says: itself, or
 * for a striped one "cpu:N" ("*" if it cannot be resolved). OUT has room for
 * 32 bytes and is used only for the striped case; returns TEXT or OUT.
 */
const char *sf_location_at(const char *text, uint64_t off, uint64_t length,
			   char out[32]);

/*
 * Candidate devices for a location, best first: indices into DEVICES, matched
 * by name (never by position), each once, the row's preferred then available
 * ones; for an unknown location, a row without a usable device, or no topology
 * all devices, those that the matrix mentions anywhere as preferred (a device
 * that went down is no longer in it). Devices without a GID are left out.
 * Returns how many of at most MAX were written; *NR_PREFERRED of them are
 * preferred.
 */
uint32_t sf_topology_choose(const struct sf_topology *topo,
			    const char *location,
			    const struct sf_device *devices,
			    uint32_t nr_devices, uint32_t *out, uint32_t max,
			    uint32_t *nr_preferred);

#endif
