/* SPDX-License-Identifier: MIT */
/*
 * Inside the engine: what transfer.c and session.c share. Callers of the engine
 * include transfer.h only.
 *
 * Locks, in the order they may be taken: engine->lock, session->lock. Neither
 * is held while a transport, the directory or a done() is called.
 */
#ifndef SF_ENGINE_H
#define SF_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "iobuf.h"
#include "transfer.h"

#define ENGINE_MAX_BACKENDS 8
#define ENGINE_MAX_REGIONS 64
#define ENGINE_BUCKETS 1024

struct sf_directory;

struct engine_backend {
	const struct sf_transport_ops *ops;
	struct sf_transport *transport;	/* NULL: could not be opened */
	struct sf_mem *mems[ENGINE_MAX_REGIONS];	/* by pool region */
};

struct engine_counters {
	atomic_uint_fast64_t reads, writes, read_bytes, written_bytes, errors,
		retries;
};

struct sf_engine {
	struct sf_directory *directory;
	struct sf_timers *timers;
	struct sf_iobuf_pool *pool;
	unsigned int timeout_ms;
	bool forced;		/* one transport for every protocol */
	struct engine_backend backends[ENGINE_MAX_BACKENDS];
	unsigned int nr_backends;
	atomic_bool stopping;
	atomic_uint in_flight;
	struct engine_counters count;

	pthread_mutex_t lock;
	pthread_cond_t quiet;	/* in_flight or refreshes reached 0 */
	struct sf_session *buckets[ENGINE_BUCKETS];	/* lock; by name */
	TAILQ_HEAD(, sf_session) all;	/* under lock */
	TAILQ_HEAD(, sf_session) idle;	/* under lock, oldest first */
	unsigned int nr_idle, nr_sessions;	/* under lock */
	unsigned int nr_busy;	/* under lock: refreshes and probes */
	struct sf_timer janitor;
	bool janitor_armed;	/* under lock */
};

enum transfer_state {
	TRANSFER_HELD,		/* some thread has it in hand */
	TRANSFER_LAUNCHING,	/* some thread is inside sf_peer_submit() */
	TRANSFER_ON_WIRE,	/* its io_done() will come */
	TRANSFER_REFRESH,	/* on session->waiting */
	TRANSFER_RETRY,		/* its retry timer is armed */
	TRANSFER_CANCELLING,	/* some thread is inside sf_peer_cancel() */
	TRANSFER_ENDED,		/* io_done() came while launching or cancelling:
				 * that thread goes on with result */
	TRANSFER_OVER,
};

TAILQ_HEAD(sf_transfer_list, sf_transfer);

/* What a session remembers of an error, for status files. */
struct session_error {
	int code;		/* 0: none */
	uint64_t when_ms;
	uint64_t addr;
	enum sf_op op;
};

/*
 * One owner of one segment: the peers that lead to it and everything that is
 * outstanding there. A segment whose owner changes gets a new session; the old
 * one lives on for the registrations that are bound to it.
 */
struct sf_session {
	struct sf_engine *engine;
	char *name;
	struct sf_session *next;	/* engine->lock: bucket */
	TAILQ_ENTRY(sf_session) link;	/* engine->lock */
	TAILQ_ENTRY(sf_session) idle_link;	/* engine->lock */
	unsigned int refs;	/* engine->lock: who uses it */
	bool is_idle;		/* engine->lock: on engine->idle */
	bool is_current;	/* engine->lock: in its bucket */
	uint64_t idle_since_ms;	/* engine->lock */
	struct sf_share share;

	pthread_mutex_t lock;	/* everything below */
	struct sf_segment *seg;	/* newest snapshot of this owner */
	struct sf_peer *peers[ENGINE_MAX_BACKENDS];
	struct sf_transfer_list outstanding;	/* by deadline */
	struct sf_transfer_list waiting;	/* for the refresh under way */
	bool refreshing;
	struct sf_timer reaper;	/* due at the first deadline, or earlier */
	bool reaper_armed;

	bool suspect;		/* let a deadline pass, no answer since */
	uint64_t suspect_since_ms;
	struct session_probe *probe;	/* while suspect; NULL: none made yet */

	struct session_error first, last;
	unsigned int nr_errors;
};

struct sf_registration {
	atomic_uint refs;
	struct sf_session *session;
	bool whole_owner;	/* the `mem` view */
	atomic_bool stale;
	atomic_uint_fast64_t checked;	/* directory generation it was last
					 * compared at */
	struct sf_segment *seg;	/* session->lock: newest that agrees */
	const struct sf_buffer *buf;	/* session->lock: in seg */
};

/* ---- session.c ---- */

/* The current session of SEG's owner, made if need be; a reference. */
struct sf_session *session_find(struct sf_engine *e, struct sf_segment *seg);
/* The current session of NAME, if there is one; a reference, or NULL. */
struct sf_session *session_lookup(struct sf_engine *e, const char *name);
/* Walk all sessions, one reference at a time: next gives S's back. */
struct sf_session *session_first(struct sf_engine *e);
struct sf_session *session_next(struct sf_session *s);
struct sf_session *session_get(struct sf_session *s);
void session_put(struct sf_session *s);
/* Close and free all; nothing may be outstanding. */
void session_free_all(struct sf_engine *e);
/* The engine is stopping: end the probe of S soon, if there is one. */
void session_stop_probe(struct sf_session *s);
/* The peer for BUF, opened if need be. *INDEX is its backend's. Takes the
 * session's lock. -EOPNOTSUPP, -ENODEV, -EADDRNOTAVAIL, -ENOMEM. */
int session_peer(struct sf_session *s, const struct sf_buffer *buf,
		 struct sf_peer **peer, unsigned int *index);
/* Remember an error for status, log it if it is news. */
void session_note_error(struct sf_session *s, const struct sf_transfer *t,
			int code);
/* The peer let a deadline pass: fail new transfers until it answers a probe. */
void session_suspect(struct sf_session *s, const struct sf_buffer *buf,
		     struct sf_segment *seg);

/* Compare REG with a newer snapshot; marks it stale if they disagree. Takes the
 * session's lock. */
void registration_update(struct sf_registration *reg, struct sf_segment *seg);

/* ---- transfer.c ---- */

/* End every outstanding transfer with VERDICT. */
void transfer_cancel_all(struct sf_engine *e, int verdict);

#endif
