/* SPDX-License-Identifier: MIT */
/*
 * The RDMA initiator without anything above it, treated badly: reads of odd
 * sizes, into registered memory and not, cancelled at any moment, peers closed
 * with I/O on them. What a read brings is checked (the exporter's fill=offset),
 * and that memory stays as it is once it was given back.
 *
 *   rdma-torture NAME DESCRIPTOR-FILE RPC_META-FILE SECONDS [NICS]
 *
 * Ends with status 0 and a line of counts, or 1 and what is wrong.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "rdma_config.h"
#include "segment.h"
#include "transport.h"

#define SLOTS 48
#define SLOT_BYTES (1u << 20)
#define GUARD 0xa5

struct slot {
	struct sf_io io;
	atomic_bool busy;
	atomic_int res;
	bool given_back;	/* filled with GUARD since */
};

static struct slot slots[SLOTS];
static atomic_uint outstanding;
static unsigned long counts[3];		/* ok, cancelled, other */

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static struct sf_blob *read_file(const char *path)
{
	static char text[1 << 20];
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f)
		die("%s: %s", path, strerror(errno));
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	return sf_blob_new(text, n);
}

static void on_done(struct sf_io *io, int res)
{
	struct slot *s = (struct slot *)io;

	atomic_store(&s->res, res);
	atomic_fetch_sub(&outstanding, 1);
	atomic_store(&s->busy, false);
}

/* Each aligned 8 bytes of the buffer hold their offset. */
static void check_data(const struct sf_io *io)
{
	uint64_t off = io->addr - io->buffer->addr;
	const unsigned char *p = io->mem;

	for (uint32_t i = 0; i < io->len; i++) {
		uint64_t word = (off + i) & ~7ull;
		unsigned char want = (unsigned char)(word >>
						     8 * ((off + i) & 7));

		if (word == off + i && io->len - i >= 8 &&
		    !memcmp(&p[i], &word, 8))
			i += 7;
		else if (p[i] != want)
			die("byte %u of %u at 0x%llx is wrong", i, io->len,
			    (unsigned long long)io->addr);
	}
}

/* S is not busy: look at how its last I/O ended. */
static void look_at(struct slot *s)
{
	int res = atomic_load(&s->res);
	unsigned char *p = s->io.mem;

	if (!s->io.done)
		return;
	if (s->given_back) {
		if (*p != GUARD || memcmp(p, p + 1, s->io.len - 1))
			die("memory changed after it was given back");
		return;
	}
	if (!res)
		check_data(&s->io);
	counts[!res ? 0 : res == -ECANCELED ? 1 : 2]++;
	if (res && res != -ECANCELED)
		fprintf(stderr, "ended: %s\n", strerror(-res));
	memset(p, GUARD, s->io.len);
	s->given_back = true;
}

static uint32_t random_len(void)
{
	switch (random() % 4) {
	case 0:
		return 1 + (uint32_t)random() % 64;
	case 1:
		return 1 + (uint32_t)random() % 5000;
	case 2:
		return 1 + (uint32_t)random() % SLOT_BYTES;
	default:
		return SLOT_BYTES;
	}
}

static void submit(struct sf_peer *p, struct sf_segment *seg, struct slot *s,
		   char *mem, struct sf_mem *reg)
{
	const struct sf_buffer *buf = &seg->buffers[0];

	s->io = (struct sf_io){
		.op = SF_READ,
		.len = random_len(),
		.mem = mem,
		.reg = reg,
		.buffer = buf,
		.seg = seg,
		.done = on_done,
	};
	s->io.addr = buf->addr +
		     (uint64_t)random() % (buf->length - s->io.len + 1);
	s->given_back = false;
	atomic_store(&s->busy, true);
	atomic_fetch_add(&outstanding, 1);
	sf_peer_submit(p, &s->io);
}

static void play(struct sf_transport *t, struct sf_segment *seg, char *mem,
		 struct sf_mem *reg, uint64_t until_ms)
{
	struct sf_err err = { 0 };
	struct sf_peer *p;

	if (sf_peer_open(t, seg, &p, &err))
		die("%s", err.text);
	while (sf_now_ms() < until_ms) {
		unsigned int i = (unsigned int)random() % SLOTS;
		struct slot *s = &slots[i];

		if (!atomic_load(&s->busy)) {
			look_at(s);
			/* A quarter of them is not registered. */
			submit(p, seg, s, mem + i * SLOT_BYTES,
			       i % 4 ? reg : NULL);
			if (random() % 16 == 0) {
				usleep((useconds_t)random() % 20000);
				sf_peer_cancel(p, &s->io);
			}
		} else if (random() % 200 == 0) {
			sf_peer_cancel(p, &s->io);
		} else {
			usleep(200);
		}
	}
	sf_peer_status(p, stdout);
	sf_peer_close(p);
	if (atomic_load(&outstanding))
		die("closed with %u outstanding", atomic_load(&outstanding));
}

int main(int argc, char **argv)
{
	struct sf_transport_config config = { .connect_timeout_ms = 5000,
					      .timeout_ms = 5000 };
	struct sf_rdma_config rdma;
	struct sf_err err = { 0 };
	struct sf_transport *t;
	struct sf_segment *seg;
	struct sf_blob *raw, *rpc;
	struct sf_mem *reg;
	uint64_t end_ms;
	char *mem;

	if (argc < 5)
		die("usage: rdma-torture NAME DESCRIPTOR RPC_META SECONDS "
		    "[NICS]");
	if (sf_rdma_config_init(&rdma, &err))
		die("%s", err.text);
	rdma.nics = argc > 5 ? strdup(argv[5]) : NULL;
	config.rdma = &rdma;
	raw = read_file(argv[2]);
	rpc = read_file(argv[3]);
	if (sf_segment_decode(&seg, argv[1], raw, rpc) || !seg->nr_buffers)
		die("no segment: %s", seg->problems);
	sf_blob_put(raw);
	sf_blob_put(rpc);
	mem = aligned_alloc(4096, (size_t)SLOTS * SLOT_BYTES);
	memset(mem, GUARD, (size_t)SLOTS * SLOT_BYTES);
	if (sf_transport_open(&t, sf_transport_find("rdma"), &config, &err) ||
	    sf_transport_register(t, mem, (size_t)SLOTS * SLOT_BYTES, -1, &reg,
				  &err))
		die("%s", err.text);
	end_ms = sf_now_ms() + strtoull(argv[4], NULL, 10) * 1000;
	while (sf_now_ms() < end_ms)
		play(t, seg, mem, reg, sf_now_ms() + 500 + random() % 3000);
	for (int i = 0; i < SLOTS; i++)
		look_at(&slots[i]);
	usleep(100000);
	for (int i = 0; i < SLOTS; i++)
		look_at(&slots[i]);
	sf_transport_unregister(t, reg);
	sf_transport_close(t);
	sf_segment_put(seg);
	free(mem);
	sf_rdma_config_fini(&rdma);
	printf("%lu ok, %lu cancelled, %lu failed\n", counts[0], counts[1],
	       counts[2]);
	return !counts[0] || counts[2];
}
