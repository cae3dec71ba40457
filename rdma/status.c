/* SPDX-License-Identifier: MIT */
/*
 * What the status file of a segment says of the RDMA side: a line a pair. And
 * the same in short for one pair, to find a fault by.
 */
#include "config.h"
#include "rdma/connect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "gid.h"
#include "segment.h"

static void print_qps(const struct sf_rdma_pair *pair, FILE *out)
{
	for (unsigned int i = 0; i < pair->nr_qps && i < SF_RDMA_SHOWN_QPS; i++)
		fprintf(out, "%s%" PRIu32 "-%" PRIu32, i ? " " : "",
			pair->own_qp[i], pair->remote_qp[i]);
	if (pair->nr_qps > SF_RDMA_SHOWN_QPS)
		fputs(" ...", out);
}

static void print_state(const struct sf_rdma_peer *p,
			const struct sf_rdma_pair *pair, uint64_t now_ms,
			FILE *out)
{
	if (pair->ep)
		fprintf(out, "connected, %u outstanding",
			atomic_load(&pair->ep->taken));
	else if (pair->wanted)
		fputs(p->connect ? "connecting" : "waiting", out);
	else if (sf_pair_is_paused(&pair->health, now_ms))
		fprintf(out, "set aside for %" PRIu64 " s",
			(pair->health.paused_until_ms - now_ms + 999) / 1000);
	else
		fputs("not connected", out);
}

static void print_pair(const struct sf_rdma_peer *p,
		       const struct sf_rdma_pair *pair, FILE *out)
{
	uint64_t now_ms = sf_now_ms();
	char gid[SF_GID_TEXT_MAX];

	fprintf(out, "pair %s -> %s@%s: ", pair->dev->ctx->dev.name, p->server,
		pair->remote);
	print_state(p, pair, now_ms, out);
	fprintf(out, "; port %u", pair->dev->ctx->dev.port);
	if (!sf_gid_is_zero(pair->gid.gid)) {
		sf_gid_format(gid, pair->gid.gid);
		fprintf(out, ", gid %s (index %u, %s)", gid, pair->gid.index,
			sf_rdma_gid_kind_name(pair->gid.kind));
	}
	if (pair->connects) {
		sf_gid_format(gid, pair->remote_gid);
		fprintf(out, ", to %s, mtu %u, qp ", gid, pair->mtu);
		print_qps(pair, out);
		fprintf(out, ", connected %u times, broken %u",
			pair->connects, pair->breaks);
	}
	if (*pair->introduced)
		fprintf(out, ", in the store as %s", pair->introduced);
	if (pair->error)
		fprintf(out, "; first error: %s: %s (%" PRIu64 " s ago%s)",
			sf_rdma_stage_name(pair->stage), pair->text,
			(now_ms - pair->error_ms) / 1000,
			pair->healed ? ", works again" : "");
	fputc('\n', out);
}

static void print_devices(const struct sf_rdma *rdma, FILE *out)
{
	for (unsigned int i = 0; i < rdma->nr_devs; i++) {
		const struct sf_rdma_dev *dev = &rdma->devs[i];

		fprintf(out, "device %s: port %u %s, node %d, %u endpoints\n",
			dev->ctx->dev.name, dev->ctx->dev.port,
			atomic_load(&dev->ctx->fatal) ? "gone" :
			sf_rdma_dev_is_usable(dev) ? "up" : "down",
			dev->ctx->dev.node, atomic_load(&dev->nr_endpoints));
	}
}

void sf_rdma_peer_status(void *peer, FILE *out)
{
	struct sf_rdma_peer *p = peer;
	struct sf_rdma_job *job;
	unsigned int queued = 0;

	pthread_mutex_lock(&p->lock);
	fprintf(out, "rdma: %s as %s, handshake at %s port %u\n", p->server,
		p->own_name, p->seg->rpc_host, p->seg->rpc_port);
	print_devices(p->rdma, out);
	TAILQ_FOREACH(job, &p->queue, link)
		queued++;
	TAILQ_FOREACH(job, &p->parked, link)
		queued++;
	fprintf(out, "queued: %u\nredriven: %" PRIu64 "\n", queued,
		p->redrives);
	for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++)
		if (p->pairs[i] && (p->pairs[i]->connects ||
				    p->pairs[i]->error || p->pairs[i]->wanted))
			print_pair(p, p->pairs[i], out);
	pthread_mutex_unlock(&p->lock);
}

static bool has_failed(const struct sf_rdma_pair *pair)
{
	return pair->error && !pair->healed;
}

/* Of two that were tried: the one that works, or failed first. */
static bool says_more(const struct sf_rdma_pair *a,
		      const struct sf_rdma_pair *b)
{
	if (!b || has_failed(a) != has_failed(b))
		return !b || !has_failed(a);
	return has_failed(a) && a->error_ms < b->error_ms;
}

static void fail_at(struct sf_peer_way *out, enum sf_rdma_stage stage,
		    const char *text)
{
	out->failed = sf_rdma_stage_name(stage);
	snprintf(out->text, sizeof(out->text), "%s", text);
}

static void describe(const struct sf_rdma_pair *pair, struct sf_peer_way *out)
{
	int len = snprintf(out->via, sizeof(out->via), "%s -> %.100s@%.64s",
			   pair->dev->ctx->dev.name, pair->peer->server,
			   pair->remote);

	if (pair->connects)
		snprintf(out->via + len, sizeof(out->via) - (size_t)len,
			 ", gid index %" PRIu32 " (%s), mtu %u, %u queue pairs",
			 pair->gid.index, sf_rdma_gid_kind_name(pair->gid.kind),
			 pair->mtu, pair->nr_qps);
	out->failed = NULL;
	out->text[0] = '\0';
	if (has_failed(pair))
		fail_at(out, pair->stage, pair->text);
}

int sf_rdma_peer_way(void *peer, struct sf_peer_way *out)
{
	const struct sf_rdma_pair *best = NULL, *pair;
	struct sf_rdma_peer *p = peer;

	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < sf_rdma_peer_nr_pairs(p); i++) {
		pair = p->pairs[i];
		if (pair && (pair->connects || pair->error) &&
		    says_more(pair, best))
			best = pair;
	}
	pair = best;
	if (!pair && p->connect)
		pair = p->connect->pair;
	if (pair)
		describe(pair, out);
	if (pair && !best)
		fail_at(out, atomic_load(&p->connect->at), "not done in time");
	pthread_mutex_unlock(&p->lock);
	return pair ? 0 : -ENOENT;
}
