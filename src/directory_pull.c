/* SPDX-License-Identifier: MIT */
/*
 * Pulls: one question to the store about one name, at most one under way for a
 * name, run on a worker. The answer is stored, then the subscriber hears of a
 * change, then the lookups that waited are answered, in this order and before
 * the next pull of the name may begin.
 */
#include "config.h"
#include "directory_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "log.h"
#include "meta.h"
#include "segment.h"
#include "workers.h"

/* Refreshes that nobody waits for leave most workers to those who wait. */
#define NR_REFRESHING_MAX 2

static void run_pull(void *arg);

int sf_directory_pull(struct entry *e)
{
	int res = sf_workers_run(e->dir->workers, run_pull, e);

	if (res)
		return res;
	e->state = PULL_QUEUED;
	e->requested_ms = sf_directory_now();
	e->dir->nr_active++;
	return 0;
}

static void pump_refresh(struct sf_directory *dir)
{
	struct entry *e;

	while (dir->nr_refreshing < NR_REFRESHING_MAX && !dir->stopping &&
	       (e = TAILQ_FIRST(&dir->refresh))) {
		TAILQ_REMOVE(&dir->refresh, e, refresh_link);
		e->in_refresh = false;
		/* Else a lookup was faster, and what it gets will do. */
		if (e->state == PULL_IDLE && !sf_directory_pull(e)) {
			e->refreshing = true;
			dir->nr_refreshing++;
		}
	}
}

void sf_directory_refresh(struct entry *e, bool urgent)
{
	struct sf_directory *dir = e->dir;

	if (e->in_refresh || e->state != PULL_IDLE)
		return;
	e->in_refresh = true;
	if (urgent)
		TAILQ_INSERT_HEAD(&dir->refresh, e, refresh_link);
	else
		TAILQ_INSERT_TAIL(&dir->refresh, e, refresh_link);
	pump_refresh(dir);
}

bool sf_directory_is_down(const struct sf_directory *dir)
{
	switch (dir->store_error) {
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

bool sf_directory_note_store(struct sf_directory *dir, int res,
			     uint64_t sent_ms, const struct sf_err *err)
{
	int before = dir->store_error;

	if (res == -ENOMEM)
		return false;
	if (!res || res == -ENOENT) {
		dir->store_error = 0;
		dir->store_text[0] = '\0';
		return before != 0;
	}
	dir->store_error = res;
	dir->failed_ms = sf_directory_now();
	dir->failed_sent_ms = sent_ms;
	snprintf(dir->store_text, sizeof(dir->store_text), "%s", err->text);
	return before != res;
}

void sf_directory_log_store(int res, const struct sf_err *err)
{
	if (!res || res == -ENOENT)
		sf_log(LOG_NOTICE, SF_LOG_META, "metadata store answers again");
	else
		sf_log(LOG_WARNING, SF_LOG_META, "metadata store: %s",
		       err->text);
}

/* ---- the answer ---- */

struct answer {
	int res;
	bool asked;		/* the store, just now */
	struct sf_segment *seg; /* res 0: a new snapshot, or NULL: as before */
	struct sf_err err;
};

static bool same_blob(const struct sf_blob *a, const struct sf_blob *b)
{
	if (!a || !b)
		return a == b;
	return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* Only this pull changes e->seg, so it may be read without the lock. */
static void ask(struct entry *e, struct answer *answer)
{
	struct sf_blob *raw = NULL, *rpc = NULL;

	answer->asked = true;
	answer->res =
		sf_meta_get(e->dir->meta, e->name, &raw, &rpc, &answer->err);
	if (answer->res)
		return;
	if (!e->seg || !same_blob(e->seg->raw, raw) ||
	    !same_blob(e->seg->raw_rpc, rpc))
		answer->res =
			sf_segment_decode(&answer->seg, e->name, raw, rpc);
	if (answer->res)
		sf_err_set(&answer->err, answer->res, "out of memory");
	sf_blob_put(raw);
	sf_blob_put(rpc);
}

/* Begin: false when there is no need to ask. */
static bool begin(struct entry *e, struct answer *answer)
{
	struct sf_directory *dir = e->dir;
	bool needed = true;

	pthread_mutex_lock(&dir->lock);
	e->state = PULL_SENT;
	e->sent_ms = sf_directory_now();
	e->sent_epoch = dir->epoch;
	e->sent_changes = e->nr_changes;
	if (dir->stopping) {
		answer->res = -ECANCELED;
		needed = false;
	} else if (sf_directory_is_down(dir) &&
		   dir->failed_sent_ms > e->requested_ms) {
		/* Asked while this waited in the queue, in vain: many names
		 * must not wait for one timeout after another. */
		answer->res = dir->store_error;
		needed = false;
	} else {
		dir->nr_pulls++;
	}
	pthread_mutex_unlock(&dir->lock);
	return needed;
}

/* Store what the answer says. Returns whether that is a change, *OLD becomes
 * the snapshot that was replaced (the caller's), or NULL. */
static bool store_locked(struct entry *e, const struct answer *answer,
			 struct sf_segment **old)
{
	struct sf_directory *dir = e->dir;
	bool was_known = e->seg || e->missing;
	bool change = false;

	*old = NULL;
	e->error = answer->res == -ENOENT ? 0 : answer->res;
	if (e->error)
		return false;
	if (answer->seg || (answer->res && e->seg)) {
		*old = e->seg;
		sf_directory_put_segment(e, answer->seg);
		atomic_fetch_add(&dir->generation, 1);
		change = was_known;
	}
	e->missing = answer->res != 0;
	e->pulled_ms = e->sent_ms;
	e->epoch = e->sent_epoch;
	e->stale = e->nr_changes != e->sent_changes;
	return change;
}

/* Whoever unsubscribes waits for the end of this. */
static void tell(struct entry *e, struct sf_segment *old,
		 struct sf_segment *seg)
{
	struct sf_directory *dir = e->dir;
	sf_directory_change_fn *fn;
	void *arg;

	pthread_mutex_lock(&dir->lock);
	fn = dir->change_fn;
	arg = dir->change_arg;
	dir->nr_telling += fn != NULL;
	pthread_mutex_unlock(&dir->lock);
	if (!fn)
		return;
	fn(arg, e->name, old, seg);
	pthread_mutex_lock(&dir->lock);
	if (!--dir->nr_telling)
		pthread_cond_broadcast(&dir->told);
	pthread_mutex_unlock(&dir->lock);
}

static void answer_one(const struct waiter *w, int res, struct sf_segment *seg)
{
	/* A store that does not answer takes nothing away. */
	if (res && res != -ENOENT && seg && !w->strict)
		res = 0;
	w->fn(w->arg, res, res ? NULL : seg);
}

static void answer_all(struct waiters *waiters, int res, struct sf_segment *seg)
{
	struct waiter *w;

	while ((w = STAILQ_FIRST(waiters))) {
		STAILQ_REMOVE_HEAD(waiters, link);
		answer_one(w, res, seg);
		free(w);
	}
}

/* ---- what comes after ---- */

/* The watch began to stand while this pull was under way. */
static bool missed_sync(const struct entry *e)
{
	return e->seg && e->dir->change_fn && e->sent_epoch != e->dir->epoch;
}

/* The state behind DELIVERING. Returns lookups that cannot be pulled for. */
static int go_on_locked(struct entry *e, struct waiters *failed)
{
	struct sf_directory *dir = e->dir;
	int res = 0;

	e->state = PULL_IDLE;
	if (e->refreshing) {
		e->refreshing = false;
		dir->nr_refreshing--;
	}
	if (!STAILQ_EMPTY(&e->next)) {
		STAILQ_CONCAT(&e->now, &e->next);
		res = sf_directory_pull(e);
		if (res)
			STAILQ_CONCAT(failed, &e->now);
	} else if (!e->error && (e->stale || missed_sync(e))) {
		sf_directory_refresh(e, true);
	}
	return res;
}

static void finish(struct entry *e)
{
	struct waiters failed = STAILQ_HEAD_INITIALIZER(failed);
	struct sf_directory *dir = e->dir;
	int res;

	pthread_mutex_lock(&dir->lock);
	res = go_on_locked(e, &failed);
	pump_refresh(dir);
	sf_directory_sweep(dir);
	pthread_mutex_unlock(&dir->lock);

	answer_all(&failed, res, NULL);

	/* Last: the directory may be freed as soon as nothing is active. */
	pthread_mutex_lock(&dir->lock);
	if (!--dir->nr_active)
		pthread_cond_broadcast(&dir->idle);
	pthread_mutex_unlock(&dir->lock);
}

static void run_pull(void *arg)
{
	struct waiters waiters = STAILQ_HEAD_INITIALIZER(waiters);
	struct answer answer = {0};
	struct sf_segment *old, *seg;
	struct entry *e = arg;
	struct sf_directory *dir = e->dir;
	bool change, news = false;

	if (begin(e, &answer))
		ask(e, &answer);

	pthread_mutex_lock(&dir->lock);
	if (answer.asked)
		news = sf_directory_note_store(dir, answer.res, e->sent_ms,
					       &answer.err);
	change = store_locked(e, &answer, &old);
	seg = e->seg ? sf_segment_get(e->seg) : NULL;
	e->state = PULL_DELIVERING;
	STAILQ_CONCAT(&waiters, &e->now);
	pthread_mutex_unlock(&dir->lock);

	if (news)
		sf_directory_log_store(answer.res, &answer.err);
	if (change)
		tell(e, old, seg);
	answer_all(&waiters, answer.res, seg);
	sf_segment_put(old);
	sf_segment_put(seg);
	finish(e);
}
