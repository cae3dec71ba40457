/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <stdlib.h>

#include "segctl_hist.h"

static void quantiles_are_within_a_32nd(void **state)
{
	struct segctl_hist *h = calloc(1, sizeof(*h));

	assert_int_equal(segctl_hist_quantile(h, 500), 0);
	for (uint64_t ns = 1; ns <= 100000; ns++)
		segctl_hist_add(h, ns);
	assert_in_range(segctl_hist_quantile(h, 500), 50000,
			50000 + 50000 / 32);
	assert_in_range(segctl_hist_quantile(h, 990), 99000, 100000);
	assert_int_equal(segctl_hist_quantile(h, 1000), 100000);
	assert_int_equal(segctl_hist_quantile(h, 0), 1);
	assert_int_equal(h->max, 100000);
	free(h);
}

static void extremes_have_a_bucket(void **state)
{
	struct segctl_hist *h = calloc(1, sizeof(*h));

	segctl_hist_add(h, 0);
	assert_int_equal(segctl_hist_quantile(h, 1000), 0);
	segctl_hist_add(h, UINT64_MAX);
	assert_true(segctl_hist_quantile(h, 1000) == UINT64_MAX);
	free(h);
}

static void merging_adds(void **state)
{
	struct segctl_hist *a = calloc(1, sizeof(*a));
	struct segctl_hist *b = calloc(1, sizeof(*b));

	for (int i = 0; i < 90; i++)
		segctl_hist_add(a, 10);
	for (int i = 0; i < 10; i++)
		segctl_hist_add(b, 1000);
	segctl_hist_merge(a, b);
	assert_int_equal(a->nr, 100);
	assert_int_equal(segctl_hist_quantile(a, 900), 10);
	assert_int_equal(segctl_hist_quantile(a, 910), 1000);
	free(a);
	free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quantiles_are_within_a_32nd),
		cmocka_unit_test(extremes_have_a_bucket),
		cmocka_unit_test(merging_adds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
