/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <string.h>

#include "gid.h"
#include "segment.h"
#include "topology.h"

static void assert_location(const char *text, enum sf_location_kind kind,
			    uint32_t number)
{
	struct sf_location loc = sf_location_parse(text);

	if (loc.kind != kind || loc.number != number)
		fail_msg("\"%s\": kind %d, number %u", text, loc.kind,
			 loc.number);
}

static void locations_are_told_apart(void **state)
{
	assert_location("cpu:0", SF_LOCATION_CPU, 0);
	assert_location("cpu:13", SF_LOCATION_CPU, 13);
	assert_location("cpu:4294967295", SF_LOCATION_CPU, UINT32_MAX);
	assert_location("cuda:1", SF_LOCATION_ACCEL, 1);
	assert_location("hip:2", SF_LOCATION_ACCEL, 2);
	assert_location("musa:3", SF_LOCATION_ACCEL, 3);
	assert_location("maca:4", SF_LOCATION_ACCEL, 4);
	assert_location("mlu:5", SF_LOCATION_ACCEL, 5);
	assert_location("npu:6", SF_LOCATION_ACCEL, 6);
	assert_location("supa:7", SF_LOCATION_ACCEL, 7);
	assert_location("segments:4096:0,1", SF_LOCATION_STRIPED, 0);
	assert_location("segments:4096:,,3,", SF_LOCATION_STRIPED, 0);
}

static void unknown_locations_are_any(void **state)
{
	static const char *const texts[] = {
		"", "*", "cpu:", "cpu", "cpu:x", "cpu:1x", "cpu:-1", "cpu: 1",
		"CPU:0", "cpu:4294967296", "10.0.0.5:15873", "gpu:0",
		"segments:", "segments:0:", "segments:4096", "segments:4096:x",
		"segments::0,1", "segments:4k:0", "segments:4096:0,x",
		"segments:4096:0 ,1", "segments:4096:,",
		"segments:4096:4294967296",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_location(texts[i], SF_LOCATION_ANY, 0);
}

static void endless_stripes_are_unknown_text(void **state)
{
	char text[8192] = "segments:4096:";

	while (strlen(text) < 6000)
		strcat(text, "0,");
	assert_location(text, SF_LOCATION_ANY, 0);
	text[2000] = '\0';
	assert_location(text, SF_LOCATION_STRIPED, 0);
}

static void stripes_resolve_by_offset(void **state)
{
	static const char text[] = "segments:4096:0,,5,2";
	char out[32];

	assert_string_equal(sf_location_at(text, 0, 9001, out), "cpu:0");
	assert_string_equal(sf_location_at(text, 2999, 9001, out), "cpu:0");
	assert_string_equal(sf_location_at(text, 3000, 9001, out), "cpu:5");
	assert_string_equal(sf_location_at(text, 6000, 9001, out), "cpu:2");
	/* 9001 / 3 leaves one byte: it is the last node's */
	assert_string_equal(sf_location_at(text, 9000, 9001, out), "cpu:2");
	assert_string_equal(sf_location_at(text, 0, 2, out), "*");
	assert_string_equal(sf_location_at("segments:1:4294967295",
					   UINT64_MAX, UINT64_MAX, out),
			    "cpu:4294967295");
}

static void other_texts_are_their_own_location(void **state)
{
	static const char *const texts[] = { "cpu:1", "*", "", "segments:",
					     "segments:0:", "segments:1:a" };
	char out[32];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_ptr_equal(sf_location_at(texts[i], 5, 10, out),
				 texts[i]);
}

/* ---- choosing ---- */

static const struct sf_device devices[] = {
	{ .name = "nic2", .has_gid = true },
	{ .name = "nic3", .has_gid = true },
	{ .name = "nic0", .has_gid = true },
	{ .name = "nic1", .has_gid = true },
	{ .name = "dead", .has_gid = false },
	{ .name = "spare", .has_gid = true },
	{ .name = "", .has_gid = false },
};

#define NR_DEVICES 7

static const char *const row_cpu0[] = { "nic0", "nic1", "nic2", "nic3" };
static const char *const row_cpu1[] = { "nic3", "gone", "nic3", "dead", "nic3",
					"nic2" };
static const char *const row_none[] = { "dead", "gone", "" };
static const struct sf_topology_row rows[] = {
	{ "cpu:0", 1, 1, row_cpu1 },	/* the later one counts */
	{ "cpu:0", 4, 2, row_cpu0 },
	{ "cpu:1", 6, 4, row_cpu1 },
	{ "cpu:2", 4, 0, row_cpu0 },
	{ "cpu:3", 3, 2, row_none },
	{ "cpu:4", 0, 0, NULL },
};
static const struct sf_topology topo = { 6, rows };

static void assert_choice(const struct sf_topology *t, const char *location,
			  uint32_t preferred, uint32_t nr, const uint32_t *want)
{
	uint32_t out[NR_DEVICES], nr_preferred;

	assert_int_equal(sf_topology_choose(t, location, devices, NR_DEVICES,
					    out, NR_DEVICES, &nr_preferred),
			 nr);
	assert_int_equal(nr_preferred, preferred);
	assert_memory_equal(out, want, nr * sizeof(*want));
}

static void devices_are_matched_by_name(void **state)
{
	assert_choice(&topo, "cpu:0", 2, 4, (uint32_t[]){ 2, 3, 0, 1 });
}

static void unknown_dead_and_repeated_devices_are_skipped(void **state)
{
	assert_choice(&topo, "cpu:1", 1, 2, (uint32_t[]){ 1, 0 });
}

static void an_empty_first_list_prefers_none(void **state)
{
	assert_choice(&topo, "cpu:2", 0, 4, (uint32_t[]){ 2, 3, 0, 1 });
}

/* "spare" is in no row: what is mentioned comes first. */
static void other_locations_get_all_devices(void **state)
{
	static const uint32_t all[] = { 1, 2, 3, 0, 5 };

	assert_choice(&topo, "*", 4, 5, all);
	assert_choice(&topo, "", 4, 5, all);
	assert_choice(&topo, "cuda:0", 4, 5, all);
	assert_choice(&topo, "cpu:3", 4, 5, all);
	assert_choice(&topo, "cpu:4", 4, 5, all);
}

static void without_a_usable_matrix_all_are_preferred(void **state)
{
	static const struct sf_topology none = { 0, NULL };
	static const struct sf_topology useless = { 1, &rows[4] };
	static const uint32_t all[] = { 0, 1, 2, 3, 5 };

	assert_choice(NULL, "cpu:0", 5, 5, all);
	assert_choice(&none, "cpu:0", 5, 5, all);
	assert_choice(&useless, "cpu:3", 5, 5, all);
}

static void the_room_is_respected(void **state)
{
	uint32_t out[3] = { 9, 9, 9 }, preferred;

	assert_int_equal(sf_topology_choose(&topo, "cpu:0", devices,
					    NR_DEVICES, out, 1, &preferred), 1);
	assert_int_equal(preferred, 1);
	assert_int_equal(out[1], 9);
	assert_int_equal(sf_topology_choose(&topo, "*", devices, NR_DEVICES,
					    out, 0, &preferred), 0);
	assert_int_equal(sf_topology_choose(&topo, "*", devices, 0, out, 3,
					    &preferred), 0);
	assert_int_equal(preferred, 0);
}

/* ---- GIDs ---- */

static void gids_have_sixteen_bytes(void **state)
{
	static const uint8_t want[16] = { [10] = 0xff, 0xff, 0x0a, 0, 0, 5 };
	uint8_t gid[16] = { 0 };
	char text[SF_GID_TEXT_MAX];

	assert_int_equal(sf_gid_parse("00:00:00:00:00:00:00:00:00:00:ff:ff:0a:"
				      "00:00:05", gid), 0);
	assert_memory_equal(gid, want, 16);
	memset(gid, 0, 16);
	assert_int_equal(sf_gid_parse("0:0:0:0:0:0:0:0:0:0:FF:fF:A:0:0:5",
				      gid), 0);
	assert_memory_equal(gid, want, 16);
	sf_gid_format(text, gid);
	assert_string_equal(text, "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:"
				  "00:05");
	assert_false(sf_gid_is_zero(gid));
	memset(gid, 0, 16);
	assert_true(sf_gid_is_zero(gid));
}

static void other_gids_are_refused(void **state)
{
	static const char *const bad[] = {
		"", "fe80::1", "::", "1:2:3:4:5:6:7:8:9:a:b:c:d:e:f",
		"1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:", "1:2:3:4:5:6:7:8:9:a:b:c:d:e:"
		"f:10:11", "zz:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10",
		"1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10\n",
		"001:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10",
		" 1:2:3:4:5:6:7:8:9:a:b:c:d:e:f:10",
		"0102030405060708090a0b0c0d0e0f10",
	};
	uint8_t gid[16] = { 7 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_true(sf_gid_parse(bad[i], gid) < 0);
	assert_int_equal(gid[0], 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locations_are_told_apart),
		cmocka_unit_test(unknown_locations_are_any),
		cmocka_unit_test(endless_stripes_are_unknown_text),
		cmocka_unit_test(stripes_resolve_by_offset),
		cmocka_unit_test(other_texts_are_their_own_location),
		cmocka_unit_test(devices_are_matched_by_name),
		cmocka_unit_test(unknown_dead_and_repeated_devices_are_skipped),
		cmocka_unit_test(an_empty_first_list_prefers_none),
		cmocka_unit_test(other_locations_get_all_devices),
		cmocka_unit_test(without_a_usable_matrix_all_are_preferred),
		cmocka_unit_test(the_room_is_respected),
		cmocka_unit_test(gids_have_sixteen_bytes),
		cmocka_unit_test(other_gids_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
