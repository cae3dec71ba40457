/* SPDX-License-Identifier: MIT */
/*
 * Options common to the mount and to segctl: the table, its defaults, the
 * checks across options, and where the password comes from. It is never an
 * option's value: those are seen by ps and end in /proc/mounts.
 */
#include "config.h"
#include "core_options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "err.h"
#include "log.h"
#include "meta.h"
#include "transport.h"

#define PASSWORD_ENV "SEGFS_ETCD_PASSWORD"
#define CLUSTER_ENV "MC_METADATA_CLUSTER_ID"

static const char *const transports[] = { "auto", "tcp", "rdma", "null",
					 NULL };

#define FIELD(f) .offset = offsetof(struct sf_core_options, f)

const struct sf_option sf_store_option_table[] = {
	{ .name = "cluster_id", .type = SF_OPT_STRING, FIELD(cluster_id),
	  .value = "ID",
	  .help = "key prefix (default $" CLUSTER_ENV ")" },
	{ .name = "ca", .type = SF_OPT_STRING, FIELD(ca_file), .value = "FILE",
	  .help = "TLS: certificates of the authorities to trust" },
	{ .name = "cert", .type = SF_OPT_STRING, FIELD(cert_file),
	  .value = "FILE", .help = "TLS: our certificate" },
	{ .name = "key", .type = SF_OPT_STRING, FIELD(key_file),
	  .value = "FILE", .help = "TLS: our certificate's key" },
	/* Bare "user" is mount(8)'s: users may mount this. */
	{ .name = "user", .type = SF_OPT_STRING, FIELD(user), .value = "NAME",
	  .zero = true, .help = "user of the metadata store" },
	{ .name = "password_file", .type = SF_OPT_STRING, FIELD(password_file),
	  .value = "FILE",
	  .help = "its password, else in $" PASSWORD_ENV },
	{ .name = "password", .type = SF_OPT_REFUSED,
	  .value = "would be seen by everybody; use password_file=FILE or "
		   "the environment variable " PASSWORD_ENV },
	{ .name = "proxy", .type = SF_OPT_FLAG, FIELD(use_proxy),
	  .help = "obey http_proxy and the like (default no)" },
	{ 0 }
};

const struct sf_option sf_core_option_table[] = {
	{ .name = "timeout", .type = SF_OPT_SECONDS, FIELD(timeout_ms),
	  .min = 100, .max = 3600000, .value = "SECONDS",
	  .help = "deadline of one request (default 5)" },
	{ .name = "connect_timeout", .type = SF_OPT_SECONDS,
	  FIELD(connect_timeout_ms), .min = 100, .max = 3600000,
	  .value = "SECONDS",
	  .help = "limit for reaching a peer or store (default 3)" },
	{ .name = "transport", .type = SF_OPT_ENUM, FIELD(transport),
	  .choices = transports, .value = "NAME",
	  .help = "auto, tcp, rdma or null (default auto: by segment)" },
	{ .name = "lanes", .type = SF_OPT_UINT, FIELD(lanes), .min = 1,
	  .max = 64, .value = "N",
	  .help = "TCP connections a peer, 1 to 64 (default 4)" },
	{ .name = "split", .type = SF_OPT_SIZE, FIELD(split), .min = 4096,
	  .max = 1 << 30, .zero = true, .value = "BYTES",
	  .help = "share larger requests among lanes (default 256K; 0 never)" },
	{ .name = "splice", .type = SF_OPT_SIZE, FIELD(splice), .min = 4096,
	  .max = 1 << 30, .zero = true, .value = "BYTES",
	  .help = "splice reads from this size up (default 64K; 0 never)" },
	{ .name = "rdma", .type = SF_OPT_TABLE, FIELD(rdma),
	  .table = sf_rdma_option_table },
	{ .name = "store", .type = SF_OPT_TABLE,
	  .table = sf_store_option_table },
	{ .name = "tcp_version", .type = SF_OPT_UINT, FIELD(tcp_version),
	  .max = 1 },
	{ 0 }
};

void sf_core_options_init(struct sf_core_options *o)
{
	*o = (struct sf_core_options){
		.timeout_ms = 5000,
		.connect_timeout_ms = 3000,
		.lanes = 4,
		.split = 256 << 10,
		.splice = 64 << 10,
	};
	sf_rdma_config_init(&o->rdma, &o->environment);
}

const char *sf_core_options_transport(const struct sf_core_options *o)
{
	return o->transport == SF_TRANSPORT_AUTO ? NULL
						 : transports[o->transport];
}

static int make_absolute(const char *name, char **path, struct sf_err *err)
{
	char *real;

	if (!*path)
		return 0;
	real = realpath(*path, NULL);
	if (!real)
		return sf_err_set(err, -EINVAL, "%s=%s: %s", name, *path,
				  strerror(errno));
	free(*path);
	*path = real;
	return 0;
}

static bool is_set(const char *s)
{
	return s && *s;
}

static int check_credentials(const struct sf_core_options *o,
			     struct sf_err *err)
{
	if (is_set(o->cert_file) != is_set(o->key_file))
		return sf_err_set(err, -EINVAL,
				  "cert and key: one without the other");
	if (is_set(o->password_file) && !is_set(o->user))
		return sf_err_set(err, -EINVAL, "password_file: needs user");
	if (is_set(o->user) && !is_set(o->password_file) &&
	    !getenv(PASSWORD_ENV))
		return sf_err_set(err, -EINVAL,
				  "user: needs password_file=FILE or the "
				  "environment variable " PASSWORD_ENV);
	return 0;
}

/* What this build cannot do is refused, not ignored. */
static int check_rdma(const struct sf_core_options *o, struct sf_err *err)
{
	const char *transport = sf_core_options_transport(o);
	const char *name = sf_rdma_config_option(&o->rdma);

	if (sf_transport_find("rdma"))
		return sf_rdma_config_check(&o->rdma, err);
	if (transport && !strcmp(transport, "rdma"))
		name = "transport=rdma";
	return name ? sf_err_set(err, -EINVAL, "%s: this segfs was built "
				 "without RDMA", name) : 0;
}

int sf_core_options_check(struct sf_core_options *o, struct sf_err *err)
{
	const char *env = getenv(CLUSTER_ENV);
	int ret = check_credentials(o, err);

	if (!ret && o->environment.code)
		ret = sf_err_set(err, o->environment.code, "%s",
				 o->environment.text);
	if (!ret)
		ret = check_rdma(o, err);
	if (!ret)
		ret = make_absolute("ca", &o->ca_file, err);
	if (!ret)
		ret = make_absolute("cert", &o->cert_file, err);
	if (!ret)
		ret = make_absolute("key", &o->key_file, err);
	if (!ret)
		ret = make_absolute("password_file", &o->password_file, err);
	if (!ret && !o->cluster_id && env) {
		o->cluster_id = strdup(env);
		if (!o->cluster_id)
			ret = sf_err_set(err, -ENOMEM, "out of memory");
	}
	return ret;
}

/* The first line of a file, without its end. */
static int read_password(const char *path, char **password, struct sf_err *err)
{
	FILE *in = fopen(path, "re");
	struct stat st;
	size_t size = 0;
	ssize_t n;

	if (!in)
		return sf_err_set(err, -errno, "password_file=%s: %s", path,
				  strerror(errno));
	if (!fstat(fileno(in), &st) && st.st_mode & 077)
		sf_log(LOG_WARNING, SF_LOG_CORE,
		       "password_file=%s: others may read it (mode %04o)",
		       path, (unsigned int)st.st_mode & 07777);
	n = getline(password, &size, in);
	fclose(in);
	if (n <= 0)
		return sf_err_set(err, -EINVAL, "password_file=%s: empty",
				  path);
	(*password)[strcspn(*password, "\r\n")] = '\0';
	return 0;
}

int sf_core_options_password(const struct sf_core_options *o, char **password,
			     struct sf_err *err)
{
	const char *env = getenv(PASSWORD_ENV);
	char *text = NULL;
	int ret = 0;

	if (!is_set(o->user)) {
		*password = NULL;
		return 0;
	}
	if (is_set(o->password_file))
		ret = read_password(o->password_file, &text, err);
	else if (!(text = strdup(env ? env : "")))
		ret = sf_err_set(err, -ENOMEM, "out of memory");
	if (ret)
		free(text);
	else
		*password = text;
	return ret;
}

int sf_core_options_open_meta(const struct sf_core_options *o,
			      const char *source, struct sf_meta **out,
			      struct sf_err *err)
{
	struct sf_meta_config config = {
		.source = source,
		.cluster_id = o->cluster_id,
		.user = o->user,
		.ca_file = o->ca_file,
		.cert_file = o->cert_file,
		.key_file = o->key_file,
		.use_proxy = o->use_proxy,
		.timeout_ms = o->timeout_ms,
		.connect_timeout_ms = o->connect_timeout_ms,
	};
	char *password;
	int ret = sf_core_options_password(o, &password, err);

	if (ret)
		return ret;
	config.password = password;
	ret = sf_meta_open(out, &config, err);
	if (password)
		explicit_bzero(password, strlen(password));
	free(password);
	return ret;
}
