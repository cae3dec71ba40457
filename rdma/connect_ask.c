/* SPDX-License-Identifier: MIT */
/*
 * The handshake of a connect: what the peer is asked, and whether its answer is
 * one (protocol section 6.3). Nothing in it is trusted.
 */
#include "config.h"
#include "rdma/connect.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "clock.h"
#include "gid.h"
#include "handshake.h"
#include "segment.h"

#define REPLY_SHOWN "400"	/* bytes of a peer's reason */

/* Be where a peer finds us that does not go by what the handshake says. */
static int introduce(struct sf_rdma_connect *c)
{
	struct sf_device self = {
		.name = c->dev->ctx->dev.name,
		.lid = sf_rdma_context_lid(c->dev->ctx),
		.has_gid = true,
	};
	struct sf_err err = { 0 };
	int ret;

	atomic_store(&c->at, SF_RDMA_METADATA);
	memcpy(self.gid, c->gid.gid, sizeof(self.gid));
	ret = sf_introduce(c->rdma->introducer, c->own_name, &self,
			   c->introduced, &err);
	atomic_store(&c->at, SF_RDMA_HANDSHAKE);
	if (!ret)
		ret = sf_nicpath_join(c->own_path, c->introduced, self.name);
	if (!ret)
		return 0;
	sf_err_set(&c->err, ret == -ENOMEM ? ret : -EPROTO,
		   "the peer refused and gave no reason; releases up to 0.3.10 "
		   "do so unless they find us in the store, where we cannot "
		   "be put: %s", err.text);
	return sf_rdma_connect_failed(c, SF_RDMA_METADATA, c->err.code);
}

static int call(struct sf_rdma_connect *c, const char *body, bool untyped,
		struct sf_blob **reply)
{
	int left = sf_ms_left(c->deadline_ms);
	int ret = sf_handshake_call_unless(
		c->rdma->closing_fd, c->seg->rpc_host, c->seg->rpc_port,
		untyped ? SF_HANDSHAKE_UNTYPED : SF_HANDSHAKE_CONNECTION, body,
		SF_HANDSHAKE_MAX_DEFAULT, left > 0 ? (unsigned int)left : 1,
		reply, &c->err);

	switch (ret) {
	case 0:
		return 0;
	case -ENOENT:
	case -EAGAIN:
		c->unreachable = true;
		return sf_rdma_connect_failed(c, SF_RDMA_RESOLVE,
					      -EHOSTUNREACH);
	case -EPROTO:
		c->was_short = true;
		return sf_rdma_connect_failed(c, SF_RDMA_HANDSHAKE, ret);
	case -ETIMEDOUT:
		/* It may have been busy with this pair only. */
		return sf_rdma_connect_failed(c, SF_RDMA_CONNECT, ret);
	default:
		c->unreachable = true;
		return sf_rdma_connect_failed(c, SF_RDMA_CONNECT, ret);
	}
}

static int ask(struct sf_rdma_connect *c, bool untyped, struct sf_blob **reply)
{
	uint32_t numbers[SF_RDMA_QPS_MAX];
	char gid[SF_GID_TEXT_MAX];
	struct sf_handshake_rdma m = {
		.local_nic_path = c->own_path,
		.peer_nic_path = c->remote_path,
		.local_gid = gid,
		.local_lid = sf_rdma_context_lid(c->dev->ctx),
		.nr_qps = c->qps.nr,
		.qp_num = numbers,
	};
	char *body;
	int ret;

	sf_gid_format(gid, c->gid.gid);
	sf_rdma_qps_numbers(&c->qps, numbers);
	body = sf_handshake_rdma_encode(&m);
	if (!body) {
		sf_err_set(&c->err, -ENOMEM, "out of memory");
		return sf_rdma_connect_failed(c, SF_RDMA_HANDSHAKE, -ENOMEM);
	}
	ret = call(c, body, untyped, reply);
	free(body);
	return ret;
}

/* The remote device as its owner published it; NULL: not, or without a GID. */
static const struct sf_device *published(const struct sf_rdma_connect *c)
{
	const char *name = strchr(c->remote_path, '@') + 1;

	for (uint32_t i = 0; i < c->seg->nr_devices; i++) {
		const struct sf_device *d = &c->seg->devices[i];

		if (!strcmp(d->name, name) && d->has_gid)
			return d;
	}
	return NULL;
}

/* Releases before 0.3.11 do not say where they are: the descriptor does. */
static int published_gid(struct sf_rdma_connect *c)
{
	const struct sf_device *d = published(c);

	if (d) {
		memcpy(c->remote.gid, d->gid, sizeof(c->remote.gid));
		c->remote.lid = d->lid;
		return 0;
	}
	return sf_err_set(&c->err, -EPROTO,
			  "the peer gives no GID, and its descriptor has none "
			  "of this device");
}

static int take_gid(struct sf_rdma_connect *c,
		    const struct sf_handshake_rdma *m)
{
	if (!*m->local_gid)
		return published_gid(c);
	if (sf_gid_parse(m->local_gid, c->remote.gid) ||
	    sf_gid_is_zero(c->remote.gid))
		return sf_err_set(&c->err, -EPROTO,
				  "the peer gives a GID that is none: %.64s",
				  m->local_gid);
	c->remote.lid = m->local_lid;
	return 0;
}

static int refused(struct sf_rdma_connect *c, const char *reason)
{
	const struct sf_device *d = published(c);

	/* It found that out itself, and may have no other GID to try. */
	c->misled = d && !sf_rdma_gid_same_family(d->gid, c->gid.gid);
	return sf_err_set(&c->err, -ECONNREFUSED,
			  "the peer says: %." REPLY_SHOWN "s", reason);
}

/* Protocol section 6.3, 3. */
static int check_reply(struct sf_rdma_connect *c,
		       const struct sf_handshake_rdma *m)
{
	if (m->nr_qps != c->nr_qps && m->nr_qps &&
	    m->nr_qps <= SF_RDMA_QPS_MAX)
		c->wanted_qps = m->nr_qps;
	if (*m->reply_msg)
		return refused(c, m->reply_msg);
	if (!*m->local_nic_path && !*m->peer_nic_path)
		return sf_err_set(&c->err, -EPROTO,
				  "the peer refused and gave no reason, see "
				  "its log");
	if (strcmp(m->local_nic_path, c->remote_path) ||
	    strcmp(m->peer_nic_path, c->own_path))
		return sf_err_set(&c->err, -EPROTO,
				  "the answer is for another pair: %.100s, "
				  "%.100s", m->local_nic_path,
				  m->peer_nic_path);
	if (m->nr_qps != c->nr_qps)
		return sf_err_set(&c->err, -EPROTO,
				  "the peer has %u QPs for our %u", m->nr_qps,
				  c->nr_qps);
	return take_gid(c, m);
}

int sf_rdma_connect_ask(struct sf_rdma_connect *c, bool untyped)
{
	struct sf_handshake_rdma m;
	struct sf_blob *reply;
	int ret = c->introduce ? introduce(c) : 0;

	if (!ret)
		ret = ask(c, untyped, &reply);
	if (ret)
		return ret;
	ret = sf_handshake_rdma_decode(&m, reply->data, reply->len, &c->err);
	sf_blob_put(reply);
	if (ret == -ENODATA) {
		c->was_null = true;
		sf_err_set(&c->err, -EPROTO, "the peer refused and gave no "
					     "reason, see its log");
		return sf_rdma_connect_failed(c, SF_RDMA_HANDSHAKE, -EPROTO);
	}
	if (ret) {
		sf_err_prefix(&c->err, "the answer makes no sense");
		return sf_rdma_connect_failed(c, SF_RDMA_HANDSHAKE,
					      ret == -ENOMEM ? ret : -EPROTO);
	}
	ret = check_reply(c, &m);
	if (!ret) {
		memcpy(c->remote_qps, m.qp_num,
		       m.nr_qps * sizeof(*m.qp_num));
		c->remote.qp_num = c->remote_qps;
	}
	sf_handshake_rdma_fini(&m);
	return ret ? sf_rdma_connect_failed(c, SF_RDMA_HANDSHAKE, ret) : 0;
}
