/* SPDX-License-Identifier: MIT */
/*
 * Locations and the choice of devices: see topology.h. Pure, no state; called
 * on the data path, so it allocates nothing. Texts come from peers.
 */
#include "config.h"
#include "topology.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "segment.h"

/* A striped location is read anew for each transfer: longer than this (over
 * 1000 nodes), it is taken for unknown text. */
#define LOCATION_MAX 4096

/* Decimal digits at *P into *OUT; moves *P behind them. */
static bool parse_number(const char **p, uint32_t *out)
{
	const char *start = *p;
	uint32_t v = 0;

	for (; **p >= '0' && **p <= '9'; ++*p)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, **p - '0', &v))
			return false;
	*out = v;
	return *p > start;
}

/* The list of nodes in "segments:PAGE:LIST"; NULL if TEXT is not that. */
static const char *stripe_list(const char *text)
{
	static const char prefix[] = "segments:";
	const char *page, *p;

	if (strncmp(text, prefix, sizeof(prefix) - 1) ||
	    strnlen(text, LOCATION_MAX) == LOCATION_MAX)
		return NULL;
	page = text + sizeof(prefix) - 1;
	p = page + strspn(page, "0123456789");
	return p > page && *p == ':' ? p + 1 : NULL;
}

/* How many nodes LIST has, empty items left out, and the one at WANTED. 0:
 * none, or an item is not a number. */
static uint32_t stripe_nodes(const char *list, uint64_t wanted, uint32_t *node)
{
	uint32_t n = 0, number;

	for (const char *p = list; *p; p++) {
		if (*p == ',')
			continue;
		if (!parse_number(&p, &number) || (*p && *p != ','))
			return 0;
		if (n++ == wanted)
			*node = number;
		if (!*p)
			break;
	}
	return n;
}

struct sf_location sf_location_parse(const char *text)
{
	static const char *const accels[] = { "cuda:", "hip:", "musa:", "maca:",
					      "mlu:", "npu:", "supa:" };
	struct sf_location loc = { SF_LOCATION_ANY, 0 };
	const char *list = stripe_list(text), *p = NULL;
	enum sf_location_kind kind = SF_LOCATION_ACCEL;

	if (list && stripe_nodes(list, UINT64_MAX, &loc.number)) {
		loc.kind = SF_LOCATION_STRIPED;
		return loc;
	}
	if (!strncmp(text, "cpu:", 4)) {
		kind = SF_LOCATION_CPU;
		p = text + 4;
	}
	for (size_t i = 0; !p && i < sizeof(accels) / sizeof(*accels); i++)
		if (!strncmp(text, accels[i], strlen(accels[i])))
			p = text + strlen(accels[i]);
	if (p && parse_number(&p, &loc.number) && !*p)
		loc.kind = kind;
	else
		loc.number = 0;
	return loc;
}

const char *sf_location_at(const char *text, uint64_t off, uint64_t length,
			   char out[32])
{
	const char *list = stripe_list(text);
	uint32_t nr, node = 0;
	uint64_t region, i;

	nr = list ? stripe_nodes(list, 0, &node) : 0;
	if (!nr)
		return text;
	region = length / nr;
	if (!region)
		return "*";
	i = off / region;
	stripe_nodes(list, i < nr ? i : nr - 1, &node);
	snprintf(out, 32, "cpu:%" PRIu32, node);
	return out;
}

/* What sf_topology_choose() has found so far. */
struct choice {
	const struct sf_device *devices;
	uint32_t nr_devices;
	uint32_t *out;
	uint32_t nr, max;
};

static void choose_index(struct choice *c, uint32_t index)
{
	if (!c->devices[index].has_gid || c->nr == c->max)
		return;
	for (uint32_t i = 0; i < c->nr; i++)
		if (c->out[i] == index)
			return;
	c->out[c->nr++] = index;
}

static void choose_names(struct choice *c, const char *const *names,
			 uint32_t nr)
{
	for (uint32_t n = 0; n < nr; n++) {
		for (uint32_t i = 0; i < c->nr_devices; i++) {
			if (!strcmp(c->devices[i].name, names[n])) {
				choose_index(c, i);
				break;
			}
		}
	}
}

static const struct sf_topology_row *find_row(const struct sf_topology *topo,
					      const char *location)
{
	for (uint32_t i = topo->nr_rows; i-- > 0;)
		if (!strcmp(topo->rows[i].location, location))
			return &topo->rows[i];
	return NULL;
}

uint32_t sf_topology_choose(const struct sf_topology *topo,
			    const char *location,
			    const struct sf_device *devices,
			    uint32_t nr_devices, uint32_t *out, uint32_t max,
			    uint32_t *nr_preferred)
{
	struct choice c = { devices, nr_devices, out, 0, max };
	const struct sf_topology_row *row;

	row = topo ? find_row(topo, location) : NULL;
	if (row) {
		choose_names(&c, row->names, row->nr_preferred);
		*nr_preferred = c.nr;
		choose_names(&c, row->names + row->nr_preferred,
			     row->nr_names - row->nr_preferred);
		if (c.nr)
			return c.nr;
	}
	for (uint32_t i = 0; topo && i < topo->nr_rows; i++)
		choose_names(&c, topo->rows[i].names, topo->rows[i].nr_names);
	*nr_preferred = c.nr;
	for (uint32_t i = 0; i < nr_devices; i++)
		choose_index(&c, i);
	if (!*nr_preferred)
		*nr_preferred = c.nr;
	return c.nr;
}
