/* SPDX-License-Identifier: MIT */
/*
 * The handshake channel ("rpc port"): one framed JSON request and one reply a
 * TCP connection (protocol sections 5.3-5.7), client and server.
 */
#ifndef SF_HANDSHAKE_H
#define SF_HANDSHAKE_H

#include <stddef.h>
#include <stdint.h>

struct sf_blob;
struct sf_err;
struct sf_handshake_server;

enum sf_handshake_type {		/* protocol section 5.3 */
	SF_HANDSHAKE_CONNECTION = 0,
	SF_HANDSHAKE_METADATA = 1,
	SF_HANDSHAKE_NOTIFY = 2,
	SF_HANDSHAKE_PROBE = 3,
	SF_HANDSHAKE_UNTYPED = -1,	/* old: a Connection, no type byte */
};

#define SF_HANDSHAKE_MAX_DEFAULT (1u << 20)
#define SF_HANDSHAKE_MAX_TOP (128u << 20)

/*
 * Client: connect to HOST (name or literal, no brackets):PORT, send TYPE with
 * BODY, read the reply, close. Blocks up to TIMEOUT_MS in all. *REPLY is the
 * JSON text, unparsed, at most MAX_LEN bytes.
 * -ENOENT: the name does not resolve; -ECONNREFUSED, -EHOSTUNREACH,
 * -ENETUNREACH, -ETIMEDOUT; -EPROTO: closed early, other type, too long.
 */
int sf_handshake_call(const char *host, uint16_t port,
		      enum sf_handshake_type type, const char *body,
		      size_t max_len, unsigned int timeout_ms,
		      struct sf_blob **reply, struct sf_err *err);
/* The same, but it gives up with -ECANCELED when CANCEL_FD (-1: none) is
 * readable. Only the resolver does not look at that. */
int sf_handshake_call_unless(int cancel_fd, const char *host, uint16_t port,
			     enum sf_handshake_type type, const char *body,
			     size_t max_len, unsigned int timeout_ms,
			     struct sf_blob **reply, struct sf_err *err);

/*
 * Server. A handler gets a request that is valid JSON text (NUL-terminated)
 * and returns a malloc'ed JSON reply, or NULL to close without one. It runs on
 * the server's thread and must not block; connect, which answers the (typed or
 * untyped) Connection requests, runs on threads of its own, several at once,
 * and may.
 */
typedef char *sf_handshake_handler(void *arg, enum sf_handshake_type type,
				   const char *body, size_t len);

struct sf_handshake_config {
	const char *listen;	/* address to bind, "" or NULL: loopback */
	uint16_t port;		/* 0: any in the RPC range (15000-17000) */
	unsigned int idle_ms;	/* a client gets this long in all (5000) */
	unsigned int max_clients;	/* more wait in the backlog (256) */
	size_t max_len;		/* largest request */
	sf_handshake_handler *handler;
	sf_handshake_handler *connect;	/* NULL: handler does it */
	unsigned int connect_threads;	/* 0: 8 */
	void *arg;
};

int sf_handshake_serve(struct sf_handshake_server **out,
		       const struct sf_handshake_config *config,
		       struct sf_err *err);
uint16_t sf_handshake_port(const struct sf_handshake_server *s);
void sf_handshake_stop(struct sf_handshake_server *s);	/* NULL is fine */

#endif
