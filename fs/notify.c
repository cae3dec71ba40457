/* SPDX-License-Identifier: MIT */
/*
 * Telling the kernel what has changed in the store. The directory reports
 * changes on its own threads; they are queued here, one entry a segment however
 * often it changes, and told from a thread of our own: a notification may wait
 * in the kernel for a lock that a request holds, so no thread that serves
 * requests may send one. Segments that the kernel does not know cost nothing.
 * What is told is in notify_tell.c.
 */
#include "config.h"
#include "fs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "clock.h"
#include "directory.h"
#include "fs/notify.h"
#include "segment.h"
#include "thread.h"

#define NR_BUCKETS 256u
#define WATCH_TICK_MS 500u

struct sf_notify {
	struct sf_fs *fs;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_cond_t over;
	bool started, stopping, ended;
	TAILQ_HEAD(, sf_change) queue;
	struct sf_change *buckets[NR_BUCKETS];
};

/* ---- the queue ---- */

static unsigned int bucket_of(const char *name)
{
	unsigned int h = 5381;

	while (*name)
		h = h * 33 + (unsigned char)*name++;
	return h % NR_BUCKETS;
}

static struct sf_change *find_locked(struct sf_notify *nt, const char *name)
{
	struct sf_change *c = nt->buckets[bucket_of(name)];

	while (c && strcmp(c->name, name))
		c = c->next;
	return c;
}

static struct sf_segment *get(struct sf_segment *seg)
{
	return seg ? sf_segment_get(seg) : NULL;
}

static struct sf_change *new_change(const char *name)
{
	struct sf_change *c = calloc(1, sizeof(*c) + strlen(name) + 1);

	if (c)
		strcpy(c->name, name);
	return c;
}

static void add_locked(struct sf_notify *nt, struct sf_change *c)
{
	unsigned int b = bucket_of(c->name);

	if (!c->node) {
		c->next = nt->buckets[b];
		nt->buckets[b] = c;
	}
	TAILQ_INSERT_TAIL(&nt->queue, c, link);
	pthread_cond_signal(&nt->wake);
}

static struct sf_change *take_locked(struct sf_notify *nt)
{
	struct sf_change *c = TAILQ_FIRST(&nt->queue);
	struct sf_change **at;

	if (!c)
		return NULL;
	TAILQ_REMOVE(&nt->queue, c, link);
	if (!c->node) {
		at = &nt->buckets[bucket_of(c->name)];
		while (*at != c)
			at = &(*at)->next;
		*at = c->next;
	}
	return c;
}

static void free_change(struct sf_notify *nt, struct sf_change *c)
{
	sf_segment_put(c->old_seg);
	sf_segment_put(c->new_seg);
	sf_node_put(nt->fs->nodes, c->node);
	free(c);
}

/* Without memory a change goes untold: the kernel's timeouts still end. */
static void enqueue(struct sf_notify *nt, const char *name,
		    struct sf_segment *old_seg, struct sf_segment *new_seg)
{
	struct sf_change *c;

	pthread_mutex_lock(&nt->lock);
	c = find_locked(nt, name);
	if (c) {
		sf_segment_put(c->new_seg);
		c->new_seg = get(new_seg);
	} else if (!nt->stopping && (c = new_change(name))) {
		c->old_seg = get(old_seg);
		c->new_seg = get(new_seg);
		add_locked(nt, c);
	}
	pthread_mutex_unlock(&nt->lock);
}

/* The directory's: on a worker or its watch thread. */
static void changed(void *arg, const char *name, struct sf_segment *old_seg,
		    struct sf_segment *new_seg)
{
	struct sf_notify *nt = arg;
	struct sf_node *dir;

	dir = sf_notify_segment(nt->fs, name);
	if (!dir)
		return;
	sf_node_put(nt->fs->nodes, dir);
	enqueue(nt, name, old_seg, new_seg);
}

void sf_notify_stale(struct sf_fs *fs, struct sf_node *n)
{
	struct sf_notify *nt = fs->notify;
	struct sf_change *c;

	if (n->kind != SF_NODE_BUFFER || atomic_exchange(&n->stale_told, true))
		return;
	c = new_change(sf_node_segment(n));
	if (!c)
		return;
	sf_node_hold(fs->nodes, n);
	c->node = n;
	pthread_mutex_lock(&nt->lock);
	if (nt->stopping) {
		pthread_mutex_unlock(&nt->lock);
		free_change(nt, c);
		return;
	}
	add_locked(nt, c);
	pthread_mutex_unlock(&nt->lock);
}

/* ---- the thread ---- */

static void wait_locked(struct sf_notify *nt)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WATCH_TICK_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&nt->wake, &nt->lock, &until);
}

static void *run(void *arg)
{
	struct sf_notify *nt = arg;
	uint64_t tick = 0;
	struct sf_change *c;

	pthread_setname_np(pthread_self(), "segfs-notify");
	pthread_mutex_lock(&nt->lock);
	while (!nt->stopping) {
		c = take_locked(nt);
		if (!c && sf_now_ms() < tick) {
			wait_locked(nt);
			continue;
		}
		pthread_mutex_unlock(&nt->lock);
		if (c) {
			sf_notify_tell(nt->fs, c);
			free_change(nt, c);
		}
		if (sf_now_ms() >= tick) {
			sf_notify_check_watch(nt->fs);
			tick = sf_now_ms() + WATCH_TICK_MS;
		}
		pthread_mutex_lock(&nt->lock);
	}
	nt->ended = true;
	pthread_cond_broadcast(&nt->over);
	pthread_mutex_unlock(&nt->lock);
	return NULL;
}

int sf_notify_new(struct sf_notify **out, struct sf_fs *fs)
{
	struct sf_notify *nt = calloc(1, sizeof(*nt));
	pthread_condattr_t attr;

	if (!nt)
		return -ENOMEM;
	nt->fs = fs;
	TAILQ_INIT(&nt->queue);
	pthread_mutex_init(&nt->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&nt->wake, &attr);
	pthread_cond_init(&nt->over, &attr);
	pthread_condattr_destroy(&attr);
	*out = nt;
	sf_directory_subscribe(fs->config.directory, changed, nt);
	return 0;
}

int sf_notify_start(struct sf_notify *nt)
{
	int res;

	sf_notify_check_watch(nt->fs);
	res = sf_thread_start(&nt->thread, run, nt);
	nt->started = !res;
	return res;
}

bool sf_notify_stop(struct sf_notify *nt, unsigned int wait_ms)
{
	struct timespec until;
	bool ended;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += wait_ms * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&nt->lock);
	nt->stopping = true;
	pthread_cond_broadcast(&nt->wake);
	if (nt->started && !nt->ended)
		pthread_cond_timedwait(&nt->over, &nt->lock, &until);
	ended = !nt->started || nt->ended;
	pthread_mutex_unlock(&nt->lock);
	return ended;
}

void sf_notify_free(struct sf_notify *nt)
{
	struct sf_change *c;

	if (!nt)
		return;
	sf_directory_subscribe(nt->fs->config.directory, NULL, NULL);
	sf_notify_stop(nt, 0);
	if (nt->started)
		pthread_join(nt->thread, NULL);
	while ((c = take_locked(nt)))
		free_change(nt, c);
	pthread_cond_destroy(&nt->wake);
	pthread_cond_destroy(&nt->over);
	pthread_mutex_destroy(&nt->lock);
	free(nt);
}
