/* SPDX-License-Identifier: MIT */
/* What curl.c and curl_stream.c share; nobody else includes libcurl. */
#ifndef SF_META_CURL_INT_H
#define SF_META_CURL_INT_H

#include <curl/curl.h>

#include "meta/curl.h"

/* One request under way: what must live until libcurl is done with it. */
struct exchange {
	CURL *easy;
	struct curl_slist *headers;
	const struct sf_curl_request *request;
	sf_curl_data_fn *fn;
	void *arg;
	int fn_result;		/* what fn ended the transfer with */
	bool use_proxy;
	char text[CURL_ERROR_SIZE];
};

/* On failure nothing is left to fini. -ENOMEM, -ETIMEDOUT. */
int sf_curl_exchange_init(struct exchange *ex, struct sf_curl *curl,
			  const struct sf_curl_request *request,
			  sf_curl_data_fn *fn, void *arg, struct sf_err *err);
void sf_curl_exchange_fini(struct exchange *ex, struct sf_curl *curl);
/* libcurl's verdict as a negative errno, 0 for CURLE_OK. What FN ended the
 * exchange with is returned without a text. */
int sf_curl_exchange_result(struct exchange *ex, CURLcode code,
			    struct sf_err *err);

#endif
