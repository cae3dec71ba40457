/* SPDX-License-Identifier: MIT */
/* Resolving host names off everybody else's threads. */
#ifndef SF_TCP_LOOKUP_H
#define SF_TCP_LOOKUP_H

#include <stdint.h>

struct addrinfo;
struct sf_err;
struct sf_tcp_lookup;
struct sf_tcp_lookups;

/* Counts and bounds the lookups of one transport. -ENOMEM. */
int sf_tcp_lookups_new(struct sf_tcp_lookups **out);
/* Lookups still running go on and end by themselves. NULL is fine. */
void sf_tcp_lookups_free(struct sf_tcp_lookups *all);

/*
 * Resolve HOST on a thread of its own and call fn(ARG, ...) there, once, with
 * LIST (fn frees it) and code 0, or with an error. -EAGAIN: too many are
 * running; -ENOMEM. *OUT is the asker's until it calls one of the two below.
 */
int sf_tcp_lookup_start(struct sf_tcp_lookups *all, const char *host,
			uint16_t port,
			void (*fn)(void *arg, struct addrinfo *list,
				   const struct sf_err *err),
			void *arg, struct sf_tcp_lookup **out);
/* It is over: from fn, or after it. */
void sf_tcp_lookup_put(struct sf_tcp_lookup *l);
/* Let go of one that may not be over: fn is not called any more after this
 * returns. Waits for fn if it is running, not for the resolver. NULL ok. */
void sf_tcp_lookup_end(struct sf_tcp_lookup *l);

#endif
