/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "directory.h"
#include "err.h"
#include "meta.h"
#include "segment.h"
#include "workers.h"

/* ---- a store in memory, whose answers can be held back ---- */

#define NR_DOCS 20000

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *name[NR_DOCS];
	char *text[NR_DOCS];
	unsigned int nr;
	int error;		/* what every question gets */
	bool held;		/* questions wait */
	unsigned int nr_waiting;
	unsigned int nr_gets;
	sf_meta_watch_fn *watch;
	void *watch_arg;
};

static char *find_text(struct fake *f, const char *name)
{
	unsigned int i;

	for (i = 0; i < f->nr; i++)
		if (!strcmp(f->name[i], name))
			return f->text[i];
	return NULL;
}

static int fake_get(void *priv, const char *name, struct sf_blob **segment,
		    struct sf_blob **rpc, struct sf_err *err)
{
	struct fake *f = priv;
	char *text;
	int res = 0;

	pthread_mutex_lock(&f->lock);
	f->nr_gets++;
	text = find_text(f, name);	/* read before the answer is held */
	if (text)
		*segment = sf_blob_new(text, strlen(text));
	else
		res = sf_err_set(err, -ENOENT, "not there");
	f->nr_waiting++;
	pthread_cond_broadcast(&f->changed);
	while (f->held)
		pthread_cond_wait(&f->changed, &f->lock);
	f->nr_waiting--;
	if (f->error) {
		sf_blob_put(*segment);
		*segment = NULL;
		res = sf_err_set(err, f->error, "fake: error");
	}
	pthread_mutex_unlock(&f->lock);
	return res;
}

static int fake_list(void *priv, sf_meta_list_fn *fn, void *arg,
		     unsigned int *skipped, struct sf_err *err)
{
	struct fake *f = priv;
	unsigned int i;
	int res;

	if (f->error)
		return sf_err_set(err, f->error, "fake: error");
	for (i = f->nr; i-- > 0;) {
		res = fn(arg, f->name[i], false);
		if (res)
			return res;
	}
	return fn(arg, "rpc-only", true);
}

static int fake_watch(void *priv, sf_meta_watch_fn *fn, void *arg,
		      struct sf_err *err)
{
	struct fake *f = priv;

	f->watch = fn;
	f->watch_arg = arg;
	return 0;
}

static void fake_unwatch(void *priv)
{
	struct fake *f = priv;

	f->watch = NULL;
}

static const struct sf_meta_ops fake_ops = {
	.scheme = "fake",
	.caps = SF_META_CAN_LIST | SF_META_CAN_WATCH,
	.get = fake_get,
	.list = fake_list,
	.watch = fake_watch,
	.unwatch = fake_unwatch,
};

static const struct sf_meta_ops blind_ops = { .scheme = "blind",
					      .get = fake_get };

/* ---- what each test stands on ---- */

struct world {
	struct fake fake;
	struct sf_meta *meta;
	struct sf_workers *workers;
	struct sf_directory *dir;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned int nr_changes;
	char change[64];	/* the last: "name old new" */
};

struct result {
	struct world *world;
	unsigned int nr;	/* calls */
	int res;
	struct sf_segment *seg;
	pthread_t thread;
};

static void on_change(void *arg, const char *name, struct sf_segment *old_seg,
		      struct sf_segment *new_seg)
{
	struct world *w = arg;

	pthread_mutex_lock(&w->lock);
	w->nr_changes++;
	snprintf(w->change, sizeof(w->change), "%s %s %s", name,
		 old_seg ? "old" : "-", new_seg ? "new" : "-");
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void on_result(void *arg, int res, struct sf_segment *seg)
{
	struct result *r = arg;

	pthread_mutex_lock(&r->world->lock);
	r->nr++;
	r->res = res;
	sf_segment_put(r->seg);
	r->seg = seg ? sf_segment_get(seg) : NULL;
	r->thread = pthread_self();
	pthread_cond_broadcast(&r->world->changed);
	pthread_mutex_unlock(&r->world->lock);
}

static void begin(struct result *r, struct world *w, const char *name,
		  unsigned int max_age_ms)
{
	memset(r, 0, sizeof(*r));
	r->world = w;
	sf_directory_lookup(w->dir, name, max_age_ms, on_result, r);
}

static struct timespec in_seconds(unsigned int s)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += s;
	return ts;
}

static void end(struct result *r)
{
	struct timespec limit = in_seconds(10);

	pthread_mutex_lock(&r->world->lock);
	while (!r->nr)
		assert_int_equal(pthread_cond_timedwait(&r->world->changed,
							&r->world->lock,
							&limit), 0);
	assert_int_equal(r->nr, 1);
	pthread_mutex_unlock(&r->world->lock);
}

/* Look NAME up; its result. *SELF: the descriptor's own name. */
static int lookup(struct world *w, const char *name, unsigned int max_age_ms,
		  char self[64])
{
	struct result r;

	begin(&r, w, name, max_age_ms);
	end(&r);
	if (self)
		snprintf(self, 64, "%s", r.seg ? r.seg->self_name : "");
	sf_segment_put(r.seg);
	return r.res;
}

static void store(struct world *w, const char *name, const char *self)
{
	struct fake *f = &w->fake;
	char *text = NULL;
	unsigned int i;

	assert_true(asprintf(&text,
			     "{\"name\":\"%s\",\"protocol\":\"tcp\","
			     "\"buffers\":[]}", self ? self : "") > 0);
	pthread_mutex_lock(&f->lock);
	for (i = 0; i < f->nr && strcmp(f->name[i], name); i++)
		;
	if (i == f->nr) {
		f->name[f->nr++] = strdup(name);
	} else {
		free(f->text[i]);
	}
	f->text[i] = text;
	if (!self) {
		free(f->text[i]);
		f->text[i] = NULL;
	}
	pthread_mutex_unlock(&f->lock);
}

static void event(struct world *w, enum sf_meta_event ev, const char *name)
{
	w->fake.watch(w->fake.watch_arg, ev, name, "it broke");
}

static void hold(struct world *w, bool held)
{
	pthread_mutex_lock(&w->fake.lock);
	w->fake.held = held;
	pthread_cond_broadcast(&w->fake.changed);
	pthread_mutex_unlock(&w->fake.lock);
}

static void set_error(struct world *w, int error)
{
	pthread_mutex_lock(&w->fake.lock);
	w->fake.error = error;
	pthread_mutex_unlock(&w->fake.lock);
}

static void await_waiting(struct world *w, unsigned int nr)
{
	struct timespec limit = in_seconds(10);

	pthread_mutex_lock(&w->fake.lock);
	while (w->fake.nr_waiting != nr)
		assert_int_equal(pthread_cond_timedwait(&w->fake.changed,
							&w->fake.lock,
							&limit), 0);
	pthread_mutex_unlock(&w->fake.lock);
}

static void await_changes(struct world *w, unsigned int nr)
{
	struct timespec limit = in_seconds(10);

	pthread_mutex_lock(&w->lock);
	while (w->nr_changes < nr)
		assert_int_equal(pthread_cond_timedwait(&w->changed, &w->lock,
							&limit), 0);
	assert_int_equal(w->nr_changes, nr);
	pthread_mutex_unlock(&w->lock);
}

static unsigned int nr_gets(struct world *w)
{
	unsigned int nr;

	pthread_mutex_lock(&w->fake.lock);
	nr = w->fake.nr_gets;
	pthread_mutex_unlock(&w->fake.lock);
	return nr;
}

static struct world *make_world(const struct sf_meta_ops *ops,
				unsigned int ttl_ms, bool watch)
{
	struct world *w = calloc(1, sizeof(*w));
	struct sf_directory_config config = {
		.ttl_ms = ttl_ms,
		.negative_ttl_ms = ttl_ms,
		.watch = watch,
	};

	pthread_mutex_init(&w->fake.lock, NULL);
	pthread_cond_init(&w->fake.changed, NULL);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	assert_int_equal(sf_meta_wrap(&w->meta, ops, &w->fake, "fake"), 0);
	assert_int_equal(sf_workers_new(&w->workers, 4, "test"), 0);
	config.meta = w->meta;
	config.workers = w->workers;
	assert_int_equal(sf_directory_new(&w->dir, &config, NULL), 0);
	sf_directory_subscribe(w->dir, on_change, w);
	return w;
}

static void end_world(struct world *w)
{
	unsigned int i;

	sf_directory_free(w->dir);
	sf_workers_free(w->workers);
	sf_meta_close(w->meta);
	for (i = 0; i < w->fake.nr; i++) {
		free(w->fake.name[i]);
		free(w->fake.text[i]);
	}
	free(w);
}

/* ---- freshness ---- */

static void a_fresh_snapshot_is_answered_at_once(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, false);
	struct result r;

	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	begin(&r, w, "/a", UINT_MAX);
	assert_int_equal(r.nr, 1);
	assert_true(pthread_equal(r.thread, pthread_self()));
	sf_segment_put(r.seg);
	assert_int_equal(nr_gets(w), 1);
	assert_int_equal(lookup(w, "a", 0, NULL), 0);
	assert_int_equal(nr_gets(w), 2);
	end_world(w);
}

static void without_a_watch_the_time_to_live_decides(void **state)
{
	struct world *w = make_world(&fake_ops, 30, false);
	char self[64];

	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	store(w, "a", "two");
	usleep(50000);
	assert_int_equal(lookup(w, "a", UINT_MAX, self), 0);
	assert_string_equal(self, "two");
	await_changes(w, 1);
	assert_string_equal(w->change, "a old new");
	end_world(w);
}

static void a_missing_name_is_believed_for_a_while(void **state)
{
	struct world *w = make_world(&fake_ops, 60, false);

	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), -ENOENT);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), -ENOENT);
	assert_int_equal(nr_gets(w), 1);
	store(w, "a", "one");
	usleep(80000);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	await_changes(w, 1);
	assert_string_equal(w->change, "a - new");
	end_world(w);
}

static void equal_bytes_are_no_change(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, false);
	struct sf_segment *a, *b;
	uint64_t generation;

	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", 0, NULL), 0);
	a = sf_directory_peek(w->dir, "a");
	generation = sf_directory_generation(w->dir);
	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", 0, NULL), 0);
	b = sf_directory_peek(w->dir, "a");
	assert_ptr_equal(a, b);
	assert_int_equal(sf_directory_generation(w->dir), generation);
	store(w, "a", "two");
	assert_int_equal(lookup(w, "a", 0, NULL), 0);
	assert_true(sf_directory_generation(w->dir) > generation);
	assert_int_equal(w->nr_changes, 1);
	sf_segment_put(a);
	sf_segment_put(b);
	assert_null(sf_directory_peek(w->dir, "unknown"));
	end_world(w);
}

/* ---- one pull a name ---- */

static void lookups_share_a_pull(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, false);
	struct result r[10];
	size_t i;

	store(w, "a", "one");
	hold(w, true);
	begin(&r[0], w, "a", UINT_MAX);
	await_waiting(w, 1);
	for (i = 1; i < 10; i++)
		begin(&r[i], w, "a", UINT_MAX);
	hold(w, false);
	for (i = 0; i < 10; i++) {
		end(&r[i]);
		assert_int_equal(r[i].res, 0);
		sf_segment_put(r[i].seg);
	}
	assert_int_equal(nr_gets(w), 1);
	end_world(w);
}

static void age_zero_is_answered_by_a_later_pull(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, false);
	struct result early, late, later;

	store(w, "a", "one");
	hold(w, true);
	begin(&early, w, "a", UINT_MAX);
	await_waiting(w, 1);
	store(w, "a", "two");	/* the question above has read "one" */
	begin(&late, w, "a", 0);
	begin(&later, w, "a", 0);
	hold(w, false);
	end(&early);
	end(&late);
	end(&later);
	assert_string_equal(early.seg->self_name, "one");
	assert_string_equal(late.seg->self_name, "two");
	assert_string_equal(later.seg->self_name, "two");
	assert_int_equal(nr_gets(w), 2);
	sf_segment_put(early.seg);
	sf_segment_put(late.seg);
	sf_segment_put(later.seg);
	end_world(w);
}

/* ---- the watch ---- */

static void while_the_watch_stands_snapshots_live(void **state)
{
	struct world *w = make_world(&fake_ops, 1, true);
	struct sf_directory_info info;
	char self[64];

	event(w, SF_META_EVENT_SYNC, NULL);
	sf_directory_info(w->dir, &info);
	assert_true(info.watched);
	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	usleep(20000);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	assert_int_equal(nr_gets(w), 1);

	store(w, "a", "two");
	event(w, SF_META_EVENT_CHANGED, "a");
	await_changes(w, 1);
	assert_string_equal(w->change, "a old new");
	assert_int_equal(lookup(w, "a", UINT_MAX, self), 0);
	assert_string_equal(self, "two");
	assert_int_equal(nr_gets(w), 2);

	store(w, "a", NULL);
	event(w, SF_META_EVENT_CHANGED, "a");
	await_changes(w, 2);
	assert_string_equal(w->change, "a old -");
	store(w, "a", "three");
	event(w, SF_META_EVENT_CHANGED, "a");
	await_changes(w, 3);
	assert_string_equal(w->change, "a - new");
	event(w, SF_META_EVENT_CHANGED, "nobody-asked");
	end_world(w);
}

static void a_change_during_a_pull_is_not_lost(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, true);
	struct result early, late;

	event(w, SF_META_EVENT_SYNC, NULL);
	store(w, "a", "one");
	hold(w, true);
	begin(&early, w, "a", UINT_MAX);
	await_waiting(w, 1);
	store(w, "a", "two");
	event(w, SF_META_EVENT_CHANGED, "a");
	begin(&late, w, "a", UINT_MAX);
	hold(w, false);
	end(&early);
	end(&late);
	assert_string_equal(late.seg->self_name, "two");
	sf_segment_put(early.seg);
	sf_segment_put(late.seg);
	await_changes(w, 1);
	end_world(w);
}

static void a_lost_watch_leaves_the_time_to_live(void **state)
{
	struct world *w = make_world(&fake_ops, 20, true);
	struct sf_directory_info info;
	char self[64];

	event(w, SF_META_EVENT_SYNC, NULL);
	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	event(w, SF_META_EVENT_LOST, NULL);
	sf_directory_info(w->dir, &info);
	assert_false(info.watched);
	assert_string_equal(info.text, "it broke");
	store(w, "a", "two");
	usleep(40000);
	assert_int_equal(lookup(w, "a", UINT_MAX, self), 0);
	assert_string_equal(self, "two");
	end_world(w);
}

static void after_a_sync_what_is_known_is_pulled_anew(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, true);
	char name[16];
	unsigned int i;

	event(w, SF_META_EVENT_SYNC, NULL);
	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		store(w, name, "one");
		assert_int_equal(lookup(w, name, UINT_MAX, NULL), 0);
		store(w, name, "two");
	}
	event(w, SF_META_EVENT_SYNC, NULL);
	await_changes(w, 20);
	assert_int_equal(nr_gets(w), 40);
	end_world(w);
}

/* ---- a store that does not answer ---- */

static void an_outage_takes_nothing_away(void **state)
{
	struct world *w = make_world(&fake_ops, 10, false);
	struct sf_directory_info info;
	uint64_t age;
	int last;

	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	assert_true(sf_directory_age(w->dir, "a", &age, &last));
	assert_int_equal(last, 0);
	set_error(w, -ECONNREFUSED);
	usleep(20000);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	assert_int_equal(lookup(w, "a", 0, NULL), -ECONNREFUSED);
	assert_int_equal(lookup(w, "b", UINT_MAX, NULL), -ECONNREFUSED);
	assert_int_equal(lookup(w, "b", UINT_MAX, NULL), -ECONNREFUSED);
	assert_true(sf_directory_age(w->dir, "a", &age, &last));
	assert_int_equal(last, -ECONNREFUSED);
	assert_false(sf_directory_age(w->dir, "b", &age, &last));
	sf_directory_info(w->dir, &info);
	assert_string_equal(info.text, "fake: error");
	assert_int_equal(info.known, 1);
	set_error(w, 0);
	assert_int_equal(lookup(w, "b", UINT_MAX, NULL), -ENOENT);
	sf_directory_info(w->dir, &info);
	assert_string_equal(info.text, "");
	assert_int_equal(w->nr_changes, 0);
	end_world(w);
}

static void a_known_name_does_not_wait_for_a_store_that_is_down(void **state)
{
	struct world *w = make_world(&fake_ops, 10, false);
	struct result r;

	store(w, "a", "one");
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	set_error(w, -ETIMEDOUT);
	usleep(20000);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	hold(w, true);
	begin(&r, w, "a", UINT_MAX);
	assert_int_equal(r.nr, 1);
	assert_int_equal(r.res, 0);
	sf_segment_put(r.seg);
	hold(w, false);
	end_world(w);
}

static void unknown_names_share_a_timeout(void **state)
{
	struct world *w = make_world(&fake_ops, 10, false);
	struct result r[40];
	char name[16];
	unsigned int i;

	set_error(w, -ETIMEDOUT);
	hold(w, true);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		begin(&r[i], w, name, UINT_MAX);
	}
	await_waiting(w, 4);
	usleep(5000);
	hold(w, false);
	for (i = 0; i < 40; i++) {
		end(&r[i]);
		assert_int_equal(r[i].res, -ETIMEDOUT);
	}
	assert_true(nr_gets(w) <= 12);
	end_world(w);
}

/* ---- listing ---- */

static void listings_are_sorted_and_cheap(void **state)
{
	struct world *w = make_world(&fake_ops, 10, false);
	struct sf_directory_list *list;
	struct sf_directory_info info;
	uint64_t start;
	size_t i;

	for (i = 0; i < NR_DOCS; i++)
		assert_true(asprintf(&w->fake.name[i], "n%zu",
				     (i * 7919) % (NR_DOCS / 2)) > 0);
	w->fake.nr = NR_DOCS;
	start = sf_now_ms();
	assert_int_equal(sf_directory_list(w->dir, &list, NULL), 0);
	assert_true(sf_now_ms() - start < 2000);
	assert_int_equal(list->nr, NR_DOCS / 2);
	for (i = 1; i < list->nr; i++)
		assert_true(strcmp(list->names[i - 1], list->names[i]) < 0);
	sf_directory_list_free(list);
	sf_directory_info(w->dir, &info);
	assert_int_equal(info.known, 0);

	w->fake.error = -EHOSTUNREACH;
	assert_int_equal(sf_directory_list(w->dir, &list, NULL),
			 -EHOSTUNREACH);
	sf_directory_list_free(NULL);
	end_world(w);
}

static void a_store_that_cannot_list_gives_the_names_used(void **state)
{
	struct world *w = make_world(&blind_ops, 60000, true);
	struct sf_directory_list *list;

	store(w, "b", "one");
	store(w, "a", "one");
	store(w, "c", "one");
	assert_int_equal(lookup(w, "b", UINT_MAX, NULL), 0);
	assert_int_equal(lookup(w, "a", UINT_MAX, NULL), 0);
	assert_int_equal(lookup(w, "nope", UINT_MAX, NULL), -ENOENT);
	assert_int_equal(sf_directory_list(w->dir, &list, NULL), 0);
	assert_int_equal(list->nr, 2);
	assert_string_equal(list->names[0], "a");
	assert_string_equal(list->names[1], "b");
	sf_directory_list_free(list);
	end_world(w);
}

static void many_names_that_never_were_are_forgotten(void **state)
{
	struct world *w = make_world(&fake_ops, 1, false);
	char name[16];
	unsigned int i;

	for (i = 0; i < 9000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		assert_int_equal(lookup(w, name, UINT_MAX, NULL), -ENOENT);
	}
	usleep(1100000);
	assert_int_equal(lookup(w, "one-more", UINT_MAX, NULL), -ENOENT);
	/* Nothing to see but by the memory checkers; it must not crash. */
	end_world(w);
}

static void freeing_does_not_wait_for_refreshes(void **state)
{
	struct world *w = make_world(&fake_ops, 60000, true);
	char name[16];
	unsigned int i;

	event(w, SF_META_EVENT_SYNC, NULL);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		store(w, name, "one");
		assert_int_equal(lookup(w, name, UINT_MAX, NULL), 0);
	}
	event(w, SF_META_EVENT_SYNC, NULL);
	end_world(w);
	sf_directory_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fresh_snapshot_is_answered_at_once),
		cmocka_unit_test(without_a_watch_the_time_to_live_decides),
		cmocka_unit_test(a_missing_name_is_believed_for_a_while),
		cmocka_unit_test(equal_bytes_are_no_change),
		cmocka_unit_test(lookups_share_a_pull),
		cmocka_unit_test(age_zero_is_answered_by_a_later_pull),
		cmocka_unit_test(while_the_watch_stands_snapshots_live),
		cmocka_unit_test(a_change_during_a_pull_is_not_lost),
		cmocka_unit_test(a_lost_watch_leaves_the_time_to_live),
		cmocka_unit_test(after_a_sync_what_is_known_is_pulled_anew),
		cmocka_unit_test(an_outage_takes_nothing_away),
		cmocka_unit_test(
			a_known_name_does_not_wait_for_a_store_that_is_down),
		cmocka_unit_test(unknown_names_share_a_timeout),
		cmocka_unit_test(listings_are_sorted_and_cheap),
		cmocka_unit_test(
			a_store_that_cannot_list_gives_the_names_used),
		cmocka_unit_test(many_names_that_never_were_are_forgotten),
		cmocka_unit_test(freeing_does_not_wait_for_refreshes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
