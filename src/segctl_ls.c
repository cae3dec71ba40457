/* SPDX-License-Identifier: MIT */
/* segctl ls: segments of the store, or buffers of a segment. */
#include "config.h"
#include "segctl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "names.h"
#include "segment.h"

/* One line of --details; a segment that cannot be looked up has one too. */
static void print_details(struct segctl *s, const char *name)
{
	struct sf_segment *seg = NULL;
	struct sf_err err = { 0 };

	if (segctl_lookup(s, name, &seg, &err)) {
		printf("%-10s %8s %16s  ", "-", "-", "-");
		segctl_plain(stdout, name);
		printf("  (%s)\n", err.text);
		return;
	}
	printf("%-10s %8" PRIu32 " %16" PRIu64 "  ",
	       seg->protocol[0] ? seg->protocol : "-", seg->nr_buffers,
	       seg->total_bytes);
	segctl_plain(stdout, name);
	putchar('\n');
	sf_segment_put(seg);
}

static void json_details(struct segctl *s, const char *name)
{
	struct sf_segment *seg = NULL;
	struct sf_err err = { 0 };

	if (segctl_lookup(s, name, &seg, &err)) {
		fputs(",\"error\":", stdout);
		segctl_json_string(stdout, err.text);
		return;
	}
	fputs(",\"protocol\":", stdout);
	segctl_json_string(stdout, seg->protocol);
	printf(",\"buffers\":%" PRIu32 ",\"bytes\":%" PRIu64, seg->nr_buffers,
	       seg->total_bytes);
	sf_segment_put(seg);
}

static void print_segments(struct segctl *s,
			   const struct sf_directory_list *list)
{
	if (s->details)
		printf("%-10s %8s %16s  %s\n", "PROTOCOL", "BUFFERS", "BYTES",
		       "SEGMENT");
	for (size_t i = 0; i < list->nr; i++) {
		if (s->details) {
			print_details(s, list->names[i]);
		} else {
			segctl_plain(stdout, list->names[i]);
			putchar('\n');
		}
	}
}

static void json_segments(struct segctl *s,
			  const struct sf_directory_list *list)
{
	putchar('[');
	for (size_t i = 0; i < list->nr; i++) {
		printf("%s{\"segment\":", i ? ",\n " : "");
		segctl_json_string(stdout, list->names[i]);
		if (s->details)
			json_details(s, list->names[i]);
		putchar('}');
	}
	puts("]");
}

static enum sf_exit list_segments(struct segctl *s)
{
	struct sf_directory_list *list;
	struct sf_err err = { 0 };

	if (sf_directory_list(s->ctx->directory, &list, &err) < 0)
		return segctl_fail(SF_EXIT_META, "%s", err.text);
	if (s->json)
		json_segments(s, list);
	else
		print_segments(s, list);
	sf_directory_list_free(list);
	return SF_EXIT_OK;
}

static void print_buffers(const struct sf_segment *seg)
{
	char name[SF_BUFFER_NAME_MAX];

	printf("%-20s %16s  %-10s %s\n", "BUFFER", "BYTES", "PROTOCOL",
	       "LOCATION");
	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		sf_segment_buffer_name(b, name);
		printf("%-20s %16" PRIu64 "  %-10s ", name, b->length,
		       b->protocol[0] ? b->protocol : "-");
		segctl_plain(stdout, b->location);
		putchar('\n');
	}
	/* What was left out, and why. */
	fputs(seg->problems, stderr);
}

static void json_buffers(const struct sf_segment *seg)
{
	char name[SF_BUFFER_NAME_MAX];

	fputs("{\"segment\":", stdout);
	segctl_json_string(stdout, seg->name);
	fputs(",\"protocol\":", stdout);
	segctl_json_string(stdout, seg->protocol);
	fputs(",\"timestamp\":", stdout);
	segctl_json_string(stdout, seg->timestamp);
	fputs(",\"buffers\":[", stdout);
	for (uint32_t i = 0; i < seg->nr_buffers; i++) {
		const struct sf_buffer *b = &seg->buffers[i];

		sf_segment_buffer_name(b, name);
		printf("%s\n {\"name\":\"%s\",\"addr\":\"0x%" PRIx64
		       "\",\"length\":%" PRIu64 ",\"index\":%" PRIu32
		       ",\"protocol\":", i ? "," : "", name, b->addr,
		       b->length, b->index);
		segctl_json_string(stdout, b->protocol);
		fputs(",\"location\":", stdout);
		segctl_json_string(stdout, b->location);
		putchar('}');
	}
	fputs("],\"problems\":", stdout);
	segctl_json_string(stdout, seg->problems);
	puts("}");
}

enum sf_exit segctl_ls(struct segctl *s, char **args, int nr)
{
	struct sf_segment *seg = NULL;
	struct sf_err err = { 0 };
	enum sf_exit status = segctl_open(s, 4, 4096, &err);

	if (status)
		return segctl_fail(status, "%s", err.text);
	if (!nr)
		return list_segments(s);
	status = segctl_lookup(s, args[0], &seg, &err);
	if (status)
		return segctl_fail(status, "%s", err.text);
	if (s->json)
		json_buffers(seg);
	else
		print_buffers(seg);
	sf_segment_put(seg);
	return SF_EXIT_OK;
}
