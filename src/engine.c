/* SPDX-License-Identifier: MIT */
/*
 * The engine as a whole: opening the transports and registering the pool with
 * them, stopping, and what status files say.
 */
#include "config.h"
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "directory.h"
#include "err.h"
#include "log.h"
#include "rdma_config.h"

static void close_backend(struct sf_engine *e, struct engine_backend *b)
{
	if (!b->transport)
		return;
	for (unsigned int i = 0; i < ENGINE_MAX_REGIONS; i++)
		sf_transport_unregister(b->transport, b->mems[i]);
	sf_transport_close(b->transport);
	b->transport = NULL;
}

static int open_backend(struct sf_engine *e, struct engine_backend *b,
			const struct sf_transport_config *config,
			struct sf_err *err)
{
	size_t len;
	void *base;
	int node, res;

	res = sf_transport_open(&b->transport, b->ops, config, err);
	for (unsigned int i = 0; !res && i < ENGINE_MAX_REGIONS; i++) {
		if (!sf_iobuf_region(e->pool, i, &base, &len, &node))
			break;
		res = sf_transport_register(b->transport, base, len, node,
					    &b->mems[i], err);
	}
	if (res)
		close_backend(e, b);
	return res;
}

static int open_forced(struct sf_engine *e,
		       const struct sf_engine_config *config,
		       struct sf_err *err)
{
	struct engine_backend *b = &e->backends[0];

	b->ops = config->transport;
	e->forced = true;
	e->nr_backends = 1;
	return open_backend(e, b, &config->io, err);
}

/* Who names devices wants them. */
static bool is_asked_for(const struct sf_engine_config *config,
			 const struct sf_transport_ops *ops)
{
	return ops->proto == SF_PROTOCOL_RDMA && config->io.rdma &&
	       config->io.rdma->nics;
}

/* Every transport that speaks a protocol. One that cannot be used on this
 * machine costs the segments that need it, not the others. */
static int open_all(struct sf_engine *e, const struct sf_engine_config *config,
		    struct sf_err *failure)
{
	const struct sf_transport_ops *ops;
	int res;

	for (unsigned int i = 0; (ops = sf_transport_nth(i)) &&
				 e->nr_backends < ENGINE_MAX_BACKENDS;
	     i++) {
		struct engine_backend *b = &e->backends[e->nr_backends];
		struct sf_err err = { 0 };

		if (ops->proto == SF_PROTOCOL_OTHER)
			continue;
		b->ops = ops;
		e->nr_backends++;
		res = open_backend(e, b, &config->io, &err);
		if (res && is_asked_for(config, ops))
			return sf_err_set(failure, res, "%s", err.text);
		/* Not having the hardware is no fault. */
		if (res)
			sf_log(err.code == -ENODEV ? LOG_INFO : LOG_WARNING,
			       SF_LOG_CORE, "no %s transport: %s", ops->name,
			       err.text);
	}
	return 0;
}

int sf_engine_new(struct sf_engine **out, const struct sf_engine_config *config,
		  struct sf_err *err)
{
	struct sf_engine *e = calloc(1, sizeof(*e));
	int res = 0;

	if (!e)
		return sf_err_set(err, -ENOMEM, "out of memory");
	e->directory = config->directory;
	e->timers = config->timers;
	e->pool = config->pool;
	e->timeout_ms = config->timeout_ms;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->quiet, NULL);
	TAILQ_INIT(&e->all);
	TAILQ_INIT(&e->idle);
	if (config->transport)
		res = open_forced(e, config, err);
	else
		res = open_all(e, config, err);
	if (res) {
		sf_engine_free(e);
		return res;
	}
	*out = e;
	return 0;
}

static void stop_sessions(struct sf_engine *e)
{
	struct sf_session *s;

	for (s = session_first(e); s; s = session_next(s))
		session_stop_probe(s);
	transfer_cancel_all(e, -ESHUTDOWN);
	pthread_mutex_lock(&e->lock);
	while (atomic_load(&e->in_flight) || e->nr_busy)
		pthread_cond_wait(&e->quiet, &e->lock);
	pthread_mutex_unlock(&e->lock);
}

void sf_engine_free(struct sf_engine *e)
{
	if (!e)
		return;
	atomic_store(&e->stopping, true);
	stop_sessions(e);
	session_free_all(e);
	for (unsigned int i = 0; i < e->nr_backends; i++)
		close_backend(e, &e->backends[i]);
	pthread_cond_destroy(&e->quiet);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/* ---- what status files say ---- */

static void print_error(FILE *out, const char *which,
			const struct session_error *err)
{
	if (!err->code)
		return;
	fprintf(out, "%s error: %s at 0x%llx: %s (%.1f s ago)\n", which,
		sf_op_name(err->op),
		(unsigned long long)err->addr, strerror(-err->code),
		(double)(sf_now_ms() - err->when_ms) / 1000);
}

static void print_session(struct sf_session *s, FILE *out)
{
	struct sf_peer *peers[ENGINE_MAX_BACKENDS];
	struct session_error first, last;
	unsigned int nr_errors, nr = 0;
	struct sf_transfer *t;
	uint64_t since;
	bool suspect;

	pthread_mutex_lock(&s->lock);
	memcpy(peers, s->peers, sizeof(peers));
	first = s->first;
	last = s->last;
	nr_errors = s->nr_errors;
	suspect = s->suspect;
	since = s->suspect_since_ms;
	TAILQ_FOREACH(t, &s->outstanding, link)
		nr++;
	pthread_mutex_unlock(&s->lock);

	if (suspect)
		fprintf(out, "state: suspect: let a deadline pass %.1f s ago, "
			"requests fail until it answers a probe\n",
			(double)(sf_now_ms() - since) / 1000);
	else
		fputs("state: ok\n", out);
	fprintf(out, "outstanding: %u\n", nr);
	fprintf(out, "buffers held: %u\n", atomic_load(&s->share.held));
	for (unsigned int i = 0; i < s->engine->nr_backends; i++)
		if (peers[i])
			sf_peer_status(peers[i], out);
	fprintf(out, "errors: %u\n", nr_errors);
	print_error(out, "first", &first);
	print_error(out, "last", &last);
}

void sf_engine_status(struct sf_engine *e, const char *name, FILE *out)
{
	struct sf_session *s = session_lookup(e, name);

	if (!s)
		return;
	print_session(s, out);
	session_put(s);
}

int sf_engine_way(struct sf_engine *e, const char *name,
		  struct sf_peer_way *out)
{
	struct sf_session *s = session_lookup(e, name);
	struct sf_peer *peer;
	int res = -ENOENT;

	if (!s)
		return res;
	for (unsigned int i = 0; i < e->nr_backends && res; i++) {
		pthread_mutex_lock(&s->lock);
		peer = s->peers[i];
		pthread_mutex_unlock(&s->lock);
		if (peer)
			res = sf_peer_way(peer, out);
	}
	session_put(s);
	return res;
}

void sf_engine_stats(struct sf_engine *e, struct sf_engine_stats *st)
{
	st->reads = atomic_load(&e->count.reads);
	st->writes = atomic_load(&e->count.writes);
	st->read_bytes = atomic_load(&e->count.read_bytes);
	st->written_bytes = atomic_load(&e->count.written_bytes);
	st->errors = atomic_load(&e->count.errors);
	st->retries = atomic_load(&e->count.retries);
	st->in_flight = atomic_load(&e->in_flight);
	pthread_mutex_lock(&e->lock);
	st->sessions = e->nr_sessions;
	pthread_mutex_unlock(&e->lock);
}
