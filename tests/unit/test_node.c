/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/node.h"

static struct sf_nodes *table;

static struct sf_node_key buffer(const char *segment, uint64_t addr)
{
	return (struct sf_node_key){ .kind = SF_NODE_BUFFER,
				     .segment = segment,
				     .place = "",
				     .addr = addr,
				     .length = 4096 };
}

static uint64_t always_64(const struct sf_node_key *key)
{
	return 64 + 3;
}

static int set_up(void **state)
{
	return sf_nodes_new(&table, NULL);
}

static int set_up_weak(void **state)
{
	return sf_nodes_new(&table, always_64);
}

static int tear_down(void **state)
{
	sf_nodes_free(table);
	return 0;
}

static struct sf_node *obtain(const struct sf_node_key *key)
{
	struct sf_node *n = NULL;

	assert_int_equal(sf_node_obtain(table, key, NULL, &n), 0);
	return n;
}

static void numbers_are_the_same_in_every_table(void **state)
{
	struct sf_node_key key = buffer("10.0.0.5:15873", 0x7f0000000000);
	struct sf_nodes *other;
	struct sf_node *n = obtain(&key), *m;

	assert_int_equal(sf_nodes_new(&other, NULL), 0);
	assert_int_equal(sf_node_number(other, &key), n->id);
	assert_int_equal(sf_node_obtain(other, &key, NULL, &m), 0);
	assert_int_equal(m->id, n->id);
	sf_nodes_free(other);
	sf_node_put(table, n);
}

static void every_part_of_an_identity_counts(void **state)
{
	struct sf_node_key key = buffer("a", 1), k;
	struct sf_node *n[5];

	n[0] = obtain(&key);
	k = key, k.segment = "b", n[1] = obtain(&k);
	k = key, k.addr = 2, n[2] = obtain(&k);
	k = key, k.length = 8192, n[3] = obtain(&k);
	k = key, k.kind = SF_NODE_LOCATION_BUFFER, n[4] = obtain(&k);
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < i; j++)
			assert_int_not_equal(n[i]->id, n[j]->id);
	for (int i = 0; i < 5; i++)
		sf_node_put(table, n[i]);
	assert_int_equal(sf_nodes_count(table), 0);
}

static void the_root_is_number_one(void **state)
{
	struct sf_node_key key = { .kind = SF_NODE_ROOT,
				   .segment = "",
				   .place = "" };
	struct sf_node *n = obtain(&key);

	assert_int_equal(n->id, SF_NODE_ROOT_ID);
	assert_ptr_equal(sf_node_find(table, &key), n);
	sf_node_put(table, n);
	sf_node_put(table, n);
}

static void a_node_lives_while_either_count_is_there(void **state)
{
	struct sf_node_key key = buffer("a", 1);
	struct sf_node *n = obtain(&key);
	uint64_t id = n->id;

	sf_node_looked_up(table, n);
	sf_node_looked_up(table, n);
	sf_node_put(table, n);
	assert_int_equal(sf_nodes_count(table), 1);
	sf_node_forget(table, id, 1);
	assert_ptr_equal(sf_node_get(table, id), n);
	sf_node_forget(table, id, 1);
	assert_int_equal(sf_nodes_count(table), 1);
	sf_node_put(table, n);
	assert_int_equal(sf_nodes_count(table), 0);
	assert_null(sf_node_get(table, id));
}

/* The kernel is not trusted to count. */
static void forgetting_too_much_is_harmless(void **state)
{
	struct sf_node_key key = buffer("a", 1);
	struct sf_node *n = obtain(&key);
	uint64_t id = n->id;

	sf_node_looked_up(table, n);
	sf_node_forget(table, id, 99);
	assert_int_equal(sf_nodes_count(table), 1);
	sf_node_put(table, n);
	sf_node_forget(table, id, 1);
	assert_int_equal(sf_nodes_count(table), 0);
}

static void same_hash_gets_another_number(void **state)
{
	struct sf_node *n[4], *fifth;
	struct sf_node_key key;

	for (int i = 0; i < 4; i++) {
		key = buffer("a", (uint64_t)i + 1);
		n[i] = obtain(&key);
		assert_int_equal(n[i]->id, 64 + i);
	}
	key = buffer("a", 9);
	assert_int_equal(sf_node_obtain(table, &key, NULL, &fifth), -EEXIST);
	/* One goes; the others keep theirs and are still found. */
	sf_node_put(table, n[1]);
	key = buffer("a", 3);
	assert_ptr_equal(obtain(&key), n[2]);
	sf_node_put(table, n[2]);
	key = buffer("a", 9);
	fifth = obtain(&key);
	assert_int_equal(fifth->id, 65);
	sf_node_put(table, fifth);
	sf_node_put(table, n[0]);
	sf_node_put(table, n[2]);
	sf_node_put(table, n[3]);
	assert_int_equal(sf_nodes_count(table), 0);
}

static void count_one(void *arg, struct sf_node *n)
{
	++*(int *)arg;
	sf_node_put(table, n);
}

static void many_nodes(void **state)
{
	struct sf_node *near = NULL;
	int seen = 0;

	for (uint64_t i = 1; i <= 20000; i++) {
		struct sf_node_key key = buffer("segment", i << 12);
		struct sf_node *n;

		assert_int_equal(sf_node_obtain(table, &key, near, &n), 0);
		sf_node_looked_up(table, n);
		sf_node_put(table, n);
		near = n;
	}
	assert_int_equal(sf_nodes_count(table), 20000);
	assert_int_equal(sf_nodes_each(table, count_one, &seen), 0);
	assert_int_equal(seen, 20000);
	for (uint64_t i = 1; i <= 20000; i++) {
		struct sf_node_key key = buffer("segment", i << 12);
		struct sf_node *n = sf_node_find(table, &key);

		assert_non_null(n);
		assert_string_equal(sf_node_segment(n), "segment");
		sf_node_forget(table, n->id, 1);
		sf_node_put(table, n);
	}
	assert_int_equal(sf_nodes_count(table), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			numbers_are_the_same_in_every_table, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			every_part_of_an_identity_counts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_root_is_number_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			a_node_lives_while_either_count_is_there, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			forgetting_too_much_is_harmless, set_up, tear_down),
		cmocka_unit_test_setup_teardown(same_hash_gets_another_number,
						set_up_weak, tear_down),
		cmocka_unit_test_setup_teardown(many_nodes, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
