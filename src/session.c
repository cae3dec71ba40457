/* SPDX-License-Identifier: MIT */
/*
 * Sessions and registrations: who owns a segment, which peers lead there, and
 * whether what an open file was bound to is still what the metadata says.
 * Sessions nobody uses are closed after a while by the janitor, which runs on
 * the timer thread, the one place that closes peers. Knows no transport by
 * name.
 */
#include "config.h"
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "directory.h"
#include "err.h"
#include "log.h"

#define IDLE_MS 30000		/* keep an unused session this long */
#define IDLE_MAX 256		/* and no more of them than this */
#define JANITOR_MS 1000

static size_t bucket_of(const char *name)
{
	size_t h = 14695981039346656037u;	/* FNV-1a */

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 1099511628211u;
	return h % ENGINE_BUCKETS;
}

/* ---- the life of a session ---- */

static struct sf_session *session_new(struct sf_engine *e,
				      struct sf_segment *seg)
{
	struct sf_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->name = strdup(seg->name);
	if (!s->name) {
		free(s);
		return NULL;
	}
	s->engine = e;
	s->seg = sf_segment_get(seg);
	pthread_mutex_init(&s->lock, NULL);
	TAILQ_INIT(&s->outstanding);
	TAILQ_INIT(&s->waiting);
	return s;
}

static void session_free(struct sf_session *s)
{
	sf_timer_cancel_wait(s->engine->timers, &s->reaper);
	for (unsigned int i = 0; i < s->engine->nr_backends; i++)
		sf_peer_close(s->peers[i]);
	free(s->probe);
	sf_segment_put(s->seg);
	pthread_mutex_destroy(&s->lock);
	free(s->name);
	free(s);
}

static struct sf_session **find_locked(struct sf_engine *e, const char *name)
{
	struct sf_session **at = &e->buckets[bucket_of(name)];

	while (*at && strcmp((*at)->name, name))
		at = &(*at)->next;
	return at;
}

static void unlink_locked(struct sf_engine *e, struct sf_session **at)
{
	(*at)->is_current = false;
	*at = (*at)->next;
}

static void janitor_run(struct sf_timer *t);

static void janitor_arm_locked(struct sf_engine *e)
{
	if (e->janitor_armed || atomic_load(&e->stopping))
		return;
	e->janitor_armed = !sf_timer_arm(e->timers, &e->janitor,
					 sf_now_ms() + JANITOR_MS, janitor_run);
}

static void leave_idle_locked(struct sf_session *s)
{
	if (!s->is_idle)
		return;
	TAILQ_REMOVE(&s->engine->idle, s, idle_link);
	s->is_idle = false;
	s->engine->nr_idle--;
}

static void enter_idle_locked(struct sf_session *s)
{
	struct sf_engine *e = s->engine;

	/* A session that was superseded is of no use to anybody. */
	s->idle_since_ms = s->is_current ? sf_now_ms() : 0;
	if (s->is_current)
		TAILQ_INSERT_TAIL(&e->idle, s, idle_link);
	else
		TAILQ_INSERT_HEAD(&e->idle, s, idle_link);
	s->is_idle = true;
	e->nr_idle++;
	janitor_arm_locked(e);
}

/* Take the next session to close off the lists; NULL when there is none. */
static struct sf_session *janitor_pick_locked(struct sf_engine *e)
{
	struct sf_session *s = TAILQ_FIRST(&e->idle);

	if (!s || (e->nr_idle <= IDLE_MAX &&
		   sf_now_ms() - s->idle_since_ms < IDLE_MS))
		return NULL;
	leave_idle_locked(s);
	if (s->is_current)
		unlink_locked(e, find_locked(e, s->name));
	TAILQ_REMOVE(&e->all, s, link);
	e->nr_sessions--;
	return s;
}

static void janitor_run(struct sf_timer *t)
{
	struct sf_engine *e = (struct sf_engine *)
		((char *)t - offsetof(struct sf_engine, janitor));
	struct sf_session *s;

	for (;;) {
		pthread_mutex_lock(&e->lock);
		s = janitor_pick_locked(e);
		if (!s) {
			e->janitor_armed = false;
			if (e->nr_idle)
				janitor_arm_locked(e);
		}
		pthread_mutex_unlock(&e->lock);
		if (!s)
			return;
		session_free(s);
	}
}

static struct sf_session *hold_locked(struct sf_session *s)
{
	if (s) {
		leave_idle_locked(s);
		s->refs++;
	}
	return s;
}

static void release_locked(struct sf_session *s)
{
	if (--s->refs == 0)
		enter_idle_locked(s);
}

struct sf_session *session_get(struct sf_session *s)
{
	struct sf_engine *e = s->engine;

	pthread_mutex_lock(&e->lock);
	hold_locked(s);
	pthread_mutex_unlock(&e->lock);
	return s;
}

void session_put(struct sf_session *s)
{
	struct sf_engine *e = s->engine;

	pthread_mutex_lock(&e->lock);
	release_locked(s);
	pthread_mutex_unlock(&e->lock);
}

struct sf_session *session_lookup(struct sf_engine *e, const char *name)
{
	struct sf_session *s;

	pthread_mutex_lock(&e->lock);
	s = hold_locked(*find_locked(e, name));
	pthread_mutex_unlock(&e->lock);
	return s;
}

struct sf_session *session_first(struct sf_engine *e)
{
	struct sf_session *s;

	pthread_mutex_lock(&e->lock);
	s = hold_locked(TAILQ_FIRST(&e->all));
	pthread_mutex_unlock(&e->lock);
	return s;
}

struct sf_session *session_next(struct sf_session *s)
{
	struct sf_engine *e = s->engine;
	struct sf_session *next;

	pthread_mutex_lock(&e->lock);
	next = hold_locked(TAILQ_NEXT(s, link));
	release_locked(s);
	pthread_mutex_unlock(&e->lock);
	return next;
}

/* A newer snapshot of the same owner: peers want to know. */
static void adopt(struct sf_session *s, struct sf_segment *seg)
{
	struct sf_peer *peers[ENGINE_MAX_BACKENDS];
	struct sf_segment *old;

	pthread_mutex_lock(&s->lock);
	if (s->seg == seg) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	old = s->seg;
	s->seg = sf_segment_get(seg);
	memcpy(peers, s->peers, sizeof(peers));
	pthread_mutex_unlock(&s->lock);
	sf_segment_put(old);
	/* Peers live as long as the session, which the caller holds. */
	for (unsigned int i = 0; i < s->engine->nr_backends; i++)
		if (peers[i])
			sf_peer_update(peers[i], seg);
}

static bool owned_by(struct sf_session *s, struct sf_segment *seg)
{
	bool same;

	pthread_mutex_lock(&s->lock);
	same = s->seg == seg || sf_segment_same_owner(s->seg, seg);
	pthread_mutex_unlock(&s->lock);
	return same;
}

struct sf_session *session_find(struct sf_engine *e, struct sf_segment *seg)
{
	struct sf_session **at, *s;

	pthread_mutex_lock(&e->lock);
	at = find_locked(e, seg->name);
	s = *at;
	if (s && !owned_by(s, seg)) {
		unlink_locked(e, at);
		if (s->is_idle) {	/* to the front: close it soon */
			leave_idle_locked(s);
			enter_idle_locked(s);
		}
		s = NULL;
	}
	if (!s) {
		s = session_new(e, seg);
		if (s) {
			at = &e->buckets[bucket_of(seg->name)];
			s->next = *at;
			*at = s;
			s->is_current = true;
			TAILQ_INSERT_TAIL(&e->all, s, link);
			e->nr_sessions++;
		}
	}
	hold_locked(s);
	pthread_mutex_unlock(&e->lock);
	if (s)
		adopt(s, seg);
	return s;
}

void session_free_all(struct sf_engine *e)
{
	struct sf_session *s;

	sf_timer_cancel_wait(e->timers, &e->janitor);
	while ((s = TAILQ_FIRST(&e->all))) {
		TAILQ_REMOVE(&e->all, s, link);
		session_free(s);
	}
}

/* ---- peers ---- */

static int backend_for(struct sf_engine *e, const struct sf_buffer *buf)
{
	const struct sf_transport_ops *want = sf_transport_for(buf->proto);

	if (e->forced)
		return e->backends[0].transport ? 0 : -ENODEV;
	for (unsigned int i = 0; want && i < e->nr_backends; i++)
		if (e->backends[i].ops == want)
			return e->backends[i].transport ? (int)i : -ENODEV;
	return -EOPNOTSUPP;
}

int session_peer(struct sf_session *s, const struct sf_buffer *buf,
		 struct sf_peer **peer, unsigned int *index)
{
	struct sf_err err = { 0 };
	int i = backend_for(s->engine, buf);
	int res = 0;

	if (i < 0)
		return i;
	pthread_mutex_lock(&s->lock);
	if (!s->peers[i])
		res = sf_peer_open(s->engine->backends[i].transport, s->seg,
				   &s->peers[i], &err);
	*peer = s->peers[i];
	pthread_mutex_unlock(&s->lock);
	*index = (unsigned int)i;
	if (res)
		sf_log(LOG_WARNING, SF_LOG_CORE, "%s: %s", s->name, err.text);
	return res;
}

/* ---- errors ---- */

void session_note_error(struct sf_session *s, const struct sf_transfer *t,
			int code)
{
	struct session_error e = {
		.code = code,
		.when_ms = sf_now_ms(),
		.addr = t->addr,
		.op = t->op,
	};
	bool news;

	pthread_mutex_lock(&s->lock);
	news = s->last.code != code;
	if (!s->first.code)
		s->first = e;
	s->last = e;
	s->nr_errors++;
	pthread_mutex_unlock(&s->lock);
	if (news)
		sf_log(LOG_WARNING, SF_LOG_CORE,
		       "%s: %s at 0x%llx: %s", s->name, sf_op_name(t->op),
		       (unsigned long long)t->addr, strerror(-code));
}

/* ---- probes of a suspect peer ---- */

#define PROBE_PAUSE_MS 500

/* One byte read over and over until the peer answers in whatever way. */
struct session_probe {
	struct sf_io io;
	struct sf_session *session;
	struct sf_segment *seg;	/* holds io.buffer */
	struct sf_peer *peer;
	struct sf_timer timer;	/* the next try, or the end of this one */
	atomic_int cancelling;
	char byte;
};

static void probe_start(struct session_probe *p);

static void probe_end(struct session_probe *p)
{
	struct sf_session *s = p->session;
	struct sf_engine *e = s->engine;

	pthread_mutex_lock(&s->lock);
	s->suspect = false;
	s->probe = NULL;
	pthread_mutex_unlock(&s->lock);
	sf_segment_put(p->seg);
	free(p);
	session_put(s);
	pthread_mutex_lock(&e->lock);
	if (--e->nr_busy == 0)
		pthread_cond_broadcast(&e->quiet);
	pthread_mutex_unlock(&e->lock);
}

static struct session_probe *probe_of(struct sf_timer *t)
{
	return (struct session_probe *)((char *)t -
				       offsetof(struct session_probe, timer));
}

static void probe_again(struct sf_timer *t)
{
	probe_start(probe_of(t));
}

static void probe_next(struct session_probe *p)
{
	struct sf_engine *e = p->session->engine;

	if (atomic_load(&e->stopping) ||
	    sf_timer_arm(e->timers, &p->timer, sf_now_ms() + PROBE_PAUSE_MS,
			 probe_again))
		probe_end(p);
}

/* io.done and probe_expire() race: whoever comes second goes on. */
static void probe_answered(struct session_probe *p, int res)
{
	if (res == -ECANCELED || res == -ETIMEDOUT) {
		probe_next(p);
		return;
	}
	/* Any answer will do, a refusal too: it is not hung. */
	sf_log(LOG_NOTICE, SF_LOG_CORE, "%s: answers again (%s)",
	       p->session->name, res ? strerror(-res) : "ok");
	probe_end(p);
}

static void probe_done(struct sf_io *io, int res)
{
	struct session_probe *p = (struct session_probe *)io;

	io->priv = NULL;
	p->io.nr_pipes = 0;
	if (sf_timer_cancel(p->session->engine->timers, &p->timer)) {
		probe_answered(p, res);
		return;
	}
	/* The timer's callback has begun and will see to it. */
	if (atomic_exchange(&p->cancelling, res ? res : 1))
		probe_answered(p, res);
}

static void probe_expire(struct sf_timer *t)
{
	struct session_probe *p = probe_of(t);
	int res;

	sf_peer_cancel(p->peer, &p->io);
	res = atomic_exchange(&p->cancelling, 1);
	if (res)	/* probe_done() came first and left its result */
		probe_answered(p, res == 1 ? 0 : res);
}

static void probe_start(struct session_probe *p)
{
	struct sf_engine *e = p->session->engine;

	atomic_store(&p->cancelling, 0);
	p->io.op = SF_READ;
	p->io.seg = p->seg;
	p->io.addr = p->io.buffer->addr;
	p->io.len = 1;
	p->io.mem = &p->byte;
	p->io.done = probe_done;
	p->io.deadline_ms = sf_now_ms() + e->timeout_ms;
	if (atomic_load(&e->stopping) ||
	    sf_timer_arm(e->timers, &p->timer, p->io.deadline_ms,
			 probe_expire)) {
		probe_end(p);
		return;
	}
	sf_peer_submit(p->peer, &p->io);
}

void session_suspect(struct sf_session *s, const struct sf_buffer *buf,
		     struct sf_segment *seg)
{
	struct sf_engine *e = s->engine;
	struct session_probe *p;
	unsigned int index;

	pthread_mutex_lock(&s->lock);
	if (s->suspect || atomic_load(&e->stopping)) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	s->suspect = true;
	s->suspect_since_ms = sf_now_ms();
	pthread_mutex_unlock(&s->lock);
	sf_log(LOG_WARNING, SF_LOG_CORE,
	       "%s: no answer in %u ms; failing requests until it answers",
	       s->name, e->timeout_ms);

	p = calloc(1, sizeof(*p));
	if (!p || session_peer(s, buf, &p->peer, &index)) {
		free(p);
		pthread_mutex_lock(&s->lock);
		s->suspect = false;
		pthread_mutex_unlock(&s->lock);
		return;
	}
	p->session = session_get(s);
	p->seg = sf_segment_get(seg);
	p->io.buffer = buf;
	pthread_mutex_lock(&s->lock);
	s->probe = p;
	pthread_mutex_unlock(&s->lock);
	pthread_mutex_lock(&e->lock);
	e->nr_busy++;
	pthread_mutex_unlock(&e->lock);
	probe_start(p);
}

void session_stop_probe(struct sf_session *s)
{
	struct sf_timers *timers = s->engine->timers;

	/* Not freed under the lock: probe_end() clears s->probe first. */
	pthread_mutex_lock(&s->lock);
	if (s->probe && sf_timer_cancel(timers, &s->probe->timer))
		sf_timer_arm(timers, &s->probe->timer, 0, s->probe->timer.fn);
	pthread_mutex_unlock(&s->lock);
}

/* ---- registrations ---- */

int sf_registration_bind(struct sf_engine *e, struct sf_segment *seg,
			 const struct sf_buffer *buf,
			 struct sf_registration **out)
{
	struct sf_registration *reg = calloc(1, sizeof(*reg));

	if (!reg)
		return -ENOMEM;
	/* Before SEG is looked at again, so that a change in between shows. */
	atomic_init(&reg->checked, 0);
	atomic_init(&reg->refs, 1);
	reg->session = session_find(e, seg);
	if (!reg->session) {
		free(reg);
		return -ENOMEM;
	}
	reg->whole_owner = !buf;
	reg->seg = sf_segment_get(seg);
	reg->buf = buf;
	*out = reg;
	return 0;
}

struct sf_registration *sf_registration_get(struct sf_registration *reg)
{
	atomic_fetch_add(&reg->refs, 1);
	return reg;
}

void sf_registration_put(struct sf_registration *reg)
{
	if (!reg || atomic_fetch_sub(&reg->refs, 1) != 1)
		return;
	sf_segment_put(reg->seg);
	session_put(reg->session);
	free(reg);
}

struct sf_share *sf_registration_share(struct sf_registration *reg)
{
	return &reg->session->share;
}

/* The buffer of SEG that REG is bound to, or NULL. */
static const struct sf_buffer *rebind(const struct sf_registration *reg,
				      struct sf_segment *seg)
{
	const struct sf_buffer *buf =
		sf_segment_find(seg, reg->buf->addr, reg->buf->length);

	return buf && sf_buffer_same(reg->seg, reg->buf, seg, buf) ? buf
								   : NULL;
}

void registration_update(struct sf_registration *reg, struct sf_segment *seg)
{
	struct sf_session *s = reg->session;
	const struct sf_buffer *buf = NULL;
	struct sf_segment *old = NULL;

	/* A descriptor that cannot be read says nothing about this buffer. */
	if (seg->error)
		return;
	pthread_mutex_lock(&s->lock);
	if (reg->seg != seg) {
		if (!sf_segment_same_owner(reg->seg, seg) ||
		    (!reg->whole_owner && !(buf = rebind(reg, seg)))) {
			atomic_store(&reg->stale, true);
		} else {
			old = reg->seg;
			reg->seg = sf_segment_get(seg);
			reg->buf = buf;
		}
	}
	pthread_mutex_unlock(&s->lock);
	sf_segment_put(old);
	if (!atomic_load(&reg->stale))
		adopt(s, seg);
}

bool sf_registration_is_stale(struct sf_registration *reg)
{
	struct sf_directory *dir = reg->session->engine->directory;
	uint64_t now = sf_directory_generation(dir);
	struct sf_segment *seg;

	if (atomic_load(&reg->stale))
		return true;
	if (atomic_load_explicit(&reg->checked, memory_order_relaxed) == now)
		return false;
	/* Not in the directory (any more) is no news about the buffer: what a
	 * failing transfer then learns from the store is. */
	seg = sf_directory_peek(dir, reg->session->name);
	if (seg)
		registration_update(reg, seg);
	sf_segment_put(seg);
	atomic_store_explicit(&reg->checked, now, memory_order_relaxed);
	return atomic_load(&reg->stale);
}
