/* SPDX-License-Identifier: MIT */
/*
 * Host name lookups of the TCP transport. The system's resolver blocks, for
 * half a minute when name servers are dead, and cannot be interrupted: each
 * lookup has a detached thread, which shares nothing but a small counted object
 * with who asked, so that nobody ever waits for it.
 */
#include "config.h"
#include "tcp/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "net.h"
#include "thread.h"

#define RUNNING_MAX 64

struct sf_tcp_lookups {
	atomic_uint refs;
	atomic_uint running;
};

struct sf_tcp_lookup {
	struct sf_tcp_lookups *all;
	atomic_uint refs;	/* the thread's and the asker's */
	uint16_t port;
	pthread_mutex_t lock;	/* held while fn runs */
	void (*fn)(void *arg, struct addrinfo *list, const struct sf_err *err);
	void *arg;		/* fn and arg: under lock; fn NULL: ended */
	char host[];
};

int sf_tcp_lookups_new(struct sf_tcp_lookups **out)
{
	struct sf_tcp_lookups *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	atomic_init(&all->refs, 1);
	*out = all;
	return 0;
}

void sf_tcp_lookups_free(struct sf_tcp_lookups *all)
{
	if (all && atomic_fetch_sub(&all->refs, 1) == 1)
		free(all);
}

void sf_tcp_lookup_put(struct sf_tcp_lookup *l)
{
	if (atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	sf_tcp_lookups_free(l->all);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static void *lookup_thread(void *arg)
{
	struct sf_tcp_lookup *l = arg;
	struct addrinfo *list = NULL;
	struct sf_err err = { 0 };

	sf_net_resolve(l->host, l->port, &list, &err);
	atomic_fetch_sub(&l->all->running, 1);
	pthread_mutex_lock(&l->lock);
	if (l->fn)
		l->fn(l->arg, list, &err);
	else if (list)
		freeaddrinfo(list);
	pthread_mutex_unlock(&l->lock);
	sf_tcp_lookup_put(l);
	return NULL;
}

static int start_detached(struct sf_tcp_lookup *l)
{
	pthread_t thread;
	int res = sf_thread_start(&thread, lookup_thread, l);

	if (!res)
		pthread_detach(thread);
	return res;
}

static struct sf_tcp_lookup *lookup_new(struct sf_tcp_lookups *all,
					const char *host, uint16_t port)
{
	size_t len = strlen(host) + 1;
	struct sf_tcp_lookup *l = calloc(1, sizeof(*l) + len);

	if (!l)
		return NULL;
	atomic_fetch_add(&all->refs, 1);
	l->all = all;
	atomic_init(&l->refs, 2);
	l->port = port;
	pthread_mutex_init(&l->lock, NULL);
	memcpy(l->host, host, len);
	return l;
}

int sf_tcp_lookup_start(struct sf_tcp_lookups *all, const char *host,
			uint16_t port,
			void (*fn)(void *arg, struct addrinfo *list,
				   const struct sf_err *err),
			void *arg, struct sf_tcp_lookup **out)
{
	struct sf_tcp_lookup *l;

	if (atomic_fetch_add(&all->running, 1) >= RUNNING_MAX) {
		atomic_fetch_sub(&all->running, 1);
		return -EAGAIN;
	}
	l = lookup_new(all, host, port);
	if (!l) {
		atomic_fetch_sub(&all->running, 1);
		return -ENOMEM;
	}
	l->fn = fn;
	l->arg = arg;
	*out = l;
	if (start_detached(l) == 0)
		return 0;
	atomic_fetch_sub(&all->running, 1);
	*out = NULL;
	sf_tcp_lookup_put(l);
	sf_tcp_lookup_put(l);
	return -EAGAIN;
}

void sf_tcp_lookup_end(struct sf_tcp_lookup *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->fn = NULL;
	pthread_mutex_unlock(&l->lock);
	sf_tcp_lookup_put(l);
}
