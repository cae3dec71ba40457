/* SPDX-License-Identifier: MIT */
/*
 * Option tables: one table describes an option's name, type, bounds, default
 * and help line; parsing, --help and error texts come from it, so that they
 * cannot disagree. Used for mount options (-o a,b=c) and long options alike.
 */
#ifndef SF_OPTIONS_H
#define SF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sf_err;

enum sf_option_type {
	SF_OPT_FLAG,		/* bool; "name" or "noname"; min 1: the name
				 * says false ("rw" of a field read_only) */
	SF_OPT_UINT,		/* unsigned int, min..max */
	SF_OPT_SIZE,		/* size_t; K, M, G, T: powers of 1024 */
	SF_OPT_SECONDS,		/* unsigned int of milliseconds; "5", "0.5",
				 * "500ms", min..max in ms */
	SF_OPT_OCTAL,		/* unsigned int */
	SF_OPT_STRING,		/* char *, malloc'ed; the old one is freed */
	SF_OPT_ENUM,		/* int, an index into choices */
	SF_OPT_IGNORED,		/* accepted, with or without a value */
	SF_OPT_REFUSED,		/* an error; "value" is the sentence */
	SF_OPT_TABLE,		/* the rows of "table", whose struct is at
				 * offset; the name is not used */
};

struct sf_option {
	const char *name;	/* without dashes; "_" stands for "-" too */
	enum sf_option_type type;
	size_t offset;		/* of the field in the caller's struct */
	uint64_t min, max;
	const char *const *choices;	/* ENUM: NULL-terminated */
	const char *value;	/* what --help calls the value: "SECONDS" */
	const char *help;	/* one line; NULL hides it */
	bool zero;		/* 0 is fine too, though below min; of a STRING:
				 * the bare name is fine and means nothing */
	const struct sf_option *table;	/* TABLE */
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
/*
 * The long option at ARGV[*NEXT]: "--name=value", "--name value", "--flag".
 * *NEXT moves behind it.
 */
int sf_option_parse_arg(const struct sf_option *table, void *opts, int argc,
			char **argv, int *next, struct sf_err *err);
/*
 * All long options from there on. Stops at the first argument that is none (a
 * lone "-" and short options are none) or behind "--", and leaves its index in
 * *NEXT.
 */
int sf_option_parse_args(const struct sf_option *table, void *opts, int argc,
			 char **argv, int *next, struct sf_err *err);
/* The lines of --help for a table; PREFIX is "--" or "-o ". */
void sf_option_help(const struct sf_option *table, const char *prefix,
		    FILE *out);
/* The options that --help shows and their values: "name=value" lines. */
void sf_option_print(const struct sf_option *table, const void *opts,
		     FILE *out);
/* Free the strings. */
void sf_option_free(const struct sf_option *table, void *opts);

/* Helpers that the tables use, for other callers. */
int sf_parse_size(const char *text, uint64_t *bytes);	/* -EINVAL, -ERANGE */
int sf_parse_u64(const char *text, uint64_t *value);	/* 0x.. or decimal */
int sf_parse_seconds(const char *text, uint64_t *ms);	/* as SF_OPT_SECONDS */

/* The shortest text that sf_parse_size() reads back: "256K", "1000". */
#define SF_SIZE_TEXT_MAX 24
void sf_format_size(char out[SF_SIZE_TEXT_MAX], uint64_t bytes);

#endif
