/* SPDX-License-Identifier: MIT */
/*
 * What the mount and segctl both stand on: metadata store, worker threads,
 * timers, pipes, I/O buffers, directory and engine, built in that order and
 * taken down in reverse. Starts threads: not to be carried over a fork.
 */
#ifndef SF_CONTEXT_H
#define SF_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"

struct sf_core_options;
struct sf_introducer;
struct sf_transport_config;

struct sf_context {
	struct sf_meta *meta;
	struct sf_workers *workers;
	struct sf_timers *timers;
	struct sf_pipe_pool *pipes;	/* NULL: reads are never spliced */
	struct sf_iobuf_pool *pool;
	struct sf_directory *directory;
	struct sf_introducer *introducer;
	struct sf_engine *engine;
};

struct sf_context_config {
	const char *source;
	const struct sf_core_options *options;	/* checked ones */
	size_t pool_bytes, buf_bytes;
	unsigned int nr_pipes;		/* 0: none */
	unsigned int ttl_ms, negative_ttl_ms;	/* of snapshots */
	bool watch;
};

/* Errors are those of the module that failed; *STATUS is what a program should
 * exit with then. */
int sf_context_new(struct sf_context **out,
		   const struct sf_context_config *config,
		   enum sf_exit *status, struct sf_err *err);
void sf_context_free(struct sf_context *ctx);	/* NULL is fine */

/* One more engine with peers and connections of its own, for segctl's bench;
 * it ends before the context. */
int sf_context_engine(struct sf_context *ctx,
		      const struct sf_core_options *options,
		      struct sf_engine **out, struct sf_err *err);

#endif
