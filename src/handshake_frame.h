/* SPDX-License-Identifier: MIT */
/* Frames of the handshake channel (protocol section 5.3): 8 bytes of length,
 * little-endian, which count what follows; a type byte, missing in the old
 * form; JSON text. Shared by client and server. */
#ifndef SF_HANDSHAKE_FRAME_H
#define SF_HANDSHAKE_FRAME_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "handshake.h"

#define SF_HANDSHAKE_LEN_BYTES 8
#define SF_HANDSHAKE_HEADER_MAX (SF_HANDSHAKE_LEN_BYTES + 1)

/* What stands in front of a body of LEN bytes; returns its size. */
static inline size_t sf_handshake_header(uint8_t out[SF_HANDSHAKE_HEADER_MAX],
					 enum sf_handshake_type type,
					 size_t len)
{
	size_t typed = type != SF_HANDSHAKE_UNTYPED;
	uint64_t n = htole64((uint64_t)len + typed);

	memcpy(out, &n, sizeof(n));
	if (typed)
		out[SF_HANDSHAKE_LEN_BYTES] = (uint8_t)type;
	return SF_HANDSHAKE_LEN_BYTES + typed;
}

static inline uint64_t sf_handshake_length(
	const uint8_t in[SF_HANDSHAKE_LEN_BYTES])
{
	uint64_t n;

	memcpy(&n, in, sizeof(n));
	return le64toh(n);
}

/* A first byte above the highest type we know belongs to the text already. */
static inline enum sf_handshake_type sf_handshake_type_of(uint8_t first)
{
	return first <= SF_HANDSHAKE_PROBE ? (enum sf_handshake_type)first :
					     SF_HANDSHAKE_UNTYPED;
}

#endif
