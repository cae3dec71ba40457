/* SPDX-License-Identifier: MIT */
/*
 * The server side of the handshake channel. One thread serves all clients, none
 * of which it ever waits for: each has a buffer that grows with what has
 * really arrived, and a limit of time for everything it does here; while a
 * handler that may block has its request, it waits in a list of its own, out
 * of the loop. Monitors and port scanners connect and say nothing, or anything:
 * that is normal.
 *
 * Checks that a request is JSON; what it says is the handler's business.
 */
#include "config.h"
#include "handshake.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "handshake_frame.h"
#include "handshake_work.h"
#include "json.h"
#include "log.h"
#include "net.h"
#include "ratelimit.h"
#include "thread.h"

#define IDLE_MS 5000
#define MAX_CLIENTS 256
#define CONNECT_THREADS 8
#define BACKLOG 128
#define EVENTS_MAX 64
#define FIRST_BUFFER 1024
#define BUFFERED_REQUESTS 16	/* of the largest size, all clients together */
#define LINGER_BYTES (1u << 20)
#define ACCEPT_PAUSE_MS 100	/* when there are no more descriptors */
#define LOG_MS 10000

enum client_state {
	CLIENT_REQUEST,
	CLIENT_WORKING,		/* its job is with the threads */
	CLIENT_REPLY,
	CLIENT_LINGER,		/* half-closed: until it closes, too */
};

struct client {
	int fd;
	enum client_state state;
	uint64_t until_ms;
	TAILQ_ENTRY(client) link;
	uint8_t *buf;		/* the frame, then a NUL */
	size_t have, room;
	uint8_t head[SF_HANDSHAKE_HEADER_MAX];
	char *reply;
	size_t head_len, reply_len, sent;
	size_t discarded;	/* of what came in behind the request */
	struct sf_handshake_job job;
};

struct sf_handshake_server {
	int listener, epoll, stop;
	uint16_t port;
	struct sf_handshake_config config;
	pthread_t thread;
	bool running;
	struct sf_handshake_work *work;	/* NULL: no handler blocks */
	/* the rest is the thread's */
	TAILQ_HEAD(client_list, client) clients;	/* by until_ms */
	struct client_list working;
	unsigned int nr_clients;
	bool armed;			/* the listener */
	uint64_t accept_again_ms;	/* no descriptors until then */
	size_t buffered;		/* room of all clients */
	struct sf_ratelimit log;
};

static void complain(struct sf_handshake_server *s, const char *what)
{
	unsigned int more;

	if (sf_ratelimit_pass(&s->log, LOG_MS, &more))
		sf_log(LOG_INFO, SF_LOG_EXPORT,
		       "handshake port %u: %s (and %u more)", s->port, what,
		       more);
}

static void arm_listener(struct sf_handshake_server *s, bool arm)
{
	struct epoll_event ev = { .events = arm ? EPOLLIN : 0, .data.ptr = s };

	if (s->armed != arm)
		epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &ev);
	s->armed = arm;
}

static void client_close(struct sf_handshake_server *s, struct client *c)
{
	TAILQ_REMOVE(c->state == CLIENT_WORKING ? &s->working : &s->clients, c,
		     link);
	s->nr_clients--;
	s->buffered -= c->room;
	close(c->fd);
	free(c->buf);
	free(c->reply);
	free(c);
	if (!s->accept_again_ms)
		arm_listener(s, true);
}

/* ---- request ---- */

/* Bytes of the frame that are still to come, length field first; 0: none.
 * Negative: it is no frame. */
static int64_t missing(const struct sf_handshake_server *s,
		       const struct client *c)
{
	uint64_t len;

	if (c->have < SF_HANDSHAKE_LEN_BYTES)
		return (int64_t)(SF_HANDSHAKE_LEN_BYTES - c->have);
	len = sf_handshake_length(c->buf);
	if (len == 0 || len > s->config.max_len)
		return -EPROTO;
	return (int64_t)(len + SF_HANDSHAKE_LEN_BYTES - c->have);
}

/* Room for some of the WANT bytes and a NUL. Memory follows what has arrived,
 * not what the length field says. */
static int make_room(struct sf_handshake_server *s, struct client *c)
{
	size_t room = c->room ? 2 * c->room : FIRST_BUFFER;
	uint8_t *buf;

	if (c->have + 1 < c->room)
		return 0;
	if (s->buffered + room - c->room >
	    BUFFERED_REQUESTS * s->config.max_len + s->config.max_clients *
						    (size_t)FIRST_BUFFER)
		return -ENOBUFS;
	buf = realloc(c->buf, room);
	if (!buf)
		return -ENOMEM;
	s->buffered += room - c->room;
	c->buf = buf;
	c->room = room;
	return 0;
}

/* 1: the frame is complete; 0: wait; negative: close. */
static int read_request(struct sf_handshake_server *s, struct client *c)
{
	for (;;) {
		int64_t want;
		size_t space;
		ssize_t n;
		int res;

		want = missing(s, c);
		if (want <= 0)
			return want < 0 ? (int)want : 1;
		res = make_room(s, c);
		if (res < 0)
			return res;
		space = c->room - c->have - 1;
		if (space > (uint64_t)want)
			space = (size_t)want;
		n = recv(c->fd, c->buf + c->have, space, MSG_DONTWAIT);
		if (n == 0)
			return -ENODATA;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		c->have += (size_t)n;
	}
}

static bool is_json(const char *text, size_t len)
{
	struct sf_json json;

	if (sf_json_parse(&json, text, len, NULL) < 0)
		return false;
	sf_json_free(&json);
	return true;
}

/* Nobody waits for the threads, so the client leaves the loop until they are
 * done: a socket without events would still report that it was closed. */
static int hand_over(struct sf_handshake_server *s, struct client *c)
{
	int res = sf_handshake_work_add(s->work, &c->job);

	if (res < 0)
		return res;
	epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
	TAILQ_REMOVE(&s->clients, c, link);
	TAILQ_INSERT_TAIL(&s->working, c, link);
	c->state = CLIENT_WORKING;
	return 0;
}

static int take_reply(struct client *c, char *reply)
{
	if (!reply)
		return -ECANCELED;
	c->reply = reply;
	c->reply_len = strlen(c->reply);
	c->head_len = sf_handshake_header(c->head, c->job.type, c->reply_len);
	c->state = CLIENT_REPLY;
	return 0;
}

static int answer(struct sf_handshake_server *s, struct client *c)
{
	const char *body = (const char *)c->buf + SF_HANDSHAKE_LEN_BYTES;
	size_t len = c->have - SF_HANDSHAKE_LEN_BYTES;
	enum sf_handshake_type type = sf_handshake_type_of((uint8_t)body[0]);

	c->buf[c->have] = '\0';
	if (type != SF_HANDSHAKE_UNTYPED) {
		body++;
		len--;
	}
	if (!is_json(body, len))
		return -EPROTO;
	c->job = (struct sf_handshake_job){
		.type = type, .body = body, .len = len,
	};
	if (s->work && (type == SF_HANDSHAKE_CONNECTION ||
			type == SF_HANDSHAKE_UNTYPED))
		return hand_over(s, c);
	return take_reply(c, s->config.handler(s->config.arg, type, body,
					       len));
}

/* ---- reply ---- */

static int set_events(struct sf_handshake_server *s, struct client *c,
		      uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = c };

	return epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &ev) < 0 ? -errno : 0;
}

static int send_reply(struct sf_handshake_server *s, struct client *c)
{
	while (c->sent < c->head_len + c->reply_len) {
		size_t head = c->sent < c->head_len ? c->sent : c->head_len;
		size_t body = c->sent - head;
		struct iovec iov[2] = {
			{ c->head + head, c->head_len - head },
			{ c->reply + body, c->reply_len - body },
		};
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return set_events(s, c, EPOLLOUT);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			c->sent += (size_t)n;
	}
	if (shutdown(c->fd, SHUT_WR) < 0)
		return -errno;
	c->state = CLIENT_LINGER;
	return set_events(s, c, EPOLLIN);
}

static int linger(struct client *c)
{
	ssize_t n = recv(c->fd, NULL, 1 << 16, MSG_DONTWAIT | MSG_TRUNC);

	if (n == 0)
		return -ENODATA;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	c->discarded += (size_t)n;
	return c->discarded > LINGER_BYTES ? -EMSGSIZE : 0;
}

static int client_run(struct sf_handshake_server *s, struct client *c)
{
	int res;

	if (c->state == CLIENT_LINGER)
		return linger(c);
	if (c->state == CLIENT_REPLY)
		return send_reply(s, c);
	res = read_request(s, c);
	if (res <= 0)
		return res;
	res = answer(s, c);
	return res < 0 || c->state == CLIENT_WORKING ? res : send_reply(s, c);
}

static void client_event(struct sf_handshake_server *s, struct client *c)
{
	int res = client_run(s, c);

	if (res >= 0)
		return;
	if (c->state == CLIENT_REQUEST && c->have)
		complain(s, res == -ENOBUFS ? "too much to remember" :
					      "dropped what is no request");
	client_close(s, c);
}

/* The time for the reply counts from here. */
static int resume(struct sf_handshake_server *s, struct client *c)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
	int res = take_reply(c, c->job.reply);

	TAILQ_REMOVE(&s->working, c, link);
	TAILQ_INSERT_TAIL(&s->clients, c, link);
	c->until_ms = sf_now_ms() + s->config.idle_ms;
	c->state = CLIENT_REPLY;
	if (!res && epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->fd, &ev) < 0)
		res = -errno;
	return res < 0 ? res : send_reply(s, c);
}

static void work_done(struct sf_handshake_server *s)
{
	struct sf_handshake_job *job;
	struct client *c;

	while ((job = sf_handshake_work_next(s->work))) {
		c = (struct client *)((char *)job -
				      offsetof(struct client, job));
		if (resume(s, c) < 0)
			client_close(s, c);
	}
}

/* ---- accepting, and the loop ---- */

static void add_client(struct sf_handshake_server *s, int fd)
{
	struct client *c = calloc(1, sizeof(*c));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	if (!c || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev) < 0) {
		free(c);
		close(fd);
		return;
	}
	c->fd = fd;
	c->until_ms = sf_now_ms() + s->config.idle_ms;
	TAILQ_INSERT_TAIL(&s->clients, c, link);
	s->nr_clients++;
}

static void accept_some(struct sf_handshake_server *s)
{
	while (s->nr_clients < s->config.max_clients) {
		int fd = accept4(s->listener, NULL, NULL,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			add_client(s, fd);
		} else if (errno == EMFILE || errno == ENFILE ||
			   errno == ENOBUFS || errno == ENOMEM) {
			complain(s, strerror(errno));
			s->accept_again_ms = sf_now_ms() + ACCEPT_PAUSE_MS;
			break;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
	arm_listener(s, false);
}

static void timeouts(struct sf_handshake_server *s)
{
	uint64_t now = sf_now_ms();
	struct client *c;

	while ((c = TAILQ_FIRST(&s->clients)) && c->until_ms <= now) {
		if (c->state != CLIENT_LINGER)
			complain(s, "a client took too long");
		client_close(s, c);
	}
	if (s->accept_again_ms && s->accept_again_ms <= now) {
		s->accept_again_ms = 0;
		arm_listener(s, true);
	}
}

static int wait_ms(const struct sf_handshake_server *s)
{
	struct client *c = TAILQ_FIRST(&s->clients);
	uint64_t until = c ? c->until_ms : SF_NO_DEADLINE;

	if (s->accept_again_ms && s->accept_again_ms < until)
		until = s->accept_again_ms;
	return sf_ms_left(until);
}

static void *run(void *arg)
{
	struct sf_handshake_server *s = arg;
	struct epoll_event ev[EVENTS_MAX];

	pthread_setname_np(pthread_self(), "sf-handshake");
	for (;;) {
		int n = epoll_wait(s->epoll, ev, EVENTS_MAX, wait_ms(s));

		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &s->stop)
				return NULL;
			if (ev[i].data.ptr == s)
				accept_some(s);
			else if (ev[i].data.ptr == &s->work)
				work_done(s);
			else
				client_event(s, ev[i].data.ptr);
		}
		timeouts(s);
	}
}

/* ---- starting and stopping ---- */

static int watch(int epoll, int fd, void *ptr)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = ptr };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int start_work(struct sf_handshake_server *s)
{
	int res = sf_handshake_work_new(&s->work, s->config.connect_threads,
					s->config.connect, s->config.arg);

	return res < 0 ? res : watch(s->epoll, sf_handshake_work_fd(s->work),
				     &s->work);
}

static int start_thread(struct sf_handshake_server *s)
{
	int res;

	s->stop = eventfd(0, EFD_CLOEXEC);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->stop < 0 || s->epoll < 0)
		return -errno;
	res = watch(s->epoll, s->stop, &s->stop);
	if (!res)
		res = watch(s->epoll, s->listener, s);
	if (!res && s->config.connect)
		res = start_work(s);
	if (res < 0)
		return res;
	s->armed = true;
	res = sf_thread_start(&s->thread, run, s);
	s->running = res == 0;
	return res;
}

static void set_defaults(struct sf_handshake_config *config)
{
	config->listen = NULL;		/* the caller's, not needed again */
	if (!config->idle_ms)
		config->idle_ms = IDLE_MS;
	if (!config->max_clients)
		config->max_clients = MAX_CLIENTS;
	if (!config->connect_threads)
		config->connect_threads = CONNECT_THREADS;
	if (!config->max_len)
		config->max_len = SF_HANDSHAKE_MAX_DEFAULT;
	if (config->max_len > SF_HANDSHAKE_MAX_TOP)
		config->max_len = SF_HANDSHAKE_MAX_TOP;
}

int sf_handshake_serve(struct sf_handshake_server **out,
		       const struct sf_handshake_config *config,
		       struct sf_err *err)
{
	struct sf_handshake_server *s = calloc(1, sizeof(*s));
	int res;

	if (!s)
		return sf_err_set(err, -ENOMEM, "out of memory");
	s->listener = s->epoll = s->stop = -1;
	TAILQ_INIT(&s->clients);
	TAILQ_INIT(&s->working);
	s->config = *config;
	set_defaults(&s->config);
	res = sf_net_listen(config->listen, config->port, BACKLOG,
			    &s->listener, &s->port, err);
	if (res < 0)
		goto fail;
	res = start_thread(s);
	if (res < 0) {
		sf_err_set(err, res, "cannot start the handshake server: %s",
			   strerror(-res));
		goto fail;
	}
	*out = s;
	return 0;
fail:
	sf_handshake_stop(s);
	return res;
}

uint16_t sf_handshake_port(const struct sf_handshake_server *s)
{
	return s->port;
}

void sf_handshake_stop(struct sf_handshake_server *s)
{
	struct client *c;

	if (!s)
		return;
	if (s->running) {
		eventfd_write(s->stop, 1);
		pthread_join(s->thread, NULL);
	}
	if (s->work)
		sf_handshake_work_stop(s->work);
	while ((c = TAILQ_FIRST(&s->working))) {
		free(c->job.reply);
		client_close(s, c);
	}
	while ((c = TAILQ_FIRST(&s->clients)))
		client_close(s, c);
	sf_handshake_work_free(s->work);
	if (s->listener >= 0)
		close(s->listener);
	if (s->epoll >= 0)
		close(s->epoll);
	if (s->stop >= 0)
		close(s->stop);
	free(s);
}
