/* SPDX-License-Identifier: MIT */
/*
 * Which pairs of a local and a remote device to use for a transfer, and which
 * to leave alone for a while. Pure.
 *
 * Candidates come as two lists, best first, each with a number of preferred
 * ones at its front. Pairs are taken in groups; a transfer is spread over all
 * pairs of the first group that has a usable one. Group 0 uses every preferred
 * device of the longer list once: with equal lists it is the diagonal, so that
 * N devices on each side need N connections and not N * N. The groups after it
 * pair them differently, the last ones use the devices that are not preferred.
 */
#ifndef SF_RDMA_PAIRS_H
#define SF_RDMA_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

struct sf_pairs_list {
	const uint32_t *items;
	uint32_t nr, nr_preferred;	/* nr_preferred <= nr */
};

struct sf_pairs_pair {
	uint32_t local, remote;	/* items of the lists */
};

/* Write group GROUP into OUT (room for MAX) and return its size; 0: there is no
 * such group. Every pair is in some group. */
uint32_t sf_pairs_group(const struct sf_pairs_list *local,
			const struct sf_pairs_list *remote, uint32_t group,
			struct sf_pairs_pair *out, uint32_t max);

/*
 * Put each remote device that has a local one's name in the place of that local
 * one, if both places are in the same part (preferred or not) of their lists:
 * where names agree, cables often do.
 */
void sf_pairs_align(const struct sf_pairs_list *local,
		    const char *(*local_name)(void *arg, uint32_t item),
		    uint32_t *remote, uint32_t nr, uint32_t nr_preferred,
		    const char *(*remote_name)(void *arg, uint32_t item),
		    void *arg);

/* What is known of one pair. Zeroed: nothing. */
struct sf_pair_health {
	uint64_t paused_until_ms;
	bool worked;		/* since it was connected last */
};

bool sf_pair_is_paused(const struct sf_pair_health *h, uint64_t now_ms);
void sf_pair_connected(struct sf_pair_health *h);
void sf_pair_worked(struct sf_pair_health *h);
/* It could not be connected: set aside. */
void sf_pair_refused(struct sf_pair_health *h, uint64_t now_ms,
		     unsigned int pause_ms);
/* Its connection broke: connect it anew (the peer may have forgotten us), but
 * set it aside if nothing ever came over that connection. */
void sf_pair_broke(struct sf_pair_health *h, uint64_t now_ms,
		   unsigned int pause_ms);
/* Everything is set aside, so that it says nothing: try again by LATEST_MS. */
void sf_pair_ease(struct sf_pair_health *h, uint64_t latest_ms);

#endif
