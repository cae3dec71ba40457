/* SPDX-License-Identifier: MIT */
/*
 * The endpoints of an acceptor (see acceptor_table.h).
 *
 *	request of a pair	its endpoint		then
 *	any			none			BUILDING -> READY
 *	same QP numbers		READY			the same answer again
 *	other QP numbers	READY			dropped, BUILDING anew
 *	any			BUILDING		wait, look again
 *
 * An endpoint stands in the table until it is dropped: by a newer one of its
 * pair, as the oldest of too many, or because its QPs failed. A target does
 * not see its peers' traffic, so the oldest is the one connected longest ago.
 * Dropped ones are unmade by a thread of their own, since that may wait for
 * the callbacks that found them failed. They count until they are gone: who
 * connects faster than QPs end has to wait for them.
 *
 * The lock guards the table and the states; make and unmake run without it.
 */
#include "config.h"
#include "rdma/acceptor_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "thread.h"

#define BUCKETS 1024

enum state {
	ENDPOINT_BUILDING,
	ENDPOINT_READY,
	ENDPOINT_DROPPED,	/* out of the table, to be unmade */
};

struct sf_endpoint {
	LIST_ENTRY(sf_endpoint) in_bucket;
	TAILQ_ENTRY(sf_endpoint) link;	/* of a NIC, by age; of trash */
	enum state state;		/* under the lock */
	bool failed;			/* under the lock */
	unsigned int nic;
	void *qps;
	uint32_t nr_qps;
	uint32_t *peer_qp_num;
	uint8_t peer_gid[SF_GID_BYTES];
	uint16_t peer_lid;
	struct sf_acceptor_local local;
	char peer_path[];
};

TAILQ_HEAD(endpoint_list, sf_endpoint);

struct nic {
	struct endpoint_list endpoints;
	unsigned int nr_qps;		/* of all of them */
	unsigned int nr_trashed;	/* QPs of those to be unmade */
};

struct sf_acceptor {
	struct sf_acceptor_config config;
	pthread_mutex_t lock;
	pthread_cond_t settled;		/* an endpoint is no more BUILDING, or
					 * is gone */
	pthread_cond_t work;		/* trash or stop */
	LIST_HEAD(, sf_endpoint) table[BUCKETS];
	struct endpoint_list trash;
	unsigned int nr_endpoints;	/* in the table */
	bool stop;
	pthread_t thread;
	bool running;
	struct nic nics[];
};

/* ---- the table; the lock is held ---- */

static unsigned int bucket_of(unsigned int nic, const char *path)
{
	uint32_t h = 2166136261u ^ nic;

	for (; *path; path++)
		h = (h ^ (unsigned char)*path) * 16777619u;
	return (h ^ h >> 16) % BUCKETS;
}

static struct sf_endpoint *find(struct sf_acceptor *a, unsigned int nic,
				const char *path)
{
	struct sf_endpoint *e;

	LIST_FOREACH(e, &a->table[bucket_of(nic, path)], in_bucket)
		if (e->nic == nic && !strcmp(e->peer_path, path))
			return e;
	return NULL;
}

static void insert(struct sf_acceptor *a, struct sf_endpoint *e)
{
	struct nic *nic = &a->nics[e->nic];

	LIST_INSERT_HEAD(&a->table[bucket_of(e->nic, e->peer_path)], e,
			 in_bucket);
	TAILQ_INSERT_TAIL(&nic->endpoints, e, link);
	nic->nr_qps += e->nr_qps;
	a->nr_endpoints++;
}

static void take_out(struct sf_acceptor *a, struct sf_endpoint *e)
{
	struct nic *nic = &a->nics[e->nic];

	LIST_REMOVE(e, in_bucket);
	TAILQ_REMOVE(&nic->endpoints, e, link);
	nic->nr_qps -= e->nr_qps;
	a->nr_endpoints--;
	e->state = ENDPOINT_DROPPED;
}

static void drop(struct sf_acceptor *a, struct sf_endpoint *e)
{
	take_out(a, e);
	a->nics[e->nic].nr_trashed += e->nr_qps;
	TAILQ_INSERT_TAIL(&a->trash, e, link);
	pthread_cond_signal(&a->work);
}

/* Drop the oldest until NIC has MAX QPs; those being built stay. */
static void trim(struct sf_acceptor *a, unsigned int nic, unsigned int max)
{
	struct sf_endpoint *e, *next;

	for (e = TAILQ_FIRST(&a->nics[nic].endpoints);
	     e && a->nics[nic].nr_qps > max; e = next) {
		next = TAILQ_NEXT(e, link);
		if (e->state == ENDPOINT_READY)
			drop(a, e);
	}
}

/* Until NIC has MAX QPs at most, or no more are about to go. */
static void wait_for_trash(struct sf_acceptor *a, unsigned int nic,
			   unsigned int max)
{
	const struct nic *n = &a->nics[nic];

	while (n->nr_trashed && n->nr_qps + n->nr_trashed > max)
		pthread_cond_wait(&a->settled, &a->lock);
}

static void fail_locked(struct sf_acceptor *a, struct sf_endpoint *e)
{
	e->failed = true;
	if (e->state == ENDPOINT_READY)
		drop(a, e);
}

void sf_acceptor_failed(struct sf_acceptor *a, struct sf_endpoint *e)
{
	pthread_mutex_lock(&a->lock);
	fail_locked(a, e);
	pthread_mutex_unlock(&a->lock);
}

void sf_acceptor_nic_failed(struct sf_acceptor *a, unsigned int nic)
{
	struct sf_endpoint *e, *next;

	pthread_mutex_lock(&a->lock);
	for (e = TAILQ_FIRST(&a->nics[nic].endpoints); e; e = next) {
		next = TAILQ_NEXT(e, link);
		fail_locked(a, e);
	}
	pthread_mutex_unlock(&a->lock);
}

unsigned int sf_acceptor_count(struct sf_acceptor *a)
{
	unsigned int nr;

	pthread_mutex_lock(&a->lock);
	nr = a->nr_endpoints;
	pthread_mutex_unlock(&a->lock);
	return nr;
}

/* ---- unmaking ---- */

static void endpoint_free(struct sf_acceptor *a, struct sf_endpoint *e)
{
	if (e->qps)
		a->config.ops->unmake(a->config.arg, e->qps);
	free(e->peer_qp_num);
	free(e);
}

static void *run(void *arg)
{
	struct sf_acceptor *a = arg;
	struct sf_endpoint *e;
	struct nic *nic;
	uint32_t nr;

	pthread_setname_np(pthread_self(), "sf-endpoints");
	pthread_mutex_lock(&a->lock);
	for (;;) {
		while (!(e = TAILQ_FIRST(&a->trash)) && !a->stop)
			pthread_cond_wait(&a->work, &a->lock);
		if (!e)
			break;
		TAILQ_REMOVE(&a->trash, e, link);
		nic = &a->nics[e->nic];
		nr = e->nr_qps;
		pthread_mutex_unlock(&a->lock);
		endpoint_free(a, e);
		pthread_mutex_lock(&a->lock);
		nic->nr_trashed -= nr;
		pthread_cond_broadcast(&a->settled);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static int start_thread(struct sf_acceptor *a)
{
	int res = sf_thread_start(&a->thread, run, a);

	a->running = res == 0;
	return res;
}

int sf_acceptor_new(struct sf_acceptor **out,
		    const struct sf_acceptor_config *config)
{
	struct sf_acceptor *a = calloc(1, sizeof(*a) + config->nr_nics *
						       sizeof(a->nics[0]));
	int res;

	if (!a)
		return -ENOMEM;
	a->config = *config;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->settled, NULL);
	pthread_cond_init(&a->work, NULL);
	TAILQ_INIT(&a->trash);
	for (unsigned int i = 0; i < config->nr_nics; i++)
		TAILQ_INIT(&a->nics[i].endpoints);
	res = start_thread(a);
	if (res < 0)
		sf_acceptor_free(a);
	else
		*out = a;
	return res;
}

void sf_acceptor_stop(struct sf_acceptor *a)
{
	for (unsigned int i = 0; i < a->config.nr_nics; i++)
		sf_acceptor_nic_failed(a, i);
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_signal(&a->work);
	pthread_mutex_unlock(&a->lock);
	if (a->running)
		pthread_join(a->thread, NULL);
	a->running = false;
}

void sf_acceptor_free(struct sf_acceptor *a)
{
	if (!a)
		return;
	sf_acceptor_stop(a);
	pthread_cond_destroy(&a->work);
	pthread_cond_destroy(&a->settled);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* ---- from a request to an endpoint ---- */

static bool same_qps(const struct sf_endpoint *e,
		     const struct sf_handshake_rdma *request)
{
	return e->nr_qps == request->nr_qps &&
	       !memcmp(e->peer_qp_num, request->qp_num,
		       e->nr_qps * sizeof(e->peer_qp_num[0]));
}

/* The numbers alone may come back by chance, after a restart elsewhere. */
static bool same_peer(const struct sf_endpoint *e,
		      const struct sf_handshake_rdma *request,
		      const struct sf_acceptor_remote *remote)
{
	return same_qps(e, request) && e->peer_lid == remote->lid &&
	       !memcmp(e->peer_gid, remote->gid, sizeof(e->peer_gid));
}

bool sf_acceptor_is_connected(struct sf_acceptor *a, unsigned int nic,
			      const struct sf_handshake_rdma *request)
{
	struct sf_endpoint *e;
	bool known;

	pthread_mutex_lock(&a->lock);
	e = find(a, nic, request->local_nic_path);
	known = e && e->state == ENDPOINT_READY && same_qps(e, request);
	pthread_mutex_unlock(&a->lock);
	return known;
}

static struct sf_endpoint *
endpoint_new(unsigned int nic, const struct sf_handshake_rdma *request,
	     const struct sf_acceptor_remote *remote)
{
	size_t path_len = strlen(request->local_nic_path) + 1;
	size_t nums_len = request->nr_qps * sizeof(uint32_t);
	struct sf_endpoint *e = calloc(1, sizeof(*e) + path_len);

	if (!e)
		return NULL;
	e->peer_qp_num = malloc(nums_len);
	if (!e->peer_qp_num) {
		free(e);
		return NULL;
	}
	e->nic = nic;
	e->nr_qps = request->nr_qps;
	e->peer_lid = remote->lid;
	memcpy(e->peer_gid, remote->gid, sizeof(e->peer_gid));
	memcpy(e->peer_qp_num, request->qp_num, nums_len);
	memcpy(e->peer_path, request->local_nic_path, path_len);
	return e;
}

/* OLD, the pair's endpoint if it has one, is not REQUEST's: a new one. */
static struct sf_endpoint *replace(struct sf_acceptor *a, unsigned int nic,
				   const struct sf_handshake_rdma *request,
				   const struct sf_acceptor_remote *remote,
				   struct sf_endpoint *old)
{
	unsigned int max = a->config.nics[nic].max_qps;
	struct sf_endpoint *e;

	if (old)
		drop(a, old);
	e = endpoint_new(nic, request, remote);
	if (e) {
		insert(a, e);
		trim(a, nic, max);
		wait_for_trash(a, nic, max);
	}
	return e;
}

int sf_acceptor_take_place(struct sf_acceptor *a, unsigned int nic,
			   const struct sf_handshake_rdma *request,
			   const struct sf_acceptor_remote *remote,
			   struct sf_acceptor_local *local,
			   struct sf_endpoint **out)
{
	struct sf_endpoint *e;
	int res = 0;

	pthread_mutex_lock(&a->lock);
	while ((e = find(a, nic, request->local_nic_path)) &&
	       e->state == ENDPOINT_BUILDING)
		pthread_cond_wait(&a->settled, &a->lock);
	if (e && same_peer(e, request, remote)) {
		*local = e->local;
		*out = NULL;
	} else {
		*out = replace(a, nic, request, remote, e);
		res = *out ? 0 : -ENOMEM;
	}
	pthread_mutex_unlock(&a->lock);
	return res;
}

/* A device may have less room than it says, or share it with others: what E
 * needs is taken from the oldest, then. False: there is none. */
static bool spare(struct sf_acceptor *a, const struct sf_endpoint *e)
{
	const struct nic *n = &a->nics[e->nic];
	unsigned int had, all;

	pthread_mutex_lock(&a->lock);
	had = n->nr_qps;
	all = had + n->nr_trashed;
	trim(a, e->nic, had - e->nr_qps);
	had -= n->nr_qps;
	wait_for_trash(a, e->nic, all - e->nr_qps);
	pthread_mutex_unlock(&a->lock);
	return had;
}

static void build(struct sf_acceptor *a, struct sf_endpoint *e,
		  const struct sf_acceptor_remote *remote, struct sf_err *err)
{
	const struct sf_acceptor_config *c = &a->config;
	int res = c->ops->make(c->arg, e->nic, remote, e, &e->local, &e->qps,
			       err);

	if (res == -ENOMEM && spare(a, e)) {
		*err = (struct sf_err){ 0 };
		c->ops->make(c->arg, e->nic, remote, e, &e->local, &e->qps,
			     err);
	}
}

void sf_acceptor_build(struct sf_acceptor *a, struct sf_endpoint *e,
		       const struct sf_acceptor_remote *remote,
		       struct sf_acceptor_local *local, struct sf_err *err)
{
	build(a, e, remote, err);
	pthread_mutex_lock(&a->lock);
	if (!err->code && e->failed)
		sf_err_set(err, -ECONNRESET, "the queue pairs failed at once");
	if (err->code) {
		drop(a, e);
	} else {
		e->state = ENDPOINT_READY;
		*local = e->local;
	}
	pthread_cond_broadcast(&a->settled);
	pthread_mutex_unlock(&a->lock);
}

const struct sf_acceptor_config *sf_acceptor_config(const struct sf_acceptor *a)
{
	return &a->config;
}
