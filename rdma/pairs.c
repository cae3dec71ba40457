/* SPDX-License-Identifier: MIT */
/* The choice of pairs and their health: see pairs.h. Pure, no state. */
#include "config.h"
#include "rdma/pairs.h"

#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* The longer list is walked once, the shorter one again and again, beginning
 * ROTATION places on. */
static uint32_t walk(const uint32_t *local, uint32_t nr_local,
		     const uint32_t *remote, uint32_t nr_remote,
		     uint32_t rotation, struct sf_pairs_pair *out, uint32_t max)
{
	bool rotate_local = nr_local < nr_remote;
	uint32_t n = rotate_local ? nr_remote : nr_local, i;

	for (i = 0; i < n && i < max; i++) {
		uint32_t l = rotate_local ? (i + rotation) % nr_local : i;
		uint32_t r = rotate_local ? i : (i + rotation) % nr_remote;

		out[i] = (struct sf_pairs_pair){ local[l], remote[r] };
	}
	return i;
}

uint32_t sf_pairs_group(const struct sf_pairs_list *local,
			const struct sf_pairs_list *remote, uint32_t group,
			struct sf_pairs_pair *out, uint32_t max)
{
	uint32_t rotations = least(local->nr_preferred, remote->nr_preferred);

	if (group < rotations)
		return walk(local->items, local->nr_preferred, remote->items,
			    remote->nr_preferred, group, out, max);
	if (local->nr == local->nr_preferred &&
	    remote->nr == remote->nr_preferred)
		return 0;
	group -= rotations;
	if (group >= least(local->nr, remote->nr))
		return 0;
	return walk(local->items, local->nr, remote->items, remote->nr, group,
		    out, max);
}

void sf_pairs_align(const struct sf_pairs_list *local,
		    const char *(*local_name)(void *arg, uint32_t item),
		    uint32_t *remote, uint32_t nr, uint32_t nr_preferred,
		    const char *(*remote_name)(void *arg, uint32_t item),
		    void *arg)
{
	for (uint32_t i = 0; i < local->nr && i < nr; i++) {
		const char *name = local_name(arg, local->items[i]);

		for (uint32_t k = 0; k < nr; k++) {
			uint32_t moved = remote[k];

			if (strcmp(remote_name(arg, moved), name) ||
			    (i < nr_preferred) != (k < nr_preferred) ||
			    (i < local->nr_preferred) != (i < nr_preferred))
				continue;
			remote[k] = remote[i];
			remote[i] = moved;
			break;
		}
	}
}

bool sf_pair_is_paused(const struct sf_pair_health *h, uint64_t now_ms)
{
	return now_ms < h->paused_until_ms;
}

void sf_pair_connected(struct sf_pair_health *h)
{
	h->paused_until_ms = 0;
	h->worked = false;
}

void sf_pair_worked(struct sf_pair_health *h)
{
	h->worked = true;
}

void sf_pair_refused(struct sf_pair_health *h, uint64_t now_ms,
		     unsigned int pause_ms)
{
	h->worked = false;
	h->paused_until_ms = now_ms + pause_ms;
}

void sf_pair_broke(struct sf_pair_health *h, uint64_t now_ms,
		   unsigned int pause_ms)
{
	if (!h->worked)
		h->paused_until_ms = now_ms + pause_ms;
	h->worked = false;
}

void sf_pair_ease(struct sf_pair_health *h, uint64_t latest_ms)
{
	if (h->paused_until_ms > latest_ms)
		h->paused_until_ms = latest_ms;
}
