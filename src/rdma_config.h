/* SPDX-License-Identifier: MIT */
/*
 * What both sides of the RDMA transport are told: plain values, no verbs types.
 * The defaults are Mooncake's, its environment variables included (protocol
 * section 9.3), so that one machine's two programs agree.
 */
#ifndef SF_RDMA_CONFIG_H
#define SF_RDMA_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

struct sf_err;

struct sf_rdma_config {
	char *nics;		/* names, separated by ',' or ':'; malloc'ed;
				 * NULL: every device with an active port */
	const char *filter;	/* of them only these, if there; NULL: all */
	unsigned int gid_index;	/* SF_RDMA_GID_AUTO: by rank */
	unsigned int gid_retries;	/* other GIDs to try after a refusal */
	unsigned int ib_port;	/* of every device, 1..255 */
	unsigned int mtu;	/* cap of the path MTU: 256..4096 */
	unsigned int traffic_class;	/* 0..255 */
	unsigned int service_level;	/* 0..15 */
	unsigned int pkey_index;	/* 0..65535 */
	unsigned int qps;	/* an endpoint, 1..255 */
	size_t slice;		/* bytes a work request, initiator */
	unsigned int max_endpoints;	/* a device, initiator */
	uint64_t max_mr_size;	/* of one registration, exporter; at most what
				 * the devices take */
	unsigned int pause_ms;	/* a pair that failed is left alone for */
	bool relaxed_ordering;
};

/* For an SF_OPT_TABLE row: of any program, and of those that initiate. */
extern const struct sf_option sf_rdma_device_option_table[];
extern const struct sf_option sf_rdma_option_table[];

#define SF_RDMA_GID_AUTO 0xffffffffu
#define SF_RDMA_QPS_MAX 255

/* The defaults, before options are parsed. -EINVAL with a sentence: a variable
 * of the environment has a value that makes no sense. -ENOMEM. */
int sf_rdma_config_init(struct sf_rdma_config *c, struct sf_err *err);
/* What no single option can tell is wrong. -EINVAL with a sentence. */
int sf_rdma_config_check(const struct sf_rdma_config *c, struct sf_err *err);
/* The name of an option that has been given a value; NULL: all are defaults or
 * the environment's. */
const char *sf_rdma_config_option(const struct sf_rdma_config *c);
void sf_rdma_config_fini(struct sf_rdma_config *c);

#endif
