/* SPDX-License-Identifier: MIT */
/*
 * The options that segfs (as -o name=value) and segctl (as --name=value) share:
 * metadata store, deadlines, transport.
 */
#ifndef SF_CORE_OPTIONS_H
#define SF_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "options.h"
#include "rdma_config.h"

struct sf_meta;

enum sf_transport_choice {
	SF_TRANSPORT_AUTO,	/* by the descriptor's protocol */
	SF_TRANSPORT_TCP,
	SF_TRANSPORT_RDMA,
	SF_TRANSPORT_NULL,
};

struct sf_core_options {
	char *cluster_id;	/* NULL: MC_METADATA_CLUSTER_ID, or none */
	char *ca_file, *cert_file, *key_file;
	char *user, *password_file;
	bool use_proxy;
	unsigned int timeout_ms;
	unsigned int connect_timeout_ms;
	int transport;		/* enum sf_transport_choice */
	unsigned int lanes;
	size_t split, splice;
	unsigned int tcp_version;
	struct sf_rdma_config rdma;
	struct sf_err environment;	/* what is wrong with its variables */
};

/* For an SF_OPT_TABLE row. The store's part alone is for programs that have no
 * transfers; its struct is the same. */
extern const struct sf_option sf_core_option_table[];
extern const struct sf_option sf_store_option_table[];

void sf_core_options_init(struct sf_core_options *o);

/* What no single option can tell is wrong; paths become absolute, so that the
 * working directory may change afterwards. -EINVAL with a sentence. */
int sf_core_options_check(struct sf_core_options *o, struct sf_err *err);

/* The name of the transport to use for everything; NULL is auto. */
const char *sf_core_options_transport(const struct sf_core_options *o);

/* The password, from password_file or the environment; malloc'ed, for the
 * caller to wipe. *PASSWORD is NULL when there is no user. -EINVAL, -ENOMEM and
 * the errors of open(2). */
int sf_core_options_password(const struct sf_core_options *o, char **password,
			     struct sf_err *err);

/* Open the metadata store SOURCE; the errors of sf_meta_open() and of
 * sf_core_options_password(). */
int sf_core_options_open_meta(const struct sf_core_options *o,
			      const char *source, struct sf_meta **out,
			      struct sf_err *err);

#endif
