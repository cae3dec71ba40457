/* SPDX-License-Identifier: MIT */
/*
 * The initiator of Mooncake's TCP transport (protocol section 8) as a backend
 * of transport.h: what the gate may ask of it. The work is done in place.c
 * (which connection), send.c and receive.c (the bytes), connect.c and lane.c
 * (connections); peer.h has the picture.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "err.h"
#include "tcp/lookup.h"

#define LOOPS_MAX 64
#define CONNECT_TIMEOUT_MS 5000	/* unless told */

static unsigned int nr_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	return (unsigned int)CPU_COUNT(&set);
}

static void tcp_close(void *priv)
{
	struct sf_tcp *tcp = priv;
	unsigned int i;

	for (i = 0; i < tcp->nr_loops; i++)
		sf_tcp_loop_free(tcp->loops[i]);
	sf_tcp_lookups_free(tcp->lookups);
	free(tcp->loops);
	free(tcp);
}

static int start_loops(struct sf_tcp *tcp)
{
	unsigned int want = tcp->config.threads ? tcp->config.threads
						: nr_cpus();
	char name[16];
	int ret;

	if (want > LOOPS_MAX)
		want = LOOPS_MAX;
	tcp->loops = calloc(want, sizeof(tcp->loops[0]));
	if (!tcp->loops)
		return -ENOMEM;
	for (; tcp->nr_loops < want; tcp->nr_loops++) {
		snprintf(name, sizeof(name), "sf-tcp-%u", tcp->nr_loops);
		ret = sf_tcp_loop_new(&tcp->loops[tcp->nr_loops], name);
		if (ret)
			return ret;
	}
	return 0;
}

static int tcp_open(void **priv, const struct sf_transport_config *config,
		    struct sf_err *err)
{
	struct sf_tcp *tcp = calloc(1, sizeof(*tcp));
	int ret;

	if (!tcp)
		return sf_err_set(err, -ENOMEM, "tcp: out of memory");
	tcp->config = *config;
	if (!tcp->config.connect_timeout_ms)
		tcp->config.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	ret = sf_tcp_lookups_new(&tcp->lookups);
	if (!ret)
		ret = start_loops(tcp);
	if (ret) {
		tcp_close(tcp);
		return sf_err_set(err, ret, "tcp: cannot start threads: %s",
				  strerror(-ret));
	}
	*priv = tcp;
	return 0;
}

static void set_version(struct sf_tcp_peer *p)
{
	p->v2 = p->seg->tcp_version >= 2 && p->tcp->config.tcp_version != 1;
}

static int tcp_peer_open(void *priv, struct sf_segment *seg, void **peer,
			 struct sf_err *err)
{
	struct sf_tcp_peer *p;
	const char *host;
	uint16_t port;
	int ret;

	if (!sf_tcp_endpoint(seg, &host, &port))
		return sf_err_set(err, -EADDRNOTAVAIL,
				  "%s: the metadata has no %s of its TCP "
				  "transport",
				  seg->name, *host ? "port" : "host");
	ret = sf_tcp_peer_new(&p, priv, seg);
	if (ret)
		return sf_err_set(err, ret, "tcp: out of memory");
	set_version(p);
	*peer = p;
	return 0;
}

static void stop_everything(struct sf_tcp_peer *p)
{
	unsigned int i;

	p->closing = true;
	sf_tcp_peer_fail_waiting(p, -ECANCELED);
	for (i = 0; i < p->nr_lanes; i++) {
		struct sf_tcp_lane *lane = &p->lanes[i];

		if (lane->state == SF_TCP_LANE_CONNECTING)
			sf_tcp_lane_connect_stop(lane);
		else if (lane->state == SF_TCP_LANE_OPEN)
			sf_tcp_lane_break(lane, true);
	}
}

static void tcp_peer_close(void *peer)
{
	struct sf_tcp_peer *p = peer;
	struct sf_tcp_lookup *lookup;
	unsigned int i;

	sf_tcp_peer_enter(p);
	stop_everything(p);
	lookup = p->lookup;
	p->lookup = NULL;
	sf_tcp_peer_leave(p);
	sf_tcp_lookup_end(lookup);

	/* Who is still in here is in a system call that does not wait, or in a
	 * completion; he buries his lane on the way out. */
	pthread_mutex_lock(&p->lock);
	while (p->users)
		pthread_cond_wait(&p->left, &p->lock);
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < p->tcp->nr_loops; i++)
		sf_tcp_loop_sync(p->tcp->loops[i]);
	sf_tcp_peer_free(p);
}

static void tcp_peer_update(void *peer, struct sf_segment *seg)
{
	struct sf_tcp_peer *p = peer;
	struct sf_segment *old;

	sf_tcp_peer_enter(p);
	old = p->seg;
	p->seg = sf_segment_get(seg);
	set_version(p);
	sf_tcp_peer_leave(p);
	sf_segment_put(old);
}

static void tcp_submit(void *peer, struct sf_io *io)
{
	struct sf_tcp_peer *p = peer;
	struct sf_tcp_job *job;

	sf_tcp_peer_enter(p);
	job = sf_tcp_job_new(p, io);
	if (job)
		sf_tcp_peer_queue(p, &job->parts[0]);
	sf_tcp_peer_leave(p);
	if (!job)
		io->done(io, -ENOMEM);
}

static void cancel_part(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	switch (part->state) {
	case SF_TCP_PART_WAITING:
		TAILQ_REMOVE(&p->waiting, part, link);
		p->nr_waiting--;
		sf_tcp_part_finish(p, part, -ECANCELED);
		break;
	case SF_TCP_PART_ON_LANE:
		/* To close the connection is the only way to be rid of an
		 * answer; one that was for this part alone goes with it. */
		if (!sf_tcp_part_is_untouched(part) || part->lone) {
			sf_tcp_lane_break(part->lane, true);
			break;
		}
		sf_tcp_lane_remove(part->lane, part);
		sf_tcp_part_finish(p, part, -ECANCELED);
		break;
	case SF_TCP_PART_ANSWERED:
	case SF_TCP_PART_DONE:
		break;
	}
}

static void tcp_cancel(void *peer, struct sf_io *io)
{
	struct sf_tcp_peer *p = peer;
	struct sf_tcp_job *job;
	unsigned int i;

	sf_tcp_peer_enter(p);
	job = io->priv;
	if (job) {
		job->cancelled = true;
		for (i = 0; i < job->nr_parts; i++)
			cancel_part(p, &job->parts[i]);
		/* It may have been what others waited for. */
		if (p->nr_waiting)
			sf_tcp_peer_pump(p);
	}
	sf_tcp_peer_leave(p);
}

static void print_lanes(struct sf_tcp_peer *p, FILE *out)
{
	unsigned int i, open = 0, busy = 0;

	for (i = 0; i < p->nr_lanes; i++) {
		if (p->lanes[i].state != SF_TCP_LANE_OPEN)
			continue;
		open++;
		busy += !TAILQ_EMPTY(&p->lanes[i].parts);
	}
	fprintf(out, "lanes: %u of %u connected, %u busy, %u queued\n", open,
		p->nr_lanes, busy, p->nr_waiting);
	fprintf(out, "reconnects: %" PRIu64 "\n", p->reconnects);
}

static void print_endpoint(struct sf_tcp_peer *p, FILE *out)
{
	const char *host = "", *v6;
	uint16_t port = 0;

	sf_tcp_endpoint(p->seg, &host, &port);
	v6 = strchr(host, ':');
	fprintf(out, "tcp: %s %s%s%s:%u%s\n", p->v2 ? "v2" : "v1",
		v6 ? "[" : "", host, v6 ? "]" : "", port,
		p->one_shot ? ", one connection a request" : "");
}

static void tcp_peer_status(void *peer, FILE *out)
{
	struct sf_tcp_peer *p = peer;

	sf_tcp_peer_enter(p);
	print_endpoint(p, out);
	print_lanes(p, out);
	if (*p->last_error)
		fprintf(out, "last error: %s (%" PRIu64 " s ago)\n",
			p->last_error,
			(sf_now_ms() - p->last_error_ms) / 1000);
	sf_tcp_peer_leave(p);
}

const struct sf_transport_ops sf_transport_tcp = {
	.name = "tcp",
	.proto = SF_PROTOCOL_TCP,
	.caps = SF_TRANSPORT_PIPES,
	.open = tcp_open,
	.close = tcp_close,
	.peer_open = tcp_peer_open,
	.peer_close = tcp_peer_close,
	.submit = tcp_submit,
	.cancel = tcp_cancel,
	.peer_update = tcp_peer_update,
	.peer_status = tcp_peer_status,
};
