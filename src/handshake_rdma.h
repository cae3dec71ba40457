/* SPDX-License-Identifier: MIT */
/*
 * Connection messages of the handshake channel (protocol section 5.6): request
 * and reply have the same shape. Encoded with exactly the types that Mooncake
 * expects (others abort it), decoded with the same strictness.
 */
#ifndef SF_HANDSHAKE_RDMA_H
#define SF_HANDSHAKE_RDMA_H

#include <stddef.h>
#include <stdint.h>

struct sf_err;

#define SF_HANDSHAKE_QPS_MAX 256	/* more are refused */

enum sf_ready_ack {		/* protocol section 6.5 */
	SF_READY_ACK_ABSENT,
	SF_READY_ACK_FALSE,
	SF_READY_ACK_TRUE,
};

/* As seen from its sender. Strings are never NULL after decoding; NULL is
 * written as "". */
struct sf_handshake_rdma {
	const char *local_nic_path;
	const char *peer_nic_path;
	const char *local_gid;		/* text, gid.h; "": not given */
	const char *reply_msg;		/* not empty in a reply: rejected */
	uint16_t local_lid;
	enum sf_ready_ack ready_ack;
	uint32_t nr_qps;
	const uint32_t *qp_num;

	void *memory;			/* of a decoded one */
};

/*
 * TEXT need not end in a NUL. -ENODATA: it is null, an old peer's way to
 * refuse; -EBADMSG: not JSON, not an object, a member of another type, a QP
 * number that is none or too many of them; -ENOMEM. OUT is untouched on
 * failure.
 */
int sf_handshake_rdma_decode(struct sf_handshake_rdma *out, const char *text,
			     size_t len, struct sf_err *err);
void sf_handshake_rdma_fini(struct sf_handshake_rdma *m);
/* malloc'ed; NULL: out of memory. ready_ack ABSENT leaves the member out. */
char *sf_handshake_rdma_encode(const struct sf_handshake_rdma *m);

#endif
