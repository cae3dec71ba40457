/* SPDX-License-Identifier: MIT */
/*
 * The log: formats a line once and hands it to the sink. Owns the only mutable
 * globals of the program (log.h says why and when they change).
 */
#include "config.h"
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 1024

atomic_int sf_log_level = LOG_WARNING;
atomic_uint sf_log_debug_mask;

static const char *const module_names[SF_LOG_NR_MODULES] = {
	[SF_LOG_CORE] = "core",	    [SF_LOG_META] = "meta",
	[SF_LOG_TCP] = "tcp",	    [SF_LOG_FS] = "fs",
	[SF_LOG_EXPORT] = "export", [SF_LOG_RDMA] = "rdma",
};

static void stderr_sink(int level, enum sf_log_module module, const char *line)
{
	if (level == LOG_DEBUG)
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
			module_names[module], line);
	else
		fprintf(stderr, "%s: %s\n", program_invocation_short_name,
			line);
}

static void syslog_sink(int level, enum sf_log_module module, const char *line)
{
	syslog(level, "%s: %s", module_names[module], line);
}

static sf_log_sink_fn *log_sink = stderr_sink;

void sf_log_set_sink(sf_log_sink_fn *sink)
{
	log_sink = sink ? sink : stderr_sink;
}

void sf_log_to_syslog(const char *program)
{
	openlog(program, LOG_PID, LOG_DAEMON);
	log_sink = syslog_sink;
}

static int find_module(const char *name, size_t len)
{
	for (int i = 0; i < SF_LOG_NR_MODULES; i++)
		if (strlen(module_names[i]) == len &&
		    !strncmp(module_names[i], name, len))
			return i;
	return -EINVAL;
}

int sf_log_parse_mask(const char *text, unsigned int *mask)
{
	unsigned int bits = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		int i = find_module(text, len);

		if (len == 3 && !strncmp(text, "all", 3))
			bits = ~0u;
		else if (i < 0)
			return i;
		else
			bits |= 1u << i;
		text += len;
		text += *text == ',';
	}
	*mask = bits;
	return 0;
}

void sf_log_write(int level, enum sf_log_module module, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (char *s = line; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
	log_sink(level, module, line);
}
