/* SPDX-License-Identifier: MIT */
/* GID text: see gid.h. Pure, no state. */
#include "config.h"
#include "gid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int sf_gid_parse(const char *text, uint8_t gid[SF_GID_BYTES])
{
	uint8_t bytes[SF_GID_BYTES];
	const char *p = text;
	int d;

	for (int i = 0; i < SF_GID_BYTES; i++) {
		if (i && *p++ != ':')
			return -EINVAL;
		d = hex_digit(*p);
		if (d < 0)
			return -EINVAL;
		bytes[i] = (uint8_t)d;
		d = hex_digit(*++p);
		if (d >= 0) {
			bytes[i] = (uint8_t)(bytes[i] << 4 | d);
			p++;
		}
	}
	if (*p)
		return -EINVAL;
	memcpy(gid, bytes, sizeof(bytes));
	return 0;
}

void sf_gid_format(char out[SF_GID_TEXT_MAX], const uint8_t gid[SF_GID_BYTES])
{
	for (int i = 0; i < SF_GID_BYTES; i++)
		snprintf(out + 3 * i, 3, "%02x", gid[i]);
	for (int i = 1; i < SF_GID_BYTES; i++)
		out[3 * i - 1] = ':';
}

bool sf_gid_is_zero(const uint8_t gid[SF_GID_BYTES])
{
	static const uint8_t zero[SF_GID_BYTES];

	return !memcmp(gid, zero, sizeof(zero));
}
