/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "workers.h"

static void count(void *arg)
{
	atomic_fetch_add((atomic_uint *)arg, 1);
}

static void runs_each_job_once_before_free_returns(void **state)
{
	struct sf_workers *w;
	atomic_uint n = 0;
	unsigned int i;

	assert_int_equal(sf_workers_new(&w, 3, "test"), 0);
	for (i = 0; i < 1000; i++)
		assert_int_equal(sf_workers_run(w, count, &n), 0);
	sf_workers_free(w);
	assert_int_equal(n, 1000);
}

struct chain {
	struct sf_workers *w;
	atomic_uint n;
};

static void again(void *arg)
{
	struct chain *chain = arg;

	usleep(1000);
	if (atomic_fetch_add(&chain->n, 1) < 9)
		assert_int_equal(sf_workers_run(chain->w, again, chain), 0);
}

static void a_job_may_queue_another_while_the_pool_ends(void **state)
{
	struct chain chain = { .n = 0 };

	assert_int_equal(sf_workers_new(&chain.w, 2, "test"), 0);
	assert_int_equal(sf_workers_run(chain.w, again, &chain), 0);
	sf_workers_free(chain.w);
	assert_int_equal(chain.n, 10);
}

struct meeting {
	pthread_mutex_t lock;
	pthread_cond_t all_here;
	unsigned int nr, expected;
};

static void meet(void *arg)
{
	struct meeting *m = arg;

	pthread_mutex_lock(&m->lock);
	if (++m->nr == m->expected)
		pthread_cond_broadcast(&m->all_here);
	while (m->nr < m->expected)
		pthread_cond_wait(&m->all_here, &m->lock);
	pthread_mutex_unlock(&m->lock);
}

/* Each waits for all others: no job waits for one that blocks. */
static void blocked_jobs_hold_up_nobody(void **state)
{
	struct meeting m = { .lock = PTHREAD_MUTEX_INITIALIZER,
			     .all_here = PTHREAD_COND_INITIALIZER,
			     .expected = 50 };
	struct sf_workers *w;

	assert_int_equal(sf_workers_new(&w, 50, "test"), 0);
	for (unsigned int i = 0; i < 50; i++)
		assert_int_equal(sf_workers_run(w, meet, &m), 0);
	sf_workers_free(w);
	assert_int_equal(m.nr, 50);
}

static void name(void *arg)
{
	pthread_getname_np(pthread_self(), arg, 16);
}

static void threads_carry_the_name(void **state)
{
	struct sf_workers *w;
	char text[16];

	assert_int_equal(sf_workers_new(&w, 0, "a-name-that-is-too-long"), 0);
	assert_int_equal(sf_workers_run(w, name, text), 0);
	sf_workers_free(w);
	assert_string_equal(text, "a-name-that-is-");
}

static void null_is_fine(void **state)
{
	sf_workers_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_each_job_once_before_free_returns),
		cmocka_unit_test(a_job_may_queue_another_while_the_pool_ends),
		cmocka_unit_test(blocked_jobs_hold_up_nobody),
		cmocka_unit_test(threads_carry_the_name),
		cmocka_unit_test(null_is_fine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
