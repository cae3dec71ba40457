/* SPDX-License-Identifier: MIT */
#include "unit.h"
#include "tcp_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "blob.h"
#include "err.h"
#include "pipe.h"
#include "timer.h"

#define WAIT_MS 20000

struct sf_segment *rig_segment(const char *host, uint16_t port,
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

void rig_init(struct rig *r)
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

void rig_connect(struct rig *r, struct sf_segment *seg)
{
	struct sf_err err = { 0 };

	r->seg = seg;
	if (sf_transport_open(&r->transport, &sf_transport_tcp, &r->config,
			      &err) ||
	    sf_peer_open(r->transport, seg, &r->peer, &err))
		fail_msg("%s", err.text);
}

void rig_start(struct rig *r, fake_serve_fn *serve, unsigned int version)
{
	fake_start(&r->fake, serve, MEM_LEN, 0);
	r->has_fake = true;
	rig_connect(r, rig_segment("127.0.0.1", r->fake.port, version,
				    "cpu:0"));
}

void rig_stop(struct rig *r)
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

void call_init(struct call *c, struct rig *r, enum sf_op op,
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

int call_wait(struct call *c)
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

void call_fini(struct call *c)
{
	pthread_mutex_lock(&c->rig->lock);
	assert_int_equal(c->nr_done, 1);
	pthread_mutex_unlock(&c->rig->lock);
	free(c->mem);
}

void call_check(struct call *c)
{
	assert_memory_equal(c->mem, fake_at(&c->rig->fake, c->io.addr),
			    c->io.len);
}

int rig_read(struct rig *r, uint64_t off, uint32_t len)
{
	struct call c;
	int res;

	call_init(&c, r, SF_READ, off, len);
	sf_peer_submit(r->peer, &c.io);
	res = call_wait(&c);
	if (!res)
		call_check(&c);
	call_fini(&c);
	return res;
}

int rig_write(struct rig *r, uint64_t off, uint32_t len, uint8_t with)
{
	struct call c;
	uint32_t i;
	int res;

	call_init(&c, r, SF_WRITE, off, len);
	memset(c.mem, with, len);
	sf_peer_submit(r->peer, &c.io);
	res = call_wait(&c);
	if (!res)
		for (i = 0; i < len; i++)
			assert_int_equal(fake_at(&r->fake, FAKE_ADDR + off)[i],
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

void rig_expect_status(struct rig *r, const char *what)
{
	char *text = status_of(r);

	if (!strstr(text, what))
		fail_msg("no \"%s\" in \"%s\"", what, text);
	free(text);
}

bool rig_wait_open(struct rig *r, unsigned int nr)
{
	int i;

	for (i = 0; i < 500 && atomic_load(&r->fake.nr_open) != nr; i++)
		fake_sleep_ms(10);
	return atomic_load(&r->fake.nr_open) == nr;
}

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
		call_wait(c);
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

void rig_churn(struct rig *r, unsigned int nr_rounds)
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
