/* SPDX-License-Identifier: MIT */
/*
 * One opened device: protection domain, completion queue, its thread. Both
 * roles use it; a process that has both opens each device twice.
 *
 * The thread polls the completion queue while there is work, sleeps on the
 * completion channel when there is none, and takes the device's asynchronous
 * events. All callbacks run on it and must not block.
 */
#ifndef SF_RDMA_CONTEXT_H
#define SF_RDMA_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "rdma/device.h"

struct sf_err;
struct sf_rdma_config;

enum sf_rdma_event {
	SF_RDMA_PORT_DOWN,
	SF_RDMA_PORT_UP,
	SF_RDMA_GID_CHANGED,	/* the one in use is no longer what it was;
				 * another has been chosen. Or the LID is
				 * another */
	SF_RDMA_FATAL,		/* the device is gone; only close() is left */
};

struct sf_rdma_handlers {
	/* NR > 0 completions. NULL: the role posts no work. */
	void (*completions)(void *arg, const struct ibv_wc *wc,
			    unsigned int nr);
	void (*event)(void *arg, enum sf_rdma_event event);
	/* TYPE concerns QP, which is not destroyed before this returns. NULL:
	 * not interested. */
	void (*qp_event)(void *arg, struct ibv_qp *qp,
			 enum ibv_event_type type);
};

struct sf_rdma_context {
	struct sf_rdma_device dev;	/* constant but for what lock guards */
	const struct sf_rdma_config *config;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;		/* of all QPs, both directions */
	unsigned int cq_depth;
	atomic_bool up;			/* port active, device not gone */
	atomic_bool fatal;
	atomic_uint pending;		/* work requests on the wire: poll */

	pthread_mutex_t lock;
	struct sf_rdma_gid gid;		/* under lock: in use */
	unsigned int gid_nth;		/* under lock: its place by rank */
	uint16_t lid;			/* under lock: in use */
	/* under lock: dev.gids, dev.active*, dev.lid */

	/* the thread's */
	const struct sf_rdma_handlers *handlers;
	void *arg;
	pthread_t thread;
	bool started;
	int wake_fd;
	atomic_bool stop;
	atomic_uint rounds;		/* odd: inside callbacks */
	atomic_uint round_waiters;
	pthread_cond_t round_over;
	unsigned int spin_us;
};

/* CQ_DEPTH is a wish (0: the smallest); less if the device has less. Errors:
 * -ENODEV, -EACCES, -ENOMEM (says so when it is the limit on locked memory). */
int sf_rdma_context_open(struct sf_rdma_context **out, const char *name,
			 const struct sf_rdma_config *config,
			 unsigned int cq_depth,
			 const struct sf_rdma_handlers *handlers, void *arg,
			 struct sf_err *err);
/* All QPs and MRs are gone before. NULL is fine. */
void sf_rdma_context_close(struct sf_rdma_context *ctx);

/* ibv_reg_mr() with ACCESS, plus relaxed ordering if configured. */
int sf_rdma_context_register(struct sf_rdma_context *ctx, void *base,
			     size_t len, int access, struct ibv_mr **out,
			     struct sf_err *err);

/* The GID in use. */
void sf_rdma_context_gid(struct sf_rdma_context *ctx, struct sf_rdma_gid *out);
/* The LID in use. */
uint16_t sf_rdma_context_lid(struct sf_rdma_context *ctx);
/* Asked for anew, and capped. */
unsigned int sf_rdma_context_mtu(struct sf_rdma_context *ctx);
/* The one in use (NTH 0), or the NTH behind it by rank: for one connection
 * only, as what one peer cannot reach says nothing of others. -ENOENT. */
int sf_rdma_context_nth_gid(struct sf_rdma_context *ctx, unsigned int nth,
			    struct sf_rdma_gid *out);
/* Is GID still in the table, where it was? */
bool sf_rdma_context_has_gid(struct sf_rdma_context *ctx,
			     const struct sf_rdma_gid *gid);

/* Wait until callbacks that are running now have returned. Not from them. */
void sf_rdma_context_sync(struct sf_rdma_context *ctx);

#endif
