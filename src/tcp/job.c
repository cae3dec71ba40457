/* SPDX-License-Identifier: MIT */
/*
 * Jobs and parts of the TCP initiator: made from a free list of the peer,
 * written as requests, finished. Knows nothing of lanes and sockets.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <stdlib.h>

#include "pipe.h"

static bool job_may_pipe(const struct sf_tcp *tcp, const struct sf_io *io)
{
	return io->may_pipe && io->op == SF_READ && tcp->config.pipes &&
	       tcp->config.tcp_splice && io->len >= tcp->config.tcp_splice;
}

struct sf_tcp_job *sf_tcp_job_new(struct sf_tcp_peer *p, struct sf_io *io)
{
	struct sf_tcp_job *job = STAILQ_FIRST(&p->free);

	if (job)
		STAILQ_REMOVE_HEAD(&p->free, link);
	else
		job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	job->io = io;
	job->res = 0;
	job->cancelled = false;
	job->placed = false;
	job->may_pipe = job_may_pipe(p->tcp, io);
	job->nr_parts = 0;
	job->left = 0;
	io->nr_pipes = 0;
	io->data = io->mem;
	io->priv = job;
	sf_tcp_job_add(p, job, 0, io->len);
	return job;
}

struct sf_tcp_part *sf_tcp_job_add(struct sf_tcp_peer *p,
				   struct sf_tcp_job *job, uint32_t off,
				   uint32_t len)
{
	struct sf_tcp_part *part = &job->parts[job->nr_parts++];

	part->job = job;
	part->off = off;
	part->len = len;
	part->redrives = 0;
	part->lone = false;
	part->pipe = NULL;
	sf_tcp_part_rewind(p, part);
	job->left++;
	return part;
}

static void write_request(uint8_t out[SF_TCP_HEADER_LEN], uint64_t addr,
			  uint64_t size, uint8_t opcode)
{
	const struct sf_tcp_request req = {
		.size = size,
		.addr = addr,
		.opcode = opcode,
	};

	sf_tcp_request_encode(out, &req);
}

static uint8_t opcode_of(const struct sf_tcp_peer *p, const struct sf_io *io)
{
	if (p->v2)
		return io->op == SF_WRITE ? SF_TCP_WRITE_V2 : SF_TCP_READ_V2;
	return io->op == SF_WRITE ? SF_TCP_WRITE_V1 : SF_TCP_READ_V1;
}

void sf_tcp_part_prepare(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	const struct sf_io *io = part->job->io;
	bool is_write = io->op == SF_WRITE;
	uint64_t addr = io->addr + part->off;

	part->lone = !p->v2 && (p->one_shot || part->lone);
	part->until_eof = part->lone && is_write;
	part->status_len = p->v2 ? SF_TCP_STATUS_LEN : 0;
	part->to_send = SF_TCP_HEADER_LEN + (is_write ? part->len : 0);
	part->to_get = part->status_len + (is_write ? 0 : part->len);
	write_request(part->head, addr, part->len, opcode_of(p, io));
	if (is_write && !p->v2 && !part->lone) {
		write_request(part->proof, addr + part->len - 1, 1,
			      SF_TCP_READ_V1);
		part->to_send += SF_TCP_HEADER_LEN;
		part->to_get = 1;
	}
}

void sf_tcp_part_rewind(struct sf_tcp_peer *p, struct sf_tcp_part *part)
{
	part->lane = NULL;
	part->fail = 0;
	part->in_batch = false;
	part->sent = 0;
	part->got = 0;
	part->no_pipe = false;
	if (part->pipe) {
		sf_pipe_put(p->tcp->config.pipes, part->pipe);
		part->pipe = NULL;
	}
}

void sf_tcp_part_finish(struct sf_tcp_peer *p, struct sf_tcp_part *part,
			int res)
{
	struct sf_tcp_job *job = part->job;

	part->state = SF_TCP_PART_DONE;
	if (res && !job->res)
		job->res = res;
	if (--job->left)
		return;
	/* From here on a cancel comes too late. */
	job->io->priv = NULL;
	STAILQ_INSERT_TAIL(&p->done, job, link);
}
