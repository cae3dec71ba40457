/* SPDX-License-Identifier: MIT */
/* The thread of an opened device; between context.c and events.c only. */
#ifndef SF_RDMA_EVENTS_H
#define SF_RDMA_EVENTS_H

#include <stdbool.h>

struct sf_err;
struct sf_rdma_context;

int sf_rdma_events_start(struct sf_rdma_context *ctx, struct sf_err *err);
void sf_rdma_events_stop(struct sf_rdma_context *ctx);

/* Ask the port anew. True: the GID in use was no longer there, and another one
 * (or none, all zero) is in use. */
bool sf_rdma_context_requery(struct sf_rdma_context *ctx);

#endif
