/* SPDX-License-Identifier: MIT */
/*
 * Connection messages: see handshake_rdma.h. Pure; what is decoded comes from
 * peers. A decoded message lives in one allocation.
 */
#include "config.h"
#include "handshake_rdma.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "json.h"
#include "json_field.h"

#define QP_NUM_MAX 0xffffff	/* 24 bits on the wire */

enum { LOCAL_PATH, PEER_PATH, GID, REPLY, NR_STRINGS, LID = NR_STRINGS, QPS,
       ACK, NR_FIELDS };

static int wrong(struct sf_err *err, const char *name, const char *what)
{
	return sf_err_set(err, -EBADMSG, "%s %s", name, what);
}

static int check_strings(const struct sf_json_field *f, size_t *bytes,
			 struct sf_err *err)
{
	for (int i = 0; i < NR_STRINGS; i++) {
		if (!f[i].item)
			*bytes += 1;
		else if (cJSON_IsString(f[i].item))
			*bytes += strlen(f[i].item->valuestring) + 1;
		else
			return wrong(err, f[i].name, "is not a string");
	}
	return 0;
}

static int decode_qps(const struct sf_json *json, const cJSON *array,
		      uint32_t *out, uint32_t *nr, struct sf_err *err)
{
	uint64_t v;

	if (!array)
		return 0;
	if (!cJSON_IsArray(array))
		return wrong(err, "qp_num", "is not an array");
	for (const cJSON *i = array->child; i; i = i->next) {
		if (*nr == SF_HANDSHAKE_QPS_MAX)
			return wrong(err, "qp_num", "is too long");
		if (sf_json_u64(json, i, &v) || v > QP_NUM_MAX)
			return wrong(err, "qp_num", "holds what is no QP");
		out[(*nr)++] = (uint32_t)v;
	}
	return 0;
}

/* Read by Mooncake as 0 unless it is an unsigned integer. */
static uint16_t decode_lid(const struct sf_json *json, const cJSON *item)
{
	uint64_t v;

	return item && !sf_json_u64(json, item, &v) && v <= UINT16_MAX ?
		       (uint16_t)v : 0;
}

static int decode_ack(const cJSON *item, enum sf_ready_ack *out,
		      struct sf_err *err)
{
	if (!item)
		*out = SF_READY_ACK_ABSENT;
	else if (!cJSON_IsBool(item))
		return wrong(err, "ready_ack", "is not a boolean");
	else
		*out = cJSON_IsTrue(item) ? SF_READY_ACK_TRUE
					  : SF_READY_ACK_FALSE;
	return 0;
}

static const char *put_string(char **at, const cJSON *item)
{
	const char *text = item ? item->valuestring : "";
	size_t len = strlen(text) + 1;
	char *start = *at;

	memcpy(start, text, len);
	*at += len;
	return start;
}

static int decode_object(struct sf_handshake_rdma *out,
			 const struct sf_json *json, struct sf_err *err)
{
	struct sf_json_field f[NR_FIELDS] = {
		[LOCAL_PATH] = { "local_nic_path", NULL },
		[PEER_PATH] = { "peer_nic_path", NULL },
		[GID] = { "local_gid", NULL },
		[REPLY] = { "reply_msg", NULL },
		[LID] = { "local_lid", NULL },
		[QPS] = { "qp_num", NULL },
		[ACK] = { "ready_ack", NULL },
	};
	struct sf_handshake_rdma m = { 0 };
	uint32_t qps[SF_HANDSHAKE_QPS_MAX];
	size_t bytes = sizeof(qps);
	char *at;
	int ret;

	sf_json_fields(json->root, f, NR_FIELDS);
	ret = check_strings(f, &bytes, err);
	if (!ret)
		ret = decode_qps(json, f[QPS].item, qps, &m.nr_qps, err);
	if (!ret)
		ret = decode_ack(f[ACK].item, &m.ready_ack, err);
	if (ret)
		return ret;
	m.local_lid = decode_lid(json, f[LID].item);
	m.memory = malloc(bytes);
	if (!m.memory)
		return sf_err_set(err, -ENOMEM, "out of memory");
	memcpy(m.memory, qps, sizeof(qps));
	m.qp_num = m.memory;
	at = (char *)m.memory + sizeof(qps);
	m.local_nic_path = put_string(&at, f[LOCAL_PATH].item);
	m.peer_nic_path = put_string(&at, f[PEER_PATH].item);
	m.local_gid = put_string(&at, f[GID].item);
	m.reply_msg = put_string(&at, f[REPLY].item);
	*out = m;
	return 0;
}

int sf_handshake_rdma_decode(struct sf_handshake_rdma *out, const char *text,
			     size_t len, struct sf_err *err)
{
	struct sf_json json;
	int ret = sf_json_parse(&json, text, len, err);

	if (ret)
		return ret;
	if (cJSON_IsNull(json.root))
		ret = sf_err_set(err, -ENODATA, "is null");
	else if (!cJSON_IsObject(json.root))
		ret = sf_err_set(err, -EBADMSG, "is not an object");
	else
		ret = decode_object(out, &json, err);
	sf_json_free(&json);
	return ret;
}

void sf_handshake_rdma_fini(struct sf_handshake_rdma *m)
{
	free(m->memory);
	m->memory = NULL;
}

static bool add_string(cJSON *root, const char *name, const char *text)
{
	return cJSON_AddStringToObject(root, name, text ? text : "");
}

static bool add_qps(cJSON *root, const struct sf_handshake_rdma *m)
{
	cJSON *array = cJSON_AddArrayToObject(root, "qp_num"), *item;

	for (uint32_t i = 0; array && i < m->nr_qps; i++) {
		item = cJSON_CreateNumber(m->qp_num[i]);
		if (!item || !cJSON_AddItemToArray(array, item)) {
			cJSON_Delete(item);
			return false;
		}
	}
	return array;
}

char *sf_handshake_rdma_encode(const struct sf_handshake_rdma *m)
{
	cJSON *root = cJSON_CreateObject();
	char *text = NULL;

	if (root && add_string(root, "local_gid", m->local_gid) &&
	    cJSON_AddNumberToObject(root, "local_lid", m->local_lid) &&
	    add_string(root, "local_nic_path", m->local_nic_path) &&
	    add_string(root, "payload", "") &&
	    add_string(root, "peer_nic_path", m->peer_nic_path) &&
	    add_qps(root, m) &&
	    (m->ready_ack == SF_READY_ACK_ABSENT ||
	     cJSON_AddBoolToObject(root, "ready_ack",
				   m->ready_ack == SF_READY_ACK_TRUE)) &&
	    add_string(root, "reply_msg", m->reply_msg))
		text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	return text;
}
