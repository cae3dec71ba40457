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
#include <string.h>

#include <cjson/cJSON.h>

#include "buffers_json.h"
#include "devices_json.h"
#include "err.h"
#include "json.h"
#include "json_field.h"
#include "segment_draft.h"
#include "topology_json.h"

/* A string member of the descriptor that only describes. */
static uint32_t optional_string(struct sf_draft *d,
				const struct sf_json_field *f)
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
			 const struct sf_json_field *f, uint64_t max,
			 uint64_t *out)
{
	const char *why;

	why = f->item ? sf_json_integer(json, f->item, max, out) : NULL;
	if (why)
		sf_draft_fail(d, -EBADMSG, "%s %s", f->name, why);
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
	enum { NAME, PROTOCOL, STAMP, PORT, TCP_VERSION, HOST, RDMA_NAME,
	       DEVICES, BUFFERS, MATRIX, NR };
	struct sf_json_field f[NR] = {
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

	sf_json_fields(json->root, f, NR);
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
	sf_devices_json_decode(d, json, f[DEVICES].item);
	sf_topology_json_decode(d, f[MATRIX].item);
	sf_buffers_json_decode(d, json, f[BUFFERS].item, protocol);
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
	struct sf_json_field f[] = { { "ip_or_host_name", NULL },
				     { "rpc_port", NULL } };
	struct sf_err err = { 0 };
	const char *why, *which = f[1].name;
	struct sf_json json;
	uint64_t port = 0;

	if (!parse(d, &json, text, len, &err)) {
		sf_draft_problem(d, "rpc_meta is %s", err.text);
		return;
	}
	sf_json_fields(json.root, f, 2);
	why = f[1].item ? sf_json_integer(&json, f[1].item, UINT16_MAX, &port) :
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
