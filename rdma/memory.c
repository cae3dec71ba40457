/* SPDX-License-Identifier: MIT */
/*
 * The pool's regions, registered once with every device for as long as the
 * transport is open. Where that fails, as it does when the limit on locked
 * memory is low, I/O through that device takes the detour of bounce.c.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "log.h"

int sf_rdma_mem_register(void *priv, void *base, size_t len, int node,
			 struct sf_mem **out, struct sf_err *err)
{
	struct sf_rdma *rdma = priv;
	struct sf_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return sf_err_set(err, -ENOMEM, "rdma: out of memory");
	mem->base = base;
	mem->len = len;
	mem->node = node;
	for (unsigned int i = 0; i < rdma->nr_devs; i++) {
		struct sf_err e = { 0 };

		if (sf_rdma_context_register(rdma->devs[i].ctx, base, len,
					     IBV_ACCESS_LOCAL_WRITE,
					     &mem->mrs[i], &e))
			sf_log(LOG_WARNING, SF_LOG_RDMA,
			       "%s; transfers are slower for it", e.text);
	}
	*out = mem;
	return 0;
}

void sf_rdma_mem_unregister(void *priv, struct sf_mem *mem)
{
	struct sf_rdma *rdma = priv;

	for (unsigned int i = 0; i < rdma->nr_devs; i++)
		if (mem->mrs[i])
			ibv_dereg_mr(mem->mrs[i]);
	free(mem);
}
