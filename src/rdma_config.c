/* SPDX-License-Identifier: MIT */
/*
 * Defaults of the RDMA transport and the variables of Mooncake that change
 * them: see rdma_config.h. Knows no verbs; built whether or not there are any.
 */
#include "config.h"
#include "rdma_config.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "options.h"

#define SLICE_DEFAULT (64u << 10)

#define FIELD(f) .offset = offsetof(struct sf_rdma_config, f)

const struct sf_option sf_rdma_device_option_table[] = {
	{ .name = "nic", .type = SF_OPT_STRING, FIELD(nics), .value = "NAMES",
	  .help = "RDMA devices, separated by colons (default: all)" },
	{ .name = "gid_index", .type = SF_OPT_UINT, FIELD(gid_index),
	  .max = 255, .value = "N",
	  .help = "entry of their GID tables (default: by rank)" },
	{ .name = "ib_port", .type = SF_OPT_UINT, FIELD(ib_port), .min = 1,
	  .max = 255, .value = "N",
	  .help = "port of each RDMA device (default 1)" },
	{ .name = "mtu", .type = SF_OPT_UINT, FIELD(mtu), .min = 256,
	  .max = 4096, .value = "BYTES",
	  .help = "RDMA: at most this path MTU (default 4096)" },
	{ .name = "traffic_class", .type = SF_OPT_UINT, FIELD(traffic_class),
	  .max = 255, .value = "N", .help = "of RDMA packets (default 0)" },
	{ .name = "service_level", .type = SF_OPT_UINT, FIELD(service_level),
	  .max = 15, .value = "N", .help = "of RDMA packets (default 0)" },
	{ .name = "pkey_index", .type = SF_OPT_UINT, FIELD(pkey_index),
	  .max = 65535, .value = "N",
	  .help = "entry of the partition key table (default 0)" },
	{ 0 }
};

const struct sf_option sf_rdma_option_table[] = {
	{ .name = "devices", .type = SF_OPT_TABLE,
	  .table = sf_rdma_device_option_table },
	{ .name = "slice", .type = SF_OPT_SIZE, FIELD(slice), .min = 4096,
	  .max = 1 << 30, .value = "BYTES",
	  .help = "largest RDMA work request (default 64K)" },
	/* For tests. */
	{ .name = "qps", .type = SF_OPT_UINT, FIELD(qps), .min = 1,
	  .max = SF_RDMA_QPS_MAX },
	{ .name = "endpoints", .type = SF_OPT_UINT, FIELD(max_endpoints),
	  .min = 1, .max = 4096 },
	{ .name = "pair_pause", .type = SF_OPT_SECONDS, FIELD(pause_ms),
	  .min = 1, .max = 3600000 },
	{ 0 }
};

/* Mooncake ignores a value that it does not like; we would rather say so. */
static int from_env(const char *name, uint64_t min, uint64_t max,
		    uint64_t *value, struct sf_err *err)
{
	const char *text = getenv(name);
	uint64_t v;

	if (!text || !*text)
		return 0;
	if (sf_parse_u64(text, &v) || v < min || v > max)
		return sf_err_set(err, -EINVAL,
				  "environment variable %s=%s: not a number "
				  "from %llu to %llu", name, text,
				  (unsigned long long)min,
				  (unsigned long long)max);
	*value = v;
	return 0;
}

struct variable {
	const char *name;
	unsigned int *field;
	uint64_t min, max;
};

static int read_numbers(struct sf_rdma_config *c, struct sf_err *err)
{
	const struct variable table[] = {
		{ "NCCL_IB_GID_INDEX", &c->gid_index, 0, 255 },
		{ "MC_GID_INDEX", &c->gid_index, 0, 255 },
		{ "MC_AUTO_GID_MAX_RETRIES", &c->gid_retries, 0, 16 },
		{ "MC_IB_PORT", &c->ib_port, 1, 255 },
		{ "MC_MTU", &c->mtu, 256, 4096 },
		{ "MC_IB_TC", &c->traffic_class, 0, 255 },
		{ "MC_IB_SL", &c->service_level, 0, 15 },
		{ "MC_PKEY_INDEX", &c->pkey_index, 0, 65535 },
		{ "MC_NUM_QP_PER_EP", &c->qps, 1, SF_RDMA_QPS_MAX },
	};
	uint64_t v;
	int ret;

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		v = *table[i].field;
		/* -1 is how both say: choose. */
		if (table[i].field == &c->gid_index && getenv(table[i].name) &&
		    !strcmp(getenv(table[i].name), "-1"))
			continue;
		ret = from_env(table[i].name, table[i].min, table[i].max, &v,
			       err);
		if (ret)
			return ret;
		*table[i].field = (unsigned int)v;
	}
	return 0;
}

static int read_environment(struct sf_rdma_config *c, struct sf_err *err)
{
	const char *filters = getenv("MC_TE_FILTERS");
	uint64_t relaxed = 1, pause_s = c->pause_ms / 1000;
	int ret = read_numbers(c, err);

	if (!ret)
		ret = from_env("MC_RDMA_RAIL_PAUSE_SECONDS", 1, 3599, &pause_s,
			       err);
	if (!ret)
		ret = from_env("MC_IB_PCI_RELAXED_ORDERING", 0, 2, &relaxed,
			       err);
	if (!ret)
		ret = from_env("MC_MAX_MR_SIZE", 1, UINT64_MAX, &c->max_mr_size,
			       err);
	if (ret)
		return ret;
	c->pause_ms = (unsigned int)pause_s * 1000;
	c->relaxed_ordering = relaxed;
	if (filters && *filters)
		c->filter = filters;
	return 0;
}

int sf_rdma_config_init(struct sf_rdma_config *c, struct sf_err *err)
{
	*c = (struct sf_rdma_config){
		.gid_index = SF_RDMA_GID_AUTO,
		.gid_retries = 2,
		.ib_port = 1,
		.mtu = 4096,
		.qps = 2,
		.slice = SLICE_DEFAULT,
		.max_endpoints = 256,
		.max_mr_size = UINT64_C(1) << 40,
		.pause_ms = 30000,
		.relaxed_ordering = true,
	};
	return read_environment(c, err);
}

int sf_rdma_config_check(const struct sf_rdma_config *c, struct sf_err *err)
{
	if (c->mtu & (c->mtu - 1))
		return sf_err_set(err, -EINVAL,
				  "mtu=%u: not one of 256, 512, 1024, 2048, "
				  "4096", c->mtu);
	return 0;
}

const char *sf_rdma_config_option(const struct sf_rdma_config *c)
{
	struct sf_rdma_config d;

	if (c->nics)
		return "nic";
	if (sf_rdma_config_init(&d, NULL))
		return NULL;
	return c->gid_index != d.gid_index ? "gid_index" :
	       c->ib_port != d.ib_port ? "ib_port" :
	       c->mtu != d.mtu ? "mtu" :
	       c->traffic_class != d.traffic_class ? "traffic_class" :
	       c->service_level != d.service_level ? "service_level" :
	       c->pkey_index != d.pkey_index ? "pkey_index" :
	       c->slice != d.slice ? "slice" : NULL;
}

void sf_rdma_config_fini(struct sf_rdma_config *c)
{
	free(c->nics);
	c->nics = NULL;
}
