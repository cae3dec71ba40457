/* SPDX-License-Identifier: MIT */
/*
 * Which lane takes which request, when a large one is cut into parts for
 * several lanes, and when another lane is opened. Also what is done while the
 * peer cannot be reached: requests that would need a new connection fail at
 * once, with the error of the last attempt, until it is time for the next.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <string.h>

#include "clock.h"

#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 2000
#define NO_EXTRA_MS 1000

/* Version 1 tells nothing about a server that closes after each request, and
 * what is pipelined behind the first may cost its answer (the server resets the
 * connection): one at a time until it has been seen to answer two. */
static bool one_at_a_time(const struct sf_tcp_peer *p)
{
	return !p->v2 && !p->persistent;
}

static bool takes(const struct sf_tcp_lane *lane,
		  const struct sf_tcp_part *part)
{
	const struct sf_tcp_peer *p = lane->peer;

	if (lane->state != SF_TCP_LANE_OPEN || lane->dying || lane->mute ||
	    lane->lone)
		return false;
	if (lane->nr_suspects || (part->redrives && lane->load))
		return false;
	if (p->v2)
		return true;
	if (p->one_shot || part->lone)
		return lane->nr_taken == 0;
	return p->persistent || TAILQ_EMPTY(&lane->parts);
}

/* The least loaded; the first of several idle ones, so that the same few stay
 * warm. */
static struct sf_tcp_lane *pick(struct sf_tcp_peer *p,
				const struct sf_tcp_part *part)
{
	struct sf_tcp_lane *best = NULL, *lane;
	unsigned int i;

	for (i = 0; i < p->nr_lanes; i++) {
		lane = &p->lanes[i];
		if (!takes(lane, part))
			continue;
		if (!best || lane->load < best->load)
			best = lane;
		if (!best->load)
			break;
	}
	return best;
}

bool sf_tcp_peer_is_idle(const struct sf_tcp_peer *p)
{
	unsigned int i;

	for (i = 0; i < p->nr_lanes; i++)
		if (p->lanes[i].load)
			return false;
	return true;
}

/* In how many parts JOB should travel, given enough idle lanes: more than two
 * only pay where there are processors to receive them. A write gains by having
 * its halves received at the same time, which writes beside each other do
 * anyway: then the second answer only costs (a sixth of the daemon's CPU). */
static unsigned int ways_for(const struct sf_tcp_peer *p,
			     const struct sf_tcp_job *job)
{
	size_t split = p->tcp->config.tcp_split;
	unsigned int most = p->tcp->nr_loops > 2 ? p->tcp->nr_loops : 2;
	size_t ways;

	if (!split || job->io->len / split < 2 || one_at_a_time(p) ||
	    (job->io->op == SF_WRITE && !sf_tcp_peer_is_idle(p)))
		return 1;
	ways = job->io->len / split;
	if (most > SF_IO_PIPES_MAX)
		most = SF_IO_PIPES_MAX;
	if (most > p->nr_lanes)
		most = p->nr_lanes;
	return ways < most ? (unsigned int)ways : most;
}

static unsigned int idle_lanes(struct sf_tcp_peer *p,
			       const struct sf_tcp_part *part,
			       struct sf_tcp_lane *idle[SF_IO_PIPES_MAX],
			       unsigned int max)
{
	unsigned int i, n = 0;

	for (i = 0; i < p->nr_lanes && n < max; i++)
		if (takes(&p->lanes[i], part) && !p->lanes[i].load)
			idle[n++] = &p->lanes[i];
	return n;
}

/* Cut JOB, so far one part, in WAYS pieces of whole pages. */
static void cut(struct sf_tcp_peer *p, struct sf_tcp_job *job,
		unsigned int ways)
{
	uint32_t len = job->io->len, piece = len / ways, off;
	unsigned int i;

	piece -= piece % 4096 && piece > 4096 ? piece % 4096 : 0;
	job->parts[0].len = piece;
	for (i = 1, off = piece; i < ways; i++, off += piece)
		sf_tcp_job_add(p, job, off, i == ways - 1 ? len - off : piece);
	if (piece < p->tcp->config.tcp_splice)
		job->may_pipe = false;
}

static struct sf_tcp_lane *free_lane(struct sf_tcp_peer *p)
{
	unsigned int i;

	if (!p->nr_state[SF_TCP_LANE_FREE])
		return NULL;
	for (i = 0; i < p->nr_lanes; i++)
		if (p->lanes[i].state == SF_TCP_LANE_FREE)
			return &p->lanes[i];
	return NULL;
}

static int open_lane(struct sf_tcp_peer *p)
{
	struct sf_tcp_lane *lane = free_lane(p);

	if (!lane)
		return -EAGAIN;
	if (p->connect_error && sf_now_ms() < p->retry_ms)
		return p->connect_error;
	return sf_tcp_lane_connect(lane);
}

/* See to it that WANT lanes more than those that are open are coming. */
static int open_lanes(struct sf_tcp_peer *p, unsigned int want)
{
	unsigned int coming = p->nr_state[SF_TCP_LANE_CONNECTING];
	int ret = 0;

	while (coming < want && !p->lookup && !ret) {
		ret = open_lane(p);
		if (!ret)
			coming++;
	}
	return ret;
}

/* Lanes that would be good to have beyond those that do. */
static void open_extra(struct sf_tcp_peer *p, unsigned int want)
{
	int ret;

	if (!p->nr_state[SF_TCP_LANE_FREE] || sf_now_ms() < p->extra_ms)
		return;
	ret = open_lanes(p, want);
	if (ret && ret != -EAGAIN)
		sf_tcp_peer_unreachable(p, ret);
}

void sf_tcp_peer_no_extra(struct sf_tcp_peer *p)
{
	p->extra_ms = sf_now_ms() + NO_EXTRA_MS;
}

/* Hand the head of the queue to lanes. False: no lane takes it now. */
static bool place(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	struct sf_tcp_lane *idle[SF_IO_PIPES_MAX], *lane;
	struct sf_tcp_job *job = part->job;
	unsigned int ways, nr_idle = 0, i;
	bool busy;

	lane = pick(p, part);
	if (!lane)
		return false;
	busy = lane->load;
	TAILQ_REMOVE(&p->waiting, part, link);
	p->nr_waiting--;
	ways = job->placed ? 1 : ways_for(p, job);
	job->placed = true;
	if (ways > 1)
		nr_idle = idle_lanes(p, part, idle, ways);
	if (nr_idle > 1) {
		cut(p, job, nr_idle);
		for (i = 0; i < nr_idle; i++)
			sf_tcp_lane_append(idle[i], &job->parts[i]);
	} else {
		sf_tcp_lane_append(lane, part);
	}
	if (ways > 1 && nr_idle < ways)
		open_extra(p, ways - (nr_idle ? nr_idle : 1));
	else if (busy)
		open_extra(p, 1);
	return true;
}

/* A lane that has been used is of no use to a request that needs a fresh one
 * when it stands in the way of opening it. */
static void make_room(struct sf_tcp_peer *p)
{
	const struct sf_tcp_part *part = TAILQ_FIRST(&p->waiting);
	unsigned int i;

	if (!part || !(p->one_shot || part->lone) || free_lane(p))
		return;
	for (i = 0; i < p->nr_lanes; i++) {
		struct sf_tcp_lane *lane = &p->lanes[i];

		if (lane->state == SF_TCP_LANE_OPEN && !lane->dying &&
		    lane->nr_taken && TAILQ_EMPTY(&lane->parts)) {
			sf_tcp_lane_break(lane, true);
			return;
		}
	}
}

/* The job has failed by another of its parts. */
static bool drop_useless(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	if (!part->job->res)
		return false;
	TAILQ_REMOVE(&p->waiting, part, link);
	p->nr_waiting--;
	sf_tcp_part_finish(p, part, part->job->res);
	return true;
}

void sf_tcp_peer_pump(struct sf_tcp_peer *p)
{
	struct sf_tcp_part *part;
	int ret;

	if (p->closing)
		return;
	while ((part = TAILQ_FIRST(&p->waiting)))
		if (!drop_useless(p, part) && !place(p, part))
			break;
	if (!p->nr_waiting)
		return;
	make_room(p);
	ret = open_lanes(p, one_at_a_time(p) ? p->nr_waiting : 1);
	if (ret && ret != -EAGAIN)
		sf_tcp_peer_unreachable(p, ret);
}

void sf_tcp_peer_queue(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	part->state = SF_TCP_PART_WAITING;
	TAILQ_INSERT_TAIL(&p->waiting, part, link);
	p->nr_waiting++;
	sf_tcp_peer_pump(p);
}

void sf_tcp_peer_fail_waiting(struct sf_tcp_peer *p, int res)
{
	struct sf_tcp_part *part;

	while ((part = TAILQ_FIRST(&p->waiting))) {
		TAILQ_REMOVE(&p->waiting, part, link);
		p->nr_waiting--;
		sf_tcp_part_finish(p, part, res);
	}
}

void sf_tcp_peer_reachable(struct sf_tcp_peer *p)
{
	p->connect_error = 0;
	p->backoff_ms = 0;
	sf_tcp_peer_pump(p);
}

/* A refusal costs one round trip to find out, so the next attempt may come
 * soon and a server that comes up is found at once; silence costs the time-out
 * each time, so attempts get rarer. */
void sf_tcp_peer_unreachable(struct sf_tcp_peer *p, int error)
{
	uint64_t now = sf_now_ms();

	if (!p->connect_error || now >= p->retry_ms) {
		p->backoff_ms = error == -ECONNREFUSED ? 0 : 2 * p->backoff_ms;
		if (p->backoff_ms < BACKOFF_MIN_MS)
			p->backoff_ms = BACKOFF_MIN_MS;
		if (p->backoff_ms > BACKOFF_MAX_MS)
			p->backoff_ms = BACKOFF_MAX_MS;
		p->retry_ms = now + p->backoff_ms;
	}
	p->connect_error = error;
	/* Lanes there are, or that may yet come, will do. */
	if (p->nr_state[SF_TCP_LANE_FREE] == p->nr_lanes && !p->lookup)
		sf_tcp_peer_fail_waiting(p, error);
}
