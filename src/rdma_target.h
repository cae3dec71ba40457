/* SPDX-License-Identifier: MIT */
/*
 * The serving side of RDMA as the exporter sees it: a table of functions,
 * implemented in rdma/, without a verbs type. Memory is registered with every
 * device that is used; Connection requests are answered by the rules of
 * protocol section 6.4; the data path needs nobody.
 */
#ifndef SF_RDMA_TARGET_H
#define SF_RDMA_TARGET_H

#include <stdbool.h>
#include <stdint.h>

struct sf_err;
struct sf_handshake_rdma;
struct sf_rdma_config;

#define SF_RDMA_NIC_NAME_MAX 64

struct sf_rdma_nic {
	char name[SF_RDMA_NIC_NAME_MAX];
	uint8_t gid[16];	/* in use now */
	uint16_t lid;
	int node;		/* NUMA, -1 unknown */
};

struct sf_rdma_region {
	uint64_t addr;		/* as peers name it; and here, unless dma-buf */
	uint64_t length;
	bool read_only;
	int dmabuf;		/* descriptor of a dma-buf; -1: plain memory */
	uint64_t dmabuf_offset;
};

struct sf_rdma_target_config {
	const struct sf_rdma_config *rdma;	/* borrowed until close */
	const char *server;	/* our part of NIC paths; copied */
	/* A NIC's GID is another now. On a thread that must not be blocked
	 * for long; NULL: nobody wants to know. */
	void (*changed)(void *arg);
	void *arg;
};

struct sf_rdma_target_ops {
	/* Opens the devices. -ENODEV: none is usable; -EACCES; -ENOMEM. */
	int (*open)(void **target, const struct sf_rdma_target_config *config,
		    struct sf_err *err);
	/* Destroys the QPs, then the registrations. No call is running. */
	void (*close)(void *target);

	uint32_t (*nr_nics)(void *target);
	void (*nic)(void *target, uint32_t i, struct sf_rdma_nic *out);
	/* What one registration holds with every NIC; a multiple of PAGE. */
	uint64_t (*max_length)(void *target, uint64_t page);
	/*
	 * Register with every NIC; KEYS gets one remote key each, in the order
	 * of the NICs. -EOPNOTSUPP: no dma-buf here; -ENOMEM: a limit, which
	 * the text names; -EFAULT; what the driver says.
	 */
	int (*add)(void *target, const struct sf_rdma_region *region,
		   uint64_t *keys, struct sf_err *err);
	/*
	 * Answer a Connection request. Thread-safe; may block for seconds. The
	 * reply as JSON, malloc'ed; NULL: out of memory.
	 */
	char *(*connect)(void *target, const struct sf_handshake_rdma *request);
};

/* NULL: this build has no RDMA. */
const struct sf_rdma_target_ops *sf_rdma_target_ops(void);

extern const struct sf_rdma_target_ops sf_rdma_target;	/* HAVE_RDMA */

#endif
