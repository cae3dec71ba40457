/* SPDX-License-Identifier: MIT */
/*
 * Addresses and sockets, shared by handshake, TCP transport and exporter.
 */
#ifndef SF_NET_H
#define SF_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct addrinfo;
struct sf_err;

/* Host and port of a name by protocol section 5.2; *port is DEFAULT_PORT when
 * the text has none. HOST gets no brackets. -EINVAL: bad port, bad brackets,
 * empty or too long host. */
int sf_net_parse(const char *text, uint16_t default_port, char *host,
		 size_t host_len, uint16_t *port);

/* Resolve HOST (any family); freeaddrinfo() the result. Blocks: worker threads
 * only, unless HOST is a literal (sf_net_is_literal()). -ENOENT: does not
 * resolve; -EAGAIN: no answer from the resolver; -ENOMEM. */
int sf_net_resolve(const char *host, uint16_t port, struct addrinfo **out,
		   struct sf_err *err);
bool sf_net_is_literal(const char *host);
bool sf_net_is_loopback(const char *host);	/* literal or "localhost" */

/* A non-blocking, close-on-exec listening socket on ADDRESS (NULL or "":
 * 127.0.0.1; "::" also takes IPv4) and PORT; 0 picks a free one of 15000-17000
 * at random (protocol section 0.2), or any if all are taken. */
int sf_net_listen(const char *address, uint16_t port, int backlog, int *fd,
		  uint16_t *bound, struct sf_err *err);

/* "10.0.0.5:16001", "[::1]:16001". */
#define SF_NET_TEXT_MAX 80
void sf_net_format(char out[SF_NET_TEXT_MAX], const struct sockaddr *sa,
		   socklen_t len);

#endif
