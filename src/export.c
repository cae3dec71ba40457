/* SPDX-License-Identifier: MIT */
/*
 * The target side put together: memory, the servers of data, the handshake
 * server and the published keys, made in that order and taken down in reverse.
 * With both protocols there are two segments of the same memory behind one
 * handshake port. Answers handshake requests on the handshake server's threads;
 * devices report a change on theirs; the rest happens on the caller's.
 */
#include "config.h"
#include "export.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "blob.h"
#include "err.h"
#include "export_address.h"
#include "export_memory.h"
#include "export_publish.h"
#include "export_rdma.h"
#include "handshake.h"
#include "json.h"
#include "log.h"
#include "meta.h"
#include "ratelimit.h"
#include "rdma_target.h"
#include "segment.h"
#include "tcp/target.h"

#define NOTIFY_LOG_MS 100
#define FACES_MAX 2

/* Part of a memory: what is one buffer for peers. */
struct piece {
	const struct sf_export_memory *memory;
	uint64_t offset, length;
};

/* One segment of ours. */
struct face {
	enum sf_export_protocol protocol;
	char *name;
	char *text;			/* descriptor; under lock */
	struct sf_blob *seen_rpc;	/* the name's owner before us */
	struct sf_publish *publish;
};

struct sf_export {
	char *host;		/* as published */
	char *rpc_text;
	size_t nr;
	struct sf_export_memory *memory;
	size_t nr_pieces;
	struct piece *pieces;
	struct sf_tcp_target *target;
	struct sf_export_rdma *rdma;
	struct sf_handshake_server *handshake;
	struct sf_ratelimit notify_log;
	unsigned int nr_faces;
	struct face faces[FACES_MAX];

	pthread_mutex_t lock;
	bool described, published;	/* all faces; under lock */
	bool stale;			/* meanwhile; under lock */
};

static int no_memory(struct sf_err *err)
{
	return sf_err_set(err, -ENOMEM, "out of memory");
}

/* ---- answering the handshake channel ---- */

static const char *member(const cJSON *object, const char *name)
{
	const char *text = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(object, name));

	return text ? text : "";
}

static char *take_notify(struct sf_export *x, const char *body, size_t len)
{
	struct sf_json json;
	unsigned int more;

	if (sf_json_parse(&json, body, len, NULL) < 0)
		return NULL;
	if (sf_ratelimit_pass(&x->notify_log, NOTIFY_LOG_MS, &more))
		sf_log(LOG_NOTICE, SF_LOG_EXPORT,
		       "notified by \"%s\": %s (%u more not shown)",
		       member(json.root, "name"),
		       member(json.root, "notify_msg"), more);
	sf_json_free(&json);
	return strdup("{\"name\":\"\",\"notify_msg\":\"success\"}\n");
}

/* Mooncake answers a Metadata request with null when it uses a store; the
 * descriptor serves those who have our address and no store. */
static char *give_descriptor(struct sf_export *x)
{
	char *text;

	pthread_mutex_lock(&x->lock);
	text = strdup(x->faces[0].text);
	pthread_mutex_unlock(&x->lock);
	return text;
}

static char *answer(void *arg, enum sf_handshake_type type, const char *body,
		    size_t len)
{
	struct sf_export *x = arg;

	if (type == SF_HANDSHAKE_PROBE)
		return strdup("{\"status\":\"success\"}\n");
	if (type == SF_HANDSHAKE_METADATA)
		return give_descriptor(x);
	if (type == SF_HANDSHAKE_NOTIFY)
		return take_notify(x, body, len);
	return NULL;
}

/* On threads that may block. */
static char *answer_connection(void *arg, enum sf_handshake_type type,
			       const char *body, size_t len)
{
	struct sf_export *x = arg;

	return sf_export_rdma_answer(x->rdma, body, len);
}

/* ---- the descriptors ---- */

static void format_now(char out[40])
{
	struct timeval tv;
	struct tm tm;
	size_t n;

	gettimeofday(&tv, NULL);
	localtime_r(&tv.tv_sec, &tm);
	n = strftime(out, 40, "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(out + n, 40 - n, ".%06ld", (long)tv.tv_usec);
}

static char *encode_tcp(struct sf_export *x, struct sf_segment *seg,
			struct sf_buffer *buffers)
{
	for (size_t i = 0; i < x->nr_pieces; i++) {
		buffers[i].protocol = "tcp";
		buffers[i].proto = SF_PROTOCOL_TCP;
	}
	seg->protocol = "tcp";
	seg->tcp_data_host = x->host;
	seg->tcp_data_port = sf_tcp_target_port(x->target);
	seg->tcp_version = 2;
	return sf_segment_encode(seg);
}

/* malloc'ed; NULL: out of memory. */
static char *encode(struct sf_export *x, const struct face *f)
{
	struct sf_buffer *buffers = calloc(x->nr_pieces + 1, sizeof(*buffers));
	char now[40], *text;
	struct sf_segment seg = {
		.name = f->name,
		.self_name = f->name,
		.timestamp = now,
		.nr_buffers = (uint32_t)x->nr_pieces,
		.buffers = buffers,
	};

	if (!buffers)
		return NULL;
	format_now(now);
	for (size_t i = 0; i < x->nr_pieces; i++) {
		const struct piece *p = &x->pieces[i];

		buffers[i].addr = (uintptr_t)p->memory->base + p->offset;
		buffers[i].length = p->length;
		buffers[i].location = p->memory->location;
		buffers[i].index = (uint32_t)i;
	}
	text = f->protocol == SF_EXPORT_RDMA ?
	       sf_export_rdma_encode(x->rdma, &seg, buffers) :
	       encode_tcp(x, &seg, buffers);
	free(buffers);
	return text;
}

static int describe(struct sf_export *x, struct sf_err *err)
{
	int res = 0;

	pthread_mutex_lock(&x->lock);
	for (unsigned int i = 0; i < x->nr_faces && !res; i++) {
		x->faces[i].text = encode(x, &x->faces[i]);
		if (!x->faces[i].text)
			res = no_memory(err);
	}
	x->described = !res;
	pthread_mutex_unlock(&x->lock);
	return res;
}

/* ---- a device has another GID ---- */

static void refresh_locked(struct sf_export *x)
{
	for (unsigned int i = 0; i < x->nr_faces; i++) {
		struct face *f = &x->faces[i];
		char *text = f->protocol == SF_EXPORT_RDMA ? encode(x, f) :
							     NULL;

		if (!text)
			continue;
		free(f->text);
		f->text = text;
		sf_publish_update(f->publish, text);
	}
	x->stale = false;
}

static void on_change(void *arg)
{
	struct sf_export *x = arg;

	pthread_mutex_lock(&x->lock);
	if (x->published)
		refresh_locked(x);
	else
		x->stale = x->described;
	pthread_mutex_unlock(&x->lock);
}

static void all_published(struct sf_export *x)
{
	pthread_mutex_lock(&x->lock);
	x->published = true;
	if (x->stale)
		refresh_locked(x);
	pthread_mutex_unlock(&x->lock);
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
	struct face *f = &x->faces[x->nr_faces];

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
	const struct face *f = &x->faces[x->nr_faces - 1];
	struct sf_export_rdma_config rdma = {
		.rdma = config->rdma,
		.server = f->name,
		.meta = config->meta,
		.affinity = config->affinity,
		.changed = on_change,
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
			x->pieces[x->nr_pieces++] = (struct piece){
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
		const struct piece *p = &x->pieces[i];

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
		const struct piece *p = &x->pieces[i];

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
		.handler = answer,
		.connect = answer_connection,
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
		struct face *f = &x->faces[i];
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
		all_published(x);
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
		res = describe(x, err);
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
	const struct piece *p;

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
