/* SPDX-License-Identifier: MIT */
/* The TCP initiator against servers that mean well, and what they refuse. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "pipe.h"
#include "tcp_rig.h"

static void small_read_and_write(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	assert_int_equal(rig_read(&r, 0, 1), 0);
	assert_int_equal(rig_read(&r, 4095, 4097), 0);
	assert_int_equal(rig_write(&r, 77, 1000, 0x5a), 0);
	assert_int_equal(rig_read(&r, 70, 1100), 0);
	assert_int_equal(rig_read(&r, MEM_LEN - 1, 1), 0);
	rig_expect_status(&r, "tcp: v2 127.0.0.1:");
	rig_expect_status(&r, "lanes: 1 of 4 connected, 0 busy, 0 queued");
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
	assert_int_equal(rig_read(&r, 1, 700001), 0);
	assert_true(rig_wait_open(&r, 2));
	/* The second connection may still be on its way. */
	for (i = 0; i < 100; i++) {
		call_init(&c, &r, SF_READ, 3, 700001);
		sf_peer_submit(r.peer, &c.io);
		assert_int_equal(call_wait(&c), 0);
		call_check(&c);
		call_fini(&c);
		if (c.io.nr_pipes == 2)
			break;
		fake_sleep_ms(10);
	}
	assert_int_equal(c.io.nr_pipes, 2);
	assert_int_equal(rig_write(&r, 5, 1000001, 0x11), 0);
	rig_stop(&r);
}

static void mixed_load(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 2);
	rig_churn(&r, 25);
	rig_stop(&r);
}

static void mixed_load_without_pipes(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.pipes = NULL;
	rig_start(&r, fake_serve_well, 2);
	rig_churn(&r, 10);
	rig_stop(&r);
}

/* More than fits in any socket buffer, both ways, one connection. */
static void deep_queue_on_one_lane(void **state)
{
	struct call c[48];
	struct rig r;
	int i;

	rig_init(&r);
	r.config.tcp_lanes = 1;
	r.config.tcp_split = 0;
	r.config.pipes = NULL;
	rig_start(&r, fake_serve_well, 2);
	for (i = 0; i < 48; i++) {
		call_init(&c[i], &r, i % 4 ? SF_READ : SF_WRITE,
			  i % 4 ? MEM_LEN / 2 : 0, 1000003);
		sf_peer_submit(r.peer, &c[i].io);
	}
	for (i = 0; i < 48; i++) {
		assert_int_equal(call_wait(&c[i]), 0);
		call_check(&c[i]);
		call_fini(&c[i]);
	}
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
			if (n > req.size - at)
				n = (unsigned int)(req.size - at);
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
		assert_int_equal(rig_read(&r, (uint64_t)i * 977,
					 32769 + (uint32_t)i * 1500),
				 0);
	rig_churn(&r, 4);
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
	assert_int_equal(rig_read(&r, 9, 50), 0);
	assert_int_equal(rig_read(&r, 9, 15), 0);
	rig_stop(&r);
}

/* Version 1. */

static void v1_persistent(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, fake_serve_well, 1);
	assert_int_equal(rig_write(&r, 3, 5000, 0x77), 0);
	assert_int_equal(rig_read(&r, 1, 6000), 0);
	rig_churn(&r, 10);
	rig_expect_status(&r, "tcp: v1 ");
	assert_true(r.fake.nr_conns <= 4);
	rig_stop(&r);
}

static void v1_forced_by_option(void **state)
{
	struct rig r;

	rig_init(&r);
	r.config.tcp_version = 1;
	rig_start(&r, fake_serve_well, 2);
	assert_int_equal(rig_read(&r, 1, 6000), 0);
	rig_expect_status(&r, "tcp: v1 ");
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
		assert_int_equal(rig_read(&r, (uint64_t)i, 3000), 0);
	assert_int_equal(r.fake.nr_requests, 10);
	rig_stop(&r);
}

static void v1_one_shot_mixed(void **state)
{
	struct rig r;

	rig_init(&r);
	rig_start(&r, serve_one_shot, 1);
	assert_int_equal(rig_write(&r, 3, 5000, 0x77), 0);
	assert_int_equal(rig_write(&r, 3, 100000, 0x78), 0);
	assert_int_equal(rig_read(&r, 3, 100000), 0);
	rig_expect_status(&r, ", one connection a request");
	rig_churn(&r, 4);
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
	assert_int_equal(rig_write(&r, 0, 10, 1), -ECONNRESET);
	assert_int_equal(rig_write(&r, 0, 1000000, 1), -ECONNRESET);
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
	assert_int_equal(rig_read(&r, 0, 100), -EPROTO);
	assert_int_equal(rig_read(&r, 0, 100000), -EPROTO);
	assert_int_equal(rig_write(&r, 0, 100, 1), -EPROTO);
	rig_expect_status(&r, "last error: peer does not answer as version 2");
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
	assert_int_equal(rig_read(&r, MEM_LEN / 2, 10), -EREMOTEIO);
	rig_expect_status(&r, "last error: peer refused the range (0 s ago)");
	assert_int_equal(rig_read(&r, 0, 10), 0);
	assert_int_equal(rig_write(&r, MEM_LEN / 2, 10, 1), -EREMOTEIO);
	assert_int_equal(rig_read(&r, MEM_LEN / 2, 500000), -EREMOTEIO);
	assert_int_equal(rig_read(&r, 0, 500000), 0);
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
	assert_int_equal(rig_write(&r, 0, MEM_LEN, 1), -EREMOTEIO);
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
		assert_int_equal(call_wait(&c[i]),
				 i % 32 == 9 ? -EREMOTEIO : 0);
		if (i % 32 != 9)
			call_check(&c[i]);
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
	assert_int_equal(rig_read(&r, 0, 10), -EPROTO);
	rig_expect_status(&r, "peer answered with unknown status 17");
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
	assert_int_equal(rig_read(&r, 0, 10), -EPROTO);
	rig_stop(&r);
}

/* Says more than it was asked, at once or a little later. */
static void serve_chatty(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req)) {
		if (!fake_answer(f, fd, &req))
			return;
		fake_sleep_ms(nr ? 0 : 20);
		if (nr < 2 && !fake_send(fd, f->mem, 100))
			return;
	}
}

static void bytes_out_of_turn(void **state)
{
	struct rig r;
	unsigned int v;

	for (v = 1; v <= 2; v++) {
		rig_init(&r);
		rig_start(&r, serve_chatty, v);
		assert_int_equal(rig_read(&r, 0, 500), 0);
		fake_sleep_ms(400);
		assert_int_equal(rig_read(&r, 7, 50000), 0);
		fake_sleep_ms(400);
		assert_int_equal(rig_read(&r, 9, 500), 0);
		rig_expect_status(&r, "bytes nobody asked for");
		rig_stop(&r);
	}
}

/* Answers a write it has not been sent in full. */
static void serve_hasty(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;
	int small = 4096;

	/* The request must not fit into the sockets' buffers. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
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
	assert_int_equal(rig_write(&r, 0, MEM_LEN, 1), -EPROTO);
	rig_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_read_and_write),
		cmocka_unit_test(large_reads_are_split_and_piped),
		cmocka_unit_test(mixed_load),
		cmocka_unit_test(mixed_load_without_pipes),
		cmocka_unit_test(deep_queue_on_one_lane),
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
		cmocka_unit_test(bytes_out_of_turn),
		cmocka_unit_test(answered_too_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
