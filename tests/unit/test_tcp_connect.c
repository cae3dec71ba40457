/* SPDX-License-Identifier: MIT */
/* The TCP initiator and owners that cannot be reached, or not yet. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"
#include "tcp_rig.h"

static void serve_goodbye(struct fake *f, int fd, unsigned int nr)
{
}

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
	rig_connect(&r, rig_segment("127.0.0.1", unused_port(), 2, "*"));
	start = sf_now_ms();
	assert_int_equal(rig_read(&r, 0, 10), -ECONNREFUSED);
	assert_int_equal(rig_read(&r, 0, 10), -ECONNREFUSED);
	assert_true(sf_now_ms() - start < 1000);
	rig_expect_status(&r, "Connection refused");

	fake_start(&r.fake, fake_serve_well, MEM_LEN, r.seg->tcp_data_port);
	r.has_fake = true;
	fake_sleep_ms(150);
	assert_int_equal(rig_read(&r, 0, 10), 0);
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
	r.config.connect_timeout_ms = 1500;
	rig_connect(&r, rig_segment("127.0.0.1", port, 2, "*"));
	start = sf_now_ms();
	call_init(&c, &r, SF_READ, 0, 10);
	sf_peer_submit(r.peer, &c.io);
	assert_true(sf_now_ms() - start < 1200);
	assert_int_equal(call_wait(&c), -ETIMEDOUT);
	call_fini(&c);
	assert_true(sf_now_ms() - start >= 1500);
	assert_true(sf_now_ms() - start < 6000);
	/* Its neighbours need not find out for themselves. */
	start = sf_now_ms();
	assert_int_equal(rig_read(&r, 0, 10), -ETIMEDOUT);
	assert_true(sf_now_ms() - start < 1200);
	/* Cancelling does not wait for the network either. */
	fake_sleep_ms(150);
	start = sf_now_ms();
	call_init(&c, &r, SF_READ, 0, 10);
	sf_peer_submit(r.peer, &c.io);
	sf_peer_cancel(r.peer, &c.io);
	assert_int_equal(call_wait(&c), -ECANCELED);
	call_fini(&c);
	assert_true(sf_now_ms() - start < 1200);
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
	rig_connect(&r, rig_segment("localhost", r.fake.port, 2, "*"));
	assert_int_equal(rig_read(&r, 0, 1000), 0);
	rig_expect_status(&r, "tcp: v2 localhost:");
	rig_stop(&r);

	rig_init(&r);
	rig_connect(&r, rig_segment("no..such..name", 1, 2, "*"));
	assert_int_equal(rig_read(&r, 0, 1000), -EHOSTUNREACH);
	rig_expect_status(&r, "cannot resolve no..such..name");
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
	rig_connect(&r, rig_segment("127.0.0.1", 1, 2, "*"));
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
	assert_int_equal(rig_read(&r, 0, 1000), 0);
	fake_stop(&r.fake);
	fake_start(&r.fake, fake_serve_well, MEM_LEN, port);
	assert_int_equal(rig_read(&r, 0, 1000), 0);
	rig_stop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_now_fine_later),
		cmocka_unit_test(black_hole),
		cmocka_unit_test(names_are_looked_up),
		cmocka_unit_test(address_must_be_known),
		cmocka_unit_test(server_restarts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
