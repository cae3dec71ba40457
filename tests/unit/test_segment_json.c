/* SPDX-License-Identifier: MIT */
#include "unit_segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "topology.h"

#define BUF "{\"name\":\"cpu:0\",\"addr\":140000000000000,\"length\":8192}"
#define RBUF(addr, keys)                                            \
	"{\"name\":\"cpu:0\",\"addr\":" addr ",\"length\":4096,"    \
	"\"rkey\":" keys ",\"lkey\":" keys "}"
#define TWO_DEVICES DEVICE("nic0", GID_A) "," DEVICE("nic1", GID_B)

/* What a running Mooncake published. */
static const char recorded_rdma[] =
	"{\"buffers\":[{\"addr\":140414897520640,\"length\":16777216,"
	"\"lkey\":[607,742],\"name\":\"*\",\"rkey\":[607,742]}],\"devices\":["
	"{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01\","
	"\"lid\":0,\"name\":\"rxe0\"},{\"gid\":\"00:00:00:00:00:00:00:00:00:00:"
	"ff:ff:0a:09:00:02\",\"lid\":0,\"name\":\"rxe1\"}],\"name\":"
	"\"10.9.0.1:15252\",\"priority_matrix\":{\"cpu:0\":[[],[\"rxe0\","
	"\"rxe1\"]],\"cpu:1\":[[],[\"rxe0\",\"rxe1\"]]},\"protocol\":\"rdma\","
	"\"tcp_data_port\":0,\"tcp_proto_version\":1,\"timestamp\":"
	"\"2026-11-29 14:18:41.555409\"}\n";
static const char recorded_tcp[] =
	"{\"buffers\":[{\"addr\":139844377333760,\"length\":65536,\"name\":"
	"\"127.0.0.1:16160\"}],\"name\":\"127.0.0.1:16160\",\"protocol\":"
	"\"tcp\",\"tcp_data_port\":16737,\"tcp_proto_version\":2,"
	"\"timestamp\":\"2026-11-29 14:19:40.085306\"}";
static const char recorded_host[] =
	"{\"buffers\":[{\"addr\":94738473497968,\"length\":65536,\"name\":"
	"\"127.0.0.1:12345\"}],\"name\":\"127.0.0.1:12345\",\"protocol\":"
	"\"tcp\",\"rdma_server_name\":\"\",\"tcp_data_host\":\"127.0.0.1\","
	"\"tcp_data_port\":16382,\"tcp_proto_version\":2,\"timestamp\":"
	"\"2026-11-29 14:55:52.249569\"}";

static void a_recorded_rdma_descriptor_is_read(void **state)
{
	static const uint8_t gid[16] = { [10] = 0xff, 0xff, 10, 9, 0, 2 };
	struct sf_segment *seg = decode_both("10.9.0.1:15252", recorded_rdma,
					     sizeof(recorded_rdma) - 1,
					     RPC_META);
	const struct sf_buffer *b = &seg->buffers[0];

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->error, 0);
	assert_string_equal(seg->name, "10.9.0.1:15252");
	assert_string_equal(seg->self_name, "10.9.0.1:15252");
	assert_string_equal(seg->protocol, "rdma");
	assert_string_equal(seg->timestamp, "2026-11-29 14:18:41.555409");
	assert_string_equal(seg->rdma_server_name, "");
	assert_string_equal(seg->tcp_data_host, "");
	assert_int_equal(seg->tcp_data_port, 0);
	assert_int_equal(seg->tcp_version, 1);
	assert_int_equal(seg->nr_devices, 2);
	assert_string_equal(seg->devices[1].name, "rxe1");
	assert_memory_equal(seg->devices[1].gid, gid, 16);
	assert_true(seg->devices[1].has_gid);
	assert_int_equal(seg->nr_buffers, 1);
	assert_true(b->addr == UINT64_C(140414897520640));
	assert_int_equal(b->length, 16777216);
	assert_string_equal(b->location, "*");
	assert_string_equal(b->protocol, "rdma");
	assert_int_equal(b->proto, SF_PROTOCOL_RDMA);
	assert_int_equal(b->nr_keys, 2);
	assert_int_equal(b->rkeys[0], 607);
	assert_int_equal(b->rkeys[1], 742);
	assert_int_equal(seg->topology->nr_rows, 2);
	assert_int_equal(seg->topology->rows[1].nr_names, 2);
	assert_int_equal(seg->topology->rows[1].nr_preferred, 0);
	assert_string_equal(seg->topology->rows[1].names[0], "rxe0");
	assert_string_equal(seg->rpc_host, "127.0.0.1");
	assert_int_equal(seg->rpc_port, 15001);
	sf_segment_put(seg);
}

static void recorded_tcp_descriptors_are_read(void **state)
{
	struct sf_segment *seg = decode_both("127.0.0.1:16160", recorded_tcp,
					     sizeof(recorded_tcp) - 1, NULL);

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->tcp_data_port, 16737);
	assert_int_equal(seg->tcp_version, 2);
	assert_string_equal(seg->buffers[0].location, "127.0.0.1:16160");
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_TCP);
	assert_int_equal(seg->buffers[0].nr_keys, 0);
	assert_string_equal(seg->rpc_host, "");
	assert_null(seg->topology);
	assert_null(seg->raw_rpc);
	sf_segment_put(seg);

	seg = decode_both("127.0.0.1:12345", recorded_host,
			  sizeof(recorded_host) - 1, NULL);
	assert_string_equal(seg->problems, "");
	assert_string_equal(seg->tcp_data_host, "127.0.0.1");
	sf_segment_put(seg);
}

/* ---- the whole ---- */

static void what_is_not_an_object_is_refused(void **state)
{
	assert_spoilt("", "not valid JSON");
	assert_spoilt("metadata not found", "not valid JSON");
	assert_spoilt("null", "not a JSON object");
	assert_spoilt("[]", "not a JSON object");
	assert_spoilt("17", "not a JSON object");
}

static void a_missing_descriptor_is_said(void **state)
{
	struct sf_segment *seg = decode_both("n", NULL, 0, RPC_META);

	assert_int_equal(seg->error, -ENOENT);
	assert_string_equal(seg->problems, "no descriptor\n");
	assert_int_equal(seg->rpc_port, 15001);
	assert_int_equal(seg->nr_buffers, 0);
	assert_null(seg->raw);
	sf_segment_put(seg);
}

static void too_deep_and_too_large_are_refused(void **state)
{
	size_t len = (size_t)SF_DESCRIPTOR_MAX + 1;
	char *text = calloc(1, len);
	struct sf_segment *seg;

	memset(text, '[', 100000);
	memcpy(text, "{\"x\":", 5);
	text[100000] = '\0';
	assert_spoilt(text, "nested too deep");
	memset(text, ' ', len);
	seg = decode_both("n", text, len, NULL);
	assert_int_equal(seg->error, -EBADMSG);
	assert_has(seg->problems, "134217729 bytes");
	sf_segment_put(seg);
	free(text);
}

static void no_buffers_is_an_empty_segment(void **state)
{
	assert_listed(TCP(""), 0, "");
	assert_listed("{\"name\":\"n\",\"protocol\":\"tcp\"}", 0, "");
	assert_listed("{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":null,"
		      "\"priority_matrix\":null,\"devices\":null}", 0, "");
	assert_spoilt("{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":{}}",
		      "buffers is not an array");
}

static void the_protocol_is_needed(void **state)
{
	assert_spoilt("{\"name\":\"n\",\"buffers\":[" BUF "]}",
		      "protocol is missing");
	assert_spoilt("{\"protocol\":null,\"buffers\":[" BUF "]}",
		      "protocol is missing");
	assert_spoilt("{\"protocol\":\"\"}", "protocol is empty");
	assert_spoilt("{\"protocol\":[]}", "protocol is empty");
	assert_spoilt("{\"protocol\":[1,\"\"]}", "protocol is empty");
	assert_spoilt("{\"protocol\":7}", "protocol is not a string");
	assert_spoilt("{\"protocol\":{}}", "protocol is not a string");
}

static void top_level_integers_spoil_the_whole(void **state)
{
	static const char *const bad[] = { "\"16001\"", "16001.0", "1.6e4",
					   "-1", "65536", "true", "[]", "016" };
	char json[256];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(json, sizeof(json), "{\"name\":\"n\",\"protocol\":"
			 "\"tcp\",\"tcp_data_port\":%s,\"buffers\":[" BUF "]}",
			 bad[i]);
		assert_spoilt(json, "tcp_data_port is ");
	}
	assert_spoilt("{\"protocol\":\"tcp\",\"tcp_proto_version\":\"2\"}",
		      "tcp_proto_version is not a plain integer");
}

static void versions_we_do_not_know_are_the_nearest(void **state)
{
	static const struct {
		const char *text;
		unsigned int version;
	} cases[] = { { "0", 1 }, { "1", 1 }, { "2", 2 },
		      { "18446744073709551615", 2 }, { "null", 1 } };
	struct sf_segment *seg;
	char json[128];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(json, sizeof(json), "{\"name\":\"n\",\"protocol\":"
			 "\"tcp\",\"tcp_proto_version\":%s}", cases[i].text);
		seg = decode(json);
		assert_string_equal(seg->problems, "");
		assert_int_equal(seg->tcp_version, cases[i].version);
		sf_segment_put(seg);
	}
}

static void unknown_members_are_ignored(void **state)
{
	assert_listed("{\"name\":\"n\",\"protocol\":\"tcp\",\"x\":[{\"y\":"
		      "1e999}],\"Name\":\"z\",\"buffers\":[{\"addr\":1,"
		      "\"length\":2,\"name\":\"\",\"device_id\":-1,\"z\":01}]}",
		      1, "");
}

static void of_a_member_given_twice_the_last_counts(void **state)
{
	struct sf_segment *seg = decode(
		"{\"name\":\"a\",\"name\":\"n\",\"protocol\":\"tcp\","
		"\"buffers\":[],\"buffers\":[{\"addr\":1,\"addr\":4096,"
		"\"length\":1}]}");

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->buffers[0].addr, 4096);
	sf_segment_put(seg);
}

static void mooncakes_leniency_is_ours(void **state)
{
	assert_listed("\xef\xbb\xbf// by hand\n{\"name\":\"n\",/* */"
		      "\"protocol\":\"tcp\",\"buffers\":[" BUF ",],} rest",
		      1, "");
}

static void anothers_descriptor_is_noticed(void **state)
{
	struct sf_segment *seg = decode("{\"name\":\"other\\n\",\"protocol\":"
					"\"tcp\",\"buffers\":[" BUF "]}");

	assert_int_equal(seg->error, 0);
	assert_int_equal(seg->nr_buffers, 1);
	assert_string_equal(seg->name, "n");
	assert_string_equal(seg->self_name, "other\n");
	assert_string_equal(seg->problems,
			    "the descriptor is another name's: other?\n");
	sf_segment_put(seg);
	assert_listed("{\"protocol\":\"tcp\",\"buffers\":[" BUF "]}", 1,
		      "name is missing\n");
	assert_listed("{\"name\":[],\"protocol\":\"tcp\"}", 0,
		      "name is not a string\nname is missing\n");
}

static void separate_rdma_names_are_kept(void **state)
{
	static const char json[] =
		"{\"name\":\"192.0.2.10:15001\",\"protocol\":\"rdma\","
		"\"rdma_server_name\":\"198.51.100.10:15001\"}";
	struct sf_segment *seg = decode_both("192.0.2.10:15001", json,
					     strlen(json), NULL);

	assert_string_equal(seg->problems, "");
	assert_string_equal(seg->rdma_server_name, "198.51.100.10:15001");
	sf_segment_put(seg);
}

/* ---- buffers ---- */

static void bad_buffers_do_not_hide_their_neighbours(void **state)
{
	assert_listed(TCP(BUF ","
			  "{\"addr\":0,\"length\":8192},"
			  "{\"addr\":1,\"length\":0},"
			  "{\"length\":8192},"
			  "{\"addr\":1},"
			  "{\"addr\":null,\"length\":1},"
			  "null,7,[],\"x\","
			  "{\"addr\":4096,\"length\":1}"), 2,
		      "buffer 1: addr is 0, left out\n"
		      "buffer 2: length is 0, left out\n"
		      "buffer 3: addr is missing, left out\n"
		      "buffer 4: length is missing, left out\n"
		      "buffer 5: addr is missing, left out\n"
		      "buffer 6: it is not an object, left out\n"
		      "buffer 7: it is not an object, left out\n"
		      "buffer 8: it is not an object, left out\n"
		      "buffer 9: it is not an object, left out\n");
}

static void numbers_are_exact_or_refused(void **state)
{
	static const char *const bad[] = {
		"\"9007199254740993\"", "9.007199254740993e15", "1.0", "1e3",
		"-4096", "-0", "010", "true", "[1]", "{}",
		"18446744073709551616", "99999999999999999999999999",
	};
	char json[512];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(json, sizeof(json), TCP("{\"addr\":%s,\"length\":1},"
						 BUF), bad[i]);
		assert_listed(json, 1,
			      i < 10 ?
				"buffer 0: addr is not a plain integer, left "
				"out\n" :
				"buffer 0: addr is too large, left out\n");
		snprintf(json, sizeof(json), TCP("{\"addr\":1,\"length\":%s},"
						 BUF), bad[i]);
		assert_listed(json, 1,
			      i < 10 ?
				"buffer 0: length is not a plain integer, left "
				"out\n" :
				"buffer 0: length is too large, left out\n");
	}
}

static void all_64_bits_are_kept(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":9007199254740993,\"length\":4294967297},"
		"{\"addr\":18446744073709547520,\"length\":4095},"
		"{\"addr\":1,\"length\":9007199254740991}"));

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->nr_buffers, 3);
	assert_true(seg->buffers[0].length == UINT64_C(9007199254740991));
	assert_true(seg->buffers[1].addr == UINT64_C(9007199254740993));
	assert_true(seg->buffers[1].length == UINT64_C(4294967297));
	assert_true(seg->buffers[2].addr == UINT64_C(18446744073709547520));
	sf_segment_put(seg);
}

static void ranges_that_wrap_are_left_out(void **state)
{
	assert_listed(TCP("{\"addr\":18446744073709547520,\"length\":4096},"
			  "{\"addr\":18446744073709551615,\"length\":1},"
			  "{\"addr\":2,\"length\":18446744073709551614},"
			  "{\"addr\":1,\"length\":18446744073709551614}"), 1,
		      "buffer 0: addr + length wraps around, left out\n"
		      "buffer 1: addr + length wraps around, left out\n"
		      "buffer 2: addr + length wraps around, left out\n");
}

static void sums_saturate(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":1,\"length\":18446744073709551614},"
		"{\"addr\":2,\"length\":18446744073709551613}"));

	assert_int_equal(seg->nr_buffers, 2);
	assert_true(seg->total_bytes == UINT64_MAX);
	sf_segment_put(seg);
}

static void locations_are_kept_as_they_are(void **state)
{
	static const char *const locations[] = { "*", "segments:4096:0,1",
						 "segments:", "segments:0:",
						 "", "cpu:0" };
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":10,\"length\":1,\"name\":\"*\"},"
		"{\"addr\":20,\"length\":1,\"name\":\"segments:4096:0,1\"},"
		"{\"addr\":30,\"length\":1,\"name\":\"segments:\"},"
		"{\"addr\":40,\"length\":1,\"name\":\"segments:0:\"},"
		"{\"addr\":50,\"length\":1,\"name\":\"\"},"
		"{\"addr\":60,\"length\":1,\"name\":\"cpu:0\"}"));

	assert_string_equal(seg->problems, "");
	for (uint32_t i = 0; i < 6; i++)
		assert_string_equal(seg->buffers[i].location, locations[i]);
	sf_segment_put(seg);
	assert_listed(TCP("{\"addr\":1,\"length\":1,\"name\":7}"), 1,
		      "buffer 0: name is not a string\n");
}

static void problems_are_bounded_and_printable(void **state)
{
	size_t cap = 200000, len;
	char *json = malloc(cap);
	struct sf_segment *seg;
	size_t lines = 0;

	len = (size_t)snprintf(json, cap, "{\"name\":\"\\u001b[31m%0500d\xc3"
			       "\xa9\",\"protocol\":\"tcp\",\"buffers\":[", 7);
	for (int i = 0; i < 5000; i++)
		len += (size_t)snprintf(json + len, cap - len, "{\"addr\":0},");
	snprintf(json + len, cap - len, "]}");
	seg = decode(json);
	for (const char *p = seg->problems; *p; p++) {
		assert_true(*p == '\n' || (*p >= ' ' && *p < 0x7f));
		lines += *p == '\n';
	}
	assert_int_equal(lines, 33);
	assert_true(strlen(seg->problems) < 33 * 200);
	assert_has(seg->problems, "\nand 4969 more\n");
	sf_segment_put(seg);
	free(json);
}

/* ---- several protocols, and others ---- */

static void each_buffer_has_its_protocol(void **state)
{
	struct sf_segment *seg = decode(
		"{\"name\":\"n\",\"protocol\":[\"rdma\",\"hip\",\"tcp\"],"
		"\"devices\":[" DEVICE("nic0", GID_A) "],\"buffers\":["
		"{\"protocol\":\"hip\",\"addr\":10,\"length\":1,\"shm_name\":"
		"\"0F\"},{\"protocol\":\"tcp\",\"addr\":20,\"length\":1},"
		"{\"addr\":30,\"length\":1,\"rkey\":[5],\"lkey\":[6]},"
		"{\"protocol\":5,\"addr\":40,\"length\":1}]}");

	assert_string_equal(seg->problems, "buffer 3: protocol is not a name, "
					   "left out\n");
	assert_string_equal(seg->protocol, "rdma,hip,tcp");
	assert_int_equal(seg->nr_buffers, 3);
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_OTHER);
	assert_string_equal(seg->buffers[0].protocol, "hip");
	assert_int_equal(seg->buffers[1].proto, SF_PROTOCOL_TCP);
	assert_int_equal(seg->buffers[2].proto, SF_PROTOCOL_RDMA);
	assert_int_equal(seg->buffers[2].rkeys[0], 5);
	sf_segment_put(seg);
}

static void an_array_of_one_protocol_is_that_protocol(void **state)
{
	struct sf_segment *seg = decode("{\"name\":\"n\",\"protocol\":[\"tcp\"]"
					",\"buffers\":[" BUF "]}");

	assert_string_equal(seg->problems, "");
	assert_string_equal(seg->protocol, "tcp");
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_TCP);
	sf_segment_put(seg);
	assert_listed("{\"name\":\"n\",\"protocol\":[7,\"tcp\"]}", 0,
		      "protocol has an element that is not a name\n");
}

static void unknown_protocols_are_listed(void **state)
{
	struct sf_segment *seg = decode("{\"name\":\"n\",\"protocol\":"
					"\"flagcx\",\"buffers\":[" BUF "]}");

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->buffers[0].length, 8192);
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_OTHER);
	assert_string_equal(seg->buffers[0].protocol, "flagcx");
	sf_segment_put(seg);

	seg = decode("{\"name\":\"n\",\"protocol\":\"rdma,hip\",\"buffers\":["
		     BUF "]}");
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_OTHER);
	sf_segment_put(seg);
}

static void keys_of_other_fabrics_are_not_read(void **state)
{
	struct sf_segment *seg = decode(
		"{\"name\":\"n\",\"protocol\":\"efa\",\"devices\":["
		DEVICE("nic0", GID_A) "],\"buffers\":["
		"{\"addr\":187650000000000,\"length\":4096,"
		"\"rkey\":[9223372036854775809],\"lkey\":[77]}"
		"]}");

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->buffers[0].nr_keys, 0);
	sf_segment_put(seg);
}

static void cxl_buffers_have_offsets(void **state)
{
	struct sf_segment *seg = decode(
		"{\"name\":\"n\",\"protocol\":\"cxl\",\"cxl_name\":\"x\","
		"\"cxl_base_addr\":4096,\"buffers\":[{\"name\":\"a\",\"offset\""
		":1048576,\"length\":65536},{\"offset\":0,\"length\":1}]}");

	assert_string_equal(seg->problems,
			    "buffer 1: offset is 0, left out\n");
	assert_int_equal(seg->nr_buffers, 1);
	assert_int_equal(seg->buffers[0].addr, 1048576);
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_OTHER);
	sf_segment_put(seg);
	assert_listed("{\"name\":\"n\",\"protocol\":\"nvmeof\",\"buffers\":["
		      "{\"file_path\":\"/mnt/kv\",\"length\":1,"
		      "\"local_path_map\":{\"a\":\"b\"}}]}", 0,
		      "buffer 0: addr is missing, left out\n");
}

/* ---- rdma ---- */

static void keys_belong_to_positions(void **state)
{
	struct sf_segment *seg = decode(RDMA(
		DEVICE("nic2", GID_A) "," DEVICE("nic3", GID_A) ","
		DEVICE("nic0", GID_A) "," DEVICE("nic1", GID_A),
		"{\"cpu:0\":[[\"nic0\",\"nic1\"],[\"nic2\",\"nic3\"]]}",
		RBUF("4096", "[12,13,10,11]")));
	uint32_t out[4], preferred;

	assert_string_equal(seg->problems, "");
	assert_int_equal(sf_topology_choose(seg->topology, "cpu:0",
					    seg->devices, seg->nr_devices, out,
					    4, &preferred), 4);
	assert_int_equal(preferred, 2);
	assert_int_equal(seg->buffers[0].rkeys[out[0]], 10);
	assert_int_equal(seg->buffers[0].rkeys[out[1]], 11);
	assert_int_equal(seg->buffers[0].rkeys[out[2]], 12);
	assert_int_equal(seg->buffers[0].rkeys[out[3]], 13);
	sf_segment_put(seg);
}

static void keys_that_do_not_fit_are_not_used(void **state)
{
	static const char mismatch[] =
		"buffer 0: the number of rkeys is not that of devices\n";
	static const char type[] =
		"buffer 0: rkey is not an array of 32-bit integers\n";
	static const struct {
		const char *keys, *why;
	} cases[] = {
		{ "\"rkey\":[1],\"lkey\":[1]", mismatch },
		{ "\"rkey\":[1,2,3],\"lkey\":[1,2,3]", mismatch },
		{ "\"rkey\":[1,2],\"lkey\":[1]",
		  "buffer 0: as many lkeys as rkeys are needed\n" },
		{ "\"rkey\":[1,2]",
		  "buffer 0: as many lkeys as rkeys are needed\n" },
		{ "\"rkey\":[1,2],\"lkey\":\"x\"",
		  "buffer 0: as many lkeys as rkeys are needed\n" },
		{ "\"rkey\":[1,\"2\"],\"lkey\":[1,2]", type },
		{ "\"rkey\":[1,2.0],\"lkey\":[1,2]", type },
		{ "\"rkey\":[1,-2],\"lkey\":[1,2]", type },
		{ "\"rkey\":[1,4294967296],\"lkey\":[1,2]", type },
		{ "\"rkey\":7,\"lkey\":[1,2]", type },
		{ "\"rkey\":[],\"lkey\":[]",
		  "buffer 0: no rkey: local to its owner\n" },
		{ "\"x\":0", "buffer 0: no rkey: local to its owner\n" },
		{ "\"rkey\":[1,4294967295],\"lkey\":[18446744073709551615,2]",
		  "" },
	};
	struct sf_segment *seg;
	char json[1024];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(json, sizeof(json),
			 RDMA(TWO_DEVICES, "{}",
			      "{\"addr\":8192,\"length\":1,%s},"
			      RBUF("4096", "[7,8]")), cases[i].keys);
		seg = decode(json);
		assert_string_equal(seg->problems, cases[i].why);
		assert_int_equal(seg->nr_buffers, 2);
		assert_int_equal(seg->buffers[0].nr_keys, 2);
		assert_int_equal(seg->buffers[0].rkeys[1], 8);
		assert_int_equal(seg->buffers[1].nr_keys,
				 *cases[i].why ? 0 : 2);
		sf_segment_put(seg);
	}
}

static void bad_devices_keep_their_place(void **state)
{
	struct sf_segment *seg = decode(RDMA(
		"7,{\"gid\":\"" GID_A "\"}," DEVICE("nic2", "fe80::1") ","
		DEVICE("nic3", GID_0) ",{\"name\":\"nic4\",\"lid\":\"1\","
		"\"gid\":\"" GID_A "\"},{\"name\":\"nic5\",\"lid\":65536,"
		"\"gid\":\"" GID_A "\"},{\"name\":\"nic6\",\"lid\":65535,"
		"\"gid\":\"" GID_A "\"},{\"name\":\"nic7\"}",
		"null", RBUF("4096", "[0,1,2,3,4,5,6,7]")));

	assert_string_equal(seg->problems,
			    "device 0 is not an object\n"
			    "device 1 has no name\n"
			    "device 2 has a bad gid\n"
			    "device 3 has a gid of zeros: not in use\n"
			    "device 4 has a bad lid\n"
			    "device 5 has a bad lid\n"
			    "device 7 has a bad gid\n");
	assert_int_equal(seg->nr_devices, 8);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(seg->devices[i].has_gid, i == 6);
	assert_string_equal(seg->devices[1].name, "");
	assert_string_equal(seg->devices[6].name, "nic6");
	assert_int_equal(seg->devices[6].lid, 65535);
	assert_int_equal(seg->buffers[0].rkeys[6], 6);
	sf_segment_put(seg);
}

static void odd_devices_do_not_block_the_listing(void **state)
{
	char json[32768];
	size_t len;
	struct sf_segment *seg;

	assert_listed("{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":7,"
		      "\"buffers\":[" RBUF("4096", "[7]") "]}", 1,
		      "devices is not an array\n"
		      "buffer 0: the number of rkeys is not that of "
		      "devices\n");
	len = (size_t)snprintf(json, sizeof(json), "{\"name\":\"n\","
			       "\"protocol\":\"rdma\",\"devices\":[");
	for (int i = 0; i < 257; i++)
		len += (size_t)snprintf(json + len, sizeof(json) - len,
					DEVICE("nic%d", GID_A) ",", i);
	snprintf(json + len, sizeof(json) - len, "]}");
	seg = decode(json);
	assert_string_equal(seg->problems,
			    "more than 256 devices: none used\n");
	assert_int_equal(seg->nr_devices, 0);
	sf_segment_put(seg);
}

/* A matrix that helps nobody: which problem it is, and that every device is
 * still a candidate. */
static void assert_matrix(const char *matrix, const char *problems,
			  uint32_t preferred)
{
	uint32_t out[2], got;
	struct sf_segment *seg;
	char json[1024];

	snprintf(json, sizeof(json),
		 RDMA(TWO_DEVICES, "%s", RBUF("4096", "[7,8]")), matrix);
	seg = decode(json);
	assert_string_equal(seg->problems, problems);
	assert_int_equal(seg->buffers[0].nr_keys, 2);
	assert_int_equal(sf_topology_choose(seg->topology, "cpu:0",
					    seg->devices, 2, out, 2, &got), 2);
	assert_int_equal(got, preferred);
	sf_segment_put(seg);
}

static void odd_matrices_cost_affinity_only(void **state)
{
	assert_matrix("{}", "", 2);
	assert_matrix("null", "", 2);
	assert_matrix("[]", "priority_matrix is not an object\n", 2);
	assert_matrix("{\"cuda:0\":[[\"nic1\"],[]]}", "", 1);
	assert_matrix("{\"cpu:0\":[[\"nic0\"],[\"nic1\"],[]]}",
		      "priority_matrix: row cpu:0 is not two lists of "
		      "devices\n", 2);
	assert_matrix("{\"cpu:0\":[[\"nic0\"]]}",
		      "priority_matrix: row cpu:0 is not two lists of "
		      "devices\n", 2);
	assert_matrix("{\"cpu:0\":[[\"gone\"],[]]}", "", 2);
	assert_matrix("{\"cpu:0\":[[\"nic0\",7,\"\"],[\"nic0\",\"nic1\"]]}",
		      "", 1);
	assert_matrix("{\"nics\":[{\"name\":\"nic0\"}],\"mems\":[]}",
		      "priority_matrix: row nics is not two lists of devices\n"
		      "priority_matrix: row mems is not two lists of "
		      "devices\n", 2);
	assert_matrix("{\"x\":7,\"cpu:0\":[[\"nic1\"],[\"nic0\"]]}",
		      "priority_matrix: row x is not two lists of devices\n",
		      1);
}

static void matrices_are_bounded(void **state)
{
	size_t cap = 100000, len;
	char *json = malloc(cap);
	struct sf_segment *seg;

	len = (size_t)snprintf(json, cap, "{\"name\":\"n\",\"protocol\":"
			       "\"rdma\",\"priority_matrix\":{\"long\":[[");
	for (int i = 0; i < 1025; i++)
		len += (size_t)snprintf(json + len, cap - len, "\"x\",");
	len += (size_t)snprintf(json + len, cap - len, "],[]],");
	for (int i = 0; i < 1025; i++)
		len += (size_t)snprintf(json + len, cap - len,
					"\"%d\":[[],[]],", i);
	snprintf(json + len, cap - len, "}}");
	seg = decode(json);
	assert_string_equal(seg->problems,
			    "priority_matrix: row long is not two lists of "
			    "devices\n"
			    "priority_matrix has more than 1024 rows\n");
	assert_int_equal(seg->topology->nr_rows, 1024);
	sf_segment_put(seg);
	free(json);
}

/* ---- rpc_meta ---- */

static void assert_rpc(const char *rpc, const char *host, uint16_t port,
		       const char *problems)
{
	struct sf_segment *seg = decode_both("n", TCP(BUF), strlen(TCP(BUF)),
					     rpc);

	assert_int_equal(seg->error, 0);
	assert_int_equal(seg->nr_buffers, 1);
	assert_string_equal(seg->problems, problems);
	assert_string_equal(seg->rpc_host, host);
	assert_int_equal(seg->rpc_port, port);
	sf_segment_put(seg);
}

static void rpc_meta_is_read(void **state)
{
	assert_rpc(RPC_META, "127.0.0.1", 15001, "");
	assert_rpc("{\"ip_or_host_name\":\"::1\",\"rpc_port\":1}", "::1", 1,
		   "");
	assert_rpc("{\"ip_or_host_name\":\"[fe80::1%lo]\",\"rpc_port\":65535}",
		   "fe80::1%lo", 65535, "");
	assert_rpc("{\"rpc_port\":7,\"ip_or_host_name\":\"h\",\"x\":0}", "h", 7,
		   "");
	assert_rpc(NULL, "", 0, "");
}

static void bad_rpc_meta_leaves_the_listing(void **state)
{
	static const struct {
		const char *rpc, *why;
	} cases[] = {
		{ "null", "rpc_meta is not a JSON object\n" },
		{ "{}", "rpc_meta: rpc_port is missing\n" },
		{ "{\"rpc_port\":\"1\",\"ip_or_host_name\":\"h\"}",
		  "rpc_meta: rpc_port is not a plain integer\n" },
		{ "{\"rpc_port\":1.5,\"ip_or_host_name\":\"h\"}",
		  "rpc_meta: rpc_port is not a plain integer\n" },
		{ "{\"rpc_port\":-1,\"ip_or_host_name\":\"h\"}",
		  "rpc_meta: rpc_port is not a plain integer\n" },
		{ "{\"rpc_port\":65536,\"ip_or_host_name\":\"h\"}",
		  "rpc_meta: rpc_port is too large\n" },
		{ "{\"rpc_port\":0,\"ip_or_host_name\":\"h\"}",
		  "rpc_meta: rpc_port is 0\n" },
		{ "{\"rpc_port\":1}",
		  "rpc_meta: ip_or_host_name is missing\n" },
		{ "{\"rpc_port\":1,\"ip_or_host_name\":7}",
		  "rpc_meta: ip_or_host_name is not a string\n" },
		{ "{\"rpc_port\":1,\"ip_or_host_name\":\"\"}",
		  "rpc_meta: ip_or_host_name is empty\n" },
		{ "{\"rpc_port\":1,\"ip_or_host_name\":\"a b\"}",
		  "rpc_meta: ip_or_host_name is not a host\n" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_rpc(cases[i].rpc, "", 0, cases[i].why);
	assert_rpc("x", "", 0,
		   "rpc_meta is not valid JSON: unexpected 'x' at byte 0\n");
}

/* ---- hostile input ---- */

/* Whatever a snapshot was made of, it can be used. */
static void use(struct sf_segment *seg)
{
	uint64_t run, at = 0;
	char *text;

	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		assert_true(b->addr && b->length);
		assert_true(b->addr + b->length > b->addr);
		assert_true(b->addr >= at);
		assert_true(b->nr_keys == 0 || b->nr_keys == seg->nr_devices);
		assert_non_null(sf_segment_covering_run(seg, b->addr, &run));
		assert_ptr_equal(sf_segment_by_index(seg, b->index), b);
		assert_ptr_equal(sf_segment_find(seg, b->addr, b->length), b);
		at = b->addr;
	}
	if (seg->error) {
		assert_int_equal(seg->nr_buffers, 0);
		assert_string_not_equal(seg->problems, "");
	}
	text = sf_segment_encode(seg);
	assert_non_null(text);
	free(text);
}

static void truncation_anywhere_is_noticed(void **state)
{
	size_t len = strrchr(recorded_rdma, '}') - recorded_rdma + 1;
	struct sf_segment *seg;

	for (size_t n = 0; n < len; n++) {
		seg = decode_both("n", recorded_rdma, n, NULL);
		assert_int_equal(seg->error, -EBADMSG);
		use(seg);
		sf_segment_put(seg);
	}
}

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static void mutate(char *text, size_t len, uint32_t *seed)
{
	static const char bytes[] = "{}[]\",:0-.e\\u/n9 1";
	size_t at = next(seed) % len, from, n;

	switch (next(seed) % 4) {
	case 0:
		text[at] = (char)next(seed);
		break;
	case 1:
		text[at] = bytes[next(seed) % (sizeof(bytes) - 1)];
		break;
	case 2:
		text[at] ^= (char)(1 << next(seed) % 8);
		break;
	default:
		from = next(seed) % len;
		n = next(seed) % 16;
		if (from + n < len && at + n < len)
			memmove(text + at, text + from, n);
	}
}

static void mutations_do_no_harm(void **state)
{
	static const char *const samples[] = {
		recorded_rdma, recorded_tcp,
		"{\"name\":\"n\",\"protocol\":[\"tcp\",\"rdma\"],\"devices\":["
		DEVICE("nic0", GID_A) "],\"priority_matrix\":{\"cpu:0\":[["
		"\"nic0\"],[]]},\"buffers\":[{\"protocol\":\"rdma\",\"addr\":"
		"4096,\"length\":65536,\"rkey\":[1],\"lkey\":[1]},{\"addr\":"
		"4096,\"length\":65536},{\"addr\":4097,\"length\":8,\"name\":"
		"\"\\ud83d\\ude00\"}]}",
	};
	struct sf_segment *seg;
	uint32_t seed = 7;
	char text[1024];

	for (int round = 0; round < 30000; round++) {
		const char *sample = samples[round % 3];
		size_t len = strlen(sample);

		memcpy(text, sample, len);
		for (uint32_t n = 1 + next(&seed) % 4; n > 0; n--)
			mutate(text, len, &seed);
		seg = decode_both("n", text, len, RPC_META);
		use(seg);
		sf_segment_put(seg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recorded_rdma_descriptor_is_read),
		cmocka_unit_test(recorded_tcp_descriptors_are_read),
		cmocka_unit_test(what_is_not_an_object_is_refused),
		cmocka_unit_test(a_missing_descriptor_is_said),
		cmocka_unit_test(too_deep_and_too_large_are_refused),
		cmocka_unit_test(no_buffers_is_an_empty_segment),
		cmocka_unit_test(the_protocol_is_needed),
		cmocka_unit_test(top_level_integers_spoil_the_whole),
		cmocka_unit_test(versions_we_do_not_know_are_the_nearest),
		cmocka_unit_test(unknown_members_are_ignored),
		cmocka_unit_test(of_a_member_given_twice_the_last_counts),
		cmocka_unit_test(mooncakes_leniency_is_ours),
		cmocka_unit_test(anothers_descriptor_is_noticed),
		cmocka_unit_test(separate_rdma_names_are_kept),
		cmocka_unit_test(bad_buffers_do_not_hide_their_neighbours),
		cmocka_unit_test(numbers_are_exact_or_refused),
		cmocka_unit_test(all_64_bits_are_kept),
		cmocka_unit_test(ranges_that_wrap_are_left_out),
		cmocka_unit_test(sums_saturate),
		cmocka_unit_test(locations_are_kept_as_they_are),
		cmocka_unit_test(problems_are_bounded_and_printable),
		cmocka_unit_test(each_buffer_has_its_protocol),
		cmocka_unit_test(an_array_of_one_protocol_is_that_protocol),
		cmocka_unit_test(unknown_protocols_are_listed),
		cmocka_unit_test(keys_of_other_fabrics_are_not_read),
		cmocka_unit_test(cxl_buffers_have_offsets),
		cmocka_unit_test(keys_belong_to_positions),
		cmocka_unit_test(keys_that_do_not_fit_are_not_used),
		cmocka_unit_test(bad_devices_keep_their_place),
		cmocka_unit_test(odd_devices_do_not_block_the_listing),
		cmocka_unit_test(odd_matrices_cost_affinity_only),
		cmocka_unit_test(matrices_are_bounded),
		cmocka_unit_test(rpc_meta_is_read),
		cmocka_unit_test(bad_rpc_meta_leaves_the_listing),
		cmocka_unit_test(truncation_anywhere_is_noticed),
		cmocka_unit_test(mutations_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
