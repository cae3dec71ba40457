/* SPDX-License-Identifier: MIT */
/*
 * Inside the etcd backend: the open store, and one call of the gateway.
 *
 *	etcd.c		the operations
 *	etcd_list.c	listing
 *	etcd_watch.c	the watch thread
 *	etcd_call.c	one call: endpoints, gateway paths, retries
 *	etcd_verdict.c	what error replies mean
 *	etcd_auth.c	tokens
 *	etcd_endpoint.c	"h1:2379,h2:2379"
 *	etcd_json.c	the forms in bodies
 */
#ifndef SF_META_ETCD_H
#define SF_META_ETCD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta.h"

struct cJSON;
struct sf_curl;
struct sf_err;
struct sf_etcd_watch;

/* A value of 48 MiB in base64, with room for what is around it. */
#define SF_ETCD_REPLY_MAX (65u << 20)

struct sf_etcd_endpoint {
	char *where;		/* "h1:2379", for people */
	char *url;		/* "https://h1:2379" */
	atomic_uint path;	/* which gateway path it has, see etcd_call.c */
};

struct sf_etcd {
	struct sf_curl *curl;
	unsigned int nr_endpoints;
	struct sf_etcd_endpoint *endpoints;
	atomic_uint preferred;	/* the endpoint that answered last */
	char *cluster_id;
	char *prefix;		/* of all keys: "mooncake/blue/" */
	unsigned int timeout_ms;
	unsigned int connect_timeout_ms;
	bool has_cert;

	char *user;		/* NULL: none */
	char *password;
	pthread_mutex_t lock;
	char *token;		/* under lock, as token_nr; NULL: none */
	unsigned int token_nr;	/* counts tokens */
	bool no_auth;		/* under lock: the store wants no users */

	struct sf_etcd_watch *watch;	/* NULL: none */
};

/* "h1:2379, [::1]:2379;h3" -> endpoints. -EINVAL, -ENOMEM. */
int sf_etcd_endpoints_parse(struct sf_etcd *etcd, const char *text, bool tls,
			    struct sf_err *err);
void sf_etcd_endpoints_free(struct sf_etcd *etcd);

struct sf_etcd_call {
	const char *method;	/* "kv/range" */
	const char *body;
	size_t len;		/* of body; 0: strlen */
	uint64_t deadline_ms;	/* 0: timeout_ms from now */
	const atomic_bool *abort;	/* may be NULL */
};

struct sf_etcd_reply {
	struct cJSON *json;	/* an object */
	char *raw;		/* its text */
	size_t len;
};

/*
 * One call, at whichever endpoint answers. Error replies of etcd become
 * -ENOENT (code 5), -EPERM (the user may not do this), -EACCES, -EMSGSIZE,
 * -ENOSPC, -ETIMEDOUT or -EIO; replies that are not etcd's are -EBADMSG, no
 * gateway at all is -EPROTO; the rest as sf_curl_perform().
 */
int sf_etcd_call(struct sf_etcd *etcd, const struct sf_etcd_call *call,
		 struct sf_etcd_reply *reply, struct sf_err *err);
/* The same for an operation: frees BODY (NULL: out of memory), -EPERM becomes
 * -EACCES, and the text names etcd. */
int sf_etcd_run(struct sf_etcd *etcd, const char *method, char *body,
		struct sf_etcd_reply *reply, struct sf_err *err);
/* As sf_etcd_call(), at endpoint I alone. */
int sf_etcd_call_at(struct sf_etcd *etcd, unsigned int i,
		    const struct sf_etcd_call *call,
		    struct sf_etcd_reply *reply, struct sf_err *err);
/* The same with this TOKEN (or NULL) and without a second try; *AUTH becomes
 * true when a new token may help. Also -ENODATA, -ENOSYS (no users here). */
int sf_etcd_exchange(struct sf_etcd *etcd, unsigned int i,
		     const struct sf_etcd_call *call, const char *token,
		     struct sf_etcd_reply *reply, bool *auth,
		     struct sf_err *err);
void sf_etcd_reply_fini(struct sf_etcd_reply *reply);	/* wipes */

/* Does an endpoint answer, and take our credentials? The errors of
 * sf_etcd_call(). I: which one; UINT_MAX: any. */
int sf_etcd_ping(struct sf_etcd *etcd, unsigned int i, uint64_t deadline_ms,
		 const atomic_bool *abort, struct sf_err *err);

/* The URL of METHOD at an endpoint, malloc'ed; NULL. */
char *sf_etcd_url(const struct sf_etcd_endpoint *endpoint, const char *method);

/* What an error reply with HTTP status STATUS says. Always negative. */
int sf_etcd_verdict(struct sf_etcd *etcd, const char *where, long status,
		    const char *data, bool *auth, struct sf_err *err);

/*
 * A copy of the token, for sf_etcd_secret_free(), and its number; NULL and 0
 * when none is needed. Asks endpoint I for one if there is none.
 */
int sf_etcd_token(struct sf_etcd *etcd, unsigned int i,
		  const struct sf_etcd_call *call, char **token,
		  unsigned int *nr, struct sf_err *err);
/* Token number NR was refused: forget it, unless there is a newer one. */
void sf_etcd_token_refused(struct sf_etcd *etcd, unsigned int nr);
void sf_etcd_secret_free(char *secret);	/* wipes; NULL is fine */

/* etcd_list.c, etcd_watch.c: the operations of those names. */
int sf_etcd_list(void *priv, sf_meta_list_fn *fn, void *arg,
		 unsigned int *skipped, struct sf_err *err);
int sf_etcd_watch(void *priv, sf_meta_watch_fn *fn, void *arg,
		  struct sf_err *err);
void sf_etcd_unwatch(void *priv);

#endif
