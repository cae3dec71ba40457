/* SPDX-License-Identifier: MIT */
/* What stands between a test of the TCP initiator and its fake server. */
#ifndef SF_TEST_TCP_RIG_H
#define SF_TEST_TCP_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fake_tcp.h"
#include "transport.h"

#define MEM_LEN (8u << 20)

struct rig {
	struct fake fake;
	bool has_fake;
	struct sf_timers *timers;
	struct sf_pipe_pool *pipes;
	struct sf_transport_config config;	/* a test's until start */
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

/* One buffer of MEM_LEN bytes at FAKE_ADDR. */
struct sf_segment *rig_segment(const char *host, uint16_t port,
			       unsigned int version, const char *location);
void rig_init(struct rig *r);
/* Takes over SEG. */
void rig_connect(struct rig *r, struct sf_segment *seg);
/* Start a server and connect to it. */
void rig_start(struct rig *r, fake_serve_fn *serve, unsigned int version);
void rig_stop(struct rig *r);

void call_init(struct call *c, struct rig *r, enum sf_op op, uint64_t off,
	       uint32_t len);
/* Its result; what came in pipes is in c->mem now. */
int call_wait(struct call *c);
/* What was read is what the server has. */
void call_check(struct call *c);
/* It completed once. */
void call_fini(struct call *c);

/* One transfer, checked; its result. */
int rig_read(struct rig *r, uint64_t off, uint32_t len);
int rig_write(struct rig *r, uint64_t off, uint32_t len, uint8_t with);
void rig_expect_status(struct rig *r, const char *what);
/* Until the server has NR connections open. */
bool rig_wait_open(struct rig *r, unsigned int nr);
/* Eight threads write and read back at random, trying again what was reset. */
void rig_churn(struct rig *r, unsigned int nr_rounds);

#endif
