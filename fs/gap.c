/* SPDX-License-Identifier: MIT */
/*
 * The gap state machine: see gap.h. One short lock a file; operations of a file
 * that is not armed only count themselves in and out.
 */
#include "config.h"
#include "fs/gap.h"

#include <pthread.h>
#include <stdlib.h>

TAILQ_HEAD(op_queue, sf_gap_op);

struct sf_gap {
	pthread_mutex_t lock;
	uint64_t size;
	uint64_t end;		/* the logical end, while armed */
	bool armed;
	bool alone;		/* the one that runs must stay the only one */
	bool starting;		/* a thread is in dispatch() */
	unsigned int writers;
	unsigned int running;
	struct op_queue queue;
};

struct sf_gap *sf_gap_new(uint64_t size)
{
	struct sf_gap *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	pthread_mutex_init(&g->lock, NULL);
	g->size = size;
	TAILQ_INIT(&g->queue);
	return g;
}

void sf_gap_free(struct sf_gap *g)
{
	if (!g)
		return;
	pthread_mutex_destroy(&g->lock);
	free(g);
}

/* With the end at the size there is no gap to be made. */
static bool needs_order(const struct sf_gap *g)
{
	return g->armed && g->end < g->size;
}

static void plan(const struct sf_gap *g, struct sf_gap_op *op)
{
	op->zero_from = op->zero_to = 0;
	if (!needs_order(g) || op->off <= g->end)
		return;
	op->zero_from = g->end;
	op->zero_to = op->off;
}

/* The next one that may run now; NULL: none. */
static struct sf_gap_op *next_locked(struct sf_gap *g)
{
	struct sf_gap_op *op = TAILQ_FIRST(&g->queue);
	bool alone;

	if (!op || g->alone)
		return NULL;
	alone = needs_order(g) || op->kind == SF_GAP_TRUNCATE;
	if (alone && g->running)
		return NULL;
	TAILQ_REMOVE(&g->queue, op, link);
	plan(g, op);
	op->alone = g->alone = alone;
	g->running++;
	return op;
}

/*
 * Start what may run. An operation may finish inside start(), and its leave()
 * comes here again: that call returns at once and this loop goes on, so a long
 * queue needs no deep stack.
 */
static void dispatch(struct sf_gap *g)
{
	struct sf_gap_op *op;

	pthread_mutex_lock(&g->lock);
	if (!g->starting) {
		g->starting = true;
		while ((op = next_locked(g))) {
			pthread_mutex_unlock(&g->lock);
			op->start(op);
			pthread_mutex_lock(&g->lock);
		}
		g->starting = false;
	}
	pthread_mutex_unlock(&g->lock);
}

void sf_gap_opened(struct sf_gap *g)
{
	pthread_mutex_lock(&g->lock);
	if (++g->writers > 1)
		g->armed = false;
	pthread_mutex_unlock(&g->lock);
	dispatch(g);
}

void sf_gap_closed(struct sf_gap *g)
{
	pthread_mutex_lock(&g->lock);
	if (--g->writers == 0)
		g->armed = false;
	pthread_mutex_unlock(&g->lock);
	dispatch(g);
}

void sf_gap_enter(struct sf_gap *g, struct sf_gap_op *op)
{
	bool now;

	pthread_mutex_lock(&g->lock);
	now = !needs_order(g) && !g->alone && TAILQ_EMPTY(&g->queue) &&
	      op->kind != SF_GAP_TRUNCATE;
	if (now) {
		op->zero_from = op->zero_to = 0;
		op->alone = false;
		g->running++;
	} else {
		TAILQ_INSERT_TAIL(&g->queue, op, link);
	}
	pthread_mutex_unlock(&g->lock);
	if (now)
		op->start(op);
	else
		dispatch(g);
}

/* What a finished operation means for the logical end. */
static void settle_locked(struct sf_gap *g, const struct sf_gap_op *op)
{
	uint64_t end = op->kind == SF_GAP_WRITE ? op->off + op->len : op->off;

	if (op->kind == SF_GAP_TRUNCATE) {
		g->armed = g->writers == 1;
		g->end = end;
	} else if (g->armed && end > g->end) {
		g->end = end;
	}
}

void sf_gap_leave(struct sf_gap *g, struct sf_gap_op *op, bool ok)
{
	bool more;

	pthread_mutex_lock(&g->lock);
	if (ok)
		settle_locked(g, op);
	if (op->alone)
		g->alone = false;
	g->running--;
	more = !TAILQ_EMPTY(&g->queue);
	pthread_mutex_unlock(&g->lock);
	if (more)
		dispatch(g);
}

uint64_t sf_gap_end(struct sf_gap *g)
{
	uint64_t end;

	pthread_mutex_lock(&g->lock);
	end = g->armed ? g->end : UINT64_MAX;
	pthread_mutex_unlock(&g->lock);
	return end;
}
