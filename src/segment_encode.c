/* SPDX-License-Identifier: MIT */
/*
 * Descriptors and rpc_meta as Mooncake writes them: compact, members in byte
 * order, integers exact, everything beyond ASCII escaped, a newline at the end
 * (protocol sections 1.3, 2.2, 2.3, 5.1). Pure.
 */
#include "config.h"
#include "segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gid.h"
#include "topology.h"

/*
 * The character at *P, which is moved behind it; U+FFFD for a byte that begins
 * no character. (Shortest forms only, no surrogates, nothing over U+10FFFF.)
 */
static uint32_t next_char(const char **p)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *s = (const unsigned char *)*p;
	int len = *s < 0x80 ? 1 : *s < 0xc0 ? 0 : *s < 0xe0 ? 2 :
		  *s < 0xf0 ? 3 : *s < 0xf8 ? 4 : 0;
	uint32_t c = len > 1 ? *s & (0x7f >> len) : *s;

	++*p;
	for (int i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0xfffd;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (!len || c < least[len] || c > 0x10ffff ||
	    (c >= 0xd800 && c < 0xe000))
		return 0xfffd;
	if (len > 1)
		*p += len - 1;
	return c;
}

static void put_char(FILE *out, uint32_t c)
{
	static const char plain[] = "\b\f\n\r\t\"\\", shown[] = "bfnrt\"\\";
	const char *short_form = c && c < 0x80 ? strchr(plain, (int)c) : NULL;

	if (short_form)
		fprintf(out, "\\%c", shown[short_form - plain]);
	else if (c >= 0x10000)
		fprintf(out, "\\u%04" PRIx32 "\\u%04" PRIx32,
			0xd800 + ((c - 0x10000) >> 10),
			0xdc00 + ((c - 0x10000) & 0x3ff));
	else if (c < 0x20 || c >= 0x80)
		fprintf(out, "\\u%04" PRIx32, c);
	else
		fputc((int)c, out);
}

static void put_string(FILE *out, const char *text)
{
	fputc('"', out);
	for (const char *p = text ? text : ""; *p;)
		put_char(out, next_char(&p));
	fputc('"', out);
}

static void put_keys(FILE *out, const char *name, const struct sf_buffer *b)
{
	fprintf(out, "\"%s\":[", name);
	for (uint32_t i = 0; i < b->nr_keys; i++)
		fprintf(out, "%s%" PRIu64, i ? "," : "", b->rkeys[i]);
	fputc(']', out);
}

/* Of local keys peers only check the number. Theirs to know are the remote
 * ones, so those stand in both places. */
static void put_buffer(FILE *out, const struct sf_segment *seg,
		       const struct sf_buffer *b, bool rdma)
{
	const char *name = b->location;

	fprintf(out, "{\"addr\":%" PRIu64 ",\"length\":%" PRIu64 ",", b->addr,
		b->length);
	if (rdma) {
		put_keys(out, "lkey", b);
		fputc(',', out);
	}
	if (!name || !*name)
		name = rdma ? "*" : seg->name;	/* may not be empty */
	fputs("\"name\":", out);
	put_string(out, name);
	if (rdma) {
		fputc(',', out);
		put_keys(out, "rkey", b);
	}
	fputc('}', out);
}

static void put_devices(FILE *out, const struct sf_segment *seg)
{
	char gid[SF_GID_TEXT_MAX];

	fputs(",\"devices\":[", out);
	for (uint32_t i = 0; i < seg->nr_devices; i++) {
		const struct sf_device *dev = &seg->devices[i];

		sf_gid_format(gid, dev->gid);
		fprintf(out, "%s{\"gid\":\"%s\",\"lid\":%u,\"name\":",
			i ? "," : "", gid, dev->lid);
		put_string(out, dev->name);
		fputc('}', out);
	}
	fputc(']', out);
}

static void put_list(FILE *out, const char *const *names, uint32_t nr)
{
	fputc('[', out);
	for (uint32_t i = 0; i < nr; i++) {
		if (i)
			fputc(',', out);
		put_string(out, names[i]);
	}
	fputc(']', out);
}

static void put_matrix(FILE *out, const struct sf_topology *topo)
{
	fputs(",\"priority_matrix\":{", out);
	for (uint32_t i = 0; topo && i < topo->nr_rows; i++) {
		const struct sf_topology_row *r = &topo->rows[i];

		if (i)
			fputc(',', out);
		put_string(out, r->location);
		fputs(":[", out);
		put_list(out, r->names, r->nr_preferred);
		fputc(',', out);
		put_list(out, r->names + r->nr_preferred,
			 r->nr_names - r->nr_preferred);
		fputc(']', out);
	}
	fputc('}', out);
}

static void put_member(FILE *out, const char *name, const char *text)
{
	fprintf(out, ",\"%s\":", name);
	put_string(out, text);
}

static void put_segment(FILE *out, const struct sf_segment *seg)
{
	bool rdma = !strcmp(seg->protocol, "rdma");

	fputs("{\"buffers\":[", out);
	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		if (i)
			fputc(',', out);
		put_buffer(out, seg, &seg->buffers[i], rdma);
	}
	fputc(']', out);
	if (rdma)
		put_devices(out, seg);
	put_member(out, "name", seg->name);
	if (rdma)
		put_matrix(out, seg->topology);
	put_member(out, "protocol", seg->protocol);
	if (seg->rdma_server_name && *seg->rdma_server_name)
		put_member(out, "rdma_server_name", seg->rdma_server_name);
	if (seg->tcp_data_host && *seg->tcp_data_host)
		put_member(out, "tcp_data_host", seg->tcp_data_host);
	fprintf(out, ",\"tcp_data_port\":%u,\"tcp_proto_version\":%u",
		seg->tcp_data_port, seg->tcp_version ? seg->tcp_version : 1);
	put_member(out, "timestamp", seg->timestamp);
	fputs("}\n", out);
}

/* Close OUT, which writes *TEXT; NULL when that ran out of memory. */
static char *take(FILE *out, char **text)
{
	bool failed = ferror(out);

	if (!fclose(out) && !failed)
		return *text;
	free(*text);
	return NULL;
}

char *sf_segment_encode(const struct sf_segment *seg)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	put_segment(out, seg);
	return take(out, &text);
}

char *sf_rpc_meta_encode(const char *host, uint16_t port)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	fputs("{\"ip_or_host_name\":", out);
	put_string(out, host);
	fprintf(out, ",\"rpc_port\":%u}\n", port);
	return take(out, &text);
}
