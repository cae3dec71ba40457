/* SPDX-License-Identifier: MIT */
/* Who may connect: the rules, on queue pairs that are numbers only. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "rdma/acceptor.h"

#define GID_TEXT "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:02"

struct world {
	struct sf_acceptor *a;
	atomic_uint made, unmade, next_qp;
	atomic_uint slow_ms;		/* make takes that long */
	atomic_uint unmake_ms;
	atomic_uint room;		/* for so many at a time; 0: all */
	atomic_uint most;		/* there were at a time */
	atomic_int result;		/* of make */
	const char *refusal;
	bool fail_at_once;
	_Atomic(struct sf_endpoint *) last;
};

static const struct sf_acceptor_nic nics[] = {
	{ "nic0", 8 }, { "nic1", 1000 },
};

static void pause_ms(unsigned int ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static const char *fake_refusal(void *arg, unsigned int nic)
{
	struct world *w = arg;

	return w->refusal;
}

static int fake_make(void *arg, unsigned int nic,
		     const struct sf_acceptor_remote *remote,
		     struct sf_endpoint *endpoint,
		     struct sf_acceptor_local *local, void **qps,
		     struct sf_err *err)
{
	struct world *w = arg;

	unsigned int live;

	pause_ms(w->slow_ms);
	if (w->result)
		return sf_err_set(err, w->result, "RTR: no way");
	live = w->made - w->unmade;
	if (w->room && live >= w->room)
		return sf_err_set(err, -ENOMEM, "no room");
	if (live + 1 > w->most)
		w->most = live + 1;
	assert_int_equal(remote->gid[15], 2);
	assert_int_equal(remote->lid, 7);
	memset(local->gid, 0xfe, sizeof(local->gid));
	local->lid = 9;
	for (uint32_t i = 0; i < remote->nr_qps; i++)
		local->qp_num[i] = 100 + atomic_fetch_add(&w->next_qp, 1);
	atomic_fetch_add(&w->made, 1);
	w->last = endpoint;
	if (w->fail_at_once)
		sf_acceptor_failed(w->a, endpoint);
	*qps = malloc(1);
	return 0;
}

static void fake_unmake(void *arg, void *qps)
{
	struct world *w = arg;

	pause_ms(w->unmake_ms);
	free(qps);
	atomic_fetch_add(&w->unmade, 1);
}

static const struct sf_acceptor_ops ops = {
	.refusal = fake_refusal,
	.make = fake_make,
	.unmake = fake_unmake,
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct sf_acceptor_config config = {
		.server = "me:1", .nics = nics, .nr_nics = 2, .ops = &ops,
		.arg = w,
	};

	assert_int_equal(sf_acceptor_new(&w->a, &config), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	sf_acceptor_free(w->a);
	assert_int_equal(w->made, w->unmade);
	free(w);
	return 0;
}

static const uint32_t qps_a[] = { 17, 18 }, qps_b[] = { 17, 19, 20 };

static struct sf_handshake_rdma request(const char *from, const char *to,
					const uint32_t *qps, uint32_t nr)
{
	return (struct sf_handshake_rdma){
		.local_nic_path = from, .peer_nic_path = to,
		.local_gid = GID_TEXT, .local_lid = 7, .reply_msg = "",
		.qp_num = qps, .nr_qps = nr,
	};
}

static void expect_rejected(struct world *w,
			    const struct sf_handshake_rdma *req,
			    const char *why)
{
	struct sf_acceptor_reply r;

	sf_acceptor_answer(w->a, req, &r);
	assert_true(r.err.code < 0);
	if (!strstr(r.msg.reply_msg, why))
		fail_msg("\"%s\" not in \"%s\"", why, r.msg.reply_msg);
	assert_string_equal(r.msg.peer_nic_path, req->local_nic_path);
	assert_int_equal(r.msg.ready_ack, SF_READY_ACK_ABSENT);
}

static void expect_accepted(struct world *w,
			    const struct sf_handshake_rdma *req,
			    struct sf_acceptor_reply *r)
{
	sf_acceptor_answer(w->a, req, r);
	if (r->err.code)
		fail_msg("%s", r->err.text);
	assert_null(r->msg.reply_msg);
	assert_string_equal(r->msg.local_nic_path, req->peer_nic_path);
	assert_string_equal(r->msg.peer_nic_path, req->local_nic_path);
	assert_int_equal(r->msg.nr_qps, req->nr_qps);
	assert_int_equal(r->msg.local_lid, 9);
	assert_memory_equal(r->msg.local_gid, "fe:fe:", 6);
}

static void expect_unmade(struct world *w, unsigned int nr)
{
	uint64_t until = sf_now_ms() + 5000;

	while (w->unmade != nr && sf_now_ms() < until)
		pause_ms(5);
	assert_int_equal(w->unmade, nr);
}

static void as_many_as_asked_for(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma a = request("a@x", "me:1@nic1", qps_a, 2);
	struct sf_handshake_rdma b = request("b@x", "me:1@nic1", qps_b, 3);
	struct sf_acceptor_reply r;

	expect_accepted(w, &a, &r);
	assert_int_equal(r.msg.qp_num[0], 100);
	assert_int_equal(r.msg.qp_num[1], 101);
	expect_accepted(w, &b, &r);
	assert_int_equal(r.msg.qp_num[2], 104);
	assert_int_equal(sf_acceptor_count(w->a), 2);
}

static void the_same_request_gets_the_same_answer(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma a = request("a@x", "me:1@nic0", qps_a, 2);
	struct sf_acceptor_reply first, again;

	expect_accepted(w, &a, &first);
	expect_accepted(w, &a, &again);
	assert_int_equal(w->made, 1);
	assert_memory_equal(first.qp_num, again.qp_num, 8);
	assert_int_equal(w->unmade, 0);
}

static void other_numbers_replace_the_endpoint(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma a = request("a@x", "me:1@nic0", qps_a, 2);
	struct sf_handshake_rdma other = request("a@x", "me:1@nic1", qps_a, 2);
	struct sf_acceptor_reply r;

	expect_accepted(w, &a, &r);
	expect_accepted(w, &other, &r);	/* another NIC of ours, another pair */
	a = request("a@x", "me:1@nic0", qps_b, 3);
	expect_accepted(w, &a, &r);
	assert_int_equal(r.msg.qp_num[0], 104);
	expect_unmade(w, 1);
	a = request("a@x", "me:1@nic0", qps_b + 1, 2);
	expect_accepted(w, &a, &r);
	expect_unmade(w, 2);
	assert_int_equal(sf_acceptor_count(w->a), 2);
}

/* They may come back by chance when the peer starts anew. */
static void the_same_numbers_of_another_gid_are_others(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma a = request("a@x", "me:1@nic0", qps_a, 2);
	struct sf_acceptor_reply r;

	expect_accepted(w, &a, &r);
	a.local_gid = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:01:02";
	expect_accepted(w, &a, &r);
	assert_int_equal(r.msg.qp_num[0], 102);
	expect_unmade(w, 1);
}

static void what_is_wrong_is_said(void **state)
{
	struct world *w = *state;
	static const uint32_t many[9];
	struct sf_handshake_rdma q;

	q = request("a@x", "", qps_a, 2);
	expect_rejected(w, &q, "peer_nic_path");
	q = request("a@x", "me:1", qps_a, 2);
	expect_rejected(w, &q, "peer_nic_path");
	q = request("a@x", "me:1@", qps_a, 2);
	expect_rejected(w, &q, "peer_nic_path");
	q = request("a@x", "me:1@nic2", qps_a, 2);
	expect_rejected(w, &q, "no device \"nic2\"");
	q = request("a@x", "you@nic0", qps_a, 2);
	expect_rejected(w, &q, "is not this server's");
	q = request("", "me:1@nic0", qps_a, 2);
	expect_rejected(w, &q, "local_nic_path");
	q = request("@x", "me:1@nic0", qps_a, 2);
	expect_rejected(w, &q, "local_nic_path");
	q = request("a@", "me:1@nic0", qps_a, 2);
	expect_rejected(w, &q, "local_nic_path");
	q = request("a@x", "me:1@nic0", NULL, 0);
	expect_rejected(w, &q, "no queue pair");
	q = request("a@x", "me:1@nic0", many, 9);
	expect_rejected(w, &q, "9 queue pairs");
	q = request("a@x", "me:1@nic0", qps_a, 2);
	q.local_gid = "fe80::1";
	expect_rejected(w, &q, "\"fe80::1\" is not a GID");
	q.local_gid = "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00";
	expect_rejected(w, &q, "is not a GID");
	q.local_gid = "";
	expect_rejected(w, &q, "local_gid is empty");
	q.local_gid = GID_TEXT;
	w->refusal = "its port is down";
	expect_rejected(w, &q, "\"nic0\": its port is down");
	assert_int_equal(w->made, 0);
	assert_int_equal(sf_acceptor_count(w->a), 0);
}

/* Our own path is told, so that a peer can see what it should have been. */
static void a_rejection_tells_our_path(void **state)
{
	struct sf_handshake_rdma q = request("a@x", "old:1@nic0", qps_a, 2);
	struct world *w = *state;
	struct sf_acceptor_reply r;

	sf_acceptor_answer(w->a, &q, &r);
	assert_string_equal(r.msg.local_nic_path, "me:1@nic0");
	assert_string_equal(r.msg.peer_nic_path, "a@x");
}

static void a_failure_leaves_room_for_a_retry(void **state)
{
	struct sf_handshake_rdma q = request("a@x", "me:1@nic0", qps_a, 2);
	struct world *w = *state;
	struct sf_acceptor_reply r;

	w->result = -ETIMEDOUT;
	expect_rejected(w, &q, "RTR: no way");
	assert_int_equal(sf_acceptor_count(w->a), 0);
	w->result = 0;
	expect_accepted(w, &q, &r);
}

static void an_acknowledgement_is_no_connection(void **state)
{
	struct sf_handshake_rdma q = request("a@x", "me:1@nic0", qps_a, 2);
	struct sf_handshake_rdma ack = q;
	struct world *w = *state;
	struct sf_acceptor_reply r;

	ack.ready_ack = SF_READY_ACK_TRUE;
	expect_rejected(w, &ack, "not connected");
	expect_accepted(w, &q, &r);
	sf_acceptor_answer(w->a, &ack, &r);
	assert_int_equal(r.err.code, 0);
	assert_null(r.msg.reply_msg);
	assert_int_equal(r.msg.ready_ack, SF_READY_ACK_ABSENT);
	assert_int_equal(r.msg.nr_qps, 0);
	ack.nr_qps = 1;
	expect_rejected(w, &ack, "not connected");
	assert_int_equal(w->made, 1);
	/* Present but false is what Mooncake sends with its request. */
	q.ready_ack = SF_READY_ACK_FALSE;
	expect_accepted(w, &q, &r);
	assert_int_equal(r.msg.ready_ack, SF_READY_ACK_ABSENT);
	assert_int_equal(w->made, 1);
}

/* nic0 has room for eight queue pairs. */
static void the_oldest_goes_when_there_are_too_many(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma q;
	struct sf_acceptor_reply r;
	char from[16];

	for (unsigned int i = 0; i < 6; i++) {
		snprintf(from, sizeof(from), "peer%u@x", i);
		q = request(from, "me:1@nic0", qps_a, 2);
		expect_accepted(w, &q, &r);
	}
	expect_unmade(w, 2);
	assert_int_equal(sf_acceptor_count(w->a), 4);
	expect_accepted(w, &q, &r);		/* the youngest is there */
	assert_int_equal(w->made, 6);
	q = request("peer0@x", "me:1@nic0", qps_a, 2);
	expect_accepted(w, &q, &r);		/* the oldest is not */
	assert_int_equal(w->made, 7);
}

/* nic0, as before: those that are about to go still are there. */
static void queue_pairs_are_not_made_faster_than_they_go(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma q;
	struct sf_acceptor_reply r;
	uint32_t nums[2] = { 1, 2 };
	char from[16];

	w->unmake_ms = 10;
	for (unsigned int i = 0; i < 40; i++) {
		/* New peers, and one that connects again and again. */
		snprintf(from, sizeof(from), "peer%u@x", i < 20 ? i : 20);
		nums[0] = 10 + i;
		q = request(from, "me:1@nic0", nums, 2);
		expect_accepted(w, &q, &r);
	}
	assert_int_equal(w->made, 40);
	assert_true(w->most <= 4);
}

static void a_full_device_gives_the_room_of_the_oldest(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma q;
	struct sf_acceptor_reply r;
	char from[16];

	w->room = 2;
	for (unsigned int i = 0; i < 5; i++) {
		snprintf(from, sizeof(from), "peer%u@x", i);
		q = request(from, "me:1@nic1", qps_a, 2);
		expect_accepted(w, &q, &r);
	}
	assert_int_equal(sf_acceptor_count(w->a), 2);
	/* What does not help ends in an error. */
	w->result = -ENOMEM;
	for (unsigned int i = 5; i < 8; i++) {
		snprintf(from, sizeof(from), "peer%u@x", i);
		q = request(from, "me:1@nic1", qps_a, 2);
		expect_rejected(w, &q, "no way");
	}
	assert_int_equal(sf_acceptor_count(w->a), 0);
}

static void failed_ones_go(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma a = request("a@x", "me:1@nic1", qps_a, 2);
	struct sf_handshake_rdma b = request("b@x", "me:1@nic1", qps_a, 2);
	struct sf_handshake_rdma c = request("c@x", "me:1@nic0", qps_a, 2);
	struct sf_acceptor_reply r;

	expect_accepted(w, &a, &r);
	sf_acceptor_failed(w->a, w->last);
	expect_unmade(w, 1);
	expect_accepted(w, &a, &r);	/* same numbers, but made anew */
	assert_int_equal(w->made, 2);
	expect_accepted(w, &b, &r);
	expect_accepted(w, &c, &r);
	sf_acceptor_nic_failed(w->a, 1);
	expect_unmade(w, 3);
	assert_int_equal(sf_acceptor_count(w->a), 1);
	w->fail_at_once = true;
	expect_rejected(w, &a, "failed at once");
	expect_unmade(w, 4);
}

struct asker {
	struct world *w;
	struct sf_handshake_rdma request;
	struct sf_acceptor_reply reply;
	pthread_t thread;
};

static void *ask(void *arg)
{
	struct asker *x = arg;

	sf_acceptor_answer(x->w->a, &x->request, &x->reply);
	return NULL;
}

/* Requests of one pair wait for each other, those of others do not. */
static void one_at_a_time_for_each_pair(void **state)
{
	static const char *const from[] = { "a@x", "a@x", "b@x", "c@x" };
	struct world *w = *state;
	struct asker *x = calloc(4, sizeof(*x));
	uint64_t before = sf_now_ms();

	w->slow_ms = 300;
	for (int i = 0; i < 4; i++) {
		x[i].w = w;
		x[i].request = request(from[i], "me:1@nic1", qps_a, 2);
		pthread_create(&x[i].thread, NULL, ask, &x[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(x[i].thread, NULL);
		assert_int_equal(x[i].reply.err.code, 0);
	}
	assert_true(sf_now_ms() - before < 800);
	assert_int_equal(w->made, 3);
	assert_memory_equal(x[0].reply.qp_num, x[1].reply.qp_num, 8);
	free(x);
}

static void long_paths_are_refused(void **state)
{
	struct world *w = *state;
	struct sf_handshake_rdma q;
	char *path = malloc(100001);

	memset(path, 'x', 100000);
	path[5] = '@';
	path[100000] = '\0';
	q = request(path, "me:1@nic0", qps_a, 2);
	expect_rejected(w, &q, "local_nic_path");
	q = request("a@x", path, qps_a, 2);
	expect_rejected(w, &q, "no device");
	free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(as_many_as_asked_for),
		TEST(the_same_request_gets_the_same_answer),
		TEST(other_numbers_replace_the_endpoint),
		TEST(the_same_numbers_of_another_gid_are_others),
		TEST(what_is_wrong_is_said),
		TEST(a_rejection_tells_our_path),
		TEST(a_failure_leaves_room_for_a_retry),
		TEST(an_acknowledgement_is_no_connection),
		TEST(the_oldest_goes_when_there_are_too_many),
		TEST(queue_pairs_are_not_made_faster_than_they_go),
		TEST(a_full_device_gives_the_room_of_the_oldest),
		TEST(failed_ones_go),
		TEST(one_at_a_time_for_each_pair),
		TEST(long_paths_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
