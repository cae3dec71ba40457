/* SPDX-License-Identifier: MIT */
/*
 * A peer of the TCP initiator as an object: its making and unmaking, and the
 * frame in which any thread works on it (see peer.h).
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

int sf_tcp_peer_new(struct sf_tcp_peer **out, struct sf_tcp *tcp,
		    struct sf_segment *seg)
{
	unsigned int nr = tcp->config.tcp_lanes, first, i;
	struct sf_tcp_peer *p;

	nr = nr < 1 ? 1 : nr > SF_TCP_LANES_MAX ? SF_TCP_LANES_MAX : nr;
	p = calloc(1, sizeof(*p) + nr * sizeof(p->lanes[0]));
	if (!p)
		return -ENOMEM;
	p->tcp = tcp;
	p->seg = sf_segment_get(seg);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->left, NULL);
	TAILQ_INIT(&p->waiting);
	STAILQ_INIT(&p->done);
	STAILQ_INIT(&p->free);
	p->nr_lanes = nr;
	/* Neighbours share a loop: the parts of a split request then come in
	 * on one thread, and wake one. */
	first = atomic_fetch_add(&tcp->next_loop, (nr + 1) / 2);
	for (i = 0; i < nr; i++)
		sf_tcp_lane_init(&p->lanes[i], p, i,
				 tcp->loops[(first + i / 2) % tcp->nr_loops]);
	*out = p;
	return 0;
}

void sf_tcp_peer_free(struct sf_tcp_peer *p)
{
	struct sf_tcp_job *job;

	while ((job = STAILQ_FIRST(&p->free))) {
		STAILQ_REMOVE_HEAD(&p->free, link);
		free(job);
	}
	pthread_cond_destroy(&p->left);
	pthread_mutex_destroy(&p->lock);
	sf_segment_put(p->seg);
	free(p);
}

void sf_tcp_peer_enter(struct sf_tcp_peer *p)
{
	pthread_mutex_lock(&p->lock);
	p->users++;
}

void sf_tcp_peer_deliver(struct sf_tcp_peer *p)
{
	struct sf_tcp_jobs mine = STAILQ_HEAD_INITIALIZER(mine);
	struct sf_tcp_job *job;

	if (STAILQ_EMPTY(&p->done))
		return;
	STAILQ_CONCAT(&mine, &p->done);
	pthread_mutex_unlock(&p->lock);
	STAILQ_FOREACH(job, &mine, link) {
		struct sf_io *io = job->io;
		int res = job->res;

		if (job->may_pipe)
			res = sf_tcp_job_settle_pipes(p->tcp, job);
		/* IO may be gone, or on its way again, when this returns. */
		io->done(io, res);
	}
	pthread_mutex_lock(&p->lock);
	STAILQ_CONCAT(&mine, &p->free);
	STAILQ_CONCAT(&p->free, &mine);
}

void sf_tcp_peer_leave(struct sf_tcp_peer *p)
{
	unsigned int i;

	for (;;) {
		if (!STAILQ_EMPTY(&p->done)) {
			sf_tcp_peer_deliver(p);
		} else if (p->kick) {
			i = (unsigned int)__builtin_ctzll(p->kick);
			p->kick &= p->kick - 1;
			sf_tcp_lane_send(&p->lanes[i]);
		} else {
			break;
		}
	}
	if (--p->users == 0 && p->closing)
		pthread_cond_broadcast(&p->left);
	pthread_mutex_unlock(&p->lock);
}

void sf_tcp_peer_note(struct sf_tcp_peer *p, const char *fmt, ...)
{
	va_list ap;
	char *c;

	va_start(ap, fmt);
	vsnprintf(p->last_error, sizeof(p->last_error), fmt, ap);
	va_end(ap);
	for (c = p->last_error; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	p->last_error_ms = sf_now_ms();
}
