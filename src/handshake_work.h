/* SPDX-License-Identifier: MIT */
/*
 * Handshake requests whose handler may block: answered on a few threads, and
 * collected again by the server's own. Private to handshake*.c.
 */
#ifndef SF_HANDSHAKE_WORK_H
#define SF_HANDSHAKE_WORK_H

#include <stddef.h>
#include <sys/queue.h>

#include "handshake.h"

struct sf_handshake_work;

/* Part of whatever waits for the answer; untouched by its owner from add until
 * it comes back from next. */
struct sf_handshake_job {
	enum sf_handshake_type type;
	const char *body;
	size_t len;
	char *reply;		/* malloc'ed; NULL: none */
	struct sf_handshake_work *work;
	STAILQ_ENTRY(sf_handshake_job) link;
};

int sf_handshake_work_new(struct sf_handshake_work **out,
			  unsigned int nr_threads,
			  sf_handshake_handler *handler, void *arg);
/* Readable when a job is done. */
int sf_handshake_work_fd(const struct sf_handshake_work *w);
int sf_handshake_work_add(struct sf_handshake_work *w,
			  struct sf_handshake_job *job);	/* -ENOMEM */
/* A job that is done, or NULL. */
struct sf_handshake_job *sf_handshake_work_next(struct sf_handshake_work *w);
/* Waits for the handlers that run; the jobs behind them are done without a
 * reply. No thread is left, next() still gives what is done. */
void sf_handshake_work_stop(struct sf_handshake_work *w);
void sf_handshake_work_free(struct sf_handshake_work *w);	/* NULL ok */

#endif
