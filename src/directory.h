/* SPDX-License-Identifier: MIT */
/*
 * Names to segments: the cache of snapshots, its freshness rules
 * (architecture.md section 5), listing, and change events.
 *
 * A snapshot is fresh for ttl_ms after its pull, or, while the store's watch
 * stands, until the watch says otherwise. Pulls run on workers, one at a time a
 * name (others wait for the same one). When the store is unreachable a known
 * segment goes on being served from its last snapshot. Thread-safe.
 */
#ifndef SF_DIRECTORY_H
#define SF_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_directory;
struct sf_err;
struct sf_meta;
struct sf_segment;
struct sf_workers;

struct sf_directory_config {
	struct sf_meta *meta;		/* borrowed; outlives the directory */
	struct sf_workers *workers;	/* borrowed; outlives the directory */
	unsigned int ttl_ms;		/* freshness without a watch */
	unsigned int negative_ttl_ms;	/* how long a name stays missing */
	bool watch;			/* watch if the store can */
};

/* RES 0: SEG is a borrowed reference (get one to keep it). Else RES is the
 * errno of sf_meta_get() and SEG is NULL. */
typedef void sf_directory_lookup_fn(void *arg, int res,
				    struct sf_segment *seg);

/* The newest snapshot of NAME changed from OLD to NEW (either may be NULL:
 * appeared, vanished), byte for byte; the first answer about a name is no
 * change. Called without locks, on a worker or the watch thread,
 * in order for each name; must not block. */
typedef void sf_directory_change_fn(void *arg, const char *name,
				    struct sf_segment *old_seg,
				    struct sf_segment *new_seg);

int sf_directory_new(struct sf_directory **out,
		     const struct sf_directory_config *config,
		     struct sf_err *err);
/* Call when no lookup is outstanding. NULL is fine. */
void sf_directory_free(struct sf_directory *dir);

/* One subscriber; set before the first lookup. FN NULL ends it: when this
 * returns no call is under way (not from within one). */
void sf_directory_subscribe(struct sf_directory *dir,
			    sf_directory_change_fn *fn, void *arg);

/*
 * Look NAME up and call FN exactly once: before this returns, on this thread,
 * when the cache can answer; otherwise from a worker. MAX_AGE_MS further limits
 * how old an answer may be: 0 forces a pull that begins after this call (or
 * joins one that has not been sent yet); UINT_MAX takes the cache's own rule.
 * With the store unreachable and a snapshot known, RES is 0 unless MAX_AGE_MS
 * was 0: then it is the store's error.
 */
void sf_directory_lookup(struct sf_directory *dir, const char *name,
			 unsigned int max_age_ms, sf_directory_lookup_fn *fn,
			 void *arg);

/* The newest snapshot without asking anybody; a reference, or NULL. */
struct sf_segment *sf_directory_peek(struct sf_directory *dir,
				     const char *name);

/* Grows whenever any name's newest snapshot changes: one relaxed load tells a
 * hot path that nothing it has seen so far can be outdated. */
uint64_t sf_directory_generation(const struct sf_directory *dir);

/* A listing: sorted names, each once; immutable. */
struct sf_directory_list {
	size_t nr;
	char **names;
};
/* Ask the store (blocks: worker threads only). Names with rpc_meta alone are
 * left out. Stores that cannot list give the names used so far. When the store
 * is unreachable: its error. */
int sf_directory_list(struct sf_directory *dir, struct sf_directory_list **out,
		      struct sf_err *err);
void sf_directory_list_free(struct sf_directory_list *list);

/* For status files and tests. */
struct sf_directory_info {
	bool watched;		/* the watch stands: trust until told */
	char text[256];		/* why the watch is lost, or the last store
				 * error; "" */
	uint64_t pulls;		/* documents asked for since the start */
	size_t known;		/* names with a snapshot */
	uint64_t nr_buffers;	/* in those snapshots together */
	uint64_t nr_bytes;	/* and their lengths */
};
void sf_directory_info(struct sf_directory *dir,
		       struct sf_directory_info *info);
/* Of one name: age of its snapshot in ms and the error of the last pull (0 if
 * it worked). False: nothing known. */
bool sf_directory_age(struct sf_directory *dir, const char *name,
		      uint64_t *age_ms, int *last_error);

#endif
