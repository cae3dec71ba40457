/* SPDX-License-Identifier: MIT */
/*
 * The growing form of a segment: see segment_draft.h. Used by one thread, for
 * the time of one decoding. Knows nothing of JSON.
 */
#include "config.h"
#include "segment_draft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "transport.h"

int sf_draft_init(struct sf_draft *d, const char *name)
{
	*d = (struct sf_draft){ .tcp_version = 1 };
	sf_draft_add(d, &d->strings, 1, 1);
	d->name = sf_draft_string(d, name);
	if (!d->oom)
		return 0;
	sf_draft_fini(d);
	return -ENOMEM;
}

void sf_draft_fini(struct sf_draft *d)
{
	sf_vec_free(&d->devices);
	sf_vec_free(&d->buffers);
	sf_vec_free(&d->keys);
	sf_vec_free(&d->rows);
	sf_vec_free(&d->row_names);
	sf_vec_free(&d->strings);
	sf_vec_free(&d->problems);
}

void *sf_draft_add(struct sf_draft *d, struct sf_vec *v, size_t size, size_t n)
{
	void *p = sf_vec_add(v, size, n);

	if (p)
		memset(p, 0, size * n);
	else
		d->oom = true;
	return p;
}

const char *sf_draft_text(const struct sf_draft *d, uint32_t string)
{
	return (const char *)d->strings.data + string;
}

/* A descriptor repeats few texts many times: remembering some recent ones by
 * their hash finds nearly all, and costs the same for any input. */
uint32_t sf_draft_string(struct sf_draft *d, const char *text)
{
	size_t len = strlen(text), at = d->strings.nr;
	uint32_t h = 2166136261u, *slot;
	char *to;

	if (!len || d->oom)
		return 0;
	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)text[i]) * 16777619u;
	slot = &d->interned[(h ^ h >> 16) % SF_DRAFT_INTERN];
	if (*slot && !strcmp(sf_draft_text(d, *slot), text))
		return *slot;
	if (at + len >= UINT32_MAX) {
		d->oom = true;
		return 0;
	}
	to = sf_draft_add(d, &d->strings, 1, len + 1);
	if (!to)
		return 0;
	memcpy(to, text, len);
	*slot = (uint32_t)at;
	return *slot;
}

static void make_printable(char *s)
{
	for (; *s; s++)
		if (*s < 0x20 || *s >= 0x7f)
			*s = '?';
}

static void add_line(struct sf_draft *d, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
static void add_line(struct sf_draft *d, const char *fmt, va_list ap)
{
	char line[SF_PROBLEM_LINE_MAX];
	size_t len;
	char *to;

	vsnprintf(line, sizeof(line) - 1, fmt, ap);
	make_printable(line);
	len = strlen(line);
	line[len++] = '\n';
	to = sf_draft_add(d, &d->problems, 1, len);
	if (to)
		memcpy(to, line, len);
}

static void add_linef(struct sf_draft *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void add_linef(struct sf_draft *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_line(d, fmt, ap);
	va_end(ap);
}

void sf_draft_problem(struct sf_draft *d, const char *fmt, ...)
{
	va_list ap;

	if (d->nr_problems++ >= SF_PROBLEMS_MAX)
		return;
	va_start(ap, fmt);
	add_line(d, fmt, ap);
	va_end(ap);
}

void sf_draft_fail(struct sf_draft *d, int error, const char *fmt, ...)
{
	va_list ap;

	d->error = error;
	va_start(ap, fmt);
	add_line(d, fmt, ap);
	va_end(ap);
}

static int compare(const void *pa, const void *pb)
{
	const struct sf_draft_buffer *a = pa, *b = pb;

	if (a->addr != b->addr)
		return a->addr < b->addr ? -1 : 1;
	if (a->length != b->length)
		return a->length > b->length ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

/* Of two ways to the same range, the higher is kept: one that can be moved in
 * this build, and of those RDMA, as Mooncake prefers it. */
static int rank(const struct sf_draft_buffer *b)
{
	int movable = sf_transport_for(b->proto) ? 3 : 0;

	if (b->proto == SF_PROTOCOL_RDMA)
		return movable + (b->nr_keys ? 2 : 0);
	return movable + (b->proto == SF_PROTOCOL_TCP ? 1 : 0);
}

static void note_twin(struct sf_draft *d, const struct sf_draft_buffer *kept,
		      const struct sf_draft_buffer *gone)
{
	sf_draft_problem(d,
			 "buffer %" PRIu32 " (%.32s): the same range as "
			 "buffer %" PRIu32 " (%.32s), which is listed",
			 gone->index, sf_draft_text(d, gone->protocol),
			 kept->index, sf_draft_text(d, kept->protocol));
}

void sf_draft_finish(struct sf_draft *d)
{
	struct sf_draft_buffer *b = d->buffers.data, *last;
	size_t kept = 0;

	if (d->error)
		d->buffers.nr = 0;
	if (d->buffers.nr)
		qsort(b, d->buffers.nr, sizeof(*b), compare);
	for (size_t i = 0; i < d->buffers.nr; i++) {
		last = kept ? &b[kept - 1] : NULL;
		if (last && last->addr == b[i].addr &&
		    last->length == b[i].length) {
			bool better = rank(&b[i]) > rank(last);

			b[i].long_name = last->long_name;
			note_twin(d, better ? &b[i] : last,
				  better ? last : &b[i]);
			if (better)
				*last = b[i];
			continue;
		}
		b[i].long_name = last && last->addr == b[i].addr;
		b[kept++] = b[i];
	}
	d->buffers.nr = kept;
	if (d->nr_problems > SF_PROBLEMS_MAX)
		add_linef(d, "and %u more", d->nr_problems - SF_PROBLEMS_MAX);
	sf_draft_add(d, &d->problems, 1, 1);
}
