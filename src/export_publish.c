/* SPDX-License-Identifier: MIT */
/*
 * Publishing: puts the two keys of a name, and a thread that keeps the lease
 * alive and looks, three times in a lease's life, whether the keys are still
 * there and still ours.
 *
 *	ours		nothing to do
 *	missing		put again
 *	foreign		owner answers: leave it, say so once; else put again
 *
 * Everything here may block as long as the store's operations do; data and
 * handshake go on being served meanwhile.
 */
#include "config.h"
#include "export_publish.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blob.h"
#include "err.h"
#include "handshake.h"
#include "log.h"
#include "meta.h"
#include "segment.h"
#include "thread.h"

#define PROBE_MS 5000
#define CHECK_MS 10000		/* at least that often */
#define RETRY_MS 1000		/* while the store does not answer */

struct sf_publish {
	struct sf_publish_config config;	/* its segment is ours */
	int64_t lease;		/* 0: none (any more) */
	bool foreign;		/* said so */
	bool unreachable;	/* said so */
	pthread_t thread;
	bool running;
	pthread_mutex_t lock;	/* what follows */
	pthread_cond_t wake;
	bool stop;
	char *update;		/* the next descriptor; NULL: none */
};

/* What the store holds under our name. */
struct found {
	struct sf_blob *segment, *rpc;
};

static void found_fini(struct found *f)
{
	sf_blob_put(f->segment);
	sf_blob_put(f->rpc);
}

/* Missing keys are NULL and no error. */
static int look(struct sf_meta *meta, const char *name, struct found *f,
		struct sf_err *err)
{
	int res;

	*f = (struct found){ 0 };
	res = sf_meta_get(meta, name, &f->segment, &f->rpc, err);
	return res == -ENOENT ? 0 : res;
}

/* TEXT is NULL where nothing of ours belongs. */
static bool holds(const struct sf_blob *blob, const char *text)
{
	return blob && text && blob->len == strlen(text) &&
	       !memcmp(blob->data, text, blob->len);
}

static bool lacks(const struct sf_blob *blob, const char *text)
{
	return text && !holds(blob, text);
}

static bool same_blob(const struct sf_blob *a, const struct sf_blob *b)
{
	return a && b && a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* ---- another owner ---- */

static bool answers(const char *host, uint16_t port,
		    enum sf_handshake_type type)
{
	struct sf_blob *reply = NULL;
	int res = sf_handshake_call(host, port, type, "{}",
				    SF_HANDSHAKE_MAX_TOP, PROBE_MS, &reply,
				    NULL);

	sf_blob_put(reply);
	return res == 0;
}

/* Probe is younger than Metadata: an old Mooncake answers only that. */
static bool owner_answers(const char *name, struct sf_blob *rpc,
			  struct sf_err *err)
{
	struct sf_segment *seg;
	bool alive = false;

	if (!rpc || sf_segment_decode(&seg, name, NULL, rpc) < 0)
		return false;
	if (*seg->rpc_host && seg->rpc_port)
		alive = answers(seg->rpc_host, seg->rpc_port,
				SF_HANDSHAKE_PROBE) ||
			answers(seg->rpc_host, seg->rpc_port,
				SF_HANDSHAKE_METADATA);
	if (alive)
		sf_err_set(err, -EEXIST, "segment %s belongs to a process that "
			   "answers at %s port %u", name, seg->rpc_host,
			   seg->rpc_port);
	sf_segment_put(seg);
	return alive;
}

int sf_publish_check(struct sf_meta *meta, const char *name, bool force,
		     struct sf_blob **seen, struct sf_err *err)
{
	struct found f;
	int res = look(meta, name, &f, err);

	if (res < 0)
		return res;
	if (!force && owner_answers(name, f.rpc, err))
		res = -EEXIST;
	if (!res && (f.segment || f.rpc))
		sf_log(LOG_NOTICE, SF_LOG_EXPORT,
		       "segment %s is taken over from an owner that %s", name,
		       force ? "was not asked" : "does not answer");
	if (!res) {
		*seen = f.rpc;
		f.rpc = NULL;
	}
	found_fini(&f);
	return res;
}

/* ---- putting and removing ---- */

static int grant(struct sf_publish *p, struct sf_err *err)
{
	if (!p->config.lease_s || p->lease)
		return 0;
	return sf_meta_lease_grant(p->config.meta, p->config.lease_s, &p->lease,
				   err);
}

static int put(struct sf_publish *p, enum sf_meta_kind kind,
	       struct sf_err *err)
{
	const char *text = kind == SF_META_RPC ? p->config.rpc :
						 p->config.segment;

	return sf_meta_put(p->config.meta, kind, p->config.name, text,
			   strlen(text), p->lease, err);
}

/* rpc_meta first: who sees the descriptor can reach its owner. */
static int put_missing(struct sf_publish *p, const struct found *f,
		       struct sf_err *err)
{
	int res = grant(p, err);

	if (!res && lacks(f->rpc, p->config.rpc))
		res = put(p, SF_META_RPC, err);
	if (!res && lacks(f->segment, p->config.segment))
		res = put(p, SF_META_SEGMENT, err);
	return res;
}

static int remove_ours(struct sf_publish *p, struct sf_err *err)
{
	const struct sf_publish_config *c = &p->config;
	struct found f;
	int res = look(c->meta, c->name, &f, err);

	if (!res && holds(f.rpc, c->rpc))
		res = sf_meta_delete(c->meta, SF_META_RPC, c->name, err);
	if (!res && holds(f.segment, c->segment))
		res = sf_meta_delete(c->meta, SF_META_SEGMENT, c->name, err);
	found_fini(&f);
	return res;
}

/* A lease takes with it what could not be removed one by one, and leaves alone
 * what others have put since. */
static void withdraw(struct sf_publish *p)
{
	struct sf_err err = { 0 };
	int res = remove_ours(p, &err);

	if (p->lease && (!res || res == -EBADMSG || res == -EACCES))
		res = sf_meta_lease_revoke(p->config.meta, p->lease, &err);
	if (res < 0 && res != -ENOENT)
		sf_log(LOG_ERR, SF_LOG_EXPORT, "segment %s: cannot remove its "
		       "keys%s: %s", p->config.name,
		       p->lease ? " (they end with their lease)" : "",
		       err.text);
}

/* ---- keeping ---- */

static void say_foreign(struct sf_publish *p, const struct sf_err *err)
{
	if (!p->foreign)
		sf_log(LOG_ERR, SF_LOG_EXPORT,
		       "%s: not published any more, its keys are left alone",
		       err->text);
	p->foreign = true;
}

/* The rpc key decides; it cannot be asked again whether we answer. */
static bool is_taken(struct sf_publish *p, const struct found *f,
		     struct sf_err *err)
{
	return f->rpc && !holds(f->rpc, p->config.rpc) &&
	       owner_answers(p->config.name, f->rpc, err);
}

static int check_keys(struct sf_publish *p, struct sf_err *err)
{
	struct sf_err taken = { 0 };
	struct found f;
	int res = look(p->config.meta, p->config.name, &f, err);

	if (res < 0)
		return res;
	if (is_taken(p, &f, &taken)) {
		say_foreign(p, &taken);
	} else if (lacks(f.rpc, p->config.rpc) ||
		   lacks(f.segment, p->config.segment)) {
		res = put_missing(p, &f, err);
		if (!res) {
			sf_log(LOG_WARNING, SF_LOG_EXPORT, "segment %s: its "
			       "keys were gone or changed, published again",
			       p->config.name);
			p->foreign = false;
		}
	}
	found_fini(&f);
	return res;
}

/* The next descriptor is the one to publish from now on. True: there was. */
static bool take_update(struct sf_publish *p)
{
	char *next;

	pthread_mutex_lock(&p->lock);
	next = p->update;
	p->update = NULL;
	pthread_mutex_unlock(&p->lock);
	if (!next)
		return false;
	free((char *)(uintptr_t)p->config.segment);
	p->config.segment = next;
	return true;
}

/* Unless the name has become somebody else's. */
static int put_update(struct sf_publish *p, struct sf_err *err)
{
	if (p->foreign || (p->config.lease_s && !p->lease))
		return 0;	/* check_keys() knows what to do */
	return put(p, SF_META_SEGMENT, err);
}

static int keep(struct sf_publish *p, struct sf_err *err)
{
	/* Whatever the store says: one that waits would wake us for ever. */
	bool updated = take_update(p);
	int res = 0;

	if (p->lease) {
		res = sf_meta_lease_keepalive(p->config.meta, p->lease, err);
		if (res == -ENOENT) {
			p->lease = 0;
			res = 0;
		}
	}
	if (!res && updated)
		res = put_update(p, err);
	return res ? res : check_keys(p, err);
}

static void keep_and_log(struct sf_publish *p)
{
	struct sf_err err = { 0 };
	bool was = p->unreachable;

	p->unreachable = keep(p, &err) < 0;
	if (p->unreachable && !was)
		sf_log(LOG_ERR, SF_LOG_EXPORT, "segment %s: cannot keep it "
		       "published, trying on: %s", p->config.name, err.text);
	if (was && !p->unreachable)
		sf_log(LOG_WARNING, SF_LOG_EXPORT,
		       "segment %s: the metadata store is back",
		       p->config.name);
}

static unsigned int interval_ms(const struct sf_publish *p)
{
	uint64_t ms = CHECK_MS;

	if (p->config.lease_s && p->config.lease_s * UINT64_C(1000) / 3 < ms)
		ms = p->config.lease_s * UINT64_C(1000) / 3;
	if (p->unreachable && ms > RETRY_MS)
		ms = RETRY_MS;
	return (unsigned int)ms;
}

/* True: stop. */
static bool pause_for(struct sf_publish *p, unsigned int ms)
{
	struct timespec until;
	bool stop;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&p->lock);
	while (!p->stop && !p->update &&
	       pthread_cond_timedwait(&p->wake, &p->lock, &until) != ETIMEDOUT)
		;
	stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	return stop;
}

static void *run(void *arg)
{
	struct sf_publish *p = arg;

	pthread_setname_np(pthread_self(), "sf-publish");
	while (!pause_for(p, interval_ms(p)))
		keep_and_log(p);
	return NULL;
}

/* ---- starting and stopping ---- */

static int start_thread(struct sf_publish *p)
{
	int res = sf_thread_start(&p->thread, run, p);

	p->running = res == 0;
	return res;
}

/* Somebody may have come between the check and now, or come now. */
static int take_name(struct sf_publish *p, struct sf_err *err)
{
	static const struct found none;
	const struct sf_publish_config *c = &p->config;
	struct found f;
	int res = look(c->meta, c->name, &f, err);

	if (!res && !c->force && !same_blob(f.rpc, c->seen_rpc) &&
	    is_taken(p, &f, err))
		res = -EEXIST;
	found_fini(&f);
	if (res)
		return res;
	res = put_missing(p, &none, err);
	if (!res)
		res = look(c->meta, c->name, &f, err);
	if (!res) {
		if (f.rpc && !holds(f.rpc, c->rpc))
			res = sf_err_set(err, -EEXIST, "segment %s was taken "
					 "by another process just now",
					 c->name);
		found_fini(&f);
	}
	if (res)
		withdraw(p);
	return res;
}

static struct sf_publish *publish_new(const struct sf_publish_config *config)
{
	struct sf_publish *p = calloc(1, sizeof(*p));
	char *segment = strdup(config->segment);
	pthread_condattr_t attr;

	if (!p || !segment) {
		free(segment);
		free(p);
		return NULL;
	}
	p->config = *config;
	p->config.segment = segment;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->wake, &attr);
	pthread_condattr_destroy(&attr);
	return p;
}

static void publish_free(struct sf_publish *p)
{
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free((char *)(uintptr_t)p->config.segment);
	free(p->update);
	free(p);
}

int sf_publish_start(struct sf_publish **out,
		     const struct sf_publish_config *config,
		     struct sf_err *err)
{
	struct sf_publish *p = publish_new(config);
	int res;

	if (!p)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = take_name(p, err);
	p->config.seen_rpc = NULL;
	if (!res) {
		res = start_thread(p);
		if (res) {
			sf_err_set(err, res, "cannot start a thread: %s",
				   strerror(-res));
			withdraw(p);
		}
	}
	if (res) {
		publish_free(p);
		return res;
	}
	*out = p;
	return 0;
}

int sf_publish_update(struct sf_publish *p, const char *segment)
{
	char *next = strdup(segment);

	if (!next)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	free(p->update);
	p->update = next;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void sf_publish_stop(struct sf_publish *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	if (p->running)
		pthread_join(p->thread, NULL);
	withdraw(p);
	publish_free(p);
}
