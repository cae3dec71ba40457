/* SPDX-License-Identifier: MIT */
/*
 * The gate in front of the metadata backends: picks one by the scheme of the
 * source, answers for the operations it lacks, and owns the names of keys.
 * Thread-safe because it holds no state that changes; the backends have their
 * own locks. Knows nothing of how a store is spoken to.
 */
#include "config.h"
#include "meta.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "meta/backends.h"

/* The only list of backends. */
static const struct sf_meta_ops *const backends[] = {
	&sf_meta_etcd,
	&sf_meta_etcds,
};

struct sf_meta {
	const struct sf_meta_ops *ops;
	void *priv;
	char *describe;
};

static const struct sf_meta_ops *find_backend(const char *scheme, size_t len)
{
	size_t i;

	for (i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
		if (strlen(backends[i]->scheme) == len &&
		    !memcmp(backends[i]->scheme, scheme, len))
			return backends[i];
	return NULL;
}

/* Mooncake's rules: what is before the first "://" is the scheme, case counts,
 * and without one it is etcd; one word stands for peer to peer. */
static const struct sf_meta_ops *
parse_source(const char *source, const char **rest, struct sf_err *err)
{
	const struct sf_meta_ops *ops;
	const char *scheme = source, *sep = strstr(source, "://");
	size_t len = sep ? (size_t)(sep - source) : 0;

	if (sep) {
		*rest = sep + 3;
	} else if (!strcmp(source, "P2PHANDSHAKE")) {
		*rest = "";
		len = strlen(source);
	} else {
		*rest = source;
		scheme = "etcd";
		len = strlen(scheme);
	}
	ops = find_backend(scheme, len);
	if (!ops)
		sf_err_set(err, -EINVAL,
			   "metadata store: \"%.*s\" is none that this program "
			   "knows",
			   (int)(len > 32 ? 32 : len), scheme);
	return ops;
}

/* "scheme://rest" without the user:password@ that people put into URLs. */
static char *describe(const struct sf_meta_ops *ops, const char *rest)
{
	const char *at = strrchr(rest, '@');
	char *text;

	if (at)
		rest = at + 1;
	if (!*rest)
		return strdup(ops->scheme);
	return asprintf(&text, "%s://%s", ops->scheme, rest) < 0 ? NULL : text;
}

int sf_meta_wrap(struct sf_meta **out, const struct sf_meta_ops *ops,
		 void *priv, const char *text)
{
	struct sf_meta *meta = calloc(1, sizeof(*meta));

	if (!meta)
		return -ENOMEM;
	meta->describe = strdup(text);
	if (!meta->describe) {
		free(meta);
		return -ENOMEM;
	}
	meta->ops = ops;
	meta->priv = priv;
	*out = meta;
	return 0;
}

int sf_meta_open(struct sf_meta **out, const struct sf_meta_config *config,
		 struct sf_err *err)
{
	const struct sf_meta_ops *ops;
	const char *rest;
	char *text;
	void *priv;
	int res;

	if (!config->source || !*config->source)
		return sf_err_set(err, -EINVAL, "no metadata store given");
	ops = parse_source(config->source, &rest, err);
	if (!ops)
		return -EINVAL;
	text = describe(ops, rest);
	if (!text)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = ops->open(&priv, rest, config, err);
	if (!res) {
		res = sf_meta_wrap(out, ops, priv, text);
		if (res) {
			ops->close(priv);
			sf_err_set(err, res, "out of memory");
		}
	}
	free(text);
	return res;
}

void sf_meta_close(struct sf_meta *meta)
{
	if (!meta)
		return;
	sf_meta_unwatch(meta);
	if (meta->ops->close)
		meta->ops->close(meta->priv);
	free(meta->describe);
	free(meta);
}

unsigned int sf_meta_caps(const struct sf_meta *meta)
{
	return meta->ops->caps;
}

const char *sf_meta_describe(const struct sf_meta *meta)
{
	return meta->describe;
}

static int unsupported(const struct sf_meta *meta, const char *what,
		       struct sf_err *err)
{
	return sf_err_set(err, -EOPNOTSUPP, "%s: this store cannot %s",
			  meta->describe, what);
}

/* Leading slashes are not part of a name; nothing is left of "" and "/". */
static const char *key_name(const char *name)
{
	while (*name == '/')
		name++;
	return name;
}

int sf_meta_get(struct sf_meta *meta, const char *name,
		struct sf_blob **segment, struct sf_blob **rpc,
		struct sf_err *err)
{
	int res;

	name = key_name(name);
	if (!*name)
		return sf_err_set(err, -ENOENT, "a segment has a name");
	res = meta->ops->get(meta->priv, name, segment, rpc, err);
	assert(res <= 0);
	return res;
}

int sf_meta_list(struct sf_meta *meta, sf_meta_list_fn *fn, void *arg,
		 unsigned int *skipped, struct sf_err *err)
{
	unsigned int ignored;

	if (!meta->ops->list)
		return unsupported(meta, "list segments", err);
	if (!skipped)
		skipped = &ignored;
	*skipped = 0;
	return meta->ops->list(meta->priv, fn, arg, skipped, err);
}

int sf_meta_watch(struct sf_meta *meta, sf_meta_watch_fn *fn, void *arg,
		  struct sf_err *err)
{
	if (!meta->ops->watch)
		return unsupported(meta, "watch", err);
	return meta->ops->watch(meta->priv, fn, arg, err);
}

void sf_meta_unwatch(struct sf_meta *meta)
{
	if (meta->ops->unwatch)
		meta->ops->unwatch(meta->priv);
}

int sf_meta_lease_grant(struct sf_meta *meta, unsigned int ttl_s,
			int64_t *lease, struct sf_err *err)
{
	if (!meta->ops->lease_grant)
		return unsupported(meta, "lease", err);
	return meta->ops->lease_grant(meta->priv, ttl_s, lease, err);
}

int sf_meta_lease_keepalive(struct sf_meta *meta, int64_t lease,
			    struct sf_err *err)
{
	if (!meta->ops->lease_keepalive)
		return unsupported(meta, "lease", err);
	return meta->ops->lease_keepalive(meta->priv, lease, err);
}

int sf_meta_lease_revoke(struct sf_meta *meta, int64_t lease,
			 struct sf_err *err)
{
	if (!meta->ops->lease_revoke)
		return unsupported(meta, "lease", err);
	return meta->ops->lease_revoke(meta->priv, lease, err);
}

int sf_meta_put(struct sf_meta *meta, enum sf_meta_kind kind, const char *name,
		const char *value, size_t len, int64_t lease,
		struct sf_err *err)
{
	if (!meta->ops->put)
		return unsupported(meta, "write", err);
	name = key_name(name);
	if (!*name)
		return sf_err_set(err, -EINVAL, "a segment has a name");
	return meta->ops->put(meta->priv, kind, name, value, len, lease, err);
}

int sf_meta_delete(struct sf_meta *meta, enum sf_meta_kind kind,
		   const char *name, struct sf_err *err)
{
	if (!meta->ops->del)
		return unsupported(meta, "write", err);
	name = key_name(name);
	if (!*name)
		return sf_err_set(err, -EINVAL, "a segment has a name");
	return meta->ops->del(meta->priv, kind, name, err);
}

/* ---- keys ---- */

char *sf_meta_prefix(const char *cluster_id)
{
	size_t len = cluster_id ? strlen(cluster_id) : 0;
	char *prefix;

	if (!len)
		return strdup("mooncake/");
	if (asprintf(&prefix, "mooncake/%s%s", cluster_id,
		     cluster_id[len - 1] == '/' ? "" : "/") < 0)
		return NULL;
	return prefix;
}

char *sf_meta_key(const char *cluster_id, enum sf_meta_kind kind,
		  const char *name)
{
	char *prefix = sf_meta_prefix(cluster_id), *key;
	const char *folder = "";

	if (!prefix)
		return NULL;
	name = key_name(name);
	if (kind == SF_META_RPC)
		folder = "rpc_meta/";
	else if (!strchr(name, '/'))
		folder = "ram/";
	if (asprintf(&key, "%s%s%s", prefix, folder, name) < 0)
		key = NULL;
	free(prefix);
	return key;
}

bool sf_meta_key_parse(const char *key, enum sf_meta_kind *kind,
		       const char **name)
{
	enum sf_meta_kind found = SF_META_SEGMENT;

	if (!strncmp(key, "rpc_meta/", 9)) {
		found = SF_META_RPC;
		key += 9;
	} else if (!strncmp(key, "ram/", 4) && !strchr(key + 4, '/')) {
		key += 4;
	} else if (!strchr(key, '/')) {
		return false;
	}
	if (!*key || *key == '/')
		return false;
	*kind = found;
	*name = key;
	return true;
}
