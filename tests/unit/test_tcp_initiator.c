/* SPDX-License-Identifier: MIT */
/* The TCP initiator against servers of every kind and mood. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "fake_tcp.h"
#include "pipe.h"
#include "timer.h"
#include "transport.h"

#define MEM_LEN (4u << 20)
#define WAIT_MS 20000

/* What stands between a test and its server. */
struct rig {
	struct fake fake;
	bool has_fake;
	struct sf_timers *timers;
	struct sf_pipe_pool *pipes;
	struct sf_transport_config config;
	struct sf_transport *transport;
	struct sf_segment *seg;
	struct sf_peer *peer;
	pthread_mutex_t lock;
	pthread_cond_t done;
};

struct call {
	struct sf_io io;
	struct rig *rig;
	int res;
	unsigned int nr_done;	/* under rig->lock */
	uint8_t *mem;
};

static struct sf_segment *make_segment(const char *host, uint16_t port,
				       unsigned int version,
				       const char *location)
{
	struct sf_segment *seg;
	struct sf_blob *raw;
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"name\":\"n:1\",\"protocol\":\"tcp\",\"timestamp\":\"\","
		 "\"tcp_data_host\":\"%s\",\"tcp_data_port\":%u,"
		 "\"tcp_proto_version\":%u,\"buffers\":[{\"name\":\"%s\","
		 "\"addr\":%llu,\"length\":%u}]}",
		 host, port, version, location, (unsigned long long)FAKE_ADDR,
		 MEM_LEN);
	raw = sf_blob_new(text, strlen(text));
	assert_int_equal(sf_segment_decode(&seg, "n:1", raw, NULL), 0);
	sf_blob_put(raw);
	assert_int_equal(seg->error, 0);
	return seg;
}

static void rig_init(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->done, NULL);
	assert_int_equal(sf_timers_new(&r->timers), 0);
	assert_int_equal(sf_pipe_pool_new(&r->pipes, 16, 1 << 20), 0);
	r->config = (struct sf_transport_config){
		.timers = r->timers,
		.pipes = r->pipes,
		.connect_timeout_ms = 2000,
		.timeout_ms = 30000,
		.threads = 2,
		.tcp_lanes = 4,
		.tcp_split = 64 << 10,
		.tcp_splice = 32 << 10,
	};
}

static void rig_connect(struct rig *r, struct sf_segment *seg)
{
	struct sf_err err = { 0 };

	r->seg = seg;
	if (sf_transport_open(&r->transport, &sf_transport_tcp, &r->config,
			      &err) ||
	    sf_peer_open(r->transport, seg, &r->peer, &err))
		fail_msg("%s", err.text);
}

static void rig_start(struct rig *r, fake_serve_fn *serve, unsigned int version)
{
	fake_start(&r->fake, serve, MEM_LEN, 0);
	r->has_fake = true;
	rig_connect(r, make_segment("127.0.0.1", r->fake.port, version,
				    "cpu:0"));
}

static void rig_stop(struct rig *r)
{
	sf_peer_close(r->peer);
	sf_transport_close(r->transport);
	if (r->has_fake)
		fake_stop(&r->fake);
	sf_segment_put(r->seg);
	sf_pipe_pool_free(r->pipes);
	sf_timers_free(r->timers);
	pthread_cond_destroy(&r->done);
	pthread_mutex_destroy(&r->lock);
}

static void take_pipes(struct call *c)
{
	uint8_t *at = c->mem;
	unsigned int i;

	for (i = 0; i < c->io.nr_pipes; i++) {
		struct sf_pipe *p = c->io.pipes[i];

		while (p->filled) {
			ssize_t n = read(p->rd, at, p->filled);

			assert_true(n > 0);
			at += n;
			p->filled -= (size_t)n;
		}
		sf_pipe_put(c->rig->pipes, p);
	}
	if (c->io.nr_pipes)
		assert_int_equal(at - c->mem, c->io.len);
}

static void on_done(struct sf_io *io, int res)
{
	struct call *c = (struct call *)io;
	struct rig *r = c->rig;

	if (!res)
		take_pipes(c);
	pthread_mutex_lock(&r->lock);
	c->res = res;
	c->nr_done++;
	pthread_cond_broadcast(&r->done);
	pthread_mutex_unlock(&r->lock);
}

static void call_init(struct call *c, struct rig *r, enum sf_op op,
		      uint64_t off, uint32_t len)
{
	memset(c, 0, sizeof(*c));
	c->rig = r;
	c->mem = malloc(len);
	memset(c->mem, 0xee, len);
	c->io = (struct sf_io){
		.op = op,
		.may_pipe = true,
		.addr = FAKE_ADDR + off,
		.len = len,
		.mem = c->mem,
		.buffer = &r->seg->buffers[0],
		.done = on_done,
	};
}

static int wait_for(struct call *c)
{
	struct rig *r = c->rig;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += WAIT_MS / 1000;
	pthread_mutex_lock(&r->lock);
	while (!c->nr_done)
		if (pthread_cond_timedwait(&r->done, &r->lock, &ts)) {
			pthread_mutex_unlock(&r->lock);
			fail_msg("no completion");
		}
	pthread_mutex_unlock(&r->lock);
	return c->res;
}

static void call_fini(struct call *c)
{
	pthread_mutex_lock(&c->rig->lock);
	assert_int_equal(c->nr_done, 1);
	pthread_mutex_unlock(&c->rig->lock);
	free(c->mem);
}

static void check_read(struct call *c)
{
	assert_memory_equal(c->mem, fake_at(&c->rig->fake, c->io.addr),
			    c->io.len);
}

/* One read, checked. */
static int read_at(struct rig *r, uint64_t off, uint32_t len)
{
	struct call c;
	int res;

	call_init(&c, r, SF_READ, off, len);
	sf_peer_submit(r->peer, &c.io);
	res = wait_for(&c);
	if (!res)
		check_read(&c);
	call_fini(&c);
	return res;
}

static int write_at(struct rig *r, uint64_t off, uint32_t len, uint8_t with)
{
	struct call c;
	uint32_t i;
	int res;

	call_init(&c, r, SF_WRITE, off, len);
	memset(c.mem, with, len);
	sf_peer_submit(r->peer, &c.io);
	res = wait_for(&c);
	if (!res)
		for (i = 0; i < len; i++)
			assert_int_equal(*fake_at(&r->fake, FAKE_ADDR + off + i),
					 with);
	call_fini(&c);
	return res;
}

static char *status_of(struct rig *r)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	sf_peer_status(r->peer, out);
	fclose(out);
	return text;
}

static void expect_status(struct rig *r, const char *what)
{
	char *text = status_of(r);

	if (!strstr(text, what))
		fail_msg("no \"%s\" in \"%s\"", what, text);
	free(text);
}

static bool wait_conns_open(struct rig *r, unsigned int nr)
{
	int i;

	for (i = 0; i < 500 && atomic_load(&r->fake.nr_open) != nr; i++)
		fake_sleep_ms(10);
	return atomic_load(&r->fake.nr_open) == nr;
}

/* Many at once, mixed, each reading back what it wrote. */

struct churn {
	struct rig *rig;
	unsigned int seed, nr_rounds;
	uint64_t base;		/* its own part of the memory */
	uint32_t room;
	unsigned int nr_failed;
};

static int churn_call(struct churn *ch, struct call *c)
{
	unsigned int tries = 0;

	/* What an engine would do. */
	do {
		c->nr_done = 0;
		sf_peer_submit(ch->rig->peer, &c->io);
		wait_for(c);
		ch->nr_failed += c->res != 0;
	} while (c->res == -ECONNRESET && ++tries < 20);
	return c->res;
}

static void churn_round(struct churn *ch)
{
	bool big = rand_r(&ch->seed) % 4 == 0;
	uint32_t len = 1 + (uint32_t)rand_r(&ch->seed) %
			       (big ? ch->room : 9000);
	uint64_t off = ch->base + (uint32_t)rand_r(&ch->seed) %
					  (ch->room - len + 1);
	struct call w, r;
	uint32_t i;

	call_init(&w, ch->rig, SF_WRITE, off, len);
	for (i = 0; i < len; i++)
		w.mem[i] = (uint8_t)rand_r(&ch->seed);
	assert_int_equal(churn_call(ch, &w), 0);
	call_init(&r, ch->rig, SF_READ, off, len);
	assert_int_equal(churn_call(ch, &r), 0);
	assert_memory_equal(r.mem, w.mem, len);
	call_fini(&w);
	call_fini(&r);
}

static void *churn_thread(void *arg)
{
	struct churn *ch = arg;

	while (ch->nr_rounds--)
		churn_round(ch);
	return NULL;
}

static void churn(struct rig *r, unsigned int nr_rounds)
{
	struct churn ch[8];
	pthread_t threads[8];
	unsigned int i;

	for (i = 0; i < 8; i++) {
		ch[i] = (struct churn){ r, i + 1, nr_rounds,
					(uint64_t)i * MEM_LEN / 8,
					MEM_LEN / 8, 0 };
		pthread_create(&threads[i], NULL, churn_thread, &ch[i]);
	}
	for (i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
}

static void small_read_and_write(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	assert_int_equal(read_at(&r, 0, 1), 0);
	assert_int_equal(read_at(&r, 4095, 4097), 0);
	assert_int_equal(write_at(&r, 77, 1000, 0x5a), 0);
	assert_int_equal(read_at(&r, 70, 1100), 0);
	assert_int_equal(read_at(&r, MEM_LEN - 1, 1), 0);
	expect_status(&r, "tcp: v2 127.0.0.1:");
	expect_status(&r, "lanes: 1 of 4 connected, 0 busy, 0 queued");
	assert_int_equal(r.fake.nr_conns, 1);
	rig_stop(&r);
}

static void large_reads_are_split_and_piped(void **state)
{
	struct call c;
	struct rig r;
	int i;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	assert_int_equal(read_at(&r, 1, 700001), 0);
	assert_true(wait_conns_open(&r, 2));
	/* The second connection may still be on its way. */
	for (i = 0; i < 100; i++) {
		call_init(&c, &r, SF_READ, 3, 700001);
		sf_peer_submit(r.peer, &c.io);
		assert_int_equal(wait_for(&c), 0);
		check_read(&c);
		call_fini(&c);
		if (c.io.nr_pipes == 2)
			break;
		fake_sleep_ms(10);
	}
	assert_int_equal(c.io.nr_pipes, 2);
	assert_int_equal(write_at(&r, 5, 1000001, 0x11), 0);
	rig_stop(&r);
}

static void mixed_load(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	churn(&r, 25);
	rig_stop(&r);
}

static void mixed_load_without_pipes(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.pipes = NULL;
	rig_start(&r, fake_serve_well, 2);
	churn(&r, 10);
	rig_stop(&r);
}

/* Answers in dribs and drabs, so that pipes run out of slots. */
static void serve_crumbs(struct fake *f, int fd, unsigned int nr)
{
	uint8_t frame[SF_TCP_STATUS_LEN];
	struct sf_tcp_request req;
	unsigned int seed = nr, n;
	uint64_t at;

	sf_tcp_status_encode(frame, SF_TCP_OK);
	while (fake_get(f, fd, &req)) {
		if (sf_tcp_is_write(req.opcode)) {
			if (!fake_answer(f, fd, &req))
				return;
			continue;
		}
		if (!fake_send(fd, frame, 3) || !fake_send(fd, frame + 3, 5))
			return;
		for (at = 0; at < req.size; at += n) {
			n = 1 + (unsigned int)rand_r(&seed) % 300;
			n = n < req.size - at ? n : (unsigned int)(req.size - at);
			if (!fake_send(fd, fake_at(f, req.addr + at), n))
				return;
		}
	}
}

static void crumbs_in_small_pipes(void **state)
{
	struct rig r;
	int i;

	rig_init(&r);
	sf_pipe_pool_free(r.pipes);
	/* Two pipes of few slots: some parts get none, some fill theirs. */
	assert_int_equal(sf_pipe_pool_new(&r.pipes, 2, 64 << 10), 0);
	r.config.pipes = r.pipes;
	r.config.tcp_split = 32 << 10;
	rig_start(&r, serve_crumbs, 2);
	for (i = 0; i < 60; i++)
		assert_int_equal(read_at(&r, (uint64_t)i * 977,
					 32769 + (uint32_t)i * 1500),
				 0);
	churn(&r, 4);
	rig_stop(&r);
}

static void serve_trickle(struct fake *f, int fd, unsigned int nr)
{
	uint8_t frame[SF_TCP_STATUS_LEN];
	struct sf_tcp_request req;
	uint64_t i;

	sf_tcp_status_encode(frame, SF_TCP_OK);
	while (fake_get(f, fd, &req)) {
		for (i = 0; i < sizeof(frame); i++) {
			fake_sleep_ms(1);
			if (!fake_send(fd, frame + i, 1))
				return;
		}
		for (i = 0; i < req.size; i++) {
			fake_sleep_ms(1);
			if (!fake_send(fd, fake_at(f, req.addr + i), 1))
				return;
		}
	}
}

static void slow_trickle(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.tcp_splice = 16;
	rig_start(&r, serve_trickle, 2);
	assert_int_equal(read_at(&r, 9, 50), 0);
	assert_int_equal(read_at(&r, 9, 15), 0);
	rig_stop(&r);
}

/* Version 1. */

static void v1_persistent(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 1);
	assert_int_equal(write_at(&r, 3, 5000, 0x77), 0);
	assert_int_equal(read_at(&r, 1, 6000), 0);
	churn(&r, 10);
	expect_status(&r, "tcp: v1 ");
	assert_true(r.fake.nr_conns <= 4);
	rig_stop(&r);
}

static void v1_forced_by_option(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.tcp_version = 1;
	rig_start(&r, fake_serve_well, 2);
	assert_int_equal(read_at(&r, 1, 6000), 0);
	expect_status(&r, "tcp: v1 ");
	rig_stop(&r);
}

static void serve_one_shot(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (fake_get(f, fd, &req))
		fake_answer(f, fd, &req);
}

static void v1_one_shot_reads(void **state)
{
	struct rig r;
	int i;

	rig_init(&r);
	rig_start(&r, serve_one_shot, 1);
	for (i = 0; i < 10; i++)
		assert_int_equal(read_at(&r, (uint64_t)i, 3000), 0);
	assert_int_equal(r.fake.nr_requests, 10);
	rig_stop(&r);
}

static void v1_one_shot_mixed(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_one_shot, 1);
	assert_int_equal(write_at(&r, 3, 5000, 0x77), 0);
	assert_int_equal(write_at(&r, 3, 100000, 0x78), 0);
	assert_int_equal(read_at(&r, 3, 100000), 0);
	expect_status(&r, ", one connection a request");
	churn(&r, 4);
	rig_stop(&r);
}

/* Takes the head of a write and lets its body fall. */
static void serve_v1_deaf(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	fake_get(f, fd, &req);
}

static void v1_write_is_proven(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_v1_deaf, 1);
	assert_int_equal(write_at(&r, 0, 10, 1), -ECONNRESET);
	assert_int_equal(write_at(&r, 0, 1000000, 1), -ECONNRESET);
	rig_stop(&r);
}

/* What an old server makes of a version 2 request. */
static void serve_raw(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req)) {
		req.opcode = SF_TCP_READ_V1;
		if (!fake_answer(f, fd, &req))
			return;
	}
}

static void v1_server_asked_as_v2(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_raw, 2);
	assert_int_equal(read_at(&r, 0, 100), -EPROTO);
	assert_int_equal(read_at(&r, 0, 100000), -EPROTO);
	assert_int_equal(write_at(&r, 0, 100, 1), -EPROTO);
	expect_status(&r, "last error: peer does not answer as version 2");
	rig_stop(&r);
}

/* Refusals. */

static void refuse(int fd, uint32_t code)
{
	fake_status(fd, code);
}

/* Refuses what begins in the second half, closing with the body unread. */
static void serve_half(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req)) {
		if (req.addr >= FAKE_ADDR + MEM_LEN / 2) {
			refuse(fd, SF_TCP_REJECTED);
			return;
		}
		if (!fake_answer(f, fd, &req))
			return;
	}
}

static void refused_range(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_half, 2);
	assert_int_equal(read_at(&r, MEM_LEN / 2, 10), -EREMOTEIO);
	expect_status(&r, "last error: peer refused the range (0 s ago)");
	assert_int_equal(read_at(&r, 0, 10), 0);
	assert_int_equal(write_at(&r, MEM_LEN / 2, 10, 1), -EREMOTEIO);
	assert_int_equal(read_at(&r, MEM_LEN / 2, 500000), -EREMOTEIO);
	assert_int_equal(read_at(&r, 0, 500000), 0);
	rig_stop(&r);
}

/* The refusal must be seen although the body never finds room. */
static void serve_refuse_early(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (!fake_get(f, fd, &req))
		return;
	refuse(fd, SF_TCP_REJECTED);
	while (!atomic_load(&f->stop) && nr == 0)
		fake_sleep_ms(5);
}

static void refused_while_sending(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.tcp_split = 0;
	r.config.tcp_lanes = 1;
	rig_start(&r, serve_refuse_early, 2);
	assert_int_equal(write_at(&r, 0, MEM_LEN, 1), -EREMOTEIO);
	rig_stop(&r);
}

/* Requests behind a refused one on its lane are none the worse for it. */
static void others_survive_a_refusal(void **state)
{
	struct call c[64];
	struct rig r;
	int i;

	rig_init(&r);
	r.config.tcp_lanes = 2;
	rig_start(&r, serve_half, 2);
	for (i = 0; i < 64; i++) {
		call_init(&c[i], &r, SF_READ,
			  i % 32 == 9 ? MEM_LEN / 2 : (uint64_t)i * 1000, 2000);
		sf_peer_submit(r.peer, &c[i].io);
	}
	for (i = 0; i < 64; i++) {
		assert_int_equal(wait_for(&c[i]),
				 i % 32 == 9 ? -EREMOTEIO : 0);
		if (i % 32 != 9)
			check_read(&c[i]);
		call_fini(&c[i]);
	}
	rig_stop(&r);
}

static void serve_unknown_code(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (fake_get(f, fd, &req))
		refuse(fd, 17);
}

static void unknown_status(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_unknown_code, 2);
	assert_int_equal(read_at(&r, 0, 10), -EPROTO);
	expect_status(&r, "last error: peer answered with unknown status 17");
	rig_stop(&r);
}

static void serve_bad_magic(struct fake *f, int fd, unsigned int nr)
{
	const uint8_t frame[] = { 0, 0, 0, 0, 'V', 'T', 'C', 'm' };
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req))
		if (!fake_send(fd, frame, sizeof(frame)) ||
		    !fake_send(fd, fake_at(f, req.addr), req.size))
			return;
}

static void bad_magic(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_bad_magic, 2);
	assert_int_equal(read_at(&r, 0, 10), -EPROTO);
	rig_stop(&r);
}

/* Answers a write it has not been sent in full. */
static void serve_hasty(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (!fake_get(f, fd, &req))
		return;
	fake_status(fd, SF_TCP_OK);
	while (!atomic_load(&f->stop))
		fake_sleep_ms(5);
}

static void answered_too_early(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.tcp_split = 0;
	rig_start(&r, serve_hasty, 2);
	assert_int_equal(write_at(&r, 0, MEM_LEN, 1), -EPROTO);
	rig_stop(&r);
}

/* Connections that end when they should not. */

static bool half_answer(struct fake *f, int fd)
{
	struct sf_tcp_request req;

	return fake_get(f, fd, &req) && fake_status(fd, SF_TCP_OK) &&
	       fake_send(fd, fake_at(f, req.addr), req.size / 2);
}

static void serve_fin_in_body(struct fake *f, int fd, unsigned int nr)
{
	half_answer(f, fd);
}

static void serve_rst_in_body(struct fake *f, int fd, unsigned int nr)
{
	half_answer(f, fd);
	fake_sleep_ms(5);
	fake_reset_on_close(fd);
}

static void broken_in_body(void **state)
{
	fake_serve_fn *const how[] = { serve_fin_in_body, serve_rst_in_body };
	struct rig r;
	int i;

	for (i = 0; i < 2; i++) {
		rig_init(&r);
		rig_start(&r, how[i], 2);
		assert_int_equal(read_at(&r, 0, 8192), -ECONNRESET);
		assert_int_equal(read_at(&r, 0, 300000), -ECONNRESET);
		rig_stop(&r);
	}
}

static void serve_ok_then_close(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (fake_get(f, fd, &req))
		fake_status(fd, SF_TCP_OK);
}

static void gpu_memory_behind_tcp(void **state)
{
	struct rig r;

	rig_init(&r);
	fake_start(&r.fake, serve_ok_then_close, MEM_LEN, 0);
	r.has_fake = true;
	rig_connect(&r, make_segment("127.0.0.1", r.fake.port, 2, "cuda:0"));
	assert_int_equal(read_at(&r, 0, 8192), -EIO);
	expect_status(&r, "peer closed after OK; buffer is in cuda:0");
	rig_stop(&r);
}

static void serve_nothing(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	fake_get(f, fd, &req);
}

static void serve_goodbye(struct fake *f, int fd, unsigned int nr)
{
}

static void never_answered(void **state)
{
	fake_serve_fn *const how[] = { serve_nothing, serve_goodbye };
	struct rig r;
	unsigned int v, i;

	for (v = 1; v <= 2; v++) {
		for (i = 0; i < 2; i++) {
			rig_init(&r);
			rig_start(&r, how[i], v);
			assert_int_equal(read_at(&r, 0, 100), -ECONNRESET);
			assert_true(r.fake.nr_conns <= 8);
			rig_stop(&r);
		}
	}
}

/* Tires of a connection now and then, in one way or the other. */
static void serve_moody(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;
	unsigned int seed = nr + 1;

	while (fake_get(f, fd, &req)) {
		if (nr < 400 && rand_r(&seed) % 40 == 0) {
			if (rand_r(&seed) % 2)
				fake_reset_on_close(fd);
			return;
		}
		if (!fake_answer(f, fd, &req))
			return;
	}
}

static void moody_server(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_moody, 2);
	churn(&r, 20);
	rig_stop(&r);
}

static void serve_close_idle(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (!fake_get(f, fd, &req) || !fake_answer(f, fd, &req))
		return;
	fake_sleep_ms(20);
}

static void idle_lane_closed_by_server(void **state)
{
	struct rig r;
	int i;

	rig_init(&r);
	rig_start(&r, serve_close_idle, 2);
	for (i = 0; i < 5; i++) {
		assert_int_equal(read_at(&r, 0, 100), 0);
		assert_true(wait_conns_open(&r, 0));
		fake_sleep_ms(10);
	}
	expect_status(&r, "lanes: 0 of 4 connected");
	expect_status(&r, "reconnects: 5");
	rig_stop(&r);
}

/* Cancelling. */

static void serve_stall(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req)) {
		if (req.size == 666) {
			fake_status(fd, SF_TCP_OK);
			fake_send(fd, fake_at(f, req.addr), 100);
			while (!atomic_load(&f->stop) && fake_recv(fd, &nr, 1))
				;
			return;
		}
		if (!fake_answer(f, fd, &req))
			return;
	}
}

static void cancel_a_stalled_read(void **state)
{
	struct call stuck, behind[8];
	struct rig r;
	int i;

	rig_init(&r);
	r.config.tcp_lanes = 1;
	rig_start(&r, serve_stall, 2);
	call_init(&stuck, &r, SF_READ, 5, 666);
	sf_peer_submit(r.peer, &stuck.io);
	while (!r.fake.nr_requests)
		fake_sleep_ms(1);
	for (i = 0; i < 8; i++) {
		call_init(&behind[i], &r, i % 2 ? SF_WRITE : SF_READ,
			  (uint64_t)i * 5000, 5000);
		sf_peer_submit(r.peer, &behind[i].io);
	}
	fake_sleep_ms(20);
	sf_peer_cancel(r.peer, &stuck.io);
	assert_int_equal(wait_for(&stuck), -ECANCELED);
	for (i = 0; i < 8; i++) {
		assert_int_equal(wait_for(&behind[i]), 0);
		check_read(&behind[i]);
		call_fini(&behind[i]);
	}
	/* Too late is no harm. */
	sf_peer_cancel(r.peer, &stuck.io);
	call_fini(&stuck);
	rig_stop(&r);
}

/* Reads nothing, so that senders get stuck. */
static void serve_deaf(struct fake *f, int fd, unsigned int nr)
{
	while (!atomic_load(&f->stop))
		fake_sleep_ms(2);
}

static void cancel_in_every_state(void **state)
{
	struct call c[40];
	struct rig r;
	int i;

	rig_init(&r);
	r.config.tcp_lanes = 2;
	rig_start(&r, serve_deaf, 2);
	for (i = 0; i < 40; i++) {
		call_init(&c[i], &r, i % 3 ? SF_WRITE : SF_READ, 0,
			  i % 2 ? 1000000 : 100);
		sf_peer_submit(r.peer, &c[i].io);
		if (i == 20)
			fake_sleep_ms(20);
	}
	for (i = 39; i >= 0; i -= 2)
		sf_peer_cancel(r.peer, &c[i].io);
	for (i = 0; i < 40; i += 2)
		sf_peer_cancel(r.peer, &c[i].io);
	for (i = 0; i < 40; i++) {
		assert_int_equal(wait_for(&c[i]), -ECANCELED);
		call_fini(&c[i]);
	}
	rig_stop(&r);
}

static void close_with_requests_out(void **state)
{
	struct call c[20];
	struct rig r;
	int i;

	rig_init(&r);
	rig_start(&r, serve_deaf, 2);
	for (i = 0; i < 20; i++) {
		call_init(&c[i], &r, i % 3 ? SF_WRITE : SF_READ, 0,
			  i % 2 ? 1000000 : 100);
		sf_peer_submit(r.peer, &c[i].io);
		if (i == 10)
			fake_sleep_ms(20);
	}
	sf_peer_close(r.peer);
	r.peer = NULL;
	for (i = 0; i < 20; i++) {
		assert_int_equal(c[i].nr_done, 1);
		assert_int_equal(c[i].res, -ECANCELED);
		call_fini(&c[i]);
	}
	rig_stop(&r);
}

/* Cancel at every possible moment; nobody may touch the memory after. */
static void *cancel_race_thread(void *arg)
{
	struct churn *ch = arg;
	struct call c;
	uint32_t len, i;

	while (ch->nr_rounds--) {
		len = 1 + (uint32_t)rand_r(&ch->seed) %
				  (rand_r(&ch->seed) % 2 ? 200000 : 5000);
		call_init(&c, ch->rig, SF_READ, ch->base, len);
		sf_peer_submit(ch->rig->peer, &c.io);
		for (i = (uint32_t)rand_r(&ch->seed) % 30000; i; i--)
			__asm__ volatile("");
		sf_peer_cancel(ch->rig->peer, &c.io);
		if (wait_for(&c) == 0)
			check_read(&c);
		else
			assert_int_equal(c.res, -ECANCELED);
		memset(c.mem, 0xab, len);
		sched_yield();
		for (i = 0; i < len; i++)
			assert_int_equal(c.mem[i], 0xab);
		call_fini(&c);
	}
	return NULL;
}

static void cancel_race(void **state)
{
	struct churn ch[4];
	pthread_t threads[4];
	struct rig r;
	unsigned int i;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	for (i = 0; i < 4; i++) {
		ch[i] = (struct churn){ &r, i + 1, 100, i * 300000, 0, 0 };
		pthread_create(&threads[i], NULL, cancel_race_thread, &ch[i]);
	}
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	rig_stop(&r);
}

/* Connecting. */

static uint16_t unused_port(void)
{
	struct fake f;

	fake_start(&f, serve_goodbye, 1, 0);
	fake_stop(&f);
	return f.port;
}

static void refused_now_fine_later(void **state)
{
	struct rig r;
	uint64_t start;

	rig_init(&r);
	rig_connect(&r, make_segment("127.0.0.1", unused_port(), 2, "*"));
	start = sf_now_ms();
	assert_int_equal(read_at(&r, 0, 10), -ECONNREFUSED);
	assert_int_equal(read_at(&r, 0, 10), -ECONNREFUSED);
	assert_true(sf_now_ms() - start < 1000);
	expect_status(&r, "Connection refused");

	fake_start(&r.fake, fake_serve_well, MEM_LEN, r.seg->tcp_data_port);
	r.has_fake = true;
	fake_sleep_ms(150);
	assert_int_equal(read_at(&r, 0, 10), 0);
	rig_stop(&r);
}

/* A listener that does not accept, with its backlog full, is as silent as a
 * network that drops packets. */
static int make_black_hole(uint16_t *port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(fd, 0), 0);
	getsockname(fd, (struct sockaddr *)&sin, &len);
	connect(other, (struct sockaddr *)&sin, len);
	fake_sleep_ms(10);
	*port = ntohs(sin.sin_port);
	return fd | other << 16;
}

static void black_hole(void **state)
{
	uint64_t start;
	struct call c;
	struct rig r;
	uint16_t port;
	int fds;

	fds = make_black_hole(&port);
	rig_init(&r);
	r.config.connect_timeout_ms = 300;
	rig_connect(&r, make_segment("127.0.0.1", port, 2, "*"));
	start = sf_now_ms();
	call_init(&c, &r, SF_READ, 0, 10);
	sf_peer_submit(r.peer, &c.io);
	assert_true(sf_now_ms() - start < 250);
	assert_int_equal(wait_for(&c), -ETIMEDOUT);
	call_fini(&c);
	assert_true(sf_now_ms() - start >= 300);
	assert_true(sf_now_ms() - start < 3000);
	/* Its neighbours need not find out for themselves. */
	start = sf_now_ms();
	assert_int_equal(read_at(&r, 0, 10), -ETIMEDOUT);
	assert_true(sf_now_ms() - start < 250);
	/* Cancelling does not wait for the network either. */
	fake_sleep_ms(150);
	start = sf_now_ms();
	call_init(&c, &r, SF_READ, 0, 10);
	sf_peer_submit(r.peer, &c.io);
	sf_peer_cancel(r.peer, &c.io);
	assert_int_equal(wait_for(&c), -ECANCELED);
	call_fini(&c);
	assert_true(sf_now_ms() - start < 250);
	close(fds & 0xffff);
	close(fds >> 16);
	rig_stop(&r);
}

static void names_are_looked_up(void **state)
{
	struct rig r;

	rig_init(&r);
	fake_start(&r.fake, fake_serve_well, MEM_LEN, 0);
	r.has_fake = true;
	rig_connect(&r, make_segment("localhost", r.fake.port, 2, "*"));
	assert_int_equal(read_at(&r, 0, 1000), 0);
	expect_status(&r, "loopback");
	rig_stop(&r);

	rig_init(&r);
	rig_connect(&r, make_segment("no..such..name", 1, 2, "*"));
	assert_int_equal(read_at(&r, 0, 1000), -EHOSTUNREACH);
	expect_status(&r, "cannot resolve no..such..name");
	rig_stop(&r);
}

static void address_must_be_known(void **state)
{
	struct sf_segment seg = {
		.name = "a", .tcp_data_host = "", .rpc_host = "",
		.tcp_data_port = 1,
	};
	struct sf_err err = { 0 };
	struct sf_peer *p;
	struct rig r;

	rig_init(&r);
	rig_connect(&r, make_segment("127.0.0.1", 1, 2, "*"));
	assert_int_equal(sf_peer_open(r.transport, &seg, &p, &err),
			 -EADDRNOTAVAIL);
	assert_non_null(strstr(err.text, "host"));
	seg.rpc_host = "127.0.0.1";
	seg.tcp_data_port = 0;
	assert_int_equal(sf_peer_open(r.transport, &seg, &p, &err),
			 -EADDRNOTAVAIL);
	assert_non_null(strstr(err.text, "port"));
	rig_stop(&r);
}

static void server_restarts(void **state)
{
	struct rig r;
	uint16_t port;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	port = r.fake.port;
	assert_int_equal(read_at(&r, 0, 1000), 0);
	fake_stop(&r.fake);
	fake_start(&r.fake, fake_serve_well, MEM_LEN, port);
	assert_int_equal(read_at(&r, 0, 1000), 0);
	rig_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_read_and_write),
		cmocka_unit_test(large_reads_are_split_and_piped),
		cmocka_unit_test(mixed_load),
		cmocka_unit_test(mixed_load_without_pipes),
		cmocka_unit_test(crumbs_in_small_pipes),
		cmocka_unit_test(slow_trickle),
		cmocka_unit_test(v1_persistent),
		cmocka_unit_test(v1_forced_by_option),
		cmocka_unit_test(v1_one_shot_reads),
		cmocka_unit_test(v1_one_shot_mixed),
		cmocka_unit_test(v1_write_is_proven),
		cmocka_unit_test(v1_server_asked_as_v2),
		cmocka_unit_test(refused_range),
		cmocka_unit_test(refused_while_sending),
		cmocka_unit_test(others_survive_a_refusal),
		cmocka_unit_test(unknown_status),
		cmocka_unit_test(bad_magic),
		cmocka_unit_test(answered_too_early),
		cmocka_unit_test(broken_in_body),
		cmocka_unit_test(gpu_memory_behind_tcp),
		cmocka_unit_test(never_answered),
		cmocka_unit_test(moody_server),
		cmocka_unit_test(idle_lane_closed_by_server),
		cmocka_unit_test(cancel_a_stalled_read),
		cmocka_unit_test(cancel_in_every_state),
		cmocka_unit_test(close_with_requests_out),
		cmocka_unit_test(cancel_race),
		cmocka_unit_test(refused_now_fine_later),
		cmocka_unit_test(black_hole),
		cmocka_unit_test(names_are_looked_up),
		cmocka_unit_test(address_must_be_known),
		cmocka_unit_test(server_restarts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
