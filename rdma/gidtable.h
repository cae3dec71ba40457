/* SPDX-License-Identifier: MIT */
/*
 * Which entry of a port's GID table to use (protocol section 6.7). Pure: a
 * table in, a position out.
 */
#ifndef SF_RDMA_GIDTABLE_H
#define SF_RDMA_GIDTABLE_H

#include <stdbool.h>
#include <stdint.h>

enum sf_rdma_gid_kind {
	SF_RDMA_GID_IB,
	SF_RDMA_GID_ROCE_V1,
	SF_RDMA_GID_ROCE_V2,
};

struct sf_rdma_gid {
	uint32_t index;		/* in the port's table */
	enum sf_rdma_gid_kind kind;
	uint8_t gid[16];
	char ndev[16];		/* network device, "" none */
};

/* "IB", "RoCE v1", "RoCE v2" */
const char *sf_rdma_gid_kind_name(enum sf_rdma_gid_kind kind);
/* 0 best .. 6; the protocol page's classes. */
unsigned int sf_rdma_gid_rank(const struct sf_rdma_gid *gid);
/* Link-local on Ethernet, or worse: works by luck; worth a warning. */
bool sf_rdma_gid_is_dubious(const struct sf_rdma_gid *gid);

/* Both of IPv4, or neither: over RoCE v2 others do not reach each other. */
bool sf_rdma_gid_same_family(const uint8_t a[16], const uint8_t b[16]);

/* The position in TABLE of the NTH best entry (0: the best), for the retry
 * after a refusal of those before. -ENOENT: there are not so many. */
int sf_rdma_gid_choose(const struct sf_rdma_gid *table, unsigned int nr,
		       unsigned int nth);
/* The position of table index INDEX. -ENOENT: not there, or null. */
int sf_rdma_gid_find(const struct sf_rdma_gid *table, unsigned int nr,
		     uint32_t index);
/* Is GID there, at its index and of its kind? */
bool sf_rdma_gid_is_in(const struct sf_rdma_gid *table, unsigned int nr,
		       const struct sf_rdma_gid *gid);

#endif
