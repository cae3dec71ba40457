/* SPDX-License-Identifier: MIT */
/*
 * Jobs: which list one is in, when it starts again, and how it ends (see
 * initiator.h). The peer's lock is held by all callers.
 */
#include "config.h"
#include "rdma/initiator.h"

#include <errno.h>
#include <stdlib.h>

#define REDRIVES_MAX 6		/* after failures of connections */
#define RESTARTS_MAX 1000	/* after what we did to them ourselves */

static void leave_list(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	if (job->state == SF_RDMA_JOB_QUEUED)
		TAILQ_REMOVE(&p->queue, job, link);
	else if (job->state == SF_RDMA_JOB_PARKED)
		TAILQ_REMOVE(&p->parked, job, link);
	job->state = SF_RDMA_JOB_FLYING;
}

struct sf_rdma_job *sf_rdma_job_new(struct sf_rdma_peer *p, struct sf_io *io)
{
	struct sf_rdma_job *job = STAILQ_FIRST(&p->free);

	if (job)
		STAILQ_REMOVE_HEAD(&p->free, done_link);
	else
		job = malloc(sizeof(*job));
	if (!job)
		return NULL;
	*job = (struct sf_rdma_job){
		.io = io,
		.state = SF_RDMA_JOB_FLYING,
		.turn = p->turn++,
	};
	io->priv = job;
	return job;
}

void sf_rdma_job_queue(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	leave_list(p, job);
	job->state = SF_RDMA_JOB_QUEUED;
	TAILQ_INSERT_TAIL(&p->queue, job, link);
	p->queue_moved = true;
}

void sf_rdma_job_park(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	leave_list(p, job);
	job->state = SF_RDMA_JOB_PARKED;
	TAILQ_INSERT_TAIL(&p->parked, job, link);
}

void sf_rdma_job_fly(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	leave_list(p, job);
}

void sf_rdma_job_unpark_all(struct sf_rdma_peer *p)
{
	struct sf_rdma_job *job;

	while ((job = TAILQ_FIRST(&p->parked)))
		sf_rdma_job_queue(p, job);
}

static void finish(struct sf_rdma_peer *p, struct sf_rdma_job *job, int res)
{
	leave_list(p, job);
	job->io->priv = NULL;
	job->res = res;
	STAILQ_INSERT_TAIL(&p->done, job, done_link);
}

/* Some of it was lost; nothing is out any more. */
static void start_again(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	if (job->blamed)
		job->redrives++;
	if (job->redrives > REDRIVES_MAX || ++job->restarts > RESTARTS_MAX) {
		finish(p, job, -ECONNRESET);
		return;
	}
	p->redrives++;
	job->lost = job->blamed = false;
	job->next = 0;
	sf_rdma_job_queue(p, job);
}

void sf_rdma_job_settle(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	if (job->lost || job->res || job->cancelled)
		leave_list(p, job);	/* no more of it is sent */
	if (job->out)
		return;
	if (!job->lost && job->next == job->io->len)
		finish(p, job, 0);
	else if (job->cancelled)
		finish(p, job, -ECANCELED);
	else if (job->res)
		finish(p, job, job->res);
	else if (job->lost)
		start_again(p, job);
}

void sf_rdma_job_cancel(struct sf_rdma_peer *p, struct sf_rdma_job *job)
{
	struct sf_rdma_endpoint *ep;

	job->cancelled = true;
	if (!job->out) {
		sf_rdma_job_settle(p, job);
		return;
	}
	leave_list(p, job);
	/* The only way to have a slice back before its time. */
	TAILQ_FOREACH(ep, &p->endpoints, link)
		if (!ep->draining && sf_rdma_endpoint_carries(ep, job))
			sf_rdma_endpoint_retire(ep, true);
}
