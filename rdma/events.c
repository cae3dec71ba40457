/* SPDX-License-Identifier: MIT */
/*
 * The thread of an opened device: completions and asynchronous events.
 *
 * While work is on the wire it polls the completion queue; when nothing came
 * for a while (at once where CPUs are few) it asks for an event, polls a last
 * time, and sleeps until the completion channel, the device or a waker speaks.
 */
#include "config.h"
#include "rdma/events.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "log.h"
#include "rdma/context.h"
#include "thread.h"

#define BATCH 32

static void round_begin(struct sf_rdma_context *ctx)
{
	atomic_fetch_add(&ctx->rounds, 1);
}

static void round_end(struct sf_rdma_context *ctx)
{
	atomic_fetch_add(&ctx->rounds, 1);
	if (!atomic_load(&ctx->round_waiters))
		return;
	pthread_mutex_lock(&ctx->lock);
	pthread_cond_broadcast(&ctx->round_over);
	pthread_mutex_unlock(&ctx->lock);
}

void sf_rdma_context_sync(struct sf_rdma_context *ctx)
{
	unsigned int now;

	atomic_fetch_add(&ctx->round_waiters, 1);
	pthread_mutex_lock(&ctx->lock);
	now = atomic_load(&ctx->rounds);
	while (now & 1 && atomic_load(&ctx->rounds) == now)
		pthread_cond_wait(&ctx->round_over, &ctx->lock);
	pthread_mutex_unlock(&ctx->lock);
	atomic_fetch_sub(&ctx->round_waiters, 1);
}

/* True: there was something. */
static bool take_completions(struct sf_rdma_context *ctx)
{
	struct ibv_wc wc[BATCH];
	int n;

	round_begin(ctx);
	n = ibv_poll_cq(ctx->cq, BATCH, wc);
	if (n > 0 && ctx->handlers->completions)
		ctx->handlers->completions(ctx->arg, wc, (unsigned int)n);
	round_end(ctx);
	return n > 0;
}

static void tell(struct sf_rdma_context *ctx, enum sf_rdma_event event)
{
	round_begin(ctx);
	ctx->handlers->event(ctx->arg, event);
	round_end(ctx);
}

static void port_changed(struct sf_rdma_context *ctx)
{
	bool was_up = atomic_load(&ctx->up);
	bool gid_changed = sf_rdma_context_requery(ctx);
	bool up = atomic_load(&ctx->up);

	if (up != was_up)
		sf_log(LOG_NOTICE, SF_LOG_RDMA, "%s: port %u is %s",
		       ctx->dev.name, ctx->dev.port, up ? "up" : "down");
	if (gid_changed)
		tell(ctx, SF_RDMA_GID_CHANGED);
	if (up != was_up)
		tell(ctx, up ? SF_RDMA_PORT_UP : SF_RDMA_PORT_DOWN);
}

static void qp_event(struct sf_rdma_context *ctx,
		     const struct ibv_async_event *e)
{
	if (!ctx->handlers->qp_event)
		return;
	round_begin(ctx);
	ctx->handlers->qp_event(ctx->arg, e->element.qp, e->event_type);
	round_end(ctx);
}

static void device_gone(struct sf_rdma_context *ctx, const char *why)
{
	sf_log(LOG_ERR, SF_LOG_RDMA, "%s: %s: no longer used", ctx->dev.name,
	       why);
	atomic_store(&ctx->up, false);
	atomic_store(&ctx->fatal, true);
	tell(ctx, SF_RDMA_FATAL);
}

static void take_async_event(struct sf_rdma_context *ctx)
{
	struct ibv_async_event e;

	if (ibv_get_async_event(ctx->verbs, &e))
		return;
	sf_log(LOG_DEBUG, SF_LOG_RDMA, "%s: %s", ctx->dev.name,
	       ibv_event_type_str(e.event_type));
	switch (e.event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		if (e.element.port_num == ctx->dev.port)
			port_changed(ctx);
		break;
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_CQ_ERR:
		device_gone(ctx, ibv_event_type_str(e.event_type));
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		qp_event(ctx, &e);
		break;
	default:
		break;
	}
	ibv_ack_async_event(&e);
}

/*
 * Every request for an event that was answered while there was work left its
 * event unread, and the kernel keeps them all. REQUESTS have been made since
 * all were read; usually it is one, which saves asking whether there are more.
 */
static void take_channel_events(struct sf_rdma_context *ctx,
				unsigned int *requests)
{
	struct ibv_cq *cq;
	void *cq_context;

	do {
		if (ibv_get_cq_event(ctx->channel, &cq, &cq_context)) {
			*requests = 0;
			return;
		}
		ibv_ack_cq_events(cq, 1);
	} while (*requests && --*requests);
}

static void sleep_until_event(struct sf_rdma_context *ctx,
			      unsigned int *requests)
{
	const short broken = POLLERR | POLLHUP | POLLNVAL;
	struct pollfd fds[] = {
		{ .fd = ctx->channel->fd, .events = POLLIN },
		{ .fd = ctx->verbs->async_fd, .events = POLLIN },
		{ .fd = ctx->wake_fd, .events = POLLIN },
	};
	uint64_t count;

	/* A device that is gone would keep its descriptors ready for ever. */
	if (atomic_load(&ctx->fatal))
		fds[0].fd = fds[1].fd = -1;
	if (poll(fds, 3, -1) < 0)
		return;
	if (fds[0].revents & POLLIN)
		take_channel_events(ctx, requests);
	if (fds[1].revents & POLLIN)
		take_async_event(ctx);
	else if ((fds[0].revents | fds[1].revents) & broken)
		device_gone(ctx, "its event channel is broken");
	if (fds[2].revents && read(ctx->wake_fd, &count, sizeof(count)) < 0)
		return;
}

/* Poll as long as it is likely to pay. */
static void busy(struct sf_rdma_context *ctx)
{
	uint64_t last_ns = sf_now_ns();

	while (!atomic_load_explicit(&ctx->stop, memory_order_relaxed)) {
		if (take_completions(ctx)) {
			last_ns = sf_now_ns();
			continue;
		}
		if (!atomic_load_explicit(&ctx->pending,
					  memory_order_relaxed) ||
		    sf_now_ns() - last_ns >= ctx->spin_us * 1000ull)
			return;
	}
}

static void *events_main(void *arg)
{
	struct sf_rdma_context *ctx = arg;
	unsigned int requests = 0;

	while (!atomic_load(&ctx->stop)) {
		busy(ctx);
		/* What came before the request raises no event. */
		if (!atomic_load(&ctx->fatal) &&
		    !ibv_req_notify_cq(ctx->cq, 0)) {
			requests++;
			if (take_completions(ctx))
				continue;
		}
		sleep_until_event(ctx, &requests);
	}
	return NULL;
}

int sf_rdma_events_start(struct sf_rdma_context *ctx, struct sf_err *err)
{
	int ret = sf_thread_start(&ctx->thread, events_main, ctx);
	char name[16];

	if (ret)
		return sf_err_set(err, ret, "%s: cannot start a thread: %s",
				  ctx->dev.name, strerror(-ret));
	snprintf(name, sizeof(name), "sf-%s", ctx->dev.name);
	pthread_setname_np(ctx->thread, name);
	ctx->started = true;
	return 0;
}

void sf_rdma_events_stop(struct sf_rdma_context *ctx)
{
	const uint64_t one = 1;

	if (!ctx->started)
		return;
	atomic_store(&ctx->stop, true);
	if (write(ctx->wake_fd, &one, sizeof(one)) < 0)
		return;		/* cannot happen to a counter of 1 */
	pthread_join(ctx->thread, NULL);
	ctx->started = false;
}
