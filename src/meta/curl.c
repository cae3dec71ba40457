/* SPDX-License-Identifier: MIT */
/*
 * Single requests: a pool of easy handles, each with its kept connections. The
 * lock guards the pool only, never a transfer. What a request may and may not
 * do (redirects, proxies, verification) is decided in set_options() and nowhere
 * else. Knows HTTP, not what the bodies mean.
 */
#include "config.h"
#include "meta/curl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "meta/curl_int.h"

#define NR_IDLE_MAX 8

struct sf_curl {
	char *ca_file;
	char *cert_file;
	char *key_file;
	bool use_proxy;
	pthread_mutex_t lock;
	CURL *idle[NR_IDLE_MAX]; /* under lock, as nr_idle */
	unsigned int nr_idle;
};

/* libcurl would only say at the first connection that a file is missing. */
static int copy_file(char **out, const char *path, const char *what,
		     struct sf_err *err)
{
	int fd, res;

	if (!path || !*path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		res = -errno;
		return sf_err_set(err, res, "%s %s: %s", what, path,
				  strerror(-res));
	}
	close(fd);
	*out = strdup(path);
	return *out ? 0 : sf_err_set(err, -ENOMEM, "out of memory");
}

int sf_curl_new(struct sf_curl **out, const struct sf_curl_config *config,
		struct sf_err *err)
{
	struct sf_curl *curl;
	int res;

	if (config->key_file && *config->key_file &&
	    (!config->cert_file || !*config->cert_file))
		return sf_err_set(err, -EINVAL,
				  "TLS key %s without a certificate",
				  config->key_file);
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return sf_err_set(err, -ENOMEM, "libcurl does not start");
	curl = calloc(1, sizeof(*curl));
	if (!curl) {
		curl_global_cleanup();
		return sf_err_set(err, -ENOMEM, "out of memory");
	}
	pthread_mutex_init(&curl->lock, NULL);
	curl->use_proxy = config->use_proxy;
	res = copy_file(&curl->ca_file, config->ca_file, "TLS CA", err);
	if (!res)
		res = copy_file(&curl->cert_file, config->cert_file,
				"TLS certificate", err);
	if (!res)
		res = copy_file(&curl->key_file, config->key_file, "TLS key",
				err);
	if (res)
		sf_curl_free(curl);
	else
		*out = curl;
	return res;
}

void sf_curl_drop_idle(struct sf_curl *curl)
{
	pthread_mutex_lock(&curl->lock);
	while (curl->nr_idle)
		curl_easy_cleanup(curl->idle[--curl->nr_idle]);
	pthread_mutex_unlock(&curl->lock);
}

void sf_curl_free(struct sf_curl *curl)
{
	if (!curl)
		return;
	sf_curl_drop_idle(curl);
	pthread_mutex_destroy(&curl->lock);
	free(curl->ca_file);
	free(curl->cert_file);
	free(curl->key_file);
	free(curl);
	curl_global_cleanup();
}

/* ---- one exchange ---- */

static CURL *take_handle(struct sf_curl *curl)
{
	CURL *easy = NULL;

	pthread_mutex_lock(&curl->lock);
	if (curl->nr_idle)
		easy = curl->idle[--curl->nr_idle];
	pthread_mutex_unlock(&curl->lock);
	return easy ? easy : curl_easy_init();
}

/* Forget this request's pointers and secrets, keep the connections. */
static void give_handle(struct sf_curl *curl, CURL *easy)
{
	curl_easy_reset(easy);
	pthread_mutex_lock(&curl->lock);
	if (curl->nr_idle < NR_IDLE_MAX) {
		curl->idle[curl->nr_idle++] = easy;
		easy = NULL;
	}
	pthread_mutex_unlock(&curl->lock);
	if (easy)
		curl_easy_cleanup(easy);
}

static size_t on_data(char *data, size_t size, size_t nr, void *arg)
{
	struct exchange *ex = arg;

	ex->fn_result = ex->fn(ex->arg, data, size * nr);
	return ex->fn_result ? 0 : size * nr;
}

static int on_progress(void *arg, curl_off_t total, curl_off_t now,
		       curl_off_t up_total, curl_off_t up_now)
{
	struct exchange *ex = arg;

	return ex->request->abort && atomic_load(ex->request->abort);
}

static int add_header(struct exchange *ex, const char *line)
{
	struct curl_slist *list = curl_slist_append(ex->headers, line);

	if (!list)
		return -ENOMEM;
	ex->headers = list;
	return 0;
}

static int add_authorization(struct exchange *ex, const char *value)
{
	static const char name[] = "Authorization: ";
	size_t len = strlen(name) + strlen(value) + 1;
	char *line = malloc(len);
	int res;

	if (!line)
		return -ENOMEM;
	strcpy(line, name);
	strcat(line, value);
	res = add_header(ex, line);
	explicit_bzero(line, len);
	free(line);
	return res;
}

static int add_headers(struct exchange *ex)
{
	const struct sf_curl_request *request = ex->request;

	/* Without Expect: large bodies would wait a second for a go-ahead. */
	if (add_header(ex, "Expect:"))
		return -ENOMEM;
	if (request->body && add_header(ex, "Content-Type: application/json"))
		return -ENOMEM;
	if (request->authorization &&
	    add_authorization(ex, request->authorization))
		return -ENOMEM;
	return 0;
}

static void set_limits(CURL *easy, const struct sf_curl_request *request)
{
	int left = sf_ms_left(request->deadline_ms);
	long connect_ms = (long)request->connect_timeout_ms;

	if (left >= 0) {
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)left);
		if (!connect_ms || connect_ms > left)
			connect_ms = left;
	}
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
	/* A host that went away without a word ends an idle stream too. */
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 5L);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 2L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075700
	/* Do not wait for a resolver that is slower than the deadline. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
#endif
}

static void set_security(CURL *easy, const struct sf_curl *curl)
{
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	if (curl->ca_file)
		curl_easy_setopt(easy, CURLOPT_CAINFO, curl->ca_file);
	if (curl->cert_file)
		curl_easy_setopt(easy, CURLOPT_SSLCERT, curl->cert_file);
	if (curl->key_file)
		curl_easy_setopt(easy, CURLOPT_SSLKEY, curl->key_file);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	if (!curl->use_proxy)
		curl_easy_setopt(easy, CURLOPT_PROXY, "");
}

static void set_options(struct exchange *ex, const struct sf_curl *curl)
{
	const struct sf_curl_request *request = ex->request;
	CURL *easy = ex->easy;

	set_limits(easy, request);
	set_security(easy, curl);
	curl_easy_setopt(easy, CURLOPT_URL, request->url);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
			 (long)CURL_HTTP_VERSION_1_1);
	if (request->body) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)request->len);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
	}
	if (request->method)
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, ex->headers);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "segfs/" PACKAGE_VERSION);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, ex);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, ex->text);
	curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(easy, CURLOPT_XFERINFODATA, ex);
}

int sf_curl_exchange_init(struct exchange *ex, struct sf_curl *curl,
			  const struct sf_curl_request *request,
			  sf_curl_data_fn *fn, void *arg, struct sf_err *err)
{
	if (!sf_ms_left(request->deadline_ms))
		return sf_err_set(err, -ETIMEDOUT, "%s: no time left",
				  request->where);
	memset(ex, 0, sizeof(*ex));
	ex->request = request;
	ex->fn = fn;
	ex->arg = arg;
	ex->use_proxy = curl->use_proxy;
	ex->easy = take_handle(curl);
	if (!ex->easy || add_headers(ex)) {
		sf_curl_exchange_fini(ex, curl);
		return sf_err_set(err, -ENOMEM, "out of memory");
	}
	set_options(ex, curl);
	return 0;
}

void sf_curl_exchange_fini(struct exchange *ex, struct sf_curl *curl)
{
	struct curl_slist *line;

	if (ex->easy)
		give_handle(curl, ex->easy);
	for (line = ex->headers; line; line = line->next)
		explicit_bzero(line->data, strlen(line->data));
	curl_slist_free_all(ex->headers);
	memset(ex, 0, sizeof(*ex));
}

/* ---- a request with a bounded reply ---- */

struct sink {
	struct sf_curl_reply reply;
	size_t size; /* allocated */
	size_t max;
};

static int sink_data(void *arg, const char *data, size_t len)
{
	struct sink *sink = arg;
	size_t need = sink->reply.len + len + 1, size = sink->size;
	char *bigger;

	if (len > sink->max - sink->reply.len)
		return -EMSGSIZE;
	if (need > size) {
		while (size < need)
			size *= 2;
		bigger = realloc(sink->reply.data, size);
		if (!bigger)
			return -ENOMEM;
		sink->reply.data = bigger;
		sink->size = size;
	}
	memcpy(sink->reply.data + sink->reply.len, data, len);
	sink->reply.len += len;
	sink->reply.data[sink->reply.len] = '\0';
	return 0;
}

int sf_curl_perform(struct sf_curl *curl, const struct sf_curl_request *request,
		    struct sf_curl_reply *reply, struct sf_err *err)
{
	struct sink sink = { .size = 16384, .max = request->reply_max };
	struct exchange ex;
	int res;

	sink.reply.data = calloc(1, sink.size);
	if (!sink.reply.data)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = sf_curl_exchange_init(&ex, curl, request, sink_data, &sink, err);
	if (res)
		goto fail;
	res = sf_curl_exchange_result(&ex, curl_easy_perform(ex.easy), err);
	if (res && res == ex.fn_result)
		sf_err_set(err, res, "%s: %s", request->where,
			   res == -ENOMEM ? "out of memory"
					  : "the reply is too long");
	curl_easy_getinfo(ex.easy, CURLINFO_RESPONSE_CODE, &sink.reply.status);
	sf_curl_exchange_fini(&ex, curl);
	if (res)
		goto fail;
	*reply = sink.reply;
	return 0;
fail:
	sf_curl_reply_fini(&sink.reply);
	return res;
}

void sf_curl_reply_fini(struct sf_curl_reply *reply)
{
	if (reply->data)
		explicit_bzero(reply->data, reply->len);
	free(reply->data);
	memset(reply, 0, sizeof(*reply));
}
