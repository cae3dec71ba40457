/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <stdlib.h>

#include "fs/gap.h"

#define SIZE 1000000u

/* Operations here are run by hand: start() notes that they may go. */
struct op {
	struct sf_gap_op op;
	struct sf_gap *gap;
	bool started;
	bool at_once;		/* finish inside start() */
};

static void start(struct sf_gap_op *op)
{
	struct op *o = (struct op *)op;

	assert_false(o->started);
	o->started = true;
	if (o->at_once)
		sf_gap_leave(o->gap, op, true);
}

static struct op *enter(struct sf_gap *g, struct op *o, enum sf_gap_kind kind,
			uint64_t off, uint64_t len)
{
	o->op.kind = kind;
	o->op.off = off;
	o->op.len = len;
	o->op.start = start;
	o->gap = g;
	o->started = false;
	sf_gap_enter(g, &o->op);
	return o;
}

static void run(struct sf_gap *g, enum sf_gap_kind kind, uint64_t off,
		uint64_t len, uint64_t zero_from, uint64_t zero_to)
{
	struct op o = { 0 };

	enter(g, &o, kind, off, len);
	assert_true(o.started);
	assert_int_equal(o.op.zero_to - o.op.zero_from, zero_to - zero_from);
	if (zero_to != zero_from)
		assert_int_equal(o.op.zero_from, zero_from);
	sf_gap_leave(g, &o.op, true);
}

static struct sf_gap *opened(void)
{
	struct sf_gap *g = sf_gap_new(SIZE);

	assert_non_null(g);
	sf_gap_opened(g);
	return g;
}

static void closed(struct sf_gap *g)
{
	sf_gap_closed(g);
	assert_int_equal(sf_gap_end(g), UINT64_MAX);
	sf_gap_free(g);
}

/* What `cp` of a sparse file does. */
static void gaps_behind_the_end_are_zeroed(void **state)
{
	struct sf_gap *g = opened();

	run(g, SF_GAP_WRITE, 500, 10, 0, 0);	/* not armed */
	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	assert_int_equal(sf_gap_end(g), 0);
	run(g, SF_GAP_WRITE, 0, 4096, 0, 0);
	run(g, SF_GAP_WRITE, 9000, 100, 4096, 9000);
	assert_int_equal(sf_gap_end(g), 9100);
	run(g, SF_GAP_WRITE, 50, 100, 0, 0);
	assert_int_equal(sf_gap_end(g), 9100);
	run(g, SF_GAP_TRUNCATE, 20000, 0, 9100, 20000);
	run(g, SF_GAP_EXTEND, 19000, 0, 0, 0);
	run(g, SF_GAP_EXTEND, 21000, 0, 20000, 21000);
	run(g, SF_GAP_TRUNCATE, 100, 0, 0, 0);
	run(g, SF_GAP_WRITE, 101, 1, 100, 101);
	closed(g);
}

static void no_writer_no_arming(void **state)
{
	struct sf_gap *g = sf_gap_new(SIZE);

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	assert_int_equal(sf_gap_end(g), UINT64_MAX);
	sf_gap_free(g);
}

static void a_second_writer_disarms(void **state)
{
	struct sf_gap *g = opened();

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	sf_gap_opened(g);
	assert_int_equal(sf_gap_end(g), UINT64_MAX);
	run(g, SF_GAP_WRITE, 500, 10, 0, 0);
	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	assert_int_equal(sf_gap_end(g), UINT64_MAX);
	sf_gap_closed(g);
	closed(g);
}

static void the_last_close_disarms(void **state)
{
	struct sf_gap *g = opened();

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	sf_gap_closed(g);
	sf_gap_opened(g);
	run(g, SF_GAP_WRITE, 500, 10, 0, 0);
	closed(g);
}

static void unarmed_writes_run_together(void **state)
{
	struct sf_gap *g = opened();
	struct op a = { 0 }, b = { 0 };

	enter(g, &a, SF_GAP_WRITE, 0, 10);
	assert_true(a.started);
	enter(g, &b, SF_GAP_WRITE, 5, 10);
	assert_true(b.started);
	sf_gap_leave(g, &a.op, true);
	sf_gap_leave(g, &b.op, true);
	closed(g);
}

/* At the size there can be no gap, so there is no need to queue. */
static void truncated_at_the_size_runs_together(void **state)
{
	struct sf_gap *g = opened();
	struct op a = { 0 }, b = { 0 };

	run(g, SF_GAP_TRUNCATE, SIZE, 0, 0, 0);
	enter(g, &a, SF_GAP_WRITE, 0, 10);
	enter(g, &b, SF_GAP_WRITE, 5, 10);
	assert_true(a.started && b.started);
	sf_gap_leave(g, &a.op, true);
	sf_gap_leave(g, &b.op, true);
	closed(g);
}

static void armed_writes_run_one_by_one_in_order(void **state)
{
	struct sf_gap *g = opened();
	struct op o[3] = { 0 };

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	enter(g, &o[0], SF_GAP_WRITE, 100, 10);
	enter(g, &o[1], SF_GAP_WRITE, 50, 10);
	enter(g, &o[2], SF_GAP_WRITE, 200, 10);
	assert_true(o[0].started && !o[1].started && !o[2].started);
	sf_gap_leave(g, &o[0].op, true);
	assert_true(o[1].started && !o[2].started);
	assert_int_equal(o[1].op.zero_to, 0);
	sf_gap_leave(g, &o[1].op, true);
	assert_true(o[2].started);
	assert_int_equal(o[2].op.zero_from, 110);
	assert_int_equal(o[2].op.zero_to, 200);
	sf_gap_leave(g, &o[2].op, true);
	closed(g);
}

/* Nothing may be zeroed under a write that is still on its way. */
static void truncation_waits_for_writes_under_way(void **state)
{
	struct sf_gap *g = opened();
	struct op w = { 0 }, t = { 0 }, x = { 0 };

	enter(g, &w, SF_GAP_WRITE, 0, 10);
	enter(g, &t, SF_GAP_TRUNCATE, 0, 0);
	enter(g, &x, SF_GAP_WRITE, 20, 10);
	assert_true(w.started && !t.started && !x.started);
	sf_gap_leave(g, &w.op, true);
	assert_true(t.started && !x.started);
	sf_gap_leave(g, &t.op, true);
	assert_true(x.started);
	assert_int_equal(x.op.zero_to, 20);
	sf_gap_leave(g, &x.op, true);
	closed(g);
}

/* A zeroing under way goes to its end before others may write there. */
static void disarming_waits_for_a_zeroing(void **state)
{
	struct sf_gap *g = opened();
	struct op z = { 0 }, w = { 0 };

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	enter(g, &z, SF_GAP_WRITE, 100, 10);
	sf_gap_opened(g);
	enter(g, &w, SF_GAP_WRITE, 50, 10);
	assert_false(w.started);
	sf_gap_leave(g, &z.op, true);
	assert_true(w.started);
	sf_gap_leave(g, &w.op, true);
	sf_gap_closed(g);
	closed(g);
}

static void a_failed_write_moves_no_end(void **state)
{
	struct sf_gap *g = opened();
	struct op o = { 0 };

	run(g, SF_GAP_TRUNCATE, 10, 0, 0, 0);
	enter(g, &o, SF_GAP_WRITE, 10, 10);
	sf_gap_leave(g, &o.op, false);
	assert_int_equal(sf_gap_end(g), 10);
	closed(g);
}

/* A thousand queued operations that finish inside start(). */
static void a_long_queue_needs_no_deep_stack(void **state)
{
	enum { NR = 100000 };
	struct sf_gap *g = opened();
	struct op *o = calloc(NR, sizeof(*o));
	struct op first = { 0 };

	run(g, SF_GAP_TRUNCATE, 0, 0, 0, 0);
	enter(g, &first, SF_GAP_WRITE, 0, 1);
	for (int i = 0; i < NR; i++) {
		o[i].at_once = true;
		enter(g, &o[i], SF_GAP_WRITE, 0, 1);
	}
	sf_gap_leave(g, &first.op, true);
	for (int i = 0; i < NR; i++)
		assert_true(o[i].started);
	free(o);
	closed(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gaps_behind_the_end_are_zeroed),
		cmocka_unit_test(no_writer_no_arming),
		cmocka_unit_test(a_second_writer_disarms),
		cmocka_unit_test(the_last_close_disarms),
		cmocka_unit_test(unarmed_writes_run_together),
		cmocka_unit_test(truncated_at_the_size_runs_together),
		cmocka_unit_test(armed_writes_run_one_by_one_in_order),
		cmocka_unit_test(truncation_waits_for_writes_under_way),
		cmocka_unit_test(disarming_waits_for_a_zeroing),
		cmocka_unit_test(a_failed_write_moves_no_end),
		cmocka_unit_test(a_long_queue_needs_no_deep_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
