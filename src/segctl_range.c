/* SPDX-License-Identifier: MIT */
/* Ranges of remote memory as a person names them, and their cutting up. */
#include "config.h"
#include "segctl.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "names.h"
#include "options.h"
#include "range.h"
#include "segment.h"
#include "transfer.h"

/* How far memory of SEG goes on from ADDR without a gap, up to LEN. */
static uint64_t contiguous(const struct segctl_range *r)
{
	uint64_t have = 0, run;

	if (r->only)
		return r->only->length;
	while (have < r->len &&
	       sf_segment_covering_run(r->seg, r->addr + have, &run))
		have += run;
	return have;
}

static int parse_addr(struct segctl_range *r, const char *text,
		      struct sf_err *err)
{
	uint64_t length;

	/* The long name of a buffer means that one, whatever else is there. */
	if (!sf_buffer_name_parse(text, &r->addr, &length) && length) {
		r->only = sf_segment_find(r->seg, r->addr, length);
		if (!r->only)
			return sf_err_set(err, -ENOENT,
					  "%s: %s has no such buffer", text,
					  r->seg->name);
		return 0;
	}
	if (sf_parse_u64(text, &r->addr))
		return sf_err_set(err, -EINVAL, "%s: not an address, such as "
				  "0x7f3a40000000", text);
	return 0;
}

static int parse_len(struct segctl_range *r, const char *text,
		     struct sf_err *err)
{
	uint64_t run;

	if (text && strcmp(text, "all")) {
		if (sf_parse_size(text, &r->len))
			return sf_err_set(err, -EINVAL, "%s: not a length, "
					  "such as 4096, 1G or all", text);
		return 0;
	}
	if (r->only) {
		r->len = r->only->length;
		return 0;
	}
	if (!sf_segment_covering_run(r->seg, r->addr, &run))
		return sf_err_set(err, -EFAULT,
				  "0x%" PRIx64 ": in no buffer of %s", r->addr,
				  r->seg->name);
	r->len = run;
	return 0;
}

static int check(const struct segctl_range *r, struct sf_err *err)
{
	uint64_t have;

	if (!r->len)
		return 0;
	have = sf_range_ok(r->addr, r->len) ? contiguous(r) : 0;
	if (have >= r->len)
		return 0;
	return sf_err_set(err, -EFAULT, "0x%" PRIx64 ": %s has %" PRIu64
			  " registered bytes there, not %" PRIu64, r->addr,
			  r->seg->name, have, r->len);
}

enum sf_exit segctl_range_init(struct segctl *s, struct segctl_range *r,
			       const char *segment, const char *addr,
			       const char *len, struct sf_err *err)
{
	enum sf_exit status;
	int ret;

	*r = (struct segctl_range){ 0 };
	status = segctl_lookup(s, segment, &r->seg, err);
	if (status)
		return status;
	ret = parse_addr(r, addr, err);
	if (!ret)
		ret = parse_len(r, len, err);
	if (!ret)
		ret = check(r, err);
	if (!ret)
		return SF_EXIT_OK;
	segctl_range_fini(r);
	return ret == -EINVAL ? SF_EXIT_USAGE : SF_EXIT_DATA;
}

void segctl_range_fini(struct segctl_range *r)
{
	sf_registration_put(r->reg);
	r->reg = NULL;
	sf_segment_put(r->seg);
	r->seg = NULL;
}

/* Go over to the buffer that the next byte is in. */
static int enter_buffer(struct segctl *s, struct segctl_range *r)
{
	const struct sf_buffer *buf = r->only;
	uint64_t run = buf ? buf->length : 0;
	struct sf_registration *reg;
	int ret;

	if (!buf)
		buf = sf_segment_covering_run(r->seg, r->addr + r->done, &run);
	if (!buf)
		return -EFAULT;
	ret = sf_registration_bind(s->ctx->engine, r->seg, buf, &reg);
	if (ret)
		return ret;
	sf_registration_put(r->reg);
	r->reg = reg;
	r->run = run;
	return 0;
}

int segctl_range_next(struct segctl *s, struct segctl_range *r, uint32_t max,
		      uint64_t *addr, uint32_t *len,
		      struct sf_registration **reg)
{
	uint64_t n = r->len - r->done;
	int ret;

	if (!n) {
		*len = 0;
		return 0;
	}
	if (!r->run) {
		ret = enter_buffer(s, r);
		if (ret)
			return ret;
	}
	if (n > r->run)
		n = r->run;
	if (n > max)
		n = max;
	*addr = r->addr + r->done;
	*len = (uint32_t)n;
	*reg = r->reg;
	r->done += n;
	r->run -= n;
	return 0;
}
