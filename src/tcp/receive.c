/* SPDX-License-Identifier: MIT */
/*
 * The receiving half of a lane, on the lane's loop only. Answers come in the
 * order of the requests, straight to where they belong: one readv() takes
 * statuses and payloads of several small ones. A large read may be spliced from
 * the socket into a pipe instead (piped.c).
 *
 * The socket is edge-triggered: a call that brought less than it asked for has
 * emptied it, and whatever comes later makes a new event. Raising SO_RCVLOWAT
 * for large answers was considered: half a MiB took 1.04 wake-ups without.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "topology.h"

#define PLAN_PARTS 16
#define PLAN_IOV (2 * PLAN_PARTS + 1)
/* One call takes this much payload of requests behind the first, and one event
 * so much in all before other lanes get their turn. */
#define PLAN_BYTES (256u << 10)
#define TURN_BYTES (4u << 20)

struct plan {
	struct iovec iov[PLAN_IOV];
	unsigned int nr_iov;
	unsigned int nr_parts;
	uint64_t asked;
	bool more;		/* than asked for is outstanding */
	struct sf_tcp_part *splice;	/* into its pipe, instead of iov */
	uint8_t beyond;		/* the byte after all that is due */
};

static void add(struct plan *plan, void *mem, uint64_t len)
{
	plan->iov[plan->nr_iov].iov_base = mem;
	plan->iov[plan->nr_iov].iov_len = len;
	plan->nr_iov++;
	plan->asked += len;
}

static void *payload_mem(struct sf_tcp_part *part)
{
	if (part->job->io->op == SF_WRITE)
		return &part->proof_byte;
	return (char *)part->job->io->mem + part->off;
}

/* False: no other part's answer may be asked for in the same call. */
static bool add_part(struct plan *plan, struct sf_tcp_part *part)
{
	uint64_t got = part->got;

	if (part->until_eof)
		return false;
	if (got < part->status_len) {
		add(plan, part->status + got, part->status_len - got);
		got = part->status_len;
	}
	if (got == part->to_get)
		return true;
	if (part->job->may_pipe && !part->no_pipe) {
		if (plan->nr_iov)
			plan->more = true;
		else
			plan->splice = part;
		return false;
	}
	got -= part->status_len;
	add(plan, (char *)payload_mem(part) + got,
	    part->to_get - part->status_len - got);
	return true;
}

static void make_plan(struct plan *plan, struct sf_tcp_lane *lane)
{
	struct sf_tcp_part *part;

	plan->nr_iov = 0;
	plan->nr_parts = 0;
	plan->asked = 0;
	plan->more = false;
	plan->splice = NULL;
	TAILQ_FOREACH(part, &lane->parts, link) {
		if (sf_tcp_part_is_untouched(part))
			break;
		if (plan->nr_parts == PLAN_PARTS ||
		    plan->asked >= PLAN_BYTES) {
			plan->more = true;
			break;
		}
		plan->nr_parts++;
		if (!add_part(plan, part))
			break;
	}
	if (plan->splice) {
		part = TAILQ_NEXT(part, link);
		plan->more = part && !sf_tcp_part_is_untouched(part);
		plan->asked = plan->splice->to_get - plan->splice->got;
	}
	/* What is due is all there should be. Bytes beyond it would be taken
	 * for the next answer: see to it that one of them is noticed. */
	if (!plan->more && !plan->splice)
		add(plan, &plan->beyond, 1);
}

static ssize_t receive_plan(struct sf_tcp_lane *lane, struct plan *plan)
{
	ssize_t n;

	if (plan->splice)
		return sf_tcp_part_splice(lane, plan->splice);
	n = readv(lane->fd, plan->iov, (int)plan->nr_iov);
	return n < 0 ? -errno : n;
}

static int check_status(struct sf_tcp_peer *p, const struct sf_tcp_part *part)
{
	uint32_t code = SF_TCP_OK;

	if (sf_tcp_status_decode(part->status, &code) < 0) {
		sf_tcp_peer_note(p, "peer does not answer as version 2 does");
		return -EPROTO;
	}
	if (code == SF_TCP_OK)
		return 0;
	if (code == SF_TCP_REJECTED) {
		sf_tcp_peer_note(p, "peer refused the range");
		return -EREMOTEIO;
	}
	sf_tcp_peer_note(p, "peer answered with unknown status %u", code);
	return -EPROTO;
}

/* False: the lane is dying. */
static bool part_is_answered(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	struct sf_tcp_peer *p = lane->peer;
	bool lone = part->lone;

	if (part->sent < part->to_send && !part->in_batch) {
		sf_tcp_peer_note(p, "peer answered a write it had not been "
				    "sent");
		part->fail = -EPROTO;
		sf_tcp_lane_break(lane, false);
		return false;
	}
	/* A v1 write's answer is that of the read behind it. */
	lane->answered += part->job->io->op == SF_WRITE && !p->v2 ? 2 : 1;
	lane->last_len = part->len;
	p->persistent |= lane->answered > 1;
	sf_tcp_lane_remove(lane, part);
	if (part->in_batch)
		part->state = SF_TCP_PART_ANSWERED;
	else
		sf_tcp_part_finish(p, part, 0);
	if (lone)
		sf_tcp_lane_break(lane, true);
	return !lone;
}

/* The byte beyond the plan is the first of PART's answer: PART was sent while
 * the call was under way. */
static void take_beyond(struct sf_tcp_part *part, const struct plan *plan)
{
	if (part->status_len) {
		part->status[0] = plan->beyond;
		return;
	}
	*(uint8_t *)payload_mem(part) = plan->beyond;
	part->no_pipe = true;
}

/* N bytes came, as planned. False: the lane is dying. */
static bool absorb(struct sf_tcp_lane *lane, const struct plan *plan,
		   uint64_t n)
{
	unsigned int i = 0;
	struct sf_tcp_part *part;

	while ((part = TAILQ_FIRST(&lane->parts)) &&
	       !sf_tcp_part_is_untouched(part) && !part->until_eof) {
		uint64_t had = part->got, take = part->to_get - had;

		if (take > n)
			take = n;
		if (i++ >= plan->nr_parts && take)
			take_beyond(part, plan);
		part->got += take;
		n -= take;
		if (had < part->status_len && part->got >= part->status_len) {
			part->fail = check_status(lane->peer, part);
			if (part->fail) {
				sf_tcp_lane_break(lane, false);
				return false;
			}
		}
		if (part->got < part->to_get)
			return true;
		if (!part_is_answered(lane, part))
			return false;
	}
	if (!n)
		return true;
	sf_tcp_peer_note(lane->peer, "peer sent bytes nobody asked for");
	if (part && part->until_eof)
		part->fail = -EPROTO;
	sf_tcp_lane_break(lane, false);
	return false;
}

/* The FIN of a server that closes after each request proves a write, if it came
 * after all our bytes (our own FIN counts as one): one that closes early leaves
 * some without acknowledgement, or resets. */
static int proof_by_fin(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	int unacked = 0;

	if (part->sent < part->to_send ||
	    ioctl(lane->fd, SIOCOUTQ, &unacked) < 0 || unacked > 1)
		return -ECONNRESET;
	if (!lane->peer->persistent)
		lane->peer->one_shot = true;
	return 0;
}

/* The peer accepted the range and then could not read its own memory: what a
 * build without GPU support does with memory of a GPU. */
static int broke_in_body(struct sf_tcp_peer *p, const struct sf_tcp_part *part)
{
	const char *location = part->job->io->buffer->location;
	const struct sf_tcp_part *next = TAILQ_NEXT(part, link);

	/* It may have been the fault of one behind it. */
	if (next && !sf_tcp_part_is_untouched(next))
		return 0;
	if (part->status_len &&
	    sf_location_parse(location).kind == SF_LOCATION_ACCEL) {
		sf_tcp_peer_note(p, "peer closed after OK; buffer is in %s",
				 location);
		return -EIO;
	}
	sf_tcp_peer_note(p, "connection broke in the middle of an answer");
	return -ECONNRESET;
}

/* PART was asked, no byte of an answer came. 0: ask again. FORGIVING is set
 * when this is what such a server does. */
static int broke_before_answer(struct sf_tcp_lane *lane,
			       struct sf_tcp_part *part, bool *forgiving)
{
	struct sf_tcp_peer *p = lane->peer;
	bool unproven = !p->v2 && !p->persistent && !part->lone;

	if (unproven && lane->answered == 1) {
		p->one_shot = true;
		*forgiving = true;
		return 0;
	}
	if (unproven && part->job->io->op == SF_WRITE) {
		/* Perhaps it took the write and closed before the proof. */
		part->lone = true;
		*forgiving = true;
		return 0;
	}
	/* On a connection that has worked the peer may just have tired of it;
	 * one that never worked gets a second chance, no more. */
	if (!part->lone && (lane->answered || !part->redrives))
		return 0;
	sf_tcp_peer_note(p, "connection closed before an answer");
	return -ECONNRESET;
}

static void lane_broke(struct sf_tcp_lane *lane, int err)
{
	struct sf_tcp_part *part = TAILQ_FIRST(&lane->parts);
	struct sf_tcp_peer *p = lane->peer;
	bool forgiving = false;

	p->reconnects++;
	if (!part || sf_tcp_part_is_untouched(part)) {
		forgiving = lane->answered;
	} else if (part->until_eof && !err &&
		   !(part->fail = proof_by_fin(lane, part))) {
		sf_tcp_lane_remove(lane, part);
		sf_tcp_part_finish(p, part, 0);
		p->reconnects--;
		forgiving = true;
	} else if (part->got >= part->status_len && part->got) {
		part->fail = broke_in_body(p, part);
	} else if (part->got) {
		sf_tcp_peer_note(p, "connection broke inside a status");
		part->fail = -ECONNRESET;
	} else {
		part->fail = broke_before_answer(lane, part, &forgiving);
	}
	if (!lane->answered && !forgiving)
		sf_tcp_peer_no_extra(p);
	sf_tcp_lane_break(lane, forgiving);
}

/* One call and what follows from it. True: there may be more. */
static bool receive_once(struct sf_tcp_lane *lane, struct plan *plan,
			 uint64_t *turn, bool drain)
{
	struct sf_tcp_peer *p = lane->peer;
	ssize_t n;

	pthread_mutex_unlock(&p->lock);
	n = receive_plan(lane, plan);
	pthread_mutex_lock(&p->lock);
	if (lane->dying)
		return false;
	if (n == SF_TCP_NO_PIPE || n == -EINTR)
		return true;
	if (n == -EAGAIN && !lane->mute)
		return false;
	if (n <= 0) {
		lane_broke(lane, (int)n);
		return false;
	}
	*turn += (uint64_t)n;
	if (!absorb(lane, plan, (uint64_t)n))
		return false;
	if (drain)
		return true;
	/* A splice that stops short may just have filled the pipe; one that
	 * does not has not seen what is beyond, and what has come already
	 * makes no event. */
	return plan->splice || (uint64_t)n == plan->asked;
}

void sf_tcp_lane_receive(struct sf_tcp_lane *lane, uint32_t events)
{
	bool drain = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) || lane->mute;
	struct sf_tcp_peer *p = lane->peer;
	struct plan plan;
	uint64_t turn = 0;

	lane->receiving = true;
	do {
		make_plan(&plan, lane);
		if (turn > TURN_BYTES) {
			sf_tcp_loop_again(lane->loop, lane->fd, &lane->source);
			break;
		}
		if (!receive_once(lane, &plan, &turn, drain))
			break;
		sf_tcp_peer_deliver(p);
	} while (!lane->dying);
	sf_tcp_peer_deliver(p);
	lane->receiving = false;
	sf_tcp_lane_settle(lane);
	if (p->nr_waiting)
		sf_tcp_peer_pump(p);
}
