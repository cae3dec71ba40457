/* SPDX-License-Identifier: MIT */
/*
 * What the exporter does for RDMA beyond serving: registering its pieces of
 * memory, describing devices, keys and matrix, and Connection requests. Private
 * to export*.c.
 */
#ifndef SF_EXPORT_RDMA_H
#define SF_EXPORT_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_buffer;
struct sf_err;
struct sf_export_rdma;
struct sf_meta;
struct sf_rdma_config;
struct sf_rdma_region;
struct sf_segment;

struct sf_export_rdma_config {
	const struct sf_rdma_config *rdma;	/* borrowed until close */
	const char *server;
	struct sf_meta *meta;	/* borrowed; where old peers' GIDs are */
	bool affinity;
	void (*changed)(void *arg);	/* as struct sf_rdma_target_config's */
	void *arg;
};

/* -EOPNOTSUPP: this build has no RDMA; and the errors of rdma_target.h. */
int sf_export_rdma_open(struct sf_export_rdma **out,
			const struct sf_export_rdma_config *config,
			struct sf_err *err);
void sf_export_rdma_close(struct sf_export_rdma *r);	/* NULL is fine */

/* The longest piece that can be registered. */
uint64_t sf_export_rdma_max_length(struct sf_export_rdma *r);
/* Register all of them, once; LOCATIONS are theirs and borrowed. */
int sf_export_rdma_register(struct sf_export_rdma *r,
			    const struct sf_rdma_region *regions,
			    const char *const *locations, size_t nr,
			    struct sf_err *err);

/*
 * The descriptor of SEG, whose buffers are the regions in their order, as the
 * devices are now. malloc'ed; NULL: out of memory. Thread-safe.
 */
char *sf_export_rdma_encode(struct sf_export_rdma *r, struct sf_segment *seg,
			    struct sf_buffer *buffers);

/* The reply to a Connection request; malloc'ed. Blocks. R may be NULL. */
char *sf_export_rdma_answer(struct sf_export_rdma *r, const char *body,
			    size_t len);

#endif
