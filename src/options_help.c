/* SPDX-License-Identifier: MIT */
/* The lines of --help, from the same tables that are parsed. */
#include "config.h"
#include "options.h"

#include <string.h>

#define HELP_COLUMN 28

/* Long options are shown with dashes, mount options with underscores. */
static void format_left(const struct sf_option *o, const char *prefix,
			char *out, size_t len)
{
	bool dashes = !strcmp(prefix, "--");
	int n = snprintf(out, len, "%s%s", prefix, o->name);

	if (dashes)
		for (char *s = out + strlen(prefix); *s; s++)
			*s = *s == '_' ? '-' : *s;
	if (o->value && o->type != SF_OPT_FLAG && n > 0 && (size_t)n < len)
		snprintf(out + n, len - (size_t)n, "=%s", o->value);
}

void sf_option_help(const struct sf_option *table, const char *prefix,
		    FILE *out)
{
	char left[80];

	for (const struct sf_option *o = table; o->name; o++) {
		if (o->type == SF_OPT_TABLE) {
			sf_option_help(o->table, prefix, out);
			continue;
		}
		if (!o->help)
			continue;
		format_left(o, prefix, left, sizeof(left));
		if (strlen(left) < HELP_COLUMN - 3)
			fprintf(out, "  %-*s%s\n", HELP_COLUMN - 2, left,
				o->help);
		else
			fprintf(out, "  %s\n%*s%s\n", left, HELP_COLUMN, "",
				o->help);
	}
}
