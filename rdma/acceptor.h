/* SPDX-License-Identifier: MIT */
/*
 * Who may connect, and what is connected: the rules of protocol section 6.4 and
 * the table of endpoints, one a (own NIC, peer's NIC path). Knows no verbs: how
 * QPs are made is told by a table of functions.
 */
#ifndef SF_RDMA_ACCEPTOR_H
#define SF_RDMA_ACCEPTOR_H

#include <stdint.h>

#include "err.h"
#include "gid.h"
#include "handshake_rdma.h"
#include "rdma/nicpath.h"

struct sf_acceptor;
struct sf_endpoint;

struct sf_acceptor_remote {
	uint8_t gid[SF_GID_BYTES];
	uint16_t lid;
	uint32_t nr_qps;
	const uint32_t *qp_num;
};

struct sf_acceptor_local {
	uint8_t gid[SF_GID_BYTES];
	uint16_t lid;
	uint32_t qp_num[SF_HANDSHAKE_QPS_MAX];	/* as many as the remote's */
};

struct sf_acceptor_ops {
	/* Why NIC takes no connections now; NULL: it does. */
	const char *(*refusal)(void *arg, unsigned int nic);
	/* QPs on NIC towards REMOTE, in RTS. Blocks; several at once. *QPS is
	 * what unmake gets. ENDPOINT is what sf_acceptor_failed() wants. */
	int (*make)(void *arg, unsigned int nic,
		    const struct sf_acceptor_remote *remote,
		    struct sf_endpoint *endpoint,
		    struct sf_acceptor_local *local, void **qps,
		    struct sf_err *err);
	/* They are gone when it returns. With no lock held. */
	void (*unmake)(void *arg, void *qps);
};

struct sf_acceptor_nic {
	const char *name;	/* borrowed */
	unsigned int max_qps;	/* more make the oldest endpoint go */
};

struct sf_acceptor_config {
	const char *server;	/* borrowed */
	const struct sf_acceptor_nic *nics;	/* borrowed */
	unsigned int nr_nics;
	const struct sf_acceptor_ops *ops;
	void *arg;
};

/* A reply and what it points to; it also points into the request. */
struct sf_acceptor_reply {
	struct sf_handshake_rdma msg;
	char path[SF_NICPATH_MAX];
	char gid[SF_GID_TEXT_MAX];
	uint32_t qp_num[SF_HANDSHAKE_QPS_MAX];
	struct sf_err err;	/* of a rejection; code 0: accepted */
};

int sf_acceptor_new(struct sf_acceptor **out,
		    const struct sf_acceptor_config *config);
/* Ends all endpoints; what fails afterwards does no harm. No answer is running
 * or comes later. */
void sf_acceptor_stop(struct sf_acceptor *a);
/* Stops, if that has not been done. No call is running. NULL is fine. */
void sf_acceptor_free(struct sf_acceptor *a);

/* Answer REQUEST: accept, or reject with a sentence. Blocks as make does, and
 * while another request of the same pair is being answered. Thread-safe. */
void sf_acceptor_answer(struct sf_acceptor *a,
			const struct sf_handshake_rdma *request,
			struct sf_acceptor_reply *reply);

/* E's QPs are of no more use: it goes soon. Never blocks, may be called from
 * within make and until unmake returns. */
void sf_acceptor_failed(struct sf_acceptor *a, struct sf_endpoint *e);
/* The same for all endpoints of NIC. */
void sf_acceptor_nic_failed(struct sf_acceptor *a, unsigned int nic);

unsigned int sf_acceptor_count(struct sf_acceptor *a);	/* endpoints */

#endif
