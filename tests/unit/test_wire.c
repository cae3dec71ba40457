/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "tcp/wire.h"

/* As a running Mooncake sent it. */
static const uint8_t read16[SF_TCP_HEADER_LEN] = {
	0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x50, 0x6f, 0x0e,
	0x30, 0x7f, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};

static void request_is_mooncakes(void **state)
{
	struct sf_tcp_request req = {
		.size = 16,
		.addr = 0x7f300e6f5000,
		.opcode = SF_TCP_READ_V2,
	};
	uint8_t out[SF_TCP_HEADER_LEN];

	memset(out, 0xee, sizeof(out));
	sf_tcp_request_encode(out, &req);
	assert_memory_equal(out, read16, sizeof(out));
}

static void padding_is_ignored(void **state)
{
	struct sf_tcp_request req;
	uint8_t in[SF_TCP_HEADER_LEN];

	memcpy(in, read16, sizeof(in));
	memset(in + 17, 0xa5, 7);
	sf_tcp_request_decode(&req, in);
	assert_int_equal(req.size, 16);
	assert_true(req.addr == 0x7f300e6f5000);
	assert_int_equal(req.opcode, SF_TCP_READ_V2);
}

static void extremes_survive(void **state)
{
	struct sf_tcp_request req = { UINT64_MAX, UINT64_MAX - 1, 0xff }, got;
	uint8_t out[SF_TCP_HEADER_LEN];

	sf_tcp_request_encode(out, &req);
	sf_tcp_request_decode(&got, out);
	assert_true(got.size == req.size && got.addr == req.addr);
	assert_int_equal(got.opcode, 0xff);
}

static void opcodes(void **state)
{
	unsigned int i, n = 0;

	for (i = 0; i < 256; i++)
		n += sf_tcp_opcode_known((uint8_t)i);
	assert_int_equal(n, 4);
	assert_true(sf_tcp_opcode_known(SF_TCP_READ_V1));
	assert_true(sf_tcp_opcode_known(SF_TCP_WRITE_V2));
	assert_true(sf_tcp_is_write(SF_TCP_WRITE_V2));
	assert_false(sf_tcp_is_write(SF_TCP_READ_V2));
	assert_true(sf_tcp_is_v2(SF_TCP_READ_V2));
	assert_false(sf_tcp_is_v2(SF_TCP_WRITE_V1));
}

static void status_frames(void **state)
{
	static const uint8_t rejected[SF_TCP_STATUS_LEN] = {
		0x01, 0x00, 0x00, 0x00, 0x56, 0x54, 0x43, 0x4d,
	};
	uint8_t out[SF_TCP_STATUS_LEN];
	uint32_t code = 77;

	sf_tcp_status_encode(out, SF_TCP_REJECTED);
	assert_memory_equal(out, rejected, sizeof(out));
	assert_int_equal(sf_tcp_status_decode(out, &code), 0);
	assert_int_equal(code, SF_TCP_REJECTED);

	out[7] ^= 1;
	code = 77;
	assert_int_equal(sf_tcp_status_decode(out, &code), -EPROTO);
	assert_int_equal(code, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_is_mooncakes),
		cmocka_unit_test(padding_is_ignored),
		cmocka_unit_test(extremes_survive),
		cmocka_unit_test(opcodes),
		cmocka_unit_test(status_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
