/* SPDX-License-Identifier: MIT */
/*
 * The inside of an export, shared by export.c, which makes it and takes it
 * down, and export_tell.c, which says what peers and the store are told of it.
 */
#ifndef SF_EXPORT_INT_H
#define SF_EXPORT_INT_H

#include <pthread.h>

#include "export.h"
#include "handshake.h"
#include "ratelimit.h"

struct sf_blob;
struct sf_export_memory;
struct sf_export_rdma;
struct sf_publish;
struct sf_tcp_target;

#define SF_EXPORT_FACES_MAX 2

/* Part of a memory: what is one buffer for peers. */
struct sf_export_piece {
	const struct sf_export_memory *memory;
	uint64_t offset, length;
};

/* One segment of ours. */
struct sf_export_face {
	enum sf_export_protocol protocol;
	char *name;
	char *text;			/* descriptor; under lock */
	struct sf_blob *seen_rpc;	/* the name's owner before us */
	struct sf_publish *publish;
};

struct sf_export {
	char *host;		/* as published */
	char *rpc_text;
	size_t nr;
	struct sf_export_memory *memory;
	size_t nr_pieces;
	struct sf_export_piece *pieces;
	struct sf_tcp_target *target;
	struct sf_export_rdma *rdma;
	struct sf_handshake_server *handshake;
	struct sf_ratelimit notify_log;
	unsigned int nr_faces;
	struct sf_export_face faces[SF_EXPORT_FACES_MAX];

	pthread_mutex_t lock;
	bool described, published;	/* all faces; under lock */
	bool stale;			/* meanwhile; under lock */
};

/* ---- export_tell.c ---- */

/* Handlers of the handshake server, ARG is the export. */
char *sf_export_answer(void *arg, enum sf_handshake_type type, const char *body,
		       size_t len);
char *sf_export_answer_connection(void *arg, enum sf_handshake_type type,
				  const char *body, size_t len);
/* Write the descriptors of all faces. -ENOMEM. */
int sf_export_describe(struct sf_export *x, struct sf_err *err);
/* A device has another GID: on any thread, any number of times. ARG is the
 * export. */
void sf_export_on_change(void *arg);
/* All faces are published: from now on a change is published. */
void sf_export_all_published(struct sf_export *x);

#endif
