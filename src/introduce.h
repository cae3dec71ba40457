/* SPDX-License-Identifier: MIT */
/*
 * Introducing an initiator. Mooncake targets of releases up to 0.3.10.post2
 * learn where the other side of a handshake is from its descriptor in the
 * store, under the server name of its NIC path, while it waits; and they never
 * look again (protocol section 6.4). So each name gets one device as it is now,
 * and for ever.
 *
 * Such a descriptor has no buffers and no rpc_meta, and its name has a slash:
 * that is nobody's segment, and no listing of segments has it. It ends with
 * its lease, or with the introducer.
 */
#ifndef SF_INTRODUCE_H
#define SF_INTRODUCE_H

struct sf_device;
struct sf_err;
struct sf_introducer;
struct sf_meta;

#define SF_INTRODUCED_MAX 192

/* Asks nothing of META, which is borrowed, until somebody is introduced.
 * -ENOMEM. */
int sf_introducer_new(struct sf_introducer **out, struct sf_meta *meta);
/* Remove what was published. Blocks. NULL is fine. */
void sf_introducer_free(struct sf_introducer *in);

/*
 * The name under which the store has DEV, for NIC paths that are told apart
 * from others by OWNER; published now if it was not yet. Blocks; thread-safe.
 * -EOPNOTSUPP: there is no store (IN is NULL), or it has no leases; errors of
 * sf_meta_put(); -ENOMEM.
 */
int sf_introduce(struct sf_introducer *in, const char *owner,
		 const struct sf_device *dev, char name[SF_INTRODUCED_MAX],
		 struct sf_err *err);

#endif
