/* SPDX-License-Identifier: MIT */
/*
 * segctl probe: the way to a segment step by step, so that a person sees which
 * one does not work. Steps that a failed one makes pointless are not tried.
 */
#include "config.h"
#include "segctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "blob.h"
#include "handshake.h"
#include "meta.h"
#include "net.h"
#include "segctl_pump.h"
#include "segment.h"
#include "transfer.h"

struct probe {
	struct segctl *s;
	struct sf_segment *seg;
	struct addrinfo *addrs;	/* of the data port, or the handshake's */
	bool json;
	unsigned int nr_steps;
	enum sf_exit status;	/* of the first step that failed */
};

/* One line, or one member of the JSON array. */
static void step(struct probe *p, const char *name, bool ok,
		 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static void step(struct probe *p, const char *name, bool ok,
		 const char *fmt, ...)
{
	char text[SF_ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!ok && !p->status)
		p->status = SF_EXIT_PEER;
	if (p->json) {
		printf("%s\n {\"step\":\"%s\",\"ok\":%s,\"text\":",
		       p->nr_steps++ ? "," : "", name, ok ? "true" : "false");
		segctl_json_string(stdout, text);
		putchar('}');
	} else {
		printf("%-10s %-7s ", name, ok ? "ok" : "failed");
		segctl_plain(stdout, text);
		putchar('\n');
		fflush(stdout);
	}
}

static bool try_metadata(struct probe *p, const char *name)
{
	struct sf_err err = { 0 };
	enum sf_exit status = segctl_open(p->s, 4, PUMP_PIECE, &err);

	if (!status)
		status = segctl_lookup(p->s, name, &p->seg, &err);
	if (status) {
		p->status = status;
		/* A device that is asked for is opened by then. */
		step(p, status == SF_EXIT_FAILURE ? "INIT" : "metadata", false,
		     "%s", err.text);
		return false;
	}
	step(p, "metadata", true, "%s: protocol %s, %" PRIu32
	     " buffers, %" PRIu64 " bytes", sf_meta_describe(p->s->ctx->meta),
	     p->seg->protocol, p->seg->nr_buffers, p->seg->total_bytes);
	return true;
}

/* Over RDMA there is no data port: the handshake makes the connection. */
static bool has_data_port(const struct sf_segment *seg)
{
	return seg->tcp_data_port || strcmp(seg->protocol, "rdma");
}

/* Where the data port is: the descriptor may say so itself. */
static const char *data_host(const struct sf_segment *seg)
{
	return seg->tcp_data_host[0] ? seg->tcp_data_host : seg->rpc_host;
}

static bool try_resolve(struct probe *p)
{
	bool data = has_data_port(p->seg);
	const char *host = data ? data_host(p->seg) : p->seg->rpc_host;
	char text[SF_NET_TEXT_MAX];
	struct sf_err err = { 0 };

	if (!host[0]) {
		step(p, "resolve", false, "the store does not say where the "
		     "owner is (no rpc_meta)");
		return false;
	}
	if (sf_net_resolve(host, data ? p->seg->tcp_data_port :
					p->seg->rpc_port, &p->addrs, &err)) {
		step(p, "resolve", false, "%s", err.text);
		return false;
	}
	sf_net_format(text, p->addrs->ai_addr, p->addrs->ai_addrlen);
	step(p, "resolve", true, "%s is %s", host, text);
	return true;
}

static int connect_to(const struct addrinfo *a, unsigned int timeout_ms)
{
	int fd = socket(a->ai_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	int res = 0;
	socklen_t len = sizeof(res);

	if (fd < 0)
		return -errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		res = errno;
		if (res == EINPROGRESS) {
			res = ETIMEDOUT;
			if (poll(&pfd, 1, (int)timeout_ms) > 0)
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &res,
					   &len);
		}
	}
	close(fd);
	return -res;
}

static bool try_connect(struct probe *p)
{
	bool data = has_data_port(p->seg);
	char text[SF_NET_TEXT_MAX] = "";
	int res = -EADDRNOTAVAIL;

	if (data && !p->seg->tcp_data_port) {
		step(p, "connect", false, "the descriptor has no data port");
		return false;
	}
	for (const struct addrinfo *a = p->addrs; a && res; a = a->ai_next) {
		sf_net_format(text, a->ai_addr, a->ai_addrlen);
		res = connect_to(a, p->s->core.connect_timeout_ms);
	}
	step(p, "connect", !res, "%s port %s%s%s", data ? "data" : "handshake",
	     text, res ? ": " : "", res ? strerror(-res) : "");
	return !res;
}

/* Owners of before the probe message close instead of answering: they live. */
static void try_handshake(struct probe *p)
{
	struct sf_blob *reply = NULL;
	struct sf_err err = { 0 };
	char where[SF_NET_TEXT_MAX + 256];
	int res;

	if (!p->seg->rpc_host[0]) {
		step(p, "handshake", false, "no rpc_meta in the store");
		return;
	}
	snprintf(where, sizeof(where), "handshake port %u of %s",
		 p->seg->rpc_port, p->seg->rpc_host);
	res = sf_handshake_call(p->seg->rpc_host, p->seg->rpc_port,
				SF_HANDSHAKE_PROBE, "{}",
				SF_HANDSHAKE_MAX_DEFAULT,
				p->s->core.connect_timeout_ms, &reply, &err);
	if (!res)
		step(p, "handshake", true, "%s answers", where);
	else if (res == -EPROTO)
		step(p, "handshake", true, "%s is open, but knows no probe",
		     where);
	else
		step(p, "handshake", false, "%s", err.text);
	if (!res)
		sf_blob_put(reply);
}

static enum sf_exit read_byte(struct probe *p, struct sf_err *err)
{
	struct segctl_range range = {
		.seg = sf_segment_get(p->seg),
		.only = &p->seg->buffers[0],
		.addr = p->seg->nr_buffers ? p->seg->buffers[0].addr : 0,
		.len = 1,
	};
	struct segctl_pump pump = {
		.s = p->s,
		.range = &range,
		.op = SF_READ,
	};
	enum sf_exit status = segctl_pump_run(&pump, err);

	segctl_range_fini(&range);
	return status;
}

static void try_read(struct probe *p)
{
	struct sf_err err = { 0 };
	enum sf_exit status;

	if (!p->seg->nr_buffers) {
		step(p, "read", true, "nothing to read: no buffers");
		return;
	}
	status = read_byte(p, &err);
	step(p, "read", !status, "%s", status ? err.text : "one byte");
}

/* The stages after "connect", in their order. The first thing that a device is
 * needed for is INIT, so nothing is known of a handshake before one that
 * failed. */
static const char *const stages[] = {
	"handshake", "INIT", "RTR", "RTS", "completion",
};

#define NR_STAGES (sizeof(stages) / sizeof(stages[0]))

static void tell_stages(struct probe *p, const char *failed, const char *via,
			const char *text)
{
	for (size_t i = 0; i < NR_STAGES; i++) {
		if (failed && !strcmp(stages[i], failed)) {
			step(p, failed, false, "%s%s%s", via, *via ? ": " : "",
			     text);
			return;
		}
		if (i == 0 && failed && !strcmp(failed, "INIT"))
			continue;
		step(p, stages[i], true, "%s",
		     i == NR_STAGES - 1 ? "one byte was read" : via);
	}
}

/* One read makes the connection; its transport says how far it got. */
static void try_rdma(struct probe *p)
{
	struct sf_peer_way way = { 0 };
	struct sf_err err = { 0 };
	enum sf_exit status = read_byte(p, &err);
	int res = sf_engine_way(p->s->ctx->engine, p->seg->name, &way);

	if (res == -EOPNOTSUPP)		/* another transport was asked for */
		step(p, "read", !status, "%s", status ? err.text : "one byte");
	else if (!status)
		tell_stages(p, NULL, way.via, "");
	else if (res)
		tell_stages(p, "INIT", "", err.code == -ENODEV ?
			    "no RDMA device can be used here" : err.text);
	else if (!way.failed)
		tell_stages(p, "completion", way.via, err.text);
	else if (!strcmp(way.failed, "metadata"))
		step(p, way.failed, false, "%s: %s", way.via, way.text);
	else if (!strcmp(way.failed, "resolve") ||
		 !strcmp(way.failed, "connect"))
		/* That much has worked just now: what did not come is the
		 * answer. */
		tell_stages(p, stages[0], way.via, way.text);
	else
		tell_stages(p, way.failed, way.via, way.text);
}

static void probe(struct probe *p, const char *name)
{
	bool reachable;

	if (!try_metadata(p, name))
		return;
	reachable = try_resolve(p) && try_connect(p);
	if (has_data_port(p->seg) || !p->seg->nr_buffers) {
		try_handshake(p);
		if (reachable)
			try_read(p);
	} else if (reachable) {
		try_rdma(p);
	}
}

enum sf_exit segctl_probe(struct segctl *s, char **args, int nr)
{
	struct probe p = { .s = s, .json = s->json };

	if (p.json) {
		fputs("{\"segment\":", stdout);
		segctl_json_string(stdout, args[0]);
		fputs(",\"steps\":[", stdout);
	}
	probe(&p, args[0]);
	if (p.json)
		printf("],\"ok\":%s}\n", p.status ? "false" : "true");
	if (p.addrs)
		freeaddrinfo(p.addrs);
	sf_segment_put(p.seg);
	return p.status;
}
