/* SPDX-License-Identifier: MIT */
/*
 * segfs: mounts a metadata store's segments. Parses the command line, goes to
 * the background before anything that does not survive a fork is made, builds
 * context and mount, serves, takes everything down. Also mount(8)'s helper:
 * "mount.fuse.segfs SOURCE DIR [-sfnv] [-o options] [-t type]".
 */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "context.h"
#include "daemon.h"
#include "err.h"
#include "fs/fs.h"
#include "log.h"
#include "meta.h"
#include "mount_options.h"
#include "options.h"

/* How long the parent waits beyond the deadlines of the metadata store. */
#define START_SLACK_MS 20000
#define STOP_LIMIT_MS 5000
#define INTERRUPT_GRACE_MS 1000
#define WATCHED_TIMEOUT_MS 60000
#define NEGATIVE_TIMEOUT_MS 500
#define NR_PIPES 64

struct cmdline {
	struct sf_mount_options mount;
	const char *source, *mountpoint;
	char *where;		/* the mountpoint, absolute */
	bool foreground, debug, verbose;
	bool helper;		/* called as mount.* */
	bool fake;		/* mount -f: all but the mount */
};

struct daemon {
	const struct cmdline *cmd;
	struct sf_background *bg;	/* NULL in the foreground */
	struct sf_signals *signals;
	struct sf_context *ctx;
	struct sf_fs *fs;
};

static void print_help(void)
{
	fputs("Usage: segfs [options] SOURCE MOUNTPOINT\n"
	      "Mount memory registered with Mooncake Transfer Engine as "
	      "files.\n"
	      "\n"
	      "SOURCE is the metadata store that Mooncake uses, such as "
	      "etcd://HOST:2379.\n"
	      "\n"
	      "  -o OPTION[,OPTION...]     mount options, see below\n"
	      "  -f                        stay in the foreground\n"
	      "  -d                        foreground, log every request\n"
	      "  -v                        log more\n"
	      "  -s, -n, -t TYPE           accepted for mount(8), no effect\n"
	      "  -h, --help                print this and exit\n"
	      "  -V, --version             print the version and exit\n"
	      "\n"
	      "Mount options:\n", stdout);
	sf_option_help(sf_mount_option_table, "-o ", stdout);
	fputs("\nUnmount with: fusermount3 -u MOUNTPOINT\n", stdout);
}

static int misuse(const char *text)
{
	fprintf(stderr, "segfs: %s\nTry 'segfs --help'.\n", text);
	return SF_EXIT_USAGE;
}

static int add_operand(struct cmdline *c, const char *text, struct sf_err *err)
{
	if (!c->source)
		c->source = text;
	else if (!c->mountpoint)
		c->mountpoint = text;
	else
		return sf_err_set(err, -EINVAL, "extra operand \"%s\"", text);
	return 0;
}

static void set_letter(struct cmdline *c, int letter)
{
	if (letter == 'f' && c->helper)
		c->fake = true;
	else if (letter == 'f')
		c->foreground = true;
	else if (letter == 'd')
		c->foreground = c->debug = true;
	else if (letter == 'v')
		c->verbose = true;
}

/* 0; 1: --help or --version, done; or a negative errno. */
static int parse(struct cmdline *c, int argc, char **argv, struct sf_err *err)
{
	static const struct option longs[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 }
	};
	int letter, ret = 0;

	opterr = 0;
	/* "-": operands may stand anywhere, also under POSIXLY_CORRECT. */
	while (!ret && (letter = getopt_long(argc, argv, "-:dfhno:st:vV",
					     longs, NULL)) != -1) {
		if (letter == 1) {
			ret = add_operand(c, optarg, err);
		} else if (letter == 'o') {
			ret = sf_mount_options_parse(&c->mount, optarg, err);
		} else if (letter == 'h') {
			print_help();
			return 1;
		} else if (letter == 'V') {
			puts("segfs " PACKAGE_VERSION);
			return 1;
		} else if (letter == ':') {
			ret = sf_err_set(err, -EINVAL, "%s: needs a value",
					 argv[optind - 1]);
		} else if (letter == '?') {
			ret = sf_err_set(err, -EINVAL, "unknown option %s",
					 argv[optind - 1]);
		} else {
			set_letter(c, letter);
		}
	}
	while (!ret && optind < argc)
		ret = add_operand(c, argv[optind++], err);
	if (!ret && !c->mountpoint)
		ret = sf_err_set(err, -EINVAL, "no %s given",
				 c->source ? "mountpoint" : "source");
	return ret ? ret : sf_mount_options_check(&c->mount, err);
}

/* Before anything is started, so that its sentence is the only one. */
static int check_mountpoint(struct cmdline *c, struct sf_err *err)
{
	struct stat st;

	if (stat(c->mountpoint, &st) < 0 && errno == ENOTCONN)
		return sf_err_set(err, -ENOTCONN,
				  "%s: a dead mount is in the way; type: "
				  "fusermount3 -uz %s", c->mountpoint,
				  c->mountpoint);
	c->where = realpath(c->mountpoint, NULL);
	if (!c->where || stat(c->where, &st) < 0)
		return sf_err_set(err, -errno, "%s: %s", c->mountpoint,
				  strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return sf_err_set(err, -ENOTDIR, "%s: %s", c->mountpoint,
				  strerror(ENOTDIR));
	return 0;
}

static int set_up_log(const struct cmdline *c, struct sf_err *err)
{
	const char *env = getenv("SEGFS_DEBUG");
	unsigned int mask = 0;

	if (env && sf_log_parse_mask(env, &mask) < 0)
		return sf_err_set(err, -EINVAL,
				  "SEGFS_DEBUG=%s: no such module; there are "
				  "core, meta, tcp, rdma, fs and all", env);
	if (c->debug && !mask)
		mask = ~0u;
	sf_log_debug_mask = mask;
	if (c->verbose || mask)
		sf_log_level = LOG_INFO;
	return 0;
}

static unsigned int read_sysctl(const char *path)
{
	FILE *in = fopen(path, "re");
	unsigned int v = 0;

	if (!in)
		return 0;
	if (fscanf(in, "%u", &v) != 1)
		v = 0;
	fclose(in);
	return v;
}

/* The kernel's own limit (6.15 and newer) aborts the whole mount, not the one
 * request, so ours has to come first. */
static void check_kernel_limit(const char *name, unsigned int timeout_ms)
{
	char path[64];
	unsigned int limit_s;

	snprintf(path, sizeof(path), "/proc/sys/fs/fuse/%s", name);
	limit_s = read_sysctl(path);
	if (limit_s && limit_s * 1000ull <= timeout_ms + INTERRUPT_GRACE_MS)
		sf_log(LOG_WARNING, SF_LOG_CORE,
		       "fs.fuse.%s is %u s: the kernel gives up the whole "
		       "mount when one request takes that long; raise it, or "
		       "lower timeout= (%g s)", name, limit_s,
		       timeout_ms / 1000.0);
}

static int open_context(struct daemon *d, enum sf_exit *status,
			struct sf_err *err)
{
	const struct sf_mount_options *m = &d->cmd->mount;
	struct sf_context_config config = {
		.source = d->cmd->source,
		.options = &m->core,
		.pool_bytes = m->pool,
		.buf_bytes = SF_FS_IOBUF_BYTES,
		.nr_pipes = NR_PIPES,
		.ttl_ms = m->entry_timeout_ms,
		.negative_ttl_ms = NEGATIVE_TIMEOUT_MS,
		.watch = m->watch,
	};

	return sf_context_new(&d->ctx, &config, status, err);
}

static char *options_text(const struct sf_mount_options *m)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	sf_option_print(sf_mount_option_table, m, out);
	fclose(out);
	return text;
}

static void set_fs_config(struct sf_fs_config *f, const struct daemon *d)
{
	const struct sf_mount_options *m = &d->cmd->mount;

	*f = (struct sf_fs_config){
		.directory = d->ctx->directory,
		.engine = d->ctx->engine,
		.pool = d->ctx->pool,
		.pipes = d->ctx->pipes,
		.timers = d->ctx->timers,
		.workers = d->ctx->workers,
		.source = sf_meta_describe(d->ctx->meta),
		.mountpoint = d->cmd->where,
		.read_only = m->read_only,
		.allow_other = m->allow_other,
		.uid = m->uid,
		.gid = m->gid,
		.fmask = m->fmask,
		.dmask = m->dmask,
		.entry_timeout_ms = m->entry_timeout_ms,
		.attr_timeout_ms = m->attr_timeout_ms,
		.negative_timeout_ms = NEGATIVE_TIMEOUT_MS,
		.watched_timeout_ms = WATCHED_TIMEOUT_MS,
		.threads = m->threads,
		.timeout_ms = m->core.timeout_ms,
		.interrupt_grace_ms = INTERRUPT_GRACE_MS,
		.blksize = m->blksize,
		.truncate = (enum sf_fs_truncate)m->truncate,
		.mmap = (enum sf_fs_mmap)m->mmap,
		.debug = d->cmd->debug,
	};
}

static int mount_fs(struct daemon *d, struct sf_err *err)
{
	char kernel[SF_KERNEL_OPTIONS_MAX];
	char *text = options_text(&d->cmd->mount);
	struct sf_fs_config config;
	int ret;

	if (!text)
		return sf_err_set(err, -ENOMEM, "out of memory");
	set_fs_config(&config, d);
	sf_mount_options_kernel(&d->cmd->mount, kernel);
	config.kernel_options = kernel;
	config.options_text = text;
	ret = sf_fs_mount(&d->fs, &config, err);
	free(text);
	return ret;
}

static int start(struct daemon *d, enum sf_exit *status, struct sf_err *err)
{
	const struct sf_core_options *o = &d->cmd->mount.core;
	int ret;

	*status = SF_EXIT_FAILURE;
	ret = sf_signals_new(&d->signals, STOP_LIMIT_MS);
	if (ret)
		return sf_err_set(err, ret, "cannot start threads: %s",
				  strerror(-ret));
	check_kernel_limit("default_request_timeout", o->timeout_ms);
	check_kernel_limit("max_request_timeout", o->timeout_ms);
	ret = open_context(d, status, err);
	if (ret)
		return ret;
	/* From here on a mount could be left behind: no sudden end. */
	sf_signals_set_stop(d->signals, NULL, NULL);
	*status = SF_EXIT_MOUNT;
	return mount_fs(d, err);
}

static void stop(void *arg)
{
	sf_fs_stop(arg);
}

/* The mount answers. */
static void ready(void *arg)
{
	struct daemon *d = arg;
	char state[64];

	if (d->bg && sf_background_detach(d->bg, "segfs") < 0) {
		sf_log(LOG_ERR, SF_LOG_CORE, "stopped while mounting");
		sf_fs_stop(d->fs);
	}
	d->bg = NULL;
	snprintf(state, sizeof(state), "READY=1\nMAINPID=%ld", (long)getpid());
	sf_daemon_notify(state);
}

static void finish(struct daemon *d)
{
	if (d->signals)
		sf_signals_set_stop(d->signals, NULL, NULL);
	sf_fs_free(d->fs);
	sf_context_free(d->ctx);
	sf_signals_free(d->signals);
}

/* One place says why, wherever that has to go. */
static int end(struct daemon *d, enum sf_exit status, const char *text)
{
	if (d->bg)
		sf_background_fail(d->bg, status, text);
	else
		sf_log(LOG_ERR, SF_LOG_CORE, "%s", text);
	d->bg = NULL;
	return status;
}

static int serve(struct daemon *d)
{
	char text[128];
	int ret;

	sf_signals_set_stop(d->signals, stop, d->fs);
	ret = sf_fs_run(d->fs, ready, d);
	sf_signals_set_stop(d->signals, NULL, NULL);
	if (ret) {
		snprintf(text, sizeof(text), "the mount broke: %s",
			 strerror(-ret));
		return end(d, SF_EXIT_MOUNT, text);
	}
	if (d->bg)
		return end(d, SF_EXIT_MOUNT,
			   "unmounted before the mount was complete");
	return SF_EXIT_OK;
}

static int run(const struct cmdline *c)
{
	struct daemon d = { .cmd = c };
	enum sf_exit status;
	struct sf_err err;
	int exit_status;

	if (!c->foreground &&
	    sf_background_fork(&d.bg, c->mount.core.timeout_ms +
			       c->mount.core.connect_timeout_ms +
			       START_SLACK_MS, &err) < 0)
		return end(&d, SF_EXIT_FAILURE, err.text);
	if (!c->debug)
		prctl(PR_SET_DUMPABLE, 0);
	if (start(&d, &status, &err) < 0)
		exit_status = end(&d, status, err.text);
	else
		exit_status = serve(&d);
	finish(&d);
	return exit_status;
}

int main(int argc, char **argv)
{
	struct cmdline c = { 0 };
	struct sf_err err;
	int ret;

	sf_mount_options_init(&c.mount);
	c.helper = !strncmp(program_invocation_short_name, "mount.", 6);
	program_invocation_short_name = (char *)"segfs";
	ret = parse(&c, argc, argv, &err);
	if (!ret)
		ret = set_up_log(&c, &err);
	if (ret < 0) {
		ret = misuse(err.text);
	} else if (ret) {
		ret = fflush(stdout) ? SF_EXIT_FAILURE : SF_EXIT_OK;
	} else if (check_mountpoint(&c, &err) < 0) {
		fprintf(stderr, "segfs: %s\n", err.text);
		ret = SF_EXIT_MOUNT;
	} else {
		ret = c.fake ? SF_EXIT_OK : run(&c);
	}
	free(c.where);
	sf_mount_options_fini(&c.mount);
	return ret;
}
