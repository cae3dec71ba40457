/* SPDX-License-Identifier: MIT */
/* The exporter's registrations: every region with every device. */
#ifndef SF_RDMA_TARGET_MEM_H
#define SF_RDMA_TARGET_MEM_H

#include <stdint.h>

struct sf_err;
struct sf_rdma_context;
struct sf_rdma_region;
struct sf_target_mem;

/* CTXS[0..NR) are borrowed. -ENOMEM. */
int sf_target_mem_new(struct sf_target_mem **out,
		      struct sf_rdma_context *const *ctxs, unsigned int nr);
/* As sf_rdma_target_ops.add. */
int sf_target_mem_add(struct sf_target_mem *m,
		      const struct sf_rdma_region *region, uint64_t *keys,
		      struct sf_err *err);
/* Nothing is pinned any more when it returns. NULL is fine. */
void sf_target_mem_free(struct sf_target_mem *m);

#endif
