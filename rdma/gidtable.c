/* SPDX-License-Identifier: MIT */
/*
 * The ranking of GIDs: see gidtable.h. Pure, no state. A GID that leads to a
 * network that others can reach comes first; what containers and tunnels made,
 * and link-local addresses, come last.
 */
#include "config.h"
#include "rdma/gidtable.h"

#include <errno.h>
#include <string.h>

enum {
	RANK_NDEV,
	RANK_PLAIN,
	RANK_NDEV_PRIVATE,
	RANK_NDEV_DEGRADED,
	RANK_PRIVATE,
	RANK_DEGRADED,
	RANK_LAST,
};

const char *sf_rdma_gid_kind_name(enum sf_rdma_gid_kind kind)
{
	switch (kind) {
	case SF_RDMA_GID_IB:
		return "IB";
	case SF_RDMA_GID_ROCE_V1:
		return "RoCE v1";
	case SF_RDMA_GID_ROCE_V2:
		break;
	}
	return "RoCE v2";
}

static bool is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid, mapped, sizeof(mapped));
}

bool sf_rdma_gid_same_family(const uint8_t a[16], const uint8_t b[16])
{
	return is_v4(a) == is_v4(b);
}

/* An IPv4-mapped address of 10/8, 172.16/12 or 100.64/10. */
static bool is_private_v4(const uint8_t gid[16])
{
	if (!is_v4(gid))
		return false;
	return gid[12] == 10 || (gid[12] == 172 && gid[13] >> 4 == 1) ||
	       (gid[12] == 100 && gid[13] >> 6 == 1);
}

static bool is_virtual(const char *ndev)
{
	static const char *const prefixes[] = { "flannel", "cni", "calico",
						"vxlan", "docker" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(ndev, prefixes[i], strlen(prefixes[i])))
			return true;
	return !strcmp(ndev, "tunl0");
}

unsigned int sf_rdma_gid_rank(const struct sf_rdma_gid *gid)
{
	bool ndev = *gid->ndev;

	if (gid->kind == SF_RDMA_GID_ROCE_V1)
		return RANK_LAST;
	/* The subnet prefix of most InfiniBand fabrics looks link-local. */
	if (gid->kind == SF_RDMA_GID_IB)
		return ndev ? RANK_NDEV : RANK_PLAIN;
	if (is_virtual(gid->ndev) || is_link_local(gid->gid))
		return ndev ? RANK_NDEV_DEGRADED : RANK_DEGRADED;
	if (is_private_v4(gid->gid))
		return ndev ? RANK_NDEV_PRIVATE : RANK_PRIVATE;
	return ndev ? RANK_NDEV : RANK_PLAIN;
}

bool sf_rdma_gid_is_dubious(const struct sf_rdma_gid *gid)
{
	return gid->kind == SF_RDMA_GID_ROCE_V1 ||
	       (gid->kind == SF_RDMA_GID_ROCE_V2 && is_link_local(gid->gid));
}

static bool is_before(const struct sf_rdma_gid *a, const struct sf_rdma_gid *b)
{
	unsigned int ra = sf_rdma_gid_rank(a), rb = sf_rdma_gid_rank(b);

	return ra != rb ? ra < rb : a->index < b->index;
}

int sf_rdma_gid_choose(const struct sf_rdma_gid *table, unsigned int nr,
		       unsigned int nth)
{
	/* The one that exactly NTH others are better than. */
	for (unsigned int i = 0; i < nr; i++) {
		unsigned int better = 0;

		for (unsigned int k = 0; k < nr; k++)
			better += k != i && is_before(&table[k], &table[i]);
		if (better == nth)
			return (int)i;
	}
	return -ENOENT;
}

int sf_rdma_gid_find(const struct sf_rdma_gid *table, unsigned int nr,
		     uint32_t index)
{
	for (unsigned int i = 0; i < nr; i++)
		if (table[i].index == index)
			return (int)i;
	return -ENOENT;
}

bool sf_rdma_gid_is_in(const struct sf_rdma_gid *table, unsigned int nr,
		       const struct sf_rdma_gid *gid)
{
	int i = sf_rdma_gid_find(table, nr, gid->index);

	return i >= 0 && table[i].kind == gid->kind &&
	       !memcmp(table[i].gid, gid->gid, sizeof(gid->gid));
}
