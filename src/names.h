/* SPDX-License-Identifier: MIT */
/*
 * File names for segments and buffers.
 *
 * A segment name is free text in the metadata store. As a file name it stands
 * as it is, except that '/', '%', control bytes (0x01-0x1f, 0x7f), the names
 * "." and "..", and a leading ".segfs" are percent-encoded (upper-case hex; for
 * "." , ".." and ".segfs…" the first dot is). Two different names never share a
 * file name. An encoded form over 255 bytes is cut to 238 bytes (never within a
 * %XX) and ends in '%' '~' and 15 hex digits of a hash of the whole name; it
 * cannot be decoded, only compared with the encoding of a known name.
 */
#ifndef SF_NAMES_H
#define SF_NAMES_H

#include <stdint.h>

#define SF_NAME_MAX 255		/* NAME_MAX without the NUL */

/* NAME (not empty) as a file name, NUL-terminated. */
void sf_name_encode(const char *name, char out[SF_NAME_MAX + 1]);

/*
 * The segment name behind a file name, malloc'ed.
 * -ENOENT: no segment can have this file name (bad escape, something encoded
 * that would not be); -ENAMETOOLONG: a cut name, compare encodings instead;
 * -ENOMEM.
 */
int sf_name_decode(const char *file, char **name);

/* "0x7f3a40000000" or, with LENGTH != 0, "0x7f3a40000000+8192" (decimal). */
#define SF_BUFFER_NAME_MAX 48
void sf_buffer_name_format(char out[SF_BUFFER_NAME_MAX], uint64_t addr,
			   uint64_t length);
/* The reverse; *length is 0 for the plain form. Accepts only what format makes
 * (lower case, no leading zeros). -ENOENT otherwise. */
int sf_buffer_name_parse(const char *file, uint64_t *addr, uint64_t *length);

#endif
