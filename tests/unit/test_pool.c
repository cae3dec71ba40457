/* SPDX-License-Identifier: MIT */
/* The pools of I/O buffers and pipes, and timers. */
#include "unit.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "iobuf.h"
#include "pipe.h"
#include "timer.h"

#define BUF_BYTES 65536u

static void buffers_are_distinct_and_come_back(void **state)
{
	struct sf_iobuf_pool *pool;
	struct sf_iobuf_stats st;
	struct sf_iobuf *bufs[64];

	assert_int_equal(sf_iobuf_pool_new(&pool, 8 * BUF_BYTES, BUF_BYTES), 0);
	sf_iobuf_stats(pool, &st);
	assert_true(st.total >= 4 && st.total < 64);
	for (unsigned int i = 0; i < st.total; i++) {
		bufs[i] = sf_iobuf_get(pool);
		assert_false(bufs[i]->overflow);
		memset(bufs[i]->mem, (int)i, BUF_BYTES);
	}
	for (unsigned int i = 0; i < st.total; i++) {
		assert_int_equal(bufs[i]->mem[0], i);
		assert_int_equal(bufs[i]->mem[BUF_BYTES - 1], i);
		sf_iobuf_put(pool, bufs[i]);
	}
	sf_iobuf_stats(pool, &st);
	assert_int_equal(st.free, st.total);
	sf_iobuf_pool_free(pool);
}

static void an_empty_pool_lends_plain_memory(void **state)
{
	struct sf_iobuf_pool *pool;
	struct sf_iobuf_stats st;
	struct sf_iobuf *bufs[65];
	unsigned int n;

	assert_int_equal(sf_iobuf_pool_new(&pool, 4 * BUF_BYTES, BUF_BYTES), 0);
	sf_iobuf_stats(pool, &st);
	n = st.total + 1;
	for (unsigned int i = 0; i < n; i++)
		bufs[i] = sf_iobuf_get(pool);
	assert_true(bufs[n - 1]->overflow);
	memset(bufs[n - 1]->mem, 1, bufs[n - 1]->size);
	sf_iobuf_stats(pool, &st);
	assert_int_equal(st.overflow, 1);
	for (unsigned int i = 0; i < n; i++)
		sf_iobuf_put(pool, bufs[i]);
	sf_iobuf_stats(pool, &st);
	assert_int_equal(st.overflow, 0);
	sf_iobuf_pool_free(pool);
}

static void one_peer_gets_half_and_keeps_its_payload(void **state)
{
	struct sf_iobuf_pool *pool;
	struct sf_iobuf_stats st;
	struct sf_iobuf *bufs[65], *other;
	struct sf_share share = { 0 };

	assert_int_equal(sf_iobuf_pool_new(&pool, 8 * BUF_BYTES, BUF_BYTES), 0);
	sf_iobuf_stats(pool, &st);
	for (unsigned int i = 0; i < st.total / 2; i++) {
		bufs[i] = sf_iobuf_get(pool);
		other = sf_iobuf_charge(pool, bufs[i], &share, 0, 0);
		assert_ptr_equal(other, bufs[i]);
	}
	other = sf_iobuf_get(pool);
	memcpy(other->mem + 80, "payload", 8);
	other = sf_iobuf_charge(pool, other, &share, 80, 8);
	assert_true(other->overflow);
	assert_string_equal(other->mem + 80, "payload");
	sf_iobuf_put(pool, other);
	sf_iobuf_put(pool, bufs[0]);
	bufs[0] = sf_iobuf_get(pool);
	assert_ptr_equal(sf_iobuf_charge(pool, bufs[0], &share, 0, 0),
			 bufs[0]);
	for (unsigned int i = 0; i < st.total / 2; i++)
		sf_iobuf_put(pool, bufs[i]);
	assert_int_equal(share.held, 0);
	sf_iobuf_pool_free(pool);
}

static void pipes_are_bounded_and_come_back_empty(void **state)
{
	struct sf_pipe_pool *pool;
	struct sf_pipe *a, *b;
	char c;

	assert_int_equal(sf_pipe_pool_new(&pool, 2, 65536), 0);
	a = sf_pipe_get(pool);
	b = sf_pipe_get(pool);
	assert_non_null(a);
	assert_non_null(b);
	assert_true(a->capacity >= 65536);
	assert_null(sf_pipe_get(pool));
	assert_int_equal(write(a->wr, "abc", 3), 3);
	a->filled = 3;
	sf_pipe_put(pool, a);
	a = sf_pipe_get(pool);
	assert_int_equal(a->filled, 0);
	assert_int_equal(read(a->rd, &c, 1), -1);
	sf_pipe_put(pool, a);
	sf_pipe_put(pool, b);
	sf_pipe_put(pool, NULL);
	sf_pipe_pool_free(pool);
}

struct ticket {
	struct sf_timer timer;
	atomic_int *next;
	int got;
};

static void punch(struct sf_timer *t)
{
	struct ticket *k = (struct ticket *)t;

	k->got = atomic_fetch_add(k->next, 1) + 1;
}

static void timers_run_once_in_order(void **state)
{
	struct sf_timers *q;
	struct ticket k[50];
	atomic_int next = 0;
	/* Late enough that all are armed before the first is due. */
	uint64_t now = sf_now_ms() + 1000;

	memset(k, 0, sizeof(k));
	assert_int_equal(sf_timers_new(&q), 0);
	for (int i = 0; i < 50; i++) {
		k[i].next = &next;
		assert_int_equal(sf_timer_arm(q, &k[i].timer,
					      now + (uint64_t)(i * 7 % 50) * 2,
					      punch),
				 0);
	}
	assert_true(sf_timer_cancel(q, &k[7].timer)); /* due at 98 ms */
	assert_false(sf_timer_cancel(q, &k[7].timer));
	for (int i = 0; i < 2000 && atomic_load(&next) < 49; i++)
		usleep(10000);
	assert_int_equal(atomic_load(&next), 49);
	for (int i = 0; i < 50; i++)
		if (i != 7)
			assert_int_equal(k[i].got, i * 7 % 50 + 1);
	assert_int_equal(k[7].got, 0);
	sf_timers_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffers_are_distinct_and_come_back),
		cmocka_unit_test(an_empty_pool_lends_plain_memory),
		cmocka_unit_test(one_peer_gets_half_and_keeps_its_payload),
		cmocka_unit_test(pipes_are_bounded_and_come_back_empty),
		cmocka_unit_test(timers_run_once_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
