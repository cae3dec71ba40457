/* SPDX-License-Identifier: MIT */
/* The figures of a bench, for people and for programs. */
#include "config.h"
#include "segctl_bench.h"

#include <inttypes.h>

#include "options.h"

static const struct { const char *name; unsigned int per_mille; } shown[] = {
	{ "p50", 500 }, { "p90", 900 }, { "p99", 990 }, { "p99.9", 999 },
};
#define NR_SHOWN (sizeof(shown) / sizeof(shown[0]))

static double quantile_us(const struct segctl_bench_result *r,
			  unsigned int per_mille)
{
	return (double)segctl_hist_quantile(&r->hist, per_mille) / 1000;
}

static const char *op_name(const struct segctl *s)
{
	return s->op == BENCH_WRITE ? "write" : "read";
}

static const char *order_name(const struct segctl *s)
{
	return s->order == BENCH_RANDOM ? "random" : "seq";
}

static void print_text(const struct segctl *s,
		       const struct segctl_bench_result *r)
{
	char block[SF_SIZE_TEXT_MAX], split[SF_SIZE_TEXT_MAX];
	char splice[SF_SIZE_TEXT_MAX];

	sf_format_size(block, s->block);
	sf_format_size(split, s->core.split);
	sf_format_size(splice, s->core.splice);
	printf("%s %s block=%s depth=%u jobs=%u lanes=%u split=%s splice=%s "
	       "seconds=%.2f\n", op_name(s), order_name(s), block, s->depth,
	       s->jobs, s->core.lanes, split, splice, r->seconds);
	printf("%.1f MB/s, %.0f ops/s, %" PRIu64 " transfers\n", r->mb_per_s,
	       r->ops_per_s, r->hist.nr);
	fputs("latency in us:", stdout);
	for (size_t i = 0; i < NR_SHOWN; i++)
		printf(" %s %.1f", shown[i].name,
		       quantile_us(r, shown[i].per_mille));
	printf(" max %.1f\n", (double)r->hist.max / 1000);
}

static void print_json(const struct segctl *s,
		       const struct segctl_bench_result *r)
{
	printf("{\"op\":\"%s\",\"offset_mode\":\"%s\",\"block\":%zu,"
	       "\"depth\":%u,\"jobs\":%u,\"lanes\":%u,\"split\":%zu,"
	       "\"splice\":%zu,\"seconds\":%.3f,\"transfers\":%" PRIu64
	       ",\"mb_per_s\":%.1f,\"ops_per_s\":%.0f,\"latency_us\":{",
	       op_name(s), order_name(s), s->block, s->depth, s->jobs,
	       s->core.lanes, s->core.split, s->core.splice, r->seconds,
	       r->hist.nr, r->mb_per_s, r->ops_per_s);
	for (size_t i = 0; i < NR_SHOWN; i++)
		printf("\"%s\":%.1f,", shown[i].name,
		       quantile_us(r, shown[i].per_mille));
	printf("\"max\":%.1f}}\n", (double)r->hist.max / 1000);
}

void segctl_bench_print(const struct segctl *s,
			const struct segctl_bench_result *r)
{
	if (s->json)
		print_json(s, r);
	else
		print_text(s, r);
}
