/* SPDX-License-Identifier: MIT */
/*
 * Frozen directory contents: see dir.h. Names are made when they are asked for;
 * what is kept is the snapshot and, where that is a selection, the indices.
 * Immutable once made.
 */
#include "config.h"
#include "fs/dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "fs/tree.h"
#include "segment.h"

struct sf_dir {
	struct sf_segment *seg;
	struct sf_directory_list *list;
	size_t nr;
	uint32_t *picks;	/* LOCATION: which buffers */
	char **places;		/* BY_LOCATION: names, sorted, each once */
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int collect_places(struct sf_dir *d)
{
	char name[SF_NAME_MAX + 1];
	size_t kept = 0;

	d->places = calloc((size_t)d->seg->nr_buffers + 1, sizeof(char *));
	if (!d->places)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->seg->nr_buffers; i++) {
		sf_tree_place_name(d->seg->buffers[i].location, name);
		if (d->nr && !strcmp(d->places[d->nr - 1], name))
			continue;
		d->places[d->nr] = strdup(name);
		if (!d->places[d->nr])
			return -ENOMEM;
		d->nr++;
	}
	qsort(d->places, d->nr, sizeof(char *), by_text);
	for (size_t i = 0; i < d->nr; i++) {
		if (kept && !strcmp(d->places[kept - 1], d->places[i]))
			free(d->places[i]);
		else
			d->places[kept++] = d->places[i];
	}
	d->nr = kept;
	return 0;
}

static int collect_picks(struct sf_dir *d, const char *place)
{
	char name[SF_NAME_MAX + 1];

	d->picks = calloc((size_t)d->seg->nr_buffers + 1, sizeof(uint32_t));
	if (!d->picks)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->seg->nr_buffers; i++) {
		sf_tree_place_name(d->seg->buffers[i].location, name);
		if (!strcmp(name, place))
			d->picks[d->nr++] = i;
	}
	return 0;
}

static int fill(struct sf_dir *d, const struct sf_node *node)
{
	enum sf_node_kind kind;

	switch (node->kind) {
	case SF_NODE_ROOT:
		d->nr = d->list->nr;
		return 0;
	case SF_NODE_SEGMENT:
		if (d->seg->error && d->seg->error != -ENOENT)
			return d->seg->error;
		__attribute__((fallthrough));
	case SF_NODE_BY_INDEX:
		d->nr = d->seg->nr_buffers;
		return 0;
	case SF_NODE_BY_LOCATION:
		return collect_places(d);
	case SF_NODE_LOCATION:
		return collect_picks(d, sf_node_place(node));
	default:
		while (sf_tree_control_entry(node->kind, d->seg,
					     (unsigned int)d->nr, &kind))
			d->nr++;
		return 0;
	}
}

int sf_dir_new(struct sf_dir **out, const struct sf_node *node,
	       struct sf_segment *seg, struct sf_directory_list *list)
{
	struct sf_dir *d = calloc(1, sizeof(*d));
	int res;

	if (!d) {
		sf_directory_list_free(list);
		return -ENOMEM;
	}
	d->list = list;
	d->seg = seg ? sf_segment_get(seg) : NULL;
	res = fill(d, node);
	if (res)
		sf_dir_free(d);
	else
		*out = d;
	return res;
}

void sf_dir_free(struct sf_dir *d)
{
	if (!d)
		return;
	if (d->list)
		sf_directory_list_free(d->list);
	for (size_t i = 0; d->places && i < d->nr; i++)
		free(d->places[i]);
	free(d->places);
	free(d->picks);
	sf_segment_put(d->seg);
	free(d);
}

size_t sf_dir_count(const struct sf_dir *d)
{
	return d->nr;
}

struct sf_segment *sf_dir_segment(const struct sf_dir *d)
{
	return d->seg;
}

static void set_buffer(const struct sf_dir *d, size_t i,
		       struct sf_node_key *key, char name[SF_NAME_MAX + 1])
{
	const struct sf_buffer *b =
		&d->seg->buffers[d->picks ? d->picks[i] : i];

	if (key->kind == SF_NODE_INDEX) {
		key->addr = b->index;
	} else {
		key->addr = b->addr;
		key->length = b->length;
	}
	sf_tree_name(key, b, name);
}

void sf_dir_entry(const struct sf_dir *d, const struct sf_node *node,
		  size_t i, char name[SF_NAME_MAX + 1],
		  struct sf_node_key *key)
{
	*key = (struct sf_node_key){
		.segment = sf_node_segment(node),
		.place = sf_node_place(node),
	};
	switch (node->kind) {
	case SF_NODE_ROOT:
		key->kind = SF_NODE_SEGMENT;
		key->segment = d->list->names[i];
		sf_tree_name(key, NULL, name);
		break;
	case SF_NODE_SEGMENT:
		key->kind = SF_NODE_BUFFER;
		set_buffer(d, i, key, name);
		break;
	case SF_NODE_BY_INDEX:
		key->kind = SF_NODE_INDEX;
		set_buffer(d, i, key, name);
		break;
	case SF_NODE_LOCATION:
		key->kind = SF_NODE_LOCATION_BUFFER;
		set_buffer(d, i, key, name);
		break;
	case SF_NODE_BY_LOCATION:
		key->kind = SF_NODE_LOCATION;
		key->place = d->places[i];
		sf_tree_name(key, NULL, name);
		break;
	default:
		strcpy(name, sf_tree_control_entry(node->kind, d->seg,
						   (unsigned int)i,
						   &key->kind));
	}
}
