/* SPDX-License-Identifier: MIT */
/* What an exporter publishes as priority matrix, read as Mooncake reads it. */
#include "unit.h"

#include <string.h>

#include "export_matrix.h"

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static const struct sf_export_nic four[] = {
	{ "nic0", 0 }, { "nic1", 1 }, { "nic2", 0 }, { "nic3", -1 },
};

/* Number the names as a reader does that walks the rows from the last to the
 * first (or the reverse): device i must be the one published as i. */
static void expect_numbering(const struct sf_export_matrix *m,
			     const struct sf_export_nic *nics, uint32_t nr,
			     bool reverse)
{
	uint32_t nr_rows = m->topology.nr_rows, seen = 0;
	const char *numbered[8];

	for (uint32_t i = 0; i < nr_rows; i++) {
		const struct sf_topology_row *r =
			&m->topology.rows[reverse ? nr_rows - 1 - i : i];

		assert_int_equal(r->nr_names, nr);
		for (uint32_t j = 0; j < r->nr_names; j++) {
			uint32_t k = 0;

			while (k < seen && strcmp(numbered[k], r->names[j]))
				k++;
			if (k == seen)
				numbered[seen++] = r->names[j];
		}
	}
	assert_int_equal(seen, nr);
	for (uint32_t i = 0; i < nr; i++)
		assert_string_equal(numbered[i], nics[m->order[i]].name);
}

static const struct sf_topology_row *row(const struct sf_export_matrix *m,
					 const char *location)
{
	for (uint32_t i = 0; i < m->topology.nr_rows; i++)
		if (!strcmp(m->topology.rows[i].location, location))
			return &m->topology.rows[i];
	return NULL;
}

static void all_are_alike_by_default(void **state)
{
	static const char *const locations[] = {
		"cuda:1", "*", "cpu:1", "cuda:1", "segments:4096:0,1",
		"here", "",
	};
	static const char *const want[] = { "cpu:0", "cpu:1", "cuda:1",
					    "here" };
	struct sf_export_matrix m;

	assert_int_equal(sf_export_matrix_init(&m, four, 4, 2, locations,
					       NR(locations), false), 0);
	assert_false(m.affinity);
	assert_int_equal(m.topology.nr_rows, NR(want));
	for (uint32_t i = 0; i < NR(want); i++) {
		assert_string_equal(m.topology.rows[i].location, want[i]);
		assert_int_equal(m.topology.rows[i].nr_preferred, 4);
	}
	expect_numbering(&m, four, 4, true);
	expect_numbering(&m, four, 4, false);
	sf_export_matrix_fini(&m);
}

static void affinity_follows_the_walk(void **state)
{
	static const char *const locations[] = { "cpu:0", "*",
						 "segments:4096:0,1" };
	const struct sf_topology_row *r;
	struct sf_export_matrix m;

	assert_int_equal(sf_export_matrix_init(&m, four, 4, 2, locations, 3,
					       true), 0);
	assert_true(m.affinity);
	r = row(&m, "cpu:0");
	assert_int_equal(r->nr_preferred, 3);
	assert_string_equal(r->names[0], "nic0");
	assert_string_equal(r->names[1], "nic2");
	assert_string_equal(r->names[2], "nic3");
	assert_string_equal(r->names[3], "nic1");
	r = row(&m, "cpu:1");
	assert_int_equal(r->nr_preferred, 2);
	assert_string_equal(r->names[0], "nic1");
	assert_string_equal(r->names[1], "nic3");
	expect_numbering(&m, four, 4, true);
	sf_export_matrix_fini(&m);
}

/* Where nobody knows which row comes first, all are alike. */
static void no_affinity_where_the_walk_is_unknown(void **state)
{
	static const struct {
		const char *location;
		unsigned int nr_nodes;
	} list[] = {
		{ "cuda:0", 2 },	/* another kind of key */
		{ "cpu:5", 2 },		/* a gap */
		{ "*", 5 },		/* too many */
		{ "*", 1 },		/* nothing to prefer */
	};
	static const struct sf_export_nic unknown[] = {
		{ "nic0", -1 }, { "nic1", -1 },
	};
	struct sf_export_matrix m;

	for (size_t i = 0; i < NR(list); i++) {
		assert_int_equal(sf_export_matrix_init(&m, four, 4,
						       list[i].nr_nodes,
						       &list[i].location, 1,
						       true), 0);
		assert_false(m.affinity);
		expect_numbering(&m, four, 4, true);
		expect_numbering(&m, four, 4, false);
		sf_export_matrix_fini(&m);
	}
	assert_int_equal(sf_export_matrix_init(&m, unknown, 2, 2, NULL, 0,
					       true), 0);
	assert_false(m.affinity);
	assert_int_equal(m.topology.nr_rows, 2);
	sf_export_matrix_fini(&m);
}

static void one_nic_is_no_matter(void **state)
{
	static const struct sf_export_nic one = { "nic0", 1 };
	struct sf_export_matrix m;

	assert_int_equal(sf_export_matrix_init(&m, &one, 1, 2, NULL, 0, true),
			 0);
	expect_numbering(&m, &one, 1, true);
	assert_int_equal(row(&m, "cpu:0")->nr_preferred, 0);
	sf_export_matrix_fini(&m);
	assert_int_equal(sf_export_matrix_init(&m, &one, 1, 1, NULL, 0, false),
			 0);
	assert_int_equal(m.topology.nr_rows, 1);
	sf_export_matrix_fini(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_alike_by_default),
		cmocka_unit_test(affinity_follows_the_walk),
		cmocka_unit_test(no_affinity_where_the_walk_is_unknown),
		cmocka_unit_test(one_nic_is_no_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
