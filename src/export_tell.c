/* SPDX-License-Identifier: MIT */
/*
 * What is told of an export: its descriptors, written anew when a device has
 * changed, and the answers on the handshake channel. On the handshake server's
 * threads and those of devices; the lock guards the texts.
 */
#include "config.h"
#include "export_int.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "err.h"
#include "export_memory.h"
#include "export_publish.h"
#include "export_rdma.h"
#include "json.h"
#include "log.h"
#include "segment.h"
#include "tcp/target.h"

#define NOTIFY_LOG_MS 100

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

char *sf_export_answer(void *arg, enum sf_handshake_type type, const char *body,
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
char *sf_export_answer_connection(void *arg, enum sf_handshake_type type,
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
static char *encode(struct sf_export *x, const struct sf_export_face *f)
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
		const struct sf_export_piece *p = &x->pieces[i];

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

int sf_export_describe(struct sf_export *x, struct sf_err *err)
{
	int res = 0;

	pthread_mutex_lock(&x->lock);
	for (unsigned int i = 0; i < x->nr_faces && !res; i++) {
		x->faces[i].text = encode(x, &x->faces[i]);
		if (!x->faces[i].text)
			res = sf_err_set(err, -ENOMEM, "out of memory");
	}
	x->described = !res;
	pthread_mutex_unlock(&x->lock);
	return res;
}

/* ---- a device has another GID ---- */

static void refresh_locked(struct sf_export *x)
{
	for (unsigned int i = 0; i < x->nr_faces; i++) {
		struct sf_export_face *f = &x->faces[i];
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

void sf_export_on_change(void *arg)
{
	struct sf_export *x = arg;

	pthread_mutex_lock(&x->lock);
	if (x->published)
		refresh_locked(x);
	else
		x->stale = x->described;
	pthread_mutex_unlock(&x->lock);
}

void sf_export_all_published(struct sf_export *x)
{
	pthread_mutex_lock(&x->lock);
	x->published = true;
	if (x->stale)
		refresh_locked(x);
	pthread_mutex_unlock(&x->lock);
}
