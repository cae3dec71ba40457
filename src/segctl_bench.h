/* SPDX-License-Identifier: MIT */
/* What a bench has found out, and its printing. */
#ifndef SF_SEGCTL_BENCH_H
#define SF_SEGCTL_BENCH_H

#include "segctl.h"
#include "segctl_hist.h"

struct segctl_bench_result {
	double seconds, mb_per_s, ops_per_s;
	struct segctl_hist hist;
};

/* On stdout, as text or as JSON. */
void segctl_bench_print(const struct segctl *s,
			const struct segctl_bench_result *r);

#endif
