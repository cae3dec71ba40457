/* SPDX-License-Identifier: MIT */
#include "fake_tcp.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

bool fake_recv(int fd, void *buf, size_t len)
{
	char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = recv(fd, at, len, 0);
		if (n <= 0)
			return false;
	}
	return true;
}

bool fake_send(int fd, const void *buf, size_t len)
{
	const char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = send(fd, at, len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
	}
	return true;
}

bool fake_get(struct fake *f, int fd, struct sf_tcp_request *req)
{
	uint8_t head[SF_TCP_HEADER_LEN];

	if (!fake_recv(fd, head, sizeof(head)))
		return false;
	sf_tcp_request_decode(req, head);
	atomic_fetch_add(&f->nr_requests, 1);
	return true;
}

bool fake_status(int fd, uint32_t code)
{
	uint8_t frame[SF_TCP_STATUS_LEN];

	sf_tcp_status_encode(frame, code);
	return fake_send(fd, frame, sizeof(frame));
}

uint8_t *fake_at(struct fake *f, uint64_t addr)
{
	return f->mem + (addr - FAKE_ADDR);
}

bool fake_answer(struct fake *f, int fd, const struct sf_tcp_request *req)
{
	bool v2 = sf_tcp_is_v2(req->opcode);

	if (req->addr < FAKE_ADDR || req->size > f->len ||
	    req->addr - FAKE_ADDR > f->len - req->size)
		return false;
	if (sf_tcp_is_write(req->opcode))
		return fake_recv(fd, fake_at(f, req->addr), req->size) &&
		       (!v2 || fake_status(fd, SF_TCP_OK));
	return (!v2 || fake_status(fd, SF_TCP_OK)) &&
	       fake_send(fd, fake_at(f, req->addr), req->size);
}

void fake_serve_well(struct fake *f, int fd, unsigned int nr)
{
	struct sf_tcp_request req;

	while (fake_get(f, fd, &req))
		if (!fake_answer(f, fd, &req))
			return;
}

void fake_reset_on_close(int fd)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void fake_sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static void *conn_thread(void *arg)
{
	struct fake_conn *c = arg;
	struct fake *f = c->f;
	int fd = c->fd;

	f->serve(f, fd, c->nr);
	pthread_mutex_lock(&f->lock);
	c->fd = -1;
	pthread_mutex_unlock(&f->lock);
	close(fd);
	atomic_fetch_sub(&f->nr_open, 1);
	return NULL;
}

static void *accept_thread(void *arg)
{
	struct fake *f = arg;
	const int on = 1;
	unsigned int nr = 0;
	int fd;

	while ((fd = accept(f->listen_fd, NULL, NULL)) >= 0) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		assert(nr < FAKE_CONNS_MAX);
		f->conns[nr].f = f;
		f->conns[nr].nr = nr;
		f->conns[nr].fd = fd;
		atomic_fetch_add(&f->nr_open, 1);
		atomic_store(&f->nr_conns, nr + 1);
		pthread_create(&f->conns[nr].thread, NULL, conn_thread,
			       &f->conns[nr]);
		nr++;
	}
	return NULL;
}

void fake_start(struct fake *f, fake_serve_fn *serve, size_t len, uint16_t port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t sin_len = sizeof(sin);
	const int on = 1;
	size_t i;
	int ret;

	memset(f, 0, sizeof(*f));
	f->serve = serve;
	f->len = len;
	f->mem = malloc(len);
	for (i = 0; i < len; i++)
		f->mem[i] = (uint8_t)(i * 7 + (i >> 12) + (i >> 20));
	pthread_mutex_init(&f->lock, NULL);
	f->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(f->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	ret = bind(f->listen_fd, (struct sockaddr *)&sin, sin_len);
	assert(ret == 0);
	ret = listen(f->listen_fd, 128);
	assert(ret == 0);
	getsockname(f->listen_fd, (struct sockaddr *)&sin, &sin_len);
	f->port = ntohs(sin.sin_port);
	ret = pthread_create(&f->acceptor, NULL, accept_thread, f);
	assert(ret == 0);
}

void fake_stop(struct fake *f)
{
	unsigned int i;

	atomic_store(&f->stop, true);
	shutdown(f->listen_fd, SHUT_RDWR);
	pthread_join(f->acceptor, NULL);
	close(f->listen_fd);
	pthread_mutex_lock(&f->lock);
	for (i = 0; i < f->nr_conns; i++)
		if (f->conns[i].fd >= 0)
			shutdown(f->conns[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&f->lock);
	for (i = 0; i < f->nr_conns; i++)
		pthread_join(f->conns[i].thread, NULL);
	pthread_mutex_destroy(&f->lock);
	free(f->mem);
}
