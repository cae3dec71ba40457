/* SPDX-License-Identifier: MIT */
/* What errors mean: see verdict.h. Pure, no state. */
#include "config.h"
#include "rdma/verdict.h"

#include <errno.h>

#define MTU_LEAST 256
#define MTU_ETHERNET 1024

int sf_rdma_verdict_connect(enum sf_rdma_stage stage, int code)
{
	switch (code) {
	case -ENOMEM:
	case -ENODEV:
	case -ETIMEDOUT:
	case -ENETUNREACH:
	case -EHOSTUNREACH:
		return code;
	case -ECONNREFUSED:
	case -EPROTO:
		return stage < SF_RDMA_INIT ? code : -EHOSTUNREACH;
	default:
		return -EHOSTUNREACH;
	}
}

int sf_rdma_verdict_completion(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
		return -EREMOTEIO;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return -EIO;
	default:
		return 0;
	}
}

bool sf_rdma_verdict_mtu(enum ibv_wc_status status, unsigned int mtu,
			 unsigned int *cap)
{
	switch (status) {
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_LOC_LEN_ERR:
		*cap = mtu > MTU_LEAST ? mtu / 2 : 0;
		return *cap;
	case IBV_WC_RETRY_EXC_ERR:
		/* More often it is something else, so try only the one that
		 * Ethernet without jumbo frames has. */
		*cap = mtu > MTU_ETHERNET ? MTU_ETHERNET : 0;
		return *cap;
	default:
		return false;
	}
}
