/* SPDX-License-Identifier: MIT */
/*
 * The exporter's RDMA part: between export.c, which knows names and stores, and
 * the table of rdma_target.h, which knows devices. Keys are kept in the order
 * in which devices are published.
 */
#include "config.h"
#include "export_rdma.h"

#include <errno.h>
#include <inttypes.h>
#include <numa.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "blob.h"
#include "err.h"
#include "export_matrix.h"
#include "gid.h"
#include "handshake_rdma.h"
#include "log.h"
#include "meta.h"
#include "options.h"
#include "rdma_target.h"
#include "segment.h"

/* Two paths and 256 numbers are a tenth of it; more is not worth the memory
 * that JSON takes. */
#define REQUEST_MAX (64u << 10)

struct sf_export_rdma {
	const struct sf_rdma_target_ops *ops;
	void *target;
	struct sf_export_rdma_config config;
	uint32_t nr_nics;
	struct sf_rdma_nic *nics;	/* names and nodes; the rest changes */
	struct sf_export_matrix matrix;
	uint64_t *keys;			/* nr_nics of each region */
};

static int no_memory(struct sf_err *err)
{
	return sf_err_set(err, -ENOMEM, "out of memory");
}

/* ---- opening and closing ---- */

int sf_export_rdma_open(struct sf_export_rdma **out,
			const struct sf_export_rdma_config *config,
			struct sf_err *err)
{
	struct sf_rdma_target_config target = {
		.rdma = config->rdma,
		.server = config->server,
		.changed = config->changed,
		.arg = config->arg,
	};
	struct sf_export_rdma *r;
	int res;

	if (!sf_rdma_target_ops())
		return sf_err_set(err, -EOPNOTSUPP, "this segfs was built "
				  "without RDMA");
	r = calloc(1, sizeof(*r));
	if (!r)
		return no_memory(err);
	r->ops = sf_rdma_target_ops();
	r->config = *config;
	res = r->ops->open(&r->target, &target, err);
	if (!res) {
		r->nr_nics = r->ops->nr_nics(r->target);
		r->nics = calloc(r->nr_nics + 1, sizeof(*r->nics));
		if (!r->nics)
			res = no_memory(err);
	}
	if (res < 0) {
		sf_export_rdma_close(r);
		return res;
	}
	for (uint32_t i = 0; i < r->nr_nics; i++)
		r->ops->nic(r->target, i, &r->nics[i]);
	*out = r;
	return 0;
}

void sf_export_rdma_close(struct sf_export_rdma *r)
{
	if (!r)
		return;
	if (r->target)
		r->ops->close(r->target);
	sf_export_matrix_fini(&r->matrix);
	free(r->keys);
	free(r->nics);
	free(r);
}

/* ---- registering ---- */

uint64_t sf_export_rdma_max_length(struct sf_export_rdma *r)
{
	return r->ops->max_length(r->target, (uint64_t)sysconf(_SC_PAGESIZE));
}

/* The usual reason is the limit on locked memory, which counts every page once
 * for each device. */
static void explain_no_memory(const struct sf_export_rdma *r,
			      const struct sf_rdma_region *regions, size_t nr,
			      struct sf_err *err)
{
	char need[SF_SIZE_TEXT_MAX], have[SF_SIZE_TEXT_MAX];
	struct rlimit limit;
	uint64_t bytes = 0;

	for (size_t i = 0; i < nr; i++)
		if (regions[i].dmabuf < 0)
			bytes += regions[i].length;
	bytes *= r->nr_nics;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes)
		return;
	sf_format_size(need, bytes);
	sf_format_size(have, limit.rlim_cur);
	sf_err_set(err, -ENOMEM, "cannot register memory: the limit on locked "
		   "memory (memlock, ulimit -l) is %s, the buffers need %s on "
		   "%" PRIu32 " device%s", have, need, r->nr_nics,
		   r->nr_nics == 1 ? "" : "s");
}

static unsigned int count_nodes(void)
{
	return numa_available() < 0 ? 1 : (unsigned int)numa_max_node() + 1;
}

static int make_matrix(struct sf_export_rdma *r, const char *const *locations,
		       size_t nr, struct sf_err *err)
{
	struct sf_export_nic *nics = calloc(r->nr_nics + 1, sizeof(*nics));
	int res;

	if (!nics)
		return no_memory(err);
	for (uint32_t i = 0; i < r->nr_nics; i++)
		nics[i] = (struct sf_export_nic){ r->nics[i].name,
						  r->nics[i].node };
	res = sf_export_matrix_init(&r->matrix, nics, r->nr_nics,
				    count_nodes(), locations, nr,
				    r->config.affinity);
	free(nics);
	if (res < 0)
		return no_memory(err);
	if (r->config.affinity && !r->matrix.affinity)
		sf_log(LOG_NOTICE, SF_LOG_EXPORT, "no affinity: it needs two "
		       "to four NUMA nodes, devices on known ones, and no "
		       "location but theirs; every device is preferred alike");
	return 0;
}

int sf_export_rdma_register(struct sf_export_rdma *r,
			    const struct sf_rdma_region *regions,
			    const char *const *locations, size_t nr,
			    struct sf_err *err)
{
	uint64_t keys[r->nr_nics + 1];
	int res = make_matrix(r, locations, nr, err);

	if (res < 0)
		return res;
	r->keys = calloc(nr * r->nr_nics + 1, sizeof(*r->keys));
	if (!r->keys)
		return no_memory(err);
	for (size_t i = 0; i < nr; i++) {
		res = r->ops->add(r->target, &regions[i], keys, err);
		if (res == -ENOMEM)
			explain_no_memory(r, regions, nr, err);
		if (res < 0)
			return res;
		for (uint32_t j = 0; j < r->nr_nics; j++)
			r->keys[i * r->nr_nics + j] =
				keys[r->matrix.order[j]];
	}
	return 0;
}

/* ---- the descriptor ---- */

char *sf_export_rdma_encode(struct sf_export_rdma *r, struct sf_segment *seg,
			    struct sf_buffer *buffers)
{
	struct sf_device *devices = calloc(r->nr_nics + 1, sizeof(*devices));
	struct sf_rdma_nic nic;
	char *text;

	if (!devices)
		return NULL;
	for (uint32_t i = 0; i < r->nr_nics; i++) {
		uint32_t from = r->matrix.order[i];

		r->ops->nic(r->target, from, &nic);
		devices[i].name = r->nics[from].name;
		devices[i].lid = nic.lid;
		memcpy(devices[i].gid, nic.gid, sizeof(nic.gid));
		devices[i].has_gid = true;
	}
	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		buffers[i].protocol = "rdma";
		buffers[i].proto = SF_PROTOCOL_RDMA;
		buffers[i].nr_keys = r->nr_nics;
		buffers[i].rkeys = r->keys + (size_t)i * r->nr_nics;
	}
	seg->protocol = "rdma";
	seg->nr_devices = r->nr_nics;
	seg->devices = devices;
	seg->topology = &r->matrix.topology;
	seg->tcp_version = 1;
	text = sf_segment_encode(seg);
	free(devices);
	return text;
}

/* ---- Connection requests ---- */

static char *reject(const struct sf_handshake_rdma *request, const char *why)
{
	struct sf_handshake_rdma reply = {
		.local_nic_path = request->peer_nic_path,
		.peer_nic_path = request->local_nic_path,
		.reply_msg = why,
	};

	return sf_handshake_rdma_encode(&reply);
}

static const struct sf_device *device_of(const struct sf_segment *seg,
					 const char *name)
{
	for (uint32_t i = 0; i < seg->nr_devices; i++)
		if (!strcmp(seg->devices[i].name, name) &&
		    seg->devices[i].has_gid)
			return &seg->devices[i];
	return NULL;
}

/* Peers up to 0.3.10 do not say their GID: it is in their descriptor. If it is
 * not, the target says so in its turn. */
static void look_up_peer(struct sf_export_rdma *r,
			 struct sf_handshake_rdma *request,
			 char gid[SF_GID_TEXT_MAX])
{
	const char *path = request->local_nic_path, *at = strchr(path, '@');
	char *server = at ? strndup(path, (size_t)(at - path)) : NULL;
	struct sf_blob *raw = NULL, *raw_rpc = NULL;
	const struct sf_device *dev = NULL;
	struct sf_segment *seg = NULL;

	if (server && *server &&
	    !sf_meta_get(r->config.meta, server, &raw, &raw_rpc, NULL) &&
	    !sf_segment_decode(&seg, server, raw, raw_rpc))
		dev = device_of(seg, at + 1);
	if (dev) {
		sf_gid_format(gid, dev->gid);
		request->local_gid = gid;
		request->local_lid = dev->lid;
	}
	sf_segment_put(seg);
	sf_blob_put(raw);
	sf_blob_put(raw_rpc);
	free(server);
}

static char *answer(struct sf_export_rdma *r,
		    struct sf_handshake_rdma *request)
{
	char gid[SF_GID_TEXT_MAX];

	if (!*request->local_gid && request->ready_ack != SF_READY_ACK_TRUE)
		look_up_peer(r, request, gid);
	return r->ops->connect(r->target, request);
}

char *sf_export_rdma_answer(struct sf_export_rdma *r, const char *body,
			    size_t len)
{
	static const struct sf_handshake_rdma nobody;
	struct sf_handshake_rdma request;
	struct sf_err err = { 0 };
	char *reply;

	if (len > REQUEST_MAX)
		return reject(&nobody, "the request is too long");
	if (sf_handshake_rdma_decode(&request, body, len, &err) < 0) {
		sf_err_prefix(&err, "the request");
		return reject(&nobody, err.text);
	}
	reply = r ? answer(r, &request) :
		    reject(&request, "this segment has no RDMA transport");
	sf_handshake_rdma_fini(&request);
	return reply;
}
