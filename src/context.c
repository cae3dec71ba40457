/* SPDX-License-Identifier: MIT */
/* The shared set-up of segfs and segctl: see context.h. No threads of its own,
 * no knowledge of FUSE or of any backend. */
#include "config.h"
#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core_options.h"
#include "directory.h"
#include "introduce.h"
#include "iobuf.h"
#include "meta.h"
#include "pipe.h"
#include "timer.h"
#include "transfer.h"
#include "workers.h"

#define NR_WORKERS 4

static int fail(struct sf_err *err, int code, const char *what)
{
	return sf_err_set(err, code, "cannot start %s: %s", what,
			  strerror(-code));
}

static int start_helpers(struct sf_context *ctx,
			 const struct sf_context_config *config,
			 struct sf_err *err)
{
	int ret = sf_workers_new(&ctx->workers, NR_WORKERS, "segfs-meta");

	if (ret)
		return fail(err, ret, "worker threads");
	ret = sf_timers_new(&ctx->timers);
	if (ret)
		return fail(err, ret, "timers");
	if (config->nr_pipes && config->options->splice) {
		ret = sf_pipe_pool_new(&ctx->pipes, config->nr_pipes,
				       config->buf_bytes);
		if (ret)
			return fail(err, ret, "the pool of pipes");
	}
	ret = sf_iobuf_pool_new(&ctx->pool, config->pool_bytes,
				config->buf_bytes);
	if (ret)
		return fail(err, ret, "the pool of I/O buffers");
	return 0;
}

int sf_context_engine(struct sf_context *ctx,
		      const struct sf_core_options *options,
		      struct sf_engine **out, struct sf_err *err)
{
	const char *transport = sf_core_options_transport(options);
	struct sf_engine_config config = {
		.directory = ctx->directory,
		.timers = ctx->timers,
		.pool = ctx->pool,
		.transport = transport ? sf_transport_find(transport) : NULL,
		.io = {
			.timers = ctx->timers,
			.pipes = ctx->pipes,
			.connect_timeout_ms = options->connect_timeout_ms,
			.timeout_ms = options->timeout_ms,
			.tcp_lanes = options->lanes,
			.tcp_split = options->split,
			.tcp_splice = options->splice,
			.tcp_version = options->tcp_version,
			.rdma = &options->rdma,
			.introducer = ctx->introducer,
		},
		.timeout_ms = options->timeout_ms,
	};

	return sf_engine_new(out, &config, err);
}

static int build(struct sf_context *ctx,
		 const struct sf_context_config *config, enum sf_exit *status,
		 struct sf_err *err)
{
	struct sf_directory_config dir = {
		.ttl_ms = config->ttl_ms,
		.negative_ttl_ms = config->negative_ttl_ms,
		.watch = config->watch,
	};
	int ret = sf_core_options_open_meta(config->options, config->source,
					&ctx->meta, err);

	if (ret) {
		*status = ret == -EINVAL ? SF_EXIT_USAGE : SF_EXIT_META;
		return ret;
	}
	*status = SF_EXIT_FAILURE;
	ret = start_helpers(ctx, config, err);
	if (ret)
		return ret;
	dir.meta = ctx->meta;
	dir.workers = ctx->workers;
	ret = sf_directory_new(&ctx->directory, &dir, err);
	if (ret)
		return ret;
	ret = sf_introducer_new(&ctx->introducer, ctx->meta);
	if (ret)
		return sf_err_set(err, ret, "out of memory");
	return sf_context_engine(ctx, config->options, &ctx->engine, err);
}

int sf_context_new(struct sf_context **out,
		   const struct sf_context_config *config,
		   enum sf_exit *status, struct sf_err *err)
{
	struct sf_context *ctx = calloc(1, sizeof(*ctx));
	int ret;

	*status = SF_EXIT_FAILURE;
	if (!ctx)
		return sf_err_set(err, -ENOMEM, "out of memory");
	ret = build(ctx, config, status, err);
	if (ret) {
		sf_context_free(ctx);
		return ret;
	}
	*out = ctx;
	return 0;
}

void sf_context_free(struct sf_context *ctx)
{
	if (!ctx)
		return;
	sf_engine_free(ctx->engine);
	sf_introducer_free(ctx->introducer);
	sf_directory_free(ctx->directory);
	sf_iobuf_pool_free(ctx->pool);
	sf_pipe_pool_free(ctx->pipes);
	sf_timers_free(ctx->timers);
	sf_workers_free(ctx->workers);
	sf_meta_close(ctx->meta);
	free(ctx);
}
