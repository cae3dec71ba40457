/* SPDX-License-Identifier: MIT */
/*
 * The table of names. An entry lives while anything is going on with it; one
 * that is idle goes when nobody asked for it in a long time and nobody else
 * holds its snapshot. Everything with the directory's lock held.
 */
#include "config.h"
#include "directory_int.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "segment.h"

#define SWEEP_EVERY_MS	30000
#define KNOWN_KEPT_MS	(15 * 60000)
#define MISSING_KEPT_MS 60000
#define NR_MISSING_MAX	4096

uint64_t sf_directory_now(void)
{
	uint64_t now = sf_now_ms();

	return now ? now : 1;
}

/* FNV-1a */
static struct bucket *bucket_of(struct sf_directory *dir, const char *name)
{
	uint32_t hash = 2166136261u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 16777619u;
	return &dir->buckets[hash % SF_DIRECTORY_NR_BUCKETS];
}

struct entry *sf_directory_find(struct sf_directory *dir, const char *name)
{
	struct entry *e;

	LIST_FOREACH (e, bucket_of(dir, name), hash_link)
		if (!strcmp(e->name, name))
			return e;
	return NULL;
}

struct entry *sf_directory_add(struct sf_directory *dir, const char *name)
{
	size_t len = strlen(name) + 1;
	struct entry *e = calloc(1, sizeof(*e) + len);

	if (!e)
		return NULL;
	memcpy(e->name, name, len);
	e->dir = dir;
	STAILQ_INIT(&e->now);
	STAILQ_INIT(&e->next);
	LIST_INSERT_HEAD(bucket_of(dir, name), e, hash_link);
	dir->nr_entries++;
	return e;
}

static void count(struct sf_directory *dir, const struct sf_segment *seg,
		  uint64_t times)
{
	if (!seg)
		return;
	dir->nr_known += times;
	dir->nr_buffers += times * seg->nr_buffers;
	dir->nr_bytes += times * seg->total_bytes;
}

void sf_directory_put_segment(struct entry *e, struct sf_segment *seg)
{
	count(e->dir, e->seg, -1ull);
	count(e->dir, seg, 1);
	e->seg = seg;
}

static void drop(struct entry *e)
{
	struct sf_directory *dir = e->dir;
	struct sf_segment *seg = e->seg;

	LIST_REMOVE(e, hash_link);
	if (e->in_refresh)
		TAILQ_REMOVE(&dir->refresh, e, refresh_link);
	dir->nr_entries--;
	sf_directory_put_segment(e, NULL);
	sf_segment_put(seg);
	free(e);
}

static bool may_go(const struct entry *e, uint64_t unused_ms, bool crowded)
{
	if (e->state != PULL_IDLE)
		return false;
	if (e->seg)
		return unused_ms > KNOWN_KEPT_MS &&
		       !sf_segment_is_shared(e->seg);
	return unused_ms >
	       (crowded ? e->dir->negative_ttl_ms : MISSING_KEPT_MS);
}

/* Names that were never there are cheap to ask for: keep their number small. */
void sf_directory_sweep(struct sf_directory *dir)
{
	bool crowded = dir->nr_entries - dir->nr_known > NR_MISSING_MAX;
	uint64_t now = sf_directory_now();
	struct entry *e, *next;
	size_t i;

	if (now - dir->swept_ms < (crowded ? 1000 : SWEEP_EVERY_MS))
		return;
	dir->swept_ms = now;
	for (i = 0; i < SF_DIRECTORY_NR_BUCKETS; i++) {
		for (e = LIST_FIRST(&dir->buckets[i]); e; e = next) {
			next = LIST_NEXT(e, hash_link);
			if (may_go(e, now - e->asked_ms, crowded))
				drop(e);
		}
	}
}

void sf_directory_clear(struct sf_directory *dir)
{
	size_t i;

	for (i = 0; i < SF_DIRECTORY_NR_BUCKETS; i++)
		while (!LIST_EMPTY(&dir->buckets[i]))
			drop(LIST_FIRST(&dir->buckets[i]));
}
