/* SPDX-License-Identifier: MIT */
/*
 * The engine over a scripted transport and a directory of one segment: every
 * way a transfer can end, and races between completion, deadline and cancel.
 */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "directory.h"
#include "err.h"
#include "iobuf.h"
#include "transfer.h"

#define NAME "node-a:1"
#define ADDR 0x10000u
#define LENGTH 65536u
#define TIMEOUT_MS 1000

/* ---- a directory that says what the test wants ---- */

struct sf_directory {
	pthread_mutex_t lock;
	struct sf_segment *seg;		/* newest known */
	struct sf_segment *stored;	/* what a pull finds; NULL: nothing */
	int error;			/* or what it fails with */
	atomic_uint_fast64_t generation;
	atomic_int pulls;
};

uint64_t sf_directory_generation(const struct sf_directory *dir)
{
	return atomic_load(&dir->generation);
}

struct sf_segment *sf_directory_peek(struct sf_directory *dir, const char *name)
{
	struct sf_segment *seg = NULL;

	pthread_mutex_lock(&dir->lock);
	if (dir->seg)
		seg = sf_segment_get(dir->seg);
	pthread_mutex_unlock(&dir->lock);
	return seg;
}

void sf_directory_lookup(struct sf_directory *dir, const char *name,
			 unsigned int max_age_ms, sf_directory_lookup_fn *fn,
			 void *arg)
{
	struct sf_segment *seg = NULL;
	int error = dir->error;

	atomic_fetch_add(&dir->pulls, 1);
	pthread_mutex_lock(&dir->lock);
	if (!error && !dir->stored)
		error = -ENOENT;
	if (!error) {
		seg = sf_segment_get(dir->stored);
		if (dir->seg != seg) {
			sf_segment_put(dir->seg);
			dir->seg = sf_segment_get(seg);
			atomic_fetch_add(&dir->generation, 1);
		}
	}
	pthread_mutex_unlock(&dir->lock);
	fn(arg, error, seg);
	sf_segment_put(seg);
}

/* ---- a transport that does what the test wants ---- */

#define NEVER 1			/* no answer until cancelled */

struct script {
	atomic_int results[8];	/* of the next submissions; then 0 for ever */
	atomic_uint next;
	unsigned int delay_us;	/* answer from another thread, this late */
	atomic_int submitted, cancelled, peers;
};

static struct script script;

struct fake_io {
	struct sf_io *io;
	int res;
	unsigned int delay_us;
	atomic_int state;	/* 0 waiting, 1 taken */
};

static int fake_open(void **priv, const struct sf_transport_config *config,
		     struct sf_err *err)
{
	return 0;
}

static void fake_close(void *priv)
{
}

static int fake_peer_open(void *priv, struct sf_segment *seg, void **peer,
			  struct sf_err *err)
{
	if (!seg->tcp_data_port)
		return sf_err_set(err, -EADDRNOTAVAIL, "no port");
	atomic_fetch_add(&script.peers, 1);
	*peer = &script;
	return 0;
}

static void fake_peer_close(void *peer)
{
	atomic_fetch_sub(&script.peers, 1);
}

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static void *answer_later(void *arg)
{
	struct fake_io *f = arg;
	struct sf_io *io = NULL;

	usleep(f->delay_us);
	pthread_mutex_lock(&fake_lock);
	if (f->io) {
		io = f->io;
		io->priv = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	if (io)
		io->done(io, f->res);
	free(f);
	return NULL;
}

static void fake_submit(void *peer, struct sf_io *io)
{
	unsigned int n = atomic_fetch_add(&script.next, 1);
	int res = n < 8 ? atomic_load(&script.results[n]) : 0;
	struct fake_io *f;
	pthread_t thread;

	atomic_fetch_add(&script.submitted, 1);
	io->priv = NULL;
	if (res != NEVER && !script.delay_us) {
		io->done(io, res);
		return;
	}
	f = calloc(1, sizeof(*f));
	f->io = io;
	f->res = res;
	f->delay_us = script.delay_us;
	pthread_mutex_lock(&fake_lock);
	io->priv = f;
	pthread_mutex_unlock(&fake_lock);
	if (res != NEVER) {
		assert_int_equal(pthread_create(&thread, NULL, answer_later, f),
				 0);
		pthread_detach(thread);
	}
}

static void fake_cancel(void *peer, struct sf_io *io)
{
	struct fake_io *f;
	bool never;

	pthread_mutex_lock(&fake_lock);
	f = io->priv;
	io->priv = NULL;
	never = f && f->res == NEVER;
	if (f)
		f->io = NULL;
	pthread_mutex_unlock(&fake_lock);
	if (!f)
		return;
	atomic_fetch_add(&script.cancelled, 1);
	if (never)
		free(f);
	io->done(io, -ECANCELED);
}

static const struct sf_transport_ops fake_ops = {
	.name = "fake",
	.proto = SF_PROTOCOL_TCP,
	.open = fake_open,
	.close = fake_close,
	.peer_open = fake_peer_open,
	.peer_close = fake_peer_close,
	.submit = fake_submit,
	.cancel = fake_cancel,
};

/* The same, but that an acknowledgement says little. */
static const struct sf_transport_ops flushing_ops = {
	.name = "flushing",
	.proto = SF_PROTOCOL_TCP,
	.caps = SF_TRANSPORT_FLUSH,
	.open = fake_open,
	.close = fake_close,
	.peer_open = fake_peer_open,
	.peer_close = fake_peer_close,
	.submit = fake_submit,
	.cancel = fake_cancel,
};

/* The table of backends is linked in; this test does without the real one. */
const struct sf_transport_ops sf_transport_tcp = {
	.name = "tcp",
	.proto = SF_PROTOCOL_TCP,
	.open = fake_open,
	.close = fake_close,
};

/* ---- the bench ---- */

struct bench {
	struct sf_directory dir;
	struct sf_timers *timers;
	struct sf_iobuf_pool *pool;
	struct sf_engine *engine;
};

static struct sf_segment *describe(unsigned int addr, int data_port)
{
	struct sf_segment *seg;
	struct sf_blob *raw, *rpc;
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"name\":\"" NAME "\",\"protocol\":\"tcp\","
		 "\"tcp_data_port\":%d,\"tcp_proto_version\":2,"
		 "\"buffers\":[{\"name\":\"x\",\"addr\":%u,\"length\":%u},"
		 "{\"name\":\"x\",\"addr\":1048576,\"length\":4096}]}",
		 data_port, addr, LENGTH);
	raw = sf_blob_new(text, strlen(text));
	snprintf(text, sizeof(text),
		 "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":15001}");
	rpc = sf_blob_new(text, strlen(text));
	assert_int_equal(sf_segment_decode(&seg, NAME, raw, rpc), 0);
	sf_blob_put(raw);
	sf_blob_put(rpc);
	return seg;
}

/* Store what a pull will find; SEG's reference moves to the directory. */
static void store(struct bench *b, struct sf_segment *seg)
{
	pthread_mutex_lock(&b->dir.lock);
	sf_segment_put(b->dir.stored);
	b->dir.stored = seg;
	pthread_mutex_unlock(&b->dir.lock);
}

static int setup_with(void **state, const struct sf_transport_ops *ops)
{
	struct bench *b = calloc(1, sizeof(*b));
	struct sf_engine_config config = { 0 };
	struct sf_err err;

	memset(&script, 0, sizeof(script));
	pthread_mutex_init(&b->dir.lock, NULL);
	atomic_init(&b->dir.generation, 1);
	b->dir.seg = describe(ADDR, 16001);
	b->dir.stored = sf_segment_get(b->dir.seg);
	assert_int_equal(sf_timers_new(&b->timers), 0);
	assert_int_equal(sf_iobuf_pool_new(&b->pool, 65536, 4096), 0);
	config.directory = &b->dir;
	config.timers = b->timers;
	config.pool = b->pool;
	config.transport = ops;
	config.timeout_ms = TIMEOUT_MS;
	assert_int_equal(sf_engine_new(&b->engine, &config, &err), 0);
	*state = b;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, &fake_ops);
}

static int setup_flushing(void **state)
{
	return setup_with(state, &flushing_ops);
}

static int teardown(void **state)
{
	struct bench *b = *state;

	sf_engine_free(b->engine);
	sf_timers_free(b->timers);
	sf_iobuf_pool_free(b->pool);
	sf_segment_put(b->dir.seg);
	sf_segment_put(b->dir.stored);
	pthread_mutex_destroy(&b->dir.lock);
	assert_int_equal(atomic_load(&script.peers), 0);
	free(b);
	return 0;
}

static struct sf_registration *bind_first(struct bench *b)
{
	struct sf_registration *reg;

	assert_int_equal(sf_registration_bind(b->engine, b->dir.seg,
					      &b->dir.seg->buffers[0], &reg),
			 0);
	return reg;
}

struct call {
	struct sf_transfer t;
	sem_t over;
	int res;
	atomic_int nr_done;
	char mem[64];
};

static void call_done(struct sf_transfer *t, int res)
{
	struct call *c = (struct call *)t;

	c->res = res;
	atomic_fetch_add(&c->nr_done, 1);
	sem_post(&c->over);
}

static void start_op(struct bench *b, struct call *c, enum sf_op op,
		     struct sf_registration *reg, uint64_t addr, uint32_t len)
{
	memset(c, 0, sizeof(*c));
	sem_init(&c->over, 0, 0);
	c->t.op = op;
	c->t.addr = addr;
	c->t.len = len;
	c->t.mem = c->mem;
	c->t.reg = reg;
	c->t.done = call_done;
	sf_transfer_submit(b->engine, &c->t);
}

static void start(struct bench *b, struct call *c, struct sf_registration *reg,
		  uint64_t addr, uint32_t len)
{
	start_op(b, c, SF_READ, reg, addr, len);
}

static int wait_for(struct call *c)
{
	while (sem_wait(&c->over) && errno == EINTR)
		;
	sem_destroy(&c->over);
	return c->res;
}

static int run(struct bench *b, struct sf_registration *reg, uint64_t addr,
	       uint32_t len)
{
	struct call c;

	start(b, &c, reg, addr, len);
	return wait_for(&c);
}

static void results(int first, int second, int third)
{
	atomic_store(&script.next, 0);
	memset(script.results, 0, sizeof(script.results));
	script.results[0] = first;
	script.results[1] = second;
	script.results[2] = third;
	atomic_store(&script.submitted, 0);
}

static int submitted(void)
{
	return atomic_load(&script.submitted);
}

/* ---- the tests ---- */

static void ranges_are_checked_before_anything_is_sent(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	assert_int_equal(run(b, reg, ADDR, 64), 0);
	assert_int_equal(run(b, reg, ADDR + LENGTH - 64, 64), 0);
	assert_int_equal(submitted(), 2);
	assert_int_equal(run(b, reg, ADDR + LENGTH - 63, 64), -EFAULT);
	assert_int_equal(run(b, reg, ADDR - 1, 2), -EFAULT);
	assert_int_equal(run(b, reg, UINT64_MAX, 64), -EFAULT);
	assert_int_equal(run(b, reg, 1048576, 64), -EFAULT);
	assert_int_equal(run(b, reg, 5, 0), 0);
	assert_int_equal(submitted(), 2);
	sf_registration_put(reg);
}

static void the_whole_owner_view_finds_buffers(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg;

	assert_int_equal(sf_registration_bind(b->engine, b->dir.seg, NULL,
					      &reg),
			 0);
	assert_int_equal(run(b, reg, ADDR, 64), 0);
	assert_int_equal(run(b, reg, 1048576, 64), 0);
	assert_int_equal(run(b, reg, 1048576 + 4096 - 1, 2), -EFAULT);
	/* Another buffer list of the same owner changes nothing. */
	store(b, describe(ADDR + 4096, 16001));
	results(-ECONNRESET, 0, 0);
	assert_int_equal(run(b, reg, 1048576, 64), 0);
	/* Another owner does. */
	store(b, describe(ADDR, 16002));
	results(-ECONNRESET, 0, 0);
	assert_int_equal(run(b, reg, 1048576, 64), -ESTALE);
	sf_registration_put(reg);
}

static void a_broken_connection_is_tried_again(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	results(-ECONNRESET, -ECONNRESET, 0);
	assert_int_equal(run(b, reg, ADDR, 64), 0);
	assert_int_equal(submitted(), 3);
	assert_int_equal(atomic_load(&b->dir.pulls), 2);
	sf_registration_put(reg);
}

static int flush(struct bench *b, struct sf_registration *reg)
{
	struct call c;

	start_op(b, &c, SF_FLUSH, reg, ADDR, 1);
	return wait_for(&c);
}

static void a_flush_is_sent_to_those_who_know_it(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	results(-ECONNRESET, 0, 0);
	assert_int_equal(flush(b, reg), 0);
	assert_int_equal(submitted(), 2);
	results(-ENODEV, 0, 0);
	assert_int_equal(flush(b, reg), -ENODEV);
	sf_registration_put(reg);
}

static void others_have_nothing_to_flush(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	results(-ENODEV, 0, 0);
	assert_int_equal(flush(b, reg), 0);
	assert_int_equal(submitted(), 0);
	/* But a handle that is stale is so for this too. */
	store(b, describe(ADDR, 16002));
	results(-ECONNRESET, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -ESTALE);
	assert_int_equal(flush(b, reg), -ESTALE);
	sf_registration_put(reg);
}

static void a_peer_that_cannot_deliver_is_eio(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	memset(script.results, 0, sizeof(script.results));
	for (int i = 0; i < 8; i++)
		script.results[i] = -EIO;
	assert_int_equal(run(b, reg, ADDR, 64), -EIO);
	assert_int_equal(submitted(), 1);
	sf_registration_put(reg);
}

static void refused_is_said_soon_and_mends(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	results(-ECONNREFUSED, -ECONNREFUSED, -ECONNREFUSED);
	assert_int_equal(run(b, reg, ADDR, 64), -ECONNREFUSED);
	assert_int_equal(submitted(), 2);
	results(0, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), 0);
	assert_int_equal(submitted(), 1);
	sf_registration_put(reg);
}

static void a_refused_range_is_remote_or_stale(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	results(-EREMOTEIO, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -EREMOTEIO);
	assert_int_equal(submitted(), 1);
	/* The store is down: what the peer said stands. */
	b->dir.error = -ECONNREFUSED;
	results(-EREMOTEIO, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -EREMOTEIO);
	b->dir.error = 0;
	/* The buffer has moved. */
	store(b, describe(ADDR + 4096, 16001));
	results(-EREMOTEIO, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -ESTALE);
	/* For good, also when it comes back. */
	store(b, describe(ADDR, 16001));
	assert_int_equal(run(b, reg, ADDR, 64), -ESTALE);
	assert_int_equal(submitted(), 1);
	sf_registration_put(reg);
}

static void a_vanished_descriptor_is_stale_once_it_matters(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);

	store(b, NULL);
	assert_int_equal(run(b, reg, ADDR, 64), 0);
	results(-ECONNREFUSED, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -ESTALE);
	sf_registration_put(reg);
}

static void news_from_the_directory_come_before_the_wire(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);
	struct sf_segment *seg = describe(ADDR, 16009);

	assert_int_equal(run(b, reg, ADDR, 64), 0);
	pthread_mutex_lock(&b->dir.lock);
	sf_segment_put(b->dir.seg);
	b->dir.seg = seg;
	atomic_fetch_add(&b->dir.generation, 1);
	pthread_mutex_unlock(&b->dir.lock);
	assert_int_equal(run(b, reg, ADDR, 64), -ESTALE);
	assert_true(sf_registration_is_stale(reg));
	assert_int_equal(submitted(), 1);
	sf_registration_put(reg);
}

static void silence_ends_at_the_deadline_and_makes_suspect(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);
	uint64_t from = sf_now_ms();
	struct call c;
	char *text;
	size_t len;
	FILE *out;
	int res = -ETIMEDOUT;

	results(NEVER, NEVER, 0);
	assert_int_equal(run(b, reg, ADDR, 64), -ETIMEDOUT);
	assert_true(sf_now_ms() - from >= TIMEOUT_MS - 1);
	/* The probe is out and not answered either: this is not even sent. */
	start(b, &c, reg, ADDR, 64);
	assert_int_equal(wait_for(&c), -ETIMEDOUT);
	assert_int_equal(c.t.attempt, 0);
	out = open_memstream(&text, &len);
	sf_engine_status(b->engine, NAME, out);
	fclose(out);
	assert_non_null(strstr(text, "state: suspect"));
	assert_non_null(strstr(text, "first error: read at 0x10000: "
				     "Connection timed out"));
	free(text);
	/* The next probe is answered. */
	for (int i = 0; i < 300 && res; i++) {
		usleep(20000);
		res = run(b, reg, ADDR, 64);
	}
	assert_int_equal(res, 0);
	sf_registration_put(reg);
}

static void cancelling_ends_it_whatever_it_waits_for(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);
	struct call c;

	results(NEVER, 0, 0);
	start(b, &c, reg, ADDR, 64);
	sf_transfer_cancel(b->engine, &c.t);
	assert_int_equal(wait_for(&c), -ECANCELED);
	/* Between two tries. */
	results(-ECONNRESET, NEVER, 0);
	start(b, &c, reg, ADDR, 64);
	sf_transfer_cancel(b->engine, &c.t);
	assert_int_equal(wait_for(&c), -ECANCELED);
	results(0, 0, 0);
	assert_int_equal(run(b, reg, ADDR, 64), 0);
	sf_registration_put(reg);
}

static void an_owner_without_address_is_said(void **state)
{
	struct bench *b = *state;
	struct sf_segment *seg = describe(ADDR, 0);
	struct sf_registration *reg;

	sf_segment_put(b->dir.seg);
	b->dir.seg = seg;
	reg = bind_first(b);
	assert_int_equal(run(b, reg, ADDR, 64), -EADDRNOTAVAIL);
	sf_registration_put(reg);
}

static void ending_the_engine_ends_transfers(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);
	struct call c[2];
	struct sf_engine_config config = {
		.directory = &b->dir,
		.timers = b->timers,
		.pool = b->pool,
		.transport = &fake_ops,
		.timeout_ms = 60000,
	};
	struct sf_engine *engine;
	struct sf_registration *other;

	assert_int_equal(sf_engine_new(&engine, &config, NULL), 0);
	assert_int_equal(sf_registration_bind(engine, b->dir.seg,
					      &b->dir.seg->buffers[0], &other),
			 0);
	results(NEVER, NEVER, 0);
	for (int i = 0; i < 2; i++) {
		struct bench other_bench = { .engine = engine };

		start(&other_bench, &c[i], other, ADDR, 64);
	}
	sf_registration_put(other);
	sf_engine_free(engine);
	for (int i = 0; i < 2; i++)
		assert_int_equal(wait_for(&c[i]), -ESHUTDOWN);
	sf_registration_put(reg);
}

#define RACE_ROUNDS 1500

/* Answers at about the time of the cancel: exactly one done() each. */
static void completion_and_cancel_race(void **state)
{
	struct bench *b = *state;
	struct sf_registration *reg = bind_first(b);
	unsigned int cancelled = 0;

	results(0, 0, 0);
	for (unsigned int i = 0; i < RACE_ROUNDS; i++) {
		struct call c;

		script.delay_us = 1 + i % 60;
		start(b, &c, reg, ADDR, 64);
		for (volatile unsigned int n = 0; n < i % 7 * 4000; n++)
			;
		/* call_done() does not free it, so it still exists. */
		sf_transfer_cancel(b->engine, &c.t);
		assert_true(wait_for(&c) == 0 || c.res == -ECANCELED);
		cancelled += c.res != 0;
		assert_int_equal(atomic_load(&c.nr_done), 1);
	}
	script.delay_us = 0;
	assert_true(cancelled > 0);
	sf_registration_put(reg);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(ranges_are_checked_before_anything_is_sent),
		T(the_whole_owner_view_finds_buffers),
		T(a_broken_connection_is_tried_again),
		cmocka_unit_test_setup_teardown(
			a_flush_is_sent_to_those_who_know_it, setup_flushing,
			teardown),
		T(others_have_nothing_to_flush),
		T(a_peer_that_cannot_deliver_is_eio),
		T(refused_is_said_soon_and_mends),
		T(a_refused_range_is_remote_or_stale),
		T(a_vanished_descriptor_is_stale_once_it_matters),
		T(news_from_the_directory_come_before_the_wire),
		T(silence_ends_at_the_deadline_and_makes_suspect),
		T(cancelling_ends_it_whatever_it_waits_for),
		T(an_owner_without_address_is_said),
		T(ending_the_engine_ends_transfers),
		T(completion_and_cancel_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
