/* SPDX-License-Identifier: MIT */
/*
 * The serving side of RDMA: the table behind src/rdma_target.h. Opens the
 * devices, registers memory with each, and makes the queue pairs that the
 * acceptor asks for. Peers read and write without any of our threads; what is
 * left to do is to notice QPs, ports and devices that fail, on the devices'
 * threads.
 */
#include "config.h"
#include "rdma_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "gid.h"
#include "log.h"
#include "ratelimit.h"
#include "rdma/acceptor.h"
#include "rdma/context.h"
#include "rdma/device.h"
#include "rdma/qp.h"
#include "rdma/target_mem.h"
#include "rdma_config.h"

#define MAX_QPS 16384		/* of one device, at most half of what it has */
#define LOG_MS 1000

struct target;

struct target_nic {
	struct target *target;
	unsigned int index;
};

struct target {
	struct sf_rdma_target_config config;
	char *server;
	struct sf_acceptor *acceptor;
	struct sf_target_mem *mem;
	struct sf_ratelimit log;
	unsigned int nr, nr_open;
	struct sf_rdma_device *devices;		/* as they were at first */
	struct target_nic nics[SF_RDMA_DEVICES_MAX];
	struct sf_acceptor_nic acceptor_nics[SF_RDMA_DEVICES_MAX];
	struct sf_rdma_context *ctxs[SF_RDMA_DEVICES_MAX];
};

/* ---- what devices report, on their threads ---- */

static void on_event(void *arg, enum sf_rdma_event event)
{
	struct target_nic *nic = arg;
	struct target *t = nic->target;

	switch (event) {
	case SF_RDMA_PORT_DOWN:
	case SF_RDMA_PORT_UP:
		/* Retries of the peers bridge a short pause. */
		break;
	case SF_RDMA_GID_CHANGED:
		sf_log(LOG_WARNING, SF_LOG_RDMA, "%s: its GID or LID has "
		       "changed, peers must connect again",
		       t->devices[nic->index].name);
		sf_acceptor_nic_failed(t->acceptor, nic->index);
		if (t->config.changed)
			t->config.changed(t->config.arg);
		break;
	case SF_RDMA_FATAL:
		sf_acceptor_nic_failed(t->acceptor, nic->index);
		break;
	}
}

static void on_qp_event(void *arg, struct ibv_qp *qp, enum ibv_event_type type)
{
	struct target_nic *nic = arg;

	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		sf_log(LOG_DEBUG, SF_LOG_RDMA, "%s: qp %u: %s",
		       nic->target->devices[nic->index].name, qp->qp_num,
		       ibv_event_type_str(type));
		sf_acceptor_failed(nic->target->acceptor, qp->qp_context);
		break;
	default:
		break;
	}
}

static const struct sf_rdma_handlers handlers = {
	.event = on_event,
	.qp_event = on_qp_event,
};

/* ---- what the acceptor asks for ---- */

static const char *refusal(void *arg, unsigned int nic)
{
	struct target *t = arg;
	struct sf_rdma_context *ctx = t->ctxs[nic];
	struct sf_rdma_gid gid;

	if (atomic_load(&ctx->fatal))
		return "it is gone";
	if (!atomic_load(&ctx->up))
		return "its port is down";
	sf_rdma_context_gid(ctx, &gid);
	return sf_gid_is_zero(gid.gid) ? "it has no GID" : NULL;
}

static int connect_once(struct sf_rdma_context *ctx,
			const struct sf_acceptor_remote *remote,
			const struct sf_rdma_gid *gid,
			struct sf_endpoint *endpoint, struct sf_rdma_qps *qps,
			enum sf_rdma_stage *stage, struct sf_err *err)
{
	struct sf_rdma_remote peer = {
		.lid = remote->lid, .qp_num = remote->qp_num,
	};
	int res;

	*stage = SF_RDMA_OK;
	memcpy(peer.gid, remote->gid, sizeof(peer.gid));
	/* We never post: the smallest send queue does. */
	res = sf_rdma_qps_create(qps, ctx, remote->nr_qps, 1, endpoint, err);
	if (res < 0)
		return res;
	res = sf_rdma_qps_connect(qps, gid, sf_rdma_context_mtu(ctx), &peer,
				  true, stage, err);
	if (res < 0)
		sf_rdma_qps_destroy(qps);
	return res;
}

/* A GID that does not lead to the peer shows as EINVAL at RTR: the next ones by
 * rank then, for this peer only. What it needs, or makes up, is not the others'
 * business. */
static int connect_qps(struct target *t, struct sf_rdma_context *ctx,
		       const struct sf_acceptor_remote *remote,
		       struct sf_endpoint *endpoint, struct sf_rdma_qps *qps,
		       struct sf_rdma_gid *gid, struct sf_err *err)
{
	enum sf_rdma_stage stage;
	int res;

	sf_rdma_context_gid(ctx, gid);
	res = connect_once(ctx, remote, gid, endpoint, qps, &stage, err);
	if (res != -EINVAL || stage != SF_RDMA_RTR)
		return res;
	for (unsigned int i = 1; i <= t->config.rdma->gid_retries; i++) {
		if (sf_rdma_context_nth_gid(ctx, i, gid) < 0 ||
		    connect_once(ctx, remote, gid, endpoint, qps, &stage, NULL))
			continue;
		*err = (struct sf_err){ 0 };
		return 0;
	}
	return res;
}

static int make(void *arg, unsigned int index,
		const struct sf_acceptor_remote *remote,
		struct sf_endpoint *endpoint, struct sf_acceptor_local *local,
		void **out, struct sf_err *err)
{
	struct target *t = arg;
	struct sf_rdma_qps *qps = calloc(1, sizeof(*qps));
	struct sf_rdma_gid gid;
	int res;

	if (!qps)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = connect_qps(t, t->ctxs[index], remote, endpoint, qps, &gid, err);
	if (res < 0) {
		free(qps);
		return res;
	}
	memcpy(local->gid, gid.gid, sizeof(local->gid));
	local->lid = sf_rdma_context_lid(t->ctxs[index]);
	sf_rdma_qps_numbers(qps, local->qp_num);
	*out = qps;
	return 0;
}

static void unmake(void *arg, void *qps)
{
	sf_rdma_qps_destroy(qps);
	free(qps);
}

static const struct sf_acceptor_ops acceptor_ops = {
	.refusal = refusal,
	.make = make,
	.unmake = unmake,
};

static char *answer(void *target, const struct sf_handshake_rdma *request)
{
	struct target *t = target;
	struct sf_acceptor_reply *reply = malloc(sizeof(*reply));
	unsigned int more;
	char *text;

	if (!reply)
		return NULL;
	sf_acceptor_answer(t->acceptor, request, reply);
	if (reply->err.code && sf_ratelimit_pass(&t->log, LOG_MS, &more))
		sf_log(LOG_INFO, SF_LOG_RDMA, "\"%.200s\" may not connect to "
		       "\"%.200s\": %s (and %u more)",
		       request->local_nic_path, request->peer_nic_path,
		       reply->err.text, more);
	else if (!reply->err.code)
		sf_log(LOG_DEBUG, SF_LOG_RDMA, "\"%s\" is connected to \"%s\"",
		       request->local_nic_path, request->peer_nic_path);
	text = sf_handshake_rdma_encode(&reply->msg);
	free(reply);
	return text;
}

/* ---- devices ---- */

static uint32_t nr_nics(void *target)
{
	struct target *t = target;

	return t->nr;
}

static void get_nic(void *target, uint32_t i, struct sf_rdma_nic *out)
{
	struct target *t = target;
	struct sf_rdma_context *ctx = t->ctxs[i];
	struct sf_rdma_gid gid;

	sf_rdma_context_gid(ctx, &gid);
	*out = (struct sf_rdma_nic){
		.lid = sf_rdma_context_lid(ctx), .node = ctx->dev.node,
	};
	memcpy(out->gid, gid.gid, sizeof(out->gid));
	snprintf(out->name, sizeof(out->name), "%s", ctx->dev.name);
}

static uint64_t max_length(void *target, uint64_t page)
{
	struct target *t = target;
	uint64_t max = t->config.rdma->max_mr_size;

	for (unsigned int i = 0; i < t->nr; i++)
		if (t->devices[i].max_mr_size < max)
			max = t->devices[i].max_mr_size;
	return max < page ? page : max / page * page;
}

static int add(void *target, const struct sf_rdma_region *region,
	       uint64_t *keys, struct sf_err *err)
{
	struct target *t = target;

	return sf_target_mem_add(t->mem, region, keys, err);
}

/* ---- opening and closing ---- */

static int list_devices(struct target *t, struct sf_err *err)
{
	int res = sf_rdma_devices_list(&t->devices, &t->nr, t->config.rdma,
				       err);

	if (res < 0)
		return res;
	for (unsigned int i = 0; i < t->nr; i++)
		t->nics[i] = (struct target_nic){ .target = t, .index = i };
	return 0;
}

static int open_acceptor(struct target *t, struct sf_err *err)
{
	struct sf_acceptor_nic *nics = t->acceptor_nics;
	struct sf_acceptor_config config = {
		.server = t->server,
		.nics = nics,
		.nr_nics = t->nr,
		.ops = &acceptor_ops,
		.arg = t,
	};
	int res;

	for (unsigned int i = 0; i < t->nr; i++) {
		unsigned int half = t->devices[i].max_qp / 2;

		nics[i].name = t->devices[i].name;
		nics[i].max_qps = half < MAX_QPS ? half : MAX_QPS;
	}
	res = sf_acceptor_new(&t->acceptor, &config);
	return res ? sf_err_set(err, res, "cannot start a thread: %s",
				strerror(-res)) : 0;
}

static int open_contexts(struct target *t, struct sf_err *err)
{
	int res = 0;

	for (; t->nr_open < t->nr && !res; t->nr_open += !res)
		res = sf_rdma_context_open(&t->ctxs[t->nr_open],
					   t->devices[t->nr_open].name,
					   t->config.rdma, 0, &handlers,
					   &t->nics[t->nr_open], err);
	return res;
}

static void close_target(void *target)
{
	struct target *t = target;

	if (t->acceptor)
		sf_acceptor_stop(t->acceptor);
	sf_target_mem_free(t->mem);
	for (unsigned int i = 0; i < t->nr_open; i++)
		sf_rdma_context_close(t->ctxs[i]);
	/* Until here devices could report something. */
	sf_acceptor_free(t->acceptor);
	sf_rdma_devices_free(t->devices, t->nr);
	free(t->server);
	free(t);
}

static int open_target(void **out, const struct sf_rdma_target_config *config,
		       struct sf_err *err)
{
	struct target *t = calloc(1, sizeof(*t));
	int res;

	if (!t)
		return sf_err_set(err, -ENOMEM, "out of memory");
	t->config = *config;
	t->server = strdup(config->server);
	res = t->server ? list_devices(t, err) :
			  sf_err_set(err, -ENOMEM, "out of memory");
	if (!res && sf_target_mem_new(&t->mem, t->ctxs, t->nr) < 0)
		res = sf_err_set(err, -ENOMEM, "out of memory");
	if (!res)
		res = open_acceptor(t, err);
	if (!res)
		res = open_contexts(t, err);
	if (res < 0)
		close_target(t);
	else
		*out = t;
	return res;
}

const struct sf_rdma_target_ops sf_rdma_target = {
	.open = open_target,
	.close = close_target,
	.nr_nics = nr_nics,
	.nic = get_nic,
	.max_length = max_length,
	.add = add,
	.connect = answer,
};
