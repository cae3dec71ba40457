/* SPDX-License-Identifier: MIT */
/*
 * Transfers one after another: see chain.h. The next piece is submitted by the
 * thread that completed the one before. A transport may complete inside submit;
 * then the loop in step() goes on in place of recursion, so a chain may have
 * any number of pieces.
 */
#include "config.h"
#include "fs/chain.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>

enum {
	IDLE,		/* zero: not started, or over */
	SUBMITTING,	/* inside sf_transfer_submit() */
	UNDER_WAY,	/* submit returned before done() was called */
	COMPLETED,
};

static struct sf_chain *from_transfer(struct sf_transfer *t)
{
	return (struct sf_chain *)((char *)t - offsetof(struct sf_chain, t));
}

static void step(struct sf_chain *c);

static void piece_done(struct sf_transfer *t, int res)
{
	struct sf_chain *c = from_transfer(t);

	c->res = res;
	if (atomic_exchange(&c->phase, COMPLETED) == SUBMITTING)
		return;		/* step() sees it */
	if (res < 0)
		c->end(c, res);
	else
		step(c);
}

/* True: the piece completed inside submit, and well. */
static bool submit(struct sf_chain *c)
{
	int submitting = SUBMITTING;
	bool done = false;

	c->hold(c);	/* from here on it may end on another thread */
	c->t.done = piece_done;
	sf_transfer_submit(c->engine, &c->t);
	if (atomic_compare_exchange_strong(&c->phase, &submitting, UNDER_WAY))
		;
	else if (c->res < 0)
		c->end(c, c->res);
	else
		done = true;
	c->drop(c);
	return done;
}

/* The phase is set before the flag is read, see sf_chain_cancel(). */
static void step(struct sf_chain *c)
{
	int res;

	do {
		atomic_store(&c->phase, SUBMITTING);
		res = atomic_load(&c->stop) ? -EINTR : c->next(c);
		if (res <= 0) {
			atomic_store(&c->phase, IDLE);
			c->end(c, res);
			return;
		}
	} while (submit(c));
}

void sf_chain_start(struct sf_chain *c)
{
	step(c);
}

/*
 * After the flag is set, whoever comes to step() submits nothing more; who is
 * past its test of the flag is in SUBMITTING, which never takes long. So the
 * transfer that is cancelled here is the last one of this chain.
 */
void sf_chain_cancel(struct sf_chain *c)
{
	atomic_store(&c->stop, true);
	while (atomic_load(&c->phase) == SUBMITTING)
		sched_yield();
	if (atomic_load(&c->phase) == UNDER_WAY)
		sf_transfer_cancel(c->engine, &c->t);
}
