/* SPDX-License-Identifier: MIT */
/*
 * One call of etcd's JSON gateway, in three layers: at any endpoint, at one
 * endpoint with a token that may have to be renewed, and at one of the paths
 * that gateways of different ages have. Any thread; nothing is locked while the
 * network is waited for.
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "clock.h"
#include "err.h"
#include "meta/curl.h"
#include "meta/etcd_json.h"

static const char *const gateway_paths[] = { "/v3", "/v3beta", "/v3alpha" };

#define NR_PATHS (sizeof(gateway_paths) / sizeof(gateway_paths[0]))

char *sf_etcd_url(const struct sf_etcd_endpoint *endpoint, const char *method)
{
	unsigned int path = atomic_load(&endpoint->path);
	char *url;

	if (asprintf(&url, "%s%s/%s", endpoint->url, gateway_paths[path],
		     method) < 0)
		return NULL;
	return url;
}

void sf_etcd_reply_fini(struct sf_etcd_reply *reply)
{
	cJSON_Delete(reply->json);
	if (reply->raw)
		explicit_bzero(reply->raw, reply->len);
	free(reply->raw);
	memset(reply, 0, sizeof(*reply));
}

/* ---- one endpoint, one token ---- */

static int post(struct sf_etcd *etcd, struct sf_etcd_endpoint *endpoint,
		const struct sf_etcd_call *call, const char *token,
		struct sf_curl_reply *http, struct sf_err *err)
{
	char *url = sf_etcd_url(endpoint, call->method);
	struct sf_curl_request request = {
		.url = url,
		.where = endpoint->where,
		.authorization = token,
		.body = call->body,
		.len = call->len ? call->len : strlen(call->body),
		.deadline_ms = call->deadline_ms,
		.connect_timeout_ms = etcd->connect_timeout_ms,
		.reply_max = SF_ETCD_REPLY_MAX,
		.abort = call->abort,
	};
	int res;

	if (!url)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = sf_curl_perform(etcd->curl, &request, http, err);
	free(url);
	return res;
}

/* "404 page not found", where etcd itself would say a code. */
static bool is_no_gateway(const struct sf_curl_reply *http)
{
	cJSON *json;
	bool has_code;

	if (http->status != 404)
		return false;
	json = cJSON_Parse(http->data);
	has_code = sf_etcd_member(json, "code") != NULL;
	cJSON_Delete(json);
	return !has_code;
}

/* Post at the path that worked before, else at the others. */
static int post_any_path(struct sf_etcd *etcd,
			 struct sf_etcd_endpoint *endpoint,
			 const struct sf_etcd_call *call, const char *token,
			 struct sf_curl_reply *http, struct sf_err *err)
{
	unsigned int i, path;
	int res;

	for (i = 0; i < NR_PATHS; i++) {
		path = atomic_load(&endpoint->path);
		res = post(etcd, endpoint, call, token, http, err);
		if (res || !is_no_gateway(http))
			return res;
		sf_curl_reply_fini(http);
		atomic_compare_exchange_strong(&endpoint->path, &path,
					       (path + 1) % NR_PATHS);
	}
	return sf_err_set(err, -EPROTO,
			  "%s: no JSON gateway of etcd v3 (tried %s, %s, %s)",
			  endpoint->where, gateway_paths[0], gateway_paths[1],
			  gateway_paths[2]);
}

int sf_etcd_exchange(struct sf_etcd *etcd, unsigned int i,
		     const struct sf_etcd_call *call, const char *token,
		     struct sf_etcd_reply *reply, bool *auth,
		     struct sf_err *err)
{
	struct sf_etcd_endpoint *endpoint = &etcd->endpoints[i];
	struct sf_curl_reply http;
	cJSON *json;
	int res;

	res = post_any_path(etcd, endpoint, call, token, &http, err);
	if (res)
		return res;
	if (http.status != 200) {
		res = sf_etcd_verdict(etcd, endpoint->where, http.status,
				      http.data, auth, err);
		sf_curl_reply_fini(&http);
		return res;
	}
	json = cJSON_ParseWithLength(http.data, http.len);
	if (!cJSON_IsObject(json)) {
		cJSON_Delete(json);
		sf_curl_reply_fini(&http);
		return sf_err_set(err, -EBADMSG,
				  "%s: the reply is not JSON of etcd",
				  endpoint->where);
	}
	reply->json = json;
	reply->raw = http.data;
	reply->len = http.len;
	return 0;
}

/* ---- one endpoint ---- */

/* Some versions answer a bad token by hanging up. */
static int hung_up(struct sf_etcd *etcd, unsigned int i, bool with_token,
		   struct sf_err *err)
{
	const char *where = etcd->endpoints[i].where;

	if (with_token)
		return sf_err_set(err, -EACCES,
				  "%s: closes the connection without an "
				  "answer, as it may do when it refuses a "
				  "user",
				  where);
	return sf_err_set(err, -EIO,
			  "%s: closed the connection without an answer%s",
			  where,
			  strncmp(etcd->endpoints[i].url, "https:", 6)
				  ? " (does it want TLS?)"
				  : "");
}

int sf_etcd_call_at(struct sf_etcd *etcd, unsigned int i,
		    const struct sf_etcd_call *call,
		    struct sf_etcd_reply *reply, struct sf_err *err)
{
	unsigned int nr, tries = 0;
	char *token;
	bool auth;
	int res;

	do {
		auth = false;
		res = sf_etcd_token(etcd, i, call, &token, &nr, err);
		if (res)
			break;
		res = sf_etcd_exchange(etcd, i, call, token, reply, &auth, err);
		sf_etcd_secret_free(token);
		if (res == -ENODATA && nr)
			auth = true;
		if (!res || !auth || !etcd->user)
			break;
		sf_etcd_token_refused(etcd, nr);
	} while (!tries++);

	if (res == -ENODATA)
		return hung_up(etcd, i, auth, err);
	if (res == -ECONNRESET)
		return err ? err->code = -EIO : -EIO;
	return res;
}

/* ---- any endpoint ---- */

/* Another endpoint of the cluster would say the same. */
static bool is_final(int res)
{
	switch (res) {
	case 0:
	case -ENOENT:
	case -EACCES:
	case -EPERM:
	case -EMSGSIZE:
	case -ENOSPC:
	case -ENOMEM:
	case -ECANCELED:
		return true;
	default:
		return false;
	}
}

/* One silent endpoint must not use up the time of all. */
static uint64_t share_deadline(uint64_t deadline, unsigned int nr_left)
{
	uint64_t now = sf_now_ms();

	if (deadline <= now)
		return deadline;
	return now + (deadline - now + nr_left - 1) / nr_left;
}

/* "a:1: refused; b:1: timed out" */
static void add_text(struct sf_err *err, const struct sf_err *one)
{
	size_t len;

	if (!err)
		return;
	len = strlen(err->text);
	snprintf(err->text + len, sizeof(err->text) - len, "%s%s",
		 len ? "; " : "", one->text);
	err->code = one->code;
}

int sf_etcd_call(struct sf_etcd *etcd, const struct sf_etcd_call *call,
		 struct sf_etcd_reply *reply, struct sf_err *err)
{
	unsigned int first = atomic_load(&etcd->preferred), n, i;
	struct sf_etcd_call one = *call;
	uint64_t deadline = call->deadline_ms;
	struct sf_err one_err;
	int res = -EIO;

	if (!deadline)
		deadline = sf_now_ms() + etcd->timeout_ms;
	if (err)
		err->text[0] = '\0';
	for (n = 0; n < etcd->nr_endpoints; n++) {
		i = (first + n) % etcd->nr_endpoints;
		one.deadline_ms =
			share_deadline(deadline, etcd->nr_endpoints - n);
		res = sf_etcd_call_at(etcd, i, &one, reply, &one_err);
		if (!res) {
			atomic_store(&etcd->preferred, i);
			return 0;
		}
		if (is_final(res)) {
			if (err)
				*err = one_err;
			return res;
		}
		add_text(err, &one_err);
	}
	return res;
}

int sf_etcd_run(struct sf_etcd *etcd, const char *method, char *body,
		struct sf_etcd_reply *reply, struct sf_err *err)
{
	struct sf_etcd_call call = { .method = method, .body = body };
	int res;

	if (!body)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = sf_etcd_call(etcd, &call, reply, err);
	free(body);
	if (!res)
		return 0;
	if (res == -EPERM)
		res = -EACCES;
	if (err)
		err->code = res;
	sf_err_prefix(err, "etcd");
	return res;
}

int sf_etcd_ping(struct sf_etcd *etcd, unsigned int i, uint64_t deadline_ms,
		 const atomic_bool *abort, struct sf_err *err)
{
	struct sf_etcd_call call = {
		.method = "kv/range",
		.deadline_ms = deadline_ms,
		.abort = abort,
	};
	struct sf_etcd_reply reply;
	char *key, *body;
	int res;

	key = sf_etcd_base64(etcd->prefix, strlen(etcd->prefix));
	if (!key ||
	    asprintf(&body, "{\"key\":\"%s\",\"count_only\":true}", key) < 0) {
		free(key);
		return sf_err_set(err, -ENOMEM, "out of memory");
	}
	call.body = body;
	res = i == UINT_MAX ? sf_etcd_call(etcd, &call, &reply, err)
			    : sf_etcd_call_at(etcd, i, &call, &reply, err);
	free(key);
	free(body);
	if (!res)
		sf_etcd_reply_fini(&reply);
	/* A user who may not read just this key is a user all the same. */
	return res == -EPERM ? 0 : res;
}
