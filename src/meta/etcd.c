/* SPDX-License-Identifier: MIT */
/*
 * The etcd backend: etcd v3 through its JSON gateway. This file has the
 * operations on single keys and leases; see etcd.h for the others. Any thread.
 * It knows keys and bodies; endpoints, tokens and the network are below
 * sf_etcd_call().
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "log.h"
#include "meta/backends.h"
#include "meta/curl.h"
#include "meta/etcd_json.h"

#define TIMEOUT_MS	   5000
#define CONNECT_TIMEOUT_MS 2000

static bool is_set(const char *text)
{
	return text && *text;
}

static int no_memory(struct sf_err *err)
{
	return sf_err_set(err, -ENOMEM, "out of memory");
}

/* ---- open and close ---- */

static void etcd_close(void *priv)
{
	struct sf_etcd *etcd = priv;

	if (!etcd)
		return;
	sf_etcd_unwatch(etcd);
	sf_curl_free(etcd->curl);
	sf_etcd_endpoints_free(etcd);
	free(etcd->cluster_id);
	free(etcd->prefix);
	free(etcd->user);
	sf_etcd_secret_free(etcd->password);
	sf_etcd_secret_free(etcd->token);
	pthread_mutex_destroy(&etcd->lock);
	free(etcd);
}

static int copy_config(struct sf_etcd *etcd,
		       const struct sf_meta_config *config, struct sf_err *err)
{
	etcd->timeout_ms = config->timeout_ms ? config->timeout_ms : TIMEOUT_MS;
	etcd->connect_timeout_ms = config->connect_timeout_ms
					   ? config->connect_timeout_ms
					   : CONNECT_TIMEOUT_MS;
	etcd->has_cert = is_set(config->cert_file);
	etcd->prefix = sf_meta_prefix(config->cluster_id);
	if (!etcd->prefix)
		return no_memory(err);
	if (is_set(config->cluster_id)) {
		etcd->cluster_id = strdup(config->cluster_id);
		if (!etcd->cluster_id)
			return no_memory(err);
	}
	if (!is_set(config->user)) {
		if (is_set(config->password))
			return sf_err_set(err, -EINVAL,
					  "etcd: a password without a user");
		return 0;
	}
	etcd->user = strdup(config->user);
	etcd->password = strdup(config->password ? config->password : "");
	return etcd->user && etcd->password ? 0 : no_memory(err);
}

static int open_curl(struct sf_etcd *etcd, const struct sf_meta_config *config,
		     struct sf_err *err)
{
	struct sf_curl_config curl_config = {
		.ca_file = config->ca_file,
		.cert_file = config->cert_file,
		.key_file = config->key_file,
		.use_proxy = config->use_proxy,
	};

	return sf_curl_new(&etcd->curl, &curl_config, err);
}

static int first_try(struct sf_etcd *etcd, bool tls, struct sf_err *err)
{
	int res;

	if (etcd->user && !tls)
		sf_log(LOG_WARNING, SF_LOG_META,
		       "etcd: the password crosses the network in clear "
		       "without TLS");
	res = sf_etcd_ping(etcd, UINT_MAX, sf_now_ms() + etcd->timeout_ms, NULL,
			   err);
	/* The program may fork before it asks again. */
	sf_curl_drop_idle(etcd->curl);
	if (!res)
		return 0;
	if (res == -EBADMSG && err)
		err->code = -EPROTO;
	sf_err_prefix(err, "etcd");
	return res == -EBADMSG ? -EPROTO : res;
}

static int open_store(void **priv, const char *rest,
		      const struct sf_meta_config *config, bool tls,
		      struct sf_err *err)
{
	struct sf_etcd *etcd = calloc(1, sizeof(*etcd));
	int res;

	if (!etcd)
		return no_memory(err);
	pthread_mutex_init(&etcd->lock, NULL);
	tls = tls || is_set(config->ca_file) || is_set(config->cert_file) ||
	      is_set(config->key_file);
	res = sf_etcd_endpoints_parse(etcd, rest, tls, err);
	if (!res)
		res = copy_config(etcd, config, err);
	if (!res)
		res = open_curl(etcd, config, err);
	if (!res)
		res = first_try(etcd, tls, err);
	if (res)
		etcd_close(etcd);
	else
		*priv = etcd;
	return res;
}

static int etcd_open(void **priv, const char *rest,
		     const struct sf_meta_config *config, struct sf_err *err)
{
	return open_store(priv, rest, config, false, err);
}

static int etcds_open(void **priv, const char *rest,
		      const struct sf_meta_config *config, struct sf_err *err)
{
	return open_store(priv, rest, config, true, err);
}

/* ---- get ---- */

/* The key of a document in base64. NULL: out of memory. */
static char *key64(const struct sf_etcd *etcd, enum sf_meta_kind kind,
		   const char *name)
{
	char *key = sf_meta_key(etcd->cluster_id, kind, name);
	char *text = key ? sf_etcd_base64(key, strlen(key)) : NULL;

	free(key);
	return text;
}

static char *get_body(const struct sf_etcd *etcd, const char *name)
{
	char *segment = key64(etcd, SF_META_SEGMENT, name);
	char *rpc = key64(etcd, SF_META_RPC, name);
	char *body = NULL;

	if (segment && rpc)
		body = sf_etcd_format("{\"success\":["
				      "{\"request_range\":{\"key\":\"%s\"}},"
				      "{\"request_range\":{\"key\":\"%s\"}}]}",
				      segment, rpc);
	free(segment);
	free(rpc);
	return body;
}

/* The value in answer I of a transaction. 0 with NULL: no such key. */
static int take_value(const struct sf_etcd_reply *reply, int i,
		      struct sf_blob **out)
{
	const cJSON *responses = sf_etcd_member(reply->json, "responses");
	const cJSON *range = sf_etcd_member(cJSON_GetArrayItem(responses, i),
					    "response_range");
	const cJSON *kvs = sf_etcd_member(range, "kvs"), *kv;
	int res;

	if (!cJSON_IsObject(range))
		return -EBADMSG;
	if (!kvs || cJSON_IsNull(kvs) ||
	    (cJSON_IsArray(kvs) && !cJSON_GetArraySize(kvs)))
		return 0;
	kv = cJSON_GetArrayItem(kvs, 0);
	if (!cJSON_IsObject(kv))
		return -EBADMSG;
	res = sf_etcd_bytes(out, kv, "value");
	if (res != -ENOENT)
		return res;
	*out = sf_blob_new("", 0); /* empty values are left out */
	return *out ? 0 : -ENOMEM;
}

static int etcd_get(void *priv, const char *name, struct sf_blob **segment,
		    struct sf_blob **rpc, struct sf_err *err)
{
	struct sf_blob *found[2] = { NULL, NULL };
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	int res;

	res = sf_etcd_run(etcd, "kv/txn", get_body(etcd, name), &reply, err);
	if (res)
		return res;
	res = take_value(&reply, 0, &found[0]);
	if (!res)
		res = take_value(&reply, 1, &found[1]);
	sf_etcd_reply_fini(&reply);
	if (res) {
		sf_err_set(err, res,
			   "etcd: the reply about \"%s\" makes no sense",
			   name);
		goto fail;
	}
	if (!found[0] && !found[1])
		return sf_err_set(err, -ENOENT, "no segment \"%s\" in etcd",
				  name);
	*segment = found[0];
	*rpc = found[1];
	return 0;
fail:
	sf_blob_put(found[0]);
	sf_blob_put(found[1]);
	return res;
}

/* ---- put and delete ---- */

static char *put_body(const struct sf_etcd *etcd, enum sf_meta_kind kind,
		      const char *name, const char *value, size_t len,
		      int64_t lease)
{
	char *key = key64(etcd, kind, name);
	char *value64 = sf_etcd_base64(value, len);
	char *body = NULL;

	if (key && value64)
		body = sf_etcd_format("{\"key\":\"%s\",\"value\":\"%s\","
				      "\"lease\":\"%" PRId64 "\"}",
				      key, value64, lease);
	free(key);
	free(value64);
	return body;
}

static int etcd_put(void *priv, enum sf_meta_kind kind, const char *name,
		    const char *value, size_t len, int64_t lease,
		    struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	int res;

	res = sf_etcd_run(etcd, "kv/put",
			  put_body(etcd, kind, name, value, len, lease), &reply,
			  err);
	if (!res)
		sf_etcd_reply_fini(&reply);
	if (res == -EMSGSIZE)
		sf_err_prefix(err,
			      "\"%s\": a value of %zu bytes is over the "
			      "store's limit (1.5 MiB a request unless "
			      "etcd --max-request-bytes says otherwise)",
			      name, len);
	return res;
}

static int etcd_del(void *priv, enum sf_meta_kind kind, const char *name,
		    struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	char *key = key64(etcd, kind, name);
	char *body = key ? sf_etcd_format("{\"key\":\"%s\"}", key) : NULL;
	int res;

	free(key);
	res = sf_etcd_run(etcd, "kv/deleterange", body, &reply, err);
	if (!res)
		sf_etcd_reply_fini(&reply);
	return res;
}

/* ---- leases ---- */

static int lease_error(struct sf_err *err)
{
	return sf_err_set(err, -EBADMSG,
			  "etcd: the reply about a lease makes no sense");
}

static int etcd_lease_grant(void *priv, unsigned int ttl_s, int64_t *lease,
			    struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	int64_t id;
	int res;

	res = sf_etcd_run(etcd, "lease/grant",
			  sf_etcd_format("{\"TTL\":\"%u\"}", ttl_s), &reply,
			  err);
	if (res)
		return res;
	res = sf_etcd_int(&id, reply.json, "ID", reply.raw);
	sf_etcd_reply_fini(&reply);
	if (res || !id)
		return lease_error(err);
	*lease = id;
	return 0;
}

/* A lease that is gone is answered with a life of nothing. */
static int etcd_lease_keepalive(void *priv, int64_t lease, struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	const cJSON *result;
	int64_t ttl = 0;
	int res;

	res = sf_etcd_run(etcd, "lease/keepalive",
			  sf_etcd_format("{\"ID\":\"%" PRId64 "\"}", lease),
			  &reply, err);
	if (res)
		return res;
	result = sf_etcd_member(reply.json, "result");
	if (!result)
		result = reply.json;
	res = sf_etcd_int(&ttl, result, "TTL", NULL);
	sf_etcd_reply_fini(&reply);
	if (res)
		return lease_error(err);
	if (ttl <= 0)
		return sf_err_set(err, -ENOENT, "etcd: the lease has ended");
	return 0;
}

static int etcd_lease_revoke(void *priv, int64_t lease, struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_reply reply;
	int res;

	res = sf_etcd_run(etcd, "lease/revoke",
			  sf_etcd_format("{\"ID\":\"%" PRId64 "\"}", lease),
			  &reply, err);
	if (!res)
		sf_etcd_reply_fini(&reply);
	return res;
}

#define ETCD_OPS                                                               \
	.caps = SF_META_CAN_LIST | SF_META_CAN_WATCH | SF_META_CAN_WRITE |     \
		SF_META_CAN_LEASE,                                             \
	.close = etcd_close, .get = etcd_get, .list = sf_etcd_list,            \
	.watch = sf_etcd_watch, .unwatch = sf_etcd_unwatch,                    \
	.lease_grant = etcd_lease_grant,                                       \
	.lease_keepalive = etcd_lease_keepalive,                               \
	.lease_revoke = etcd_lease_revoke, .put = etcd_put, .del = etcd_del

const struct sf_meta_ops sf_meta_etcd = {
	.scheme = "etcd",
	.open = etcd_open,
	ETCD_OPS,
};

const struct sf_meta_ops sf_meta_etcds = {
	.scheme = "etcds",
	.open = etcds_open,
	ETCD_OPS,
};
