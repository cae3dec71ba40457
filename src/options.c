/* SPDX-License-Identifier: MIT */
/*
 * Option tables: looking names up, setting fields, the error sentences. Knows
 * nothing of what the options mean. Values are parsed in options_value.c, the
 * lines of --help are made in options_help.c.
 */
#include "config.h"
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

/* A row and the struct that its offset counts from. */
struct match {
	const struct sf_option *opt;
	char *base;
	bool negated;
};

/* Mount options are written with "_", long options with "-". */
static char fold(char c)
{
	return c == '-' ? '_' : c;
}

static bool same_name(const char *pattern, const char *name, bool may_prefix)
{
	for (; *pattern && fold(*pattern) == fold(*name); pattern++, name++)
		;
	if (may_prefix && pattern[0] == '*' && !pattern[1])
		return true;
	return !*pattern && !*name;
}

static bool find_in(const struct sf_option *table, char *base, const char *name,
		    bool negated, struct match *m)
{
	for (const struct sf_option *o = table; o->name; o++) {
		if (o->type == SF_OPT_TABLE) {
			if (find_in(o->table, base + o->offset, name, negated,
				    m))
				return true;
			continue;
		}
		if (negated && o->type != SF_OPT_FLAG)
			continue;
		if (!same_name(o->name, name, o->type == SF_OPT_IGNORED))
			continue;
		*m = (struct match){ o, base, negated };
		return true;
	}
	return false;
}

static bool find(const struct sf_option *table, void *opts, const char *name,
		 struct match *m)
{
	if (find_in(table, opts, name, false, m))
		return true;
	return !strncmp(name, "no", 2) &&
	       find_in(table, opts, name + 2, true, m);
}

/* How many letters to add, drop or change: enough of it to spot a slip. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[32], diag, up;
	size_t la = strlen(a), lb = strlen(b);

	if (la >= 32 || lb >= 32)
		return 32;
	for (size_t j = 0; j <= lb; j++)
		row[j] = (unsigned int)j;
	for (size_t i = 1; i <= la; i++) {
		diag = row[0];
		row[0] = (unsigned int)i;
		for (size_t j = 1; j <= lb; j++) {
			up = row[j];
			if (fold(a[i - 1]) != fold(b[j - 1]))
				diag++;
			if (up + 1 < diag)
				diag = up + 1;
			if (row[j - 1] + 1 < diag)
				diag = row[j - 1] + 1;
			row[j] = diag;
			diag = up;
		}
	}
	return row[lb];
}

static void find_near(const struct sf_option *table, const char *name,
		      const char **best, unsigned int *best_distance)
{
	for (const struct sf_option *o = table; o->name; o++) {
		if (o->type == SF_OPT_TABLE) {
			find_near(o->table, name, best, best_distance);
		} else if (o->help) {
			unsigned int d = distance(name, o->name);

			if (d < *best_distance) {
				*best = o->name;
				*best_distance = d;
			}
		}
	}
}

static int unknown(const struct sf_option *table, const char *name,
		   struct sf_err *err)
{
	/* One slip in a short name, two in a longer one. */
	unsigned int limit = strlen(name) < 5 ? 2 : 3;
	const char *near = NULL;

	find_near(table, name, &near, &limit);
	if (near)
		return sf_err_set(err, -EINVAL,
				  "unknown option \"%s\" (did you mean "
				  "\"%s\"?)", name, near);
	return sf_err_set(err, -EINVAL, "unknown option \"%s\"", name);
}

static void format_bound(const struct sf_option *o, uint64_t v,
			 char out[SF_SIZE_TEXT_MAX])
{
	unsigned long long n = v;

	if (o->type == SF_OPT_SIZE)
		sf_format_size(out, v);
	else if (o->type == SF_OPT_OCTAL)
		snprintf(out, SF_SIZE_TEXT_MAX, "%#llo", n);
	else if (o->type == SF_OPT_SECONDS && n % 1000)
		snprintf(out, SF_SIZE_TEXT_MAX, "%g s", (double)n / 1000);
	else if (o->type == SF_OPT_SECONDS)
		snprintf(out, SF_SIZE_TEXT_MAX, "%llu s", n / 1000);
	else
		snprintf(out, SF_SIZE_TEXT_MAX, "%llu", n);
}

static int out_of_range(const struct sf_option *o, const char *value,
			struct sf_err *err)
{
	char min[SF_SIZE_TEXT_MAX], max[SF_SIZE_TEXT_MAX];

	format_bound(o, o->min, min);
	format_bound(o, o->max, max);
	return sf_err_set(err, -EINVAL, "%s=%s: must be %sfrom %s to %s",
			  o->name, value, o->zero ? "0 or " : "", min, max);
}

static int parse_octal(const char *text, uint64_t *value)
{
	uint64_t v = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '7')
			return -EINVAL;
		if (v > UINT32_MAX)
			return -ERANGE;
		v = v * 8 + (uint64_t)(*text - '0');
	}
	*value = v;
	return 0;
}

static int parse_number(const struct sf_option *o, const char *value,
			uint64_t *out, struct sf_err *err)
{
	const char *what;
	int ret;

	switch (o->type) {
	case SF_OPT_SIZE:
		what = "a size, such as 4096, 256K or 1G";
		ret = sf_parse_size(value, out);
		break;
	case SF_OPT_SECONDS:
		what = "a time, such as 5, 0.5 or 500ms";
		ret = sf_parse_seconds(value, out);
		break;
	case SF_OPT_OCTAL:
		what = "an octal number, such as 077";
		ret = parse_octal(value, out);
		break;
	default:
		what = "a number";
		ret = sf_parse_u64(value, out);
		break;
	}
	if (ret == -EINVAL)
		return sf_err_set(err, ret, "%s=%s: not %s", o->name, value,
				  what);
	if (ret || (!(o->zero && !*out) && (*out < o->min || *out > o->max)))
		return out_of_range(o, value, err);
	return 0;
}

static int set_number(const struct sf_option *o, void *field, const char *value,
		      struct sf_err *err)
{
	uint64_t v;
	int ret = parse_number(o, value, &v, err);

	if (ret)
		return ret;
	if (o->type == SF_OPT_SIZE)
		*(size_t *)field = (size_t)v;
	else
		*(unsigned int *)field = (unsigned int)v;
	return 0;
}

static int set_string(const struct sf_option *o, char **field,
		      const char *value, struct sf_err *err)
{
	char *copy = strdup(value);

	if (!copy)
		return sf_err_set(err, -ENOMEM, "%s: out of memory", o->name);
	free(*field);
	*field = copy;
	return 0;
}

static int set_enum(const struct sf_option *o, int *field, const char *value,
		    struct sf_err *err)
{
	char list[128] = "";
	size_t n = 0;

	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(o->choices[i], value)) {
			*field = i;
			return 0;
		}
		if (n < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n,
					      "%s%s",
					      !i ? "" : o->choices[i + 1] ?
					      ", " : " or ", o->choices[i]);
	}
	return sf_err_set(err, -EINVAL, "%s=%s: must be %s", o->name, value,
			  list);
}

static int set_flag(const struct match *m, const char *value,
		    struct sf_err *err)
{
	bool *field = (bool *)(m->base + m->opt->offset);

	if (value)
		return sf_err_set(err, -EINVAL, "%s%s: takes no value",
				  m->negated ? "no" : "", m->opt->name);
	*field = !m->negated != (m->opt->min == 1);
	return 0;
}

int sf_option_set(const struct sf_option *table, void *opts, const char *name,
		  const char *value, struct sf_err *err)
{
	const struct sf_option *o;
	struct match m;
	void *field;

	if (!find(table, opts, name, &m))
		return unknown(table, name, err);
	o = m.opt;
	field = m.base + o->offset;
	if (o->type == SF_OPT_IGNORED)
		return 0;
	if (o->type == SF_OPT_REFUSED)
		return sf_err_set(err, -EINVAL, "%s: %s", o->name, o->value);
	if (o->type == SF_OPT_FLAG)
		return set_flag(&m, value, err);
	if (!value && o->type == SF_OPT_STRING && o->zero)
		return 0;
	if (!value)
		return sf_err_set(err, -EINVAL, "%s: needs a value (%s=%s)",
				  o->name, o->name, o->value);
	if (o->type == SF_OPT_STRING)
		return set_string(o, field, value, err);
	if (o->type == SF_OPT_ENUM)
		return set_enum(o, field, value, err);
	return set_number(o, field, value, err);
}

/* Cut the next item off LIST (written over): up to a comma, "\," being one. */
static char *next_item(char **list)
{
	char *item = *list, *out = item, *in = item;

	for (; *in && *in != ','; in++) {
		if (in[0] == '\\' && in[1] == ',')
			in++;
		*out++ = *in;
	}
	*list = *in ? in + 1 : in;
	*out = '\0';
	return item;
}

int sf_option_parse_list(const struct sf_option *table, void *opts,
			 const char *list, struct sf_err *err)
{
	char *copy = strdup(list), *rest = copy, *item, *value;
	int ret = 0;

	if (!copy)
		return sf_err_set(err, -ENOMEM, "out of memory");
	while (!ret && *rest) {
		item = next_item(&rest);
		if (!*item)
			continue;
		value = strchr(item, '=');
		if (value)
			*value++ = '\0';
		ret = sf_option_set(table, opts, item, value, err);
	}
	free(copy);
	return ret;
}

static bool wants_value(const struct sf_option *table, void *opts,
			const char *name)
{
	struct match m;

	return find(table, opts, name, &m) && m.opt->type != SF_OPT_FLAG &&
	       m.opt->type != SF_OPT_IGNORED && m.opt->type != SF_OPT_REFUSED;
}

int sf_option_parse_arg(const struct sf_option *table, void *opts, int argc,
			char **argv, int *next, struct sf_err *err)
{
	char *name = strdup(argv[*next] + 2), *value;
	int ret;

	if (!name)
		return sf_err_set(err, -ENOMEM, "out of memory");
	++*next;
	value = strchr(name, '=');
	if (value)
		*value++ = '\0';
	else if (*next < argc && wants_value(table, opts, name))
		value = argv[(*next)++];
	ret = sf_option_set(table, opts, name, value, err);
	free(name);
	return ret;
}

int sf_option_parse_args(const struct sf_option *table, void *opts, int argc,
			 char **argv, int *next, struct sf_err *err)
{
	int ret = 0;

	while (!ret && *next < argc && !strncmp(argv[*next], "--", 2)) {
		if (!argv[*next][2]) {
			++*next;
			break;
		}
		ret = sf_option_parse_arg(table, opts, argc, argv, next, err);
	}
	return ret;
}

void sf_option_free(const struct sf_option *table, void *opts)
{
	for (const struct sf_option *o = table; o->name; o++) {
		void *field = (char *)opts + o->offset;

		if (o->type == SF_OPT_TABLE) {
			sf_option_free(o->table, field);
		} else if (o->type == SF_OPT_STRING) {
			free(*(char **)field);
			*(char **)field = NULL;
		}
	}
}
