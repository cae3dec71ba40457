/* SPDX-License-Identifier: MIT */
/*
 * Payload that goes from the socket to a pipe, never through user space. A pipe
 * holds a number of pieces, however small they are as they come off the
 * network: when it is full before its part is complete, what it holds is read
 * into memory and the rest is received there. Either all parts of a job end up
 * in pipes or all in memory.
 *
 * Without the peer's lock: a part's pipe belongs to the receiving thread, then
 * to whoever delivers the job.
 */
#include "config.h"
#include "tcp/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "pipe.h"

static void put_pipe(struct sf_tcp *tcp, struct sf_tcp_part *part)
{
	sf_pipe_put(tcp->config.pipes, part->pipe);
	part->pipe = NULL;
}

static int drain_into_memory(struct sf_tcp_part *part)
{
	char *mem = (char *)part->job->io->mem + part->off;
	struct sf_pipe *pipe = part->pipe;
	ssize_t n;

	while (pipe->filled) {
		n = read(pipe->rd, mem, pipe->filled);
		if (n <= 0)
			return -EIO;
		mem += n;
		pipe->filled -= (size_t)n;
	}
	return 0;
}

static ssize_t splice_once(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	uint64_t left = part->to_get - part->got;
	ssize_t n;

	n = splice(lane->fd, NULL, part->pipe->wr, NULL, left,
		   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0)
		return -errno;
	part->pipe->filled += (size_t)n;
	return n;
}

/* EAGAIN says that the socket is empty or that the pipe is full. */
static ssize_t splice_or_full(struct sf_tcp_lane *lane,
			      struct sf_tcp_part *part)
{
	int queued = 0;
	ssize_t n;

	n = splice_once(lane, part);
	if (n != -EAGAIN || !part->pipe->filled)
		return n;
	if (ioctl(lane->fd, SIOCINQ, &queued) < 0 || queued == 0)
		return n;
	n = splice_once(lane, part);
	return n == -EAGAIN ? SF_TCP_NO_PIPE : n;
}

ssize_t sf_tcp_part_splice(struct sf_tcp_lane *lane, struct sf_tcp_part *part)
{
	struct sf_tcp *tcp = lane->peer->tcp;
	ssize_t n;
	int ret;

	if (!part->pipe) {
		part->pipe = sf_pipe_get(tcp->config.pipes);
		if (!part->pipe || part->pipe->capacity < part->len) {
			put_pipe(tcp, part);
			part->no_pipe = true;
			return SF_TCP_NO_PIPE;
		}
	}
	n = splice_or_full(lane, part);
	if (n != SF_TCP_NO_PIPE)
		return n;
	ret = drain_into_memory(part);
	put_pipe(tcp, part);
	part->no_pipe = true;
	return ret ? ret : SF_TCP_NO_PIPE;
}

static void give_pipes(struct sf_tcp_job *job)
{
	unsigned int i;

	for (i = 0; i < job->nr_parts; i++) {
		job->io->pipes[i] = job->parts[i].pipe;
		job->parts[i].pipe = NULL;
	}
	job->io->nr_pipes = job->nr_parts;
	job->io->data = NULL;
}

int sf_tcp_job_settle_pipes(struct sf_tcp *tcp, struct sf_tcp_job *job)
{
	unsigned int i, nr_pipes = 0;
	struct sf_tcp_part *part;

	for (i = 0; i < job->nr_parts; i++)
		nr_pipes += job->parts[i].pipe != NULL;
	if (nr_pipes == job->nr_parts && !job->res) {
		give_pipes(job);
		return 0;
	}
	for (i = 0; i < job->nr_parts; i++) {
		part = &job->parts[i];
		if (!part->pipe)
			continue;
		if (!job->res)
			job->res = drain_into_memory(part);
		put_pipe(tcp, part);
	}
	return job->res;
}
