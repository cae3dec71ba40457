/* SPDX-License-Identifier: MIT */
/*
 * The bytes of Mooncake's TCP transport (protocol section 8). Integers are
 * little-endian on the wire whatever the host is.
 */
#ifndef SF_TCP_WIRE_H
#define SF_TCP_WIRE_H

#include <stdbool.h>
#include <stdint.h>

/* Section 8.2: request header. Bytes 17-23 are padding: sent as zeros, ignored
 * on receipt. */
#define SF_TCP_HEADER_LEN 24
/* Section 8.4: status frame of version 2. */
#define SF_TCP_STATUS_LEN 8
#define SF_TCP_STATUS_MAGIC 0x4D435456u

enum sf_tcp_opcode {
	SF_TCP_READ_V1 = 0x00,
	SF_TCP_WRITE_V1 = 0x01,
	SF_TCP_READ_V2 = 0x80,
	SF_TCP_WRITE_V2 = 0x81,
};

enum sf_tcp_status {
	SF_TCP_OK = 0,
	SF_TCP_REJECTED = 1,
};

struct sf_tcp_request {
	uint64_t size;		/* payload bytes */
	uint64_t addr;		/* absolute virtual address in the server */
	uint8_t opcode;		/* as on the wire; may be none of the enum */
};

void sf_tcp_request_encode(uint8_t out[SF_TCP_HEADER_LEN],
			   const struct sf_tcp_request *req);
void sf_tcp_request_decode(struct sf_tcp_request *req,
			   const uint8_t in[SF_TCP_HEADER_LEN]);
/* One of the four. */
bool sf_tcp_opcode_known(uint8_t opcode);
static inline bool sf_tcp_is_write(uint8_t opcode)
{
	return opcode & 1;
}
static inline bool sf_tcp_is_v2(uint8_t opcode)
{
	return opcode & 0x80;
}

void sf_tcp_status_encode(uint8_t out[SF_TCP_STATUS_LEN], uint32_t code);
/* 0 and *code, or -EPROTO when the magic is not there. */
int sf_tcp_status_decode(const uint8_t in[SF_TCP_STATUS_LEN], uint32_t *code);

#endif
