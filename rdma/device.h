/* SPDX-License-Identifier: MIT */
/* The RDMA devices of this machine: what they are and which to use. */
#ifndef SF_RDMA_DEVICE_H
#define SF_RDMA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "rdma/gidtable.h"

struct sf_err;
struct sf_rdma_config;

#define SF_RDMA_DEVICES_MAX 32	/* local ones in use */

struct sf_rdma_device {
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port;
	bool active;		/* the port, when it was asked */
	bool ethernet;		/* link layer */
	uint16_t lid;
	unsigned int active_mtu;	/* bytes */
	int node;		/* NUMA, -1 unknown */
	uint64_t max_mr_size;
	uint32_t max_message;	/* bytes a work request */
	unsigned int max_qp, max_cqe, max_qp_wr;
	unsigned int max_rd_atomic, max_dest_rd_atomic;	/* of one QP */
	unsigned int nr_gids;	/* entries that are not null */
	struct sf_rdma_gid *gids;	/* malloc'ed */
};

/*
 * The devices that CONFIG selects, in the order of its names or of the system:
 * named ones must exist (their port may be down), unnamed ones must have an
 * active port with a GID. -ENODEV: none, or a named one is missing; -EACCES:
 * not allowed to use them; -ENOMEM.
 */
int sf_rdma_devices_list(struct sf_rdma_device **out, unsigned int *nr,
			 const struct sf_rdma_config *config,
			 struct sf_err *err);
void sf_rdma_devices_free(struct sf_rdma_device *devices, unsigned int nr);

/* Fill in DEV's data (all but its name, which must be set; a former table is
 * freed) from an opened device. */
int sf_rdma_device_query(struct sf_rdma_device *dev, struct ibv_context *verbs,
			 uint8_t port, struct sf_err *err);
/* What of it may change: the port's data and its GIDs. */
int sf_rdma_device_query_port(struct sf_rdma_device *dev,
			      struct ibv_context *verbs, struct sf_err *err);
/* The same without its GIDs. */
int sf_rdma_device_query_link(struct sf_rdma_device *dev,
			      struct ibv_context *verbs, struct sf_err *err);

#endif
