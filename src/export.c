/* SPDX-License-Identifier: MIT */
/*
 * The target side put together: memory, the data server, the handshake server
 * and the published keys, made in that order and taken down in reverse. Answers
 * handshake requests on the handshake server's thread; the rest happens on the
 * caller's.
 */
#include "config.h"
#include "export.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "blob.h"
#include "err.h"
#include "export_memory.h"
#include "export_publish.h"
#include "handshake.h"
#include "json.h"
#include "log.h"
#include "meta.h"
#include "net.h"
#include "ratelimit.h"
#include "segment.h"
#include "tcp/target.h"

#define NOTIFY_LOG_MS 100

struct sf_export {
	char *name;
	char *host;		/* as published */
	char *segment_text, *rpc_text;
	struct sf_blob *seen_rpc;	/* the name's owner before us */
	size_t nr;
	struct sf_export_memory *memory;
	struct sf_tcp_target *target;
	struct sf_handshake_server *handshake;
	struct sf_publish *publish;
	struct sf_ratelimit notify_log;
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

/* Each side calls itself "local": the paths change places. */
static char *reject_connection(const cJSON *request)
{
	cJSON *reply = cJSON_CreateObject();
	char *text = NULL;

	if (cJSON_AddStringToObject(reply, "local_nic_path",
				    member(request, "peer_nic_path")) &&
	    cJSON_AddStringToObject(reply, "peer_nic_path",
				    member(request, "local_nic_path")) &&
	    cJSON_AddStringToObject(reply, "local_gid", "") &&
	    cJSON_AddNumberToObject(reply, "local_lid", 0) &&
	    cJSON_AddArrayToObject(reply, "qp_num") &&
	    cJSON_AddStringToObject(reply, "reply_msg",
				    "this segment has no RDMA transport") &&
	    cJSON_AddStringToObject(reply, "payload", ""))
		text = cJSON_PrintUnformatted(reply);
	cJSON_Delete(reply);
	return text;
}

static char *take_notify(struct sf_export *x, const cJSON *request)
{
	unsigned int more;

	if (sf_ratelimit_pass(&x->notify_log, NOTIFY_LOG_MS, &more))
		sf_log(LOG_NOTICE, SF_LOG_EXPORT,
		       "notified by \"%s\": %s (%u more not shown)",
		       member(request, "name"), member(request, "notify_msg"),
		       more);
	return strdup("{\"name\":\"\",\"notify_msg\":\"success\"}\n");
}

/* Mooncake answers a Metadata request with null when it uses a store; the
 * descriptor serves those who have our address and no store. */
static char *answer(void *arg, enum sf_handshake_type type, const char *body,
		    size_t len)
{
	struct sf_export *x = arg;
	struct sf_json json;
	char *reply;

	if (type == SF_HANDSHAKE_PROBE)
		return strdup("{\"status\":\"success\"}\n");
	if (type == SF_HANDSHAKE_METADATA)
		return strdup(x->segment_text);
	if (sf_json_parse(&json, body, len, NULL) < 0)
		return NULL;
	reply = type == SF_HANDSHAKE_NOTIFY ? take_notify(x, json.root) :
					      reject_connection(json.root);
	sf_json_free(&json);
	return reply;
}

/* ---- our address ---- */

static bool is_any(const char *address)
{
	return !strcmp(address, "0.0.0.0") || !strcmp(address, "::");
}

static bool usable(const struct ifaddrs *i, int family)
{
	const struct sockaddr_in6 *sin6 = (const void *)i->ifa_addr;

	if (!i->ifa_addr || i->ifa_addr->sa_family != family ||
	    i->ifa_flags & IFF_LOOPBACK ||
	    (i->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING))
		return false;
	/* A link-local address means nothing to others. */
	return family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr);
}

/* The first address of a running interface, as Mooncake picks it. */
static bool first_address(int family, char *out, size_t len)
{
	socklen_t sa_len = family == AF_INET ? sizeof(struct sockaddr_in) :
					       sizeof(struct sockaddr_in6);
	struct ifaddrs *list, *i;
	bool found = false;

	if (getifaddrs(&list) < 0)
		return false;
	for (i = list; i && !found; i = i->ifa_next)
		found = usable(i, family) &&
			!getnameinfo(i->ifa_addr, sa_len, out, (socklen_t)len,
				     NULL, 0, NI_NUMERICHOST);
	freeifaddrs(list);
	return found;
}

static int choose_host(struct sf_export *x,
		       const struct sf_export_config *config,
		       struct sf_err *err)
{
	const char *host = config->advertise;
	char found[NI_MAXHOST];

	if (!host || !*host)
		host = config->listen && *config->listen ? config->listen :
							   "127.0.0.1";
	if (is_any(host)) {
		if (!first_address(AF_INET, found, sizeof(found)) &&
		    (strcmp(host, "::") ||
		     !first_address(AF_INET6, found, sizeof(found))))
			return sf_err_set(err, -EADDRNOTAVAIL, "no address to "
					  "publish: no interface but loopback "
					  "is up");
		host = found;
	}
	if (sf_net_is_loopback(host))
		sf_log(LOG_NOTICE, SF_LOG_EXPORT, "segment %s is published at "
		       "%s: only this machine can reach it", x->name, host);
	x->host = strdup(host);
	return x->host ? 0 : no_memory(err);
}

/* ---- the descriptor ---- */

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

static int describe(struct sf_export *x, struct sf_err *err)
{
	struct sf_buffer *buffers = calloc(x->nr + 1, sizeof(*buffers));
	char now[40];
	struct sf_segment seg = {
		.name = x->name,
		.self_name = x->name,
		.protocol = "tcp",
		.timestamp = now,
		.tcp_data_host = x->host,
		.tcp_data_port = sf_tcp_target_port(x->target),
		.tcp_version = 2,
		.nr_buffers = (uint32_t)x->nr,
		.buffers = buffers,
	};

	if (!buffers)
		return no_memory(err);
	format_now(now);
	for (size_t i = 0; i < x->nr; i++) {
		buffers[i].addr = (uintptr_t)x->memory[i].base;
		buffers[i].length = x->memory[i].length;
		buffers[i].location = x->memory[i].location;
		buffers[i].protocol = "tcp";
		buffers[i].proto = SF_PROTOCOL_TCP;
		buffers[i].index = (uint32_t)i;
	}
	x->segment_text = sf_segment_encode(&seg);
	free(buffers);
	return x->segment_text ? 0 : no_memory(err);
}

/* ---- starting, in this order ---- */

static int check(const struct sf_export_config *config, struct sf_err *err)
{
	unsigned int caps = sf_meta_caps(config->meta);
	const char *name = config->name;

	if (!name || !*name || strchr(name, '@') || *name == '/')
		return sf_err_set(err, -EINVAL, "segment name \"%s\": must not "
				  "be empty, begin with / or hold @",
				  name ? name : "");
	if (config->nr_buffers > UINT32_MAX)
		return sf_err_set(err, -EINVAL, "too many buffers");
	if (!(caps & SF_META_CAN_WRITE))
		return sf_err_set(err, -EOPNOTSUPP, "%s cannot be published to",
				  sf_meta_describe(config->meta));
	if (config->lease_s && !(caps & SF_META_CAN_LEASE))
		return sf_err_set(err, -EOPNOTSUPP, "%s has no leases; ask for "
				  "none", sf_meta_describe(config->meta));
	return 0;
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
					   &config->buffers[x->nr], err);
		if (res < 0) {
			sf_err_prefix(err, "buffer %zu", x->nr);
			return res;
		}
		x->nr++;
	}
	return sf_export_memory_overlap(x->memory, x->nr, err);
}

static int start_target(struct sf_export *x,
			const struct sf_export_config *config,
			struct sf_err *err)
{
	struct sf_tcp_target_config target = {
		.listen = config->listen,
		.port = config->data_port,
		.threads = config->threads,
		.nr_regions = x->nr,
	};
	struct sf_region *regions = calloc(x->nr + 1, sizeof(*regions));
	int res;

	if (!regions)
		return no_memory(err);
	for (size_t i = 0; i < x->nr; i++)
		regions[i] = (struct sf_region){
			.addr = (uintptr_t)x->memory[i].base,
			.length = x->memory[i].length,
			.read_only = x->memory[i].read_only,
		};
	target.regions = regions;
	res = sf_tcp_target_start(&x->target, &target, err);
	free(regions);
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
	struct sf_publish_config pub = {
		.meta = config->meta,
		.name = x->name,
		.segment = x->segment_text,
		.rpc = x->rpc_text,
		.lease_s = config->lease_s,
		.force = config->force,
		.seen_rpc = x->seen_rpc,
	};

	return sf_publish_start(&x->publish, &pub, err);
}

int sf_export_start(struct sf_export **out,
		    const struct sf_export_config *config,
		    struct sf_err *err)
{
	struct sf_export *x;
	int res = check(config, err);

	if (res < 0)
		return res;
	x = calloc(1, sizeof(*x));
	if (!x)
		return no_memory(err);
	x->name = strdup(config->name);
	res = x->name ? 0 : no_memory(err);
	if (!res)
		res = sf_publish_check(config->meta, x->name, config->force,
				       &x->seen_rpc, err);
	if (!res)
		res = map_all(x, config, err);
	if (!res)
		res = choose_host(x, config, err);
	if (!res)
		res = start_target(x, config, err);
	if (!res)
		res = describe(x, err);
	if (!res)
		res = start_handshake(x, config, err);
	if (!res)
		res = publish(x, config, err);
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
	sf_publish_stop(x->publish);
	sf_handshake_stop(x->handshake);
	sf_tcp_target_stop(x->target);
	for (size_t i = 0; i < x->nr; i++)
		sf_export_memory_unmap(&x->memory[i]);
	free(x->memory);
	sf_blob_put(x->seen_rpc);
	free(x->rpc_text);
	free(x->segment_text);
	free(x->host);
	free(x->name);
	free(x);
}

/* ---- what has become of it ---- */

bool sf_export_info(const struct sf_export *x, size_t i,
		    struct sf_export_info *info)
{
	const struct sf_export_memory *m;

	if (i >= x->nr)
		return false;
	m = &x->memory[i];
	*info = (struct sf_export_info){
		.addr = (uintptr_t)m->base,
		.length = m->length,
		.location = m->location,
		.read_only = m->read_only,
	};
	return true;
}

uint16_t sf_export_rpc_port(const struct sf_export *x)
{
	return sf_handshake_port(x->handshake);
}

uint16_t sf_export_data_port(const struct sf_export *x)
{
	return sf_tcp_target_port(x->target);
}
