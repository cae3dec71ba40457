/* SPDX-License-Identifier: MIT */
/*
 * File names of segments and buffers: see names.h. Pure, no state.
 *
 * Decoding checks by encoding again: whatever file name a caller comes with,
 * only the one spelling that the encoder makes is accepted.
 */
#include "config.h"
#include "names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUT_PREFIX_MAX 238	/* of a cut name; then "%~" and the hash */
#define HASH_DIGITS 15

static bool is_special(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..") ||
	       !strncmp(name, ".segfs", 6);
}

static bool is_plain(unsigned char c)
{
	return c >= 0x20 && c != 0x7f && c != '/' && c != '%';
}

/* 60 bits that depend on all of NAME. */
static uint64_t hash(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return (h ^ h >> 33) >> 4;
}

void sf_name_encode(const char *name, char out[SF_NAME_MAX + 1])
{
	bool special = is_special(name);
	size_t n = 0, cut = 0, step;

	for (const char *p = name; *p; p++, n += step) {
		bool plain = is_plain((unsigned char)*p) &&
			     !(special && p == name);

		step = plain ? 1 : 3;
		if (n + step <= CUT_PREFIX_MAX)
			cut = n + step;
		if (n + step > SF_NAME_MAX) {
			snprintf(out + cut, SF_NAME_MAX + 1 - cut,
				 "%%~%0*" PRIx64, HASH_DIGITS, hash(name));
			return;
		}
		if (plain)
			out[n] = *p;
		else
			snprintf(out + n, 4, "%%%02X", (unsigned char)*p);
	}
	out[n] = '\0';
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* FILE's escapes undone, into OUT, which is as long. */
static int unescape(const char *file, char *out)
{
	int hi, lo;

	for (; *file; file++) {
		if (*file != '%') {
			*out++ = *file;
			continue;
		}
		hi = hex_digit(file[1]);
		lo = hi < 0 ? -1 : hex_digit(file[2]);
		if (lo < 0 || !(hi | lo))
			return -ENOENT;
		*out++ = (char)(hi << 4 | lo);
		file += 2;
	}
	*out = '\0';
	return 0;
}

/* FILE is what the encoder makes of the name in TEXT. */
static bool is_encoding_of(const char *file, const char *text)
{
	char again[SF_NAME_MAX + 1];

	sf_name_encode(text, again);
	return !strcmp(file, again);
}

/* LEN bytes at FILE are the kept part of a cut name: escapes are whole and
 * nothing is escaped, or not, that should be the other way round. */
static bool is_cut(const char *file, size_t len)
{
	const char *mark = len > HASH_DIGITS + 2 ?
				   file + len - HASH_DIGITS - 2 : file;
	char prefix[SF_NAME_MAX + 1], text[SF_NAME_MAX + 1];
	size_t kept = (size_t)(mark - file);

	/* an escape that did not fit makes it up to two bytes shorter */
	if (kept > CUT_PREFIX_MAX || kept < CUT_PREFIX_MAX - 2 ||
	    mark[0] != '%' || mark[1] != '~' ||
	    strspn(mark + 2, "0123456789abcdef") != HASH_DIGITS)
		return false;
	memcpy(prefix, file, kept);
	prefix[kept] = '\0';
	return !unescape(prefix, text) && is_encoding_of(prefix, text);
}

int sf_name_decode(const char *file, char **name)
{
	size_t len = strnlen(file, SF_NAME_MAX + 1);
	char *text;

	if (!len || len > SF_NAME_MAX)
		return -ENOENT;
	if (is_cut(file, len))
		return -ENAMETOOLONG;
	text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	if (unescape(file, text) || !is_encoding_of(file, text)) {
		free(text);
		return -ENOENT;
	}
	*name = text;
	return 0;
}

void sf_buffer_name_format(char out[SF_BUFFER_NAME_MAX], uint64_t addr,
			   uint64_t length)
{
	if (length)
		snprintf(out, SF_BUFFER_NAME_MAX, "0x%" PRIx64 "+%" PRIu64,
			 addr, length);
	else
		snprintf(out, SF_BUFFER_NAME_MAX, "0x%" PRIx64, addr);
}

int sf_buffer_name_parse(const char *file, uint64_t *addr, uint64_t *length)
{
	char again[SF_BUFFER_NAME_MAX];
	uint64_t a, n = 0;
	char *end;

	if (strnlen(file, sizeof(again)) == sizeof(again) ||
	    strncmp(file, "0x", 2))
		return -ENOENT;
	a = strtoull(file + 2, &end, 16);
	if (*end == '+')
		n = strtoull(end + 1, NULL, 10);
	sf_buffer_name_format(again, a, n);
	if (strcmp(file, again))
		return -ENOENT;
	*addr = a;
	*length = n;
	return 0;
}
