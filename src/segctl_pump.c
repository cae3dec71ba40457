/* SPDX-License-Identifier: MIT */
/*
 * Several transfers in flight over one range. The main thread owns the slots; a
 * completion, on whatever thread, marks its slot and wakes the main thread.
 */
#include "config.h"
#include "segctl_pump.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "iobuf.h"
#include "transfer.h"

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_DONE };

struct slot {
	struct sf_transfer t;
	struct pumping *pumping;
	struct segctl_piece piece;
	struct sf_iobuf *buf;
	enum slot_state state;	/* pumping->lock */
	int res;
};

struct pumping {
	struct segctl_pump *p;
	unsigned int depth;
	struct slot *slots;
	unsigned int first, nr_busy;	/* a ring; ordered or not */
	struct sf_registration *last_reg;	/* of the newest piece */
	uint64_t last_addr;
	pthread_mutex_t lock;
	pthread_cond_t cond;
};

static void slot_done(struct sf_transfer *t, int res)
{
	struct slot *slot = (struct slot *)t;
	struct pumping *pu = slot->pumping;

	pthread_mutex_lock(&pu->lock);
	slot->res = res;
	slot->state = SLOT_DONE;
	pthread_cond_signal(&pu->cond);
	pthread_mutex_unlock(&pu->lock);
}

/* Cut the next piece off and send it on its way. False at the end of the range
 * or of the input. */
static bool start_piece(struct pumping *pu, struct slot *slot, int *ret,
			struct sf_err *err)
{
	struct segctl_pump *p = pu->p;
	struct segctl_piece *piece = &slot->piece;
	struct sf_registration *reg;
	uint64_t addr;

	piece->off = p->range->done;
	*ret = segctl_range_next(p->s, p->range, PUMP_PIECE, &addr,
				 &piece->len, &reg);
	if (*ret) {
		sf_err_set(err, *ret, "%s", strerror(-*ret));
		return false;
	}
	if (!piece->len)
		return false;
	piece->mem = slot->buf->mem;
	if (p->op == SF_WRITE) {
		*ret = p->fill(p->arg, piece, err);
		if (*ret || !piece->len)
			return false;
	}
	slot->t = (struct sf_transfer){
		.op = p->op,
		.addr = addr,
		.len = piece->len,
		.mem = piece->mem,
		.reg = reg,
		.done = slot_done,
	};
	pu->last_reg = reg;
	pu->last_addr = addr;
	slot->state = SLOT_BUSY;
	sf_transfer_submit(p->s->ctx->engine, &slot->t);
	return true;
}

/* The slot that ended, or the oldest one when order matters. */
static struct slot *wait_for_one(struct pumping *pu)
{
	struct slot *slot = NULL;

	pthread_mutex_lock(&pu->lock);
	for (;;) {
		unsigned int nr = pu->p->ordered ? 1 : pu->depth;

		for (unsigned int i = 0; i < nr; i++) {
			slot = &pu->slots[(pu->first + i) % pu->depth];
			if (slot->state == SLOT_DONE)
				goto out;
		}
		pthread_cond_wait(&pu->cond, &pu->lock);
	}
out:
	slot->state = SLOT_FREE;
	pthread_mutex_unlock(&pu->lock);
	return slot;
}

static enum sf_exit finish_piece(struct pumping *pu, struct slot *slot,
				 struct sf_err *err)
{
	struct segctl_pump *p = pu->p;

	if (slot->res) {
		sf_err_set(err, slot->res, "%s 0x%" PRIx64 ": %s",
			   p->range->seg->name, p->range->addr +
			   slot->piece.off, strerror(-slot->res));
		return segctl_transfer_status(slot->res);
	}
	slot->piece.data = p->op == SF_READ ? slot->t.io.data : NULL;
	if (p->taken && p->taken(p->arg, &slot->piece, err))
		return SF_EXIT_DATA;
	p->moved += slot->piece.len;
	return SF_EXIT_OK;
}

static struct slot *free_slot(struct pumping *pu)
{
	if (pu->nr_busy == pu->depth)
		return NULL;
	if (pu->p->ordered)
		return &pu->slots[(pu->first + pu->nr_busy) % pu->depth];
	/* The main thread alone makes slots free or busy. */
	for (unsigned int i = 0; i < pu->depth; i++)
		if (!pu->slots[i].piece.len)
			return &pu->slots[i];
	return NULL;
}

static enum sf_exit pump(struct pumping *pu, struct sf_err *err)
{
	enum sf_exit status = SF_EXIT_OK, one;
	struct sf_err later;
	struct slot *slot;
	bool more = true;
	int ret;

	do {
		while (more && (slot = free_slot(pu))) {
			ret = 0;
			more = start_piece(pu, slot, &ret, err);
			if (ret)
				status = SF_EXIT_DATA;
			if (more)
				pu->nr_busy++;
			else
				slot->piece.len = 0;
		}
		if (!pu->nr_busy)
			break;
		slot = wait_for_one(pu);
		/* The first error stands; what is in flight has to land. */
		one = finish_piece(pu, slot, status ? &later : err);
		if (one) {
			more = false;
			status = status ? status : one;
		}
		slot->piece.len = 0;
		pu->nr_busy--;
		if (pu->p->ordered)
			pu->first = (pu->first + 1) % pu->depth;
	} while (true);
	return status;
}

/* Whoever is told that it is written may look at it on the other side. */
static enum sf_exit flush(struct pumping *pu, struct sf_err *err)
{
	struct slot *slot = &pu->slots[0];

	slot->t = (struct sf_transfer){
		.op = SF_FLUSH,
		.addr = pu->last_addr,
		.len = 1,
		.mem = slot->buf->mem,
		.reg = pu->last_reg,
		.done = slot_done,
	};
	slot->state = SLOT_BUSY;
	pu->first = 0;
	sf_transfer_submit(pu->p->s->ctx->engine, &slot->t);
	wait_for_one(pu);
	if (!slot->res)
		return SF_EXIT_OK;
	sf_err_set(err, slot->res, "%s: flush: %s", pu->p->range->seg->name,
		   strerror(-slot->res));
	return segctl_transfer_status(slot->res);
}

static int get_buffers(struct pumping *pu)
{
	for (unsigned int i = 0; i < pu->depth; i++) {
		pu->slots[i].pumping = pu;
		pu->slots[i].buf = sf_iobuf_get(pu->p->s->ctx->pool);
		if (!pu->slots[i].buf)
			return -ENOMEM;
	}
	return 0;
}

enum sf_exit segctl_pump_run(struct segctl_pump *p, struct sf_err *err)
{
	struct pumping pu = {
		.p = p,
		.depth = p->s->depth,
		.slots = calloc(p->s->depth, sizeof(*pu.slots)),
	};
	enum sf_exit status = SF_EXIT_FAILURE;

	pthread_mutex_init(&pu.lock, NULL);
	pthread_cond_init(&pu.cond, NULL);
	if (!pu.slots || get_buffers(&pu) < 0)
		sf_err_set(err, -ENOMEM, "out of memory");
	else
		status = pump(&pu, err);
	if (!status && p->op == SF_WRITE && pu.last_reg)
		status = flush(&pu, err);
	for (unsigned int i = 0; pu.slots && i < pu.depth; i++)
		if (pu.slots[i].buf)
			sf_iobuf_put(p->s->ctx->pool, pu.slots[i].buf);
	pthread_cond_destroy(&pu.cond);
	pthread_mutex_destroy(&pu.lock);
	free(pu.slots);
	return status;
}
