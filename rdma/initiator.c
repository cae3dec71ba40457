/* SPDX-License-Identifier: MIT */
/*
 * The RDMA initiator as a backend of transport.h: what the gate may ask of it.
 * initiator.h has the picture.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "err.h"
#include "log.h"
#include "segment.h"
#include "workers.h"

#define WORKERS 256		/* handshakes at a time; a peer has one */
#define CQ_DEPTH 32768

/*
 * A name that no other process has or had: peers take NIC paths for identities.
 * It need not resolve; it must not hold an '@'.
 */
static void make_name(struct sf_rdma *rdma)
{
	char host[48] = "";
	uint32_t salt = 0;

	gethostname(host, sizeof(host) - 1);
	for (char *c = host; *c; c++)
		if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.')
			*c = '-';
	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		salt = (uint32_t)(uintptr_t)rdma;
	snprintf(rdma->server_name, sizeof(rdma->server_name),
		 "segfs-%s-%d-%08x", host, (int)getpid(), salt);
}

static void close_devices(struct sf_rdma *rdma)
{
	for (unsigned int i = 0; i < rdma->nr_devs; i++) {
		sf_rdma_context_close(rdma->devs[i].ctx);
		pthread_mutex_destroy(&rdma->devs[i].table_lock);
	}
	free(rdma->devs);
}

static int open_device(struct sf_rdma *rdma, const char *name,
		       struct sf_err *err)
{
	struct sf_rdma_dev *dev = &rdma->devs[rdma->nr_devs];
	int ret;

	dev->rdma = rdma;
	dev->index = rdma->nr_devs++;
	pthread_mutex_init(&dev->table_lock, NULL);
	ret = sf_rdma_context_open(&dev->ctx, name, &rdma->config, CQ_DEPTH,
				   &sf_rdma_initiator_handlers, dev, err);
	/* Tails make a slice longer; see place.c. */
	if (!ret && rdma->config.slice > dev->ctx->dev.max_message / 2)
		rdma->config.slice = dev->ctx->dev.max_message / 2;
	return ret;
}

static int open_devices(struct sf_rdma *rdma, struct sf_err *err)
{
	struct sf_rdma_device *list;
	unsigned int nr;
	int ret = sf_rdma_devices_list(&list, &nr, &rdma->config, err);

	if (ret)
		return ret;
	rdma->devs = calloc(nr, sizeof(*rdma->devs));
	if (!rdma->devs)
		ret = sf_err_set(err, -ENOMEM, "out of memory");
	for (unsigned int i = 0; !ret && i < nr; i++)
		ret = open_device(rdma, list[i].name, err);
	sf_rdma_devices_free(list, nr);
	return ret;
}

static void rdma_close(void *priv)
{
	struct sf_rdma *rdma = priv;

	/* Of handshakes there are only those that nobody waits for. */
	if (rdma->closing_fd >= 0)
		eventfd_write(rdma->closing_fd, 1);
	sf_workers_free(rdma->workers);
	sf_rdma_reaper_free(rdma->reaper);
	close_devices(rdma);
	if (rdma->own_config)
		sf_rdma_config_fini(&rdma->config);
	if (rdma->closing_fd >= 0)
		close(rdma->closing_fd);
	pthread_mutex_destroy(&rdma->lock);
	free(rdma);
}

static int start_threads(struct sf_rdma *rdma, struct sf_err *err)
{
	int ret = 0;

	rdma->closing_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (rdma->closing_fd < 0)
		ret = -errno;
	if (!ret)
		ret = sf_workers_new(&rdma->workers, WORKERS, "sf-rdma-conn");
	if (!ret)
		ret = sf_rdma_reaper_new(&rdma->reaper);
	if (ret)
		return sf_err_set(err, ret, "cannot start threads: %s",
				  strerror(-ret));
	return 0;
}

static int take_config(struct sf_rdma *rdma,
		       const struct sf_transport_config *config,
		       struct sf_err *err)
{
	/* A peer may take as long to answer as we give a request. */
	rdma->handshake_ms = config->connect_timeout_ms > config->timeout_ms ?
				     config->connect_timeout_ms :
				     config->timeout_ms;
	rdma->introducer = config->introducer;
	if (config->rdma) {
		rdma->config = *config->rdma;
		return 0;
	}
	rdma->own_config = true;
	return sf_rdma_config_init(&rdma->config, err);
}

static int rdma_open(void **priv, const struct sf_transport_config *config,
		     struct sf_err *err)
{
	struct sf_rdma *rdma = calloc(1, sizeof(*rdma));
	int ret;

	if (!rdma)
		return sf_err_set(err, -ENOMEM, "rdma: out of memory");
	pthread_mutex_init(&rdma->lock, NULL);
	rdma->closing_fd = -1;
	TAILQ_INIT(&rdma->peers);
	make_name(rdma);
	ret = take_config(rdma, config, err);
	if (!ret)
		ret = open_devices(rdma, err);
	if (!ret)
		ret = start_threads(rdma, err);
	if (ret) {
		rdma_close(rdma);
		sf_err_prefix(err, "rdma");
		return ret;
	}
	*priv = rdma;
	return 0;
}

static int rdma_peer_open(void *priv, struct sf_segment *seg, void **peer,
			  struct sf_err *err)
{
	struct sf_rdma_peer *p;
	int ret;

	if (!*seg->rpc_host || !seg->rpc_port)
		return sf_err_set(err, -EADDRNOTAVAIL,
				  "%s: the metadata does not say where to "
				  "connect its queue pairs (no rpc_meta)",
				  seg->name);
	ret = sf_rdma_peer_new(&p, priv, seg);
	if (ret)
		return sf_err_set(err, ret, "rdma: out of memory");
	*peer = p;
	return 0;
}

static void cancel_jobs(struct sf_rdma_peer *p, struct sf_rdma_jobs *list)
{
	struct sf_rdma_job *job;

	while ((job = TAILQ_FIRST(list))) {
		job->cancelled = true;
		sf_rdma_job_settle(p, job);
	}
}

static void cancel_flying(struct sf_rdma_endpoint *ep)
{
	for (unsigned int i = 0; i < ep->nr_lanes; i++) {
		struct sf_rdma_lane *lane = &ep->lanes[i];

		for (uint32_t n = lane->head; n != lane->tail; n++)
			lane->ring[n % ep->depth].job->cancelled = true;
	}
}

static void rdma_peer_close(void *peer)
{
	struct sf_rdma_peer *p = peer;
	struct sf_rdma_endpoint *ep;

	sf_rdma_peer_enter(p);
	p->closing = true;
	cancel_jobs(p, &p->queue);
	cancel_jobs(p, &p->parked);
	TAILQ_FOREACH(ep, &p->endpoints, link) {
		cancel_flying(ep);
		sf_rdma_endpoint_retire(ep, true);
	}
	sf_rdma_peer_leave(p);
	sf_rdma_connect_orphan(p);

	pthread_mutex_lock(&p->lock);
	while (p->users || !TAILQ_EMPTY(&p->endpoints))
		pthread_cond_wait(&p->left, &p->lock);
	pthread_mutex_unlock(&p->lock);
	sf_rdma_peer_free(p);
}

static void rdma_peer_update(void *peer, struct sf_segment *seg)
{
	struct sf_rdma_peer *p = peer;
	struct sf_segment *old;

	sf_rdma_peer_enter(p);
	old = p->seg;
	p->seg = sf_segment_get(seg);
	sf_rdma_peer_leave(p);
	sf_segment_put(old);
}

static void rdma_submit(void *peer, struct sf_io *io)
{
	struct sf_rdma_peer *p = peer;
	struct sf_rdma_job *job;

	sf_rdma_peer_enter(p);
	job = sf_rdma_job_new(p, io);
	if (job)
		sf_rdma_job_queue(p, job);
	sf_rdma_peer_leave(p);
	if (!job)
		io->done(io, -ENOMEM);
}

static void rdma_cancel(void *peer, struct sf_io *io)
{
	struct sf_rdma_peer *p = peer;

	sf_rdma_peer_enter(p);
	if (io->priv)
		sf_rdma_job_cancel(p, io->priv);
	sf_rdma_peer_leave(p);
}

const struct sf_transport_ops sf_transport_rdma = {
	.name = "rdma",
	.proto = SF_PROTOCOL_RDMA,
	.caps = SF_TRANSPORT_NEEDS_MEM | SF_TRANSPORT_FLUSH,
	.open = rdma_open,
	.close = rdma_close,
	.peer_open = rdma_peer_open,
	.peer_close = rdma_peer_close,
	.submit = rdma_submit,
	.cancel = rdma_cancel,
	.mem_register = sf_rdma_mem_register,
	.mem_unregister = sf_rdma_mem_unregister,
	.peer_update = rdma_peer_update,
	.peer_status = sf_rdma_peer_status,
	.peer_way = sf_rdma_peer_way,
};
