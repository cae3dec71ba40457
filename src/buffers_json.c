/* SPDX-License-Identifier: MIT */
/* Buffers from JSON: see buffers_json.h. Pure; its input is a peer's, and may
 * hold hundreds of thousands. */
#include "config.h"
#include "buffers_json.h"

#include <inttypes.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "json_field.h"
#include "range.h"
#include "segment_draft.h"

enum { NAME, PROTOCOL, ADDR, OFFSET, LENGTH, RKEY, LKEY, NR_MEMBERS };

struct buffers {
	struct sf_draft *d;
	const struct sf_json *json;
	const char *protocol;	/* of buffers that name none */
};

/* How many integers ARRAY has; with KEYS, they are added to it. -1: something
 * else is in there. */
static int64_t decode_keys(const struct buffers *ctx, const cJSON *array,
			   uint64_t max, struct sf_vec *keys)
{
	uint64_t v, *to;
	int64_t n = 0;

	if (!array)
		return 0;
	if (!cJSON_IsArray(array))
		return -1;
	for (const cJSON *k = array->child; k; k = k->next, n++) {
		if (sf_json_integer(ctx->json, k, max, &v))
			return -1;
		to = keys ? sf_draft_add(ctx->d, keys, sizeof(*to), 1) : NULL;
		if (to)
			*to = v;
	}
	return n;
}

static const char *decode_key_pair(const struct buffers *ctx,
				   const cJSON *rkey, const cJSON *lkey,
				   struct sf_draft_buffer *b)
{
	struct sf_vec *keys = &ctx->d->keys;
	size_t first = keys->nr;
	int64_t nr = decode_keys(ctx, rkey, UINT32_MAX, keys);
	const char *why = NULL;

	if (nr < 0)
		why = "rkey is not an array of 32-bit integers";
	else if (!nr)
		why = "no rkey: local to its owner";
	else if (decode_keys(ctx, lkey, UINT64_MAX, NULL) != nr)
		why = "as many lkeys as rkeys are needed";
	else if ((size_t)nr != ctx->d->devices.nr)
		why = "the number of rkeys is not that of devices";
	if (why) {
		keys->nr = first;
		return why;
	}
	b->first_key = (uint32_t)first;
	b->nr_keys = (uint32_t)nr;
	return NULL;
}

/* What makes the buffer unusable, or NULL. *WHICH becomes the member. */
static const char *decode_range(const struct buffers *ctx,
				const struct sf_json_field *f, bool is_cxl,
				const char **which, struct sf_draft_buffer *b)
{
	const struct sf_json_field *addr = &f[is_cxl ? OFFSET : ADDR];
	const char *why;

	*which = addr->name;
	if (!addr->item)
		return "is missing";
	why = sf_json_integer(ctx->json, addr->item, UINT64_MAX, &b->addr);
	if (why || !b->addr)
		return why ? why : "is 0";
	*which = f[LENGTH].name;
	if (!f[LENGTH].item)
		return "is missing";
	why = sf_json_integer(ctx->json, f[LENGTH].item, UINT64_MAX,
			      &b->length);
	if (why || !b->length)
		return why ? why : "is 0";
	*which = "addr + length";
	return sf_range_ok(b->addr, b->length) ? NULL : "wraps around";
}

static enum sf_protocol protocol_of(const char *text)
{
	if (!strcmp(text, "tcp"))
		return SF_PROTOCOL_TCP;
	if (!strcmp(text, "rdma"))
		return SF_PROTOCOL_RDMA;
	return SF_PROTOCOL_OTHER;
}

/* What the buffer cannot be listed without; else as decode_range(). */
static const char *decode_needed(const struct buffers *ctx,
				 const struct sf_json_field *f,
				 const char **which, struct sf_draft_buffer *b)
{
	const char *protocol = ctx->protocol;

	*which = f[PROTOCOL].name;
	if (f[PROTOCOL].item)
		protocol = cJSON_GetStringValue(f[PROTOCOL].item);
	if (!protocol || !*protocol)
		return "is not a name";
	b->proto = protocol_of(protocol);
	b->protocol = sf_draft_string(ctx->d, protocol);
	return decode_range(ctx, f, !strcmp(protocol, "cxl"), which, b);
}

static void decode_rest(const struct buffers *ctx,
			const struct sf_json_field *f,
			struct sf_draft_buffer *b)
{
	const char *why = NULL;

	if (b->proto == SF_PROTOCOL_RDMA)
		why = decode_key_pair(ctx, f[RKEY].item, f[LKEY].item, b);
	if (why)
		sf_draft_problem(ctx->d, "buffer %" PRIu32 ": %s", b->index,
				 why);
	if (cJSON_IsString(f[NAME].item))
		b->location = sf_draft_string(ctx->d,
					      f[NAME].item->valuestring);
	else if (f[NAME].item)
		sf_draft_problem(ctx->d, "buffer %" PRIu32 ": name is not a "
					 "string", b->index);
}

static void decode_buffer(const struct buffers *ctx, const cJSON *item,
			  uint32_t index)
{
	struct sf_json_field f[NR_MEMBERS] = {
		[NAME] = { "name", NULL },
		[PROTOCOL] = { "protocol", NULL },
		[ADDR] = { "addr", NULL },
		[OFFSET] = { "offset", NULL },
		[LENGTH] = { "length", NULL },
		[RKEY] = { "rkey", NULL },
		[LKEY] = { "lkey", NULL },
	};
	struct sf_draft_buffer b = { .index = index }, *to;
	const char *which = "it", *why = "is not an object";

	if (cJSON_IsObject(item)) {
		sf_json_fields(item, f, NR_MEMBERS);
		why = decode_needed(ctx, f, &which, &b);
	}
	if (why) {
		sf_draft_problem(ctx->d, "buffer %" PRIu32 ": %s %s, left out",
				 index, which, why);
		return;
	}
	decode_rest(ctx, f, &b);
	to = sf_draft_add(ctx->d, &ctx->d->buffers, sizeof(*to), 1);
	if (to)
		*to = b;
}

void sf_buffers_json_decode(struct sf_draft *d, const struct sf_json *json,
			    const cJSON *array, const char *protocol)
{
	const struct buffers ctx = { d, json, protocol };
	uint32_t i = 0;

	for (const cJSON *item = array ? array->child : NULL; item && !d->oom;
	     item = item->next)
		decode_buffer(&ctx, item, i++);
}
