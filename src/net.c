/* SPDX-License-Identifier: MIT */
/*
 * Names, addresses and listening sockets, see net.h. No state, no threads;
 * only sf_net_resolve() of a name that is no literal may block.
 */
#include "config.h"
#include "net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

#include "err.h"

/* Where Mooncake picks its ports. */
#define PORT_FIRST 15000
#define PORT_COUNT 2001

/* The LEN bytes at TEXT as a string; false when they do not fit. */
static bool copy_part(char *out, size_t out_len, const char *text, size_t len)
{
	if (len == 0 || len >= out_len)
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

/* An IPv6 address with or without a %scope. */
static bool is_ipv6(const char *text, size_t len)
{
	char addr[INET6_ADDRSTRLEN];
	const char *scope = memchr(text, '%', len);
	struct in6_addr in6;

	if (scope) {
		if (scope + 1 == text + len)
			return false;
		len = (size_t)(scope - text);
	}
	return copy_part(addr, sizeof(addr), text, len) &&
	       inet_pton(AF_INET6, addr, &in6) == 1;
}

static int parse_port(const char *text, uint16_t *port)
{
	unsigned int v = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		v = v * 10 + (unsigned int)(*text - '0');
		if (v > UINT16_MAX)
			return -EINVAL;
	}
	*port = (uint16_t)v;
	return 0;
}

/* TEXT is split at COLON, or has no port when COLON is NULL. */
static int split(const char *text, size_t len, const char *colon, char *host,
		 size_t host_len, uint16_t *port)
{
	uint16_t p = *port;
	int ret;

	if (len == 0 || len >= host_len)
		return -EINVAL;
	if (colon) {
		ret = parse_port(colon + 1, &p);
		if (ret)
			return ret;
	}
	copy_part(host, host_len, text, len);
	*port = p;
	return 0;
}

static int parse_bracketed(const char *text, char *host, size_t host_len,
			   uint16_t *port)
{
	const char *end = strchr(text, ']');

	text++;
	if (!end || !is_ipv6(text, (size_t)(end - text)))
		return -EINVAL;
	if (end[1] && end[1] != ':')
		return -EINVAL;
	return split(text, (size_t)(end - text), end[1] ? end + 1 : NULL, host,
		     host_len, port);
}

int sf_net_parse(const char *text, uint16_t default_port, char *host,
		 size_t host_len, uint16_t *port)
{
	const char *percent = strchr(text, '%');
	const char *colon = NULL;
	size_t len = strlen(text);
	uint16_t p = default_port;
	int ret;

	if (text[0] == '[') {
		ret = parse_bracketed(text, host, host_len, &p);
		goto out;
	}
	if (percent)
		colon = strchr(percent, ':');
	if (!percent && is_ipv6(text, len)) {
		colon = NULL;
	} else if (percent && is_ipv6(text, colon ? (size_t)(colon - text)
						  : len)) {
		len = colon ? (size_t)(colon - text) : len;
	} else {
		colon = strrchr(text, ':');
		len = colon ? (size_t)(colon - text) : len;
	}
	ret = split(text, len, colon, host, host_len, &p);
out:
	if (!ret)
		*port = p;
	return ret;
}

bool sf_net_is_literal(const char *host)
{
	struct in_addr in;

	return inet_pton(AF_INET, host, &in) == 1 ||
	       is_ipv6(host, strlen(host));
}

bool sf_net_is_loopback(const char *host)
{
	struct in6_addr in6;
	struct in_addr in;

	if (strcasecmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &in) == 1)
		return ntohl(in.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &in6) != 1)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&in6) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr[12] == 127);
}

static int resolver_errno(int gai)
{
	switch (gai) {
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_AGAIN:
	case EAI_FAIL:
		return -EAGAIN;
	case EAI_SYSTEM:
		return errno == ENOMEM ? -ENOMEM : -EAGAIN;
	default:
		return -ENOENT;
	}
}

int sf_net_resolve(const char *host, uint16_t port, struct addrinfo **out,
		   struct sf_err *err)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};
	char service[8];
	int gai, code;

	if (sf_net_is_literal(host))
		hints.ai_flags |= AI_NUMERICHOST;
	snprintf(service, sizeof(service), "%u", port);
	gai = getaddrinfo(host, service, &hints, out);
	if (gai == 0)
		return 0;
	code = resolver_errno(gai);
	return sf_err_set(err, code, "cannot resolve %s: %s", host,
			  gai == EAI_SYSTEM ? strerror(errno)
					    : gai_strerror(gai));
}

static void set_port(struct sockaddr *sa, uint16_t port)
{
	if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)(void *)sa)->sin_port = htons(port);
}

static uint16_t get_port(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)ss)->sin6_port);
	return ntohs(((const struct sockaddr_in *)ss)->sin_port);
}

/* One socket a try: bind() may succeed and listen() still find the port
 * taken. */
static int try_listen(const struct addrinfo *ai, uint16_t port, int backlog)
{
	const int on = 1, off = 0;
	int fd, ret;

	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	set_port(ai->ai_addr, port);
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 &&
	    listen(fd, backlog) == 0)
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

static int listen_anywhere(const struct addrinfo *ai, int backlog)
{
	unsigned int start = 0;
	int fd, i;

	/* A short read only makes the choice less random. */
	if (getrandom(&start, sizeof(start), GRND_NONBLOCK) < 0)
		start = (unsigned int)getpid();
	start %= PORT_COUNT;
	for (i = 0; i < PORT_COUNT; i++) {
		fd = try_listen(ai, (uint16_t)(PORT_FIRST +
					       (start + (unsigned int)i) %
						       PORT_COUNT),
				backlog);
		if (fd != -EADDRINUSE)
			return fd;
	}
	return try_listen(ai, 0, backlog);
}

static int listen_on(const char *address, uint16_t port, int backlog,
		     struct sf_err *err)
{
	struct addrinfo *list, *ai;
	int fd = -EADDRNOTAVAIL, ret;

	ret = sf_net_resolve(address, port, &list, err);
	if (ret == -ENOENT)
		return sf_err_set(err, -EINVAL, "no such address: %s", address);
	if (ret)
		return ret;
	for (ai = list; ai; ai = ai->ai_next) {
		fd = port ? try_listen(ai, port, backlog)
			  : listen_anywhere(ai, backlog);
		if (fd >= 0)
			break;
	}
	freeaddrinfo(list);
	return fd;
}

int sf_net_listen(const char *address, uint16_t port, int backlog, int *fd,
		  uint16_t *bound, struct sf_err *err)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	struct sf_err why = { 0 };
	int s;

	if (!address || !*address)
		address = "127.0.0.1";
	s = listen_on(address, port, backlog, &why);
	/* A kernel without IPv6 still has all of IPv4. */
	if (s == -EAFNOSUPPORT && strcmp(address, "::") == 0)
		s = listen_on("0.0.0.0", port, backlog, &why);
	if (s < 0 && why.code)
		return sf_err_set(err, s, "%s", why.text);
	if (s < 0)
		return sf_err_set(err, s, "cannot listen on %s port %u: %s",
				  address, port, strerror(-s));
	if (getsockname(s, (struct sockaddr *)&ss, &len) < 0) {
		int e = -errno;

		close(s);
		return sf_err_set(err, e, "getsockname: %s", strerror(-e));
	}
	*fd = s;
	*bound = get_port(&ss);
	return 0;
}

void sf_net_format(char out[SF_NET_TEXT_MAX], const struct sockaddr *sa,
		   socklen_t len)
{
	char host[64], port[8];

	if (getnameinfo(sa, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(out, SF_NET_TEXT_MAX, "unknown");
	else if (sa->sa_family == AF_INET6)
		snprintf(out, SF_NET_TEXT_MAX, "[%s]:%s", host, port);
	else
		snprintf(out, SF_NET_TEXT_MAX, "%s:%s", host, port);
}
