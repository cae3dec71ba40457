/* SPDX-License-Identifier: MIT */
/*
 * The client side of the handshake channel: one connection, one request, one
 * reply, closed at once (a Mooncake server serves nobody else meanwhile).
 * Blocks its caller, within a deadline; no state, no threads. What the JSON
 * says is the caller's business.
 */
#include "config.h"
#include "handshake.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "handshake_frame.h"
#include "net.h"

/* What ends a call before its time. */
struct limit {
	uint64_t deadline_ms;
	int cancel_fd;
};

static int wait_for(int fd, short events, const struct limit *limit)
{
	struct pollfd p[] = {
		{ .fd = fd, .events = events },
		{ .fd = limit->cancel_fd, .events = POLLIN },
	};
	int n;

	do
		n = poll(p, 2, sf_ms_left(limit->deadline_ms));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (p[1].revents)
		return -ECANCELED;
	return n ? 0 : -ETIMEDOUT;
}

static int connect_one(const struct addrinfo *ai, const struct limit *limit)
{
	const int on = 1;
	socklen_t len = sizeof(int);
	int fd, ret, why = 0;

	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0)
		return fd;
	ret = errno == EINPROGRESS ? wait_for(fd, POLLOUT, limit) :
				     -errno;
	if (!ret && getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
		ret = -errno;
	if (!ret && !why)
		return fd;
	close(fd);
	return ret ? ret : -why;
}

/* The addresses in their order, until one takes the call. */
static int connect_any(const char *host, uint16_t port,
		       const struct limit *limit, struct sf_err *err)
{
	struct addrinfo *list;
	int fd;

	fd = sf_net_resolve(host, port, &list, err);
	if (fd < 0)
		return fd;
	fd = -EHOSTUNREACH;
	for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
		fd = connect_one(ai, limit);
		if (fd >= 0 || fd == -ETIMEDOUT || fd == -ECANCELED)
			break;
	}
	freeaddrinfo(list);
	if (fd < 0)
		sf_err_set(err, fd, "cannot connect: %s", strerror(-fd));
	return fd;
}

static int send_request(int fd, enum sf_handshake_type type, const char *body,
			const struct limit *limit)
{
	uint8_t head[SF_HANDSHAKE_HEADER_MAX];
	size_t head_len = sf_handshake_header(head, type, strlen(body));
	struct iovec iov[2] = {
		{ .iov_base = head, .iov_len = head_len },
		{ .iov_base = (void *)(uintptr_t)body,
		  .iov_len = strlen(body) },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	while (msg.msg_iovlen && msg.msg_iov->iov_len) {
		ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);
		int ret;

		if (n < 0 && errno == EAGAIN) {
			ret = wait_for(fd, POLLOUT, limit);
			if (ret < 0)
				return ret;
			continue;
		}
		if (n < 0 && errno != EINTR)
			return -errno;
		while (n > 0 && (size_t)n >= msg.msg_iov->iov_len) {
			n -= (ssize_t)msg.msg_iov->iov_len;
			msg.msg_iov++;
			msg.msg_iovlen--;
		}
		if (n > 0) {
			msg.msg_iov->iov_base =
				(char *)msg.msg_iov->iov_base + n;
			msg.msg_iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

/* Exactly LEN bytes. -ENODATA: the peer closed first. */
static int receive(int fd, void *buf, size_t len, const struct limit *limit)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (char *)buf + done, len - done, 0);
		int ret;

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return -ENODATA;
		if (n > 0) {
			done += (size_t)n;
		} else if (errno == EAGAIN) {
			ret = wait_for(fd, POLLIN, limit);
			if (ret < 0)
				return ret;
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int receive_failed(int ret, struct sf_err *err)
{
	if (ret == -ENODATA)
		return sf_err_set(err, -EPROTO,
				  "closed the connection without an answer");
	return sf_err_set(err, ret, "no answer: %s", strerror(-ret));
}

/* The length counts the type byte; an untyped reply has none. */
static int receive_reply(int fd, enum sf_handshake_type type, size_t max_len,
			 const struct limit *limit, struct sf_blob **reply,
			 struct sf_err *err)
{
	uint8_t head[SF_HANDSHAKE_HEADER_MAX];
	size_t typed = type != SF_HANDSHAKE_UNTYPED;
	struct sf_blob *blob;
	uint64_t len;
	int ret;

	ret = receive(fd, head, sizeof(head), limit);
	if (ret < 0)
		return receive_failed(ret, err);
	len = sf_handshake_length(head);
	if (len < typed || len == 0 || len - typed > max_len)
		return sf_err_set(err, -EPROTO, "answers with a frame of %"
				  PRIu64 " bytes (the limit is %zu)", len,
				  max_len);
	if (sf_handshake_type_of(head[SF_HANDSHAKE_LEN_BYTES]) != type)
		return sf_err_set(err, -EPROTO,
				  "answers with type %u to type %d",
				  head[SF_HANDSHAKE_LEN_BYTES], (int)type);
	blob = sf_blob_new(NULL, (size_t)len - typed);
	if (!blob)
		return sf_err_set(err, -ENOMEM, "out of memory");
	if (!typed)
		blob->data[0] = (char)head[SF_HANDSHAKE_LEN_BYTES];
	ret = receive(fd, blob->data + !typed, (size_t)len - 1, limit);
	if (ret < 0) {
		sf_blob_put(blob);
		return receive_failed(ret, err);
	}
	*reply = blob;
	return 0;
}

int sf_handshake_call_unless(int cancel_fd, const char *host, uint16_t port,
			     enum sf_handshake_type type, const char *body,
			     size_t max_len, unsigned int timeout_ms,
			     struct sf_blob **reply, struct sf_err *err)
{
	const struct limit l = { .deadline_ms = sf_now_ms() + timeout_ms,
				 .cancel_fd = cancel_fd };
	const struct limit *limit = &l;
	int fd, ret;

	fd = connect_any(host, port, limit, err);
	if (fd < 0) {
		sf_err_prefix(err, "%s port %u", host, port);
		return fd;
	}
	ret = send_request(fd, type, body, limit);
	if (ret == -EPIPE || ret == -ECONNRESET)
		ret = receive_failed(-ENODATA, err);
	else if (ret < 0)
		sf_err_set(err, ret, "cannot send: %s", strerror(-ret));
	else
		ret = receive_reply(fd, type, max_len, limit, reply, err);
	close(fd);
	if (ret < 0)
		sf_err_prefix(err, "%s port %u", host, port);
	return ret;
}

int sf_handshake_call(const char *host, uint16_t port,
		      enum sf_handshake_type type, const char *body,
		      size_t max_len, unsigned int timeout_ms,
		      struct sf_blob **reply, struct sf_err *err)
{
	return sf_handshake_call_unless(-1, host, port, type, body, max_len,
					timeout_ms, reply, err);
}
