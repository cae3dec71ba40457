/* SPDX-License-Identifier: MIT */
/*
 * The TCP target: listening, the threads and their epoll loops, who owns which
 * connection. What happens on a connection is tcp/target_conn.c's.
 *
 * Each connection belongs to one worker from accept to close, so it needs no
 * lock; a worker's list of them has one, because the first worker accepts for
 * all. Nothing here touches a region's memory.
 */
#include "config.h"
#include "tcp/target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "log.h"
#include "net.h"
#include "range.h"
#include "tcp/target_conn.h"
#include "thread.h"

#define MAX_CLIENTS 4096
#define MAX_THREADS 256
#define BACKLOG 1024
#define EVENTS_MAX 64
#define ACCEPT_MAX 64		/* at a time, then the others' turn */
#define ACCEPT_PAUSE_MS 100	/* when there are no more descriptors */
#define FULL_LOG_MS 10000

struct worker {
	struct sf_target_shared shared;
	struct sf_tcp_target *target;
	int epoll;
	pthread_t thread;
	bool running;
	TAILQ_HEAD(, sf_conn) draining;	/* by drain_until_ms */
	pthread_mutex_t lock;		/* conns */
	LIST_HEAD(, sf_conn) conns;
	atomic_uint nr_conns;
};

struct sf_tcp_target {
	int listener;
	int stop;			/* eventfd, written once */
	uint16_t port;
	unsigned int max_clients;
	struct sf_region *regions;
	size_t nr_regions;
	struct sf_ratelimit full_log;
	uint64_t accept_again_ms;	/* 0: the listener is armed */
	atomic_uint nr_conns;
	unsigned int nr_workers;
	struct worker *workers;
};

/* ---- connections ---- */

static void conn_close(struct worker *w, struct sf_conn *c)
{
	if (c->state == SF_CONN_DRAIN)
		TAILQ_REMOVE(&w->draining, c, drain_link);
	pthread_mutex_lock(&w->lock);
	LIST_REMOVE(c, link);
	pthread_mutex_unlock(&w->lock);
	close(c->fd);
	free(c);
	atomic_fetch_sub(&w->nr_conns, 1);
	atomic_fetch_sub(&w->target->nr_conns, 1);
}

static int set_events(struct worker *w, struct sf_conn *c, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = c };

	if (c->events == events)
		return 0;
	c->events = events;
	return epoll_ctl(w->epoll, EPOLL_CTL_MOD, c->fd, &ev) < 0 ? -errno : 0;
}

static void conn_event(struct worker *w, struct sf_conn *c, uint32_t events)
{
	bool was_draining = c->state == SF_CONN_DRAIN;
	int res;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		c->readable = true;
	res = sf_conn_run(c);
	if (c->state == SF_CONN_DRAIN && !was_draining) {
		c->drain_until_ms = sf_now_ms() + SF_TARGET_DRAIN_MS;
		TAILQ_INSERT_TAIL(&w->draining, c, drain_link);
	}
	if (res >= 0)
		res = set_events(w, c, (uint32_t)res);
	if (res < 0) {
		sf_log(LOG_DEBUG, SF_LOG_TCP, "client closed: %s",
		       res == -ENODATA ? "done" : strerror(-res));
		conn_close(w, c);
	}
}

static void socket_options(int fd)
{
	const int on = 1, idle_s = 60, interval_s = 10, count = 6;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* An idle client is welcome, one whose machine is gone is not. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s,
		   sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static struct worker *least_busy(struct sf_tcp_target *t)
{
	struct worker *best = &t->workers[0];

	for (unsigned int i = 1; i < t->nr_workers; i++)
		if (atomic_load(&t->workers[i].nr_conns) <
		    atomic_load(&best->nr_conns))
			best = &t->workers[i];
	return best;
}

static void add_conn(struct sf_tcp_target *t, int fd)
{
	struct worker *w = least_busy(t);
	struct sf_conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	if (!c) {
		close(fd);
		return;
	}
	socket_options(fd);
	c->fd = fd;
	c->events = EPOLLIN;
	c->shared = &w->shared;
	atomic_fetch_add(&t->nr_conns, 1);
	atomic_fetch_add(&w->nr_conns, 1);
	pthread_mutex_lock(&w->lock);
	LIST_INSERT_HEAD(&w->conns, c, link);
	pthread_mutex_unlock(&w->lock);
	/* From here on it is W's. */
	if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		conn_close(w, c);
}

/* ---- accepting ---- */

static void arm_listener(struct sf_tcp_target *t, bool arm)
{
	struct epoll_event ev = { .events = arm ? EPOLLIN : 0,
				  .data.ptr = t };

	epoll_ctl(t->workers[0].epoll, EPOLL_CTL_MOD, t->listener, &ev);
	t->accept_again_ms = arm ? 0 : sf_now_ms() + ACCEPT_PAUSE_MS;
}

static void log_full(struct sf_tcp_target *t, const char *why)
{
	unsigned int more;

	if (sf_ratelimit_pass(&t->full_log, FULL_LOG_MS, &more))
		sf_log(LOG_WARNING, SF_LOG_TCP,
		       "data port %u turns clients away: %s (and %u before)",
		       t->port, why, more);
}

static bool accept_one(struct sf_tcp_target *t)
{
	int fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			log_full(t, strerror(errno));
			arm_listener(t, false);
		}
		/* Anything else was the client's trouble: the next one. */
		return errno == EINTR || errno == ECONNABORTED;
	}
	if (atomic_load(&t->nr_conns) >= t->max_clients) {
		log_full(t, "too many");
		close(fd);
	} else {
		add_conn(t, fd);
	}
	return true;
}

static void accept_some(struct sf_tcp_target *t)
{
	for (int i = 0; i < ACCEPT_MAX; i++)
		if (!accept_one(t))
			break;
}

/* ---- the loop ---- */

static void end_drains(struct worker *w, uint64_t now)
{
	struct sf_conn *c;

	while ((c = TAILQ_FIRST(&w->draining)) && c->drain_until_ms <= now)
		conn_close(w, c);
}

static int wait_ms(struct worker *w)
{
	struct sf_conn *c = TAILQ_FIRST(&w->draining);
	uint64_t until = SF_NO_DEADLINE;

	if (c)
		until = c->drain_until_ms;
	if (w == w->target->workers && w->target->accept_again_ms &&
	    w->target->accept_again_ms < until)
		until = w->target->accept_again_ms;
	return sf_ms_left(until);
}

static void timeouts(struct worker *w)
{
	struct sf_tcp_target *t = w->target;
	uint64_t now;

	if (TAILQ_EMPTY(&w->draining) &&
	    !(w == t->workers && t->accept_again_ms))
		return;
	now = sf_now_ms();
	end_drains(w, now);
	if (w == t->workers && t->accept_again_ms && t->accept_again_ms <= now)
		arm_listener(t, true);
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct sf_tcp_target *t = w->target;
	struct epoll_event ev[EVENTS_MAX];

	pthread_setname_np(pthread_self(), "sf-target");
	for (;;) {
		int n = epoll_wait(w->epoll, ev, EVENTS_MAX, wait_ms(w));

		for (int i = 0; i < n; i++) {
			if (ev[i].data.ptr == &t->stop)
				return NULL;
			if (ev[i].data.ptr == t)
				accept_some(t);
			else
				conn_event(w, ev[i].data.ptr, ev[i].events);
		}
		timeouts(w);
	}
}

/* ---- starting and stopping ---- */

static int watch(int epoll, int fd, void *ptr)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = ptr };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int start_worker(struct worker *w)
{
	int res;

	if (pipe2(w->shared.pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
		w->shared.pipe[0] = w->shared.pipe[1] = -1;
		return -errno;
	}
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0)
		return -errno;
	res = watch(w->epoll, w->target->stop, &w->target->stop);
	if (res < 0)
		return res;
	res = sf_thread_start(&w->thread, run, w);
	w->running = res == 0;
	return res;
}

static void init_worker(struct sf_tcp_target *t, struct worker *w)
{
	w->target = t;
	w->epoll = -1;
	w->shared.pipe[0] = w->shared.pipe[1] = -1;
	w->shared.regions = t->regions;
	w->shared.nr_regions = t->nr_regions;
	TAILQ_INIT(&w->draining);
	LIST_INIT(&w->conns);
	pthread_mutex_init(&w->lock, NULL);
}

static int start_workers(struct sf_tcp_target *t, unsigned int nr)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int res = 0;

	if (!nr)
		nr = cpus > 0 ? (unsigned int)cpus : 1;
	if (nr > MAX_THREADS)
		nr = MAX_THREADS;
	t->workers = calloc(nr, sizeof(*t->workers));
	if (!t->workers)
		return -ENOMEM;
	t->nr_workers = nr;
	for (unsigned int i = 0; i < nr; i++)
		init_worker(t, &t->workers[i]);
	for (unsigned int i = 0; i < nr && !res; i++)
		res = start_worker(&t->workers[i]);
	return res ? res : watch(t->workers[0].epoll, t->listener, t);
}

static int by_addr(const void *a, const void *b)
{
	const struct sf_region *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static int copy_regions(struct sf_tcp_target *t,
			const struct sf_tcp_target_config *config,
			struct sf_err *err)
{
	struct sf_region *r;

	t->regions = calloc(config->nr_regions + 1, sizeof(*t->regions));
	if (!t->regions)
		return sf_err_set(err, -ENOMEM, "out of memory");
	if (config->nr_regions)
		memcpy(t->regions, config->regions,
		       config->nr_regions * sizeof(*t->regions));
	t->nr_regions = config->nr_regions;
	qsort(t->regions, t->nr_regions, sizeof(*t->regions), by_addr);
	for (size_t i = 0; i < t->nr_regions; i++) {
		r = &t->regions[i];
		if (!r->addr || !r->length || !sf_range_ok(r->addr, r->length))
			return sf_err_set(err, -EINVAL, "region 0x%" PRIx64
					  " of %" PRIu64 " bytes is impossible",
					  r->addr, r->length);
		if (i && r->addr - r[-1].addr < r[-1].length)
			return sf_err_set(err, -EINVAL, "regions 0x%" PRIx64
					  " and 0x%" PRIx64 " overlap",
					  r[-1].addr, r->addr);
	}
	return 0;
}

int sf_tcp_target_start(struct sf_tcp_target **out,
			const struct sf_tcp_target_config *config,
			struct sf_err *err)
{
	struct sf_tcp_target *t = calloc(1, sizeof(*t));
	int res;

	if (!t)
		return sf_err_set(err, -ENOMEM, "out of memory");
	t->listener = -1;
	t->max_clients = config->max_clients ? config->max_clients :
					       MAX_CLIENTS;
	t->stop = eventfd(0, EFD_CLOEXEC);
	if (t->stop < 0) {
		res = sf_err_set(err, -errno, "eventfd: %s", strerror(errno));
		goto fail;
	}
	res = copy_regions(t, config, err);
	if (res < 0)
		goto fail;
	res = sf_net_listen(config->listen, config->port, BACKLOG,
			    &t->listener, &t->port, err);
	if (res < 0)
		goto fail;
	res = start_workers(t, config->threads);
	if (res < 0) {
		sf_err_set(err, res, "cannot start the data server: %s",
			   strerror(-res));
		goto fail;
	}
	*out = t;
	return 0;
fail:
	sf_tcp_target_stop(t);
	return res;
}

uint16_t sf_tcp_target_port(const struct sf_tcp_target *t)
{
	return t->port;
}

void sf_tcp_target_stats(const struct sf_tcp_target *t,
			 struct sf_tcp_target_stats *st)
{
	*st = (struct sf_tcp_target_stats){ 0 };
	for (unsigned int i = 0; i < t->nr_workers; i++) {
		const struct sf_target_counters *c =
			&t->workers[i].shared.counters;

		st->reads += atomic_load(&c->reads);
		st->writes += atomic_load(&c->writes);
		st->read_bytes += atomic_load(&c->read_bytes);
		st->written_bytes += atomic_load(&c->written_bytes);
		st->rejected += atomic_load(&c->rejected);
	}
	st->clients = atomic_load(&t->nr_conns);
}

static void free_worker(struct worker *w)
{
	struct sf_conn *c;

	while ((c = LIST_FIRST(&w->conns)))
		conn_close(w, c);
	if (w->epoll >= 0)
		close(w->epoll);
	if (w->shared.pipe[0] >= 0) {
		close(w->shared.pipe[0]);
		close(w->shared.pipe[1]);
	}
	pthread_mutex_destroy(&w->lock);
}

void sf_tcp_target_stop(struct sf_tcp_target *t)
{
	if (!t)
		return;
	if (t->stop >= 0)
		eventfd_write(t->stop, 1);
	for (unsigned int i = 0; i < t->nr_workers; i++)
		if (t->workers[i].running)
			pthread_join(t->workers[i].thread, NULL);
	/* Only now: the first worker gives connections to the others. */
	for (unsigned int i = 0; i < t->nr_workers; i++)
		free_worker(&t->workers[i]);
	free(t->workers);
	free(t->regions);
	if (t->listener >= 0)
		close(t->listener);
	if (t->stop >= 0)
		close(t->stop);
	free(t);
}
