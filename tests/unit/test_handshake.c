/* SPDX-License-Identifier: MIT */
/* The handshake channel: both ends against each other, then each against an
 * end that does not behave. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "handshake.h"
#include "handshake_frame.h"
#include "log.h"

#define IDLE_MS 1000


static atomic_uint log_lines;

static void count_log(int level, enum sf_log_module module, const char *line)
{
	atomic_fetch_add(&log_lines, 1);
}

/* Says what it got; "big" gets a big reply, "mute" none. */
static char *echo(void *arg, enum sf_handshake_type type, const char *body,
		  size_t len)
{
	char *reply = NULL;

	assert_int_equal(body[len], '\0');
	if (!strcmp(body, "\"mute\""))
		return NULL;
	if (!strcmp(body, "\"big\"")) {
		reply = malloc((3 << 20) + 1);
		memset(reply, ' ', 3 << 20);
		reply[0] = '1';
		reply[3 << 20] = '\0';
		return reply;
	}
	if (asprintf(&reply, "{\"type\":%d,\"len\":%zu}\n", (int)type, len) < 0)
		return NULL;
	return reply;
}

static int setup(void **state)
{
	struct sf_handshake_config config = {
		.idle_ms = IDLE_MS,
		.max_clients = 64,
		.max_len = SF_HANDSHAKE_MAX_DEFAULT,
		.handler = echo,
	};
	struct sf_handshake_server *s = NULL;
	struct sf_err err = { 0 };

	sf_log_set_sink(count_log);
	atomic_store(&sf_log_level, LOG_INFO);
	atomic_store(&log_lines, 0);
	if (sf_handshake_serve(&s, &config, &err) < 0)
		fail_msg("%s", err.text);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	sf_handshake_stop(*state);
	return 0;
}

static int dial_port(uint16_t port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct timeval limit = { .tv_sec = 10 };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
	return fd;
}

static int call(struct sf_handshake_server *s, enum sf_handshake_type type,
		const char *body, struct sf_blob **reply)
{
	return sf_handshake_call("127.0.0.1", sf_handshake_port(s), type, body,
				 SF_HANDSHAKE_MAX_TOP, 5000, reply, NULL);
}

static void expect_alive(struct sf_handshake_server *s)
{
	uint64_t before = sf_now_ms();
	struct sf_blob *reply = NULL;

	assert_int_equal(call(s, SF_HANDSHAKE_PROBE, "{}", &reply), 0);
	assert_string_equal(reply->data, "{\"type\":3,\"len\":2}\n");
	sf_blob_put(reply);
	assert_true(sf_now_ms() - before < IDLE_MS / 2);
}

static void expect_end(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, 0);

	assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
	close(fd);
}

/* ---- both ends ---- */

static void every_type_is_answered_in_kind(void **state)
{
	const int types[] = { 0, 1, 2, 3, SF_HANDSHAKE_UNTYPED };
	struct sf_blob *reply = NULL;
	char want[40];

	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(call(*state, types[i], "{\"a\":[1]}\n",
				      &reply), 0);
		snprintf(want, sizeof(want), "{\"type\":%d,\"len\":10}\n",
			 types[i]);
		assert_string_equal(reply->data, want);
		sf_blob_put(reply);
	}
}

/* The bytes of protocol section 5.3. */
static void probe_is_as_documented(void **state)
{
	static const uint8_t ask[] = { 3, 0, 0, 0, 0, 0, 0, 0, 3, '{', '}' };
	uint8_t got[64];
	int fd = dial_port(sf_handshake_port(*state));
	ssize_t n;

	assert_int_equal(send(fd, ask, sizeof(ask), 0), sizeof(ask));
	n = recv(fd, got, sizeof(got), MSG_WAITALL);	/* until it closes */
	assert_int_equal(n, 9 + 19);
	assert_int_equal(got[0], 20);
	assert_int_equal(got[8], 3);
	close(fd);
}

static void big_frames_both_ways(void **state)
{
	size_t len = SF_HANDSHAKE_MAX_DEFAULT - 1;
	struct sf_blob *reply = NULL;
	char *body = malloc(len + 1);

	assert_int_equal(call(*state, SF_HANDSHAKE_METADATA, "\"big\"", &reply),
			 0);
	assert_int_equal(reply->len, 3 << 20);
	sf_blob_put(reply);
	memset(body, ' ', len);
	body[0] = '1';
	body[len] = '\0';
	assert_int_equal(call(*state, SF_HANDSHAKE_METADATA, body, &reply), 0);
	sf_blob_put(reply);
	free(body);
}

static void no_reply_is_eproto(void **state)
{
	struct sf_blob *reply = NULL;
	struct sf_err err = { 0 };

	assert_int_equal(sf_handshake_call("localhost",
					   sf_handshake_port(*state),
					   SF_HANDSHAKE_NOTIFY, "\"mute\"",
					   1024, 5000, &reply, &err),
			 -EPROTO);
	assert_non_null(strstr(err.text, "without an answer"));
	assert_null(reply);
}

static void nobody_there(void **state)
{
	struct sf_blob *reply = NULL;
	struct sf_err err = { 0 };
	uint16_t port = sf_handshake_port(*state);

	sf_handshake_stop(*state);
	*state = NULL;
	assert_int_equal(sf_handshake_call("127.0.0.1", port,
					   SF_HANDSHAKE_PROBE, "{}", 1024,
					   1000, &reply, &err),
			 -ECONNREFUSED);
	assert_non_null(strstr(err.text, "127.0.0.1 port "));
	assert_true(sf_handshake_call("no.such.host.invalid", port,
				      SF_HANDSHAKE_PROBE, "{}", 1024, 1000,
				      &reply, &err) < 0);
	assert_true(err.code == -ENOENT || err.code == -EAGAIN);
}

/* ---- clients that do not behave ---- */

static void garbage_is_dropped_at_once(void **state)
{
#define BYTES(s) { s, sizeof(s) - 1 }
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		BYTES("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		BYTES("\0\0\0\0\0\0\0\0"),
		BYTES("\0\0\0\0\0\0\0\x80"),
		BYTES("\xff\xff\xff\xff\xff\xff\xff\xff"),
		BYTES("\x01\0\0\0\0\0\0\0\x03"),	/* no text */
		BYTES("\x05\0\0\0\0\0\0\0\x09" "abcd"),
		BYTES("\x05\0\0\0\0\0\0\0\xff" "abcd"),
		BYTES("\x05\0\0\0\0\0\0\0\x03" "abcd"),
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint64_t before = sf_now_ms();
		int fd = dial_port(sf_handshake_port(*state));

		send(fd, bad[i].bytes, bad[i].len, MSG_NOSIGNAL);
		expect_end(fd);
		assert_true(sf_now_ms() - before < IDLE_MS / 2);
	}
	expect_alive(*state);
	assert_int_equal(atomic_load(&log_lines), 1);
}

/* A type byte that is white space is an untyped Connection. */
static void white_space_is_no_type(void **state)
{
	static const uint8_t ask[] = { 3, 0, 0, 0, 0, 0, 0, 0, 9, '{', '}' };
	char got[64] = "";
	int fd = dial_port(sf_handshake_port(*state));

	assert_int_equal(send(fd, ask, sizeof(ask), 0), sizeof(ask));
	assert_true(recv(fd, got, sizeof(got) - 1, MSG_WAITALL) > 8);
	assert_string_equal(got + 8, "{\"type\":-1,\"len\":3}\n");
	close(fd);
}

static void deep_nesting_is_dropped(void **state)
{
	size_t depth = 100000;
	char *body = malloc(2 * depth + 1);
	struct sf_blob *reply = NULL;

	memset(body, '[', depth);
	memset(body + depth, ']', depth);
	body[2 * depth] = '\0';
	assert_int_equal(call(*state, SF_HANDSHAKE_METADATA, body, &reply),
			 -EPROTO);
	free(body);
	expect_alive(*state);
}

/* Silence in its several forms holds up nobody, and ends at the limit. */
static void slow_clients_run_out_of_time(void **state)
{
	uint16_t port = sf_handshake_port(*state);
	uint64_t before = sf_now_ms();
	int mute = dial_port(port), half = dial_port(port);
	int slow = dial_port(port), lazy = dial_port(port);
	struct timespec pause = { .tv_nsec = 50000000 };
	char got[64];

	close(dial_port(port));
	send(half, "\x0a\0\0\0\0\0\0\0\x01{\"", 11, MSG_NOSIGNAL);
	send(slow, "\xff\0\0\0\0\0\0\0", 8, MSG_NOSIGNAL);
	/* has its answer and does not close */
	send(lazy, "\x03\0\0\0\0\0\0\0\x03{}", 11, MSG_NOSIGNAL);
	while (send(slow, " ", 1, MSG_NOSIGNAL) == 1) {
		expect_alive(*state);
		assert_true(sf_now_ms() - before < 3 * IDLE_MS);
		nanosleep(&pause, NULL);
	}
	assert_true(sf_now_ms() - before >= IDLE_MS - 100);
	close(slow);
	expect_end(mute);
	expect_end(half);
	assert_true(recv(lazy, got, sizeof(got), MSG_WAITALL) > 9);
	expect_end(lazy);
	assert_true(sf_now_ms() - before < 3 * IDLE_MS);
}

/* More than max_clients wait their turn. */
static void the_backlog_is_served_later(void **state)
{
	int fds[64];
	struct sf_blob *reply = NULL;

	for (size_t i = 0; i < 64; i++)
		fds[i] = dial_port(sf_handshake_port(*state));
	assert_int_equal(call(*state, SF_HANDSHAKE_PROBE, "{}", &reply), 0);
	sf_blob_put(reply);
	for (size_t i = 0; i < 64; i++)
		close(fds[i]);
	expect_alive(*state);
}

/* Large claims, few bytes; then all the bytes there may be. */
static void memory_is_bounded(void **state)
{
	size_t len = SF_HANDSHAKE_MAX_DEFAULT - 100;
	char *bytes = malloc(len);
	uint64_t claim = htole64(SF_HANDSHAKE_MAX_DEFAULT);
	int fds[40], dropped = 0;

	memset(bytes, ' ', len);
	memcpy(bytes, &claim, sizeof(claim));
	for (size_t i = 0; i < 40; i++) {
		fds[i] = dial_port(sf_handshake_port(*state));
		if (send(fds[i], bytes, len, MSG_NOSIGNAL) < 0)
			dropped++;
	}
	expect_alive(*state);
	for (size_t i = 0; i < 40; i++) {
		char c;

		if (recv(fds[i], &c, 1, MSG_DONTWAIT) >= 0 ||
		    errno != EAGAIN)
			dropped++;
		close(fds[i]);
	}
	assert_true(dropped >= 10);
	free(bytes);
}

/* ---- a handler that blocks ---- */

#define BLOCK_MS 700

/* As echo, late. */
static char *block(void *arg, enum sf_handshake_type type, const char *body,
		   size_t len)
{
	struct timespec pause = { .tv_nsec = BLOCK_MS * 1000000 };

	nanosleep(&pause, NULL);
	return echo(arg, type, body, len);
}

static int setup_blocking(void **state)
{
	struct sf_handshake_config config = {
		.idle_ms = BLOCK_MS / 2,
		.handler = echo,
		.connect = block,
		.connect_threads = 2,
	};
	struct sf_handshake_server *s = NULL;

	sf_log_set_sink(count_log);
	if (sf_handshake_serve(&s, &config, NULL) < 0)
		fail_msg("no server");
	*state = s;
	return 0;
}

/* A handler may take longer than a client may. */
static void a_blocking_handler_holds_up_nobody(void **state)
{
	static const char typed[] = "\x03\0\0\0\0\0\0\0\0{}";
	static const char old[] = "\x02\0\0\0\0\0\0\0{}";
	static const char mute[] = "\x07\0\0\0\0\0\0\0\0\"mute\"";
	uint16_t port = sf_handshake_port(*state);
	int a = dial_port(port), b = dial_port(port), c = dial_port(port);
	int gone = dial_port(port);
	uint64_t before = sf_now_ms();
	char got[64] = "";

	send(a, typed, 11, 0);
	send(gone, typed, 11, 0);
	close(gone);
	expect_alive(*state);
	send(b, old, 10, 0);
	send(c, mute, 15, 0);
	expect_alive(*state);
	assert_true(recv(a, got, sizeof(got) - 1, MSG_WAITALL) > 9);
	assert_string_equal(got + 9, "{\"type\":0,\"len\":2}\n");
	memset(got, 0, sizeof(got));
	assert_true(recv(b, got, sizeof(got) - 1, MSG_WAITALL) > 8);
	assert_string_equal(got + 8, "{\"type\":-1,\"len\":2}\n");
	expect_end(c);
	assert_true(sf_now_ms() - before >= BLOCK_MS);
	close(a);
	close(b);
	expect_alive(*state);
}

/* What runs is waited for, what is queued is not. */
static void stopping_drops_what_is_queued(void **state)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	uint64_t before = sf_now_ms();
	int fds[12];

	for (size_t i = 0; i < 12; i++) {
		fds[i] = dial_port(sf_handshake_port(*state));
		send(fds[i], "\x03\0\0\0\0\0\0\0\0{}", 11, 0);
	}
	nanosleep(&pause, NULL);
	sf_handshake_stop(*state);
	*state = NULL;
	assert_true(sf_now_ms() - before < 3 * BLOCK_MS);
	for (size_t i = 0; i < 12; i++)
		expect_end(fds[i]);
}

/* ---- a server that does not behave ---- */

struct fake {
	const char *bytes;
	size_t len;
	int listener;
	bool silent;		/* keeps the connection open */
};

static void *fake_run(void *arg)
{
	struct fake *f = arg;
	int fd = accept(f->listener, NULL, NULL);
	char buf[64];

	recv(fd, buf, 11, MSG_WAITALL);
	send(fd, f->bytes, f->len, MSG_NOSIGNAL);
	if (f->silent)
		recv(fd, buf, sizeof(buf), 0);
	close(fd);
	return NULL;
}

static int call_fake(struct fake *f, size_t max_len, unsigned int timeout_ms,
		     struct sf_blob **reply)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	socklen_t len = sizeof(sin);
	pthread_t thread;
	int res;

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(f->listener, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(f->listener, 1), 0);
	getsockname(f->listener, (struct sockaddr *)&sin, &len);
	assert_int_equal(pthread_create(&thread, NULL, fake_run, f), 0);
	res = sf_handshake_call("127.0.0.1", ntohs(sin.sin_port),
				SF_HANDSHAKE_PROBE, "{}", max_len, timeout_ms,
				reply, NULL);
	pthread_join(thread, NULL);
	close(f->listener);
	return res;
}

static void a_call_that_nobody_wants_ends(void **state)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	socklen_t len = sizeof(sin);
	int listener = socket(AF_INET, SOCK_STREAM, 0), wake = eventfd(1, 0);
	struct sf_blob *reply = NULL;
	struct sf_err err = { 0 };

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&sin, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	getsockname(listener, (struct sockaddr *)&sin, &len);
	/* Nobody ever answers. */
	assert_int_equal(sf_handshake_call_unless(wake, "127.0.0.1",
						  ntohs(sin.sin_port),
						  SF_HANDSHAKE_PROBE, "{}", 64,
						  600000, &reply, &err),
			 -ECANCELED);
	assert_null(reply);
	close(wake);
	close(listener);
}

static void bad_replies_are_eproto(void **state)
{
	static const char good[] = "\x05\0\0\0\0\0\0\0\x03" "null";
	struct sf_blob *reply = NULL;
	struct fake other = { "\x05\0\0\0\0\0\0\0\x01" "null", 13, 0, false };
	struct fake big = { "\0\0\x80\x0c\0\0\0\0\x03", 9, 0, false };
	struct fake zero = { "\0\0\0\0\0\0\0\0\0", 9, 0, false };
	struct fake fine = { good, 13, 0, false };
	struct fake late = { good, 11, 0, true };

	for (size_t n = 0; n < 13; n++) {
		struct fake cut = { good, n, 0, false };

		assert_int_equal(call_fake(&cut, 1 << 20, 5000, &reply),
				 -EPROTO);
	}
	assert_int_equal(call_fake(&other, 1 << 20, 5000, &reply), -EPROTO);
	assert_int_equal(call_fake(&big, SF_HANDSHAKE_MAX_TOP, 5000, &reply),
			 -EPROTO);
	assert_int_equal(call_fake(&zero, 1 << 20, 5000, &reply), -EPROTO);
	assert_int_equal(call_fake(&fine, 3, 5000, &reply), -EPROTO);
	assert_int_equal(call_fake(&late, 1 << 20, 300, &reply), -ETIMEDOUT);
	assert_null(reply);
	assert_int_equal(call_fake(&fine, 4, 5000, &reply), 0);
	assert_string_equal(reply->data, "null");
	sf_blob_put(reply);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_type_is_answered_in_kind),
		TEST(probe_is_as_documented),
		TEST(big_frames_both_ways),
		TEST(no_reply_is_eproto),
		TEST(nobody_there),
		TEST(garbage_is_dropped_at_once),
		TEST(white_space_is_no_type),
		TEST(deep_nesting_is_dropped),
		TEST(slow_clients_run_out_of_time),
		TEST(the_backlog_is_served_later),
		TEST(memory_is_bounded),
		cmocka_unit_test(a_call_that_nobody_wants_ends),
		cmocka_unit_test(bad_replies_are_eproto),
		cmocka_unit_test_setup_teardown(
			a_blocking_handler_holds_up_nobody, setup_blocking,
			teardown),
		cmocka_unit_test_setup_teardown(stopping_drops_what_is_queued,
						setup_blocking, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
