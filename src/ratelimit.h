/* SPDX-License-Identifier: MIT */
/* At most one log line an interval for something that strangers can cause as
 * often as they like. Zero-initialised is ready. */
#ifndef SF_RATELIMIT_H
#define SF_RATELIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

struct sf_ratelimit {
	atomic_uint_least64_t next_ms;
	atomic_uint held_back;
};

/* True at most once in INTERVAL_MS; *HELD_BACK is how many were refused since
 * the last true. Thread-safe. */
static inline bool sf_ratelimit_pass(struct sf_ratelimit *rl,
				     unsigned int interval_ms,
				     unsigned int *held_back)
{
	uint64_t now = sf_now_ms();
	uint_least64_t next = atomic_load(&rl->next_ms);

	if (now < next || !atomic_compare_exchange_strong(&rl->next_ms, &next,
							  now + interval_ms)) {
		atomic_fetch_add(&rl->held_back, 1);
		return false;
	}
	*held_back = atomic_exchange(&rl->held_back, 0);
	return true;
}

#endif
