/* SPDX-License-Identifier: MIT */
/*
 * The target side put together: memory, the servers of data, the handshake
 * server and the published keys, made in that order and taken down in reverse.
 * With both protocols there are two segments of the same memory behind one
 * handshake port. All of it happens on the caller's thread.
 */
#include "config.h"
#include "export.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "err.h"
#include "export_address.h"
#include "export_int.h"
#include "export_memory.h"
#include "export_publish.h"
#include "export_rdma.h"
#include "meta.h"
#include "rdma_target.h"
#include "segment.h"
#include "tcp/target.h"

static int no_memory(struct sf_err *err)
{
	return sf_err_set(err, -ENOMEM, "out of memory");
}

/* ---- starting, in this order ---- */

static int check_memory(const struct sf_export_config *config,
			unsigned int protocols, struct sf_err *err)
{
	if (config->nr_buffers > UINT32_MAX)
		return sf_err_set(err, -EINVAL, "too many buffers");
	for (size_t i = 0; i < config->nr_buffers; i++)
		if (config->buffers[i].source == SF_EXPORT_DMABUF &&
		    protocols != SF_EXPORT_RDMA)
			return sf_err_set(err, -EINVAL, "buffer %zu: a dma-buf "
					  "can be exported over RDMA only", i);
	return 0;
}

static int check(const struct sf_export_config *config, unsigned int protocols,
		 struct sf_err *err)
{
	unsigned int caps = sf_meta_caps(config->meta);
	const char *name = config->name;

	if (!name || !*name || strchr(name, '@') || *name == '/')
		return sf_err_set(err, -EINVAL, "segment name \"%s\": must not "
				  "be empty, begin with / or hold @",
				  name ? name : "");
	if (!(caps & SF_META_CAN_WRITE))
		return sf_err_set(err, -EOPNOTSUPP, "%s cannot be published to",
				  sf_meta_describe(config->meta));
	if (config->lease_s && !(caps & SF_META_CAN_LEASE))
		return sf_err_set(err, -EOPNOTSUPP, "%s has no leases; ask for "
				  "none", sf_meta_describe(config->meta));
	return check_memory(config, protocols, err);
}

static int add_face(struct sf_export *x, const struct sf_export_config *config,
		    enum sf_export_protocol protocol, const char *suffix,
		    struct sf_err *err)
{
	struct sf_export_face *f = &x->faces[x->nr_faces];

	if (asprintf(&f->name, "%s%s", config->name, suffix) < 0) {
		f->name = NULL;
		return no_memory(err);
	}
	f->protocol = protocol;
	x->nr_faces++;
	return sf_publish_check(config->meta, f->name, config->force,
				&f->seen_rpc, err);
}

static int add_faces(struct sf_export *x,
		     const struct sf_export_config *config,
		     unsigned int protocols, struct sf_err *err)
{
	int res = 0;

	if (protocols & SF_EXPORT_TCP)
		res = add_face(x, config, SF_EXPORT_TCP, "", err);
	if (!res && protocols & SF_EXPORT_RDMA)
		res = add_face(x, config, SF_EXPORT_RDMA,
			       protocols & SF_EXPORT_TCP ?
			       SF_EXPORT_RDMA_SUFFIX : "", err);
	return res;
}

static int open_rdma(struct sf_export *x,
		     const struct sf_export_config *config,
		     struct sf_err *err)
{
	const struct sf_export_face *f = &x->faces[x->nr_faces - 1];
	struct sf_export_rdma_config rdma = {
		.rdma = config->rdma,
		.server = f->name,
		.meta = config->meta,
		.affinity = config->affinity,
		.changed = sf_export_on_change,
		.arg = x,
	};

	if (f->protocol != SF_EXPORT_RDMA)
		return 0;
	return sf_export_rdma_open(&x->rdma, &rdma, err);
}

static int map_all(struct sf_export *x, const struct sf_export_config *config,
		   struct sf_err *err)
{
	int res;

	x->memory = calloc(config->nr_buffers + 1, sizeof(*x->memory));
	if (!x->memory)
		return no_memory(err);
	while (x->nr < config->nr_buffers) {
		res = sf_export_memory_map(&x->memory[x->nr],
					   &config->buffers[x->nr], x->rdma,
					   err);
		if (res < 0) {
			sf_err_prefix(err, "buffer %zu", x->nr);
			return res;
		}
		x->nr++;
	}
	return sf_export_memory_overlap(x->memory, x->nr, err);
}

/* No access may cross from one buffer into the next, so a memory is cut only
 * where it must be. */
static int cut_pieces(struct sf_export *x, struct sf_err *err)
{
	uint64_t max = x->rdma ? sf_export_rdma_max_length(x->rdma) :
				 UINT64_MAX;
	uint64_t nr = 0;

	for (size_t i = 0; i < x->nr; i++)
		nr += (x->memory[i].length - 1) / max + 1;
	if (nr > UINT32_MAX)
		return sf_err_set(err, -EINVAL, "too many buffers: a device "
				  "takes no more than %llu bytes in one",
				  (unsigned long long)max);
	x->pieces = calloc(nr + 1, sizeof(*x->pieces));
	if (!x->pieces)
		return no_memory(err);
	for (size_t i = 0; i < x->nr; i++) {
		const struct sf_export_memory *m = &x->memory[i];
		uint64_t len;

		for (uint64_t at = 0; at < m->length; at += len) {
			len = m->length - at < max ? m->length - at : max;
			x->pieces[x->nr_pieces++] = (struct sf_export_piece){
				.memory = m, .offset = at, .length = len,
			};
		}
	}
	return 0;
}

static int start_target(struct sf_export *x,
			const struct sf_export_config *config,
			struct sf_err *err)
{
	struct sf_tcp_target_config target = {
		.listen = config->listen,
		.port = config->data_port,
		.threads = config->threads,
		.nr_regions = x->nr_pieces,
	};
	struct sf_region *regions;
	int res;

	if (x->faces[0].protocol != SF_EXPORT_TCP)
		return 0;
	regions = calloc(x->nr_pieces + 1, sizeof(*regions));
	if (!regions)
		return no_memory(err);
	for (size_t i = 0; i < x->nr_pieces; i++) {
		const struct sf_export_piece *p = &x->pieces[i];

		regions[i] = (struct sf_region){
			.addr = (uintptr_t)p->memory->base + p->offset,
			.length = p->length,
			.read_only = p->memory->read_only,
		};
	}
	target.regions = regions;
	res = sf_tcp_target_start(&x->target, &target, err);
	free(regions);
	return res;
}

static int register_all(struct sf_export *x, struct sf_err *err)
{
	struct sf_rdma_region *regions;
	const char **locations;
	int res = -ENOMEM;

	if (!x->rdma)
		return 0;
	regions = calloc(x->nr_pieces + 1, sizeof(*regions));
	locations = calloc(x->nr_pieces + 1, sizeof(*locations));
	if (!regions || !locations) {
		no_memory(err);
		goto out;
	}
	for (size_t i = 0; i < x->nr_pieces; i++) {
		const struct sf_export_piece *p = &x->pieces[i];

		locations[i] = p->memory->location;
		regions[i] = (struct sf_rdma_region){
			.addr = (uintptr_t)p->memory->base + p->offset,
			.length = p->length,
			.read_only = p->memory->read_only,
			.dmabuf = p->memory->dmabuf,
			.dmabuf_offset = p->memory->dmabuf_offset + p->offset,
		};
	}
	res = sf_export_rdma_register(x->rdma, regions, locations,
				      x->nr_pieces, err);
out:
	free(regions);
	free(locations);
	return res;
}

static int start_handshake(struct sf_export *x,
			   const struct sf_export_config *config,
			   struct sf_err *err)
{
	struct sf_handshake_config handshake = {
		.listen = config->listen,
		.port = config->rpc_port,
		.max_len = SF_HANDSHAKE_MAX_DEFAULT,
		.handler = sf_export_answer,
		.connect = sf_export_answer_connection,
		.connect_threads = x->rdma ? 0 : 1,
		.arg = x,
	};
	int res = sf_handshake_serve(&x->handshake, &handshake, err);

	if (res < 0)
		return res;
	x->rpc_text = sf_rpc_meta_encode(x->host,
					 sf_handshake_port(x->handshake));
	return x->rpc_text ? 0 : no_memory(err);
}

static int publish(struct sf_export *x, const struct sf_export_config *config,
		   struct sf_err *err)
{
	int res = 0;

	for (unsigned int i = 0; i < x->nr_faces && !res; i++) {
		struct sf_export_face *f = &x->faces[i];
		struct sf_publish_config pub = {
			.meta = config->meta,
			.name = f->name,
			.segment = f->text,
			.rpc = x->rpc_text,
			.lease_s = config->lease_s,
			.force = config->force,
			.seen_rpc = f->seen_rpc,
		};

		res = sf_publish_start(&f->publish, &pub, err);
	}
	if (!res)
		sf_export_all_published(x);
	return res;
}

static int start(struct sf_export *x, const struct sf_export_config *config,
		 unsigned int protocols, struct sf_err *err)
{
	int res = add_faces(x, config, protocols, err);

	if (!res)
		res = open_rdma(x, config, err);
	if (!res)
		res = map_all(x, config, err);
	if (!res)
		res = cut_pieces(x, err);
	if (!res)
		res = sf_export_address(config->name, config->listen,
					config->advertise, &x->host, err);
	if (!res)
		res = start_target(x, config, err);
	if (!res)
		res = register_all(x, err);
	if (!res)
		res = sf_export_describe(x, err);
	if (!res)
		res = start_handshake(x, config, err);
	if (!res)
		res = publish(x, config, err);
	return res;
}

int sf_export_start(struct sf_export **out,
		    const struct sf_export_config *config,
		    struct sf_err *err)
{
	unsigned int protocols = config->protocols ? config->protocols :
						     SF_EXPORT_TCP;
	struct sf_export *x;
	int res = check(config, protocols, err);

	if (res < 0)
		return res;
	x = calloc(1, sizeof(*x));
	if (!x)
		return no_memory(err);
	pthread_mutex_init(&x->lock, NULL);
	res = start(x, config, protocols, err);
	if (res < 0)
		sf_export_stop(x);
	else
		*out = x;
	return res;
}

void sf_export_stop(struct sf_export *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	x->published = false;	/* no updates any more */
	pthread_mutex_unlock(&x->lock);
	for (unsigned int i = 0; i < x->nr_faces; i++)
		sf_publish_stop(x->faces[i].publish);
	sf_handshake_stop(x->handshake);
	sf_tcp_target_stop(x->target);
	sf_export_rdma_close(x->rdma);
	for (size_t i = 0; i < x->nr; i++)
		sf_export_memory_unmap(&x->memory[i]);
	for (unsigned int i = 0; i < x->nr_faces; i++) {
		sf_blob_put(x->faces[i].seen_rpc);
		free(x->faces[i].text);
		free(x->faces[i].name);
	}
	free(x->pieces);
	free(x->memory);
	free(x->rpc_text);
	free(x->host);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

/* ---- what has become of it ---- */

bool sf_export_info(const struct sf_export *x, size_t i,
		    struct sf_export_info *info)
{
	const struct sf_export_piece *p;

	if (i >= x->nr_pieces)
		return false;
	p = &x->pieces[i];
	*info = (struct sf_export_info){
		.addr = (uintptr_t)p->memory->base + p->offset,
		.length = p->length,
		.location = p->memory->location,
		.read_only = p->memory->read_only,
	};
	return true;
}

uint16_t sf_export_rpc_port(const struct sf_export *x)
{
	return sf_handshake_port(x->handshake);
}

uint16_t sf_export_data_port(const struct sf_export *x)
{
	return x->target ? sf_tcp_target_port(x->target) : 0;
}

const char *sf_export_segment(const struct sf_export *x, size_t i,
			      const char **protocol)
{
	if (i >= x->nr_faces)
		return NULL;
	*protocol = x->faces[i].protocol == SF_EXPORT_RDMA ? "rdma" : "tcp";
	return x->faces[i].name;
}
