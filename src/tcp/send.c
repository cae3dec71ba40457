/* SPDX-License-Identifier: MIT */
/*
 * The sending half of a lane. Whoever finds the lane idle sends, usually the
 * thread that submitted; what the socket does not take is left to the lane's
 * loop. Never waits, and never for the receiving half: a peer may answer, or
 * refuse, before it has been sent everything.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BATCH_PARTS 16
#define BATCH_IOV (3 * BATCH_PARTS)
/* A thread that only came by to submit does not send for others for ever. */
#define ROUNDS_MAX 8

struct batch {
	struct sf_tcp_part *parts[BATCH_PARTS];
	uint64_t bytes[BATCH_PARTS];
	unsigned int nr_parts;
	struct iovec iov[BATCH_IOV];
	unsigned int nr_iov;
	uint64_t total;
};

/* Add what is unsent of LEN bytes at MEM, which begin at byte AT of PART. */
static void add_piece(struct batch *b, const struct sf_tcp_part *part,
		      uint64_t at, const void *mem, uint64_t len)
{
	uint64_t skip = part->sent > at ? part->sent - at : 0;

	if (skip >= len)
		return;
	b->iov[b->nr_iov].iov_base = (char *)(uintptr_t)mem + skip;
	b->iov[b->nr_iov].iov_len = len - skip;
	b->nr_iov++;
}

static void add_part(struct batch *b, struct sf_tcp_part *part)
{
	const struct sf_io *io = part->job->io;
	uint64_t at = SF_TCP_HEADER_LEN;

	add_piece(b, part, 0, part->head, at);
	if (io->op == SF_WRITE) {
		add_piece(b, part, at, (char *)io->mem + part->off, part->len);
		at += part->len;
	}
	if (part->to_send > at)
		add_piece(b, part, at, part->proof, part->to_send - at);
	part->in_batch = true;
	b->parts[b->nr_parts] = part;
	b->bytes[b->nr_parts] = part->to_send - part->sent;
	b->total += b->bytes[b->nr_parts];
	b->nr_parts++;
}

static void fill(struct batch *b, struct sf_tcp_lane *lane)
{
	struct sf_tcp_part *part;

	b->nr_parts = 0;
	b->nr_iov = 0;
	b->total = 0;
	for (part = lane->unsent; part && b->nr_parts < BATCH_PARTS;
	     part = TAILQ_NEXT(part, link))
		add_part(b, part);
	lane->unsent = part;
}

/* PART's sender is back. True: all of it is sent. */
static bool settle_part(struct sf_tcp_lane *lane, struct sf_tcp_part *part,
			uint64_t sent)
{
	bool all;

	part->in_batch = false;
	part->sent += sent;
	all = part->sent == part->to_send;
	if (part->state == SF_TCP_PART_ANSWERED) {
		sf_tcp_part_finish(lane->peer, part, all ? 0 : -EPROTO);
		if (!all) {
			sf_tcp_peer_note(lane->peer, "peer answered a request "
						     "it had not been sent");
			sf_tcp_lane_break(lane, false);
		}
	} else if (all && part->until_eof) {
		shutdown(lane->fd, SHUT_WR);
	}
	return all;
}

static void settle_batch(struct sf_tcp_lane *lane, struct batch *b,
			 uint64_t sent)
{
	struct sf_tcp_part *first = NULL;
	unsigned int i;

	for (i = 0; i < b->nr_parts; i++) {
		uint64_t n = sent < b->bytes[i] ? sent : b->bytes[i];
		bool on_lane = b->parts[i]->state == SF_TCP_PART_ON_LANE;

		sent -= n;
		if (!settle_part(lane, b->parts[i], n) && on_lane && !first)
			first = b->parts[i];
	}
	if (first)
		lane->unsent = first;
}

/* The peer may have said why before it closed: leave it to the receiving half
 * to find out, and see that it looks. */
static void sending_failed(struct sf_tcp_lane *lane)
{
	lane->mute = true;
	sf_tcp_loop_again(lane->loop, lane->fd, &lane->source);
}

/* One sendmsg(). True: there is more to send and room for it. */
static bool send_once(struct sf_tcp_lane *lane)
{
	struct sf_tcp_peer *p = lane->peer;
	struct msghdr msg = { 0 };
	struct batch b;
	ssize_t n;
	int err;

	fill(&b, lane);
	lane->writable = false;
	msg.msg_iov = b.iov;
	msg.msg_iovlen = b.nr_iov;
	pthread_mutex_unlock(&p->lock);
	n = sendmsg(lane->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	err = errno;
	pthread_mutex_lock(&p->lock);

	settle_batch(lane, &b, n > 0 ? (uint64_t)n : 0);
	if (lane->dying)
		return false;
	if (n < 0 && err != EAGAIN && err != EINTR && err != ENOBUFS) {
		sending_failed(lane);
		return false;
	}
	if (n >= 0 && (uint64_t)n == b.total)
		return lane->unsent;
	if (lane->writable)
		return true;
	lane->full = true;
	return false;
}

void sf_tcp_lane_send(struct sf_tcp_lane *lane)
{
	unsigned int rounds = 0;
	bool more = true;

	if (lane->state != SF_TCP_LANE_OPEN || lane->dying || lane->sending ||
	    lane->full || lane->mute || !lane->unsent)
		return;
	lane->sending = true;
	while (more && rounds++ < ROUNDS_MAX)
		more = send_once(lane);
	if (more) {
		lane->full = true;
		sf_tcp_loop_again(lane->loop, lane->fd, &lane->source);
	}
	lane->sending = false;
	sf_tcp_lane_settle(lane);
}
