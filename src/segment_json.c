/* SPDX-License-Identifier: MIT */
/*
 * SegmentDesc and rpc_meta documents into a draft: see segment_json.h. Pure.
 *
 * Everything here comes from others. A field of the descriptor itself that
 * cannot be trusted spoils the descriptor; one of a buffer spoils that buffer
 * only. Numbers are taken exactly or not at all.
 */
#include "config.h"
#include "segment_json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "gid.h"
#include "json.h"
#include "range.h"
#include "segment_draft.h"
#include "topology_json.h"

struct field {
	const char *name;
	const cJSON *item;	/* NULL: missing, or null */
};

/* One walk: cJSON's own look-up is linear for each name. */
static void find_fields(const cJSON *object, struct field *fields, size_t nr)
{
	for (const cJSON *m = object->child; m; m = m->next)
		for (size_t i = 0; i < nr; i++)
			if (!strcmp(fields[i].name, m->string))
				fields[i].item = cJSON_IsNull(m) ? NULL : m;
}

/* NULL, or what is wrong with the integer ITEM (which is not NULL). */
static const char *read_u64(const struct sf_json *json, const cJSON *item,
			    uint64_t max, uint64_t *out)
{
	uint64_t v;

	switch (sf_json_u64(json, item, &v)) {
	case 0:
		break;
	case -ERANGE:
		return "is too large";
	default:
		return "is not a plain integer";
	}
	if (v > max)
		return "is too large";
	*out = v;
	return NULL;
}

/* A string member of the descriptor that only describes. */
static uint32_t optional_string(struct sf_draft *d, const struct field *f)
{
	if (!f->item)
		return 0;
	if (cJSON_IsString(f->item))
		return sf_draft_string(d, f->item->valuestring);
	sf_draft_problem(d, "%s is not a string", f->name);
	return 0;
}

/* An integer member of the descriptor; *OUT keeps its value when missing. */
static void required_u64(struct sf_draft *d, const struct sf_json *json,
			 const struct field *f, uint64_t max, uint64_t *out)
{
	const char *why;

	why = f->item ? read_u64(json, f->item, max, out) : NULL;
	if (why)
		sf_draft_fail(d, -EBADMSG, "%s %s", f->name, why);
}

static enum sf_protocol protocol_of(const char *text)
{
	if (!strcmp(text, "tcp"))
		return SF_PROTOCOL_TCP;
	if (!strcmp(text, "rdma"))
		return SF_PROTOCOL_RDMA;
	return SF_PROTOCOL_OTHER;
}

/* ---- protocol ---- */

/* The array form as "tcp,rdma"; *FIRST is its first element. */
static void decode_protocols(struct sf_draft *d, const cJSON *array,
			     const char **first)
{
	char text[256] = "";
	size_t len = 0;

	for (const cJSON *p = array->child; p; p = p->next) {
		size_t n;

		if (!cJSON_IsString(p) || !*p->valuestring) {
			sf_draft_problem(d, "protocol has an element that is "
					    "not a name");
			continue;
		}
		if (!*first)
			*first = p->valuestring;
		n = strlen(p->valuestring);
		if (len + 1 + n < sizeof(text)) {
			if (len)
				text[len++] = ',';
			memcpy(text + len, p->valuestring, n + 1);
			len += n;
		}
	}
	d->protocol = sf_draft_string(d, text);
}

/* Returns the protocol of buffers that name none; NULL: unusable. */
static const char *decode_protocol(struct sf_draft *d, const cJSON *item)
{
	const char *first = NULL;

	if (cJSON_IsArray(item)) {
		decode_protocols(d, item, &first);
	} else if (cJSON_IsString(item) && *item->valuestring) {
		first = item->valuestring;
		d->protocol = sf_draft_string(d, first);
	}
	if (!first)
		sf_draft_fail(d, -EBADMSG, "protocol %s",
			      !item ? "is missing" :
			      cJSON_IsArray(item) || cJSON_IsString(item) ?
				      "is empty" : "is not a string");
	return first;
}

/* ---- devices ---- */

static const char *decode_device(struct sf_draft *d,
				 const struct sf_json *json, const cJSON *item,
				 struct sf_draft_device *dev)
{
	enum { NAME, LID, GID, NR };
	struct field f[NR] = { { "name", NULL }, { "lid", NULL },
			       { "gid", NULL } };
	const char *why = NULL;
	uint64_t lid = 0;

	if (!cJSON_IsObject(item))
		return "is not an object";
	find_fields(item, f, NR);
	if (!cJSON_IsString(f[NAME].item) || !*f[NAME].item->valuestring)
		return "has no name";
	dev->name = sf_draft_string(d, f[NAME].item->valuestring);
	if (f[LID].item)
		why = read_u64(json, f[LID].item, UINT16_MAX, &lid);
	if (why)
		return "has a bad lid";
	dev->lid = (uint16_t)lid;
	if (!cJSON_IsString(f[GID].item) ||
	    sf_gid_parse(f[GID].item->valuestring, dev->gid))
		return "has a bad gid";
	dev->has_gid = !sf_gid_is_zero(dev->gid);
	return dev->has_gid ? NULL : "has a gid of zeros: not in use";
}

/* Every entry keeps its position, because keys belong to positions. */
static void decode_devices(struct sf_draft *d, const struct sf_json *json,
			   const cJSON *array)
{
	struct sf_draft_device *dev;
	const char *why;
	uint32_t i = 0;

	if (!array)
		return;
	if (!cJSON_IsArray(array)) {
		sf_draft_problem(d, "devices is not an array");
		return;
	}
	for (const cJSON *item = array->child; item; item = item->next, i++) {
		if (i == SF_DEVICES_MAX) {
			sf_draft_problem(d, "more than %d devices: none used",
					 SF_DEVICES_MAX);
			d->devices.nr = 0;
			return;
		}
		dev = sf_draft_add(d, &d->devices, sizeof(*dev), 1);
		if (!dev)
			return;
		why = decode_device(d, json, item, dev);
		if (why)
			sf_draft_problem(d, "device %" PRIu32 " %s", i, why);
	}
}

/* ---- buffers ---- */

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
		if (read_u64(ctx->json, k, max, &v))
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

/* What makes the buffer unusable, or NULL. WHICH is the member with the
 * address. */
static const char *decode_range(const struct buffers *ctx,
				const cJSON *addr, const cJSON *length,
				const char **which, struct sf_draft_buffer *b)
{
	const char *why;

	if (!addr)
		return "is missing";
	why = read_u64(ctx->json, addr, UINT64_MAX, &b->addr);
	if (why || !b->addr)
		return why ? why : "is 0";
	*which = "length";
	if (!length)
		return "is missing";
	why = read_u64(ctx->json, length, UINT64_MAX, &b->length);
	if (why || !b->length)
		return why ? why : "is 0";
	*which = "addr + length";
	return sf_range_ok(b->addr, b->length) ? NULL : "wraps around";
}

static void decode_buffer(const struct buffers *ctx, const cJSON *item,
			  uint32_t index)
{
	enum { NAME, PROTOCOL, ADDR, OFFSET, LENGTH, RKEY, LKEY, NR };
	struct field f[NR] = {
		[NAME] = { "name", NULL },     [PROTOCOL] = { "protocol", NULL },
		[ADDR] = { "addr", NULL },     [OFFSET] = { "offset", NULL },
		[LENGTH] = { "length", NULL }, [RKEY] = { "rkey", NULL },
		[LKEY] = { "lkey", NULL },
	};
	struct sf_draft_buffer b = { .index = index }, *to;
	struct sf_draft *d = ctx->d;
	const char *protocol = ctx->protocol, *which, *why;
	bool is_cxl;

	if (!cJSON_IsObject(item)) {
		sf_draft_problem(d, "buffer %" PRIu32 " is not an object, left "
				    "out", index);
		return;
	}
	find_fields(item, f, NR);
	if (f[PROTOCOL].item) {
		protocol = cJSON_GetStringValue(f[PROTOCOL].item);
		if (!protocol || !*protocol) {
			sf_draft_problem(d, "buffer %" PRIu32 ": protocol is "
					    "not a name, left out", index);
			return;
		}
	}
	is_cxl = !strcmp(protocol, "cxl");
	which = f[is_cxl ? OFFSET : ADDR].name;
	why = decode_range(ctx, f[is_cxl ? OFFSET : ADDR].item, f[LENGTH].item,
			   &which, &b);
	if (why) {
		sf_draft_problem(d, "buffer %" PRIu32 ": %s %s, left out",
				 index, which, why);
		return;
	}
	b.proto = protocol_of(protocol);
	if (b.proto == SF_PROTOCOL_RDMA)
		why = decode_key_pair(ctx, f[RKEY].item, f[LKEY].item, &b);
	if (why)
		sf_draft_problem(d, "buffer %" PRIu32 ": %s", index, why);
	if (cJSON_IsString(f[NAME].item))
		b.location = sf_draft_string(d, f[NAME].item->valuestring);
	else if (f[NAME].item)
		sf_draft_problem(d, "buffer %" PRIu32 ": name is not a string",
				 index);
	b.protocol = sf_draft_string(d, protocol);
	to = sf_draft_add(d, &d->buffers, sizeof(*to), 1);
	if (to)
		*to = b;
}

static void decode_buffers(struct sf_draft *d, const struct sf_json *json,
			   const char *protocol, const cJSON *array)
{
	const struct buffers ctx = { d, json, protocol };
	uint32_t i = 0;

	for (const cJSON *item = array ? array->child : NULL; item && !d->oom;
	     item = item->next)
		decode_buffer(&ctx, item, i++);
}

/* ---- the documents ---- */

static bool parse(struct sf_draft *d, struct sf_json *json, const char *text,
		  size_t len, struct sf_err *err)
{
	int rc = sf_json_parse(json, text, len, err);

	if (rc == -ENOMEM)
		d->oom = true;
	if (rc)
		return false;
	if (cJSON_IsObject(json->root))
		return true;
	sf_err_set(err, -EBADMSG, "not a JSON object");
	sf_json_free(json);
	return false;
}

static void check_name(struct sf_draft *d)
{
	const char *name = sf_draft_text(d, d->self_name);

	if (!*name)
		sf_draft_problem(d, "name is missing");
	else if (strcmp(name, sf_draft_text(d, d->name)))
		sf_draft_problem(d, "the descriptor is another name's: %.100s",
				 name);
}

static void decode_descriptor(struct sf_draft *d, const struct sf_json *json)
{
	enum { NAME, PROTOCOL, STAMP, PORT, TCP_VERSION, HOST, RDMA_NAME, DEVICES,
	       BUFFERS, MATRIX, NR };
	struct field f[NR] = {
		[NAME] = { "name", NULL },
		[PROTOCOL] = { "protocol", NULL },
		[STAMP] = { "timestamp", NULL },
		[PORT] = { "tcp_data_port", NULL },
		[TCP_VERSION] = { "tcp_proto_version", NULL },
		[HOST] = { "tcp_data_host", NULL },
		[RDMA_NAME] = { "rdma_server_name", NULL },
		[DEVICES] = { "devices", NULL },
		[BUFFERS] = { "buffers", NULL },
		[MATRIX] = { "priority_matrix", NULL },
	};
	uint64_t port = 0, version = 1;
	const char *protocol;

	find_fields(json->root, f, NR);
	protocol = decode_protocol(d, f[PROTOCOL].item);
	d->self_name = optional_string(d, &f[NAME]);
	d->timestamp = optional_string(d, &f[STAMP]);
	d->tcp_data_host = optional_string(d, &f[HOST]);
	d->rdma_server_name = optional_string(d, &f[RDMA_NAME]);
	required_u64(d, json, &f[PORT], UINT16_MAX, &port);
	required_u64(d, json, &f[TCP_VERSION], UINT64_MAX, &version);
	d->tcp_data_port = (uint16_t)port;
	d->tcp_version = version >= 2 ? 2 : 1;
	if (f[BUFFERS].item && !cJSON_IsArray(f[BUFFERS].item))
		sf_draft_fail(d, -EBADMSG, "buffers is not an array");
	check_name(d);
	if (d->error)
		return;
	decode_devices(d, json, f[DEVICES].item);
	sf_topology_json_decode(d, f[MATRIX].item);
	decode_buffers(d, json, protocol, f[BUFFERS].item);
}

void sf_segment_json_decode(struct sf_draft *d, const char *text, size_t len)
{
	struct sf_err err = { 0 };
	struct sf_json json;

	if (len > SF_DESCRIPTOR_MAX) {
		sf_draft_fail(d, -EBADMSG, "the descriptor has %zu bytes, more "
					   "than %u", len, SF_DESCRIPTOR_MAX);
		return;
	}
	if (!parse(d, &json, text, len, &err)) {
		sf_draft_fail(d, -EBADMSG, "the descriptor is %s", err.text);
		return;
	}
	decode_descriptor(d, &json);
	sf_json_free(&json);
}

/* A host that can be shown and resolved; brackets around a literal are not
 * part of it. */
static const char *decode_host(struct sf_draft *d, const cJSON *item)
{
	char host[256];
	size_t len;

	if (!cJSON_IsString(item))
		return item ? "is not a string" : "is missing";
	len = strnlen(item->valuestring, sizeof(host));
	if (!len || len == sizeof(host))
		return len ? "is too long" : "is empty";
	memcpy(host, item->valuestring, len + 1);
	for (size_t i = 0; i < len; i++)
		if (host[i] <= ' ' || host[i] == 0x7f || host[i] == '/')
			return "is not a host";
	if (host[0] == '[' && host[len - 1] == ']' && len > 2) {
		host[len - 1] = '\0';
		d->rpc_host = sf_draft_string(d, host + 1);
	} else {
		d->rpc_host = sf_draft_string(d, host);
	}
	return NULL;
}

void sf_rpc_meta_json_decode(struct sf_draft *d, const char *text, size_t len)
{
	struct field f[] = { { "ip_or_host_name", NULL },
			     { "rpc_port", NULL } };
	struct sf_err err = { 0 };
	const char *why, *which = f[1].name;
	struct sf_json json;
	uint64_t port = 0;

	if (!parse(d, &json, text, len, &err)) {
		sf_draft_problem(d, "rpc_meta is %s", err.text);
		return;
	}
	find_fields(json.root, f, 2);
	why = f[1].item ? read_u64(&json, f[1].item, UINT16_MAX, &port) :
			  "is missing";
	if (!why && !port)
		why = "is 0";
	if (!why) {
		which = f[0].name;
		why = decode_host(d, f[0].item);
	}
	if (why)
		sf_draft_problem(d, "rpc_meta: %s %s", which, why);
	else
		d->rpc_port = (uint16_t)port;
	sf_json_free(&json);
}
