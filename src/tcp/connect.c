/* SPDX-License-Identifier: MIT */
/*
 * How a lane comes to be: the owner's host and port, name lookup, and one
 * non-blocking connect() an address, in order, until one works or the time for
 * connecting is over. Runs on whatever thread needs a lane, then on the lane's
 * loop, on a lookup's thread, and on the timers' for time-outs.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "net.h"
#include "tcp/lookup.h"

bool sf_tcp_endpoint(const struct sf_segment *seg, const char **host,
		     uint16_t *port)
{
	*host = *seg->tcp_data_host ? seg->tcp_data_host : seg->rpc_host;
	*port = seg->tcp_data_port;
	/* Releases up to 0.3.4 do not publish it and use this one. */
	if (!*port && seg->rpc_port && seg->rpc_port < UINT16_MAX)
		*port = (uint16_t)(seg->rpc_port + 1);
	return **host && *port;
}

/* What connect() or socket() said, as a result of an I/O. */
static int io_error(int err)
{
	switch (err) {
	case ECONNREFUSED:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case ETIMEDOUT:
		return -err;
	case ECONNRESET:
		return -ECONNREFUSED;
	case ENETDOWN:
	case EAFNOSUPPORT:
		return -ENETUNREACH;
	case EMFILE:
	case ENFILE:
	case ENOBUFS:
	case ENOMEM:
		return -ENOMEM;
	default:
		return -EHOSTUNREACH;
	}
}

static void set_options(const struct sf_tcp_peer *p, int fd)
{
	unsigned int ms = p->tcp->config.timeout_ms;
	int on = 1, idle = ms >= 3000 ? (int)(ms / 3000) : 1, count = 3;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (!ms)
		return;
	/* Dead peers are noticed in about the time a request may take. */
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

static const struct sf_tcp_addr *addr_of(const struct sf_tcp_lane *lane)
{
	const struct sf_tcp_peer *p = lane->peer;

	return &p->addrs[(p->good_addr + lane->addr_tries) % p->nr_addrs];
}

static void note_failure(struct sf_tcp_lane *lane, int err)
{
	const struct sf_tcp_addr *a = addr_of(lane);
	char text[SF_NET_TEXT_MAX];

	sf_net_format(text, (const struct sockaddr *)&a->ss, a->len);
	sf_tcp_peer_note(lane->peer, "cannot connect to %s: %s", text,
			 strerror(err));
}

static void on_timer(struct sf_timer *t);

static void disarm(struct sf_tcp_lane *lane)
{
	/* A timer holds a user of the peer until it is over. */
	if (sf_timer_cancel(lane->peer->tcp->config.timers, &lane->timer))
		lane->peer->users--;
}

static int arm(struct sf_tcp_lane *lane)
{
	struct sf_tcp_peer *p = lane->peer;
	uint64_t now = sf_now_ms(), left = 0;
	unsigned int nr = p->nr_addrs - lane->addr_tries;
	int ret;

	if (lane->connect_deadline_ms > now)
		left = lane->connect_deadline_ms - now;
	lane->addr_deadline_ms = now + left / nr;
	ret = sf_timer_arm(p->tcp->config.timers, &lane->timer,
			   lane->addr_deadline_ms, on_timer);
	if (!ret)
		p->users++;
	return ret;
}

/* 0: under way. */
static int try_address(struct sf_tcp_lane *lane)
{
	const struct sf_tcp_addr *a = addr_of(lane);
	int err;

	lane->fd = socket(a->ss.ss_family,
			  SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (lane->fd < 0)
		return errno;
	set_options(lane->peer, lane->fd);
	if (connect(lane->fd, (const struct sockaddr *)&a->ss, a->len) < 0 &&
	    errno != EINPROGRESS)
		err = errno;
	else
		err = -sf_tcp_loop_add(lane->loop, lane->fd, &lane->source);
	if (!err)
		err = -arm(lane);
	if (err) {
		close(lane->fd);
		lane->fd = -1;
	}
	return err;
}

/* Try what is left of the addresses. ERR: what the last one said. */
static int try_addresses(struct sf_tcp_lane *lane, int err)
{
	struct sf_tcp_peer *p = lane->peer;

	for (; lane->addr_tries < p->nr_addrs; lane->addr_tries++) {
		err = try_address(lane);
		if (!err)
			return 0;
		note_failure(lane, err);
	}
	sf_tcp_lane_set_state(lane, SF_TCP_LANE_FREE);
	/* A name may mean another address by the next time. */
	p->nr_addrs = 0;
	return io_error(err);
}

static void address_failed(struct sf_tcp_lane *lane, int err)
{
	int ret;

	disarm(lane);
	close(lane->fd);
	lane->fd = -1;
	/* Another lane's failure may have dropped the addresses. */
	if (lane->peer->nr_addrs)
		note_failure(lane, err);
	lane->addr_tries++;
	ret = try_addresses(lane, err);
	if (ret)
		sf_tcp_peer_unreachable(lane->peer, ret);
}

static void on_timer(struct sf_timer *t)
{
	struct sf_tcp_lane *lane =
		(void *)((char *)t - offsetof(struct sf_tcp_lane, timer));
	struct sf_tcp_peer *p = lane->peer;

	sf_tcp_peer_enter(p);
	p->users--;
	/* It may have fired for an attempt that is over by now. */
	if (lane->state == SF_TCP_LANE_CONNECTING &&
	    sf_now_ms() >= lane->addr_deadline_ms)
		address_failed(lane, ETIMEDOUT);
	sf_tcp_peer_leave(p);
}

/* Connecting to a port of this host nobody listens on may, by chance, connect
 * the socket to itself. */
static bool is_self_connected(int fd, const struct sockaddr_storage *peer,
			      socklen_t peer_len)
{
	struct sockaddr_storage self;
	socklen_t len = sizeof(self);

	return getsockname(fd, (struct sockaddr *)&self, &len) == 0 &&
	       len == peer_len && memcmp(&self, peer, len) == 0;
}

/* 0, an errno, or EINPROGRESS. */
static int connect_result(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer), err_len;
	int err = 0;

	err_len = sizeof(err);
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &err_len) < 0)
		return errno;
	if (err)
		return err;
	/* An event of the descriptor's former owner says nothing. */
	memset(&peer, 0, sizeof(peer));
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return errno == ENOTCONN ? EINPROGRESS : errno;
	return is_self_connected(fd, &peer, len) ? ECONNREFUSED : 0;
}

void sf_tcp_lane_connect_event(struct sf_tcp_lane *lane)
{
	struct sf_tcp_peer *p = lane->peer;
	int err = connect_result(lane->fd);

	if (err == EINPROGRESS)
		return;
	if (err) {
		address_failed(lane, err);
		return;
	}
	disarm(lane);
	if (p->nr_addrs)
		p->good_addr = (p->good_addr + lane->addr_tries) % p->nr_addrs;
	sf_tcp_lane_set_state(lane, SF_TCP_LANE_OPEN);
	sf_tcp_peer_reachable(p);
}

void sf_tcp_lane_connect_stop(struct sf_tcp_lane *lane)
{
	disarm(lane);
	close(lane->fd);
	lane->fd = -1;
	sf_tcp_lane_set_state(lane, SF_TCP_LANE_FREE);
}

static void take_addresses(struct sf_tcp_peer *p, const struct addrinfo *list)
{
	const struct addrinfo *ai;

	p->nr_addrs = 0;
	p->good_addr = 0;
	for (ai = list; ai && p->nr_addrs < SF_TCP_ADDRS_MAX;
	     ai = ai->ai_next) {
		struct sf_tcp_addr *a = &p->addrs[p->nr_addrs];

		if (ai->ai_addrlen > sizeof(a->ss))
			continue;
		memcpy(&a->ss, ai->ai_addr, ai->ai_addrlen);
		a->len = ai->ai_addrlen;
		p->nr_addrs++;
	}
}

static void on_lookup(void *arg, struct addrinfo *list,
		      const struct sf_err *err)
{
	struct sf_tcp_peer *p = arg;

	sf_tcp_peer_enter(p);
	/* Gone when the peer is being closed, who then ends the lookup. */
	if (p->lookup) {
		sf_tcp_lookup_put(p->lookup);
		p->lookup = NULL;
		take_addresses(p, list);
		if (p->nr_addrs) {
			sf_tcp_peer_pump(p);
		} else {
			sf_tcp_peer_note(p, "%s", err->text);
			sf_tcp_peer_unreachable(p, err->code == -ENOMEM
							   ? -ENOMEM
							   : -EHOSTUNREACH);
		}
	}
	sf_tcp_peer_leave(p);
	if (list)
		freeaddrinfo(list);
}

/* 0: there are addresses, or there will be (p->lookup). */
static int find_addresses(struct sf_tcp_peer *p)
{
	struct addrinfo *list = NULL;
	struct sf_err err = { 0 };
	const char *host;
	uint16_t port;
	int ret;

	if (!sf_tcp_endpoint(p->seg, &host, &port))
		return -EHOSTUNREACH;
	if (!sf_net_is_literal(host)) {
		ret = sf_tcp_lookup_start(p->tcp->lookups, host, port,
					  on_lookup, p, &p->lookup);
		if (ret)
			sf_tcp_peer_note(p, "too many names to look up");
		return ret && ret != -ENOMEM ? -EHOSTUNREACH : ret;
	}
	ret = sf_net_resolve(host, port, &list, &err);
	if (ret) {
		sf_tcp_peer_note(p, "%s", err.text);
		return ret == -ENOMEM ? ret : -EHOSTUNREACH;
	}
	take_addresses(p, list);
	freeaddrinfo(list);
	return 0;
}

static void reset(struct sf_tcp_lane *lane)
{
	lane->dying = false;
	lane->forgiving = false;
	lane->full = false;
	lane->writable = false;
	lane->mute = false;
	lane->lone = false;
	lane->nr_taken = 0;
	lane->answered = 0;
	lane->load = 0;
	lane->nr_suspects = 0;
	lane->unsent = NULL;
	lane->addr_tries = 0;
	lane->connect_deadline_ms =
		sf_now_ms() + lane->peer->tcp->config.connect_timeout_ms;
}

int sf_tcp_lane_connect(struct sf_tcp_lane *lane)
{
	struct sf_tcp_peer *p = lane->peer;
	int ret;

	if (!p->nr_addrs) {
		ret = find_addresses(p);
		if (ret || p->lookup)
			return ret;
	}
	reset(lane);
	sf_tcp_lane_set_state(lane, SF_TCP_LANE_CONNECTING);
	return try_addresses(lane, EHOSTUNREACH);
}
