/* SPDX-License-Identifier: MIT */
/*
 * The gate: finds backends, answers for what they leave out, and checks what
 * both sides promised. Holds no state but the pairing of ops and their objects.
 */
#include "config.h"
#include "transport.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "range.h"
#include "rdma_target.h"

#ifdef HAVE_RDMA
#define RDMA_TARGET (&sf_rdma_target)
#else
#define RDMA_TARGET NULL
#endif

/* The only list of backends, and the only place that knows which are built. */
static const struct sf_transport_ops *const backends[] = {
	&sf_transport_tcp,
#ifdef HAVE_RDMA
	&sf_transport_rdma,
#endif
	&sf_transport_null,
};

#define NR_BACKENDS (sizeof(backends) / sizeof(backends[0]))

struct sf_transport {
	const struct sf_transport_ops *ops;
	void *priv;
};

struct sf_peer {
	const struct sf_transport_ops *ops;
	void *priv;
};

const struct sf_rdma_target_ops *sf_rdma_target_ops(void)
{
	return RDMA_TARGET;
}

const char *sf_op_name(enum sf_op op)
{
	static const char *const names[] = {
		[SF_READ] = "read",
		[SF_WRITE] = "write",
		[SF_FLUSH] = "flush",
	};

	return names[op];
}

const struct sf_transport_ops *sf_transport_nth(unsigned int i)
{
	return i < NR_BACKENDS ? backends[i] : NULL;
}

const struct sf_transport_ops *sf_transport_find(const char *name)
{
	for (size_t i = 0; i < NR_BACKENDS; i++)
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	return NULL;
}

const struct sf_transport_ops *sf_transport_for(enum sf_protocol proto)
{
	if (proto == SF_PROTOCOL_OTHER)
		return NULL;
	for (size_t i = 0; i < NR_BACKENDS; i++)
		if (backends[i]->proto == proto)
			return backends[i];
	return NULL;
}

int sf_transport_open(struct sf_transport **out,
		      const struct sf_transport_ops *ops,
		      const struct sf_transport_config *config,
		      struct sf_err *err)
{
	struct sf_transport *t = calloc(1, sizeof(*t));
	int res;

	if (!t)
		return sf_err_set(err, -ENOMEM, "out of memory");
	t->ops = ops;
	res = ops->open(&t->priv, config, err);
	assert(res <= 0);
	if (res) {
		free(t);
		return res;
	}
	*out = t;
	return 0;
}

void sf_transport_close(struct sf_transport *t)
{
	if (!t)
		return;
	t->ops->close(t->priv);
	free(t);
}

const char *sf_transport_name(const struct sf_transport *t)
{
	return t->ops->name;
}

unsigned int sf_transport_caps(const struct sf_transport *t)
{
	return t->ops->caps;
}

int sf_transport_register(struct sf_transport *t, void *base, size_t len,
			  int node, struct sf_mem **out, struct sf_err *err)
{
	if (!t->ops->mem_register) {
		*out = NULL;
		return 0;
	}
	return t->ops->mem_register(t->priv, base, len, node, out, err);
}

void sf_transport_unregister(struct sf_transport *t, struct sf_mem *mem)
{
	if (mem && t->ops->mem_unregister)
		t->ops->mem_unregister(t->priv, mem);
}

int sf_peer_open(struct sf_transport *t, struct sf_segment *seg,
		 struct sf_peer **out, struct sf_err *err)
{
	struct sf_peer *p = calloc(1, sizeof(*p));
	int res;

	if (!p)
		return sf_err_set(err, -ENOMEM, "out of memory");
	p->ops = t->ops;
	res = t->ops->peer_open(t->priv, seg, &p->priv, err);
	assert(res <= 0);
	if (res) {
		free(p);
		return res;
	}
	*out = p;
	return 0;
}

void sf_peer_update(struct sf_peer *p, struct sf_segment *seg)
{
	if (p->ops->peer_update)
		p->ops->peer_update(p->priv, seg);
}

void sf_peer_close(struct sf_peer *p)
{
	if (!p)
		return;
	p->ops->peer_close(p->priv);
	free(p);
}

void sf_peer_submit(struct sf_peer *p, struct sf_io *io)
{
	assert(io->len > 0 && io->mem && io->done && io->buffer);
	assert(sf_range_within(io->addr, io->len, io->buffer->addr,
			       io->buffer->length));
	io->nr_pipes = 0;
	io->data = io->mem;
	p->ops->submit(p->priv, io);
}

void sf_peer_cancel(struct sf_peer *p, struct sf_io *io)
{
	p->ops->cancel(p->priv, io);
}

void sf_peer_status(struct sf_peer *p, FILE *out)
{
	if (p->ops->peer_status)
		p->ops->peer_status(p->priv, out);
}

int sf_peer_way(struct sf_peer *p, struct sf_peer_way *out)
{
	return p->ops->peer_way ? p->ops->peer_way(p->priv, out) : -EOPNOTSUPP;
}
