/* SPDX-License-Identifier: MIT */
/*
 * Where the slices of a job go: the pairs that are good for both ends of its
 * memory, those of them that are connected, and round robin among these. The
 * peer's lock is held by all callers.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <numa.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "segment.h"
#include "topology.h"

#define PAIRS_MAX SF_RDMA_REMOTES_MAX
/* When nothing is left, try again this soon: while a transfer that was told so
 * is still being repeated (src/transfer.c). */
#define EASE_MS 300

enum verdict {
	PLACED,			/* every byte has a slot, or it is settled */
	NO_ROOM,		/* wait for completions */
	CONNECTING,		/* wait for a connection */
};

/* ---- routes: which devices are good for a location ---- */

static int distance(int from, int to)
{
	int d;

	if (from < 0 || to < 0 || numa_available() < 0)
		return 0;
	d = numa_distance(from, to);
	return d > 0 ? d : INT32_MAX;
}

/* All of ours, nearest to NODE first; those of the least distance are
 * preferred. Nobody knows where a device without a node is: it is as good as
 * any. */
static void choose_local(const struct sf_rdma *rdma, struct sf_rdma_route *r)
{
	int d[SF_RDMA_DEVICES_MAX], least = 0;
	uint32_t n = 0, k;

	for (unsigned int i = 0; i < rdma->nr_devs; i++) {
		int mine = distance(r->node, rdma->devs[i].ctx->dev.node);

		for (k = n++; k && d[k - 1] > mine; k--) {
			d[k] = d[k - 1];
			r->local[k] = r->local[k - 1];
		}
		d[k] = mine;
		r->local[k] = i;
	}
	r->locals.items = r->local;
	r->locals.nr = n;
	for (k = 0; k < n && !least; k++)
		least = d[k];
	for (k = 0; k < n && (!d[k] || d[k] == least); k++)
		;
	r->locals.nr_preferred = k;
}

struct names {
	const struct sf_rdma *rdma;
	const struct sf_segment *seg;
};

static const char *local_name(void *arg, uint32_t item)
{
	return ((struct names *)arg)->rdma->devs[item].ctx->dev.name;
}

static const char *remote_name(void *arg, uint32_t item)
{
	return ((struct names *)arg)->seg->devices[item].name;
}

static void make_route(struct sf_rdma_peer *p, struct sf_segment *seg,
		       const char *location, int node)
{
	struct names names = { p->rdma, seg };
	struct sf_rdma_route *r = &p->route;

	snprintf(r->location, sizeof(r->location), "%s", location);
	r->node = node;
	/* A longer one would be mistaken for others that begin like it. */
	r->valid = strlen(location) < sizeof(r->location);
	choose_local(p->rdma, r);
	r->remotes.items = r->remote;
	r->remotes.nr = sf_topology_choose(seg->topology, location,
					   seg->devices, seg->nr_devices,
					   r->remote, SF_RDMA_REMOTES_MAX,
					   &r->remotes.nr_preferred);
	sf_pairs_align(&r->locals, local_name, r->remote, r->remotes.nr,
		       r->remotes.nr_preferred, remote_name, &names);
}

static const struct sf_rdma_route *route_of(struct sf_rdma_peer *p,
					    const struct sf_rdma_job *job)
{
	const struct sf_io *io = job->io;
	struct sf_segment *seg = (struct sf_segment *)(uintptr_t)io->seg;
	int node = io->reg ? io->reg->node : -1;
	char text[32];
	const char *location =
		sf_location_at(io->buffer->location,
			       io->addr + job->next - io->buffer->addr,
			       io->buffer->length, text);

	sf_rdma_peer_remote(p, seg, 0);		/* makes it the map's */
	if (!p->route.valid || p->route.node != node ||
	    strcmp(p->route.location, location))
		make_route(p, seg, location, node);
	return &p->route;
}

/* ---- pairs ---- */

bool sf_rdma_dev_is_usable(const struct sf_rdma_dev *dev)
{
	return atomic_load_explicit(&dev->ctx->up, memory_order_relaxed);
}

/* Came up a moment ago: links that come back often go again. */
static bool rests(const struct sf_rdma_dev *dev, uint64_t now_ms)
{
	return now_ms < atomic_load_explicit(&dev->rest_until_ms,
					     memory_order_relaxed);
}

/* A connection of PAIR is on its way, or has just been asked for. */
static bool may_connect(struct sf_rdma_peer *p, struct sf_rdma_pair *pair,
			uint64_t now_ms)
{
	return sf_rdma_dev_is_usable(pair->dev) &&
	       !sf_pair_is_paused(&pair->health, now_ms) &&
	       !rests(pair->dev, now_ms) && sf_rdma_connect_want(p, pair);
}

/* One pair that a job may use now. */
struct usable {
	struct sf_rdma_endpoint *ep;
	uint64_t rkey;
};

/* The usable pairs of one group. *CONNECTING: some are being connected. */
static uint32_t look_at_group(struct sf_rdma_peer *p,
			      const struct sf_rdma_job *job,
			      const struct sf_pairs_pair *pairs, uint32_t nr,
			      uint64_t now_ms, struct usable *out,
			      bool *connecting)
{
	const struct sf_buffer *buf = job->io->buffer;
	struct sf_segment *seg = p->map_seg;
	uint32_t found = 0;

	for (uint32_t i = 0; i < nr; i++) {
		uint32_t device = pairs[i].remote;
		int remote = sf_rdma_peer_remote(p, seg, device);
		struct sf_rdma_pair *pair;

		if (remote < 0 || device >= buf->nr_keys ||
		    !buf->rkeys[device])
			continue;
		pair = sf_rdma_peer_pair(p, pairs[i].local,
					 (unsigned int)remote);
		if (!pair || !sf_rdma_dev_is_usable(pair->dev))
			continue;
		if (pair->ep)
			out[found++] = (struct usable){ pair->ep,
							buf->rkeys[device] };
		else
			*connecting |= may_connect(p, pair, now_ms);
	}
	return found;
}

static bool any_device(const struct sf_rdma *rdma)
{
	for (unsigned int i = 0; i < rdma->nr_devs; i++)
		if (sf_rdma_dev_is_usable(&rdma->devs[i]))
			return true;
	return false;
}

static bool has_key(const struct sf_rdma_job *job)
{
	for (uint32_t i = 0; i < job->io->buffer->nr_keys; i++)
		if (job->io->buffer->rkeys[i])
			return true;
	return false;
}

/* No pair is left to try. They are set aside to spare those who can do without
 * them; now nobody can. */
static int nothing_left(struct sf_rdma_peer *p, const struct sf_rdma_job *job,
			uint64_t now_ms)
{
	if (!any_device(p->rdma))
		return -ENODEV;
	if (!has_key(job))
		return -EREMOTEIO;
	for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++)
		if (p->pairs[i])
			sf_pair_ease(&p->pairs[i]->health, now_ms + EASE_MS);
	for (unsigned int i = 0; i < p->rdma->nr_devs; i++)
		if (rests(&p->rdma->devs[i], now_ms))
			atomic_store(&p->rdma->devs[i].rest_until_ms, 0);
	return p->connect_error ? p->connect_error : -ECONNRESET;
}

/* ---- slices ---- */

static uint32_t slice_len(const struct sf_rdma *rdma, uint32_t rest)
{
	uint32_t slice = (uint32_t)rdma->config.slice;

	/* A small tail is not worth a slice of its own. */
	return rest <= slice + slice / 4 ? rest : slice;
}

static enum verdict spread(struct sf_rdma_peer *p, struct sf_rdma_job *job,
			   const struct usable *u, uint32_t nr)
{
	uint32_t full = 0, poor = 0, taken;
	int ret;

	while (job->next < job->io->len && full < nr) {
		const struct usable *at = &u[job->turn++ % nr];

		if (at->ep->draining)
			ret = -EAGAIN;	/* failed while it was spread over */
		else
			ret = sf_rdma_slot_take(
				at->ep, job,
				slice_len(p->rdma, job->io->len - job->next),
				at->rkey, &taken);
		/* Memory that one device cannot register, another may have. */
		poor = ret == -ENOMEM ? poor + 1 : 0;
		full = ret ? full + 1 : 0;
	}
	if (poor == nr) {
		job->res = -ENOMEM;
		sf_rdma_job_settle(p, job);
		return PLACED;
	}
	if (job->next < job->io->len)
		return NO_ROOM;
	sf_rdma_job_fly(p, job);
	return PLACED;
}

/* ---- flushes ---- */

/* Of the buffer of IO, by the remote device of PAIR; 0: it is not there. */
static uint64_t key_for(const struct sf_io *io,
			const struct sf_rdma_pair *pair)
{
	const struct sf_buffer *buf = io->buffer;

	for (uint32_t i = 0; i < io->seg->nr_devices && i < buf->nr_keys; i++)
		if (!strcmp(io->seg->devices[i].name, pair->remote))
			return buf->rkeys[i];
	return 0;
}

/*
 * A read that comes behind writes through the same remote device pushes them
 * into memory before it is answered. So there is one for each pair that ever
 * wrote, on each of its queue pairs. A pair that lost its connection is
 * connected anew for it; one that cannot be any more has nothing to push
 * with, and the others must do.
 */
static enum verdict place_flush(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	size_t nr = sf_rdma_peer_nr_pairs(p);
	bool connecting = false, wrote = false, reached = false;
	uint64_t now_ms = sf_now_ms();

	for (size_t i = 0; i < nr; i++)
		if (p->pairs[i] && p->pairs[i]->wrote && !p->pairs[i]->ep &&
		    key_for(job->io, p->pairs[i]))
			connecting |= may_connect(p, p->pairs[i], now_ms);
	if (connecting)
		return CONNECTING;
	for (size_t i = 0; i < nr; i++) {
		struct sf_rdma_pair *pair = p->pairs[i];
		uint64_t rkey;
		int ret;

		if (!pair || !pair->wrote)
			continue;
		wrote = true;
		rkey = key_for(job->io, pair);
		if (!rkey || !pair->ep)
			continue;
		ret = sf_rdma_slot_take_flush(pair->ep, job, rkey);
		if (ret == -EAGAIN)
			return NO_ROOM;
		if (ret)
			job->res = ret;
		reached = true;
	}
	if (wrote && !reached)
		job->res = nothing_left(p, job, now_ms);
	if (!job->res)
		job->next = job->io->len;	/* no more is to come */
	sf_rdma_job_fly(p, job);
	sf_rdma_job_settle(p, job);
	return PLACED;
}

static enum verdict place(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	const struct sf_rdma_route *route = route_of(p, job);
	struct sf_pairs_pair pairs[PAIRS_MAX];
	struct usable usable[PAIRS_MAX];
	uint64_t now_ms = sf_now_ms();
	bool connecting = false;
	uint32_t nr, group;

	for (group = 0; (nr = sf_pairs_group(&route->locals, &route->remotes,
					     group, pairs, PAIRS_MAX));
	     group++) {
		nr = look_at_group(p, job, pairs, nr, now_ms, usable,
				   &connecting);
		if (nr)
			return spread(p, job, usable, nr);
		if (connecting)
			return CONNECTING;
	}
	job->res = nothing_left(p, job, now_ms);
	sf_rdma_job_settle(p, job);
	return PLACED;
}

void sf_rdma_place_all(struct sf_rdma_peer *p)
{
	struct sf_rdma_job *job;

	while ((job = TAILQ_FIRST(&p->queue))) {
		switch (job->io->op == SF_FLUSH ? place_flush(p, job)
						: place(p, job)) {
		case PLACED:
			break;
		case CONNECTING:
			sf_rdma_job_park(p, job);
			break;
		case NO_ROOM:
			/* The others would go the same ways. */
			return;
		}
	}
}
