/* SPDX-License-Identifier: MIT */
/*
 * The watch thread: one stream over all keys of the cluster.
 *
 *	connect --created--> standing --breaks or falls silent--> back-off
 *	   ^                  (SYNC)          (LOST)                 |
 *	   +---------------------------------------------------------+
 *
 * A stream without changes looks the same as a dead server, so while nothing
 * comes the thread asks the same endpoint a small question every few seconds.
 * Everything but `stop` belongs to the thread.
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "meta/curl.h"
#include "meta/etcd_json.h"
#include "thread.h"

#define PING_EVERY_MS	5000
#define PING_TIMEOUT_MS 5000
#define CREATE_MS	5000 /* for the first answer of a stream */
#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	5000

struct sf_etcd_watch {
	struct sf_etcd *etcd;
	sf_meta_watch_fn *fn;
	void *arg;
	pthread_t thread;
	atomic_bool stop;
	struct sf_curl_stream *stream;

	char *line; /* what came of the line that is not whole */
	size_t len, size;
	bool standing; /* between SYNC and LOST */
	unsigned int endpoint;
	unsigned int token_nr; /* of the stream */
	struct sf_err err;     /* why the stream broke */
};

/* ---- one line of the stream ---- */

static void report_key(struct sf_etcd_watch *watch, const struct sf_blob *key)
{
	size_t skip = strlen(watch->etcd->prefix);
	enum sf_meta_kind kind;
	const char *name;

	if (key->len <= skip || strlen(key->data) != key->len ||
	    memcmp(key->data, watch->etcd->prefix, skip))
		return;
	if (sf_meta_key_parse(key->data + skip, &kind, &name))
		watch->fn(watch->arg, SF_META_EVENT_CHANGED, name, NULL);
}

static int take_events(struct sf_etcd_watch *watch, const cJSON *result)
{
	const cJSON *event;
	struct sf_blob *key;
	int res;

	cJSON_ArrayForEach(event, sf_etcd_member(result, "events"))
	{
		res = sf_etcd_bytes(&key, sf_etcd_member(event, "kv"), "key");
		if (res == -ENOMEM)
			return res;
		if (res)
			return sf_err_set(&watch->err, -EBADMSG,
					  "an event makes no sense");
		report_key(watch, key);
		sf_blob_put(key);
	}
	return 0;
}

static int take_result(struct sf_etcd_watch *watch, const cJSON *result)
{
	const char *why;

	if (cJSON_IsTrue(sf_etcd_member(result, "canceled"))) {
		why = sf_etcd_text(result, "cancel_reason");
		return sf_err_set(&watch->err, -EIO,
				  "the store ended the watch: %s",
				  why ? why : "no reason given");
	}
	if (!watch->standing) {
		watch->standing = true;
		watch->fn(watch->arg, SF_META_EVENT_SYNC, NULL, NULL);
	}
	return take_events(watch, result);
}

static int take_line(struct sf_etcd_watch *watch)
{
	cJSON *json = cJSON_ParseWithLength(watch->line, watch->len);
	const cJSON *result = sf_etcd_member(json, "result");
	bool auth = false;
	int res;

	if (cJSON_IsObject(result)) {
		res = take_result(watch, result);
	} else {
		watch->line[watch->len] = '\0';
		res = sf_etcd_verdict(
			watch->etcd,
			watch->etcd->endpoints[watch->endpoint].where, 200,
			watch->line, &auth, &watch->err);
		if (auth)
			sf_etcd_token_refused(watch->etcd, watch->token_nr);
	}
	cJSON_Delete(json);
	watch->len = 0;
	return res;
}

static int add_bytes(struct sf_etcd_watch *watch, const char *data, size_t len)
{
	size_t need = watch->len + len + 1, size;
	char *bigger;

	if (need > SF_ETCD_REPLY_MAX)
		return sf_err_set(&watch->err, -EMSGSIZE,
				  "an event is too long");
	if (need > watch->size) {
		size = need < 4096 ? 4096 : 2 * need;
		bigger = realloc(watch->line, size);
		if (!bigger)
			return sf_err_set(&watch->err, -ENOMEM,
					  "out of memory");
		watch->line = bigger;
		watch->size = size;
	}
	memcpy(watch->line + watch->len, data, len);
	watch->len += len;
	return 0;
}

/* A long line is kept for the next one, unless it was exceptional. */
static void trim_buffer(struct sf_etcd_watch *watch)
{
	if (watch->len || watch->size <= 1u << 20)
		return;
	free(watch->line);
	watch->line = NULL;
	watch->size = 0;
}

static int on_data(void *arg, const char *data, size_t len)
{
	struct sf_etcd_watch *watch = arg;
	const char *end;
	size_t n;
	int res;

	while (len) {
		end = memchr(data, '\n', len);
		n = end ? (size_t)(end - data) : len;
		res = add_bytes(watch, data, n);
		if (!res && end && watch->len)
			res = take_line(watch);
		if (res)
			return res;
		n += end != NULL;
		data += n;
		len -= n;
	}
	trim_buffer(watch);
	return 0;
}

/* ---- one stream ---- */

static char *create_body(const struct sf_etcd *etcd)
{
	char *stop = strdup(etcd->prefix);
	char *key = NULL, *end = NULL, *body = NULL;

	if (stop) {
		stop[strlen(stop) - 1]++;
		key = sf_etcd_base64(etcd->prefix, strlen(etcd->prefix));
		end = sf_etcd_base64(stop, strlen(stop));
	}
	if (key && end)
		body = sf_etcd_format("{\"create_request\":{\"key\":\"%s\","
				      "\"range_end\":\"%s\","
				      "\"progress_notify\":true}}",
				      key, end);
	free(stop);
	free(key);
	free(end);
	return body;
}

static bool stopping(const struct sf_etcd_watch *watch)
{
	return atomic_load(&watch->stop);
}

/* The endpoint must go on answering while the stream says nothing. */
static int ping(struct sf_etcd_watch *watch)
{
	return sf_etcd_ping(watch->etcd, watch->endpoint,
			    sf_now_ms() + PING_TIMEOUT_MS, &watch->stop,
			    &watch->err);
}

static int follow(struct sf_etcd_watch *watch)
{
	uint64_t created_by = sf_now_ms() + CREATE_MS;
	uint64_t ping_at = sf_now_ms() + PING_EVERY_MS;
	int res;

	while (!stopping(watch)) {
		res = sf_curl_stream_run(
			watch->stream,
			sf_ms_left(watch->standing ? ping_at : created_by),
			&watch->err);
		if (res > 0)
			return sf_err_set(&watch->err, -EIO,
					  "the store ended the watch (status "
					  "%ld)",
					  sf_curl_stream_status(watch->stream));
		if (res)
			return res;
		if (!watch->standing) {
			if (sf_now_ms() >= created_by)
				return sf_err_set(&watch->err, -ETIMEDOUT,
						  "no answer to a watch");
		} else if (sf_now_ms() >= ping_at) {
			res = ping(watch);
			if (res)
				return res;
			ping_at = sf_now_ms() + PING_EVERY_MS;
		}
	}
	return -ECANCELED;
}

static int start_stream(struct sf_etcd_watch *watch, const char *url,
			const char *body, const char *token)
{
	const struct sf_etcd *etcd = watch->etcd;
	struct sf_curl_request request = {
		.url = url,
		.where = etcd->endpoints[watch->endpoint].where,
		.authorization = token,
		.body = body,
		.len = strlen(body),
		.deadline_ms = SF_NO_DEADLINE,
		.connect_timeout_ms = etcd->connect_timeout_ms,
		.abort = &watch->stop,
	};
	int res;

	watch->len = 0;
	res = sf_curl_stream_start(watch->stream, &request, &watch->err);
	if (!res)
		res = follow(watch);
	sf_curl_stream_stop(watch->stream);
	return res;
}

/* Find an endpoint that answers, with the path and the token it wants; then
 * watch there until something breaks. */
static int watch_once(struct sf_etcd_watch *watch)
{
	struct sf_etcd *etcd = watch->etcd;
	struct sf_etcd_call call = {
		.deadline_ms = sf_now_ms() + etcd->timeout_ms,
		.abort = &watch->stop,
	};
	char *url = NULL, *body = NULL, *token = NULL;
	int res;

	res = sf_etcd_ping(etcd, UINT_MAX, call.deadline_ms, &watch->stop,
			   &watch->err);
	if (res)
		return res;
	watch->endpoint = atomic_load(&etcd->preferred);
	res = sf_etcd_token(etcd, watch->endpoint, &call, &token,
			    &watch->token_nr, &watch->err);
	if (res)
		return res;
	url = sf_etcd_url(&etcd->endpoints[watch->endpoint], "watch");
	body = create_body(etcd);
	if (url && body)
		res = start_stream(watch, url, body, token);
	else
		res = sf_err_set(&watch->err, -ENOMEM, "out of memory");
	sf_etcd_secret_free(token);
	free(url);
	free(body);
	return res;
}

/* ---- the thread ---- */

/* Sleeps in the stream, which can be woken. */
static void back_off(struct sf_etcd_watch *watch, unsigned int ms)
{
	uint64_t until = sf_now_ms() + ms;
	int left;

	while (!stopping(watch) && (left = sf_ms_left(until)) > 0)
		sf_curl_stream_run(watch->stream, left, NULL);
}

static void *watch_main(void *arg)
{
	struct sf_etcd_watch *watch = arg;
	unsigned int pause_ms = BACKOFF_MIN_MS;
	struct sf_err told = {0};

	pthread_setname_np(pthread_self(), "etcd-watch");
	while (!stopping(watch)) {
		watch->standing = false;
		watch->err.text[0] = '\0';
		watch_once(watch);
		if (stopping(watch))
			break;
		if (watch->standing)
			pause_ms = BACKOFF_MIN_MS;
		/* Once for an outage, and when its reason changes. */
		if (watch->standing || strcmp(told.text, watch->err.text))
			watch->fn(watch->arg, SF_META_EVENT_LOST, NULL,
				  watch->err.text);
		told = watch->err;
		back_off(watch, pause_ms);
		pause_ms = 2 * pause_ms < BACKOFF_MAX_MS ? 2 * pause_ms
							 : BACKOFF_MAX_MS;
	}
	return NULL;
}

static void free_watch(struct sf_etcd_watch *watch)
{
	sf_curl_stream_free(watch->stream);
	free(watch->line);
	free(watch);
}

int sf_etcd_watch(void *priv, sf_meta_watch_fn *fn, void *arg,
		  struct sf_err *err)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_watch *watch;
	int res;

	if (etcd->watch)
		return sf_err_set(err, -EBUSY, "etcd: watched already");
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return sf_err_set(err, -ENOMEM, "out of memory");
	watch->etcd = etcd;
	watch->fn = fn;
	watch->arg = arg;
	res = sf_curl_stream_new(&watch->stream, etcd->curl, on_data, watch);
	if (!res)
		res = sf_thread_start(&watch->thread, watch_main, watch);
	if (res) {
		free_watch(watch);
		return sf_err_set(err, res, "etcd: cannot start the watch");
	}
	etcd->watch = watch;
	return 0;
}

void sf_etcd_unwatch(void *priv)
{
	struct sf_etcd *etcd = priv;
	struct sf_etcd_watch *watch = etcd->watch;

	if (!watch)
		return;
	atomic_store(&watch->stop, true);
	sf_curl_stream_wake(watch->stream);
	pthread_join(watch->thread, NULL);
	etcd->watch = NULL;
	free_watch(watch);
}
