/* SPDX-License-Identifier: MIT */
/*
 * The set of RC queue pairs between a local device and a remote one, and the
 * constants of protocol section 6.6. Calls block for as long as the kernel
 * takes (a change to RTR resolves the path: seconds when nobody answers).
 */
#ifndef SF_RDMA_QP_H
#define SF_RDMA_QP_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

struct sf_err;
struct sf_rdma_context;
struct sf_rdma_gid;

#define SF_RDMA_RD_ATOMIC 16	/* outstanding READs Mooncake allows for */

/* Where it went wrong. */
enum sf_rdma_stage {
	SF_RDMA_OK,
	SF_RDMA_METADATA,
	SF_RDMA_RESOLVE,
	SF_RDMA_CONNECT,
	SF_RDMA_HANDSHAKE,
	SF_RDMA_INIT,
	SF_RDMA_RTR,
	SF_RDMA_RTS,
	SF_RDMA_COMPLETION,
};

/* "metadata" .. "completion"; "ok". */
const char *sf_rdma_stage_name(enum sf_rdma_stage stage);
/* "IBV_WC_RETRY_EXC_ERR" */
const char *sf_rdma_status_name(enum ibv_wc_status status);

struct sf_rdma_qps {
	struct sf_rdma_context *ctx;
	unsigned int nr;
	unsigned int depth;	/* send work requests of each */
	struct ibv_qp **qp;
};

/* The other side, from its handshake message. */
struct sf_rdma_remote {
	uint8_t gid[16];
	uint16_t lid;
	const uint32_t *qp_num;	/* as many as we have */
};

/* NR QPs in RESET; QP_CONTEXT goes into each (for qp_event). -ENOMEM and what
 * the driver says. */
int sf_rdma_qps_create(struct sf_rdma_qps *qps, struct sf_rdma_context *ctx,
		       unsigned int nr, unsigned int depth, void *qp_context,
		       struct sf_err *err);
/* Copy the numbers, nr of them, to OUT. */
void sf_rdma_qps_numbers(const struct sf_rdma_qps *qps, uint32_t *out);
/*
 * RESET to RTS, from our GID, with path MTU MTU (bytes). TARGET: the remote may
 * read and write. On failure the QPs are in no particular state; *STAGE says
 * which step it was.
 */
int sf_rdma_qps_connect(struct sf_rdma_qps *qps,
			const struct sf_rdma_gid *own, unsigned int mtu,
			const struct sf_rdma_remote *remote, bool target,
			enum sf_rdma_stage *stage, struct sf_err *err);
/* To ERR: outstanding work is flushed. Harmless when repeated. */
void sf_rdma_qps_fail(struct sf_rdma_qps *qps);
/* The device touches no memory for these QPs once this returns. Waits for
 * running qp_event callbacks, so not from one, and with no lock that one takes.
 * A zeroed or destroyed set is fine. */
void sf_rdma_qps_destroy(struct sf_rdma_qps *qps);

#endif
