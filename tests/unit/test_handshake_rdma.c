/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "handshake_rdma.h"

static int decode(struct sf_handshake_rdma *m, const char *text)
{
	struct sf_err err = { 0 };
	int ret = sf_handshake_rdma_decode(m, text, strlen(text), &err);

	assert_int_equal(ret, err.code);
	return ret;
}

static void a_recorded_reply_is_understood(void **state)
{
	struct sf_handshake_rdma m;

	assert_int_equal(decode(&m,
		"{\"local_gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:"
		"00:02\",\"local_lid\":0,\"local_nic_path\":"
		"\"10.9.0.1:15252@rxe1\",\"payload\":\"\",\"peer_nic_path\":"
		"\"10.9.0.2:15515@rxe1\",\"qp_num\":[23,24],\"ready_ack\":"
		"false,\"reply_msg\":\"\"}\n"), 0);
	assert_string_equal(m.local_nic_path, "10.9.0.1:15252@rxe1");
	assert_string_equal(m.peer_nic_path, "10.9.0.2:15515@rxe1");
	assert_string_equal(m.local_gid,
			    "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:02");
	assert_string_equal(m.reply_msg, "");
	assert_int_equal(m.ready_ack, SF_READY_ACK_FALSE);
	assert_int_equal(m.nr_qps, 2);
	assert_int_equal(m.qp_num[0], 23);
	assert_int_equal(m.qp_num[1], 24);
	sf_handshake_rdma_fini(&m);
}

static void missing_members_are_empty(void **state)
{
	struct sf_handshake_rdma m;

	assert_int_equal(decode(&m, "{}"), 0);
	assert_string_equal(m.local_nic_path, "");
	assert_string_equal(m.peer_nic_path, "");
	assert_string_equal(m.local_gid, "");
	assert_string_equal(m.reply_msg, "");
	assert_int_equal(m.local_lid, 0);
	assert_int_equal(m.nr_qps, 0);
	assert_int_equal(m.ready_ack, SF_READY_ACK_ABSENT);
	sf_handshake_rdma_fini(&m);
}

static void null_is_an_old_refusal(void **state)
{
	struct sf_handshake_rdma m;

	assert_int_equal(decode(&m, "null"), -ENODATA);
	assert_int_equal(decode(&m, " null\n"), -ENODATA);
}

static void a_lid_that_is_none_reads_as_0(void **state)
{
	static const char *const texts[] = { "-1", "65536", "1.5", "\"7\"",
					     "null", "true", "[]" };
	struct sf_handshake_rdma m;
	char text[64];

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		snprintf(text, sizeof(text), "{\"local_lid\":%s}", texts[i]);
		assert_int_equal(decode(&m, text), 0);
		assert_int_equal(m.local_lid, 0);
		sf_handshake_rdma_fini(&m);
	}
	assert_int_equal(decode(&m, "{\"local_lid\":65535}"), 0);
	assert_int_equal(m.local_lid, 65535);
	sf_handshake_rdma_fini(&m);
}

static void other_types_are_refused(void **state)
{
	static const char *const texts[] = {
		"", "[]", "7", "\"x\"", "{", "{\"local_nic_path\":7}",
		"{\"peer_nic_path\":[]}", "{\"local_gid\":{}}",
		"{\"reply_msg\":false}", "{\"qp_num\":\"17\"}",
		"{\"qp_num\":{\"a\":1}}", "{\"qp_num\":[\"17\"]}",
		"{\"qp_num\":[-1]}", "{\"qp_num\":[1.5]}",
		"{\"qp_num\":[null]}", "{\"qp_num\":[16777216]}",
		"{\"qp_num\":[99999999999999999999]}", "{\"ready_ack\":1}",
		"{\"ready_ack\":\"true\"}",
	};
	struct sf_handshake_rdma m;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (decode(&m, texts[i]) != -EBADMSG)
			fail_msg("accepted: %s", texts[i]);
}

static void too_many_qps_are_refused(void **state)
{
	char text[4096] = "{\"qp_num\":[1";
	struct sf_handshake_rdma m;

	for (int i = 1; i < SF_HANDSHAKE_QPS_MAX; i++)
		strcat(text, ",1");
	strcat(text, "]}");
	assert_int_equal(decode(&m, text), 0);
	assert_int_equal(m.nr_qps, SF_HANDSHAKE_QPS_MAX);
	sf_handshake_rdma_fini(&m);
	text[strlen(text) - 2] = '\0';
	strcat(text, ",1]}");
	assert_int_equal(decode(&m, text), -EBADMSG);
}

static void hostile_texts_do_no_harm(void **state)
{
	static const char nul[] = "{\"reply_msg\":\"a\0b\"}";
	const size_t big = 900000;
	struct sf_handshake_rdma m;
	struct sf_err err = { 0 };
	char *text = malloc(big + 64), *at;

	/* None at all: for the caller to refuse. */
	assert_int_equal(decode(&m, "{\"qp_num\":[]}"), 0);
	assert_int_equal(m.nr_qps, 0);
	sf_handshake_rdma_fini(&m);

	at = stpcpy(text, "{\"qp_num\":[1");
	for (int i = 1; i < 10000; i++)
		at = stpcpy(at, ",1");
	strcpy(at, "]}");
	assert_int_equal(decode(&m, text), -EBADMSG);

	/* Of two the last counts, for its length and its text. */
	at = stpcpy(text, "{\"reply_msg\":\"x\",\"reply_msg\":\"");
	memset(at, 'n', big);
	strcpy(at + big, "\"}");
	assert_int_equal(decode(&m, text), 0);
	assert_int_equal(strlen(m.reply_msg), big);
	sf_handshake_rdma_fini(&m);
	assert_int_equal(decode(&m, "{\"qp_num\":[1,2,3],\"qp_num\":[4]}"), 0);
	assert_int_equal(m.nr_qps, 1);
	assert_int_equal(m.qp_num[0], 4);
	sf_handshake_rdma_fini(&m);

	assert_int_equal(sf_handshake_rdma_decode(&m, nul, sizeof(nul) - 1,
						  &err), -EBADMSG);
	/* Cut short it could pass for another. */
	assert_int_equal(decode(&m, "{\"local_nic_path\":\"a@b\\u0000c\"}"), 0);
	assert_string_not_equal(m.local_nic_path, "a@b");
	sf_handshake_rdma_fini(&m);
	free(text);
}

static void requests_have_mooncakes_members(void **state)
{
	const uint32_t qps[] = { 411, 0xffffff };
	struct sf_handshake_rdma m = {
		.local_nic_path = "a@b",
		.peer_nic_path = "c\"@d",
		.local_gid = "00:01",
		.local_lid = 65535,
		.nr_qps = 2,
		.qp_num = qps,
	};
	char *text = sf_handshake_rdma_encode(&m);

	assert_string_equal(text,
		"{\"local_gid\":\"00:01\",\"local_lid\":65535,"
		"\"local_nic_path\":\"a@b\",\"payload\":\"\","
		"\"peer_nic_path\":\"c\\\"@d\",\"qp_num\":[411,16777215],"
		"\"reply_msg\":\"\"}");
	free(text);
	m.ready_ack = SF_READY_ACK_FALSE;
	m.nr_qps = 0;
	text = sf_handshake_rdma_encode(&m);
	assert_non_null(strstr(text, "\"qp_num\":[],\"ready_ack\":false,"));
	free(text);
}

static void what_is_encoded_decodes(void **state)
{
	const uint32_t qps[] = { 1, 2, 3 };
	const struct sf_handshake_rdma m = {
		.local_nic_path = "h\xc3\xa4\x01st@mlx5_0",
		.peer_nic_path = "10.0.0.1:1@x",
		.local_gid = "fe",
		.reply_msg = "no\nway",
		.ready_ack = SF_READY_ACK_TRUE,
		.nr_qps = 3,
		.qp_num = qps,
	};
	struct sf_handshake_rdma back;
	char *text = sf_handshake_rdma_encode(&m);

	assert_int_equal(decode(&back, text), 0);
	assert_string_equal(back.local_nic_path, m.local_nic_path);
	assert_string_equal(back.peer_nic_path, m.peer_nic_path);
	assert_string_equal(back.reply_msg, m.reply_msg);
	assert_int_equal(back.ready_ack, SF_READY_ACK_TRUE);
	assert_memory_equal(back.qp_num, qps, sizeof(qps));
	sf_handshake_rdma_fini(&back);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recorded_reply_is_understood),
		cmocka_unit_test(missing_members_are_empty),
		cmocka_unit_test(null_is_an_old_refusal),
		cmocka_unit_test(a_lid_that_is_none_reads_as_0),
		cmocka_unit_test(other_types_are_refused),
		cmocka_unit_test(too_many_qps_are_refused),
		cmocka_unit_test(hostile_texts_do_no_harm),
		cmocka_unit_test(requests_have_mooncakes_members),
		cmocka_unit_test(what_is_encoded_decodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
