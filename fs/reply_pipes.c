/* SPDX-License-Identifier: MIT */
/*
 * Answering a READ with pages that came off a socket into pipes: the reply
 * header goes into an empty pipe, the payload is moved behind it, and all of it
 * into /dev/fuse, without a copy in user space. When that pipe has too few
 * slots the payload is read out into memory and the reply is written from
 * there. Runs on the thread that received the data; all pipes are non-blocking.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "pipe.h"

struct sink {
	char *at;
	size_t left;
};

/* Everything that is in P, N bytes. */
static int drain(struct sf_pipe *p, size_t n, struct sink *to)
{
	while (n) {
		ssize_t got;

		if (n > to->left)
			return -EIO;
		got = read(p->rd, to->at, n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -EIO;
		to->at += got;
		to->left -= (size_t)got;
		n -= (size_t)got;
		p->filled -= (size_t)got;
	}
	return 0;
}

/* Move P's contents behind what OUT holds. False: no more room in it. */
static bool move(struct sf_pipe *p, struct sf_pipe *out)
{
	while (p->filled) {
		ssize_t n = splice(p->rd, NULL, out->wr, NULL, p->filled,
				   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p->filled -= (size_t)n;
		out->filled += (size_t)n;
	}
	return true;
}

static bool gather(uint64_t unique, struct sf_pipe **pipes, unsigned int nr,
		   size_t len, struct sf_pipe *out)
{
	struct sf_kernel_out header = {
		.len = (uint32_t)(sizeof(header) + len),
		.unique = unique,
	};

	out->filled = 0;
	if (write(out->wr, &header, sizeof(header)) != sizeof(header))
		return false;
	out->filled = sizeof(header);
	for (unsigned int i = 0; i < nr; i++)
		if (!move(pipes[i], out))
			return false;
	return out->filled == sizeof(header) + len;
}

/* The payload, wherever it is by now, into memory. */
static int fetch(struct sf_pipe **pipes, unsigned int nr, struct sf_pipe *out,
		 struct sink *to)
{
	char header[sizeof(struct sf_kernel_out)];
	struct sink skip = { header, sizeof(header) };
	int res = 0;

	if (out && out->filled) {
		res = drain(out, sizeof(header), &skip);
		if (!res)
			res = drain(out, out->filled, to);
	}
	for (unsigned int i = 0; i < nr && !res; i++)
		res = drain(pipes[i], pipes[i]->filled, to);
	return !res && to->left ? -EIO : res;
}

/* ENOENT: nobody waits for this reply any more. Otherwise what was in the pipe
 * is lost, and the request still has to be answered. */
static void send_pipe(struct sf_fs *fs, fuse_req_t req, struct sf_pipe *out)
{
	size_t len = out->filled;
	ssize_t n;

	do
		n = splice(out->rd, NULL, fs->fd, NULL, len, SPLICE_F_MOVE);
	while (n < 0 && errno == EINTR);
	/* After an error nobody knows what it holds: then it is not kept. */
	if (n >= 0)
		out->filled -= (size_t)n;
	if (n == (ssize_t)len || (n < 0 && errno == ENOENT))
		fuse_reply_none(req);
	else
		sf_reply_err(req, -EIO);
}

void sf_reply_pipes(struct sf_fs *fs, fuse_req_t req, uint64_t unique,
		    struct sf_pipe **pipes, unsigned int nr_pipes, size_t len,
		    void *mem)
{
	struct sf_pipe *out = sf_pipe_get(fs->config.pipes);
	struct sink to = { mem, len };

	if (out && gather(unique, pipes, nr_pipes, len, out))
		send_pipe(fs, req, out);
	else if (!fetch(pipes, nr_pipes, out, &to))
		fuse_reply_buf(req, mem, len);
	else
		sf_reply_err(req, -EIO);
	sf_pipe_put(fs->config.pipes, out);
	for (unsigned int i = 0; i < nr_pipes; i++)
		sf_pipe_put(fs->config.pipes, pipes[i]);
}
