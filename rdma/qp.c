/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: see qp.h. Every number that the other side must agree with is in
 * this file. No threads, no locks: a set belongs to who made it.
 */
#include "config.h"
#include "rdma/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "rdma/context.h"
#include "rdma/gidtable.h"
#include "rdma_config.h"

/* Protocol section 6.6. */
#define PSN 0
#define HOP_LIMIT 16
#define MIN_RNR_TIMER 12
#define TIMEOUT 14		/* 4.096 us << 14: 67 ms */
#define RETRY_COUNT 6		/* not Mooncake's 7, which Soft-RoCE takes for
				 * no limit; only its owner sees it */
#define RNR_RETRY 7

const char *sf_rdma_stage_name(enum sf_rdma_stage stage)
{
	static const char *const names[] = {
		[SF_RDMA_OK] = "ok",
		[SF_RDMA_METADATA] = "metadata",
		[SF_RDMA_RESOLVE] = "resolve",
		[SF_RDMA_CONNECT] = "connect",
		[SF_RDMA_HANDSHAKE] = "handshake",
		[SF_RDMA_INIT] = "INIT",
		[SF_RDMA_RTR] = "RTR",
		[SF_RDMA_RTS] = "RTS",
		[SF_RDMA_COMPLETION] = "completion",
	};

	return names[stage];
}

#define STATUS(s) [s] = #s

const char *sf_rdma_status_name(enum ibv_wc_status status)
{
	static const char *const names[] = {
		STATUS(IBV_WC_SUCCESS),
		STATUS(IBV_WC_LOC_LEN_ERR),
		STATUS(IBV_WC_LOC_QP_OP_ERR),
		STATUS(IBV_WC_LOC_EEC_OP_ERR),
		STATUS(IBV_WC_LOC_PROT_ERR),
		STATUS(IBV_WC_WR_FLUSH_ERR),
		STATUS(IBV_WC_MW_BIND_ERR),
		STATUS(IBV_WC_BAD_RESP_ERR),
		STATUS(IBV_WC_LOC_ACCESS_ERR),
		STATUS(IBV_WC_REM_INV_REQ_ERR),
		STATUS(IBV_WC_REM_ACCESS_ERR),
		STATUS(IBV_WC_REM_OP_ERR),
		STATUS(IBV_WC_RETRY_EXC_ERR),
		STATUS(IBV_WC_RNR_RETRY_EXC_ERR),
		STATUS(IBV_WC_LOC_RDD_VIOL_ERR),
		STATUS(IBV_WC_REM_INV_RD_REQ_ERR),
		STATUS(IBV_WC_REM_ABORT_ERR),
		STATUS(IBV_WC_INV_EECN_ERR),
		STATUS(IBV_WC_INV_EEC_STATE_ERR),
		STATUS(IBV_WC_FATAL_ERR),
		STATUS(IBV_WC_RESP_TIMEOUT_ERR),
		STATUS(IBV_WC_GENERAL_ERR),
	};

	if ((size_t)status >= sizeof(names) / sizeof(*names) || !names[status])
		return "IBV_WC_?";
	return names[status];
}

int sf_rdma_qps_create(struct sf_rdma_qps *qps, struct sf_rdma_context *ctx,
		       unsigned int nr, unsigned int depth, void *qp_context,
		       struct sf_err *err)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = qp_context,
		.send_cq = ctx->cq,
		.recv_cq = ctx->cq,
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = 1,	/* none is ever posted */
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct sf_rdma_qps s = { .ctx = ctx, .depth = depth };
	int ret = 0;

	s.qp = calloc(nr, sizeof(*s.qp));
	if (!s.qp)
		return sf_err_set(err, -ENOMEM, "out of memory");
	for (; !ret && s.nr < nr; s.nr++) {
		struct ibv_qp_init_attr a = attr;	/* is written to */

		errno = 0;
		s.qp[s.nr] = ibv_create_qp(ctx->pd, &a);
		if (!s.qp[s.nr]) {
			ret = errno ? -errno : -ENOMEM;
			break;
		}
	}
	if (ret) {
		sf_rdma_qps_destroy(&s);
		return sf_err_set(err, ret, "%s: cannot create a QP: %s",
				  ctx->dev.name, strerror(-ret));
	}
	*qps = s;
	return 0;
}

void sf_rdma_qps_numbers(const struct sf_rdma_qps *qps, uint32_t *out)
{
	for (unsigned int i = 0; i < qps->nr; i++)
		out[i] = qps->qp[i]->qp_num;
}

static int to_init(struct ibv_qp *qp, const struct sf_rdma_context *ctx,
		   bool target)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = (uint16_t)ctx->config->pkey_index,
		.port_num = ctx->dev.port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE,
	};

	if (target)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static enum ibv_mtu mtu_code(unsigned int bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 256u << (code - IBV_MTU_256) < bytes)
		code++;
	return code;
}

static uint8_t at_most(unsigned int a, unsigned int b)
{
	return (uint8_t)(a < b ? a : b);
}

static int to_rtr(struct ibv_qp *qp, const struct sf_rdma_context *ctx,
		  const struct sf_rdma_gid *own, unsigned int mtu,
		  const struct sf_rdma_remote *remote, uint32_t qp_num)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(mtu),
		.dest_qp_num = qp_num,
		.rq_psn = PSN,
		.max_dest_rd_atomic = at_most(ctx->dev.max_dest_rd_atomic,
					      SF_RDMA_RD_ATOMIC),
		.min_rnr_timer = MIN_RNR_TIMER,
		.ah_attr = {
			.is_global = 1,
			.dlid = remote->lid,
			.sl = (uint8_t)ctx->config->service_level,
			.port_num = ctx->dev.port,
			.grh = {
				.sgid_index = (uint8_t)own->index,
				.hop_limit = HOP_LIMIT,
				.traffic_class =
					(uint8_t)ctx->config->traffic_class,
			},
		},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, remote->gid, sizeof(remote->gid));
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp, const struct sf_rdma_context *ctx)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRY_COUNT,
		.rnr_retry = RNR_RETRY,
		.sq_psn = PSN,
		.max_rd_atomic = at_most(ctx->dev.max_rd_atomic,
					 SF_RDMA_RD_ATOMIC),
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT |
				     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int sf_rdma_qps_connect(struct sf_rdma_qps *qps, const struct sf_rdma_gid *own,
			unsigned int mtu, const struct sf_rdma_remote *remote,
			bool target, enum sf_rdma_stage *stage,
			struct sf_err *err)
{
	const struct sf_rdma_context *ctx = qps->ctx;
	int ret = 0;

	for (unsigned int i = 0; !ret && i < qps->nr; i++) {
		*stage = SF_RDMA_INIT;
		ret = to_init(qps->qp[i], ctx, target);
		if (ret)
			break;
		*stage = SF_RDMA_RTR;
		ret = to_rtr(qps->qp[i], ctx, own, mtu, remote,
			     remote->qp_num[i]);
		if (ret)
			break;
		*stage = SF_RDMA_RTS;
		ret = to_rts(qps->qp[i], ctx);
	}
	if (ret)
		return sf_err_set(err, -ret, "%s: a QP cannot enter %s: %s",
				  ctx->dev.name, sf_rdma_stage_name(*stage),
				  strerror(ret));
	*stage = SF_RDMA_OK;
	return 0;
}

void sf_rdma_qps_fail(struct sf_rdma_qps *qps)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	/* What fails here is in ERR or gone with its device. */
	for (unsigned int i = 0; i < qps->nr; i++)
		ibv_modify_qp(qps->qp[i], &attr, IBV_QP_STATE);
}

void sf_rdma_qps_destroy(struct sf_rdma_qps *qps)
{
	for (unsigned int i = 0; i < qps->nr; i++)
		ibv_destroy_qp(qps->qp[i]);
	free(qps->qp);
	qps->qp = NULL;
	qps->nr = 0;
}
