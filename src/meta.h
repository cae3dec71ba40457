/* SPDX-License-Identifier: MIT */
/*
 * The gate in front of the metadata backends: one store of descriptors
 * (protocol section 1). Callers use sf_meta_*() only; a backend is one file
 * under meta/ that exports one const struct sf_meta_ops.
 *
 * All calls but sf_meta_close() may block up to their deadline, so they belong
 * on a worker thread. One struct sf_meta may be used by many threads at once.
 */
#ifndef SF_META_H
#define SF_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_blob;
struct sf_err;
struct sf_meta;

enum sf_meta_kind {
	SF_META_SEGMENT,	/* the descriptor */
	SF_META_RPC,		/* rpc_meta: where the owner's handshake is */
};

/* Strings are copied by open. NULL or "" = unset. */
struct sf_meta_config {
	const char *source;	/* "etcd://h1:2379,h2:2379", "h1:2379", ... */
	const char *cluster_id;	/* key prefix, protocol section 1.2 */
	const char *user;
	const char *password;	/* never logged, wiped on close */
	const char *ca_file;	/* TLS; any of these makes TLS mandatory */
	const char *cert_file;
	const char *key_file;
	bool use_proxy;		/* honour *_proxy in the environment */
	unsigned int timeout_ms;	/* one operation, on all endpoints */
	unsigned int connect_timeout_ms;	/* one endpoint */
};

/* One listed name. RPC_ONLY: it has rpc_meta but no descriptor. */
typedef int sf_meta_list_fn(void *arg, const char *name, bool rpc_only);

enum sf_meta_event {
	SF_META_EVENT_SYNC,	/* the watch stands; whatever was known before
				 * may have changed unseen (name is NULL) */
	SF_META_EVENT_CHANGED,	/* one of NAME's keys was written or removed */
	SF_META_EVENT_LOST,	/* the watch broke, changes go unseen until the
				 * next SYNC; TEXT says why (name is NULL) */
};

typedef void sf_meta_watch_fn(void *arg, enum sf_meta_event event,
			      const char *name, const char *text);

enum sf_meta_caps {
	SF_META_CAN_LIST = 1,
	SF_META_CAN_WATCH = 2,
	SF_META_CAN_WRITE = 4,
	SF_META_CAN_LEASE = 8,
};

/*
 * Open the store SOURCE names (no scheme: etcd) and try it once.
 * -EINVAL: bad source, unknown scheme, option that the backend does not know;
 * -ENOENT, -EACCES: a TLS file cannot be read; -EACCES: credentials refused;
 * -ECONNREFUSED, -EHOSTUNREACH, -ENETUNREACH, -ETIMEDOUT: as the network said;
 * -EPROTO: something else answers there; -EIO: nothing whole does; -ENOMEM.
 * ERR has the sentence.
 */
int sf_meta_open(struct sf_meta **out, const struct sf_meta_config *config,
		 struct sf_err *err);
void sf_meta_close(struct sf_meta *meta);	/* ends a running watch */

unsigned int sf_meta_caps(const struct sf_meta *meta);
/* For people and fsname=: without credentials. Lives as long as META. */
const char *sf_meta_describe(const struct sf_meta *meta);

/*
 * Both documents of NAME, each NULL when its key is missing. Leading slashes of
 * NAME are not keys' (protocol section 1.2).
 * -ENOENT: both are missing; -EACCES, -EBADMSG (the reply is not what this
 * store says), -EMSGSIZE, and the network errors of open. A network error is
 * never turned into -ENOENT.
 */
int sf_meta_get(struct sf_meta *meta, const char *name,
		struct sf_blob **segment, struct sf_blob **rpc,
		struct sf_err *err);

/*
 * Every segment name once, in no order, paged, without values. Stops when FN
 * returns non-zero and returns that. Names with a NUL are skipped and
 * counted in *skipped (may be NULL). -EOPNOTSUPP and the errors of get.
 */
int sf_meta_list(struct sf_meta *meta, sf_meta_list_fn *fn, void *arg,
		 unsigned int *skipped, struct sf_err *err);

/*
 * Start watching: FN is called on a thread of the backend's, SYNC first, until
 * close. The backend reconnects by itself, with back-off. -EOPNOTSUPP, -ENOMEM.
 */
int sf_meta_watch(struct sf_meta *meta, sf_meta_watch_fn *fn, void *arg,
		  struct sf_err *err);
/* End the watch: when this returns FN is not running and will not be called
 * again. Not from FN. Without a watch: nothing. */
void sf_meta_unwatch(struct sf_meta *meta);

/*
 * Leases: a key put with one vanishes ttl_s after the last keepalive.
 * grant: *lease. keepalive: -ENOENT when the store no longer knows it.
 */
int sf_meta_lease_grant(struct sf_meta *meta, unsigned int ttl_s,
			int64_t *lease, struct sf_err *err);
int sf_meta_lease_keepalive(struct sf_meta *meta, int64_t lease,
			    struct sf_err *err);
int sf_meta_lease_revoke(struct sf_meta *meta, int64_t lease,
			 struct sf_err *err);

/* lease 0 = none; -ENOENT: the store does not know that lease. -EMSGSIZE: the
 * store refuses a value of this size (ERR names size and limit); nothing is
 * stored then. */
int sf_meta_put(struct sf_meta *meta, enum sf_meta_kind kind,
		const char *name, const char *value, size_t len,
		int64_t lease, struct sf_err *err);
/* A missing key is not an error. */
int sf_meta_delete(struct sf_meta *meta, enum sf_meta_kind kind,
		   const char *name, struct sf_err *err);

/* ---- for backends ---- */

/* The key of a document, malloc'ed: protocol section 1.2, leading slashes of
 * NAME left out. NULL: out of memory. */
char *sf_meta_key(const char *cluster_id, enum sf_meta_kind kind,
		  const char *name);
/* "mooncake/" or "mooncake/CLUSTER/", malloc'ed. */
char *sf_meta_prefix(const char *cluster_id);
/* The reverse of sf_meta_key for KEY without its prefix: false if it is no key
 * of ours. *NAME points into KEY. */
bool sf_meta_key_parse(const char *key, enum sf_meta_kind *kind,
		       const char **name);

/* Required first, optional after; a missing optional one is answered by the
 * gate with -EOPNOTSUPP. Contracts as above; `priv` is what open made. */
struct sf_meta_ops {
	const char *scheme;	/* "etcd" */
	unsigned int caps;
	int (*open)(void **priv, const char *rest,
		    const struct sf_meta_config *config, struct sf_err *err);
	void (*close)(void *priv);
	int (*get)(void *priv, const char *name, struct sf_blob **segment,
		   struct sf_blob **rpc, struct sf_err *err);

	int (*list)(void *priv, sf_meta_list_fn *fn, void *arg,
		    unsigned int *skipped, struct sf_err *err);
	int (*watch)(void *priv, sf_meta_watch_fn *fn, void *arg,
		     struct sf_err *err);
	void (*unwatch)(void *priv);	/* with watch: required */
	int (*lease_grant)(void *priv, unsigned int ttl_s, int64_t *lease,
			   struct sf_err *err);
	int (*lease_keepalive)(void *priv, int64_t lease, struct sf_err *err);
	int (*lease_revoke)(void *priv, int64_t lease, struct sf_err *err);
	int (*put)(void *priv, enum sf_meta_kind kind, const char *name,
		   const char *value, size_t len, int64_t lease,
		   struct sf_err *err);
	int (*del)(void *priv, enum sf_meta_kind kind, const char *name,
		   struct sf_err *err);
};

/* The gate around a store that was made elsewhere: wrappers and tests. META
 * takes over PRIV (ops->close ends it), unless this fails. -ENOMEM. */
int sf_meta_wrap(struct sf_meta **out, const struct sf_meta_ops *ops,
		 void *priv, const char *describe);

#endif
