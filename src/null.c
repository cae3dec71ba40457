/* SPDX-License-Identifier: MIT */
/*
 * The null transport: every peer's buffers are plain local memory, made when
 * first touched, and every request completes before submit returns. It is the
 * ceiling of what the layers above can do, and the smallest example of a
 * backend: four required calls, no threads.
 *
 * A read is delivered from the peer's own memory (io->data), so that no byte is
 * copied; a write is copied in, as a network card would.
 */
#include "config.h"
#include "transport.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "err.h"

struct null_area {
	uint64_t addr, length;	/* the remote buffer it stands for */
	char *mem;
	struct null_area *next;
};

struct null_peer {
	pthread_mutex_t lock;
	struct null_area *areas;	/* under lock; freed with the peer */
};

static int null_open(void **priv, const struct sf_transport_config *config,
		     struct sf_err *err)
{
	*priv = NULL;
	return 0;
}

static void null_close(void *priv)
{
}

static int null_peer_open(void *priv, struct sf_segment *seg, void **out,
			  struct sf_err *err)
{
	struct null_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return sf_err_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&p->lock, NULL);
	*out = p;
	return 0;
}

static void null_peer_close(void *peer)
{
	struct null_peer *p = peer;
	struct null_area *a;

	while ((a = p->areas)) {
		p->areas = a->next;
		munmap(a->mem, a->length);
		free(a);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static struct null_area *make_area(const struct sf_buffer *buf)
{
	struct null_area *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->addr = buf->addr;
	a->length = buf->length;
	a->mem = mmap(NULL, buf->length, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->mem == MAP_FAILED) {
		free(a);
		return NULL;
	}
	return a;
}

static struct null_area *find_area(struct null_peer *p,
				   const struct sf_buffer *buf)
{
	struct null_area *a;

	pthread_mutex_lock(&p->lock);
	for (a = p->areas; a; a = a->next)
		if (a->addr == buf->addr && a->length == buf->length)
			break;
	if (!a && (a = make_area(buf))) {
		a->next = p->areas;
		p->areas = a;
	}
	pthread_mutex_unlock(&p->lock);
	return a;
}

static void null_submit(void *peer, struct sf_io *io)
{
	struct null_area *a = find_area(peer, io->buffer);
	char *there;

	if (!a) {
		io->done(io, -ENOMEM);
		return;
	}
	there = a->mem + (io->addr - a->addr);
	if (io->op == SF_WRITE)
		memcpy(there, io->mem, io->len);
	else
		io->data = there;
	io->done(io, 0);
}

static void null_cancel(void *peer, struct sf_io *io)
{
	/* Nothing is ever outstanding. */
}

static void null_status(void *peer, FILE *out)
{
	fputs("null: local memory, nothing is sent\n", out);
}

const struct sf_transport_ops sf_transport_null = {
	.name = "null",
	.proto = SF_PROTOCOL_OTHER,
	.open = null_open,
	.close = null_close,
	.peer_open = null_peer_open,
	.peer_close = null_peer_close,
	.submit = null_submit,
	.cancel = null_cancel,
	.peer_status = null_status,
};
