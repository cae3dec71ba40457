/* SPDX-License-Identifier: MIT */
/*
 * A lane: one connection and the queue of parts on it, from the moment it is
 * open until it is buried. Requests behind the one a connection died of go to
 * another lane by themselves, a bounded number of times: READ and WRITE may be
 * repeated.
 *
 * Which one it died of is not always known: a server that refuses a request
 * and closes with others unread resets the connection, which may cost the
 * refusal and the answers before it. So what was on it is repeated one at a
 * time, where only the culprit can fail.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define REDRIVES_MAX 3
/* Answers to larger requests take longer than a loop looks out for them. */
#define EXPECT_LEN_MAX (64u << 10)

static void lane_ready(struct sf_tcp_source *s, uint32_t events)
{
	/* source is the first member */
	struct sf_tcp_lane *lane = (struct sf_tcp_lane *)s;

	sf_tcp_peer_enter(lane->peer);
	if (lane->state == SF_TCP_LANE_CONNECTING)
		sf_tcp_lane_connect_event(lane);
	if (lane->state == SF_TCP_LANE_OPEN && events & EPOLLOUT) {
		lane->writable = true;
		if (lane->full) {
			lane->full = false;
			lane->peer->kick |= UINT64_C(1) << lane->index;
		}
	}
	if (lane->state == SF_TCP_LANE_OPEN && !lane->dying &&
	    (events & ~(uint32_t)EPOLLOUT || lane->mute))
		sf_tcp_lane_receive(lane, events);
	/* Who asks one thing at a time waits for each answer. */
	if (lane->last_len && lane->last_len <= EXPECT_LEN_MAX &&
	    sf_tcp_peer_is_idle(lane->peer))
		sf_tcp_loop_expect(lane->loop);
	sf_tcp_peer_leave(lane->peer);
}

void sf_tcp_lane_init(struct sf_tcp_lane *lane, struct sf_tcp_peer *p,
		      unsigned int index, struct sf_tcp_loop *loop)
{
	lane->source.ready = lane_ready;
	lane->peer = p;
	lane->loop = loop;
	lane->index = index;
	lane->fd = -1;
	TAILQ_INIT(&lane->parts);
	p->nr_state[lane->state]++;
}

void sf_tcp_lane_set_state(struct sf_tcp_lane *lane,
			   enum sf_tcp_lane_state state)
{
	lane->peer->nr_state[lane->state]--;
	lane->peer->nr_state[state]++;
	lane->state = state;
}

/* A small request is not free either: it counts as a page and a bit. */
static uint64_t load_of(const struct sf_tcp_part *part)
{
	return part->len + 6000u;
}

void sf_tcp_lane_append(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	sf_tcp_part_prepare(lane->peer, part);
	part->lane = lane;
	part->state = SF_TCP_PART_ON_LANE;
	TAILQ_INSERT_TAIL(&lane->parts, part, link);
	if (!lane->unsent)
		lane->unsent = part;
	lane->load += load_of(part);
	lane->nr_suspects += part->redrives > 0;
	lane->lone |= part->lone;
	lane->nr_taken++;
	lane->peer->kick |= UINT64_C(1) << lane->index;
}

void sf_tcp_lane_remove(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	if (lane->unsent == part)
		lane->unsent = TAILQ_NEXT(part, link);
	TAILQ_REMOVE(&lane->parts, part, link);
	lane->load -= load_of(part);
	lane->nr_suspects -= part->redrives > 0;
}

bool sf_tcp_part_is_untouched(const struct sf_tcp_part *part)
{
	return !part->sent && !part->in_batch;
}

void sf_tcp_lane_break(struct sf_tcp_lane *lane, bool forgiving)
{
	if (lane->state != SF_TCP_LANE_OPEN || lane->dying)
		return;
	lane->dying = true;
	lane->forgiving = forgiving;
	/* Whoever is in a system call on it comes back now. */
	shutdown(lane->fd, SHUT_RDWR);
	sf_tcp_lane_settle(lane);
}

/* What becomes of a part whose connection is gone: 0, try again. */
static int verdict(const struct sf_tcp_lane *lane,
		   const struct sf_tcp_part *part)
{
	if (part->job->cancelled || lane->peer->closing)
		return -ECANCELED;
	if (part->fail)
		return part->fail;
	/* Its other parts have failed: the rest serves nobody. */
	if (part->job->res)
		return part->job->res;
	if (!lane->forgiving && part->redrives >= REDRIVES_MAX)
		return -ECONNRESET;
	return 0;
}

static void bury(struct sf_tcp_lane *lane)
{
	struct sf_tcp_peer *p = lane->peer;
	struct sf_tcp_part *part;
	int res;

	close(lane->fd);
	lane->fd = -1;
	sf_tcp_lane_set_state(lane, SF_TCP_LANE_FREE);
	p->kick &= ~(UINT64_C(1) << lane->index);
	/* From the back: each goes to the head of the waiting queue. */
	while ((part = TAILQ_LAST(&lane->parts, sf_tcp_parts))) {
		sf_tcp_lane_remove(lane, part);
		res = verdict(lane, part);
		if (res) {
			sf_tcp_part_finish(p, part, res);
			continue;
		}
		/* What was not sent yet is out of it, unless the peer takes
		 * connections and closes them. */
		if (!lane->forgiving &&
		    (!lane->answered || !sf_tcp_part_is_untouched(part)))
			part->redrives++;
		sf_tcp_part_rewind(p, part);
		part->state = SF_TCP_PART_WAITING;
		TAILQ_INSERT_HEAD(&p->waiting, part, link);
		p->nr_waiting++;
	}
	sf_tcp_peer_pump(p);
}

void sf_tcp_lane_settle(struct sf_tcp_lane *lane)
{
	if (lane->state == SF_TCP_LANE_OPEN && lane->dying && !lane->sending &&
	    !lane->receiving)
		bury(lane);
}
