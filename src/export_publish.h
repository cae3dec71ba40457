/* SPDX-License-Identifier: MIT */
/*
 * A name's two keys in the metadata store: taking them, keeping them, giving
 * them back (protocol section 1.7). Who owns a name is told by its rpc_meta: a
 * foreign one whose owner answers is never overwritten.
 * Private to export*.c.
 */
#ifndef SF_EXPORT_PUBLISH_H
#define SF_EXPORT_PUBLISH_H

#include <stdbool.h>

struct sf_blob;
struct sf_err;
struct sf_meta;
struct sf_publish;

struct sf_publish_config {
	struct sf_meta *meta;	/* borrowed */
	const char *name;	/* borrowed until stop */
	const char *segment;	/* copied */
	const char *rpc;	/* borrowed until stop; NULL: none is put */
	unsigned int lease_s;	/* 0: none */
	bool force;
	/* What sf_publish_check() saw: an owner that has been asked. */
	const struct sf_blob *seen_rpc;
};

/*
 * May we have NAME? Call before our own handshake port listens: a dead owner's
 * rpc_meta may name the same port. *SEEN becomes its rpc_meta, or NULL.
 * -EEXIST: its owner answers; errors of sf_meta_get().
 */
int sf_publish_check(struct sf_meta *meta, const char *name, bool force,
		     struct sf_blob **seen, struct sf_err *err);
/* Put both, keep them from now on. -EEXIST; errors of meta.h. Nothing of ours
 * stays in the store on failure. */
int sf_publish_start(struct sf_publish **out,
		     const struct sf_publish_config *config,
		     struct sf_err *err);
/* The descriptor is SEGMENT from now on: copied, and put soon by the thread.
 * Never blocks. -ENOMEM. */
int sf_publish_update(struct sf_publish *p, const char *segment);
/* Remove both, if they are still ours. NULL is fine. */
void sf_publish_stop(struct sf_publish *p);

#endif
