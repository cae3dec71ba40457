/* SPDX-License-Identifier: MIT */
/*
 * One-shot timers: a binary heap of pointers under one lock, one thread that
 * sleeps until the earliest is due. Knows nothing of what timers are for.
 */
#include "config.h"
#include "timer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "clock.h"

struct sf_timers {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_cond_t ran;	/* running has changed */
	pthread_t thread;
	struct sf_timer **heap;	/* under lock, as all below */
	size_t nr, room;
	uint64_t sleeping_until;	/* what the thread waits for */
	struct sf_timer *running;	/* only compared: may be freed */
	bool stop;
};

static void put_at(struct sf_timers *q, size_t i, struct sf_timer *t)
{
	q->heap[i] = t;
	t->slot = i + 1;
}

static void sift_up(struct sf_timers *q, size_t i, struct sf_timer *t)
{
	while (i > 0) {
		size_t parent = (i - 1) / 2;

		if (q->heap[parent]->when_ms <= t->when_ms)
			break;
		put_at(q, i, q->heap[parent]);
		i = parent;
	}
	put_at(q, i, t);
}

static void sift_down(struct sf_timers *q, size_t i, struct sf_timer *t)
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= q->nr)
			break;
		if (child + 1 < q->nr &&
		    q->heap[child + 1]->when_ms < q->heap[child]->when_ms)
			child++;
		if (q->heap[child]->when_ms >= t->when_ms)
			break;
		put_at(q, i, q->heap[child]);
		i = child;
	}
	put_at(q, i, t);
}

static void remove_locked(struct sf_timers *q, struct sf_timer *t)
{
	size_t i = t->slot - 1;
	struct sf_timer *last = q->heap[--q->nr];

	t->slot = 0;
	if (last == t)
		return;
	if (i > 0 && q->heap[(i - 1) / 2]->when_ms > last->when_ms)
		sift_up(q, i, last);
	else
		sift_down(q, i, last);
}

static void sleep_locked(struct sf_timers *q)
{
	struct timespec ts;

	if (!q->nr) {
		q->sleeping_until = UINT64_MAX;
		pthread_cond_wait(&q->wake, &q->lock);
		return;
	}
	q->sleeping_until = q->heap[0]->when_ms;
	ts.tv_sec = (time_t)(q->sleeping_until / 1000);
	ts.tv_nsec = (long)(q->sleeping_until % 1000) * 1000000;
	pthread_cond_timedwait(&q->wake, &q->lock, &ts);
}

static void *timer_thread(void *arg)
{
	struct sf_timers *q = arg;

	pthread_setname_np(pthread_self(), "sf-timer");
	pthread_mutex_lock(&q->lock);
	while (!q->stop) {
		struct sf_timer *t = q->nr ? q->heap[0] : NULL;

		if (!t || t->when_ms > sf_now_ms()) {
			sleep_locked(q);
			continue;
		}
		remove_locked(q, t);
		/* Awake: whoever arms meanwhile need not signal. */
		q->sleeping_until = 0;
		q->running = t;
		pthread_mutex_unlock(&q->lock);
		t->fn(t);
		pthread_mutex_lock(&q->lock);
		q->running = NULL;
		pthread_cond_broadcast(&q->ran);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int sf_timers_new(struct sf_timers **out)
{
	struct sf_timers *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->wake, &attr);
	pthread_condattr_destroy(&attr);
	pthread_cond_init(&q->ran, NULL);
	if (pthread_create(&q->thread, NULL, timer_thread, q)) {
		pthread_cond_destroy(&q->ran);
	pthread_cond_destroy(&q->wake);
		pthread_mutex_destroy(&q->lock);
		free(q);
		return -EAGAIN;
	}
	*out = q;
	return 0;
}

void sf_timers_free(struct sf_timers *q)
{
	if (!q)
		return;
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_signal(&q->wake);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	pthread_cond_destroy(&q->ran);
	pthread_cond_destroy(&q->wake);
	pthread_mutex_destroy(&q->lock);
	free(q->heap);
	free(q);
}

static int grow_locked(struct sf_timers *q)
{
	size_t room = q->room ? 2 * q->room : 64;
	struct sf_timer **heap = realloc(q->heap, room * sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	q->heap = heap;
	q->room = room;
	return 0;
}

int sf_timer_arm(struct sf_timers *q, struct sf_timer *t, uint64_t when_ms,
		 void (*fn)(struct sf_timer *t))
{
	int res = 0;

	pthread_mutex_lock(&q->lock);
	if (q->nr == q->room)
		res = grow_locked(q);
	if (!res) {
		t->when_ms = when_ms;
		t->fn = fn;
		sift_up(q, q->nr++, t);
		if (when_ms < q->sleeping_until)
			pthread_cond_signal(&q->wake);
	}
	pthread_mutex_unlock(&q->lock);
	return res;
}

bool sf_timer_cancel(struct sf_timers *q, struct sf_timer *t)
{
	bool armed;

	pthread_mutex_lock(&q->lock);
	armed = t->slot != 0;
	if (armed)
		remove_locked(q, t);
	pthread_mutex_unlock(&q->lock);
	return armed;
}

void sf_timer_cancel_wait(struct sf_timers *q, struct sf_timer *t)
{
	pthread_mutex_lock(&q->lock);
	if (t->slot)
		remove_locked(q, t);
	while (q->running == t && !pthread_equal(q->thread, pthread_self()))
		pthread_cond_wait(&q->ran, &q->lock);
	pthread_mutex_unlock(&q->lock);
}
