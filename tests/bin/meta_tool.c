/* SPDX-License-Identifier: MIT */
/*
 * A metadata store on the command line, for the tests of the backends:
 *
 *	meta-tool SOURCE [OPTION=VALUE...] COMMAND [ARGUMENT...]
 *
 * Options: cluster, user, password, ca, cert, key, proxy, timeout (ms). Errors
 * are one line on stderr, "ENAME: text", and exit status 1.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blob.h"
#include "err.h"
#include "meta.h"

static int fail(const struct sf_err *err, int res)
{
	fprintf(stderr, "%s: %s\n", strerrorname_np(-res), err->text);
	return 1;
}

static int cmd_open(struct sf_meta *meta, char **argv)
{
	printf("%s\n", sf_meta_describe(meta));
	return 0;
}

static void print_blob(const char *what, struct sf_blob *blob)
{
	if (!blob) {
		printf("%s missing\n", what);
		return;
	}
	printf("%s %zu ", what, blob->len);
	fwrite(blob->data, 1, blob->len < 200 ? blob->len : 200, stdout);
	printf("\n");
	sf_blob_put(blob);
}

static int cmd_get(struct sf_meta *meta, char **argv)
{
	struct sf_blob *segment = NULL, *rpc = NULL;
	struct sf_err err = { 0 };
	int res = sf_meta_get(meta, argv[0], &segment, &rpc, &err);

	if (res)
		return fail(&err, res);
	print_blob("segment", segment);
	print_blob("rpc", rpc);
	return 0;
}

/* get every argument SECONDS apart, saying what happened to each. */
static int cmd_gets(struct sf_meta *meta, char **argv)
{
	struct timespec pause = { 0 };
	double seconds = atof(*argv++);

	pause.tv_sec = (time_t)seconds;
	pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
	for (; *argv; argv++) {
		cmd_get(meta, argv);
		fflush(stdout);
		if (argv[1])
			nanosleep(&pause, NULL);
	}
	return 0;
}

static int print_name(void *arg, const char *name, bool rpc_only)
{
	printf("%s%s\n", name, rpc_only ? " (rpc only)" : "");
	return 0;
}

static int cmd_list(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	unsigned int skipped;
	int res = sf_meta_list(meta, print_name, NULL, &skipped, &err);

	if (res)
		return fail(&err, res);
	if (skipped)
		printf("skipped %u\n", skipped);
	return 0;
}

static enum sf_meta_kind kind_of(const char *text)
{
	return strcmp(text, "rpc") ? SF_META_SEGMENT : SF_META_RPC;
}

/* put KIND NAME VALUE [LEASE]; @SIZE is a value of that many bytes */
static int cmd_put(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	char *value = argv[2], *big = NULL;
	size_t len = strlen(value);
	int64_t lease = argv[3] ? strtoll(argv[3], NULL, 10) : 0;
	int res;

	if (*value == '@') {
		len = strtoul(value + 1, NULL, 10);
		value = big = malloc(len + 1);
		memset(big, 'x', len);
	}
	res = sf_meta_put(meta, kind_of(argv[0]), argv[1], value, len, lease,
			  &err);
	free(big);
	return res ? fail(&err, res) : 0;
}

static int cmd_del(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	int res = sf_meta_delete(meta, kind_of(argv[0]), argv[1], &err);

	return res ? fail(&err, res) : 0;
}

static int cmd_grant(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	int64_t lease;
	int res = sf_meta_lease_grant(meta, (unsigned int)atoi(argv[0]),
				      &lease, &err);

	if (res)
		return fail(&err, res);
	printf("%" PRId64 "\n", lease);
	return 0;
}

static int cmd_keepalive(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	int res = sf_meta_lease_keepalive(meta, strtoll(argv[0], NULL, 10),
					  &err);

	return res ? fail(&err, res) : 0;
}

static int cmd_revoke(struct sf_meta *meta, char **argv)
{
	struct sf_err err = { 0 };
	int res = sf_meta_lease_revoke(meta, strtoll(argv[0], NULL, 10), &err);

	return res ? fail(&err, res) : 0;
}

static void on_event(void *arg, enum sf_meta_event event, const char *name,
		     const char *text)
{
	static const char *const names[] = { "sync", "changed", "lost" };
	const char *more = name ? name : text;

	printf("%s%s%s\n", names[event], more ? " " : "", more ? more : "");
	fflush(stdout);
}

/* Until SIGTERM, or for so many SECONDS. */
static int cmd_watch(struct sf_meta *meta, char **argv)
{
	struct timespec limit = { .tv_sec = atoi(argv[0]) };
	struct sf_err err = { 0 };
	sigset_t set;
	int res;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	res = sf_meta_watch(meta, on_event, NULL, &err);
	if (res)
		return fail(&err, res);
	sigtimedwait(&set, NULL, &limit);
	return 0;
}

static const struct {
	const char *name;
	int nr_args;
	int (*fn)(struct sf_meta *meta, char **argv);
} commands[] = {
	{ "open", 0, cmd_open },	   { "get", 1, cmd_get },
	{ "gets", 2, cmd_gets },	   { "list", 0, cmd_list },
	{ "put", 3, cmd_put },		   { "del", 2, cmd_del },
	{ "grant", 1, cmd_grant },	   { "keepalive", 1, cmd_keepalive },
	{ "revoke", 1, cmd_revoke },	   { "watch", 1, cmd_watch },
};

static bool set_option(struct sf_meta_config *config, const char *word)
{
	const struct {
		const char *name;
		const char **field;
	} fields[] = {
		{ "cluster=", &config->cluster_id },
		{ "user=", &config->user },
		{ "password=", &config->password },
		{ "ca=", &config->ca_file },
		{ "cert=", &config->cert_file },
		{ "key=", &config->key_file },
	};
	size_t i, len;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		len = strlen(fields[i].name);
		if (!strncmp(word, fields[i].name, len)) {
			*fields[i].field = word + len;
			return true;
		}
	}
	if (!strncmp(word, "timeout=", 8))
		config->timeout_ms = (unsigned int)atoi(word + 8);
	else if (!strcmp(word, "proxy=yes"))
		config->use_proxy = true;
	else
		return false;
	return true;
}

static int run_command(struct sf_meta *meta, int argc, char **argv)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[0], commands[i].name) &&
		    argc > commands[i].nr_args)
			return commands[i].fn(meta, argv + 1);
	fprintf(stderr, "meta-tool: no such command, or too few words\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct sf_meta_config config = { 0 };
	struct sf_err err = { 0 };
	struct sf_meta *meta;
	int res, i = 2;

	if (argc < 3) {
		fprintf(stderr, "usage: meta-tool SOURCE [OPTION=VALUE...] "
				"COMMAND [ARGUMENT...]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	config.source = argv[1];
	while (i < argc - 1 && set_option(&config, argv[i]))
		i++;
	res = sf_meta_open(&meta, &config, &err);
	if (res)
		return fail(&err, res);
	res = run_command(meta, argc - i, argv + i);
	sf_meta_close(meta);
	return res;
}
