/* SPDX-License-Identifier: MIT */
/* The addresses of an etcd cluster, from text. Pure; the texts in errors never
 * repeat what may be a password. */
#include "config.h"
#include "meta/etcd.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

#define DEFAULT_PORT "2379"

/* Why ITEM cannot be an endpoint, or NULL. */
static const char *objection(const char *item)
{
	if (strchr(item, '@'))
		return "user and password do not belong into the address, "
		       "where everybody sees them";
	if (strstr(item, "://"))
		return "endpoints are written host:port; etcds:// asks for TLS";
	if (strchr(item, '/'))
		return "an endpoint has no path; the cluster id chooses the "
		       "keys";
	return NULL;
}

/* "[::1]:2379" or "host:2379": where the host ends, or NULL. */
static const char *host_end(const char *item)
{
	const char *end;

	if (*item == '[') {
		end = strchr(item, ']');
		if (!end || end - item < 3 ||
		    strspn(item + 1, "0123456789abcdefABCDEF:.") == 0)
			return NULL;
		return end + 1;
	}
	end = item + strcspn(item, ":");
	return end == item || strchr(end + (*end == ':'), ':') ? NULL : end;
}

static bool host_ok(const char *host, const char *end)
{
	bool brackets = *host == '[';

	for (; host < end; host++)
		if (!isalnum((unsigned char)*host) && !strchr("-._", *host) &&
		    !(brackets && strchr("[]:%", *host)))
			return false;
	return true;
}

static bool port_ok(const char *port)
{
	unsigned long value = strtoul(port, NULL, 10);

	return *port && strlen(port) <= 5 &&
	       strspn(port, "0123456789") == strlen(port) && value >= 1 &&
	       value <= 65535;
}

/* The zone of a link-local address is escaped in a URL: "%25eth0". */
static char *make_url(const char *where, bool tls)
{
	const char *zone = strchr(where, '%');
	char *url;

	if (asprintf(&url, "%s://%.*s%s%s", tls ? "https" : "http",
		     (int)(zone ? zone - where : (long)strlen(where)), where,
		     zone ? "%25" : "", zone ? zone + 1 : "") < 0)
		return NULL;
	return url;
}

static int add_endpoint(struct sf_etcd *etcd, const char *item, bool tls,
			struct sf_err *err)
{
	struct sf_etcd_endpoint *more, *last;
	const char *why = objection(item), *end = host_end(item);

	if (why)
		return sf_err_set(err, -EINVAL, "etcd address: %s", why);
	if (!end || !host_ok(item, end) ||
	    (*end && (*end != ':' || !port_ok(end + 1))))
		return sf_err_set(err, -EINVAL,
				  "etcd address: \"%s\" is not host:port",
				  item);
	more = realloc(etcd->endpoints,
		       (etcd->nr_endpoints + 1) * sizeof(*more));
	if (!more)
		return sf_err_set(err, -ENOMEM, "out of memory");
	etcd->endpoints = more;
	last = &more[etcd->nr_endpoints];
	memset(last, 0, sizeof(*last));
	if (asprintf(&last->where, "%s%s", item, *end ? "" : ":" DEFAULT_PORT) <
	    0)
		return sf_err_set(err, -ENOMEM, "out of memory");
	etcd->nr_endpoints++;
	last->url = make_url(last->where, tls);
	return last->url ? 0 : sf_err_set(err, -ENOMEM, "out of memory");
}

static char *trim(char *item)
{
	size_t len;

	item += strspn(item, " \t");
	len = strlen(item);
	while (len && strchr(" \t", item[len - 1]))
		len--;
	if (len && item[len - 1] == '/') /* "etcd://h1:2379/" */
		len--;
	item[len] = '\0';
	return item;
}

int sf_etcd_endpoints_parse(struct sf_etcd *etcd, const char *text, bool tls,
			    struct sf_err *err)
{
	char *copy = strdup(text), *rest = copy, *item;
	int res = 0;

	if (!copy)
		return sf_err_set(err, -ENOMEM, "out of memory");
	while (!res && (item = strsep(&rest, ",;"))) {
		item = trim(item);
		if (*item)
			res = add_endpoint(etcd, item, tls, err);
	}
	free(copy);
	if (!res && !etcd->nr_endpoints)
		res = sf_err_set(err, -EINVAL, "etcd address: no host:port");
	return res;
}

void sf_etcd_endpoints_free(struct sf_etcd *etcd)
{
	unsigned int i;

	for (i = 0; i < etcd->nr_endpoints; i++) {
		free(etcd->endpoints[i].where);
		free(etcd->endpoints[i].url);
	}
	free(etcd->endpoints);
}
