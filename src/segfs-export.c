/* SPDX-License-Identifier: MIT */
/*
 * segfs-export: publishes memory of this process as a segment. Parses the
 * command line, starts the export, prints where its buffers are, and waits for
 * a signal; the export's own threads do the work.
 */
#include "config.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core_options.h"
#include "daemon.h"
#include "err.h"
#include "export.h"
#include "export_buffer.h"
#include "log.h"
#include "meta.h"
#include "options.h"
#include "rdma_config.h"

#define STOP_LIMIT_MS 30000
#define LEASE_DEFAULT_S 30
#define LEASE_MAX_S 86400

struct cmdline {
	struct sf_core_options core;
	int protocol;
	bool affinity;
	char *metadata, *name, *listen, *advertise, *fill, *unused;
	unsigned int rpc_port, data_port, lease_s, threads;
	bool force, json, verbose, help, version;
	struct sf_export_buffer *buffers;
	size_t nr_buffers;
};

static const char *const protocols[] = { "tcp", "rdma", "tcp,rdma", NULL };
static const unsigned int protocol_bits[] = {
	SF_EXPORT_TCP, SF_EXPORT_RDMA, SF_EXPORT_TCP | SF_EXPORT_RDMA,
};

#define FIELD(f) .offset = offsetof(struct cmdline, f)

static const struct sf_option table[] = {
	{ .name = "metadata", .type = SF_OPT_STRING, FIELD(metadata),
	  .value = "SOURCE",
	  .help = "metadata store (default $SEGFS_METADATA)" },
	{ .name = "name", .type = SF_OPT_STRING, FIELD(name), .value = "NAME",
	  .help = "segment name" },
	/* Taken out before the table is asked: it may be repeated. */
	{ .name = "buffer", .type = SF_OPT_STRING, FIELD(unused),
	  .value = "PARTS", .help = "a buffer to export, see below; again "
				    "for each" },
	{ .name = "protocol", .type = SF_OPT_ENUM, FIELD(protocol),
	  .choices = protocols, .value = "NAME",
	  .help = "tcp (default), rdma, or tcp,rdma: NAME and NAME-rdma" },
	{ .name = "fill", .type = SF_OPT_STRING, FIELD(fill),
	  .value = "PATTERN",
	  .help = "for anonymous buffers that do not say" },
	{ .name = "listen", .type = SF_OPT_STRING, FIELD(listen),
	  .value = "ADDRESS",
	  .help = "bind to this address (default 127.0.0.1)" },
	{ .name = "advertise", .type = SF_OPT_STRING, FIELD(advertise),
	  .value = "HOST",
	  .help = "publish this host (default: what --listen says)" },
	{ .name = "rpc_port", .type = SF_OPT_UINT, FIELD(rpc_port),
	  .max = 65535, .value = "PORT",
	  .help = "handshake port (default: any of 15000-17000)" },
	{ .name = "data_port", .type = SF_OPT_UINT, FIELD(data_port),
	  .max = 65535, .value = "PORT",
	  .help = "data port (default: any of 15000-17000)" },
	{ .name = "lease", .type = SF_OPT_UINT, FIELD(lease_s),
	  .max = LEASE_MAX_S, .value = "SECONDS",
	  .help = "a killed exporter vanishes after (default 30; 0 never)" },
	{ .name = "force", .type = SF_OPT_FLAG, FIELD(force),
	  .help = "take the name even from an owner that answers" },
	{ .name = "threads", .type = SF_OPT_UINT, FIELD(threads), .max = 256,
	  .value = "N", .help = "data threads (default: one per CPU)" },
	{ .name = "rdma", .type = SF_OPT_TABLE, FIELD(core.rdma),
	  .table = sf_rdma_device_option_table },
	{ .name = "affinity", .type = SF_OPT_FLAG, FIELD(affinity),
	  .help = "prefer devices on a buffer's NUMA node" },
	{ .name = "json", .type = SF_OPT_FLAG, FIELD(json),
	  .help = "print one JSON object" },
	{ .name = "verbose", .type = SF_OPT_FLAG, FIELD(verbose),
	  .help = "log more" },
	{ .name = "store", .type = SF_OPT_TABLE, FIELD(core),
	  .table = sf_store_option_table },
	{ .name = "help", .type = SF_OPT_FLAG, FIELD(help),
	  .help = "print this and exit" },
	{ .name = "version", .type = SF_OPT_FLAG, FIELD(version),
	  .help = "print the version and exit" },
	{ 0 }
};

/* ---- the command line ---- */

static void print_help(void)
{
	fputs("Usage: segfs-export --metadata=SOURCE --name=NAME "
	      "--buffer=PARTS... [options]\n"
	      "Publish memory as a segment that Mooncake Transfer Engine and "
	      "segfs\ncan read and write.\n"
	      "\n", stdout);
	sf_option_help(table, "--", stdout);
	fputs("\nParts of a buffer, separated by commas:\n", stdout);
	sf_option_help(sf_export_buffer_table, "", stdout);
	fputs("\nExample: segfs-export --metadata=etcd://127.0.0.1:2379 "
	      "--name=demo \\\n\t\t--buffer=size=1G,location=cpu:0\n", stdout);
}

/* --fill is for anonymous memory: never written into a file unasked. */
static int parse_buffer(const struct cmdline *c, const char *text,
			struct sf_export_buffer *out, struct sf_err *err)
{
	char *filled;
	int res = sf_export_buffer_parse(text, out, err);

	if (res || !c->fill || out->source != SF_EXPORT_ANON)
		return res;
	sf_export_buffer_fini(out);
	if (asprintf(&filled, "fill=%s,%s", c->fill, text) < 0)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = sf_export_buffer_parse(filled, out, err);
	free(filled);
	return res;
}

static int parse_buffers(struct cmdline *c, char **texts, size_t nr,
			 struct sf_err *err)
{
	int res;

	c->buffers = calloc(nr + 1, sizeof(*c->buffers));
	if (!c->buffers)
		return sf_err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < nr; i++) {
		res = parse_buffer(c, texts[i], &c->buffers[i], err);
		if (res) {
			sf_err_prefix(err, "--buffer=%s", texts[i]);
			return res;
		}
		c->nr_buffers++;
	}
	return 0;
}

/* Move the --buffer options from ARGV to TEXTS; the rest closes up. */
static int take_buffers(int *argc, char **argv, char **texts, size_t *nr,
			struct sf_err *err)
{
	int out = 1;

	for (int i = 1; i < *argc; i++) {
		if (!strncmp(argv[i], "--buffer=", 9)) {
			texts[(*nr)++] = argv[i] + 9;
		} else if (!strcmp(argv[i], "--buffer")) {
			if (++i == *argc)
				return sf_err_set(err, -EINVAL, "--buffer "
						  "needs a value");
			texts[(*nr)++] = argv[i];
		} else {
			argv[out++] = argv[i];
		}
	}
	*argc = out;
	return 0;
}

static int check(struct cmdline *c, struct sf_err *err)
{
	const char *env = getenv("SEGFS_METADATA");

	if (!c->metadata && env && *env)
		c->metadata = strdup(env);
	if (!c->metadata || !*c->metadata)
		return sf_err_set(err, -EINVAL, "--metadata=SOURCE is missing");
	if (!c->name || !*c->name)
		return sf_err_set(err, -EINVAL, "--name=NAME is missing");
	if (!c->nr_buffers)
		return sf_err_set(err, -EINVAL, "--buffer=PARTS is missing");
	return sf_core_options_check(&c->core, err);
}

static int parse(struct cmdline *c, int argc, char **argv, struct sf_err *err)
{
	char **texts = calloc((size_t)argc + 1, sizeof(*texts));
	size_t nr = 0;
	int res, next = 1;

	if (!texts)
		return sf_err_set(err, -ENOMEM, "out of memory");
	res = take_buffers(&argc, argv, texts, &nr, err);
	if (!res)
		res = sf_option_parse_args(table, c, argc, argv, &next, err);
	if (!res && next < argc && !strcmp(argv[next], "-h"))
		c->help = true;
	else if (!res && next < argc && !strcmp(argv[next], "-V"))
		c->version = true;
	else if (!res && next < argc)
		res = sf_err_set(err, -EINVAL, "unexpected \"%s\"",
				 argv[next]);
	if (!res && !c->help && !c->version) {
		res = parse_buffers(c, texts, nr, err);
		if (!res)
			res = check(c, err);
	}
	free(texts);
	return res;
}

static void cmdline_fini(struct cmdline *c)
{
	for (size_t i = 0; i < c->nr_buffers; i++)
		sf_export_buffer_fini(&c->buffers[i]);
	free(c->buffers);
	sf_option_free(table, c);
}

/* ---- output ---- */

static bool print_lines(const struct sf_export *x)
{
	struct sf_export_info info;

	for (size_t i = 0; sf_export_info(x, i, &info); i++)
		printf("0x%" PRIx64 " %" PRIu64 " %s%s\n", info.addr,
		       info.length, info.location,
		       info.read_only ? " ro" : "");
	puts("ready");
	return fflush(stdout) == 0;
}

static cJSON *describe_buffers(const struct sf_export *x)
{
	cJSON *list = cJSON_CreateArray();
	struct sf_export_info info;
	char addr[24];

	for (size_t i = 0; sf_export_info(x, i, &info); i++) {
		cJSON *b = cJSON_CreateObject();

		snprintf(addr, sizeof(addr), "0x%" PRIx64, info.addr);
		cJSON_AddStringToObject(b, "address", addr);
		/* Below 2^53, as any mapping is: a double holds it. */
		cJSON_AddNumberToObject(b, "length", (double)info.length);
		cJSON_AddStringToObject(b, "location", info.location);
		cJSON_AddBoolToObject(b, "read_only", info.read_only);
		cJSON_AddItemToArray(list, b);
	}
	return list;
}

static cJSON *describe_segments(const struct sf_export *x)
{
	cJSON *list = cJSON_CreateArray();
	const char *name, *protocol;

	for (size_t i = 0; (name = sf_export_segment(x, i, &protocol)); i++) {
		cJSON *s = cJSON_CreateObject();

		cJSON_AddStringToObject(s, "name", name);
		cJSON_AddStringToObject(s, "protocol", protocol);
		cJSON_AddItemToArray(list, s);
	}
	return list;
}

static bool print_json(const struct cmdline *c, const struct sf_export *x)
{
	cJSON *root = cJSON_CreateObject();
	char *text;

	cJSON_AddStringToObject(root, "name", c->name);
	cJSON_AddNumberToObject(root, "rpc_port", sf_export_rpc_port(x));
	cJSON_AddNumberToObject(root, "data_port", sf_export_data_port(x));
	cJSON_AddItemToObject(root, "segments", describe_segments(x));
	cJSON_AddItemToObject(root, "buffers", describe_buffers(x));
	cJSON_AddBoolToObject(root, "ready", true);
	text = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	if (text)
		puts(text);
	free(text);
	return text && fflush(stdout) == 0;
}

/* ---- running ---- */

static int fail(int status, const char *text)
{
	fprintf(stderr, "segfs-export: %s\n", text);
	return status;
}

static int misuse(const char *text)
{
	fprintf(stderr, "segfs-export: %s\nTry 'segfs-export --help'.\n",
		text);
	return SF_EXIT_USAGE;
}

static int start_status(int code)
{
	switch (code) {
	case -EINVAL:
		return SF_EXIT_USAGE;
	case -EMSGSIZE:
		return SF_EXIT_META;
	default:
		return SF_EXIT_FAILURE;
	}
}

static void set_up_log(const struct cmdline *c)
{
	const char *debug = getenv("SEGFS_DEBUG");
	unsigned int mask = 0;

	if (c->verbose)
		atomic_store(&sf_log_level, LOG_INFO);
	if (debug && sf_log_parse_mask(debug, &mask) == 0)
		atomic_store(&sf_log_debug_mask, mask);
}

static void raise_limit(int what)
{
	struct rlimit limit;

	if (getrlimit(what, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(what, &limit);
	}
}

/* Every client is a descriptor; what a device may write stays in memory. */
static void raise_limits(void)
{
	raise_limit(RLIMIT_NOFILE);
	raise_limit(RLIMIT_MEMLOCK);
}

static void on_signal(void *arg)
{
	sem_post(arg);
}

static void wait_for_signal(struct sf_signals *signals, sem_t *told)
{
	sf_daemon_notify("READY=1");
	while (sem_wait(told) < 0 && errno == EINTR)
		;
	sf_signals_set_stop(signals, NULL, NULL);
}

static int serve(const struct cmdline *c, struct sf_meta *meta,
		 struct sf_signals *signals, struct sf_err *err)
{
	struct sf_export_config config = {
		.meta = meta,
		.name = c->name,
		.protocols = protocol_bits[c->protocol],
		.rdma = &c->core.rdma,
		.affinity = c->affinity,
		.listen = c->listen,
		.advertise = c->advertise,
		.rpc_port = (uint16_t)c->rpc_port,
		.data_port = (uint16_t)c->data_port,
		.lease_s = c->lease_s,
		.force = c->force,
		.threads = c->threads,
		.buffers = c->buffers,
		.nr_buffers = c->nr_buffers,
	};
	struct sf_export *x = NULL;
	sem_t told;
	int res;

	sem_init(&told, 0, 0);
	/* From here on keys may be in the store: no dying at once. */
	sf_signals_set_stop(signals, on_signal, &told);
	res = sf_export_start(&x, &config, err);
	if (res < 0) {
		sf_signals_set_stop(signals, NULL, NULL);
		sem_destroy(&told);
		return start_status(res);
	}
	if (c->json ? print_json(c, x) : print_lines(x)) {
		wait_for_signal(signals, &told);
		res = SF_EXIT_OK;
	} else {
		sf_signals_set_stop(signals, NULL, NULL);
		sf_err_set(err, -EIO, "cannot write to standard output");
		res = SF_EXIT_FAILURE;
	}
	sf_export_stop(x);
	sem_destroy(&told);
	return res;
}

static int run(const struct cmdline *c)
{
	struct sf_signals *signals = NULL;
	struct sf_meta *meta = NULL;
	struct sf_err err = { 0 };
	int res, status;

	set_up_log(c);
	raise_limits();
	res = sf_signals_new(&signals, STOP_LIMIT_MS);
	if (res < 0)
		return fail(SF_EXIT_FAILURE, strerror(-res));
	res = sf_core_options_open_meta(&c->core, c->metadata, &meta, &err);
	if (res == -EINVAL)
		status = SF_EXIT_USAGE;
	else if (res < 0)
		status = SF_EXIT_META;
	else
		status = serve(c, meta, signals, &err);
	sf_meta_close(meta);
	sf_signals_free(signals);
	return status ? fail(status, err.text) : status;
}

int main(int argc, char **argv)
{
	struct cmdline c = { .lease_s = LEASE_DEFAULT_S };
	struct sf_err err = { 0 };
	int status = SF_EXIT_OK;

	sf_core_options_init(&c.core);
	if (parse(&c, argc, argv, &err) < 0)
		status = misuse(err.text);
	else if (c.help)
		print_help();
	else if (c.version)
		puts("segfs-export " PACKAGE_VERSION);
	else
		status = run(&c);
	cmdline_fini(&c);
	return status;
}
