/* SPDX-License-Identifier: MIT */
#include "unit_segment.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "names.h"
#include "topology.h"
#include "transport.h"

static void references_keep_the_bytes(void **state)
{
	static const char json[] = TCP("{\"addr\":4096,\"length\":1}");
	struct sf_blob *raw = sf_blob_new(json, strlen(json));
	struct sf_segment *seg, *again;

	assert_int_equal(sf_segment_decode(&seg, "n", raw, NULL), 0);
	sf_blob_put(raw);
	again = sf_segment_get(seg);
	assert_ptr_equal(again, seg);
	sf_segment_put(seg);
	assert_string_equal(again->raw->data, json);
	assert_int_equal(again->buffers[0].addr, 4096);
	sf_segment_put(again);
	sf_segment_put(NULL);
}

static void buffers_are_sorted_and_found(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":12288,\"length\":10},{\"addr\":4096,\"length\":20},"
		"{\"addr\":8192,\"length\":0},{\"addr\":8192,\"length\":30}"));

	assert_int_equal(seg->nr_buffers, 3);
	assert_int_equal(seg->total_bytes, 60);
	assert_int_equal(seg->buffers[0].index, 1);
	assert_int_equal(seg->buffers[1].index, 3);
	assert_int_equal(seg->buffers[2].index, 0);
	for (uint32_t i = 0; i < 3; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		assert_ptr_equal(sf_segment_find(seg, b->addr, 0), b);
		assert_ptr_equal(sf_segment_find(seg, b->addr, b->length), b);
		assert_ptr_equal(sf_segment_by_index(seg, b->index), b);
	}
	assert_null(sf_segment_find(seg, 4096, 21));
	assert_null(sf_segment_find(seg, 4097, 0));
	assert_null(sf_segment_find(seg, 0, 0));
	assert_null(sf_segment_find(seg, UINT64_MAX, UINT64_MAX));
	assert_null(sf_segment_by_index(seg, 2));
	assert_null(sf_segment_by_index(seg, 4));
	sf_segment_put(seg);
}

static void an_empty_segment_holds_nothing(void **state)
{
	struct sf_segment *seg = decode(TCP(""));
	uint64_t run;

	assert_null(sf_segment_find(seg, 4096, 0));
	assert_null(sf_segment_covering(seg, 4096, 1));
	assert_null(sf_segment_covering_run(seg, 4096, &run));
	assert_null(sf_segment_by_index(seg, 0));
	sf_segment_put(seg);
}

static void assert_name(const struct sf_segment *seg, uint64_t addr,
			uint64_t length, const char *name)
{
	char out[SF_BUFFER_NAME_MAX];

	sf_segment_buffer_name(sf_segment_find(seg, addr, length), out);
	assert_string_equal(out, name);
}

static void the_longest_at_an_address_has_the_plain_name(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":4096,\"length\":10},{\"addr\":4096,\"length\":30},"
		"{\"addr\":4096,\"length\":20},{\"addr\":8192,\"length\":5}"));

	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->nr_buffers, 4);
	assert_int_equal(sf_segment_find(seg, 4096, 0)->length, 30);
	assert_name(seg, 4096, 30, "0x1000");
	assert_name(seg, 4096, 20, "0x1000+20");
	assert_name(seg, 4096, 10, "0x1000+10");
	assert_name(seg, 8192, 5, "0x2000");
	sf_segment_put(seg);
}

static void one_of_the_same_range_stays(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":4096,\"length\":8192},"
		"{\"addr\":4096,\"length\":8192},"
		"{\"addr\":8192,\"length\":8192}"));

	assert_string_equal(seg->problems,
			    "buffer 1 (tcp): the same range as buffer 0 (tcp), "
			    "which is listed\n");
	assert_int_equal(seg->nr_buffers, 2);
	assert_int_equal(seg->buffers[0].index, 0);
	assert_false(seg->buffers[0].long_name);
	assert_false(seg->buffers[1].long_name);
	assert_null(sf_segment_by_index(seg, 1));
	sf_segment_put(seg);
}

/* In either order, and not at the price of the plain name. */
static void the_same_range_stays_where_it_can_be_moved(void **state)
{
#define TWIN(a, b)                                                           \
	"{\"name\":\"n\",\"protocol\":[\"hip\",\"tcp\"],\"buffers\":["     \
	"{\"protocol\":\"" a "\",\"addr\":4096,\"length\":10},"            \
	"{\"protocol\":\"" b "\",\"addr\":4096,\"length\":10},"            \
	"{\"protocol\":\"hip\",\"addr\":4096,\"length\":20}]}"
	static const char *const both[] = { TWIN("hip", "tcp"),
					    TWIN("tcp", "hip") };

	for (uint32_t i = 0; i < 2; i++) {
		struct sf_segment *seg = decode(both[i]);

		assert_int_equal(seg->nr_buffers, 2);
		assert_int_equal(seg->buffers[1].proto, SF_PROTOCOL_TCP);
		assert_true(seg->buffers[1].long_name);
		assert_false(seg->buffers[0].long_name);
		assert_has(seg->problems, "(hip): the same range as buffer");
		sf_segment_put(seg);
	}
}

static void of_rdma_and_tcp_stays_what_this_build_has(void **state)
{
	enum sf_protocol want = sf_transport_for(SF_PROTOCOL_RDMA) ?
					SF_PROTOCOL_RDMA : SF_PROTOCOL_TCP;
#define PAIR(keys)                                                            \
	"{\"name\":\"n\",\"protocol\":[\"tcp\",\"rdma\"],\"devices\":["      \
	DEVICE("a", GID_A) "],\"buffers\":[{\"protocol\":\"rdma\",\"addr\":"   \
	"4096,\"length\":8" keys "},{\"addr\":4096,\"length\":8}]}"
	struct sf_segment *seg;

	seg = decode(PAIR(",\"rkey\":[1],\"lkey\":[1]"));
	assert_int_equal(seg->nr_buffers, 1);
	assert_int_equal(seg->buffers[0].proto, want);
	sf_segment_put(seg);

	seg = decode(PAIR(""));		/* no key: only TCP can reach it */
	assert_int_equal(seg->nr_buffers, 1);
	assert_int_equal(seg->buffers[0].proto, SF_PROTOCOL_TCP);
	sf_segment_put(seg);
}

static void the_lowest_index_covers(void **state)
{
	struct sf_segment *seg = decode(TCP(
		"{\"addr\":5000,\"length\":1000},"	/* 0: 5000-6000 */
		"{\"addr\":4000,\"length\":4000},"	/* 1: 4000-8000 */
		"{\"addr\":1000,\"length\":100},"	/* 2 */
		"{\"addr\":5500,\"length\":100},"	/* 3 */
		"{\"addr\":7900,\"length\":500}"));	/* 4: 7900-8400 */
	static const struct {
		uint64_t addr, len;
		int index;
	} cases[] = {
		{ 4000, 1, 1 }, { 5000, 1, 0 }, { 5550, 10, 0 },
		{ 5550, 1000, 1 }, { 5999, 1, 0 }, { 5999, 2, 1 },
		{ 6000, 2000, 1 }, { 6000, 2001, -1 }, { 7900, 100, 1 },
		{ 7900, 101, 4 }, { 8399, 1, 4 }, { 8400, 1, -1 },
		{ 999, 1, -1 }, { 999, 2, -1 }, { 1000, 100, 2 },
		{ 1099, 1, 2 }, { 1100, 1, -1 }, { 0, 1, -1 },
		{ UINT64_MAX, 2, -1 }, { 5000, UINT64_MAX, -1 },
	};
	uint64_t run = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct sf_buffer *b = sf_segment_covering(
			seg, cases[i].addr, cases[i].len);

		assert_int_equal(b ? (int)b->index : -1, cases[i].index);
	}
	assert_int_equal(sf_segment_covering_run(seg, 5500, &run)->index, 0);
	assert_int_equal(run, 500);
	assert_int_equal(sf_segment_covering_run(seg, 6000, &run)->index, 1);
	assert_int_equal(run, 2000);
	assert_null(sf_segment_covering_run(seg, 8400, &run));
	assert_int_equal(run, 2000);
	sf_segment_put(seg);
}

/* ---- comparing ---- */

static void owners_are_compared_by_their_endpoints(void **state)
{
	static const char base[] = TCP("{\"addr\":4096,\"length\":1}");
	static const char *const other_rpc[] = {
		"{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":15002}",
		"{\"ip_or_host_name\":\"127.0.0.2\",\"rpc_port\":15001}",
		NULL,
	};
	static const char *const others[] = {
		"{\"name\":\"m\",\"protocol\":\"tcp\",\"tcp_data_port\":16001,"
		"\"tcp_proto_version\":2}",
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":16002,"
		"\"tcp_proto_version\":2}",
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":16001,"
		"\"tcp_proto_version\":1}",
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":16001,"
		"\"tcp_proto_version\":2,\"tcp_data_host\":\"h\"}",
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":16001,"
		"\"tcp_proto_version\":2,\"rdma_server_name\":\"r\"}",
	};
	struct sf_segment *a = decode(base), *b = decode(TCP(""));

	assert_true(sf_segment_same_owner(a, b));
	sf_segment_put(b);
	for (size_t i = 0; i < 3; i++) {
		b = decode_both("n", base, strlen(base), other_rpc[i]);
		assert_false(sf_segment_same_owner(a, b));
		sf_segment_put(b);
	}
	for (size_t i = 0; i < 5; i++) {
		b = decode(others[i]);
		assert_false(sf_segment_same_owner(a, b));
		sf_segment_put(b);
	}
	sf_segment_put(a);
}

#define KEYED(devices, keys)                                                 \
	RDMA(devices, "{}", "{\"addr\":4096,\"length\":8,\"rkey\":" keys      \
			    ",\"lkey\":" keys "}")
#define AB DEVICE("a", GID_A) "," DEVICE("b", GID_B)
#define BA DEVICE("b", GID_B) "," DEVICE("a", GID_A)

static bool same(const char *json_a, const char *json_b)
{
	struct sf_segment *a = decode(json_a), *b = decode(json_b);
	bool result = sf_buffer_same(a, &a->buffers[0], b, &b->buffers[0]);

	assert_int_equal(sf_buffer_same(b, &b->buffers[0], a, &a->buffers[0]),
			 result);
	sf_segment_put(a);
	sf_segment_put(b);
	return result;
}

static void registrations_are_compared_by_range_and_keys(void **state)
{
	static const char tcp[] = TCP("{\"addr\":4096,\"length\":8}");

	assert_true(same(tcp, tcp));
	assert_true(same(tcp, TCP("{\"name\":\"x\",\"addr\":4096,"
				  "\"length\":8}")));
	assert_false(same(tcp, TCP("{\"addr\":4096,\"length\":9}")));
	assert_false(same(tcp, TCP("{\"addr\":4097,\"length\":8}")));
	assert_false(same(tcp, KEYED(AB, "[1,2]")));
	assert_true(same(KEYED(AB, "[1,2]"), KEYED(AB, "[1,2]")));
	assert_false(same(KEYED(AB, "[1,2]"), KEYED(AB, "[1,3]")));
	assert_false(same(KEYED(AB, "[1,2]"),
			  KEYED(DEVICE("a", GID_A), "[1]")));
	assert_false(same(KEYED(AB, "[1,2]"), KEYED(AB, "[1]")));
}

static void keys_are_compared_by_device_name(void **state)
{
	assert_true(same(KEYED(AB, "[1,2]"), KEYED(BA, "[2,1]")));
	assert_false(same(KEYED(AB, "[1,2]"), KEYED(BA, "[1,2]")));
	assert_false(same(KEYED(AB, "[1,2]"),
			  KEYED(DEVICE("a", GID_A) "," DEVICE("c", GID_B),
				"[1,2]")));
	assert_true(same(KEYED("7," AB, "[0,1,2]"), KEYED("7," BA, "[0,2,1]")));
	assert_false(same(KEYED("7," AB, "[0,1,2]"),
			  KEYED("7," AB, "[3,1,2]")));
}

/* ---- encoding ---- */

static const char canonical_rdma[] =
	"{\"buffers\":[{\"addr\":140414897520640,\"length\":16777216,"
	"\"lkey\":[607,742],\"name\":\"*\",\"rkey\":[607,742]}],\"devices\":["
	"{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01\","
	"\"lid\":0,\"name\":\"rxe0\"},{\"gid\":\"00:00:00:00:00:00:00:00:00:00:"
	"ff:ff:0a:09:00:02\",\"lid\":0,\"name\":\"rxe1\"}],\"name\":"
	"\"n\",\"priority_matrix\":{\"cpu:0\":[[],[\"rxe0\","
	"\"rxe1\"]],\"cpu:1\":[[],[\"rxe0\",\"rxe1\"]]},\"protocol\":\"rdma\","
	"\"rdma_server_name\":\"r:1\","
	"\"tcp_data_port\":0,\"tcp_proto_version\":1,\"timestamp\":"
	"\"2026-11-29 14:18:41.555409\"}\n";
static const char canonical_tcp[] =
	"{\"buffers\":[{\"addr\":18446744073709547520,\"length\":4095,"
	"\"name\":\"n\"}],\"name\":\"n\",\"protocol\":\"tcp\","
	"\"tcp_data_host\":\"127.0.0.1\",\"tcp_data_port\":16737,"
	"\"tcp_proto_version\":2,\"timestamp\":\"2026-11-29 14:19:40.085306\"}"
	"\n";

static void mooncakes_bytes_come_out_again(void **state)
{
	static const char *const texts[] = { canonical_rdma, canonical_tcp };

	for (size_t i = 0; i < 2; i++) {
		struct sf_segment *seg = decode(texts[i]);
		char *text = sf_segment_encode(seg);

		assert_string_equal(seg->problems, "");
		assert_string_equal(text, texts[i]);
		free(text);
		sf_segment_put(seg);
	}
}

static void unused_members_may_be_zero(void **state)
{
	static const struct sf_buffer buffer = { .addr = 1, .length = 2 };
	struct sf_segment seg = { .name = "x", .protocol = "tcp",
				  .nr_buffers = 1, .buffers = &buffer };
	char *text = sf_segment_encode(&seg);

	assert_string_equal(text, "{\"buffers\":[{\"addr\":1,\"length\":2,"
			    "\"name\":\"x\"}],\"name\":\"x\",\"protocol\":"
			    "\"tcp\",\"tcp_data_port\":0,\"tcp_proto_version\":"
			    "1,\"timestamp\":\"\"}\n");
	free(text);
	seg.protocol = "rdma";
	seg.nr_buffers = 0;
	text = sf_segment_encode(&seg);
	assert_string_equal(text, "{\"buffers\":[],\"devices\":[],\"name\":"
			    "\"x\",\"priority_matrix\":{},\"protocol\":"
			    "\"rdma\",\"tcp_data_port\":0,"
			    "\"tcp_proto_version\":1,\"timestamp\":\"\"}\n");
	free(text);
}

static void text_is_escaped_as_mooncake_does(void **state)
{
	char *text = sf_rpc_meta_encode("\"\\/\b\f\n\r\t\x01\x7f\xc3\xa9"
					"\xe4\xb8\xad\xf0\x9f\x98\x80", 15873);

	assert_string_equal(text, "{\"ip_or_host_name\":\"\\\"\\\\/\\b\\f\\n"
			    "\\r\\t\\u0001\x7f\\u00e9\\u4e2d\\ud83d\\ude00\","
			    "\"rpc_port\":15873}\n");
	free(text);
}

static void what_is_not_utf8_is_replaced(void **state)
{
	static const char *const bad[] = {
		"\xff", "\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80",
		"\xf4\x90\x80\x80", "\xe4\xb8", "\xf0\x9f\x98", "\xf8",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char *text = sf_rpc_meta_encode(bad[i], 1);
		const char *p = strstr(text, ":\"") + 2;

		for (; *p != '"'; p += 6)
			assert_int_equal(strncmp(p, "\\ufffd", 6), 0);
		free(text);
	}
}

/* ---- size ---- */

#define MANY 100000

static char *many_buffers(size_t *len)
{
	char *json = NULL;
	FILE *out = open_memstream(&json, len);

	fputs("{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":["
	      DEVICE("a", GID_A) "," DEVICE("b", GID_B) "],\"buffers\":[", out);
	for (uint64_t i = 0; i < MANY; i++)
		fprintf(out, "%s{\"name\":\"cpu:%d\",\"addr\":%" PRIu64
			",\"length\":4096,\"rkey\":[%u,%u],\"lkey\":[%u,%u]}",
			i ? ",\n " : "", (int)(i % 2),
			UINT64_C(139912345600000) + (i * 7919 % MANY) * 8192,
			(unsigned int)i, 4000000000u, (unsigned int)i, 7u);
	fputs("]}", out);
	fclose(out);
	return json;
}

static uint64_t cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Quadratic work on so many buffers would take minutes, whatever the machine
 * and the sanitizer. */
static void many_buffers_are_decoded_quickly(void **state)
{
	size_t len;
	char *json = many_buffers(&len);
	uint64_t start = cpu_ms();
	struct sf_segment *seg = decode_both("n", json, len, NULL);

	print_message("%d buffers, %zu bytes: %" PRIu64 " ms, %zu bytes each\n",
		      MANY, len, cpu_ms() - start,
		      malloc_usable_size(seg) / MANY);
	assert_true(cpu_ms() - start < 10000);
	assert_string_equal(seg->problems, "");
	assert_int_equal(seg->nr_buffers, MANY);
	for (uint32_t i = 0; i < MANY; i += 997) {
		const struct sf_buffer *b = sf_segment_by_index(seg, i);

		assert_int_equal(b->rkeys[0], i);
		assert_true(b->rkeys[1] == 4000000000u);
		assert_ptr_equal(sf_segment_covering(seg, b->addr + 4095, 1),
				 b);
		assert_null(sf_segment_covering(seg, b->addr + 4096, 1));
	}
	assert_true(malloc_usable_size(seg) / MANY < 200);
	sf_segment_put(seg);
	free(json);
}

/* Many members in one object, and many duplicates. */
static void no_shape_is_slow(void **state)
{
	char *json = NULL;
	struct sf_segment *seg;
	uint64_t start;
	size_t len;
	FILE *out = open_memstream(&json, &len);

	fputs("{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":[", out);
	for (int i = 0; i < MANY; i++)
		fputs("{\"addr\":4096,\"length\":8192},", out);
	fputs("]", out);
	for (int i = 0; i < 2 * MANY; i++)
		fprintf(out, ",\"x%d\":0", i);
	fputs("}", out);
	fclose(out);
	start = cpu_ms();
	seg = decode_both("n", json, len, NULL);
	assert_true(cpu_ms() - start < 10000);
	assert_int_equal(seg->nr_buffers, 1);
	assert_has(seg->problems, "and 99967 more");
	sf_segment_put(seg);
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(references_keep_the_bytes),
		cmocka_unit_test(buffers_are_sorted_and_found),
		cmocka_unit_test(an_empty_segment_holds_nothing),
		cmocka_unit_test(the_longest_at_an_address_has_the_plain_name),
		cmocka_unit_test(one_of_the_same_range_stays),
		cmocka_unit_test(the_same_range_stays_where_it_can_be_moved),
		cmocka_unit_test(of_rdma_and_tcp_stays_what_this_build_has),
		cmocka_unit_test(the_lowest_index_covers),
		cmocka_unit_test(owners_are_compared_by_their_endpoints),
		cmocka_unit_test(registrations_are_compared_by_range_and_keys),
		cmocka_unit_test(keys_are_compared_by_device_name),
		cmocka_unit_test(mooncakes_bytes_come_out_again),
		cmocka_unit_test(unused_members_may_be_zero),
		cmocka_unit_test(text_is_escaped_as_mooncake_does),
		cmocka_unit_test(what_is_not_utf8_is_replaced),
		cmocka_unit_test(many_buffers_are_decoded_quickly),
		cmocka_unit_test(no_shape_is_slow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
