/* SPDX-License-Identifier: MIT */
/*
 * segctl: the transfers of segfs without a mount. This file has the command
 * line and its tables; the commands are in segctl_*.c. The main thread waits,
 * the core's threads work.
 */
#include "config.h"
#include "segctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "options.h"

#define ARGS_MAX 3

static const char *const ops[] = { "read", "write", NULL };
static const char *const orders[] = { "seq", "random", NULL };

#define FIELD(f) .offset = offsetof(struct segctl, f)

#define DEPTH_OPTION                                                        \
	{ .name = "depth", .type = SF_OPT_UINT, FIELD(depth), .min = 1,     \
	  .max = 256, .value = "N",                                         \
	  .help = "transfers in flight, 1 to 256 (default 8)" }

static const struct sf_option common_table[] = {
	{ .name = "metadata", .type = SF_OPT_STRING, FIELD(metadata),
	  .value = "SOURCE",
	  .help = "metadata store (default $SEGFS_METADATA)" },
	{ .name = "core", .type = SF_OPT_TABLE, FIELD(core),
	  .table = sf_core_option_table },
	{ 0 }
};

static const struct sf_option json_option = {
	.name = "json", .type = SF_OPT_FLAG, FIELD(json),
	.help = "print JSON"
};

static const struct sf_option ls_table[] = {
	{ .name = "details", .type = SF_OPT_FLAG, FIELD(details),
	  .help = "what each listed segment holds, not only its name" },
	json_option,
	{ 0 }
};

static const struct sf_option get_table[] = {
	DEPTH_OPTION,
	{ .name = "output", .type = SF_OPT_STRING, FIELD(output),
	  .value = "FILE", .help = "write there, not to stdout; also -o FILE" },
	{ .name = "quiet", .type = SF_OPT_FLAG, FIELD(quiet),
	  .help = "no progress on a terminal" },
	{ 0 }
};

static const struct sf_option put_table[] = {
	DEPTH_OPTION,
	{ .name = "input", .type = SF_OPT_STRING, FIELD(input),
	  .value = "FILE", .help = "read that, not stdin; also -i FILE" },
	{ .name = "quiet", .type = SF_OPT_FLAG, FIELD(quiet),
	  .help = "no progress on a terminal" },
	{ 0 }
};

static const struct sf_option probe_table[] = {
	json_option,
	{ 0 }
};

static const struct sf_option bench_table[] = {
	{ .name = "op", .type = SF_OPT_ENUM, FIELD(op), .choices = ops,
	  .value = "OP", .help = "read or write (default read)" },
	{ .name = "block", .type = SF_OPT_SIZE, FIELD(block), .min = 1,
	  .max = 64 << 20, .value = "BYTES",
	  .help = "size of a transfer (default 1M)" },
	DEPTH_OPTION,
	{ .name = "jobs", .type = SF_OPT_UINT, FIELD(jobs), .min = 1,
	  .max = 64, .value = "N",
	  .help = "engines with connections of their own (default 1)" },
	{ .name = "time", .type = SF_OPT_SECONDS, FIELD(time_ms), .min = 100,
	  .max = 3600000, .value = "SECONDS",
	  .help = "how long (default 5)" },
	{ .name = "buffer", .type = SF_OPT_STRING, FIELD(buffer),
	  .value = "ADDR", .help = "which buffer (default: the largest)" },
	{ .name = "offset_mode", .type = SF_OPT_ENUM, FIELD(order),
	  .choices = orders, .value = "MODE",
	  .help = "seq or random (default seq)" },
	{ .name = "yes_overwrite", .type = SF_OPT_FLAG, FIELD(may_overwrite),
	  .help = "let --op write destroy what the buffer holds" },
	json_option,
	{ 0 }
};

struct command {
	const char *name, *operands, *help;
	const struct sf_option *table;
	int min, max;		/* operands */
	enum sf_exit (*run)(struct segctl *s, char **args, int nr);
};

static const struct command commands[] = {
	{ "ls", "[SEGMENT]", "list segments, or a segment's buffers", ls_table,
	  0, 1, segctl_ls },
	{ "get", "SEGMENT ADDR [LEN]", "copy remote memory to stdout or a file",
	  get_table, 2, 3, segctl_get },
	{ "put", "SEGMENT ADDR [LEN]", "copy stdin or a file to remote memory",
	  put_table, 2, 3, segctl_put },
	{ "probe", "SEGMENT", "find out what does not work", probe_table, 1, 1,
	  segctl_probe },
	{ "bench", "SEGMENT", "measure transfers", bench_table, 1, 1,
	  segctl_bench },
};

#define NR_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(void)
{
	fputs("Usage: segctl [options] COMMAND [options] [operands]\n"
	      "Read, write, list and measure memory registered with Mooncake "
	      "Transfer Engine.\n"
	      "\n"
	      "Commands:\n", stdout);
	for (size_t i = 0; i < NR_COMMANDS; i++)
		printf("  %-6s%-20s%s\n", commands[i].name,
		       commands[i].operands, commands[i].help);
	fputs("\nOptions of all commands:\n", stdout);
	sf_option_help(common_table, "--", stdout);
	fputs("  -h, --help                print this and exit\n"
	      "  -V, --version             print the version and exit\n",
	      stdout);
	for (size_t i = 0; i < NR_COMMANDS; i++) {
		printf("\nOptions of %s:\n", commands[i].name);
		sf_option_help(commands[i].table, "--", stdout);
	}
}

static void print_command_help(const struct command *c)
{
	printf("Usage: segctl [options] %s %s\n", c->name, c->operands);
	printf("%s: %s\n\nOptions:\n", c->name, c->help);
	sf_option_help(c->table, "--", stdout);
	sf_option_help(common_table, "--", stdout);
}

static enum sf_exit misuse(const char *text)
{
	fprintf(stderr, "segctl: %s\nTry 'segctl --help'.\n", text);
	return SF_EXIT_USAGE;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < NR_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* The rows of a command and the common ones: one name space. */
struct tables {
	struct sf_option rows[3];
};

static void join_tables(struct tables *t, const struct command *c)
{
	struct sf_option *row = t->rows;

	if (c)
		*row++ = (struct sf_option){ .name = "", .type = SF_OPT_TABLE,
					     .table = c->table };
	*row++ = (struct sf_option){ .name = "", .type = SF_OPT_TABLE,
				     .table = common_table };
	*row = (struct sf_option){ 0 };
}

static bool is_one_of(const char *arg, const char *a, const char *b)
{
	return !strcmp(arg, a) || !strcmp(arg, b);
}

/* What is left: argv from NEXT on, and what was understood so far. */
struct parser {
	int argc;
	char **argv;
	int next;
	const struct command *command;
	char *args[ARGS_MAX];
	int nr_args;
	bool dashes;		/* "--" was there: operands only */
};

static int add_operand(struct parser *p, char *arg, struct sf_err *err)
{
	if (!p->command) {
		p->command = find_command(arg);
		return p->command ? 0 : sf_err_set(err, -EINVAL,
						   "unknown command \"%s\"",
						   arg);
	}
	if (p->nr_args == p->command->max)
		return sf_err_set(err, -EINVAL, "%s: extra operand \"%s\"",
				  p->command->name, arg);
	p->args[p->nr_args++] = arg;
	return 0;
}

/* -o FILE, -i FILE */
static int short_option(struct parser *p, struct segctl *s,
			const struct sf_option *table, struct sf_err *err)
{
	const char *arg = p->argv[p->next++], *value = NULL, *name;

	if (arg[1] == 'o')
		name = "output";
	else if (arg[1] == 'i')
		name = "input";
	else
		return sf_err_set(err, -EINVAL, "unknown option %s", arg);
	if (arg[2])
		value = arg + 2;
	else if (p->next < p->argc)
		value = p->argv[p->next++];
	return sf_option_set(table, s, name, value, err);
}

/* 0, 1 when help or version were asked for and printed, or a negative errno. */
static int parse(struct parser *p, struct segctl *s, struct sf_err *err)
{
	struct tables tables;
	int ret = 0;
	char *arg;

	while (!ret && p->next < p->argc) {
		arg = p->argv[p->next];
		join_tables(&tables, p->command);
		if (p->dashes || arg[0] != '-' || !arg[1]) {
			p->next++;
			ret = add_operand(p, arg, err);
		} else if (is_one_of(arg, "-h", "--help")) {
			if (p->command)
				print_command_help(p->command);
			else
				print_help();
			return 1;
		} else if (is_one_of(arg, "-V", "--version")) {
			puts("segctl " PACKAGE_VERSION);
			return 1;
		} else if (!strcmp(arg, "--")) {
			p->dashes = true;
			p->next++;
		} else if (arg[1] == '-') {
			ret = sf_option_parse_arg(tables.rows, s, p->argc,
						  p->argv, &p->next, err);
		} else {
			ret = short_option(p, s, tables.rows, err);
		}
	}
	return ret;
}

static int check(const struct parser *p, struct segctl *s, struct sf_err *err)
{
	const char *env = getenv("SEGFS_METADATA");

	if (!p->command)
		return sf_err_set(err, -EINVAL, "no command given");
	if (p->nr_args < p->command->min)
		return sf_err_set(err, -EINVAL, "%s: needs %s",
				  p->command->name, p->command->operands);
	if (!s->metadata && env && *env) {
		s->metadata = strdup(env);
		if (!s->metadata)
			return sf_err_set(err, -ENOMEM, "out of memory");
	}
	if (!s->metadata)
		return sf_err_set(err, -EINVAL, "no metadata store: give "
				  "--metadata SOURCE or set SEGFS_METADATA");
	return sf_core_options_check(&s->core, err);
}

static int set_up_log(struct sf_err *err)
{
	const char *env = getenv("SEGFS_DEBUG");
	unsigned int mask;

	if (!env)
		return 0;
	if (sf_log_parse_mask(env, &mask) < 0)
		return sf_err_set(err, -EINVAL,
				  "SEGFS_DEBUG=%s: no such module; there are "
				  "core, meta, tcp, rdma and all", env);
	sf_log_debug_mask = mask;
	return 0;
}

static void init(struct segctl *s)
{
	*s = (struct segctl){
		.depth = 8,
		.block = 1 << 20,
		.jobs = 1,
		.time_ms = 5000,
	};
	sf_core_options_init(&s->core);
}

static void fini(struct segctl *s, const struct command *c)
{
	struct tables tables;

	sf_context_free(s->ctx);
	join_tables(&tables, c);
	sf_option_free(tables.rows, s);
}

int main(int argc, char **argv)
{
	struct parser p = { .argc = argc, .argv = argv, .next = 1 };
	enum sf_exit status;
	struct sf_err err;
	struct segctl s;
	int ret;

	init(&s);
	signal(SIGPIPE, SIG_IGN);
	ret = set_up_log(&err);
	if (!ret)
		ret = parse(&p, &s, &err);
	if (!ret)
		ret = check(&p, &s, &err);
	if (ret < 0)
		status = misuse(err.text);
	else if (ret)
		status = SF_EXIT_OK;
	else
		status = p.command->run(&s, p.args, p.nr_args);
	if (fflush(stdout) && status == SF_EXIT_OK)
		status = segctl_fail(SF_EXIT_FAILURE, "stdout: %s",
				     strerror(errno));
	fini(&s, p.command);
	return status;
}
