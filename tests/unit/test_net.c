/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "err.h"
#include "net.h"

static void parse_forms(void **state)
{
	static const struct {
		const char *text, *host;
		int port;	/* -1: refused */
	} cases[] = {
		{ "node-a:12384", "node-a", 12384 },
		{ "node-a", "node-a", 12001 },
		{ "10.0.0.5:15873", "10.0.0.5", 15873 },
		{ "10.0.0.5", "10.0.0.5", 12001 },
		{ "[2001:db8::1]:15001", "2001:db8::1", 15001 },
		{ "[::1]", "::1", 12001 },
		{ "[fe80::1%lo]:15001", "fe80::1%lo", 15001 },
		{ "2001:db8::1", "2001:db8::1", 12001 },
		/* A valid address as a whole: no port in it. */
		{ "2001:db8::1:1501", "2001:db8::1:1501", 12001 },
		/* Five digits are no group of an address. */
		{ "2001:db8::1:15001", "2001:db8::1", 15001 },
		{ "::ffff:192.0.2.1", "::ffff:192.0.2.1", 12001 },
		{ "fe80::1%lo:15001", "fe80::1%lo", 15001 },
		{ "fe80::1%lo", "fe80::1%lo", 12001 },
		{ "a:b:15001", "a:b", 15001 },
		{ "h:65535", "h", 65535 },
		{ "h:0", "h", 0 },
		{ "h%1:15001", "h%1", 15001 },
		/* A bad port is an error, not a silent default. */
		{ "[::1]:", NULL, -1 },
		{ "[::1]:99999", NULL, -1 },
		{ "[::1]x", NULL, -1 },
		{ "[::1", NULL, -1 },
		{ "[]:1", NULL, -1 },
		{ "[node-a]:1", NULL, -1 },
		{ "[fe80::1%]:1", NULL, -1 },
		{ "h:", NULL, -1 },
		{ "h:+1", NULL, -1 },
		{ "h: 1", NULL, -1 },
		{ "h:65536", NULL, -1 },
		{ "h:99999999999999999999", NULL, -1 },
		{ ":1", NULL, -1 },
		{ "", NULL, -1 },
	};
	char host[64];
	uint16_t port;
	size_t i;
	int ret;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		strcpy(host, "untouched");
		port = 7;
		ret = sf_net_parse(cases[i].text, 12001, host, sizeof(host),
				   &port);
		if (cases[i].port < 0) {
			assert_int_equal(ret, -EINVAL);
			assert_string_equal(host, "untouched");
			assert_int_equal(port, 7);
			continue;
		}
		assert_int_equal(ret, 0);
		assert_string_equal(host, cases[i].host);
		assert_int_equal(port, cases[i].port);
	}
}

static void long_hosts_are_refused(void **state)
{
	uint16_t port;
	char host[4];

	assert_int_equal(sf_net_parse("abc:1", 2, host, sizeof(host), &port),
			 0);
	assert_int_equal(sf_net_parse("abcd:1", 2, host, sizeof(host), &port),
			 -EINVAL);
	assert_int_equal(sf_net_parse("[::1]", 2, host, 3, &port), -EINVAL);
}

static void literals_and_loopback(void **state)
{
	assert_true(sf_net_is_literal("10.0.0.5"));
	assert_true(sf_net_is_literal("::1"));
	assert_true(sf_net_is_literal("fe80::1%lo"));
	assert_false(sf_net_is_literal("node-a"));
	assert_false(sf_net_is_literal("10.0.0"));
	assert_false(sf_net_is_literal(""));
	assert_true(sf_net_is_loopback("127.3.2.1"));
	assert_true(sf_net_is_loopback("::1"));
	assert_true(sf_net_is_loopback("::ffff:127.0.0.1"));
	assert_true(sf_net_is_loopback("localhost"));
	assert_false(sf_net_is_loopback("10.0.0.5"));
	assert_false(sf_net_is_loopback("localhost.example.com"));
}

static void resolve_literals(void **state)
{
	char text[SF_NET_TEXT_MAX];
	struct sf_err err = { 0 };
	struct addrinfo *ai;

	assert_int_equal(sf_net_resolve("10.0.0.5", 16001, &ai, &err), 0);
	sf_net_format(text, ai->ai_addr, ai->ai_addrlen);
	assert_string_equal(text, "10.0.0.5:16001");
	freeaddrinfo(ai);

	assert_int_equal(sf_net_resolve("::1", 16001, &ai, &err), 0);
	sf_net_format(text, ai->ai_addr, ai->ai_addrlen);
	assert_string_equal(text, "[::1]:16001");
	freeaddrinfo(ai);

	assert_int_equal(sf_net_resolve("fe80::1%no-such", 1, &ai, &err),
			 -ENOENT);
	assert_non_null(strstr(err.text, "fe80::1%no-such"));
}

static void listen_defaults_to_loopback(void **state)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char text[SF_NET_TEXT_MAX];
	int fd, other;
	uint16_t port, p;
	struct sf_err err = { 0 };

	assert_int_equal(sf_net_listen(NULL, 0, 8, &fd, &port, &err), 0);
	assert_in_range(port, 15000, 17000);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	sf_net_format(text, (struct sockaddr *)&ss, len);
	assert_int_equal(strncmp(text, "127.0.0.1:", 10), 0);

	assert_int_equal(sf_net_listen("", port, 8, &other, &p, &err),
			 -EADDRINUSE);
	assert_non_null(strstr(err.text, "127.0.0.1"));
	close(fd);
	assert_int_equal(sf_net_listen("fe80::1%no-such", 0, 8, &fd, &p, &err),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_forms),
		cmocka_unit_test(long_hosts_are_refused),
		cmocka_unit_test(literals_and_loopback),
		cmocka_unit_test(resolve_literals),
		cmocka_unit_test(listen_defaults_to_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
