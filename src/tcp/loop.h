/* SPDX-License-Identifier: MIT */
/* An epoll thread, edge-triggered. */
#ifndef SF_TCP_LOOP_H
#define SF_TCP_LOOP_H

#include <stdint.h>

struct sf_tcp_loop;

/* What a descriptor belongs to; embedded by its owner. */
struct sf_tcp_source {
	/* On the loop's thread. May also be called with events of a descriptor
	 * that was closed meanwhile: take them for hints. */
	void (*ready)(struct sf_tcp_source *s, uint32_t events);
};

/* NAME is the thread's, 15 bytes at most. -ENOMEM, -EMFILE, -EAGAIN. */
int sf_tcp_loop_new(struct sf_tcp_loop **out, const char *name);
/* Joins the thread. NULL is fine. */
void sf_tcp_loop_free(struct sf_tcp_loop *loop);

/* Watch FD for all there is, until it is closed. -errno of epoll_ctl(2). */
int sf_tcp_loop_add(struct sf_tcp_loop *loop, int fd, struct sf_tcp_source *s);
/* Report FD's state once more, after what else is ready now: how work is put
 * off, and how one thread hands work on a descriptor to the loop's. */
void sf_tcp_loop_again(struct sf_tcp_loop *loop, int fd,
		       struct sf_tcp_source *s);
/* Returns when no call of ready() is running that began before; from then on
 * sources whose descriptors are closed may be freed. Not on the loop's own
 * thread. */
void sf_tcp_loop_sync(struct sf_tcp_loop *loop);

/* From ready(): the next event will probably come within microseconds, so that
 * it is worth looking for it a moment before going to sleep. */
void sf_tcp_loop_expect(struct sf_tcp_loop *loop);

#endif
