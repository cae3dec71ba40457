/* SPDX-License-Identifier: MIT */
/*
 * The serving side of Mooncake's TCP transport: an epoll server over a set of
 * regions of this process's memory. A range is checked against the regions
 * before any byte of memory is touched; whatever a client sends costs that
 * client's connection at most.
 */
#ifndef SF_TCP_TARGET_H
#define SF_TCP_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_err;
struct sf_tcp_target;

struct sf_region {
	uint64_t addr;		/* both as peers name it and as it is here */
	uint64_t length;
	bool read_only;
};

struct sf_tcp_target_config {
	const char *listen;	/* "" or NULL: loopback; "::" is dual */
	uint16_t port;		/* 0: any in 15000-17000 (protocol 0.2) */
	unsigned int threads;	/* 0: one per CPU */
	unsigned int max_clients;	/* 0: 4096; more are closed at once */
	const struct sf_region *regions;	/* copied; no overlaps */
	size_t nr_regions;
};

struct sf_tcp_target_stats {
	uint64_t reads, writes, read_bytes, written_bytes, rejected;
	unsigned int clients;
};

/* Serves until stop; never touches memory outside the regions. -EADDRINUSE,
 * -EADDRNOTAVAIL, -EACCES, -EINVAL (listen), -ENOMEM. */
int sf_tcp_target_start(struct sf_tcp_target **out,
			const struct sf_tcp_target_config *config,
			struct sf_err *err);
uint16_t sf_tcp_target_port(const struct sf_tcp_target *t);
void sf_tcp_target_stats(const struct sf_tcp_target *t,
			 struct sf_tcp_target_stats *st);
/* Closes all connections; no memory is touched after it returns. NULL ok. */
void sf_tcp_target_stop(struct sf_tcp_target *t);

#endif
