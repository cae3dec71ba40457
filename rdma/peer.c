/* SPDX-License-Identifier: MIT */
/*
 * A peer of the RDMA initiator as an object: its making and unmaking, its table
 * of pairs, and the frame in which any thread works on it (see initiator.h).
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "segment.h"

static const char *server_of(const struct sf_segment *seg)
{
	if (*seg->rdma_server_name)
		return seg->rdma_server_name;
	return *seg->self_name ? seg->self_name : seg->name;
}

/*
 * Our part of NIC paths. The peer drops a connection when another one comes
 * from the same path, so two of our peers that lead to one server must not have
 * one name; and it keeps what we left behind until that happens, so that a name
 * is used again as soon as it is free. rdma->lock held.
 */
static void choose_name_locked(struct sf_rdma_peer *p)
{
	struct sf_rdma *rdma = p->rdma;
	struct sf_rdma_peer *other;
	unsigned int n = 0;

again:
	TAILQ_FOREACH(other, &rdma->peers, link) {
		if (other->name_index == n &&
		    !strcmp(other->server, p->server)) {
			n++;
			goto again;
		}
	}
	p->name_index = n;
	if (n)
		snprintf(p->own_name, sizeof(p->own_name), "%s-%u",
			 rdma->server_name, n);
	else
		snprintf(p->own_name, sizeof(p->own_name), "%s",
			 rdma->server_name);
}

int sf_rdma_peer_new(struct sf_rdma_peer **out, struct sf_rdma *rdma,
		     struct sf_segment *seg)
{
	struct sf_rdma_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->rdma = rdma;
	p->server = strdup(server_of(seg));
	p->pairs = calloc(sf_rdma_peer_nr_pairs(p), sizeof(*p->pairs));
	if (!p->server || !p->pairs) {
		free(p->server);
		free(p->pairs);
		free(p);
		return -ENOMEM;
	}
	p->seg = sf_segment_get(seg);
	p->nr_qps = rdma->config.qps;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->left, NULL);
	TAILQ_INIT(&p->queue);
	TAILQ_INIT(&p->parked);
	STAILQ_INIT(&p->done);
	STAILQ_INIT(&p->free);
	TAILQ_INIT(&p->endpoints);
	TAILQ_INIT(&p->chained);
	pthread_mutex_lock(&rdma->lock);
	choose_name_locked(p);
	TAILQ_INSERT_TAIL(&rdma->peers, p, link);
	pthread_mutex_unlock(&rdma->lock);
	*out = p;
	return 0;
}

void sf_rdma_peer_free(struct sf_rdma_peer *p)
{
	struct sf_rdma_job *job;

	pthread_mutex_lock(&p->rdma->lock);
	TAILQ_REMOVE(&p->rdma->peers, p, link);
	pthread_mutex_unlock(&p->rdma->lock);
	while ((job = STAILQ_FIRST(&p->free))) {
		STAILQ_REMOVE_HEAD(&p->free, done_link);
		free(job);
	}
	for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++)
		free(p->pairs[i]);
	for (unsigned int i = 0; i < p->nr_remotes; i++)
		free(p->remotes[i]);
	pthread_cond_destroy(&p->left);
	pthread_mutex_destroy(&p->lock);
	sf_segment_put(p->map_seg);
	sf_segment_put(p->seg);
	free(p->pairs);
	free(p->server);
	free(p);
}

void sf_rdma_peer_enter(struct sf_rdma_peer *p)
{
	pthread_mutex_lock(&p->lock);
	p->users++;
}

static void deliver(struct sf_rdma_peer *p)
{
	struct sf_rdma_done_jobs mine = STAILQ_HEAD_INITIALIZER(mine);
	struct sf_rdma_job *job;

	STAILQ_CONCAT(&mine, &p->done);
	pthread_mutex_unlock(&p->lock);
	STAILQ_FOREACH(job, &mine, done_link) {
		struct sf_io *io = job->io;

		/* IO may be gone, or on its way again, when this returns. */
		io->done(io, job->res);
	}
	pthread_mutex_lock(&p->lock);
	STAILQ_CONCAT(&mine, &p->free);
	STAILQ_CONCAT(&p->free, &mine);
}

void sf_rdma_peer_leave(struct sf_rdma_peer *p)
{
	struct sf_rdma_endpoint *ep;

	/* Nothing stays chained while the lock is not held, but what another
	 * thread sees to. */
	for (;;) {
		if (p->queue_moved) {
			p->queue_moved = false;
			sf_rdma_place_all(p);
		} else if ((ep = TAILQ_FIRST(&p->chained))) {
			sf_rdma_endpoint_post(ep);
		} else if (!STAILQ_EMPTY(&p->done)) {
			deliver(p);
		} else {
			break;
		}
	}
	if (--p->users == 0 && p->closing)
		pthread_cond_broadcast(&p->left);
	pthread_mutex_unlock(&p->lock);
}

/* ---- devices and pairs ---- */

static uint8_t find_remote(struct sf_rdma_peer *p, const char *name)
{
	unsigned int i;

	for (i = 0; i < p->nr_remotes; i++)
		if (!strcmp(p->remotes[i], name))
			return (uint8_t)i;
	if (!*name || i == SF_RDMA_REMOTES_MAX)
		return UINT8_MAX;
	p->remotes[i] = strdup(name);
	if (!p->remotes[i])
		return UINT8_MAX;
	p->nr_remotes++;
	return (uint8_t)i;
}

static void map_devices(struct sf_rdma_peer *p, struct sf_segment *seg)
{
	sf_segment_put(p->map_seg);
	p->map_seg = sf_segment_get(seg);
	p->route.valid = false;
	memset(p->map, UINT8_MAX, sizeof(p->map));
	for (uint32_t i = 0; i < seg->nr_devices && i < sizeof(p->map); i++)
		p->map[i] = find_remote(p, seg->devices[i].name);
}

int sf_rdma_peer_remote(struct sf_rdma_peer *p, struct sf_segment *seg,
			uint32_t device)
{
	if (p->map_seg != seg)
		map_devices(p, seg);
	if (device >= sizeof(p->map) || p->map[device] == UINT8_MAX)
		return -1;
	return p->map[device];
}

struct sf_rdma_pair *sf_rdma_peer_pair(struct sf_rdma_peer *p,
				       unsigned int dev, unsigned int remote)
{
	struct sf_rdma_pair **at =
		&p->pairs[(size_t)dev * SF_RDMA_REMOTES_MAX + remote];

	if (!*at) {
		*at = calloc(1, sizeof(**at));
		if (*at) {
			(*at)->dev = &p->rdma->devs[dev];
			(*at)->peer = p;
			(*at)->remote = p->remotes[remote];
		}
	}
	return *at;
}

void sf_rdma_pair_note(struct sf_rdma_pair *pair, enum sf_rdma_stage stage,
		       int code, const char *text)
{
	/* The first one tells the cause, the rest its consequences. */
	if (pair->error && !pair->healed)
		return;
	pair->healed = false;
	pair->stage = stage;
	pair->error = code;
	pair->error_ms = sf_now_ms();
	snprintf(pair->text, sizeof(pair->text), "%s", text);
	sf_log(LOG_WARNING, SF_LOG_RDMA, "pair %s -> %s@%s: %s: %s",
	       pair->dev->ctx->dev.name, pair->peer->server, pair->remote,
	       sf_rdma_stage_name(stage), text);
}
