/* SPDX-License-Identifier: MIT */
/*
 * One-shot timers on one thread. Callbacks run on that thread, must not block,
 * and may arm and cancel timers (their own too).
 */
#ifndef SF_TIMER_H
#define SF_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_timers;

/* Embedded by its owner; zero-initialised means not armed. */
struct sf_timer {
	uint64_t when_ms;
	void (*fn)(struct sf_timer *t);
	size_t slot;		/* place in the heap + 1; 0 = not armed */
};

int sf_timers_new(struct sf_timers **out);	/* -ENOMEM, -EAGAIN */
/* Joins the thread; timers still armed never run. NULL is fine. */
void sf_timers_free(struct sf_timers *q);

/* Arm T (not armed now) to call fn(T) at WHEN_MS or soon after. -ENOMEM. */
int sf_timer_arm(struct sf_timers *q, struct sf_timer *t, uint64_t when_ms,
		 void (*fn)(struct sf_timer *t));
/* True: T was armed and its callback will not run. False: it was not armed, or
 * its callback has begun (and may still be running). */
bool sf_timer_cancel(struct sf_timers *q, struct sf_timer *t);
/* Cancel T and, if its callback is running on the timer thread (and this is not
 * that thread), wait for its end: T may be freed afterwards. */
void sf_timer_cancel_wait(struct sf_timers *q, struct sf_timer *t);

#endif
