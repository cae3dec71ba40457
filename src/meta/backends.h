/* SPDX-License-Identifier: MIT */
/* The ops of every metadata backend; meta.c lists them. */
#ifndef SF_META_BACKENDS_H
#define SF_META_BACKENDS_H

#include "meta.h"

extern const struct sf_meta_ops sf_meta_etcd;
extern const struct sf_meta_ops sf_meta_etcds;	/* the same, TLS a must */

#endif
