/* SPDX-License-Identifier: MIT */
/*
 * The directory as callers see it: lookups answered from the cache or queued
 * for a pull, what the watch tells, and what is known for status files. Any
 * thread; nothing here waits but sf_directory_free(). Knows no store: that is
 * behind meta.h.
 */
#include "config.h"
#include "directory_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "meta.h"
#include "segment.h"

/* An entry somebody asked for this recently may be cached by that somebody. */
#define INTEREST_MS (10 * 60000)

/* ---- the watch ---- */

static void on_changed(struct sf_directory *dir, const char *name)
{
	struct entry *e = sf_directory_find(dir, name);

	if (!e)
		return;
	e->nr_changes++;
	e->stale = true;
	sf_directory_refresh(e, true);
}

/* Anything may have changed unseen. Lookups pull anew; where a subscriber may
 * have told somebody of a snapshot, it is checked without waiting for one. */
static void on_sync(struct sf_directory *dir)
{
	uint64_t now = sf_directory_now();
	struct entry *e;
	size_t i;

	dir->watched = true;
	dir->watch_text[0] = '\0';
	dir->epoch++;
	if (!dir->change_fn)
		return;
	for (i = 0; i < SF_DIRECTORY_NR_BUCKETS; i++)
		LIST_FOREACH (e, &dir->buckets[i], hash_link)
			if (e->seg && (now - e->asked_ms < INTEREST_MS ||
				       sf_segment_is_shared(e->seg)))
				sf_directory_refresh(e, false);
}

/* One line for an outage, however often its reason changes. */
static void log_watch(enum sf_meta_event event, bool stood, const char *text)
{
	if (event == SF_META_EVENT_SYNC)
		sf_log(LOG_NOTICE, SF_LOG_META, "metadata watch stands");
	else if (event == SF_META_EVENT_LOST && stood)
		sf_log(LOG_WARNING, SF_LOG_META, "metadata watch lost: %s",
		       text);
	else if (event == SF_META_EVENT_LOST)
		sf_log(LOG_DEBUG, SF_LOG_META, "metadata watch: %s", text);
}

static void on_event(void *arg, enum sf_meta_event event, const char *name,
		     const char *text)
{
	struct sf_directory *dir = arg;
	bool stood;

	if (!text)
		text = "the watch broke";
	pthread_mutex_lock(&dir->lock);
	stood = dir->watched;
	switch (event) {
	case SF_META_EVENT_CHANGED:
		on_changed(dir, name);
		break;
	case SF_META_EVENT_SYNC:
		on_sync(dir);
		break;
	case SF_META_EVENT_LOST:
		dir->watched = false;
		snprintf(dir->watch_text, sizeof(dir->watch_text), "%s", text);
		break;
	}
	pthread_mutex_unlock(&dir->lock);
	log_watch(event, stood, text);
}

/* ---- new and free ---- */

int sf_directory_new(struct sf_directory **out,
		     const struct sf_directory_config *config,
		     struct sf_err *err)
{
	struct sf_directory *dir = calloc(1, sizeof(*dir));
	int res = 0;

	if (!dir)
		return sf_err_set(err, -ENOMEM, "out of memory");
	dir->meta = config->meta;
	dir->workers = config->workers;
	dir->ttl_ms = config->ttl_ms;
	dir->negative_ttl_ms = config->negative_ttl_ms;
	pthread_mutex_init(&dir->lock, NULL);
	pthread_cond_init(&dir->idle, NULL);
	pthread_cond_init(&dir->told, NULL);
	TAILQ_INIT(&dir->refresh);
	dir->swept_ms = sf_directory_now();
	dir->watching =
		config->watch && sf_meta_caps(dir->meta) & SF_META_CAN_WATCH;
	if (dir->watching)
		res = sf_meta_watch(dir->meta, on_event, dir, err);
	if (res) {
		dir->watching = false;
		sf_directory_free(dir);
	} else {
		*out = dir;
	}
	return res;
}

void sf_directory_free(struct sf_directory *dir)
{
	if (!dir)
		return;
	if (dir->watching)
		sf_meta_unwatch(dir->meta);
	pthread_mutex_lock(&dir->lock);
	dir->stopping = true;
	while (dir->nr_active)
		pthread_cond_wait(&dir->idle, &dir->lock);
	sf_directory_clear(dir);
	pthread_mutex_unlock(&dir->lock);
	pthread_cond_destroy(&dir->idle);
	pthread_cond_destroy(&dir->told);
	pthread_mutex_destroy(&dir->lock);
	free(dir);
}

void sf_directory_subscribe(struct sf_directory *dir,
			    sf_directory_change_fn *fn, void *arg)
{
	pthread_mutex_lock(&dir->lock);
	dir->change_fn = fn;
	dir->change_arg = arg;
	while (!fn && dir->nr_telling)
		pthread_cond_wait(&dir->told, &dir->lock);
	pthread_mutex_unlock(&dir->lock);
}

/* ---- lookups ---- */

static const char *key_name(const char *name)
{
	while (*name == '/')
		name++;
	return name;
}

static bool is_fresh(const struct entry *e, unsigned int max_age_ms,
		     uint64_t now)
{
	const struct sf_directory *dir = e->dir;
	uint64_t age = now - e->pulled_ms;

	if (!e->seg && !e->missing)
		return false;
	if (e->stale || !max_age_ms || age > max_age_ms)
		return false;
	if (e->missing)
		return age < dir->negative_ttl_ms;
	return (dir->watched && e->epoch == dir->epoch) || age < dir->ttl_ms;
}

/* The store did not answer a moment ago: a known name need not wait for it to
 * not answer again. */
static bool may_skip_store(const struct entry *e, unsigned int max_age_ms,
			   uint64_t now)
{
	const struct sf_directory *dir = e->dir;
	uint64_t pause = dir->ttl_ms > 1000 ? dir->ttl_ms : 1000;

	return e->seg && max_age_ms && sf_directory_is_down(dir) &&
	       now - dir->failed_ms < pause;
}

/* Will the pull that was sent answer this lookup? */
static bool may_join(const struct entry *e, unsigned int max_age_ms,
		     uint64_t now)
{
	if (e->state == PULL_QUEUED)
		return true;
	return e->state == PULL_SENT && max_age_ms &&
	       now - e->sent_ms <= max_age_ms &&
	       e->sent_changes == e->nr_changes &&
	       e->sent_epoch == e->dir->epoch;
}

/* Let W wait for a pull. On failure it does not. */
static int wait_locked(struct entry *e, struct waiter *w,
		       unsigned int max_age_ms, uint64_t now)
{
	int res = 0;

	if (e->state == PULL_IDLE)
		res = sf_directory_pull(e);
	if (res)
		return res;
	if (may_join(e, max_age_ms, now))
		STAILQ_INSERT_TAIL(&e->now, w, link);
	else
		STAILQ_INSERT_TAIL(&e->next, w, link);
	return 0;
}

/* Answer from the cache, if it can: true, with *SEG a reference or NULL. */
static bool from_cache(struct entry *e, unsigned int max_age_ms, uint64_t now,
		       struct sf_segment **seg)
{
	if (!is_fresh(e, max_age_ms, now)) {
		if (!may_skip_store(e, max_age_ms, now))
			return false;
		sf_directory_refresh(e, false);
	}
	*seg = e->seg ? sf_segment_get(e->seg) : NULL;
	return true;
}

void sf_directory_lookup(struct sf_directory *dir, const char *name,
			 unsigned int max_age_ms, sf_directory_lookup_fn *fn,
			 void *arg)
{
	struct waiter *w = malloc(sizeof(*w));
	uint64_t now = sf_directory_now();
	struct sf_segment *seg = NULL;
	struct entry *e;
	int res = -ENOMEM;

	name = key_name(name);
	pthread_mutex_lock(&dir->lock);
	e = sf_directory_find(dir, name);
	if (!e && *name && w) {
		sf_directory_sweep(dir);
		e = sf_directory_add(dir, name);
	}
	if (e)
		e->asked_ms = now;
	if (!*name) {
		res = -ENOENT;
	} else if (e && from_cache(e, max_age_ms, now, &seg)) {
		res = seg ? 0 : -ENOENT;
	} else if (e && w) {
		*w = (struct waiter){
			.fn = fn, .arg = arg, .strict = !max_age_ms};
		res = wait_locked(e, w, max_age_ms, now);
		if (!res) {
			w = NULL;
			fn = NULL;
		}
	}
	pthread_mutex_unlock(&dir->lock);
	free(w);
	if (fn)
		fn(arg, res, seg);
	sf_segment_put(seg);
}

struct sf_segment *sf_directory_peek(struct sf_directory *dir, const char *name)
{
	struct sf_segment *seg = NULL;
	struct entry *e;

	pthread_mutex_lock(&dir->lock);
	e = sf_directory_find(dir, key_name(name));
	if (e && e->seg)
		seg = sf_segment_get(e->seg);
	pthread_mutex_unlock(&dir->lock);
	return seg;
}

uint64_t sf_directory_generation(const struct sf_directory *dir)
{
	return atomic_load_explicit(&dir->generation, memory_order_relaxed);
}

/* ---- status ---- */

void sf_directory_info(struct sf_directory *dir, struct sf_directory_info *info)
{
	const char *text;

	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&dir->lock);
	info->watched = dir->watched;
	text = *dir->store_text ? dir->store_text : dir->watch_text;
	snprintf(info->text, sizeof(info->text), "%s", text);
	info->pulls = dir->nr_pulls;
	info->known = dir->nr_known;
	info->nr_buffers = dir->nr_buffers;
	info->nr_bytes = dir->nr_bytes;
	pthread_mutex_unlock(&dir->lock);
}

bool sf_directory_age(struct sf_directory *dir, const char *name,
		      uint64_t *age_ms, int *last_error)
{
	struct entry *e;
	bool known;

	pthread_mutex_lock(&dir->lock);
	e = sf_directory_find(dir, key_name(name));
	known = e && e->seg;
	if (known) {
		*age_ms = sf_directory_now() - e->pulled_ms;
		*last_error = e->error;
	}
	pthread_mutex_unlock(&dir->lock);
	return known;
}
