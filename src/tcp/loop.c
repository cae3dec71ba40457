/* SPDX-License-Identifier: MIT */
/*
 * The epoll threads of the TCP transport. A loop knows descriptors and their
 * sources, not what travels on them.
 *
 * Events are fetched in batches, so a source may be called a moment after its
 * descriptor was closed; sf_tcp_loop_sync() is how its owner finds out that the
 * batch is through.
 */
#include "config.h"
#include "tcp/loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "thread.h"

#define BATCH 64
#define WATCHED (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

/* Waking a sleeping CPU costs more than a small answer takes to come. A peer
 * with one small request at a time was answered twice as fast (median of 5
 * rounds, 64 us to 29 us) by looking this long before sleeping; a next one that
 * comes later than WORTH_NS makes it sleep at once until they come faster. */
#define SPIN_NS 80000u
#define WORTH_NS 160000u

struct sf_tcp_loop {
	int epoll_fd, event_fd;
	pthread_t thread;
	bool running;
	char name[16];

	/* the thread's own */
	bool expecting;		/* sf_tcp_loop_expect() since the last event */
	bool worth;		/* the last wait was short */

	pthread_mutex_t lock;
	pthread_cond_t synced;
	uint64_t nr_asked, nr_answered;	/* syncs, under lock */
	bool stop;			/* under lock */
};

static void wake(struct sf_tcp_loop *loop)
{
	const uint64_t one = 1;

	/* Can only fail when it is as good as readable already. */
	(void)!write(loop->event_fd, &one, sizeof(one));
}

/* All events fetched earlier have been handled. True: stop. */
static bool answer_syncs(struct sf_tcp_loop *loop)
{
	uint64_t count;
	bool stop;

	(void)!read(loop->event_fd, &count, sizeof(count));
	pthread_mutex_lock(&loop->lock);
	loop->nr_answered = loop->nr_asked;
	stop = loop->stop;
	pthread_cond_broadcast(&loop->synced);
	pthread_mutex_unlock(&loop->lock);
	return stop;
}

void sf_tcp_loop_expect(struct sf_tcp_loop *loop)
{
	loop->expecting = true;
}

/* Look for events without sleeping; 0: none have come. */
static int spin(struct sf_tcp_loop *loop, struct epoll_event *ev,
		uint64_t from_ns)
{
	int n;

	do {
		n = epoll_wait(loop->epoll_fd, ev, BATCH, 0);
		if (!n)
			sched_yield();	/* whoever else wants this CPU */
	} while (!n && sf_now_ns() - from_ns < SPIN_NS);
	return n;
}

static int wait_for_events(struct sf_tcp_loop *loop, struct epoll_event *ev)
{
	uint64_t from_ns;
	int n = 0;

	if (!loop->expecting)
		return epoll_wait(loop->epoll_fd, ev, BATCH, -1);
	loop->expecting = false;
	from_ns = sf_now_ns();
	if (loop->worth)
		n = spin(loop, ev, from_ns);
	if (!n) {
		n = epoll_wait(loop->epoll_fd, ev, BATCH, -1);
		loop->worth = sf_now_ns() - from_ns < WORTH_NS;
	}
	return n;
}

static void *loop_thread(void *arg)
{
	struct sf_tcp_loop *loop = arg;
	struct epoll_event ev[BATCH];
	bool stop = false, woken;
	int i, n;

	pthread_setname_np(pthread_self(), loop->name);
	while (!stop) {
		n = wait_for_events(loop, ev);
		woken = false;
		for (i = 0; i < n; i++) {
			struct sf_tcp_source *s = ev[i].data.ptr;

			if (s)
				s->ready(s, ev[i].events);
			else
				woken = true;
		}
		if (woken)
			stop = answer_syncs(loop);
	}
	return NULL;
}

static int start_thread(struct sf_tcp_loop *loop)
{
	int res = sf_thread_start(&loop->thread, loop_thread, loop);

	loop->running = !res;
	return res;
}

int sf_tcp_loop_new(struct sf_tcp_loop **out, const char *name)
{
	struct sf_tcp_loop *loop = calloc(1, sizeof(*loop));
	struct epoll_event ev = { .events = EPOLLIN };
	int ret, i;

	if (!loop)
		return -ENOMEM;
	pthread_mutex_init(&loop->lock, NULL);
	pthread_cond_init(&loop->synced, NULL);
	for (i = 0; name[i] && i < 15; i++)
		loop->name[i] = name[i];
	loop->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->event_fd < 0 || loop->epoll_fd < 0 ||
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &ev) < 0)
		ret = -errno;
	else
		ret = start_thread(loop);
	if (ret) {
		sf_tcp_loop_free(loop);
		return ret;
	}
	*out = loop;
	return 0;
}

void sf_tcp_loop_free(struct sf_tcp_loop *loop)
{
	if (!loop)
		return;
	if (loop->running) {
		pthread_mutex_lock(&loop->lock);
		loop->stop = true;
		pthread_mutex_unlock(&loop->lock);
		wake(loop);
		pthread_join(loop->thread, NULL);
	}
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	if (loop->event_fd >= 0)
		close(loop->event_fd);
	pthread_cond_destroy(&loop->synced);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

int sf_tcp_loop_add(struct sf_tcp_loop *loop, int fd, struct sf_tcp_source *s)
{
	struct epoll_event ev = { .events = WATCHED, .data.ptr = s };

	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	return 0;
}

void sf_tcp_loop_again(struct sf_tcp_loop *loop, int fd,
		       struct sf_tcp_source *s)
{
	struct epoll_event ev = { .events = WATCHED, .data.ptr = s };

	/* A modified entry is looked at anew and queued when it is ready. */
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void sf_tcp_loop_sync(struct sf_tcp_loop *loop)
{
	uint64_t mine;

	pthread_mutex_lock(&loop->lock);
	mine = ++loop->nr_asked;
	wake(loop);
	while (loop->nr_answered < mine)
		pthread_cond_wait(&loop->synced, &loop->lock);
	pthread_mutex_unlock(&loop->lock);
}
