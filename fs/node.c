/* SPDX-License-Identifier: MIT */
/*
 * The inode table: a hash table in shards, each with its lock. The two low bits
 * of a number are left out of the hash; they tell up to four identities with
 * the same hash apart, so all rivals for a number sit in one bucket.
 *
 * Knows nothing of FUSE, of what a kind means, or of the segments.
 */
#include "config.h"
#include "fs/node.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "fs/gap.h"

#define NR_SHARDS    16u
#define BUCKETS_MIN  16u
#define RIVALS	     4u

struct shard {
	pthread_mutex_t lock;
	struct sf_node **buckets;
	size_t nr_buckets;	/* a power of two */
	size_t nr;
};

struct sf_nodes {
	uint64_t (*hash)(const struct sf_node_key *key);
	struct shard shards[NR_SHARDS];
};

static uint64_t feed(uint64_t h, const void *data, size_t len)
{
	const unsigned char *p = data;

	while (len--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}

/* FNV-1a, then mixed so that the low bits depend on everything. */
static uint64_t hash_key(const struct sf_node_key *key)
{
	uint64_t h = 0xcbf29ce484222325u;
	unsigned char kind = (unsigned char)key->kind;

	h = feed(h, &kind, 1);
	h = feed(h, key->segment, strlen(key->segment) + 1);
	h = feed(h, key->place, strlen(key->place) + 1);
	h = feed(h, &key->addr, sizeof(key->addr));
	h = feed(h, &key->length, sizeof(key->length));
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
	return h ^ (h >> 31);
}

/* The first of the numbers KEY may have; 0..3 are the root's. */
static uint64_t first_number(const struct sf_nodes *t,
			     const struct sf_node_key *key)
{
	uint64_t h = t->hash(key) & ~(uint64_t)(RIVALS - 1);

	return h ? h : RIVALS;
}

static struct shard *shard_of(struct sf_nodes *t, uint64_t id)
{
	return &t->shards[(id >> 2) % NR_SHARDS];
}

static struct sf_node **bucket_of(struct shard *s, uint64_t id)
{
	return &s->buckets[(id >> 6) & (s->nr_buckets - 1)];
}

const char *sf_node_segment(const struct sf_node *n)
{
	return n->segment ? n->segment->data : "";
}

const char *sf_node_place(const struct sf_node *n)
{
	return n->place ? n->place->data : "";
}

struct sf_node_key sf_node_key(const struct sf_node *n)
{
	return (struct sf_node_key){
		.kind = n->kind,
		.segment = sf_node_segment(n),
		.place = sf_node_place(n),
		.addr = n->addr,
		.length = n->length,
	};
}

static bool is_it(const struct sf_node *n, const struct sf_node_key *key)
{
	return n->kind == key->kind && n->addr == key->addr &&
	       n->length == key->length &&
	       !strcmp(sf_node_segment(n), key->segment) &&
	       !strcmp(sf_node_place(n), key->place);
}

static void free_node(struct sf_node *n)
{
	sf_gap_free(atomic_load(&n->gap));
	sf_blob_put(n->segment);
	sf_blob_put(n->place);
	free(n);
}

static int name_blob(const char *name, struct sf_blob *near,
		     struct sf_blob **out)
{
	if (!*name)
		return 0;
	if (near && !strcmp(near->data, name))
		*out = sf_blob_get(near);
	else
		*out = sf_blob_new(name, strlen(name));
	return *out ? 0 : -ENOMEM;
}

static struct sf_node *make_node(const struct sf_node_key *key, uint64_t id,
				 const struct sf_node *near)
{
	struct sf_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->id = id;
	n->kind = key->kind;
	n->addr = key->addr;
	n->length = key->length;
	n->refs = 1;
	if (name_blob(key->segment, near ? near->segment : NULL,
		      &n->segment) ||
	    name_blob(key->place, near ? near->place : NULL, &n->place)) {
		free_node(n);
		return NULL;
	}
	return n;
}

int sf_nodes_new(struct sf_nodes **out,
		 uint64_t (*hash)(const struct sf_node_key *key))
{
	struct sf_nodes *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->hash = hash ? hash : hash_key;
	for (size_t i = 0; i < NR_SHARDS; i++)
		pthread_mutex_init(&t->shards[i].lock, NULL);
	for (size_t i = 0; i < NR_SHARDS; i++) {
		struct shard *s = &t->shards[i];

		s->nr_buckets = BUCKETS_MIN;
		s->buckets = calloc(BUCKETS_MIN, sizeof(struct sf_node *));
		if (!s->buckets) {
			sf_nodes_free(t);
			return -ENOMEM;
		}
	}
	*out = t;
	return 0;
}

void sf_nodes_free(struct sf_nodes *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < NR_SHARDS; i++) {
		struct shard *s = &t->shards[i];

		for (size_t b = 0; s->buckets && b < s->nr_buckets; b++)
			while (s->buckets[b]) {
				struct sf_node *n = s->buckets[b];

				s->buckets[b] = n->next;
				free_node(n);
			}
		free(s->buckets);
		pthread_mutex_destroy(&s->lock);
	}
	free(t);
}

/* Keeps chains short; without memory they only get longer. */
static void grow_locked(struct shard *s)
{
	size_t old = s->nr_buckets;
	struct sf_node **from = s->buckets;
	struct sf_node **to;

	if (s->nr < old)
		return;
	to = calloc(old * 2, sizeof(struct sf_node *));
	if (!to)
		return;
	s->buckets = to;
	s->nr_buckets = old * 2;
	for (size_t b = 0; b < old; b++)
		while (from[b]) {
			struct sf_node *n = from[b];
			struct sf_node **at = bucket_of(s, n->id);

			from[b] = n->next;
			n->next = *at;
			*at = n;
		}
	free(from);
}

static struct sf_node *find_locked(struct shard *s, uint64_t first,
				   const struct sf_node_key *key,
				   unsigned int *taken)
{
	struct sf_node *n;

	*taken = 0;
	for (n = *bucket_of(s, first); n; n = n->next) {
		if (n->id - first >= RIVALS)
			continue;
		if (is_it(n, key))
			return n;
		*taken |= 1u << (n->id - first);
	}
	return NULL;
}

struct sf_node *sf_node_get(struct sf_nodes *t, uint64_t id)
{
	struct shard *s = shard_of(t, id);
	struct sf_node *n;

	pthread_mutex_lock(&s->lock);
	for (n = *bucket_of(s, id); n && n->id != id; n = n->next)
		;
	if (n)
		n->refs++;
	pthread_mutex_unlock(&s->lock);
	return n;
}

struct sf_node *sf_node_find(struct sf_nodes *t, const struct sf_node_key *key)
{
	uint64_t first;
	struct shard *s;
	struct sf_node *n;
	unsigned int taken;

	if (key->kind == SF_NODE_ROOT)
		return sf_node_get(t, SF_NODE_ROOT_ID);
	first = first_number(t, key);
	s = shard_of(t, first);
	pthread_mutex_lock(&s->lock);
	n = find_locked(s, first, key, &taken);
	if (n)
		n->refs++;
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void insert_locked(struct shard *s, struct sf_node *n)
{
	struct sf_node **at;

	grow_locked(s);
	at = bucket_of(s, n->id);
	n->next = *at;
	*at = n;
	s->nr++;
}

int sf_node_obtain(struct sf_nodes *t, const struct sf_node_key *key,
		   const struct sf_node *near, struct sf_node **out)
{
	bool root = key->kind == SF_NODE_ROOT;
	uint64_t first = root ? 0 : first_number(t, key);
	struct shard *s = shard_of(t, first);
	unsigned int taken, i;
	struct sf_node *n;
	int res = 0;

	pthread_mutex_lock(&s->lock);
	n = find_locked(s, first, key, &taken);
	if (n) {
		n->refs++;
	} else {
		for (i = root; i < RIVALS && taken >> i & 1; i++)
			;
		n = i < RIVALS ? make_node(key, first + i, near) : NULL;
		if (n)
			insert_locked(s, n);
		else
			res = i < RIVALS ? -ENOMEM : -EEXIST;
	}
	pthread_mutex_unlock(&s->lock);
	if (!res)
		*out = n;
	return res;
}

void sf_node_hold(struct sf_nodes *t, struct sf_node *n)
{
	struct shard *s = shard_of(t, n->id);

	pthread_mutex_lock(&s->lock);
	n->refs++;
	pthread_mutex_unlock(&s->lock);
}

/* Out of the table when nobody holds it any more; the caller frees it. */
static bool unused_locked(struct shard *s, struct sf_node *n)
{
	struct sf_node **at = bucket_of(s, n->id);

	if (n->refs || n->nr_lookups)
		return false;
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	s->nr--;
	return true;
}

void sf_node_put(struct sf_nodes *t, struct sf_node *n)
{
	struct shard *s;
	bool unused;

	if (!n)
		return;
	s = shard_of(t, n->id);
	pthread_mutex_lock(&s->lock);
	n->refs--;
	unused = unused_locked(s, n);
	pthread_mutex_unlock(&s->lock);
	if (unused)
		free_node(n);
}

void sf_node_looked_up(struct sf_nodes *t, struct sf_node *n)
{
	struct shard *s = shard_of(t, n->id);

	pthread_mutex_lock(&s->lock);
	n->nr_lookups++;
	pthread_mutex_unlock(&s->lock);
}

void sf_node_forget(struct sf_nodes *t, uint64_t id, uint64_t nr)
{
	struct sf_node *n = sf_node_get(t, id);
	struct shard *s = shard_of(t, id);

	if (!n)
		return;
	pthread_mutex_lock(&s->lock);
	n->nr_lookups -= nr < n->nr_lookups ? nr : n->nr_lookups;
	pthread_mutex_unlock(&s->lock);
	sf_node_put(t, n);
}

uint64_t sf_node_number(struct sf_nodes *t, const struct sf_node_key *key)
{
	struct sf_node *n = sf_node_find(t, key);
	uint64_t id;

	if (!n)
		return first_number(t, key);
	id = n->id;
	sf_node_put(t, n);
	return id;
}

size_t sf_nodes_count(struct sf_nodes *t)
{
	size_t nr = 0;

	for (size_t i = 0; i < NR_SHARDS; i++) {
		pthread_mutex_lock(&t->shards[i].lock);
		nr += t->shards[i].nr;
		pthread_mutex_unlock(&t->shards[i].lock);
	}
	return nr;
}

/* References to all of one shard's nodes. */
static int collect(struct shard *s, struct sf_node ***out, size_t *nr)
{
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	*out = calloc(s->nr + 1, sizeof(struct sf_node *));
	for (size_t b = 0; *out && b < s->nr_buckets; b++)
		for (struct sf_node *i = s->buckets[b]; i; i = i->next) {
			i->refs++;
			(*out)[n++] = i;
		}
	pthread_mutex_unlock(&s->lock);
	*nr = n;
	return *out ? 0 : -ENOMEM;
}

int sf_nodes_each(struct sf_nodes *t,
		  void (*fn)(void *arg, struct sf_node *n), void *arg)
{
	for (size_t i = 0; i < NR_SHARDS; i++) {
		struct sf_node **list;
		size_t nr;
		int res = collect(&t->shards[i], &list, &nr);

		if (res)
			return res;
		for (size_t k = 0; k < nr; k++)
			fn(arg, list[k]);
		free(list);
	}
	return 0;
}
