/* SPDX-License-Identifier: MIT */
/* GIDs in Mooncake's text form: 16 bytes in hex, joined by ':' (protocol
 * section 2.2); not the form of an IPv6 address. */
#ifndef SF_GID_H
#define SF_GID_H

#include <stdbool.h>
#include <stdint.h>

#define SF_GID_BYTES 16
#define SF_GID_TEXT_MAX (3 * SF_GID_BYTES)

/* One or two hex digits a byte, either case, nothing after. -EINVAL, and GID
 * untouched. */
int sf_gid_parse(const char *text, uint8_t gid[SF_GID_BYTES]);
void sf_gid_format(char out[SF_GID_TEXT_MAX], const uint8_t gid[SF_GID_BYTES]);
/* All zero: the placeholder of a device that failed to start. */
bool sf_gid_is_zero(const uint8_t gid[SF_GID_BYTES]);

#endif
