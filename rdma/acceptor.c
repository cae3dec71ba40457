/* SPDX-License-Identifier: MIT */
/*
 * Answering Connection requests: who may connect, and what is answered (see
 * acceptor.h). What is connected is in acceptor_table.c. Keeps no state.
 */
#include "config.h"
#include "rdma/acceptor.h"

#include <errno.h>
#include <string.h>

#include "rdma/acceptor_table.h"

/* ---- replies ---- */

static void accept_with(struct sf_acceptor_reply *reply,
			const struct sf_acceptor_local *local, uint32_t nr_qps)
{
	struct sf_handshake_rdma *msg = &reply->msg;

	reply->err = (struct sf_err){ 0 };
	memcpy(reply->qp_num, local->qp_num,
	       nr_qps * sizeof(reply->qp_num[0]));
	sf_gid_format(reply->gid, local->gid);
	msg->local_gid = reply->gid;
	msg->local_lid = local->lid;
	msg->nr_qps = nr_qps;
	msg->qp_num = reply->qp_num;
}

/* Both paths as the request has them, until we know our own better. */
static void begin(struct sf_acceptor_reply *reply,
		  const struct sf_handshake_rdma *request)
{
	reply->err = (struct sf_err){ 0 };
	reply->path[0] = '\0';
	reply->msg = (struct sf_handshake_rdma){
		.local_nic_path = request->peer_nic_path,
		.peer_nic_path = request->local_nic_path,
	};
}

/* ---- the rules ---- */

/* Which of our NICs is asked for, and by our name? */
static int find_nic(const struct sf_acceptor *a, const char *path,
		    struct sf_acceptor_reply *reply)
{
	const struct sf_acceptor_config *c = sf_acceptor_config(a);
	const char *device;
	size_t server_len;
	unsigned int i = 0;

	if (sf_nicpath_split(path, &server_len, &device) < 0)
		return sf_err_set(&reply->err, -EINVAL, "peer_nic_path "
				  "\"%.200s\" is not of the form server@device",
				  path);
	while (i < c->nr_nics && strcmp(c->nics[i].name, device))
		i++;
	if (i == c->nr_nics)
		return sf_err_set(&reply->err, -ENODEV,
				  "no device \"%.100s\" in this server",
				  device);
	if (sf_nicpath_join(reply->path, c->server, device) == 0)
		reply->msg.local_nic_path = reply->path;
	if (strcmp(reply->path, path))
		return sf_err_set(&reply->err, -EINVAL, "peer_nic_path "
				  "\"%.200s\" is not this server's, which is "
				  "\"%.200s\"", path, reply->path);
	return (int)i;
}

static int check_peer(const struct sf_handshake_rdma *request,
		      struct sf_acceptor_remote *remote, struct sf_err *err)
{
	const char *path = request->local_nic_path, *device;
	size_t server_len;

	if (strlen(path) >= SF_NICPATH_MAX ||
	    sf_nicpath_split(path, &server_len, &device) < 0)
		return sf_err_set(err, -EINVAL, "local_nic_path \"%.200s\" is "
				  "not of the form server@device", path);
	if (!request->nr_qps)
		return sf_err_set(err, -EINVAL, "qp_num lists no queue pair");
	if (!*request->local_gid)
		return sf_err_set(err, -EINVAL, "local_gid is empty, and the "
				  "device of local_nic_path is in no "
				  "descriptor");
	if (sf_gid_parse(request->local_gid, remote->gid) < 0 ||
	    sf_gid_is_zero(remote->gid))
		return sf_err_set(err, -EINVAL, "local_gid \"%.60s\" is not a "
				  "GID", request->local_gid);
	remote->lid = request->local_lid;
	remote->nr_qps = request->nr_qps;
	remote->qp_num = request->qp_num;
	return 0;
}

/* The second half of a connection, never a new one. */
static int acknowledge(struct sf_acceptor *a, unsigned int nic,
		       const struct sf_handshake_rdma *request,
		       struct sf_acceptor_reply *reply)
{
	if (!sf_acceptor_is_connected(a, nic, request))
		return sf_err_set(&reply->err, -ENOTCONN, "ready_ack of "
				  "queue pairs that are not connected");
	reply->msg = (struct sf_handshake_rdma){ 0 };
	return 0;
}

static int answer(struct sf_acceptor *a,
		  const struct sf_handshake_rdma *request,
		  struct sf_acceptor_reply *reply)
{
	const struct sf_acceptor_config *c = sf_acceptor_config(a);
	struct sf_acceptor_remote remote;
	struct sf_acceptor_local local;
	struct sf_endpoint *e = NULL;
	const char *refusal;
	int nic = find_nic(a, request->peer_nic_path, reply);
	int res;

	if (nic < 0)
		return nic;
	if (request->ready_ack == SF_READY_ACK_TRUE)
		return acknowledge(a, (unsigned int)nic, request, reply);
	res = check_peer(request, &remote, &reply->err);
	if (res < 0)
		return res;
	refusal = c->ops->refusal(c->arg, (unsigned int)nic);
	if (refusal)
		return sf_err_set(&reply->err, -ENETDOWN, "device \"%s\": %s",
				  c->nics[nic].name, refusal);
	if (request->nr_qps > c->nics[nic].max_qps)
		return sf_err_set(&reply->err, -EINVAL, "%u queue pairs are "
				  "more than device \"%s\" gives to one peer "
				  "(%u)", request->nr_qps, c->nics[nic].name,
				  c->nics[nic].max_qps);
	if (sf_acceptor_take_place(a, (unsigned int)nic, request, &remote,
				   &local, &e))
		return sf_err_set(&reply->err, -ENOMEM, "out of memory");
	if (e)
		sf_acceptor_build(a, e, &remote, &local, &reply->err);
	if (!reply->err.code)
		accept_with(reply, &local, request->nr_qps);
	return reply->err.code;
}

void sf_acceptor_answer(struct sf_acceptor *a,
			const struct sf_handshake_rdma *request,
			struct sf_acceptor_reply *reply)
{
	begin(reply, request);
	if (answer(a, request, reply) < 0)
		reply->msg.reply_msg = reply->err.text;
}
