/* SPDX-License-Identifier: MIT */
/*
 * An opened device: see context.h. This file opens and closes it, registers
 * memory and keeps what may change about its port; its thread is in events.c.
 */
#include "config.h"
#include "rdma/context.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "err.h"
#include "log.h"
#include "rdma/events.h"
#include "rdma_config.h"

#define CQ_DEPTH_MIN 16
#define SPIN_US 50		/* costs nobody anything from 4 CPUs up */
#define SPIN_CPUS 4

static int open_verbs(struct sf_rdma_context *ctx, const char *name,
		      struct sf_err *err)
{
	struct ibv_device **all = ibv_get_device_list(NULL);
	int ret = -ENODEV;

	if (!all)
		return sf_err_set(err, -ENODEV, "no RDMA devices: %s",
				  strerror(errno));
	for (unsigned int i = 0; all[i]; i++) {
		if (strcmp(ibv_get_device_name(all[i]), name))
			continue;
		ctx->verbs = ibv_open_device(all[i]);
		ret = ctx->verbs ? 0 : errno ? -errno : -EIO;
	}
	ibv_free_device_list(all);
	if (ret)
		return sf_err_set(err, ret, "%s: cannot be opened: %s", name,
				  strerror(-ret));
	return 0;
}

static int failed(struct sf_err *err, const char *name, const char *what)
{
	int ret = errno ? -errno : -EIO;

	return sf_err_set(err, ret, "%s: cannot make a %s: %s", name, what,
			  strerror(-ret));
}

static void set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static int make_objects(struct sf_rdma_context *ctx, unsigned int cq_depth,
			struct sf_err *err)
{
	const char *name = ctx->dev.name;

	ctx->pd = ibv_alloc_pd(ctx->verbs);
	if (!ctx->pd)
		return failed(err, name, "protection domain");
	ctx->channel = ibv_create_comp_channel(ctx->verbs);
	if (!ctx->channel)
		return failed(err, name, "completion channel");
	if (cq_depth < CQ_DEPTH_MIN)
		cq_depth = CQ_DEPTH_MIN;
	if (cq_depth > ctx->dev.max_cqe)
		cq_depth = ctx->dev.max_cqe;
	ctx->cq = ibv_create_cq(ctx->verbs, (int)cq_depth, NULL, ctx->channel,
				0);
	if (!ctx->cq)
		return failed(err, name, "completion queue");
	ctx->cq_depth = cq_depth;
	ctx->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ctx->wake_fd < 0)
		return failed(err, name, "file descriptor");
	set_nonblocking(ctx->channel->fd);
	set_nonblocking(ctx->verbs->async_fd);
	return 0;
}

/* The entry to use now; ctx->lock held, or nobody else knows CTX yet. */
static int choose_gid_locked(struct sf_rdma_context *ctx, unsigned int nth)
{
	const struct sf_rdma_device *dev = &ctx->dev;
	int i;

	if (ctx->config->gid_index != SF_RDMA_GID_AUTO)
		i = nth ? -ENOENT :
			  sf_rdma_gid_find(dev->gids, dev->nr_gids,
					   ctx->config->gid_index);
	else
		i = sf_rdma_gid_choose(dev->gids, dev->nr_gids, nth);
	if (i < 0)
		return i;
	ctx->gid = dev->gids[i];
	ctx->gid_nth = nth;
	if (sf_rdma_gid_is_dubious(&ctx->gid))
		sf_log(LOG_WARNING, SF_LOG_RDMA,
		       "%s: no better GID than number %u, which is %s",
		       dev->name, ctx->gid.index,
		       ctx->gid.kind == SF_RDMA_GID_ROCE_V1 ? "RoCE v1"
							    : "link-local");
	return 0;
}

static int first_gid(struct sf_rdma_context *ctx, struct sf_err *err)
{
	const struct sf_rdma_config *config = ctx->config;

	if (!choose_gid_locked(ctx, 0))
		return 0;
	if (config->gid_index != SF_RDMA_GID_AUTO)
		return sf_err_set(err, -ENODEV,
				  "%s: port %u has no GID number %u (it has "
				  "%u)", ctx->dev.name, ctx->dev.port,
				  config->gid_index, ctx->dev.nr_gids);
	/* Its port is down, maybe: it gets one when it is up. */
	memset(&ctx->gid, 0, sizeof(ctx->gid));
	return 0;
}

static unsigned int spin_us(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 0;
	return CPU_COUNT(&set) < SPIN_CPUS ? 0 : SPIN_US;
}

int sf_rdma_context_open(struct sf_rdma_context **out, const char *name,
			 const struct sf_rdma_config *config,
			 unsigned int cq_depth,
			 const struct sf_rdma_handlers *handlers, void *arg,
			 struct sf_err *err)
{
	struct sf_rdma_context *ctx = calloc(1, sizeof(*ctx));
	int ret;

	if (!ctx)
		return sf_err_set(err, -ENOMEM, "out of memory");
	ctx->config = config;
	ctx->handlers = handlers;
	ctx->arg = arg;
	ctx->wake_fd = -1;
	ctx->spin_us = spin_us();
	snprintf(ctx->dev.name, sizeof(ctx->dev.name), "%s", name);
	pthread_mutex_init(&ctx->lock, NULL);
	pthread_cond_init(&ctx->round_over, NULL);
	ret = open_verbs(ctx, name, err);
	if (!ret)
		ret = sf_rdma_device_query(&ctx->dev, ctx->verbs,
					   (uint8_t)config->ib_port, err);
	if (!ret)
		ret = first_gid(ctx, err);
	if (!ret)
		ret = make_objects(ctx, cq_depth, err);
	ctx->lid = ctx->dev.lid;
	atomic_store(&ctx->up, ctx->dev.active);
	if (!ret)
		ret = sf_rdma_events_start(ctx, err);
	if (ret) {
		sf_rdma_context_close(ctx);
		return ret;
	}
	*out = ctx;
	return 0;
}

void sf_rdma_context_close(struct sf_rdma_context *ctx)
{
	if (!ctx)
		return;
	sf_rdma_events_stop(ctx);
	if (ctx->cq)
		ibv_destroy_cq(ctx->cq);
	if (ctx->channel)
		ibv_destroy_comp_channel(ctx->channel);
	if (ctx->pd)
		ibv_dealloc_pd(ctx->pd);
	if (ctx->verbs)
		ibv_close_device(ctx->verbs);
	if (ctx->wake_fd >= 0)
		close(ctx->wake_fd);
	free(ctx->dev.gids);
	pthread_cond_destroy(&ctx->round_over);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

static int register_failed(struct sf_rdma_context *ctx, size_t len, int code,
			   struct sf_err *err)
{
	struct rlimit limit;

	if ((code == ENOMEM || code == EAGAIN) &&
	    !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY)
		return sf_err_set(err, -code,
				  "%s: cannot register %zu MiB: %s (the limit "
				  "on locked memory, memlock, is %llu KiB; "
				  "every device needs this much)",
				  ctx->dev.name, len >> 20, strerror(code),
				  (unsigned long long)limit.rlim_cur >> 10);
	return sf_err_set(err, -code, "%s: cannot register %zu bytes: %s",
			  ctx->dev.name, len, strerror(code));
}

int sf_rdma_context_register(struct sf_rdma_context *ctx, void *base,
			     size_t len, int access, struct ibv_mr **out,
			     struct sf_err *err)
{
	struct ibv_mr *mr;

	if (ctx->config->relaxed_ordering)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	errno = 0;
	mr = ibv_reg_mr(ctx->pd, base, len, (unsigned int)access);
	if (!mr)
		return register_failed(ctx, len, errno ? errno : EIO, err);
	*out = mr;
	return 0;
}

void sf_rdma_context_gid(struct sf_rdma_context *ctx, struct sf_rdma_gid *out)
{
	pthread_mutex_lock(&ctx->lock);
	*out = ctx->gid;
	pthread_mutex_unlock(&ctx->lock);
}

uint16_t sf_rdma_context_lid(struct sf_rdma_context *ctx)
{
	uint16_t lid;

	pthread_mutex_lock(&ctx->lock);
	lid = ctx->lid;
	pthread_mutex_unlock(&ctx->lock);
	return lid;
}

unsigned int sf_rdma_context_mtu(struct sf_rdma_context *ctx)
{
	unsigned int mtu;

	pthread_mutex_lock(&ctx->lock);
	/* No event tells that it changed; if the port cannot say, it stays. */
	sf_rdma_device_query_link(&ctx->dev, ctx->verbs, NULL);
	mtu = ctx->dev.active_mtu;
	pthread_mutex_unlock(&ctx->lock);
	return mtu < ctx->config->mtu ? mtu : ctx->config->mtu;
}

int sf_rdma_context_nth_gid(struct sf_rdma_context *ctx, unsigned int nth,
			    struct sf_rdma_gid *out)
{
	const struct sf_rdma_device *dev = &ctx->dev;
	int i = 0;

	pthread_mutex_lock(&ctx->lock);
	if (nth)
		i = ctx->config->gid_index != SF_RDMA_GID_AUTO ? -ENOENT :
		    sf_rdma_gid_choose(dev->gids, dev->nr_gids,
				       ctx->gid_nth + nth);
	if (i >= 0)
		*out = nth ? dev->gids[i] : ctx->gid;
	pthread_mutex_unlock(&ctx->lock);
	return i < 0 ? i : 0;
}

bool sf_rdma_context_has_gid(struct sf_rdma_context *ctx,
			     const struct sf_rdma_gid *gid)
{
	bool has;

	pthread_mutex_lock(&ctx->lock);
	has = sf_rdma_gid_is_in(ctx->dev.gids, ctx->dev.nr_gids, gid);
	pthread_mutex_unlock(&ctx->lock);
	return has;
}

/* One that was taken for want of another is given up for a good one: addresses
 * are changed by removing the old before adding the new. */
static bool has_better_locked(const struct sf_rdma_context *ctx)
{
	const struct sf_rdma_device *dev = &ctx->dev;
	int i;

	if (ctx->config->gid_index != SF_RDMA_GID_AUTO ||
	    !sf_rdma_gid_is_dubious(&ctx->gid))
		return false;
	i = sf_rdma_gid_choose(dev->gids, dev->nr_gids, 0);
	return i >= 0 && !sf_rdma_gid_is_dubious(&dev->gids[i]);
}

bool sf_rdma_context_requery(struct sf_rdma_context *ctx)
{
	bool changed = false;

	pthread_mutex_lock(&ctx->lock);
	if (!sf_rdma_device_query_port(&ctx->dev, ctx->verbs, NULL)) {
		/* A port that is down may have none, and get it back. */
		if (ctx->dev.active && ctx->dev.lid != ctx->lid) {
			changed = true;
			ctx->lid = ctx->dev.lid;
		}
		if (!sf_rdma_gid_is_in(ctx->dev.gids, ctx->dev.nr_gids,
				       &ctx->gid) || has_better_locked(ctx)) {
			/* What was refused before may be fine in this table. */
			changed = true;
			if (choose_gid_locked(ctx, 0))
				memset(&ctx->gid, 0, sizeof(ctx->gid));
		}
	}
	atomic_store(&ctx->up, ctx->dev.active);
	pthread_mutex_unlock(&ctx->lock);
	return changed;
}
