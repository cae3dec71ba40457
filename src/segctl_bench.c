/* SPDX-License-Identifier: MIT */
/*
 * segctl bench: transfers measured apart from a mount. Each job has an engine
 * with connections of its own and keeps DEPTH transfers in flight; a completion
 * submits the next one on the thread that brought it, so that no wake-up of
 * ours is in the figures. The main thread sleeps.
 */
#include "config.h"
#include "segctl_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "iobuf.h"
#include "options.h"
#include "pipe.h"
#include "segment.h"
#include "transfer.h"

#define WARM_UP_MAX_MS 1000

struct bench;

struct job {
	struct bench *bench;
	struct sf_engine *engine;
	struct sf_registration *reg;
	atomic_uint_fast64_t next;	/* seq: block number */
};

/* A transfer may land before its submission has returned. */
enum phase { PHASE_SUBMITTING, PHASE_FLYING, PHASE_LANDED };

struct slot {
	struct sf_transfer t;
	struct job *job;
	struct sf_iobuf *buf;
	atomic_int phase;
	int res;
	uint64_t start_ns, landed_ns;
	uint64_t random;
	struct segctl_hist hist;
};

struct bench {
	struct segctl *s;
	struct sf_segment *seg;
	const struct sf_buffer *buffer;
	uint64_t nr_blocks;
	struct job *jobs;
	struct slot *slots;
	unsigned int nr_slots;
	int null_fd;		/* where spliced payload goes */
	uint64_t until_ns;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned int nr_running;	/* lock: slots */
	int error;			/* lock: the first one */
	uint64_t end_ns;		/* lock: when the last one landed */
};

/* xorshift64* */
static uint64_t next_random(uint64_t *x)
{
	*x ^= *x >> 12;
	*x ^= *x << 25;
	*x ^= *x >> 27;
	return *x * 0x2545f4914f6cdd1dull;
}

static uint64_t next_addr(struct slot *slot)
{
	struct job *job = slot->job;
	struct bench *b = job->bench;
	uint64_t n;

	if (b->s->order == BENCH_RANDOM)
		n = next_random(&slot->random);
	else
		n = atomic_fetch_add_explicit(&job->next, 1,
					      memory_order_relaxed);
	return b->buffer->addr + n % b->nr_blocks * b->s->block;
}

static void slot_over(struct bench *b, int res)
{
	pthread_mutex_lock(&b->lock);
	if (res && !b->error)
		b->error = res;
	b->end_ns = sf_now_ns();
	b->nr_running--;
	pthread_cond_signal(&b->cond);
	pthread_mutex_unlock(&b->lock);
}

/* What came in pipes is thrown away as cheaply as the kernel can. */
static void drop_pipes(struct bench *b, struct sf_io *io)
{
	for (unsigned int i = 0; i < io->nr_pipes; i++) {
		struct sf_pipe *p = io->pipes[i];
		ssize_t n;

		while (p->filled) {
			n = splice(p->rd, NULL, b->null_fd, NULL, p->filled,
				   0);
			if (n <= 0)
				break;
			p->filled -= (size_t)n;
		}
		sf_pipe_put(b->s->ctx->pipes, p);
	}
}

/* Count what has landed. True: go on with this slot; false: it is not to be
 * touched any more. */
static bool landed(struct slot *slot)
{
	struct bench *b = slot->job->bench;

	if (!slot->res) {
		segctl_hist_add(&slot->hist, slot->landed_ns - slot->start_ns);
		drop_pipes(b, &slot->t.io);
	}
	/* A transport that answers at once keeps run() from looking at the
	 * clock. */
	if (!slot->res && slot->landed_ns < b->until_ns &&
	    !atomic_load_explicit(&b->stop, memory_order_relaxed))
		return true;
	atomic_store(&b->stop, true);
	slot_over(b, slot->res);
	return false;
}

static void slot_done(struct sf_transfer *t, int res);

/* Start transfers until one is in flight by itself. */
static void submit(struct slot *slot)
{
	struct segctl *s = slot->job->bench->s;
	int phase;

	for (;;) {
		slot->t = (struct sf_transfer){
			.op = s->op == BENCH_WRITE ? SF_WRITE : SF_READ,
			.may_pipe = s->op == BENCH_READ,
			.addr = next_addr(slot),
			.len = (uint32_t)s->block,
			.mem = slot->buf->mem,
			.reg = slot->job->reg,
			.done = slot_done,
		};
		atomic_store(&slot->phase, PHASE_SUBMITTING);
		slot->start_ns = sf_now_ns();
		sf_transfer_submit(slot->job->engine, &slot->t);
		phase = PHASE_SUBMITTING;
		if (atomic_compare_exchange_strong(&slot->phase, &phase,
						   PHASE_FLYING))
			return;
		if (!landed(slot))
			return;
	}
}

static void slot_done(struct sf_transfer *t, int res)
{
	struct slot *slot = (struct slot *)t;
	int phase = PHASE_SUBMITTING;

	slot->res = res;
	slot->landed_ns = sf_now_ns();
	/* Landed while submit() is still in it: that goes on, or this would
	 * recurse for ever over a transport that answers at once. */
	if (atomic_compare_exchange_strong(&slot->phase, &phase, PHASE_LANDED))
		return;
	if (landed(slot))
		submit(slot);
}

static int make_job(struct bench *b, struct job *job, struct sf_err *err)
{
	int ret;

	job->bench = b;
	ret = sf_context_engine(b->s->ctx, &b->s->core, &job->engine, err);
	if (ret)
		return ret;
	ret = sf_registration_bind(job->engine, b->seg, b->buffer, &job->reg);
	return ret ? sf_err_set(err, ret, "out of memory") : 0;
}

static int make_slots(struct bench *b, struct sf_err *err)
{
	struct segctl *s = b->s;
	int ret;

	b->jobs = calloc(s->jobs, sizeof(*b->jobs));
	b->slots = calloc(b->nr_slots, sizeof(*b->slots));
	if (!b->jobs || !b->slots)
		return sf_err_set(err, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < s->jobs; i++) {
		/* Jobs in order start apart from each other. */
		b->jobs[i].next = b->nr_blocks / s->jobs * i;
		ret = make_job(b, &b->jobs[i], err);
		if (ret)
			return ret;
	}
	for (unsigned int i = 0; i < b->nr_slots; i++) {
		struct slot *slot = &b->slots[i];

		slot->job = &b->jobs[i % s->jobs];
		slot->random = 0x9e3779b97f4a7c15ull * (i + 1);
		slot->buf = sf_iobuf_get(s->ctx->pool);
		if (!slot->buf)
			return sf_err_set(err, -ENOMEM, "out of memory");
		memset(slot->buf->mem, 0, s->block);
	}
	return 0;
}

static void free_slots(struct bench *b)
{
	for (unsigned int i = 0; b->slots && i < b->nr_slots; i++)
		if (b->slots[i].buf)
			sf_iobuf_put(b->s->ctx->pool, b->slots[i].buf);
	for (unsigned int i = 0; b->jobs && i < b->s->jobs; i++) {
		sf_registration_put(b->jobs[i].reg);
		sf_engine_free(b->jobs[i].engine);
	}
	free(b->slots);
	free(b->jobs);
}

/* Every transfer ends by its deadline, so this does. How long it took. */
static uint64_t run(struct bench *b, uint64_t ms)
{
	uint64_t start_ns = sf_now_ns(), end_ns;
	struct timespec until;
	int ret = 0;

	b->nr_running = b->nr_slots;
	b->until_ns = start_ns + ms * 1000000;
	atomic_store(&b->stop, false);
	for (unsigned int i = 0; i < b->nr_slots; i++)
		submit(&b->slots[i]);
	until.tv_sec = (time_t)(b->until_ns / 1000000000);
	until.tv_nsec = (long)(b->until_ns % 1000000000);
	pthread_mutex_lock(&b->lock);
	while (b->nr_running && ret != ETIMEDOUT)
		ret = pthread_cond_timedwait(&b->cond, &b->lock, &until);
	atomic_store(&b->stop, true);
	while (b->nr_running)
		pthread_cond_wait(&b->cond, &b->lock);
	end_ns = b->end_ns;
	pthread_mutex_unlock(&b->lock);
	return end_ns - start_ns;
}

/* Connections are made by the first transfers, several one after the other;
 * they are not what is measured. */
static void warm_up(struct bench *b)
{
	uint64_t ms = b->s->time_ms / 4;

	run(b, ms < WARM_UP_MAX_MS ? ms : WARM_UP_MAX_MS);
	for (unsigned int i = 0; i < b->nr_slots; i++)
		memset(&b->slots[i].hist, 0, sizeof(b->slots[i].hist));
}

static enum sf_exit measure(struct bench *b)
{
	struct segctl_bench_result *r = calloc(1, sizeof(*r));

	if (!r)
		return segctl_fail(SF_EXIT_FAILURE, "out of memory");
	warm_up(b);
	if (!b->error)
		r->seconds = (double)run(b, b->s->time_ms) / 1e9;
	if (b->error) {
		free(r);
		return segctl_fail(segctl_transfer_status(b->error), "%s: %s",
				   b->seg->name, strerror(-b->error));
	}
	for (unsigned int i = 0; i < b->nr_slots; i++)
		segctl_hist_merge(&r->hist, &b->slots[i].hist);
	r->ops_per_s = (double)r->hist.nr / r->seconds;
	r->mb_per_s = r->ops_per_s * (double)b->s->block / 1e6;
	segctl_bench_print(b->s, r);
	free(r);
	return SF_EXIT_OK;
}

/* --buffer, or the largest. */
static int choose_buffer(struct bench *b, struct sf_err *err)
{
	uint64_t addr, run;

	if (!b->s->buffer) {
		for (uint32_t i = 0; i < b->seg->nr_buffers; i++)
			if (!b->buffer || b->seg->buffers[i].length >
			    b->buffer->length)
				b->buffer = &b->seg->buffers[i];
	} else if (sf_parse_u64(b->s->buffer, &addr)) {
		return sf_err_set(err, -EINVAL, "buffer=%s: not an address, "
				  "such as 0x7f3a40000000", b->s->buffer);
	} else {
		b->buffer = sf_segment_covering_run(b->seg, addr, &run);
	}
	if (!b->buffer)
		return sf_err_set(err, -ENOENT, "%s: no such buffer",
				  b->seg->name);
	b->nr_blocks = b->buffer->length / b->s->block;
	if (!b->nr_blocks)
		return sf_err_set(err, -EINVAL, "the buffer has %" PRIu64
				  " bytes, fewer than a block",
				  b->buffer->length);
	return 0;
}

static enum sf_exit bench(struct bench *b, const char *name)
{
	struct sf_err err = { 0 };
	enum sf_exit status;
	int ret;

	status = segctl_open(b->s, b->nr_slots, b->s->block, &err);
	if (!status)
		status = segctl_lookup(b->s, name, &b->seg, &err);
	if (status)
		return segctl_fail(status, "%s", err.text);
	ret = choose_buffer(b, &err);
	if (ret)
		return segctl_fail(ret == -EINVAL ? SF_EXIT_USAGE
						  : SF_EXIT_DATA,
				   "%s", err.text);
	if (make_slots(b, &err) < 0)
		status = segctl_fail(SF_EXIT_FAILURE, "%s", err.text);
	else
		status = measure(b);
	free_slots(b);
	return status;
}

enum sf_exit segctl_bench(struct segctl *s, char **args, int nr)
{
	struct bench b = {
		.s = s,
		.nr_slots = s->jobs * s->depth,
		.null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC),
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_condattr_t attr;
	enum sf_exit status;

	if (s->op == BENCH_WRITE && !s->may_overwrite)
		status = segctl_fail(SF_EXIT_USAGE, "--op write destroys what "
				     "the buffer holds: say --yes-overwrite");
	else if (b.null_fd < 0)
		status = segctl_fail(SF_EXIT_FAILURE, "/dev/null: %s",
				     strerror(errno));
	else {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&b.cond, &attr);
		pthread_condattr_destroy(&attr);
		status = bench(&b, args[0]);
		pthread_cond_destroy(&b.cond);
		sf_segment_put(b.seg);
	}
	if (b.null_fd >= 0)
		close(b.null_fd);
	return status;
}
