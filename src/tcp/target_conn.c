/* SPDX-License-Identifier: MIT */
/*
 * One connection of the TCP target. Owns the order of things on it: requests
 * are taken from a small staging buffer, answers are gathered and sent
 * together, payload moves between the socket and the region without a copy.
 *
 * A region may be a mapping of a file that somebody truncates: touching it here
 * would be SIGBUS, so only system calls touch it (they say EFAULT).
 *
 * Runs on the thread that owns the connection; knows neither epoll nor the
 * other connections.
 */
#include "config.h"
#include "tcp/target_conn.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "range.h"

/* What take() came to a halt for. */
enum step {
	STEP_INPUT,	/* everything received has been dealt with */
	STEP_OUTPUT,	/* answers have to leave first */
	STEP_END,	/* no more requests on this connection */
};

#define FAULT_LOG_MS 10000

static void count(atomic_uint_least64_t *counter, uint64_t n)
{
	/* One writer: no need for a locked instruction. */
	atomic_store_explicit(counter,
			      atomic_load_explicit(counter,
						   memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static int memory_is_gone(struct sf_conn *c)
{
	unsigned int more;

	if (sf_ratelimit_pass(&c->shared->fault_log, FAULT_LOG_MS, &more))
		sf_log(LOG_ERR, SF_LOG_TCP,
		       "no memory behind address 0x%" PRIx64
		       " (was the file truncated?), connection closed"
		       " (and %u like it)", c->addr, more);
	return -EFAULT;
}

/* The last region that begins at ADDR or below holds ADDR, or none does. */
static const struct sf_region *find_region(const struct sf_target_shared *s,
					   uint64_t addr)
{
	size_t lo = 0, hi = s->nr_regions;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->regions[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo ? &s->regions[lo - 1] : NULL;
}

static bool allowed(const struct sf_conn *c, const struct sf_tcp_request *req)
{
	const struct sf_region *r = find_region(c->shared, req->addr);

	if (!r || !req->size || !sf_range_ok(req->addr, req->size) ||
	    !sf_range_within(req->addr, req->size, r->addr, r->length))
		return false;
	return !(r->read_only && sf_tcp_is_write(req->opcode));
}

/* ---- answers ---- */

static bool out_has_room(const struct sf_conn_out *out)
{
	return out->nr_status < SF_TARGET_ANSWERS &&
	       out->nr + 2 <= 2 * SF_TARGET_ANSWERS &&
	       out->bytes < SF_TARGET_CHUNK;
}

static void out_add(struct sf_conn_out *out, void *base, size_t len)
{
	out->iov[out->nr].iov_base = base;
	out->iov[out->nr++].iov_len = len;
	out->bytes += len;
}

static void out_status(struct sf_conn_out *out, uint32_t code)
{
	uint8_t *frame = out->status[out->nr_status++];

	sf_tcp_status_encode(frame, code);
	out_add(out, frame, SF_TCP_STATUS_LEN);
}

static void out_sent(struct sf_conn_out *out, size_t n)
{
	while (n && n >= out->iov[out->first].iov_len)
		n -= out->iov[out->first++].iov_len;
	if (n) {
		struct iovec *iov = &out->iov[out->first];

		iov->iov_base = (char *)iov->iov_base + n;
		iov->iov_len -= n;
	}
	if (out->first == out->nr) {
		out->first = out->nr = out->nr_status = 0;
		out->bytes = 0;
		out->payload = false;
	}
}

/* 0: all sent; -EAGAIN: the socket is full; other: close. */
static int flush(struct sf_conn *c, size_t *moved)
{
	struct sf_conn_out *out = &c->out;
	struct msghdr msg = { .msg_iov = out->iov + out->first };
	ssize_t n;

	if (!out->nr)
		return 0;
	msg.msg_iovlen = out->nr - out->first;
	do
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EFAULT ? memory_is_gone(c) : -errno;
	*moved += (size_t)n;
	out_sent(out, (size_t)n);
	return out->nr ? -EAGAIN : 0;
}

/* ---- requests ---- */

static size_t staged(const struct sf_conn *c)
{
	return c->stage_end - c->stage_first;
}

static void begin_read(struct sf_conn *c)
{
	count(&c->shared->counters.reads, 1);
	count(&c->shared->counters.read_bytes, c->req.size);
	if (sf_tcp_is_v2(c->req.opcode))
		out_status(&c->out, SF_TCP_OK);
	c->state = SF_CONN_READ;
}

/* A version 1 client learns of a refusal by the end of the connection, and
 * its writes best by a reset: no draining for it. */
static void refuse(struct sf_conn *c)
{
	count(&c->shared->counters.rejected, 1);
	sf_log(LOG_DEBUG, SF_LOG_TCP,
	       "refused opcode 0x%02x, %" PRIu64 " bytes at 0x%" PRIx64,
	       c->req.opcode, c->req.size, c->req.addr);
	if (!sf_tcp_opcode_known(c->req.opcode) ||
	    !sf_tcp_is_v2(c->req.opcode)) {
		c->state = SF_CONN_LAST;
		return;
	}
	out_status(&c->out, SF_TCP_REJECTED);
	c->state = SF_CONN_REFUSED;
}

static enum step take_header(struct sf_conn *c)
{
	struct sf_tcp_request req;

	if (staged(c) < SF_TCP_HEADER_LEN)
		return STEP_INPUT;
	sf_tcp_request_decode(&req, c->stage + c->stage_first);
	/* A read that came first must not see what this write brings. */
	if (!out_has_room(&c->out) ||
	    (sf_tcp_is_write(req.opcode) && c->out.payload))
		return STEP_OUTPUT;
	c->stage_first += SF_TCP_HEADER_LEN;
	c->req = req;
	c->addr = req.addr;
	c->left = req.size;
	c->last_was_write = sf_tcp_is_write(req.opcode);
	if (!sf_tcp_opcode_known(req.opcode) || !allowed(c, &req))
		refuse(c);
	else if (c->last_was_write)
		c->state = SF_CONN_WRITE;
	else
		begin_read(c);
	return STEP_INPUT;
}

static enum step take_read(struct sf_conn *c)
{
	size_t n;

	/* The status frame and the first piece always fit together. */
	if (c->out.bytes >= SF_TARGET_CHUNK ||
	    c->out.nr == 2 * SF_TARGET_ANSWERS)
		return STEP_OUTPUT;
	n = c->left < SF_TARGET_CHUNK ? c->left : SF_TARGET_CHUNK;
	out_add(&c->out, (void *)(uintptr_t)c->addr, n);
	c->out.payload = true;
	c->addr += n;
	c->left -= n;
	if (!c->left)
		c->state = SF_CONN_HEADER;
	return STEP_INPUT;
}

/* The kernel copies, for it survives memory that is gone. The pipe is empty
 * before and after, and holds more than the staging buffer. */
static int copy_by_kernel(struct sf_conn *c, const void *from, size_t len)
{
	const int *pipe = c->shared->pipe;
	uint8_t waste[SF_TARGET_STAGE];
	size_t done = 0;
	ssize_t n = write(pipe[1], from, len);

	if (n != (ssize_t)len)
		return n < 0 ? -errno : -EIO;
	while (done < len) {
		n = read(pipe[0], (char *)(uintptr_t)c->addr + done,
			 len - done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (done == len)
		return 0;
	while (done < len && (n = read(pipe[0], waste, len - done)) > 0)
		done += (size_t)n;
	return memory_is_gone(c);
}

static void end_write(struct sf_conn *c)
{
	count(&c->shared->counters.writes, 1);
	count(&c->shared->counters.written_bytes, c->req.size);
	if (sf_tcp_is_v2(c->req.opcode))
		out_status(&c->out, SF_TCP_OK);
	c->state = SF_CONN_HEADER;
}

/* Payload that came in behind its header. */
static int take_write(struct sf_conn *c)
{
	size_t n = staged(c);
	int res;

	if (n > c->left)
		n = c->left;
	if (n) {
		res = copy_by_kernel(c, c->stage + c->stage_first, n);
		if (res < 0)
			return res;
		c->stage_first += n;
		c->addr += n;
		c->left -= n;
	}
	if (!c->left)
		end_write(c);
	return STEP_INPUT;
}

/* Deal with what has been received, as far as the answers have room. */
static int take(struct sf_conn *c)
{
	for (;;) {
		enum sf_conn_state before = c->state;
		size_t first = c->stage_first;
		uint64_t left = c->left;
		int step = STEP_END;

		if (c->state == SF_CONN_HEADER)
			step = take_header(c);
		else if (c->state == SF_CONN_READ)
			step = take_read(c);
		else if (c->state == SF_CONN_WRITE)
			step = take_write(c);
		if (step != STEP_INPUT)
			return step;
		if (c->state == before && c->stage_first == first &&
		    c->left == left)
			return STEP_INPUT;
	}
}

/* ---- input ---- */

/* Where the next bytes go: the rest of a payload and the header behind it, or
 * the staging buffer. Never past the header that follows a write: another
 * write is likely, and its payload belongs into its place. */
static unsigned int input_iov(struct sf_conn *c, struct iovec iov[2])
{
	unsigned int nr = 0;
	size_t room;

	assert(c->state == SF_CONN_HEADER || c->state == SF_CONN_WRITE);
	if (c->state == SF_CONN_WRITE) {
		iov[nr].iov_base = (void *)(uintptr_t)c->addr;
		iov[nr++].iov_len = c->left < SF_TARGET_CHUNK ?
				    c->left : SF_TARGET_CHUNK;
		if (c->left > SF_TARGET_CHUNK)
			return nr;
	}
	if (c->stage_first) {
		memmove(c->stage, c->stage + c->stage_first, staged(c));
		c->stage_end -= c->stage_first;
		c->stage_first = 0;
	}
	room = (c->last_was_write ? SF_TCP_HEADER_LEN : sizeof(c->stage)) -
	       c->stage_end;
	iov[nr].iov_base = c->stage + c->stage_end;
	iov[nr++].iov_len = room;
	return nr;
}

static void input_done(struct sf_conn *c, size_t n)
{
	size_t body = 0;

	if (c->state == SF_CONN_WRITE) {
		body = n < c->left ? n : c->left;
		c->addr += body;
		c->left -= body;
	}
	c->stage_end += n - body;
}

/* 0, or close. Clears readable when the socket has been emptied. */
static int fill(struct sf_conn *c, size_t *moved)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	size_t want = 0;
	ssize_t n;

	msg.msg_iovlen = input_iov(c, iov);
	for (size_t i = 0; i < msg.msg_iovlen; i++)
		want += iov[i].iov_len;
	do
		n = recvmsg(c->fd, &msg, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		c->readable = false;
		if (errno == EAGAIN)
			return 0;
		return errno == EFAULT ? memory_is_gone(c) : -errno;
	}
	if (n == 0) {		/* answers may still be wanted */
		c->readable = false;
		c->state = SF_CONN_LAST;
		return 0;
	}
	c->readable = (size_t)n == want;
	*moved += (size_t)n;
	input_done(c, (size_t)n);
	return 0;
}

static int begin_drain(struct sf_conn *c)
{
	if (shutdown(c->fd, SHUT_WR) < 0)
		return -errno;
	c->state = SF_CONN_DRAIN;
	c->drain_left = SF_TARGET_DRAIN_BYTES;
	return EPOLLIN;
}

static int drain(struct sf_conn *c)
{
	size_t moved = 0;

	while (moved < SF_TARGET_CHUNK) {
		ssize_t n = recv(c->fd, NULL, SF_TARGET_CHUNK,
				 MSG_DONTWAIT | MSG_TRUNC);

		if (n == 0)
			return -ENODATA;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? EPOLLIN :
								   -errno;
		if ((uint64_t)n > c->drain_left)
			return -EMSGSIZE;
		c->drain_left -= (uint64_t)n;
		moved += (size_t)n;
	}
	return EPOLLIN;
}

int sf_conn_run(struct sf_conn *c)
{
	size_t moved = 0;
	int step, res;

	if (c->state == SF_CONN_DRAIN)
		return drain(c);
	for (;;) {
		step = take(c);
		if (step < 0)
			return step;
		if (step == STEP_INPUT && c->readable &&
		    moved < SF_TARGET_CHUNK) {
			res = fill(c, &moved);
			if (res < 0)
				return res;
			continue;
		}
		res = flush(c, &moved);
		if (res == -EAGAIN)
			return EPOLLOUT;
		if (res < 0)
			return res;
		if (step == STEP_INPUT)
			return EPOLLIN;
		if (step == STEP_END)
			return c->state == SF_CONN_REFUSED ? begin_drain(c) :
							     -ENODATA;
		if (moved >= SF_TARGET_CHUNK)
			return EPOLLOUT;
	}
}
