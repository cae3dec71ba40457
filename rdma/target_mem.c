/* SPDX-License-Identifier: MIT */
/*
 * Registrations of exported memory. A read-only region gets no right to write,
 * so that the device refuses what nobody's code could. Used by the thread that
 * starts and stops the exporter only.
 */
#include "config.h"
#include "rdma/target_mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "rdma/context.h"
#include "rdma_config.h"
#include "rdma_target.h"
#include "vec.h"

struct sf_target_mem {
	struct sf_rdma_context *const *ctxs;
	unsigned int nr;
	struct sf_vec mrs;		/* struct ibv_mr * */
};

int sf_target_mem_new(struct sf_target_mem **out,
		      struct sf_rdma_context *const *ctxs, unsigned int nr)
{
	struct sf_target_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->ctxs = ctxs;
	m->nr = nr;
	*out = m;
	return 0;
}

static int access_of(const struct sf_rdma_region *region)
{
	return region->read_only ? IBV_ACCESS_REMOTE_READ :
				   IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE;
}

static int register_dmabuf(struct sf_rdma_context *ctx,
			   const struct sf_rdma_region *region,
			   struct ibv_mr **out, struct sf_err *err)
{
	int access = access_of(region);
	struct ibv_mr *mr;
	int res;

	if (ctx->config->relaxed_ordering)
		access |= IBV_ACCESS_RELAXED_ORDERING;
	mr = ibv_reg_dmabuf_mr(ctx->pd, region->dmabuf_offset, region->length,
			       region->addr, region->dmabuf, access);
	if (mr) {
		*out = mr;
		return 0;
	}
	res = errno ? -errno : -EIO;
	if (res == -EOPNOTSUPP || res == -ENOSYS || res == -EPROTONOSUPPORT)
		return sf_err_set(err, -EOPNOTSUPP, "%s: this device or its "
				  "kernel driver cannot register a dma-buf",
				  ctx->dev.name);
	if (res == -EINVAL || res == -EBADF)
		return sf_err_set(err, res, "%s: descriptor %d is not a "
				  "dma-buf, or has no %" PRIu64 " bytes at "
				  "offset %" PRIu64, ctx->dev.name,
				  region->dmabuf, region->length,
				  region->dmabuf_offset);
	return sf_err_set(err, res, "%s: cannot register a dma-buf: %s",
			  ctx->dev.name, strerror(-res));
}

static int register_plain(struct sf_rdma_context *ctx,
			  const struct sf_rdma_region *region,
			  struct ibv_mr **out, struct sf_err *err)
{
	int res = sf_rdma_context_register(ctx,
					   (void *)(uintptr_t)region->addr,
					   region->length, access_of(region),
					   out, err);

	/* Pages of a file must not be written behind its file system's back:
	 * newer kernels see to that. */
	if (res == -EFAULT || res == -EOPNOTSUPP)
		sf_err_set(err, -EFAULT, "%s: the kernel does not let a device "
			   "at this memory (files must be on tmpfs or "
			   "hugetlbfs, or \"ro\")", ctx->dev.name);
	return res;
}

int sf_target_mem_add(struct sf_target_mem *m,
		      const struct sf_rdma_region *region, uint64_t *keys,
		      struct sf_err *err)
{
	for (unsigned int i = 0; i < m->nr; i++) {
		struct ibv_mr **slot = sf_vec_add(&m->mrs, sizeof(*slot), 1);
		int res;

		if (!slot)
			return sf_err_set(err, -ENOMEM, "out of memory");
		*slot = NULL;
		res = region->dmabuf >= 0 ?
		      register_dmabuf(m->ctxs[i], region, slot, err) :
		      register_plain(m->ctxs[i], region, slot, err);
		if (res < 0)
			return res;
		keys[i] = (*slot)->rkey;
	}
	return 0;
}

void sf_target_mem_free(struct sf_target_mem *m)
{
	struct ibv_mr **mrs;

	if (!m)
		return;
	mrs = m->mrs.data;
	for (size_t i = m->mrs.nr; i-- > 0;)
		if (mrs[i])
			ibv_dereg_mr(mrs[i]);
	sf_vec_free(&m->mrs);
	free(m);
}
