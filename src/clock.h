/* SPDX-License-Identifier: MIT */
/* Time: milliseconds and nanoseconds of CLOCK_MONOTONIC; a deadline is an
 * absolute time in these milliseconds. */
#ifndef SF_CLOCK_H
#define SF_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SF_NO_DEADLINE UINT64_MAX

static inline uint64_t sf_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t sf_now_ms(void)
{
	return sf_now_ns() / 1000000u;
}

/* What is left until DEADLINE_MS in poll(2)'s terms: 0 when it has passed,
 * -1 for SF_NO_DEADLINE. */
static inline int sf_ms_left(uint64_t deadline_ms)
{
	uint64_t now = sf_now_ms();

	if (deadline_ms == SF_NO_DEADLINE)
		return -1;
	if (now >= deadline_ms)
		return 0;
	return deadline_ms - now > INT32_MAX ? INT32_MAX
					     : (int)(deadline_ms - now);
}

#endif
