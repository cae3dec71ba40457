/* SPDX-License-Identifier: MIT */
/* The TCP initiator when connections break and requests are cancelled. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sched.h>

#include "tcp_rig.h"

static void serve_one_shot(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	if (fake_get(f, fd, &req))
		fake_answer(f, fd, &req);
}

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
		assert_int_equal(rig_read(&r, 0, 8192), -ECONNRESET);
		assert_int_equal(rig_read(&r, 0, 300000), -ECONNRESET);
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
	rig_connect(&r, rig_segment("127.0.0.1", r.fake.port, 2, "cuda:0"));
	assert_int_equal(rig_read(&r, 0, 8192), -EIO);
	rig_expect_status(&r, "peer closed after OK; buffer is in cuda:0");
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
			assert_int_equal(rig_read(&r, 0, 100), -ECONNRESET);
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
	rig_churn(&r, 20);
	rig_stop(&r);
}

static void closes_after_each(void **state)
{
	struct rig r;
	int i;

	rig_init(&r);
	rig_start(&r, serve_one_shot, 2);
	for (i = 0; i < 20; i++)
		assert_int_equal(rig_read(&r, (uint64_t)i, 100), 0);
	rig_churn(&r, 2);
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
		assert_int_equal(rig_read(&r, 0, 100), 0);
		assert_true(rig_wait_open(&r, 0));
		fake_sleep_ms(10);
	}
	rig_expect_status(&r, "lanes: 0 of 4 connected");
	rig_expect_status(&r, "reconnects: 5");
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
	assert_int_equal(call_wait(&stuck), -ECANCELED);
	for (i = 0; i < 8; i++) {
		assert_int_equal(call_wait(&behind[i]), 0);
		call_check(&behind[i]);
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

static void cancel_in_every_state_of(unsigned int version)
{
	struct call c[40];
	struct rig r;
	int i;

	rig_init(&r);
	r.config.tcp_lanes = 2;
	rig_start(&r, serve_deaf, version);
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
		assert_int_equal(call_wait(&c[i]), -ECANCELED);
		call_fini(&c[i]);
	}
	rig_stop(&r);
}

static void cancel_in_every_state(void **state)
{
	cancel_in_every_state_of(2);
	cancel_in_every_state_of(1);
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

struct racer {
	struct rig *rig;
	unsigned int seed, nr_rounds;
	uint64_t base;
};

/* Cancel at every possible moment; nobody may touch the memory after. */
static void *cancel_race_thread(void *arg)
{
	struct racer *ch = arg;
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
		if (call_wait(&c) == 0)
			call_check(&c);
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
	struct racer ch[4];
	pthread_t threads[4];
	struct rig r;
	unsigned int i;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	for (i = 0; i < 4; i++) {
		ch[i] = (struct racer){ &r, i + 1, 100, i * 300000 };
		pthread_create(&threads[i], NULL, cancel_race_thread, &ch[i]);
	}
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	rig_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broken_in_body),
		cmocka_unit_test(gpu_memory_behind_tcp),
		cmocka_unit_test(never_answered),
		cmocka_unit_test(moody_server),
		cmocka_unit_test(closes_after_each),
		cmocka_unit_test(idle_lane_closed_by_server),
		cmocka_unit_test(cancel_a_stalled_read),
		cmocka_unit_test(cancel_in_every_state),
		cmocka_unit_test(close_with_requests_out),
		cmocka_unit_test(cancel_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
