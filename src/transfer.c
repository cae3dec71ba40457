/* SPDX-License-Identifier: MIT */
/*
 * The engine: takes a transfer from submission to its one completion.
 *
 *   submit -> on the wire -> over
 *                |  ^
 *          error |  | same registration, worth another try
 *                v  |
 *             refresh (the descriptor is pulled again, once for all transfers
 *             of a session that wait for it) -> retry timer
 *
 * The session's reaper timer ends what passes its deadline, in whichever of
 * these states it is. A transfer's state changes under its session's lock only;
 * whoever moves it to TRANSFER_OVER calls done(). Runs on its callers' threads:
 * sessions, transports, timers, workers.
 */
#include "config.h"
#include "engine.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "directory.h"
#include "err.h"
#include "range.h"

#define RESET_TRIES 5		/* a connection that keeps breaking: -EIO */
#define CONNECT_TRIES 2		/* refused: soon given up, and said so */
#define RETRY_FIRST_MS 50	/* doubles from there */

static void launch(struct sf_transfer *t);
static void reaper_run(struct sf_timer *timer);

static struct sf_session *session_of(const struct sf_transfer *t)
{
	return t->reg->session;
}

/* ---- the end of a transfer ---- */

static void count(struct sf_engine *e, const struct sf_transfer *t, int res)
{
	struct engine_counters *c = &e->count;

	if (res) {
		atomic_fetch_add_explicit(&c->errors, 1, memory_order_relaxed);
		return;
	}
	if (t->op == SF_FLUSH)
		return;
	atomic_fetch_add_explicit(t->op == SF_READ ? &c->reads : &c->writes, 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(t->op == SF_READ ? &c->read_bytes
						   : &c->written_bytes,
				  t->len, memory_order_relaxed);
}

/* T is in no list and nobody else's any more. */
static void complete(struct sf_transfer *t, int res)
{
	struct sf_engine *e = t->engine;
	struct sf_registration *reg = t->reg;

	count(e, t, res);
	sf_segment_put(t->seg);
	t->done(t, res);
	/* T may be gone. */
	sf_registration_put(reg);
	if (!atomic_load(&e->stopping)) {
		atomic_fetch_sub(&e->in_flight, 1);
		return;
	}
	/* Under the lock, or the engine could be freed before we let go. */
	pthread_mutex_lock(&e->lock);
	atomic_fetch_sub(&e->in_flight, 1);
	pthread_cond_broadcast(&e->quiet);
	pthread_mutex_unlock(&e->lock);
}

/* What the caller is told: its own words for how T had to end come first. */
static int outcome(const struct sf_transfer *t, int res)
{
	if (res == 0)
		return 0;
	if (t->verdict)
		return t->verdict;
	return res == -ECONNRESET ? -EIO : res;
}

/* End T, which the caller holds. */
static void finish(struct sf_transfer *t, int res)
{
	struct sf_session *s = session_of(t);

	pthread_mutex_lock(&s->lock);
	t->state = TRANSFER_OVER;
	TAILQ_REMOVE(&s->outstanding, t, link);
	pthread_mutex_unlock(&s->lock);
	complete(t, outcome(t, res));
}

/* ---- cancelling and deadlines ---- */

/* End T, which the caller holds and which has been told how. */
static void end_told(struct sf_transfer *t, int res)
{
	if (res && t->verdict == -ETIMEDOUT)
		session_note_error(session_of(t), t, -ETIMEDOUT);
	finish(t, res);
}

/*
 * Make T end with VERDICT. Called with the session's lock held, returns without
 * it. Does nothing when T is already being ended.
 */
static void cancel_and_unlock(struct sf_session *s, struct sf_transfer *t,
			      int verdict)
{
	struct sf_timers *timers = s->engine->timers;
	struct sf_peer *peer;
	unsigned int index;

	if (t->verdict || t->state == TRANSFER_OVER) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	t->verdict = verdict;
	switch (t->state) {
	case TRANSFER_REFRESH:
		TAILQ_REMOVE(&s->waiting, t, wait);
		break;
	case TRANSFER_RETRY:
		if (sf_timer_cancel(timers, &t->retry))
			break;
		__attribute__((fallthrough));	/* the timer thread has it */
	default:
		/* Whoever holds it looks at the verdict. */
		pthread_mutex_unlock(&s->lock);
		return;
	case TRANSFER_ON_WIRE:
		/* A completion that comes meanwhile is put aside. */
		t->state = TRANSFER_CANCELLING;
		pthread_mutex_unlock(&s->lock);
		if (!session_peer(s, t->io.buffer, &peer, &index))
			sf_peer_cancel(peer, &t->io);
		pthread_mutex_lock(&s->lock);
		if (t->state == TRANSFER_ENDED)
			break;
		/* The wire has not let go yet: io_done() will come. */
		t->state = TRANSFER_ON_WIRE;
		pthread_mutex_unlock(&s->lock);
		return;
	}
	if (t->state != TRANSFER_ENDED)
		t->result = verdict;
	t->state = TRANSFER_HELD;
	pthread_mutex_unlock(&s->lock);
	end_told(t, t->result);
}

void sf_transfer_cancel(struct sf_engine *e, struct sf_transfer *t)
{
	struct sf_session *s = session_of(t);

	pthread_mutex_lock(&s->lock);
	cancel_and_unlock(s, t, -ECANCELED);
}

/* Any transfer of S that has not been told how to end. */
static struct sf_transfer *find_untold_locked(struct sf_session *s)
{
	struct sf_transfer *t;

	TAILQ_FOREACH(t, &s->outstanding, link)
		if (!t->verdict)
			break;
	return t;
}

void transfer_cancel_all(struct sf_engine *e, int verdict)
{
	struct sf_session *s = session_first(e);

	for (; s; s = session_next(s)) {
		struct sf_transfer *t;

		pthread_mutex_lock(&s->lock);
		while ((t = find_untold_locked(s))) {
			cancel_and_unlock(s, t, verdict);
			pthread_mutex_lock(&s->lock);
		}
		pthread_mutex_unlock(&s->lock);
	}
}

static void reaper_arm_locked(struct sf_session *s)
{
	struct sf_transfer *t = TAILQ_FIRST(&s->outstanding);

	if (!t)
		return;
	if (s->reaper_armed) {
		if (s->reaper.when_ms <= t->deadline_ms)
			return;
		if (!sf_timer_cancel(s->engine->timers, &s->reaper))
			return;	/* it runs now and arms itself again */
	}
	s->reaper_armed = !sf_timer_arm(s->engine->timers, &s->reaper,
					t->deadline_ms, reaper_run);
}

/* The first transfer past its deadline that nobody has told yet. */
static struct sf_transfer *find_expired_locked(struct sf_session *s)
{
	uint64_t now = sf_now_ms();
	struct sf_transfer *t;

	TAILQ_FOREACH(t, &s->outstanding, link) {
		if (t->deadline_ms > now)
			return NULL;
		if (!t->verdict)
			return t;
	}
	return NULL;
}

static void reaper_run(struct sf_timer *timer)
{
	struct sf_session *s = (struct sf_session *)
		((char *)timer - offsetof(struct sf_session, reaper));
	struct sf_transfer *t;

	/* Ending the last transfer could otherwise end the session under us. */
	session_get(s);
	for (;;) {
		bool hung;

		pthread_mutex_lock(&s->lock);
		t = find_expired_locked(s);
		if (!t)
			break;
		hung = t->state == TRANSFER_ON_WIRE;
		if (hung) {
			struct sf_segment *seg = sf_segment_get(t->seg);
			const struct sf_buffer *buf = t->io.buffer;

			/* First, so that nobody starts anew meanwhile. */
			pthread_mutex_unlock(&s->lock);
			session_suspect(s, buf, seg);
			sf_segment_put(seg);
			pthread_mutex_lock(&s->lock);
			if (find_expired_locked(s) != t) {
				pthread_mutex_unlock(&s->lock);
				continue;
			}
		}
		cancel_and_unlock(s, t, -ETIMEDOUT);
	}
	s->reaper_armed = false;
	reaper_arm_locked(s);
	pthread_mutex_unlock(&s->lock);
	session_put(s);
}

/* ---- errors, refresh, retry ---- */

static void retry_due(struct sf_timer *timer)
{
	struct sf_transfer *t = (struct sf_transfer *)
		((char *)timer - offsetof(struct sf_transfer, retry));
	struct sf_session *s = session_of(t);

	pthread_mutex_lock(&s->lock);
	t->state = TRANSFER_HELD;
	pthread_mutex_unlock(&s->lock);
	launch(t);
}

static void retry_later(struct sf_transfer *t)
{
	struct sf_session *s = session_of(t);
	uint64_t pause = (uint64_t)RETRY_FIRST_MS << (t->attempt - 1);
	int res;

	atomic_fetch_add(&t->engine->count.retries, 1);
	pthread_mutex_lock(&s->lock);
	res = t->verdict;
	if (!res)
		res = sf_timer_arm(t->engine->timers, &t->retry,
				   sf_now_ms() + pause, retry_due);
	if (!res)
		t->state = TRANSFER_RETRY;
	pthread_mutex_unlock(&s->lock);
	if (res)
		finish(t, res);
}

/* Would trying again, on an unchanged descriptor, be of use after ERROR? */
static bool worth_retrying(const struct sf_transfer *t, int error)
{
	switch (error) {
	case -ECONNRESET:
		return t->attempt < RESET_TRIES;
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
		return t->attempt < CONNECT_TRIES;
	default:
		return false;
	}
}

/* The store has answered (RES, SEG); decide about one transfer. */
static void after_refresh(struct sf_transfer *t, int res,
			  struct sf_segment *seg)
{
	if (seg)
		registration_update(t->reg, seg);
	else if (res == -ENOENT)
		atomic_store(&t->reg->stale, true);
	/* Any other error of the store: go by the snapshot that we have. */

	if (atomic_load(&t->reg->stale))
		finish(t, -ESTALE);
	else if (worth_retrying(t, t->last_error))
		retry_later(t);
	else
		finish(t, t->last_error);
}

static void refreshed(void *arg, int res, struct sf_segment *seg)
{
	struct sf_session *s = arg;
	struct sf_engine *e = s->engine;
	struct sf_transfer_list ready = TAILQ_HEAD_INITIALIZER(ready);
	struct sf_transfer *t;

	pthread_mutex_lock(&s->lock);
	s->refreshing = false;
	TAILQ_CONCAT(&ready, &s->waiting, wait);
	TAILQ_FOREACH(t, &ready, wait)
		t->state = TRANSFER_HELD;
	pthread_mutex_unlock(&s->lock);
	while ((t = TAILQ_FIRST(&ready))) {
		TAILQ_REMOVE(&ready, t, wait);
		after_refresh(t, res, seg);
	}
	session_put(s);
	pthread_mutex_lock(&e->lock);
	if (--e->nr_busy == 0)
		pthread_cond_broadcast(&e->quiet);
	pthread_mutex_unlock(&e->lock);
}

static void wait_for_refresh(struct sf_transfer *t)
{
	struct sf_session *s = session_of(t);
	struct sf_engine *e = s->engine;
	bool start;

	pthread_mutex_lock(&s->lock);
	if (t->verdict) {
		pthread_mutex_unlock(&s->lock);
		finish(t, t->verdict);
		return;
	}
	t->state = TRANSFER_REFRESH;
	TAILQ_INSERT_TAIL(&s->waiting, t, wait);
	start = !s->refreshing;
	s->refreshing = true;
	pthread_mutex_unlock(&s->lock);
	if (!start)
		return;
	session_get(s);
	pthread_mutex_lock(&e->lock);
	e->nr_busy++;
	pthread_mutex_unlock(&e->lock);
	sf_directory_lookup(e->directory, s->name, 0, refreshed, s);
}

static bool wants_refresh(int error)
{
	switch (error) {
	case -EREMOTEIO:
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
	case -EPROTO:
	case -EIO:
		return true;
	default:
		return false;
	}
}

/* The wire has let go of T, which the caller holds: what next? */
static void settle(struct sf_transfer *t, int res)
{
	if (!res) {
		finish(t, 0);
		return;
	}
	assert(res < 0);
	if (t->verdict) {
		end_told(t, res);
		return;
	}
	t->last_error = res;
	session_note_error(session_of(t), t, res);
	if (wants_refresh(res) && !atomic_load(&t->engine->stopping))
		wait_for_refresh(t);
	else
		finish(t, res);
}

static void io_done(struct sf_io *io, int res)
{
	struct sf_transfer *t = (struct sf_transfer *)
		((char *)io - offsetof(struct sf_transfer, io));
	struct sf_session *s = session_of(t);

	pthread_mutex_lock(&s->lock);
	if (t->state != TRANSFER_ON_WIRE) {
		t->result = res;
		t->state = TRANSFER_ENDED;
		pthread_mutex_unlock(&s->lock);
		return;
	}
	t->state = TRANSFER_HELD;
	pthread_mutex_unlock(&s->lock);
	settle(t, res);
}

/* ---- the way in ---- */

static struct sf_mem *find_mem(struct sf_engine *e, unsigned int index,
			       const void *mem)
{
	struct engine_backend *b = &e->backends[index];
	size_t len;
	void *base;
	int node;

	if (!(sf_transport_caps(b->transport) & SF_TRANSPORT_NEEDS_MEM))
		return NULL;
	for (unsigned int i = 0; i < ENGINE_MAX_REGIONS; i++) {
		if (!sf_iobuf_region(e->pool, i, &base, &len, &node))
			break;
		if ((uintptr_t)mem - (uintptr_t)base < len)
			return b->mems[i];
	}
	return NULL;
}

/* Pin the snapshot and the buffer that T goes to. */
static int resolve(struct sf_transfer *t)
{
	struct sf_registration *reg = t->reg;
	struct sf_session *s = reg->session;
	struct sf_segment *old = t->seg;
	const struct sf_buffer *buf;
	int res = 0;

	if (sf_registration_is_stale(reg))
		return -ESTALE;
	pthread_mutex_lock(&s->lock);
	buf = reg->buf;
	if (reg->whole_owner)
		buf = sf_segment_covering(reg->seg, t->addr, t->len);
	if (!buf || !sf_range_within(t->addr, t->len, buf->addr, buf->length)) {
		res = -EFAULT;
	} else {
		t->seg = sf_segment_get(reg->seg);
		t->io.buffer = buf;
	}
	pthread_mutex_unlock(&s->lock);
	if (!res)
		sf_segment_put(old);
	return res;
}

/*
 * While T was LAUNCHING, a completion was put aside and a canceller has only
 * left its verdict, so that T is still there to be looked at.
 */
static void after_submit(struct sf_session *s, struct sf_transfer *t)
{
	int verdict;

	pthread_mutex_lock(&s->lock);
	if (t->state == TRANSFER_ENDED) {
		t->state = TRANSFER_HELD;
		pthread_mutex_unlock(&s->lock);
		settle(t, t->result);
		return;
	}
	t->state = TRANSFER_ON_WIRE;
	verdict = t->verdict;
	t->verdict = 0;
	if (verdict)
		cancel_and_unlock(s, t, verdict);
	else
		pthread_mutex_unlock(&s->lock);
}

/* Where an acknowledgement says that all is done. */
static bool has_nothing_to_flush(const struct sf_transfer *t,
				 unsigned int index)
{
	const struct engine_backend *b = &t->engine->backends[index];

	return t->op == SF_FLUSH &&
	       !(sf_transport_caps(b->transport) & SF_TRANSPORT_FLUSH);
}

/* Put T, which the caller holds, on the wire for the first or another time. */
static void launch(struct sf_transfer *t)
{
	struct sf_session *s = session_of(t);
	struct sf_peer *peer = NULL;
	unsigned int index = 0;
	int res;

	t->attempt++;
	res = resolve(t);
	if (!res)
		res = session_peer(s, t->io.buffer, &peer, &index);
	if (res || has_nothing_to_flush(t, index)) {
		finish(t, res);
		return;
	}
	t->io.op = t->op;
	t->io.may_pipe = t->may_pipe;
	t->io.seg = t->seg;
	t->io.addr = t->addr;
	t->io.len = t->len;
	t->io.mem = t->mem;
	t->io.reg = find_mem(t->engine, index, t->mem);
	t->io.deadline_ms = t->deadline_ms;
	t->io.done = io_done;

	pthread_mutex_lock(&s->lock);
	res = t->verdict;
	if (!res)
		t->state = TRANSFER_LAUNCHING;
	pthread_mutex_unlock(&s->lock);
	if (res) {
		finish(t, res);
		return;
	}
	sf_peer_submit(peer, &t->io);
	after_submit(s, t);
}

/* In order of deadlines: at the tail, nearly always. */
static void insert_locked(struct sf_session *s, struct sf_transfer *t)
{
	struct sf_transfer *at;

	at = TAILQ_LAST(&s->outstanding, sf_transfer_list);
	while (at && at->deadline_ms > t->deadline_ms)
		at = TAILQ_PREV(at, sf_transfer_list, link);
	if (at)
		TAILQ_INSERT_AFTER(&s->outstanding, at, t, link);
	else
		TAILQ_INSERT_HEAD(&s->outstanding, t, link);
	reaper_arm_locked(s);
}

void sf_transfer_submit(struct sf_engine *e, struct sf_transfer *t)
{
	struct sf_session *s = t->reg->session;
	bool suspect;

	t->engine = e;
	t->seg = NULL;
	t->verdict = 0;
	t->last_error = 0;
	t->attempt = 0;
	t->retry.slot = 0;
	t->io.nr_pipes = 0;
	t->io.data = t->mem;
	t->io.buffer = NULL;
	t->state = TRANSFER_HELD;
	t->deadline_ms = sf_now_ms() + e->timeout_ms;
	sf_registration_get(t->reg);
	atomic_fetch_add(&e->in_flight, 1);
	if (!t->len || atomic_load(&e->stopping)) {
		complete(t, t->len ? -ESHUTDOWN : 0);
		return;
	}
	pthread_mutex_lock(&s->lock);
	suspect = s->suspect;
	if (!suspect)
		insert_locked(s, t);
	pthread_mutex_unlock(&s->lock);
	if (suspect)
		complete(t, -ETIMEDOUT);
	else
		launch(t);
}
