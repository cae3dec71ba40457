/* SPDX-License-Identifier: MIT */
/* Which host to publish. Private to export*.c. */
#ifndef SF_EXPORT_ADDRESS_H
#define SF_EXPORT_ADDRESS_H

struct sf_err;

/*
 * The host for segment NAME's rpc_meta, malloc'ed: ADVERTISE, else LISTEN, else
 * loopback; for the any-address, the first address of a running interface.
 * -EADDRNOTAVAIL: there is none; -ENOMEM.
 */
int sf_export_address(const char *name, const char *listen,
		      const char *advertise, char **out, struct sf_err *err);

#endif
