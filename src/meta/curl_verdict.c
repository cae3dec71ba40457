/* SPDX-License-Identifier: MIT */
/* How an exchange ended: libcurl's codes become negative errnos and one
 * sentence, so that they go no further. No state. */
#include "config.h"
#include "meta/curl.h"

#include <errno.h>
#include <string.h>

#include "err.h"
#include "meta/curl_int.h"

static int connect_errno(CURL *easy)
{
	long os_errno = 0;

	curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os_errno);
	switch (os_errno) {
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ETIMEDOUT:
		return -(int)os_errno;
	default:
		return -ECONNREFUSED;
	}
}

/* OpenSSL names a refusal by the peer "alert": it did not like our side. */
static int tls_errno(const char *text, int otherwise)
{
	return strstr(text, "alert") ? -EACCES : otherwise;
}

static int map_code(struct exchange *ex, CURLcode code)
{
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return connect_errno(ex->easy);
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_GOT_NOTHING:
		return -ENODATA;
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
		return tls_errno(ex->text, -ECONNRESET);
	case CURLE_PARTIAL_FILE:
		return -ECONNRESET;
	case CURLE_SSL_CONNECT_ERROR:
		return tls_errno(ex->text, -EPROTO);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
		return -EPROTO;
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
		return -EACCES;
	case CURLE_ABORTED_BY_CALLBACK:
		return -ECANCELED;
	case CURLE_WRITE_ERROR:
		return ex->fn_result ? ex->fn_result : -EIO;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

int sf_curl_exchange_result(struct exchange *ex, CURLcode code,
			    struct sf_err *err)
{
	int res = map_code(ex, code);
	const char *text = ex->text, *hint = "";

	if (!res || res == ex->fn_result)
		return res;
	if (code == CURLE_COULDNT_CONNECT)
		text = strerror(-res);
	else if (!*text)
		text = curl_easy_strerror(code);
	if (code == CURLE_SSL_CONNECT_ERROR && res == -EPROTO)
		hint = " (does it speak TLS?)";
	return sf_err_set(err, res, "%s: %s%s%s", ex->request->where, text,
			  hint,
			  ex->use_proxy ? " (a proxy may be in between)" : "");
}
