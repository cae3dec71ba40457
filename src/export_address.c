/* SPDX-License-Identifier: MIT */
/* The host that an exporter publishes in rpc_meta. Asks the system for its
 * interfaces; keeps nothing. */
#include "config.h"
#include "export_address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "err.h"
#include "log.h"
#include "net.h"

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

int sf_export_address(const char *name, const char *listen,
		      const char *advertise, char **out, struct sf_err *err)
{
	const char *host = advertise;
	char found[NI_MAXHOST];

	if (!host || !*host)
		host = listen && *listen ? listen : "127.0.0.1";
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
		       "%s: only this machine can reach it", name, host);
	host = strdup(host);
	if (!host)
		return sf_err_set(err, -ENOMEM, "out of memory");
	*out = (char *)(uintptr_t)host;
	return 0;
}
