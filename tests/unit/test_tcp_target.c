/* SPDX-License-Identifier: MIT */
/* The TCP target from a client's side of the wire, mannered and not. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "err.h"
#include "log.h"
#include "tcp/target.h"
#include "tcp/wire.h"

#define RW_LEN (8u << 20)
#define RO_LEN (64u << 10)
#define FILE_LEN (64u << 10)

struct fixture {
	struct sf_tcp_target *target;
	uint8_t *rw, *ro, *file;
	int file_fd;
};

static void drop_log(int level, enum sf_log_module module, const char *line)
{
}

static uint8_t *map(size_t len, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void start(struct fixture *f, unsigned int max_clients)
{
	struct sf_region regions[] = {
		{ .addr = (uintptr_t)f->rw, .length = RW_LEN },
		{ .addr = (uintptr_t)f->ro, .length = RO_LEN - 1,
		  .read_only = true },
		{ .addr = (uintptr_t)f->file, .length = FILE_LEN },
	};
	struct sf_tcp_target_config config = {
		.threads = 2,
		.max_clients = max_clients,
		.regions = regions,
		.nr_regions = 3,
	};
	struct sf_err err = { 0 };

	if (sf_tcp_target_start(&f->target, &config, &err) < 0)
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	sf_log_set_sink(drop_log);
	f->file_fd = memfd_create("region", MFD_CLOEXEC);
	assert_int_equal(ftruncate(f->file_fd, FILE_LEN), 0);
	f->rw = map(RW_LEN, -1);
	f->ro = map(RO_LEN, -1);
	f->file = map(FILE_LEN, f->file_fd);
	for (size_t i = 0; i < RW_LEN; i++)
		f->rw[i] = (uint8_t)(i * 7 + (i >> 12));
	memset(f->ro, 0x55, RO_LEN);
	assert_int_equal(mprotect(f->ro, RO_LEN, PROT_READ), 0);
	start(f, 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	sf_tcp_target_stop(f->target);
	munmap(f->rw, RW_LEN);
	munmap(f->ro, RO_LEN);
	munmap(f->file, FILE_LEN);
	close(f->file_fd);
	free(f);
	return 0;
}

/* ---- a client ---- */

static int dial(const struct fixture *f)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(sf_tcp_target_port(f->target)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct timeval limit = { .tv_sec = 10 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

static void put(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static void get(int fd, void *data, size_t len)
{
	assert_int_equal(recv(fd, data, len, MSG_WAITALL), len);
}

static void header(uint8_t out[SF_TCP_HEADER_LEN], uint8_t opcode,
		   const void *addr, uint64_t size)
{
	struct sf_tcp_request req = {
		.size = size, .addr = (uintptr_t)addr, .opcode = opcode,
	};

	sf_tcp_request_encode(out, &req);
}

static void ask(int fd, uint8_t opcode, const void *addr, uint64_t size)
{
	uint8_t h[SF_TCP_HEADER_LEN];

	header(h, opcode, addr, size);
	put(fd, h, sizeof(h));
}

static uint32_t get_status(int fd)
{
	uint8_t frame[SF_TCP_STATUS_LEN];
	uint32_t code;

	get(fd, frame, sizeof(frame));
	assert_int_equal(sf_tcp_status_decode(frame, &code), 0);
	return code;
}

/* The server has closed: FIN or reset, no more bytes. */
static void expect_end(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, 0);

	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
	close(fd);
}

static void expect_read(int fd, const uint8_t *addr, size_t len)
{
	uint8_t *got = malloc(len);

	ask(fd, SF_TCP_READ_V2, addr, len);
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, len);
	assert_memory_equal(got, addr, len);
	free(got);
}

static void expect_alive(const struct fixture *f)
{
	int fd = dial(f);

	expect_read(fd, f->rw + 5, 100);
	close(fd);
}

/* ---- well-behaved ---- */

static void both_versions_read_and_write(void **state)
{
	struct fixture *f = *state;
	uint8_t data[5000], got[5000];
	int fd = dial(f);

	memset(data, 0xa5, sizeof(data));
	ask(fd, SF_TCP_WRITE_V2, f->rw + 3, sizeof(data));
	put(fd, data, sizeof(data));
	assert_int_equal(get_status(fd), SF_TCP_OK);
	assert_memory_equal(f->rw + 3, data, sizeof(data));

	memset(data, 0x5a, sizeof(data));
	ask(fd, SF_TCP_WRITE_V1, f->rw + 3, sizeof(data));
	put(fd, data, sizeof(data));
	ask(fd, SF_TCP_READ_V1, f->rw + 3, sizeof(data));
	get(fd, got, sizeof(got));
	assert_memory_equal(got, data, sizeof(data));
	close(fd);
}

static void whole_region_at_once(void **state)
{
	struct fixture *f = *state;
	uint8_t *data = malloc(RW_LEN);
	int fd = dial(f);

	expect_read(fd, f->rw, RW_LEN);
	expect_read(fd, f->ro, RO_LEN - 1);
	for (size_t i = 0; i < RW_LEN; i++)
		data[i] = (uint8_t)(i ^ (i >> 9));
	ask(fd, SF_TCP_WRITE_V2, f->rw, RW_LEN);
	put(fd, data, RW_LEN);
	assert_int_equal(get_status(fd), SF_TCP_OK);
	assert_memory_equal(f->rw, data, RW_LEN);
	close(fd);
	free(data);
}

/* Header padding is not part of the protocol. */
static void padding_is_ignored(void **state)
{
	struct fixture *f = *state;
	uint8_t h[SF_TCP_HEADER_LEN], got[16];
	int fd = dial(f);

	header(h, SF_TCP_READ_V2, f->rw, sizeof(got));
	memset(h + 17, 0xee, 7);
	put(fd, h, sizeof(h));
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, sizeof(got));
	close(fd);
}

#define MANY 500

static void pipelined_reads_answer_in_order(void **state)
{
	struct fixture *f = *state;
	uint8_t *h = malloc(MANY * SF_TCP_HEADER_LEN), got[600];
	int fd = dial(f);

	for (size_t i = 0; i < MANY; i++)
		header(h + i * SF_TCP_HEADER_LEN, SF_TCP_READ_V2,
		       f->rw + i * 1000, 100 + i);
	put(fd, h, MANY * SF_TCP_HEADER_LEN);
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(get_status(fd), SF_TCP_OK);
		get(fd, got, 100 + i);
		assert_memory_equal(got, f->rw + i * 1000, 100 + i);
	}
	free(h);
	close(fd);
}

/* read, write, read of the same bytes in one packet: old, then new. */
static void pipelined_mix_keeps_its_order(void **state)
{
	struct fixture *f = *state;
	uint8_t packet[4 * SF_TCP_HEADER_LEN + 2 * 64], *p = packet, got[64];
	uint8_t old[64];
	int fd = dial(f);

	memcpy(old, f->rw, sizeof(old));
	header(p, SF_TCP_READ_V2, f->rw, 64);
	p += SF_TCP_HEADER_LEN;
	header(p, SF_TCP_WRITE_V2, f->rw, 64);
	memset(p + SF_TCP_HEADER_LEN, 0x11, 64);
	p += SF_TCP_HEADER_LEN + 64;
	header(p, SF_TCP_WRITE_V1, f->rw + 32, 64);
	memset(p + SF_TCP_HEADER_LEN, 0x22, 64);
	p += SF_TCP_HEADER_LEN + 64;
	header(p, SF_TCP_READ_V2, f->rw, 64);
	put(fd, packet, sizeof(packet));

	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, 64);
	assert_memory_equal(got, old, 64);
	assert_int_equal(get_status(fd), SF_TCP_OK);
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, 64);
	memset(old, 0x11, 32);
	memset(old + 32, 0x22, 32);
	assert_memory_equal(got, old, 64);
	close(fd);
}

static void frames_may_come_in_single_bytes(void **state)
{
	struct fixture *f = *state;
	uint8_t packet[2 * SF_TCP_HEADER_LEN + 40], got[40];
	int fd = dial(f);

	header(packet, SF_TCP_WRITE_V2, f->rw + 100, 40);
	memset(packet + SF_TCP_HEADER_LEN, 0x77, 40);
	header(packet + SF_TCP_HEADER_LEN + 40, SF_TCP_READ_V1, f->rw + 100,
	       40);
	for (size_t i = 0; i < sizeof(packet); i++) {
		struct timespec pause = { .tv_nsec = 200000 };

		put(fd, packet + i, 1);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, sizeof(got));
	assert_memory_equal(got, packet + SF_TCP_HEADER_LEN, 40);
	close(fd);
}

static void a_half_closed_client_gets_its_answers(void **state)
{
	struct fixture *f = *state;
	uint8_t *got = malloc(RW_LEN);
	int fd = dial(f);

	ask(fd, SF_TCP_READ_V2, f->rw, RW_LEN);
	shutdown(fd, SHUT_WR);
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, RW_LEN);
	assert_memory_equal(got, f->rw, RW_LEN);
	free(got);
	expect_end(fd);
}

static void many_clients(void **state)
{
	struct fixture *f = *state;
	struct sf_tcp_target_stats st;
	int fds[200];

	for (size_t i = 0; i < 200; i++)
		fds[i] = dial(f);
	for (int round = 0; round < 3; round++)
		for (size_t i = 0; i < 200; i++)
			expect_read(fds[i], f->rw + i, 3000);
	sf_tcp_target_stats(f->target, &st);
	assert_int_equal(st.clients, 200);
	assert_int_equal(st.reads, 600);
	assert_int_equal(st.read_bytes, 600 * 3000);
	for (size_t i = 0; i < 200; i++)
		close(fds[i]);
}

/* ---- not well-behaved ---- */

static void outside_is_refused(void **state)
{
	struct fixture *f = *state;
	const uint8_t *const end = f->rw + RW_LEN;
	const struct {
		const uint8_t *addr;
		uint64_t size;
	} bad[] = {
		{ (const uint8_t *)8, 8 },
		{ NULL, 1 },
		{ f->rw - 1, 2 },
		{ end - 1, 2 },
		{ f->rw, RW_LEN + 1 },
		{ f->rw + 10, UINT64_MAX },
		{ f->rw + 10, UINT64_MAX - (uintptr_t)f->rw - 9 },
		{ f->rw, 0 },
		{ end, 0 },
		{ (const uint8_t *)UINTPTR_MAX, 1 },
		{ f->ro + RO_LEN - 1, 1 },
	};
	struct sf_tcp_target_stats st;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (int op = 0; op < 2; op++) {
			int fd = dial(f);

			ask(fd, (uint8_t)(SF_TCP_READ_V2 | op), bad[i].addr,
			    bad[i].size);
			assert_int_equal(get_status(fd), SF_TCP_REJECTED);
			expect_end(fd);
			fd = dial(f);
			ask(fd, (uint8_t)op, bad[i].addr, bad[i].size);
			expect_end(fd);
		}
	}
	sf_tcp_target_stats(f->target, &st);
	assert_int_equal(st.rejected, 4 * sizeof(bad) / sizeof(bad[0]));
	assert_int_equal(st.reads + st.writes, 0);
}

static void the_last_byte_is_served(void **state)
{
	struct fixture *f = *state;
	int fd = dial(f);

	expect_read(fd, f->rw + RW_LEN - 1, 1);
	expect_read(fd, f->ro + RO_LEN - 2, 1);
	close(fd);
}

static void unknown_opcodes_end_the_connection(void **state)
{
	struct fixture *f = *state;
	const uint8_t opcodes[] = { 2, 7, 0x7f, 0x82, 0x87, 0xff };

	for (size_t i = 0; i < sizeof(opcodes); i++) {
		int fd = dial(f);

		ask(fd, opcodes[i], f->rw, 16);
		expect_end(fd);
	}
	expect_alive(f);
}

static void read_only_refuses_before_the_body(void **state)
{
	struct fixture *f = *state;
	int fd = dial(f);

	ask(fd, SF_TCP_WRITE_V2, f->ro, 4096);
	assert_int_equal(get_status(fd), SF_TCP_REJECTED);
	expect_end(fd);
	assert_int_equal(f->ro[0], 0x55);
}

/* The whole body is sent before the answer is looked at: no reset meanwhile. */
static void a_refusal_survives_the_body(void **state)
{
	struct fixture *f = *state;
	uint8_t *body = calloc(1, RW_LEN);
	int fd = dial(f);

	expect_read(fd, f->rw, 100);
	ask(fd, SF_TCP_WRITE_V2, f->rw + 1, RW_LEN);
	put(fd, body, RW_LEN);
	assert_int_equal(get_status(fd), SF_TCP_REJECTED);
	shutdown(fd, SHUT_WR);
	expect_end(fd);
	free(body);
}

static void a_refusal_comes_after_earlier_answers(void **state)
{
	struct fixture *f = *state;
	uint8_t packet[2 * SF_TCP_HEADER_LEN], got[500];
	int fd = dial(f);

	header(packet, SF_TCP_READ_V2, f->rw, sizeof(got));
	header(packet + SF_TCP_HEADER_LEN, SF_TCP_READ_V2, f->rw, 0);
	put(fd, packet, sizeof(packet));
	assert_int_equal(get_status(fd), SF_TCP_OK);
	get(fd, got, sizeof(got));
	assert_int_equal(get_status(fd), SF_TCP_REJECTED);
	expect_end(fd);
}

/* A refused client that neither closes nor stops is cut off in the end. */
static void draining_is_bounded(void **state)
{
	struct fixture *f = *state;
	int fd = dial(f);

	ask(fd, SF_TCP_WRITE_V2, f->ro, 1);
	assert_int_equal(get_status(fd), SF_TCP_REJECTED);
	for (int i = 0; i < 60; i++) {
		struct timespec pause = { .tv_nsec = 100000000 };

		if (send(fd, "x", 1, MSG_NOSIGNAL) < 0)
			break;
		assert_true(i < 50);
		nanosleep(&pause, NULL);
	}
	close(fd);
}

static void broken_off_requests_cost_nobody(void **state)
{
	struct fixture *f = *state;
	uint8_t h[SF_TCP_HEADER_LEN];
	int fd = dial(f);

	header(h, SF_TCP_WRITE_V2, f->rw, 4096);
	put(fd, h, 10);
	close(fd);
	fd = dial(f);
	put(fd, h, sizeof(h));
	put(fd, "abc", 3);
	shutdown(fd, SHUT_WR);
	expect_end(fd);
	assert_memory_equal(f->rw, "abc", 3);
	expect_alive(f);
}

/* Clients that ask for much and read nothing; one that stops in a body. */
static void a_stalled_client_holds_up_nobody(void **state)
{
	struct fixture *f = *state;
	uint8_t *got = malloc(RW_LEN);
	int fds[4], half = dial(f);

	ask(half, SF_TCP_WRITE_V2, f->rw, 100);
	put(half, f->rw, 50);	/* the same bytes as before */
	for (int i = 0; i < 4; i++) {
		fds[i] = dial(f);
		for (int k = 0; k < 4; k++)
			ask(fds[i], SF_TCP_READ_V2, f->rw, RW_LEN);
	}
	for (int i = 0; i < 50; i++)
		expect_alive(f);
	for (int k = 0; k < 4; k++) {
		assert_int_equal(get_status(fds[0]), SF_TCP_OK);
		get(fds[0], got, RW_LEN);
		assert_memory_equal(got, f->rw, RW_LEN);
	}
	put(half, f->rw + 50, 50);
	assert_int_equal(get_status(half), SF_TCP_OK);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	close(half);
	free(got);
}

/* Memory that is gone: an error on that connection, the server lives. */
static void a_truncated_file_is_survived(void **state)
{
	struct fixture *f = *state;
	uint8_t packet[SF_TCP_HEADER_LEN + 1000], *body = calloc(1, FILE_LEN);
	int fd = dial(f);

	expect_read(fd, f->file, FILE_LEN);
	assert_int_equal(ftruncate(f->file_fd, 4096), 0);
	ask(fd, SF_TCP_READ_V1, f->file + 8192, 4096);
	expect_end(fd);

	fd = dial(f);		/* straight into place */
	ask(fd, SF_TCP_WRITE_V2, f->file, FILE_LEN);
	(void)!send(fd, body, FILE_LEN, MSG_NOSIGNAL);
	expect_end(fd);

	fd = dial(f);		/* behind its header, by way of staging */
	memset(packet, 0x42, sizeof(packet));
	header(packet, SF_TCP_WRITE_V2, f->file + 4096 - 500, 1000);
	put(fd, packet, sizeof(packet));
	expect_end(fd);

	fd = dial(f);		/* what is there is still served */
	expect_read(fd, f->file, 4096);
	close(fd);
	expect_alive(f);
	free(body);
}

static void too_many_clients_are_turned_away(void **state)
{
	struct fixture *f = *state;
	int fds[4];

	sf_tcp_target_stop(f->target);
	start(f, 4);
	for (int i = 0; i < 4; i++) {
		fds[i] = dial(f);
		expect_read(fds[i], f->rw, 10);
	}
	expect_end(dial(f));
	expect_read(fds[0], f->rw, 10);
	close(fds[3]);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

static void stop_closes_connections(void **state)
{
	struct fixture *f = *state;
	int idle = dial(f), busy = dial(f);

	expect_read(idle, f->rw, 10);
	for (int k = 0; k < 8; k++)
		ask(busy, SF_TCP_READ_V2, f->rw, RW_LEN);
	assert_int_equal(get_status(busy), SF_TCP_OK);
	sf_tcp_target_stop(f->target);
	f->target = NULL;
	expect_end(idle);
	close(busy);
}

static void impossible_regions_are_refused(void **state)
{
	struct sf_region r[2] = {
		{ .addr = 0x10000, .length = 0x2000 },
		{ .addr = 0x11000, .length = 0x1000 },
	};
	struct sf_tcp_target_config config = { .regions = r, .nr_regions = 2 };
	struct sf_tcp_target *t = NULL;

	assert_int_equal(sf_tcp_target_start(&t, &config, NULL), -EINVAL);
	r[1].addr = UINT64_MAX - 10;
	assert_int_equal(sf_tcp_target_start(&t, &config, NULL), -EINVAL);
	r[1].addr = 0x20000;
	r[1].length = 0;
	assert_int_equal(sf_tcp_target_start(&t, &config, NULL), -EINVAL);
	config.nr_regions = 1;
	config.listen = "192.0.2.1";
	assert_int_equal(sf_tcp_target_start(&t, &config, NULL),
			 -EADDRNOTAVAIL);
	assert_null(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(both_versions_read_and_write),
		TEST(whole_region_at_once),
		TEST(padding_is_ignored),
		TEST(pipelined_reads_answer_in_order),
		TEST(pipelined_mix_keeps_its_order),
		TEST(frames_may_come_in_single_bytes),
		TEST(a_half_closed_client_gets_its_answers),
		TEST(many_clients),
		TEST(outside_is_refused),
		TEST(the_last_byte_is_served),
		TEST(unknown_opcodes_end_the_connection),
		TEST(read_only_refuses_before_the_body),
		TEST(a_refusal_survives_the_body),
		TEST(a_refusal_comes_after_earlier_answers),
		TEST(draining_is_bounded),
		TEST(broken_off_requests_cost_nobody),
		TEST(a_stalled_client_holds_up_nobody),
		TEST(a_truncated_file_is_survived),
		TEST(too_many_clients_are_turned_away),
		TEST(stop_closes_connections),
		cmocka_unit_test(impossible_regions_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
