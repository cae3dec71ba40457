/* SPDX-License-Identifier: MIT */
/*
 * Encoding and decoding of the TCP transport's frames, see wire.h. Pure; knows
 * neither sockets nor who sends what when.
 */
#include "config.h"
#include "tcp/wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void put_u64(uint8_t *out, uint64_t v)
{
	v = htole64(v);
	memcpy(out, &v, sizeof(v));
}

static uint64_t get_u64(const uint8_t *in)
{
	uint64_t v;

	memcpy(&v, in, sizeof(v));
	return le64toh(v);
}

void sf_tcp_request_encode(uint8_t out[SF_TCP_HEADER_LEN],
			   const struct sf_tcp_request *req)
{
	put_u64(out, req->size);
	put_u64(out + 8, req->addr);
	/* The opcode and the seven bytes of padding are one zeroed word. */
	put_u64(out + 16, req->opcode);
}

void sf_tcp_request_decode(struct sf_tcp_request *req,
			   const uint8_t in[SF_TCP_HEADER_LEN])
{
	req->size = get_u64(in);
	req->addr = get_u64(in + 8);
	req->opcode = in[16];
}

bool sf_tcp_opcode_known(uint8_t opcode)
{
	return (opcode & 0x7f) <= SF_TCP_WRITE_V1;
}

void sf_tcp_status_encode(uint8_t out[SF_TCP_STATUS_LEN], uint32_t code)
{
	put_u64(out, (uint64_t)SF_TCP_STATUS_MAGIC << 32 | code);
}

int sf_tcp_status_decode(const uint8_t in[SF_TCP_STATUS_LEN], uint32_t *code)
{
	uint64_t v = get_u64(in);

	if (v >> 32 != SF_TCP_STATUS_MAGIC)
		return -EPROTO;
	*code = (uint32_t)v;
	return 0;
}
