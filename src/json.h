/* SPDX-License-Identifier: MIT */
/*
 * Reading JSON that others wrote, as leniently as Mooncake's own reader
 * (protocol section 1.3) and with exact integers: a byte order mark, comments,
 * trailing commas and bytes after the document are let through; depth and the
 * number of values are bounded. Walk the tree with cJSON's type tests and its
 * child/next links (its index functions are linear), but never use a
 * number's valueint or valuedouble: sf_json_u64() knows what the text said.
 */
#ifndef SF_JSON_H
#define SF_JSON_H

#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct sf_err;

#define SF_JSON_DEPTH_MAX 64
#define SF_JSON_VALUES_MAX (8u << 20)

struct sf_json {
	struct cJSON *root;
	const char *text;	/* borrowed from the caller of parse */
	size_t len;
};

/* TEXT (at most 1 GiB; need not end in a NUL) stays the caller's and must
 * outlive OUT. -EBADMSG: not JSON, too deep, too many values; ERR says where.
 * -ENOMEM. */
int sf_json_parse(struct sf_json *out, const char *text, size_t len,
		  struct sf_err *err);
void sf_json_free(struct sf_json *json);

/* ITEM, which is of JSON, as an integer. -EINVAL: not a number, or not written
 * as plain digits (sign, fraction, exponent, leading zeros); -ERANGE: more than
 * 64 bits. */
int sf_json_u64(const struct sf_json *json, const struct cJSON *item,
		uint64_t *value);

#endif
