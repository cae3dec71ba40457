/* SPDX-License-Identifier: MIT */
/*
 * The reaper: a thread that waits until endpoints which drain have all their
 * slots back, destroys their queue pairs, and frees them. Destroying can take
 * the driver a while, so nobody else does it. An endpoint whose flush does not
 * come is destroyed all the same: after that the device touches no memory for
 * it, and what it carried counts as lost.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "thread.h"

#define LOOK_MS 20

struct sf_rdma_reaper {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct sf_rdma_endpoints list;	/* under lock */
	bool stop;			/* under lock */
};

static struct sf_rdma_endpoint *next_locked(struct sf_rdma_reaper *r)
{
	uint64_t now_ms = sf_now_ms();
	struct sf_rdma_endpoint *ep;

	TAILQ_FOREACH(ep, &r->list, reap_link)
		if (!atomic_load(&ep->posters) &&
		    (!atomic_load(&ep->taken) || now_ms >= ep->drain_until_ms))
			return ep;
	return NULL;
}

static void wait_locked(struct sf_rdma_reaper *r)
{
	struct timespec ts;

	if (TAILQ_EMPTY(&r->list)) {
		pthread_cond_wait(&r->work, &r->lock);
		return;
	}
	/* Of the clock that nobody sets back. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += LOOK_MS * 1000000l;
	if (ts.tv_nsec >= 1000000000l) {
		ts.tv_nsec -= 1000000000l;
		ts.tv_sec++;
	}
	pthread_cond_timedwait(&r->work, &r->lock, &ts);
}

static void reap(struct sf_rdma_endpoint *ep)
{
	struct sf_rdma_peer *p = ep->peer;

	sf_rdma_qps_destroy(&ep->qps);
	sf_rdma_endpoint_unlist(ep);
	sf_rdma_peer_enter(p);
	sf_rdma_endpoint_drop(ep, true);
	TAILQ_REMOVE(&p->endpoints, ep, link);
	p->queue_moved |= !TAILQ_EMPTY(&p->queue);
	sf_rdma_peer_leave(p);
	/* P may be gone. */
	sf_rdma_endpoint_free(ep);
}

static void *reaper_main(void *arg)
{
	struct sf_rdma_reaper *r = arg;
	struct sf_rdma_endpoint *ep;

	pthread_mutex_lock(&r->lock);
	while (!r->stop || !TAILQ_EMPTY(&r->list)) {
		ep = next_locked(r);
		if (!ep) {
			wait_locked(r);
			continue;
		}
		TAILQ_REMOVE(&r->list, ep, reap_link);
		pthread_mutex_unlock(&r->lock);
		reap(ep);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void init_cond(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int sf_rdma_reaper_new(struct sf_rdma_reaper **out)
{
	struct sf_rdma_reaper *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	init_cond(&r->work);
	TAILQ_INIT(&r->list);
	ret = sf_thread_start(&r->thread, reaper_main, r);
	if (ret) {
		pthread_cond_destroy(&r->work);
		pthread_mutex_destroy(&r->lock);
		free(r);
		return ret;
	}
	pthread_setname_np(r->thread, "sf-rdma-reap");
	*out = r;
	return 0;
}

void sf_rdma_reaper_free(struct sf_rdma_reaper *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	pthread_cond_destroy(&r->work);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void sf_rdma_reaper_add(struct sf_rdma_reaper *r, struct sf_rdma_endpoint *ep)
{
	pthread_mutex_lock(&r->lock);
	TAILQ_INSERT_TAIL(&r->list, ep, reap_link);
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
}

void sf_rdma_reaper_kick(struct sf_rdma_reaper *r)
{
	pthread_mutex_lock(&r->lock);
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
}
