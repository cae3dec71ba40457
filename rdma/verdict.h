/* SPDX-License-Identifier: MIT */
/* What the errors of connections and of work mean for those who wait. Pure. */
#ifndef SF_RDMA_VERDICT_H
#define SF_RDMA_VERDICT_H

#include <stdbool.h>

#include <infiniband/verbs.h>

#include "rdma/qp.h"

/* A connection failed in STAGE with CODE, which may be any errno that the
 * network or a driver has: one of those that an I/O may end with
 * (transport.h). */
int sf_rdma_verdict_connect(enum sf_rdma_stage stage, int code);

/* The peer understood a slice and said no, or our own memory is not what it
 * should be: how its I/O ends, as another connection would not mend it. 0: it
 * might. */
int sf_rdma_verdict_completion(enum ibv_wc_status status);

/*
 * Path MTUs are not negotiated. Where they differ, a WRITE has packets of a
 * length that the other side does not like, and a long READ stalls, as the two
 * sides count its packets differently. STATUS was all that ever came over a
 * connection with MTU. True: *CAP is a smaller one to try. False: it does not
 * look like that, or all were tried, and *CAP is none (0) then.
 */
bool sf_rdma_verdict_mtu(enum ibv_wc_status status, unsigned int mtu,
			 unsigned int *cap);

#endif
