/* SPDX-License-Identifier: MIT */
/* What all commands of segctl need: context, lookups that wait, failures. */
#include "config.h"
#include "segctl.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "directory.h"
#include "segment.h"

#define NR_PIPES 64

enum sf_exit segctl_fail(enum sf_exit status, const char *fmt, ...)
{
	struct sf_err line;	/* for its clean text */
	char text[SF_ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	sf_err_set(&line, 0, "%s", text);
	fprintf(stderr, "segctl: %s\n", line.text);
	return status;
}

enum sf_exit segctl_open(struct segctl *s, size_t nr_bufs, size_t buf_bytes,
			 struct sf_err *err)
{
	struct sf_context_config config = {
		.source = s->metadata,
		.options = &s->core,
		.pool_bytes = nr_bufs * buf_bytes,
		.buf_bytes = buf_bytes,
		.nr_pipes = NR_PIPES,
		.ttl_ms = 1000,
		.negative_ttl_ms = 0,
		.watch = false,
	};
	enum sf_exit status = SF_EXIT_OK;

	return sf_context_new(&s->ctx, &config, &status, err) ? status
							      : SF_EXIT_OK;
}

struct lookup {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	int res;
	struct sf_segment *seg;
};

static void lookup_done(void *arg, int res, struct sf_segment *seg)
{
	struct lookup *l = arg;

	pthread_mutex_lock(&l->lock);
	l->done = true;
	l->res = res;
	l->seg = seg ? sf_segment_get(seg) : NULL;
	pthread_cond_signal(&l->cond);
	pthread_mutex_unlock(&l->lock);
}

/* The pull behind it ends by the metadata store's deadline. */
static int lookup(struct segctl *s, const char *name, struct sf_segment **seg)
{
	struct lookup l = {
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.cond = PTHREAD_COND_INITIALIZER,
	};

	sf_directory_lookup(s->ctx->directory, name, UINT32_MAX, lookup_done,
			    &l);
	pthread_mutex_lock(&l.lock);
	while (!l.done)
		pthread_cond_wait(&l.cond, &l.lock);
	pthread_mutex_unlock(&l.lock);
	*seg = l.seg;
	return l.res;
}

enum sf_exit segctl_lookup(struct segctl *s, const char *name,
			   struct sf_segment **out, struct sf_err *err)
{
	struct sf_segment *seg = NULL;
	int res = lookup(s, name, &seg);

	if (res == -ENOENT) {
		sf_err_set(err, res, "%s: no such segment", name);
		return SF_EXIT_PEER;
	}
	if (res) {
		sf_err_set(err, res, "%s: metadata store: %s", name,
			   strerror(-res));
		return SF_EXIT_META;
	}
	if (seg->error) {
		sf_err_set(err, seg->error, "%s: descriptor cannot be used: "
			   "%.*s", name, (int)strcspn(seg->problems, "\n"),
			   seg->problems);
		sf_segment_put(seg);
		return SF_EXIT_PEER;
	}
	*out = seg;
	return SF_EXIT_OK;
}

enum sf_exit segctl_transfer_status(int res)
{
	switch (res) {
	case 0:
		return SF_EXIT_OK;
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
	case -ECONNRESET:
	case -EPROTO:
	case -EOPNOTSUPP:
	case -EADDRNOTAVAIL:
		return SF_EXIT_PEER;
	default:
		return SF_EXIT_DATA;
	}
}
