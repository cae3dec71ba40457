/* SPDX-License-Identifier: MIT */
/*
 * A TCP data server that does what a test tells it to: a thread a connection,
 * each running the test's own serve function on blocking sockets.
 */
#ifndef SF_TEST_FAKE_TCP_H
#define SF_TEST_FAKE_TCP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tcp/wire.h"

#define FAKE_CONNS_MAX 512
#define FAKE_ADDR UINT64_C(140000000000001)	/* odd on purpose */

struct fake;

/* Serve connection number NR until it is over; it is closed after. */
typedef void fake_serve_fn(struct fake *f, int fd, unsigned int nr);

struct fake_conn {
	struct fake *f;
	pthread_t thread;
	unsigned int nr;
	int fd;			/* -1: closed; under lock */
};

struct fake {
	uint16_t port;
	uint8_t *mem;		/* what is at FAKE_ADDR */
	size_t len;
	fake_serve_fn *serve;
	atomic_uint nr_requests;
	atomic_uint nr_conns;
	atomic_uint nr_open;
	atomic_bool stop;	/* for serve functions that wait */

	int listen_fd;
	pthread_t acceptor;
	pthread_mutex_t lock;
	struct fake_conn conns[FAKE_CONNS_MAX];
};

/* PORT 0: any. */
void fake_start(struct fake *f, fake_serve_fn *serve, size_t len,
		uint16_t port);
void fake_stop(struct fake *f);

/* False: the client is gone. */
bool fake_get(struct fake *f, int fd, struct sf_tcp_request *req);
bool fake_recv(int fd, void *buf, size_t len);
bool fake_send(int fd, const void *buf, size_t len);
bool fake_status(int fd, uint32_t code);
/* Answer as a good server does. False: range outside, or client gone. */
bool fake_answer(struct fake *f, int fd, const struct sf_tcp_request *req);
uint8_t *fake_at(struct fake *f, uint64_t addr);
/* Closing FD will reset the connection. */
void fake_reset_on_close(int fd);
void fake_sleep_ms(unsigned int ms);

/* Any number of requests, either version. */
fake_serve_fn fake_serve_well;

#endif
