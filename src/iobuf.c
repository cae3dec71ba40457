/* SPDX-License-Identifier: MIT */
/*
 * The pool of I/O buffers: one contiguous region a NUMA node, cut into buffers,
 * with a free list and a lock a node. Overflow buffers come from mmap one by
 * one, so that their untouched pages cost nothing. Knows no transport: whoever
 * registers memory asks for the regions.
 */
#include "config.h"
#include "iobuf.h"

#include <errno.h>
#include <numa.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_NODES 64
#define MIN_BUFFERS 4

struct node_list {
	pthread_mutex_t lock;
	struct sf_iobuf *idle;	/* under lock */
	unsigned int nr_idle;	/* under lock */
	int node;		/* -1 unknown */
	char *base;
	size_t len;
};

struct sf_iobuf_pool {
	struct node_list nodes[MAX_NODES];
	unsigned int nr_nodes;
	struct sf_iobuf *bufs;
	unsigned int nr_bufs;
	unsigned int share_max;	/* buffers one peer may hold */
	size_t buf_bytes;
	atomic_uint nr_overflow;
};

/* Nodes with CPUs; one nameless node where there is no NUMA support. */
static unsigned int find_nodes(int nodes[MAX_NODES])
{
	struct bitmask *cpus;
	unsigned int nr = 0;

	nodes[0] = -1;
	if (numa_available() < 0)
		return 1;
	cpus = numa_allocate_cpumask();
	for (int n = 0; n <= numa_max_node() && nr < MAX_NODES; n++)
		if (!numa_node_to_cpus(n, cpus) && numa_bitmask_weight(cpus))
			nodes[nr++] = n;
	numa_free_cpumask(cpus);
	return nr ? nr : 1;
}

static void *map_region(size_t len, int node)
{
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	madvise(base, len, MADV_HUGEPAGE);
	if (node >= 0 && numa_available() >= 0)
		numa_tonode_memory(base, len, node);
	return base;
}

static int fill_node(struct sf_iobuf_pool *pool, struct node_list *list,
		     struct sf_iobuf *bufs, unsigned int nr)
{
	list->len = nr * pool->buf_bytes;
	list->base = map_region(list->len, list->node);
	if (!list->base)
		return -ENOMEM;
	for (unsigned int i = 0; i < nr; i++) {
		bufs[i].mem = list->base + i * pool->buf_bytes;
		bufs[i].size = pool->buf_bytes;
		bufs[i].node = list->node;
		bufs[i].next = list->idle;
		list->idle = &bufs[i];
	}
	list->nr_idle = nr;
	return 0;
}

int sf_iobuf_pool_new(struct sf_iobuf_pool **out, size_t pool_bytes,
		      size_t buf_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sf_iobuf_pool *pool;
	int nodes[MAX_NODES];
	unsigned int nr, per_node, done = 0;

	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->buf_bytes = (buf_bytes + page - 1) / page * page;
	nr = find_nodes(nodes);
	per_node = (unsigned int)(pool_bytes / pool->buf_bytes / nr);
	if (per_node < MIN_BUFFERS)
		per_node = MIN_BUFFERS;
	pool->nr_bufs = nr * per_node;
	pool->share_max = pool->nr_bufs / 2;
	pool->bufs = calloc(pool->nr_bufs, sizeof(*pool->bufs));
	if (!pool->bufs)
		goto fail;
	for (; done < nr; done++) {
		struct node_list *list = &pool->nodes[done];

		pthread_mutex_init(&list->lock, NULL);
		pool->nr_nodes++;
		list->node = nodes[done];
		if (fill_node(pool, list, pool->bufs + done * per_node,
			      per_node))
			goto fail;
	}
	*out = pool;
	return 0;
fail:
	sf_iobuf_pool_free(pool);
	return -ENOMEM;
}

void sf_iobuf_pool_free(struct sf_iobuf_pool *pool)
{
	if (!pool)
		return;
	for (unsigned int i = 0; i < pool->nr_nodes; i++) {
		if (pool->nodes[i].base)
			munmap(pool->nodes[i].base, pool->nodes[i].len);
		pthread_mutex_destroy(&pool->nodes[i].lock);
	}
	free(pool->bufs);
	free(pool);
}

static struct sf_iobuf *overflow_get(struct sf_iobuf_pool *pool)
{
	struct sf_iobuf *buf = calloc(1, sizeof(*buf));

	if (!buf)
		return NULL;
	buf->mem = mmap(NULL, pool->buf_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf->mem == MAP_FAILED) {
		free(buf);
		return NULL;
	}
	buf->size = pool->buf_bytes;
	buf->node = -1;
	buf->overflow = true;
	atomic_fetch_add(&pool->nr_overflow, 1);
	return buf;
}

static struct sf_iobuf *list_get(struct node_list *list)
{
	struct sf_iobuf *buf;

	pthread_mutex_lock(&list->lock);
	buf = list->idle;
	if (buf) {
		list->idle = buf->next;
		list->nr_idle--;
	}
	pthread_mutex_unlock(&list->lock);
	return buf;
}

/* The calling thread's place in the node table. */
static unsigned int home_node(struct sf_iobuf_pool *pool)
{
	unsigned int cpu, node;

	if (pool->nr_nodes == 1 || getcpu(&cpu, &node))
		return 0;
	for (unsigned int i = 0; i < pool->nr_nodes; i++)
		if (pool->nodes[i].node == (int)node)
			return i;
	return 0;
}

struct sf_iobuf *sf_iobuf_get(struct sf_iobuf_pool *pool)
{
	unsigned int home = home_node(pool);

	for (unsigned int i = 0; i < pool->nr_nodes; i++) {
		unsigned int n = (home + i) % pool->nr_nodes;
		struct sf_iobuf *buf = list_get(&pool->nodes[n]);

		if (buf)
			return buf;
	}
	return overflow_get(pool);
}

static struct node_list *list_of(struct sf_iobuf_pool *pool,
				 const struct sf_iobuf *buf)
{
	unsigned int i = (unsigned int)(buf - pool->bufs);

	return &pool->nodes[i / (pool->nr_bufs / pool->nr_nodes)];
}

void sf_iobuf_put(struct sf_iobuf_pool *pool, struct sf_iobuf *buf)
{
	struct node_list *list;

	if (buf->share) {
		atomic_fetch_sub(&buf->share->held, 1);
		buf->share = NULL;
	}
	if (buf->overflow) {
		munmap(buf->mem, buf->size);
		free(buf);
		atomic_fetch_sub(&pool->nr_overflow, 1);
		return;
	}
	list = list_of(pool, buf);
	pthread_mutex_lock(&list->lock);
	buf->next = list->idle;
	list->idle = buf;
	list->nr_idle++;
	pthread_mutex_unlock(&list->lock);
}

struct sf_iobuf *sf_iobuf_charge(struct sf_iobuf_pool *pool,
				 struct sf_iobuf *buf, struct sf_share *share,
				 size_t off, size_t len)
{
	struct sf_iobuf *other;

	if (buf->overflow)
		return buf;	/* costs the pool nothing */
	if (atomic_fetch_add(&share->held, 1) < pool->share_max) {
		buf->share = share;
		return buf;
	}
	atomic_fetch_sub(&share->held, 1);
	other = overflow_get(pool);
	if (!other)
		return NULL;
	memcpy(other->mem + off, buf->mem + off, len);
	sf_iobuf_put(pool, buf);
	return other;
}

bool sf_iobuf_region(struct sf_iobuf_pool *pool, unsigned int i, void **base,
		     size_t *len, int *node)
{
	if (i >= pool->nr_nodes)
		return false;
	*base = pool->nodes[i].base;
	*len = pool->nodes[i].len;
	*node = pool->nodes[i].node;
	return true;
}

void sf_iobuf_stats(struct sf_iobuf_pool *pool, struct sf_iobuf_stats *st)
{
	st->total = pool->nr_bufs;
	st->free = 0;
	for (unsigned int i = 0; i < pool->nr_nodes; i++) {
		struct node_list *list = &pool->nodes[i];

		pthread_mutex_lock(&list->lock);
		st->free += list->nr_idle;
		pthread_mutex_unlock(&list->lock);
	}
	st->overflow = atomic_load(&pool->nr_overflow);
}
