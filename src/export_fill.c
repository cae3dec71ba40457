/* SPDX-License-Identifier: MIT */
/* Test patterns for exported buffers. Pure. */
#include "config.h"
#include "export_fill.h"

#include <endian.h>
#include <string.h>

#include "export.h"

/* For a seed of 0, which xorshift would never leave. */
#define SEED 0x9e3779b97f4a7c15u

void sf_export_pattern_init(struct sf_export_pattern *p,
			    const struct sf_export_buffer *b)
{
	p->fill = (int)b->fill;
	p->state = b->fill_seed;
	p->offset = 0;
	if (b->fill == SF_EXPORT_FILL_RANDOM && !p->state)
		p->state = SEED;
}

/* xorshift64* */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

void sf_export_pattern_next(struct sf_export_pattern *p, void *mem, size_t len)
{
	char *out = mem;

	if (p->fill == SF_EXPORT_FILL_BYTE) {
		memset(mem, (int)(p->state & 0xff), len);
		return;
	}
	while (len) {
		size_t n = len < sizeof(uint64_t) ? len : sizeof(uint64_t);
		uint64_t word = p->fill == SF_EXPORT_FILL_RANDOM ?
					next_random(&p->state) : p->offset;

		word = htole64(word);
		memcpy(out, &word, n);
		p->offset += n;
		out += n;
		len -= n;
	}
}
