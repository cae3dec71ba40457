/* SPDX-License-Identifier: MIT */
/*
 * The text form of a buffer to export, "size=1G,location=cpu:0,ro": the table
 * of its parts and what must not stand together. Touches neither files nor
 * memory.
 */
#include "config.h"
#include "export_buffer.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "export.h"
#include "options.h"

#define SIZE_LIMIT (1ull << 56)		/* of any address space there is */

struct parts {
	size_t size, offset;
	unsigned int dmabuf;		/* NO_FD: none */
	char *location, *file, *shm, *fill;
	bool huge, read_only;
};

#define NO_FD UINT_MAX

#define FIELD(f) .offset = offsetof(struct parts, f)

const struct sf_option sf_export_buffer_table[] = {
	{ .name = "size", .type = SF_OPT_SIZE, FIELD(size), .min = 1,
	  .max = SIZE_LIMIT, .value = "BYTES",
	  .help = "length (default with file, shm: all of it)" },
	{ .name = "location", .type = SF_OPT_STRING, FIELD(location),
	  .value = "NAME",
	  .help = "published; cpu:N also binds to NUMA node N" },
	{ .name = "huge", .type = SF_OPT_FLAG, FIELD(huge),
	  .help = "reserved huge pages" },
	{ .name = "ro", .type = SF_OPT_FLAG, FIELD(read_only),
	  .help = "refuse writes" },
	{ .name = "file", .type = SF_OPT_STRING, FIELD(file), .value = "PATH",
	  .help = "map this file, shared" },
	{ .name = "shm", .type = SF_OPT_STRING, FIELD(shm), .value = "NAME",
	  .help = "map this POSIX shared-memory object" },
	{ .name = "dmabuf", .type = SF_OPT_UINT, FIELD(dmabuf),
	  .max = INT_MAX, .value = "FD",
	  .help = "a device's memory, by the descriptor of a dma-buf" },
	{ .name = "offset", .type = SF_OPT_SIZE, FIELD(offset),
	  .max = SIZE_LIMIT, .value = "BYTES",
	  .help = "where in the file or object to begin" },
	{ .name = "fill", .type = SF_OPT_STRING, FIELD(fill),
	  .value = "PATTERN",
	  .help = "offset, random[:SEED], byte:VALUE, none" },
	{ 0 }
};

/* NAME, or NAME:ARG. ARG is NULL when there is none. */
static bool is_word(const char *text, const char *name, const char **arg)
{
	size_t len = strlen(name);

	if (strncmp(text, name, len) || (text[len] && text[len] != ':'))
		return false;
	*arg = text[len] ? text + len + 1 : NULL;
	return true;
}

static int parse_fill(const char *text, struct sf_export_buffer *b,
		      struct sf_err *err)
{
	const char *arg = NULL;
	uint64_t value = 0;

	if (is_word(text, "none", &arg) && !arg)
		return 0;
	if (is_word(text, "offset", &arg) && !arg) {
		b->fill = SF_EXPORT_FILL_OFFSET;
		return 0;
	}
	if (is_word(text, "random", &arg))
		b->fill = SF_EXPORT_FILL_RANDOM;
	else if (is_word(text, "byte", &arg) && arg)
		b->fill = SF_EXPORT_FILL_BYTE;
	else
		return sf_err_set(err, -EINVAL, "fill=%s: must be offset, "
				  "random, random:SEED, byte:VALUE or none",
				  text);
	if (arg && sf_parse_u64(arg, &value))
		return sf_err_set(err, -EINVAL, "fill=%s: %s is not a number",
				  text, arg);
	if (b->fill == SF_EXPORT_FILL_BYTE && value > 0xff)
		return sf_err_set(err, -EINVAL, "fill=%s: more than a byte",
				  text);
	b->fill_seed = value;
	return 0;
}

static int check(const struct parts *p, struct sf_err *err)
{
	bool dmabuf = p->dmabuf != NO_FD;
	bool anon = !p->file && !p->shm && !dmabuf;

	if (!!p->file + !!p->shm + dmabuf > 1)
		return sf_err_set(err, -EINVAL, "%s: only one",
				  !dmabuf ? "file and shm" :
				  "file, shm and dmabuf");
	if (anon && !p->size)
		return sf_err_set(err, -EINVAL, "size=BYTES is missing");
	if (anon && p->offset)
		return sf_err_set(err, -EINVAL,
				  "offset: only with file, shm or dmabuf");
	if (!anon && p->huge)
		return sf_err_set(err, -EINVAL,
				  "huge: not with file or shm (a file on "
				  "hugetlbfs has huge pages by itself)");
	if (dmabuf && p->fill)
		return sf_err_set(err, -EINVAL, "fill: not with dmabuf");
	if (p->location && !*p->location)
		return sf_err_set(err, -EINVAL, "location: is empty");
	return 0;
}

static int convert(struct parts *p, struct sf_export_buffer *b,
		   struct sf_err *err)
{
	int res = check(p, err);

	if (!res && p->fill)
		res = parse_fill(p->fill, b, err);
	if (!res && b->fill && p->read_only && (p->file || p->shm))
		res = sf_err_set(err, -EINVAL,
				 "fill: would write to what is ro");
	if (res)
		return res;
	b->source = p->file ? SF_EXPORT_FILE : p->shm ? SF_EXPORT_SHM :
		    p->dmabuf != NO_FD ? SF_EXPORT_DMABUF : SF_EXPORT_ANON;
	b->dmabuf = p->dmabuf != NO_FD ? (int)p->dmabuf : -1;
	b->path = p->file ? p->file : p->shm;
	b->location = p->location;
	p->file = p->shm = p->location = NULL;	/* B's now */
	b->size = p->size;
	b->offset = p->offset;
	b->huge = p->huge;
	b->read_only = p->read_only;
	return 0;
}

int sf_export_buffer_parse(const char *text, struct sf_export_buffer *out,
			   struct sf_err *err)
{
	struct sf_export_buffer b = { 0 };
	struct parts p = { .dmabuf = NO_FD };
	int res;

	res = sf_option_parse_list(sf_export_buffer_table, &p, text, err);
	if (!res)
		res = convert(&p, &b, err);
	sf_option_free(sf_export_buffer_table, &p);
	if (!res)
		*out = b;
	return res;
}

void sf_export_buffer_fini(struct sf_export_buffer *b)
{
	free((char *)(uintptr_t)b->path);
	free((char *)(uintptr_t)b->location);
	b->path = b->location = NULL;
}
