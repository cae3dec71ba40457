/* SPDX-License-Identifier: MIT */
/*
 * Option tables: one table describes an option's name, type, bounds, default
 * and help line; parsing, --help and error texts come from it, so that they
 * cannot disagree. Used for mount options (-o a,b=c) and long options alike.
 */
#ifndef SF_OPTIONS_H
#define SF_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sf_err;

enum sf_option_type {
	SF_OPT_FLAG,		/* bool; "name" or "noname" */
	SF_OPT_UINT,		/* unsigned int, min..max */
	SF_OPT_SIZE,		/* size_t; K, M, G, T suffixes, powers of 1024 */
	SF_OPT_SECONDS,		/* unsigned int of milliseconds; "5", "0.5",
				 * "500ms", min..max in ms */
	SF_OPT_OCTAL,		/* unsigned int */
	SF_OPT_STRING,		/* char *, malloc'ed; the old one is freed */
	SF_OPT_ENUM,		/* int, an index into choices */
	SF_OPT_IGNORED,		/* accepted, with or without a value */
};

struct sf_option {
	const char *name;	/* without dashes */
	enum sf_option_type type;
	size_t offset;		/* of the field in the caller's struct */
	uint64_t min, max;
	const char *const *choices;	/* ENUM: NULL-terminated */
	const char *value;	/* what --help calls the value: "SECONDS" */
	const char *help;	/* one line; NULL hides it */
};

/* Tables end with a NULL name. A "name" ending in '*' matches a prefix
 * (IGNORED only): "x-*". */

/* Set one option. VALUE is NULL when there was no "=". -EINVAL with a sentence
 * (unknown, missing value, not a number, out of range: with the bounds). */
int sf_option_set(const struct sf_option *table, void *opts, const char *name,
		  const char *value, struct sf_err *err);
/* A comma-separated list, as after -o; "\," is a comma inside a value. */
int sf_option_parse_list(const struct sf_option *table, void *opts,
			 const char *list, struct sf_err *err);
/* The lines of --help for a table; PREFIX is "--" or "-o ". */
void sf_option_help(const struct sf_option *table, const char *prefix,
		    FILE *out);
/* Free the strings. */
void sf_option_free(const struct sf_option *table, void *opts);

/* Helpers that the tables use, for other callers. */
int sf_parse_size(const char *text, uint64_t *bytes);	/* -EINVAL, -ERANGE */
int sf_parse_u64(const char *text, uint64_t *value);	/* 0x.. or decimal */

#endif
