/* SPDX-License-Identifier: MIT */
/*
 * HTTP for the metadata backends: the one place that knows libcurl.
 *
 * Always on: certificate and host name verification, no redirects, no proxy
 * from the environment unless asked for, a deadline and a bound on the reply.
 * Connections are kept and used again. Thread-safe, but for a stream, which
 * belongs to one thread.
 */
#ifndef SF_META_CURL_H
#define SF_META_CURL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_curl;
struct sf_curl_stream;
struct sf_err;

/* Strings are copied. NULL or "" = unset. */
struct sf_curl_config {
	const char *ca_file;
	const char *cert_file;
	const char *key_file;	/* unset: the key is in cert_file */
	bool use_proxy;		/* honour *_proxy in the environment */
};

/* -EINVAL: key without certificate; -ENOENT, -EACCES, ...: a file cannot be
 * read; -ENOMEM. */
int sf_curl_new(struct sf_curl **out, const struct sf_curl_config *config,
		struct sf_err *err);
void sf_curl_free(struct sf_curl *curl);	/* NULL is fine */
/* Close the connections that nobody uses now: before fork(2). */
void sf_curl_drop_idle(struct sf_curl *curl);

struct sf_curl_request {
	const char *method;	/* NULL: POST with a body, else GET */
	const char *url;
	const char *where;	/* host:port, for error texts */
	const char *authorization;	/* value of that header, or NULL */
	const char *body;	/* NULL: none; borrowed */
	size_t len;
	uint64_t deadline_ms;	/* clock.h; a stream may have none */
	unsigned int connect_timeout_ms;	/* 0: the deadline alone */
	size_t reply_max;	/* bytes */
	const atomic_bool *abort;	/* when true: end within a second with
					 * -ECANCELED; may be NULL */
};

struct sf_curl_reply {
	long status;		/* HTTP status */
	char *data;		/* malloc'ed, data[len] is NUL; never NULL */
	size_t len;
};

/*
 * One request and its whole reply. 0 whatever the HTTP status is; else
 * -ECONNREFUSED, -EHOSTUNREACH (also: no such host), -ENETUNREACH, -ETIMEDOUT;
 * -ENODATA: the peer closed without an answer; -ECONNRESET: or in the middle of
 * it; -EACCES: a certificate or key of ours is not usable or was refused;
 * -EPROTO: not HTTP, not TLS, or a certificate we do not trust; -EMSGSIZE:
 * longer than reply_max; -ECANCELED; -ENOMEM; -EIO.
 */
int sf_curl_perform(struct sf_curl *curl, const struct sf_curl_request *request,
		    struct sf_curl_reply *reply, struct sf_err *err);
/* Wipes: replies hold tokens. */
void sf_curl_reply_fini(struct sf_curl_reply *reply);

/* A piece of a stream's body; non-zero ends the stream with that errno. */
typedef int sf_curl_data_fn(void *arg, const char *data, size_t len);

/*
 * A reply without end, read piece by piece by one thread, which may also sleep
 * here; any thread may wake it.
 */
int sf_curl_stream_new(struct sf_curl_stream **out, struct sf_curl *curl,
		       sf_curl_data_fn *fn, void *arg);
void sf_curl_stream_free(struct sf_curl_stream *stream); /* NULL is fine */
/* Send REQUEST (its strings stay valid until stop). -ENOMEM. */
int sf_curl_stream_start(struct sf_curl_stream *stream,
			 const struct sf_curl_request *request,
			 struct sf_err *err);
/*
 * Let data in for up to TIMEOUT_MS or until woken; returns early after data.
 * 0: goes on (or none is started); 1: the peer ended it; errors as perform, and
 * those of FN (ERR is left to FN then).
 */
int sf_curl_stream_run(struct sf_curl_stream *stream, int timeout_ms,
		       struct sf_err *err);
long sf_curl_stream_status(struct sf_curl_stream *stream); /* 0: none yet */
void sf_curl_stream_stop(struct sf_curl_stream *stream);
void sf_curl_stream_wake(struct sf_curl_stream *stream);

#endif
