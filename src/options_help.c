/* SPDX-License-Identifier: MIT */
/* Tables as text: the lines of --help, and the values that are in force. */
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

static void print_value(const struct sf_option *o, const void *field, FILE *out)
{
	const unsigned int *number = field;
	char size[SF_SIZE_TEXT_MAX];

	switch (o->type) {
	case SF_OPT_FLAG:
		fprintf(out, "%s", *(const bool *)field ? "yes" : "no");
		break;
	case SF_OPT_SIZE:
		sf_format_size(size, *(const size_t *)field);
		fputs(size, out);
		break;
	case SF_OPT_SECONDS:
		fprintf(out, "%.7g", *number / 1000.0);
		break;
	case SF_OPT_OCTAL:
		fprintf(out, "%03o", *number);
		break;
	case SF_OPT_ENUM:
		fputs(o->choices[*(const int *)field], out);
		break;
	case SF_OPT_STRING:
		if (*(char *const *)field)
			fputs(*(char *const *)field, out);
		break;
	default:
		fprintf(out, "%u", *number);
		break;
	}
}

void sf_option_print(const struct sf_option *table, const void *opts, FILE *out)
{
	for (const struct sf_option *o = table; o->name; o++) {
		const char *field = (const char *)opts + o->offset;

		if (o->type == SF_OPT_TABLE) {
			sf_option_print(o->table, field, out);
			continue;
		}
		/* A flag that only says no has its yes elsewhere. */
		if (!o->help || (o->type == SF_OPT_FLAG && o->min))
			continue;
		fprintf(out, "%s=", o->name);
		print_value(o, field, out);
		fputc('\n', out);
	}
}
