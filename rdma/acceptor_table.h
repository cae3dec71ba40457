/* SPDX-License-Identifier: MIT */
/*
 * The endpoints of an acceptor: who is connected, who is being, who has to go.
 * For acceptor.c only, which has the rules of who may. Thread-safe.
 */
#ifndef SF_RDMA_ACCEPTOR_TABLE_H
#define SF_RDMA_ACCEPTOR_TABLE_H

#include <stdbool.h>

#include "rdma/acceptor.h"

const struct sf_acceptor_config *
sf_acceptor_config(const struct sf_acceptor *a);

/* Is there a ready endpoint of REQUEST's pair and QPs? */
bool sf_acceptor_is_connected(struct sf_acceptor *a, unsigned int nic,
			      const struct sf_handshake_rdma *request);

/*
 * The place of REQUEST's pair in the table, for which older endpoints go if
 * there is no room. *OUT NULL: the endpoint of its QPs at REMOTE is there, and
 * *LOCAL says with which of ours. Else the caller has to build *OUT at once:
 * others wait for that. Blocks while another request of the pair is being
 * answered, and until there is room. -ENOMEM.
 */
int sf_acceptor_take_place(struct sf_acceptor *a, unsigned int nic,
			   const struct sf_handshake_rdma *request,
			   const struct sf_acceptor_remote *remote,
			   struct sf_acceptor_local *local,
			   struct sf_endpoint **out);
/* Make its QPs: E is ready, and *LOCAL says with which, or ERR is set and E
 * dropped. Blocks as make does. */
void sf_acceptor_build(struct sf_acceptor *a, struct sf_endpoint *e,
		       const struct sf_acceptor_remote *remote,
		       struct sf_acceptor_local *local, struct sf_err *err);

#endif
