/* SPDX-License-Identifier: MIT */
/*
 * Requests that wait for the directory: see ask.h. Whatever answers runs on a
 * session thread or on a worker, without locks.
 */
#include "config.h"
#include "fs/ask.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "fs/internal.h"
#include "workers.h"

static struct sf_ask *from_pending(struct sf_pending *p)
{
	return (struct sf_ask *)((char *)p - offsetof(struct sf_ask, p));
}

static void release(struct sf_pending *p)
{
	struct sf_ask *ask = from_pending(p);

	sf_node_put(p->fs->nodes, ask->node);
	free(ask->segment);
	free(ask);
}

struct sf_ask *sf_ask_new(fuse_req_t req, struct sf_node *node,
			  const char *name,
			  void (*answer)(struct sf_ask *ask, int res,
					 struct sf_segment *seg))
{
	struct sf_fs *fs = sf_fs_of(req);
	struct sf_ask *ask = calloc(1, sizeof(*ask));

	if (!ask) {
		sf_node_put(fs->nodes, node);
		sf_reply_err(req, -ENOMEM);
		return NULL;
	}
	ask->node = node;
	ask->answer = answer;
	if (name)
		snprintf(ask->name, sizeof(ask->name), "%s", name);
	ask->p.release = release;
	sf_pending_begin(&ask->p, fs, req, sf_fs_thread_self()->number);
	return ask;
}

void sf_ask_finish(struct sf_ask *ask, int res, struct sf_segment *seg)
{
	if (sf_pending_claim(&ask->p)) {
		ask->answer(ask, res, seg);
		sf_pending_answered(&ask->p);
	}
	sf_pending_end(&ask->p);
}

static void segment_came(void *arg, int res, struct sf_segment *seg)
{
	sf_ask_finish(arg, res, seg);
}

void sf_ask_segment(struct sf_ask *ask, const char *segment)
{
	sf_directory_lookup(ask->p.fs->config.directory, segment, UINT_MAX,
			    segment_came, ask);
}

struct job {
	struct sf_ask *ask;
	void (*run)(struct sf_ask *ask);
};

static void run_job(void *arg)
{
	struct job job = *(struct job *)arg;

	free(arg);
	if (sf_pending_is_waiting(&job.ask->p))
		job.run(job.ask);
	else
		sf_pending_end(&job.ask->p);
}

void sf_ask_worker(struct sf_ask *ask, void (*run)(struct sf_ask *ask))
{
	struct job *job = malloc(sizeof(*job));
	int res = -ENOMEM;

	if (job) {
		*job = (struct job){ ask, run };
		res = sf_workers_run(ask->p.fs->config.workers, run_job, job);
	}
	if (res) {
		free(job);
		sf_ask_finish(ask, res, NULL);
	}
}
