/* SPDX-License-Identifier: MIT */
/*
 * Waiting requests: see pending.h. Runs on session threads (begin, interrupts),
 * whatever thread completes an operation, and the timer thread (graces).
 *
 * Locks: a shard's lock is taken alone. libfuse calls interrupted() with the
 * request's own lock held, and sf_pending_claim() waits for that lock, so
 * interrupted() may take no lock that a claimer could hold.
 */
#include "config.h"
#include "fs/pending.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "fs/internal.h"

enum {
	WAITING,
	ANSWERING,
	ANSWERED,
};

static struct sf_pending *from_timer(struct sf_timer *t)
{
	return (struct sf_pending *)((char *)t -
				     offsetof(struct sf_pending, grace));
}

void sf_pendings_init(struct sf_pendings *all)
{
	for (int i = 0; i < SF_PENDING_SHARDS; i++) {
		pthread_mutex_init(&all->shards[i].lock, NULL);
		TAILQ_INIT(&all->shards[i].list);
	}
	atomic_init(&all->stopping, false);
}

void sf_pendings_fini(struct sf_pendings *all)
{
	for (int i = 0; i < SF_PENDING_SHARDS; i++)
		pthread_mutex_destroy(&all->shards[i].lock);
}

void sf_pending_hold(struct sf_pending *p)
{
	atomic_fetch_add(&p->refs, 1);
}

void sf_pending_drop(struct sf_pending *p)
{
	struct sf_pending_shard *shard = p->shard;

	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	pthread_mutex_lock(&shard->lock);
	TAILQ_REMOVE(&shard->list, p, link);
	pthread_mutex_unlock(&shard->lock);
	p->release(p);
}

static void answer_eintr(struct sf_pending *p)
{
	if (sf_pending_claim(p)) {
		sf_reply_err(p->req, -EINTR);
		sf_pending_answered(p);
	}
	if (p->cancel)
		p->cancel(p);
}

static void grace_over(struct sf_timer *t)
{
	struct sf_pending *p = from_timer(t);

	if (sf_pending_is_waiting(p))
		answer_eintr(p);
	sf_pending_drop(p);
}

/* The kernel asks to give up on REQ: not at once, see fuse-practice.md 6.1. */
static void interrupted(fuse_req_t req, void *data)
{
	struct sf_pending *p = data;
	struct sf_fs *fs = p->fs;
	unsigned int ms = atomic_load(&fs->pending.stopping)
				  ? 0
				  : fs->config.interrupt_grace_ms;

	if (!sf_pending_is_waiting(p) || atomic_exchange(&p->interrupted, true))
		return;
	sf_pending_hold(p);
	if (sf_timer_arm(fs->config.timers, &p->grace, sf_now_ms() + ms,
			 grace_over))
		sf_pending_drop(p);
}

void sf_pending_begin(struct sf_pending *p, struct sf_fs *fs, fuse_req_t req,
		      unsigned int slot)
{
	struct sf_pending_shard *shard =
		&fs->pending.shards[slot % SF_PENDING_SHARDS];

	p->fs = fs;
	p->req = req;
	p->shard = shard;
	atomic_init(&p->state, WAITING);
	atomic_init(&p->refs, 1);
	atomic_init(&p->interrupted, false);
	pthread_mutex_lock(&shard->lock);
	TAILQ_INSERT_TAIL(&shard->list, p, link);
	pthread_mutex_unlock(&shard->lock);
	fuse_req_interrupt_func(req, interrupted, p);
}

bool sf_pending_is_waiting(const struct sf_pending *p)
{
	return atomic_load(&p->state) == WAITING;
}

/*
 * Clearing the interrupt function waits for a call of it that is under way, so
 * afterwards nobody but a timer knows P, and that has its own reference.
 */
bool sf_pending_claim(struct sf_pending *p)
{
	int waiting = WAITING;

	if (!atomic_compare_exchange_strong(&p->state, &waiting, ANSWERING))
		return false;
	fuse_req_interrupt_func(p->req, NULL, NULL);
	return true;
}

void sf_pending_answered(struct sf_pending *p)
{
	p->req = NULL;
	atomic_store(&p->state, ANSWERED);
}

void sf_pending_end(struct sf_pending *p)
{
	assert(!sf_pending_is_waiting(p));
	/* A timer that is armed after this has a reference and comes back. */
	if (atomic_load(&p->interrupted) &&
	    sf_timer_cancel(p->fs->config.timers, &p->grace))
		sf_pending_drop(p);
	sf_pending_drop(p);
}

/* References to all that have not ended, so that no lock is held while they are
 * cancelled: that may end them right here. */
static struct sf_pending **collect(struct sf_pending_shard *shard, size_t *nr)
{
	struct sf_pending **list;
	struct sf_pending *p;
	size_t n = 0;

	pthread_mutex_lock(&shard->lock);
	TAILQ_FOREACH (p, &shard->list, link)
		n++;
	list = calloc(n + 1, sizeof(struct sf_pending *));
	*nr = n;
	n = 0;
	TAILQ_FOREACH (p, &shard->list, link) {
		unsigned int refs = atomic_load(&p->refs);

		/* One without references is on its way out of the list. */
		while (refs && !atomic_compare_exchange_weak(&p->refs, &refs,
							     refs + 1))
			;
		if (list && refs)
			list[n++] = p;
	}
	pthread_mutex_unlock(&shard->lock);
	return list;
}

unsigned int sf_pendings_stop(struct sf_fs *fs)
{
	unsigned int left = 0;

	atomic_store(&fs->pending.stopping, true);
	for (int i = 0; i < SF_PENDING_SHARDS; i++) {
		size_t nr;
		struct sf_pending **list =
			collect(&fs->pending.shards[i], &nr);

		left += (unsigned int)nr;
		for (size_t k = 0; list && k < nr && list[k]; k++) {
			answer_eintr(list[k]);
			sf_pending_drop(list[k]);
		}
		free(list);
	}
	return left;
}

bool sf_pendings_quiet(struct sf_fs *fs)
{
	bool quiet = true;

	for (int i = 0; i < SF_PENDING_SHARDS && quiet; i++) {
		struct sf_pending_shard *shard = &fs->pending.shards[i];
		struct sf_pending *p;

		pthread_mutex_lock(&shard->lock);
		TAILQ_FOREACH (p, &shard->list, link)
			if (atomic_load(&p->state) == ANSWERING)
				quiet = false;
		pthread_mutex_unlock(&shard->lock);
	}
	return quiet;
}
