/* SPDX-License-Identifier: MIT */
/*
 * Replies without end: one multi handle with at most one request on it. The
 * owner thread runs everything but sf_curl_stream_wake(), which any thread may
 * call; it also sleeps here between two requests.
 */
#include "config.h"
#include "meta/curl.h"

#include <errno.h>
#include <stdlib.h>

#include "err.h"
#include "meta/curl_int.h"

struct sf_curl_stream {
	struct sf_curl *curl;
	CURLM *multi;
	sf_curl_data_fn *fn;
	void *arg;
	struct sf_curl_request request;
	struct exchange ex; /* ex.easy is NULL while none is started */
	bool got_data;	    /* since run was entered */
};

int sf_curl_stream_new(struct sf_curl_stream **out, struct sf_curl *curl,
		       sf_curl_data_fn *fn, void *arg)
{
	struct sf_curl_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->multi = curl_multi_init();
	if (!stream->multi) {
		free(stream);
		return -ENOMEM;
	}
	stream->curl = curl;
	stream->fn = fn;
	stream->arg = arg;
	*out = stream;
	return 0;
}

void sf_curl_stream_free(struct sf_curl_stream *stream)
{
	if (!stream)
		return;
	sf_curl_stream_stop(stream);
	curl_multi_cleanup(stream->multi);
	free(stream);
}

static int stream_data(void *arg, const char *data, size_t len)
{
	struct sf_curl_stream *stream = arg;

	stream->got_data = true;
	return stream->fn(stream->arg, data, len);
}

int sf_curl_stream_start(struct sf_curl_stream *stream,
			 const struct sf_curl_request *request,
			 struct sf_err *err)
{
	int res;

	stream->request = *request;
	res = sf_curl_exchange_init(&stream->ex, stream->curl, &stream->request,
				    stream_data, stream, err);
	if (res)
		return res;
	if (curl_multi_add_handle(stream->multi, stream->ex.easy)) {
		sf_curl_exchange_fini(&stream->ex, stream->curl);
		return sf_err_set(err, -ENOMEM, "%s: cannot start a stream",
				  request->where);
	}
	return 0;
}

/* 0: goes on, 1: over, else how it failed. */
static int verdict(struct sf_curl_stream *stream, struct sf_err *err)
{
	CURLMsg *msg;
	int left, res;

	while ((msg = curl_multi_info_read(stream->multi, &left))) {
		if (msg->msg != CURLMSG_DONE)
			continue;
		res = sf_curl_exchange_result(&stream->ex, msg->data.result,
					      err);
		return res ? res : 1;
	}
	return 0;
}

int sf_curl_stream_run(struct sf_curl_stream *stream, int timeout_ms,
		       struct sf_err *err)
{
	int running, res;

	stream->got_data = false;
	curl_multi_perform(stream->multi, &running);
	res = verdict(stream, err);
	if (res || stream->got_data)
		return res;
	curl_multi_poll(stream->multi, NULL, 0, timeout_ms, NULL);
	curl_multi_perform(stream->multi, &running);
	return verdict(stream, err);
}

long sf_curl_stream_status(struct sf_curl_stream *stream)
{
	long status = 0;

	if (stream->ex.easy)
		curl_easy_getinfo(stream->ex.easy, CURLINFO_RESPONSE_CODE,
				  &status);
	return status;
}

/* The connection goes with the multi's cache: a cut stream is never reused. */
void sf_curl_stream_stop(struct sf_curl_stream *stream)
{
	if (!stream->ex.easy)
		return;
	curl_multi_remove_handle(stream->multi, stream->ex.easy);
	sf_curl_exchange_fini(&stream->ex, stream->curl);
}

void sf_curl_stream_wake(struct sf_curl_stream *stream)
{
	curl_multi_wakeup(stream->multi);
}
