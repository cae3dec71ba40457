/* SPDX-License-Identifier: MIT */
/* Listings: what the store says, or the names used so far where it cannot say.
 * Sorted, without doubles. On the caller's thread. */
#include "config.h"
#include "directory_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta.h"

struct builder {
	struct sf_directory_list *list;
	size_t size;
};

static int add(struct builder *b, const char *name)
{
	struct sf_directory_list *list = b->list;
	size_t size = b->size ? 2 * b->size : 64;
	char **more;

	if (list->nr == b->size) {
		more = realloc(list->names, size * sizeof(*more));
		if (!more)
			return -ENOMEM;
		list->names = more;
		b->size = size;
	}
	list->names[list->nr] = strdup(name);
	if (!list->names[list->nr])
		return -ENOMEM;
	list->nr++;
	return 0;
}

static int add_listed(void *arg, const char *name, bool rpc_only)
{
	return rpc_only ? 0 : add(arg, name);
}

static int add_used(struct builder *b, struct sf_directory *dir)
{
	struct entry *e;
	size_t i;
	int res = 0;

	pthread_mutex_lock(&dir->lock);
	for (i = 0; !res && i < SF_DIRECTORY_NR_BUCKETS; i++)
		LIST_FOREACH (e, &dir->buckets[i], hash_link)
			if (e->seg && !res)
				res = add(b, e->name);
	pthread_mutex_unlock(&dir->lock);
	return res;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct sf_directory_list *list)
{
	size_t i, n = 0;

	if (!list->nr)
		return;
	qsort(list->names, list->nr, sizeof(list->names[0]), by_text);
	for (i = 1; i < list->nr; i++) {
		if (strcmp(list->names[i], list->names[n]))
			list->names[++n] = list->names[i];
		else
			free(list->names[i]);
	}
	list->nr = n + 1;
}

static int ask_store(struct builder *b, struct sf_directory *dir,
		     struct sf_err *err)
{
	uint64_t sent_ms = sf_directory_now();
	struct sf_err own;
	bool news;
	int res;

	if (!err)
		err = &own;
	res = sf_meta_list(dir->meta, add_listed, b, NULL, err);
	if (res == -ENOMEM)
		return sf_err_set(err, res, "out of memory");
	pthread_mutex_lock(&dir->lock);
	news = sf_directory_note_store(dir, res, sent_ms, err);
	pthread_mutex_unlock(&dir->lock);
	if (news)
		sf_directory_log_store(res, err);
	return res;
}

int sf_directory_list(struct sf_directory *dir, struct sf_directory_list **out,
		      struct sf_err *err)
{
	struct builder b = { .list = calloc(1, sizeof(*b.list)) };
	int res;

	if (!b.list)
		return sf_err_set(err, -ENOMEM, "out of memory");
	if (sf_meta_caps(dir->meta) & SF_META_CAN_LIST) {
		res = ask_store(&b, dir, err);
	} else {
		res = add_used(&b, dir);
		if (res)
			sf_err_set(err, res, "out of memory");
	}
	if (res) {
		sf_directory_list_free(b.list);
		return res;
	}
	sort(b.list);
	*out = b.list;
	return 0;
}

void sf_directory_list_free(struct sf_directory_list *list)
{
	size_t i;

	if (!list)
		return;
	for (i = 0; i < list->nr; i++)
		free(list->names[i]);
	free(list->names);
	free(list);
}
