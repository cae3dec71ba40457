/* SPDX-License-Identifier: MIT */
/*
 * Inside the directory:
 *
 *	directory.c		what callers see: lookups, events, status
 *	directory_table.c	entries by name, and which ones may go
 *	directory_pull.c	asking the store about one name
 *	directory_list.c	listings
 *
 * One lock guards everything below that is not constant; it is never held over
 * a question to the store or a callback. It is taken before the lock of the
 * workers' queue.
 */
#ifndef SF_DIRECTORY_INT_H
#define SF_DIRECTORY_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "directory.h"
#include "err.h"

#define SF_DIRECTORY_NR_BUCKETS 4096

/* A lookup that waits for a pull. */
struct waiter {
	STAILQ_ENTRY(waiter) link;
	sf_directory_lookup_fn *fn;
	void *arg;
	bool strict;		/* max_age_ms 0: no old snapshot for an error */
};

STAILQ_HEAD(waiters, waiter);

/*
 * IDLE --lookup, event--> QUEUED --a worker is free--> SENT --answer-->
 * DELIVERING --callbacks done--> IDLE, or QUEUED again for `next`.
 */
enum pull_state {
	PULL_IDLE,
	PULL_QUEUED,
	PULL_SENT,
	PULL_DELIVERING,
};

struct entry {
	LIST_ENTRY(entry) hash_link;
	TAILQ_ENTRY(entry) refresh_link;
	struct sf_directory *dir;

	/* What is known. */
	struct sf_segment *seg;	/* the newest snapshot, or NULL */
	bool missing;		/* the store has no such name */
	bool stale;		/* the watch says that this changed */
	uint64_t pulled_ms;	/* when the question was sent that the above
				 * answers */
	uint64_t epoch;		/* dir->epoch then */
	int error;		/* of the last pull, 0 if it worked */
	uint64_t asked_ms;	/* last lookup */
	uint64_t nr_changes;	/* events of the watch */

	/* The pull. */
	enum pull_state state;
	bool in_refresh;	/* on dir->refresh */
	bool refreshing;	/* counts in dir->nr_refreshing */
	struct waiters now;	/* for the pull that is queued or sent */
	struct waiters next;	/* for one that begins after it */
	uint64_t requested_ms;	/* when it was queued */
	uint64_t sent_ms;
	uint64_t sent_epoch;
	uint64_t sent_changes;	/* nr_changes when it was sent */

	char name[];
};

LIST_HEAD(bucket, entry);
TAILQ_HEAD(refresh, entry);

struct sf_directory {
	struct sf_meta *meta;
	struct sf_workers *workers;
	unsigned int ttl_ms;
	unsigned int negative_ttl_ms;
	sf_directory_change_fn *change_fn;
	void *change_arg;
	atomic_uint_fast64_t generation;

	pthread_mutex_t lock;
	pthread_cond_t idle;	/* nr_active became 0 */
	struct bucket buckets[SF_DIRECTORY_NR_BUCKETS];
	size_t nr_entries;
	size_t nr_known;	/* entries with a snapshot */
	uint64_t nr_buffers, nr_bytes;	/* in those; may wrap */
	uint64_t swept_ms;

	bool stopping;
	unsigned int nr_active;	/* pulls that are not IDLE */
	unsigned int nr_telling;	/* calls of change_fn under way */
	pthread_cond_t told;	/* nr_telling became 0 */
	unsigned int nr_refreshing;
	struct refresh refresh;	/* entries to pull though nobody waits */

	bool watching;		/* a watch was asked for */
	bool watched;		/* and stands */
	uint64_t epoch;		/* grows with each SYNC */
	char watch_text[256];

	int store_error;	/* of the last question, 0 if answered */
	uint64_t failed_ms;	/* when its answer failed to come */
	uint64_t failed_sent_ms;	/* and when it was sent */
	char store_text[256];
	uint64_t nr_pulls;
};

/* directory_table.c; all with the lock held. */
uint64_t sf_directory_now(void);	/* ms, never 0 */
struct entry *sf_directory_find(struct sf_directory *dir, const char *name);
struct entry *sf_directory_add(struct sf_directory *dir, const char *name);
/* E's snapshot is SEG (or none) from now on; the old one is the caller's. */
void sf_directory_put_segment(struct entry *e, struct sf_segment *seg);
/* Now and then drop what nobody asked for in a long time. */
void sf_directory_sweep(struct sf_directory *dir);
void sf_directory_clear(struct sf_directory *dir);

/* directory_pull.c; all but the log with the lock held. */
/* Queue a pull of an IDLE entry. -ENOMEM: it stays IDLE. */
int sf_directory_pull(struct entry *e);
/* Pull E soon though nobody waits; URGENT before the others. */
void sf_directory_refresh(struct entry *e, bool urgent);
/* What the store said to a question sent at SENT_MS. True: worth a line in the
 * log, which the caller writes once the lock is free. */
bool sf_directory_note_store(struct sf_directory *dir, int res,
			     uint64_t sent_ms, const struct sf_err *err);
void sf_directory_log_store(int res, const struct sf_err *err);
/* Did the last question fail in a way that any name would meet now? */
bool sf_directory_is_down(const struct sf_directory *dir);

#endif
