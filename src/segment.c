/* SPDX-License-Identifier: MIT */
/*
 * Snapshots of segments: see segment.h. A snapshot is one allocation, laid
 * out by pack() and never written again but for its reference count, so it is
 * shared between threads freely. Knows nothing of JSON; segment_json.c fills
 * the draft that is packed here.
 */
#include "config.h"
#include "segment.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "names.h"
#include "range.h"
#include "segment_draft.h"
#include "segment_json.h"
#include "topology.h"

struct snapshot {
	/* First: snapshot_of() finds the rest from it. */
	struct sf_segment seg;
	atomic_uint refs;
	struct sf_topology topology;
	const uint64_t *max_end;	/* of buffers[0..i], the highest end */
	const uint32_t *by_index;	/* positions in buffers, by .index */
};

static const struct snapshot *snapshot_of(const struct sf_segment *seg)
{
	return (const struct snapshot *)seg;
}

/* ---- making one ---- */

/* Where the parts are in the allocation. */
struct layout {
	size_t devices, buffers, keys, max_end, by_index, rows, row_names;
	size_t strings, problems;
	size_t total;
};

static size_t reserve(struct layout *l, size_t nr, size_t size)
{
	size_t at = (l->total + 7) & ~(size_t)7;

	l->total = at + nr * size;
	return at;
}

static struct layout lay_out(const struct sf_draft *d)
{
	struct layout l = { .total = sizeof(struct snapshot) };

	l.devices = reserve(&l, d->devices.nr, sizeof(struct sf_device));
	l.buffers = reserve(&l, d->buffers.nr, sizeof(struct sf_buffer));
	l.keys = reserve(&l, d->keys.nr, sizeof(uint64_t));
	l.max_end = reserve(&l, d->buffers.nr, sizeof(uint64_t));
	l.by_index = reserve(&l, d->buffers.nr, sizeof(uint32_t));
	l.rows = reserve(&l, d->rows.nr, sizeof(struct sf_topology_row));
	l.row_names = reserve(&l, d->row_names.nr, sizeof(char *));
	l.strings = reserve(&l, d->strings.nr, 1);
	l.problems = reserve(&l, d->problems.nr, 1);
	return l;
}

static void *part(struct snapshot *s, size_t at)
{
	return (char *)s + at;
}

static void pack_devices(struct snapshot *s, const struct sf_draft *d,
			 const struct layout *l)
{
	const struct sf_draft_device *from = d->devices.data;
	struct sf_device *to = part(s, l->devices);
	const char *strings = part(s, l->strings);

	for (size_t i = 0; i < d->devices.nr; i++) {
		to[i].name = strings + from[i].name;
		to[i].lid = from[i].lid;
		to[i].has_gid = from[i].has_gid;
		memcpy(to[i].gid, from[i].gid, sizeof(to[i].gid));
	}
	s->seg.devices = to;
	s->seg.nr_devices = (uint32_t)d->devices.nr;
}

static int compare_index(const void *pa, const void *pb, void *arg)
{
	const struct sf_buffer *buffers = arg;
	uint32_t a = buffers[*(const uint32_t *)pa].index;
	uint32_t b = buffers[*(const uint32_t *)pb].index;

	return a < b ? -1 : a > b;
}

/* What look-ups use besides the sorted buffers. */
static void pack_lookup(struct snapshot *s, struct sf_buffer *buffers,
			uint64_t *max_end, uint32_t *by_index)
{
	uint32_t nr = s->seg.nr_buffers;
	uint64_t total = 0, end = 0;

	for (uint32_t i = 0; i < nr; i++) {
		if (buffers[i].addr + buffers[i].length > end)
			end = buffers[i].addr + buffers[i].length;
		max_end[i] = end;
		by_index[i] = i;
		if (__builtin_add_overflow(total, buffers[i].length, &total))
			total = UINT64_MAX;
	}
	if (nr)
		qsort_r(by_index, nr, sizeof(*by_index), compare_index,
			buffers);
	s->seg.total_bytes = total;
	s->max_end = max_end;
	s->by_index = by_index;
}

static void pack_buffers(struct snapshot *s, const struct sf_draft *d,
			 const struct layout *l)
{
	const struct sf_draft_buffer *from = d->buffers.data;
	struct sf_buffer *to = part(s, l->buffers);
	const char *strings = part(s, l->strings);
	uint64_t *keys = part(s, l->keys);

	if (d->keys.nr)
		memcpy(keys, d->keys.data, d->keys.nr * sizeof(*keys));
	for (size_t i = 0; i < d->buffers.nr; i++)
		to[i] = (struct sf_buffer){
			.addr = from[i].addr,
			.length = from[i].length,
			.location = strings + from[i].location,
			.protocol = strings + from[i].protocol,
			.proto = from[i].proto,
			.index = from[i].index,
			.long_name = from[i].long_name,
			.nr_keys = from[i].nr_keys,
			.rkeys = keys + from[i].first_key,
		};
	s->seg.buffers = to;
	s->seg.nr_buffers = (uint32_t)d->buffers.nr;
	pack_lookup(s, to, part(s, l->max_end), part(s, l->by_index));
}

static void pack_topology(struct snapshot *s, const struct sf_draft *d,
			  const struct layout *l)
{
	const struct sf_draft_row *from = d->rows.data;
	const uint32_t *from_names = d->row_names.data;
	struct sf_topology_row *to = part(s, l->rows);
	const char **names = part(s, l->row_names);
	const char *strings = part(s, l->strings);

	for (size_t i = 0; i < d->row_names.nr; i++)
		names[i] = strings + from_names[i];
	for (size_t i = 0; i < d->rows.nr; i++) {
		to[i].location = strings + from[i].location;
		to[i].nr_names = from[i].nr_names;
		to[i].nr_preferred = from[i].nr_preferred;
		to[i].names = names + from[i].first_name;
	}
	s->topology.rows = to;
	s->topology.nr_rows = (uint32_t)d->rows.nr;
	if (d->rows.nr)
		s->seg.topology = &s->topology;
}

static void pack_scalars(struct snapshot *s, const struct sf_draft *d,
			 const struct layout *l)
{
	char *strings = part(s, l->strings), *problems = part(s, l->problems);
	struct sf_segment *seg = &s->seg;

	memcpy(strings, d->strings.data, d->strings.nr);
	memcpy(problems, d->problems.data, d->problems.nr);
	seg->name = strings + d->name;
	seg->self_name = strings + d->self_name;
	seg->protocol = strings + d->protocol;
	seg->timestamp = strings + d->timestamp;
	seg->rdma_server_name = strings + d->rdma_server_name;
	seg->tcp_data_host = strings + d->tcp_data_host;
	seg->tcp_data_port = d->tcp_data_port;
	seg->tcp_version = d->tcp_version;
	seg->rpc_host = strings + d->rpc_host;
	seg->rpc_port = d->rpc_port;
	seg->error = d->error;
	seg->problems = problems;
}

static struct snapshot *pack(const struct sf_draft *d)
{
	struct layout l = lay_out(d);
	struct snapshot *s = calloc(1, l.total);

	if (!s)
		return NULL;
	atomic_init(&s->refs, 1);
	pack_scalars(s, d, &l);
	pack_devices(s, d, &l);
	pack_buffers(s, d, &l);
	pack_topology(s, d, &l);
	return s;
}

int sf_segment_decode(struct sf_segment **out, const char *name,
		      struct sf_blob *raw, struct sf_blob *raw_rpc)
{
	struct snapshot *s = NULL;
	struct sf_draft d;

	if (sf_draft_init(&d, name))
		return -ENOMEM;
	if (raw)
		sf_segment_json_decode(&d, raw->data, raw->len);
	else
		sf_draft_fail(&d, -ENOENT, "no descriptor");
	if (raw_rpc)
		sf_rpc_meta_json_decode(&d, raw_rpc->data, raw_rpc->len);
	sf_draft_finish(&d);
	if (!d.oom)
		s = pack(&d);
	sf_draft_fini(&d);
	if (!s)
		return -ENOMEM;
	s->seg.raw = raw ? sf_blob_get(raw) : NULL;
	s->seg.raw_rpc = raw_rpc ? sf_blob_get(raw_rpc) : NULL;
	*out = &s->seg;
	return 0;
}

struct sf_segment *sf_segment_get(struct sf_segment *seg)
{
	atomic_fetch_add(&((struct snapshot *)seg)->refs, 1);
	return seg;
}

void sf_segment_put(struct sf_segment *seg)
{
	struct snapshot *s = (struct snapshot *)seg;

	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	sf_blob_put(seg->raw);
	sf_blob_put(seg->raw_rpc);
	free(s);
}

bool sf_segment_is_shared(const struct sf_segment *seg)
{
	return atomic_load(&snapshot_of(seg)->refs) > 1;
}

/* ---- looking in one ---- */

/* The first buffer that does not come before (ADDR, LENGTH) in their order. */
static uint32_t lower_bound(const struct sf_segment *seg, uint64_t addr,
			    uint64_t length)
{
	uint32_t lo = 0, hi = seg->nr_buffers;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct sf_buffer *b = &seg->buffers[mid];

		if (b->addr < addr || (b->addr == addr && b->length > length))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct sf_buffer *sf_segment_find(const struct sf_segment *seg,
					uint64_t addr, uint64_t length)
{
	uint32_t i = lower_bound(seg, addr, length ? length : UINT64_MAX);
	const struct sf_buffer *b = &seg->buffers[i];

	if (i == seg->nr_buffers || b->addr != addr ||
	    (length && b->length != length))
		return NULL;
	return b;
}

/* Backwards from the last that begins at or before ADDR, as far as any can
 * still reach the end: one step, unless buffers overlap. */
const struct sf_buffer *sf_segment_covering(const struct sf_segment *seg,
					    uint64_t addr, uint64_t len)
{
	const uint64_t *max_end = snapshot_of(seg)->max_end;
	const struct sf_buffer *best = NULL, *b;
	uint32_t i = lower_bound(seg, addr, 0);

	if (!sf_range_ok(addr, len))
		return NULL;
	while (i-- > 0 && max_end[i] >= addr + len) {
		b = &seg->buffers[i];
		if (sf_range_within(addr, len, b->addr, b->length) &&
		    (!best || b->index < best->index))
			best = b;
	}
	return best;
}

const struct sf_buffer *sf_segment_covering_run(const struct sf_segment *seg,
						uint64_t addr, uint64_t *run)
{
	const struct sf_buffer *b = sf_segment_covering(seg, addr, 1);

	if (b)
		*run = b->length - (addr - b->addr);
	return b;
}

const struct sf_buffer *sf_segment_by_index(const struct sf_segment *seg,
					    uint32_t index)
{
	const uint32_t *by_index = snapshot_of(seg)->by_index;
	uint32_t lo = 0, hi = seg->nr_buffers;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct sf_buffer *b = &seg->buffers[by_index[mid]];

		if (b->index == index)
			return b;
		if (b->index < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

void sf_segment_buffer_name(const struct sf_buffer *buf,
			    char out[])
{
	sf_buffer_name_format(out, buf->addr,
			      buf->long_name ? buf->length : 0);
}

/* ---- comparing two ---- */

bool sf_segment_same_owner(const struct sf_segment *a,
			   const struct sf_segment *b)
{
	return a->rpc_port == b->rpc_port &&
	       a->tcp_data_port == b->tcp_data_port &&
	       a->tcp_version == b->tcp_version &&
	       !strcmp(a->rpc_host, b->rpc_host) &&
	       !strcmp(a->tcp_data_host, b->tcp_data_host) &&
	       !strcmp(a->self_name, b->self_name) &&
	       !strcmp(a->rdma_server_name, b->rdma_server_name);
}

/* The key that BUF has for the device that is called NAME. */
static bool key_for(const struct sf_segment *seg, const struct sf_buffer *buf,
		    const char *name, uint64_t *key)
{
	for (uint32_t i = 0; i < buf->nr_keys; i++) {
		if (!strcmp(seg->devices[i].name, name)) {
			*key = buf->rkeys[i];
			return true;
		}
	}
	return false;
}

bool sf_buffer_same(const struct sf_segment *seg_a, const struct sf_buffer *a,
		    const struct sf_segment *seg_b, const struct sf_buffer *b)
{
	uint64_t key_a, key_b;

	if (a->addr != b->addr || a->length != b->length ||
	    a->proto != b->proto || strcmp(a->protocol, b->protocol) ||
	    a->nr_keys != b->nr_keys)
		return false;
	for (uint32_t i = 0; i < a->nr_keys; i++) {
		const char *name = seg_a->devices[i].name;

		if (!*name || !*seg_b->devices[i].name ||
		    !strcmp(name, seg_b->devices[i].name)) {
			if (a->rkeys[i] != b->rkeys[i])
				return false;
			continue;
		}
		if (!key_for(seg_a, a, name, &key_a) ||
		    !key_for(seg_b, b, name, &key_b) || key_a != key_b)
			return false;
	}
	return true;
}
