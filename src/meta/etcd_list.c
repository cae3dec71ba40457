/* SPDX-License-Identifier: MIT */
/*
 * Listing: the names under two folders of keys, page by page, without values.
 * A name with a slash is known only by its rpc_meta key (its descriptor lies
 * beside the folders, among anything else), so for those one more question
 * tells whether there is a descriptor. One thread, no state.
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "blob.h"
#include "err.h"
#include "meta/etcd_json.h"

#define PAGE   1000
#define NR_MAX (4u << 20) /* names; a store has some thousands */
#define NR_ASK 64	  /* etcd takes 128 in one transaction */

struct name {
	char *text;
	bool rpc;	/* from rpc_meta */
	bool described; /* has a descriptor */
};

struct names {
	struct sf_etcd *etcd;
	struct name *items;
	size_t nr, size;
	unsigned int *skipped;
};

static int add_name(struct names *names, const char *text, bool rpc)
{
	struct name *more;
	size_t size;

	if (names->nr == NR_MAX)
		return -EMSGSIZE;
	if (names->nr == names->size) {
		size = names->size ? 2 * names->size : 256;
		more = realloc(names->items, size * sizeof(*more));
		if (!more)
			return -ENOMEM;
		names->items = more;
		names->size = size;
	}
	more = &names->items[names->nr];
	more->text = strdup(text);
	if (!more->text)
		return -ENOMEM;
	more->rpc = rpc;
	more->described = !rpc;
	names->nr++;
	return 0;
}

/* "ram/a/b" is the descriptor of a name "ram/a/b", not of "a/b". */
static int add_key(struct names *names, const struct sf_blob *key,
		   const char *folder, bool rpc)
{
	size_t skip = strlen(folder);
	const char *text = key->data + skip;

	if (key->len < skip || memcmp(key->data, folder, skip))
		return -EBADMSG;
	if (strlen(key->data) != key->len) {
		++*names->skipped;
		return 0;
	}
	if (!*text || *text == '/' || (!rpc && strchr(text, '/')))
		return 0;
	return add_name(names, text, rpc);
}

/* ---- pages ---- */

static char *page_body(const void *from, size_t from_len, const char *folder)
{
	char *key, *end, *body = NULL;
	char *stop = strdup(folder);

	if (!stop)
		return NULL;
	stop[strlen(stop) - 1]++; /* "ram/" ends before "ram0" */
	key = sf_etcd_base64(from, from_len);
	end = sf_etcd_base64(stop, strlen(stop));
	if (key && end)
		body = sf_etcd_format("{\"key\":\"%s\",\"range_end\":\"%s\","
				      "\"keys_only\":true,\"limit\":\"%d\"}",
				      key, end, PAGE);
	free(key);
	free(end);
	free(stop);
	return body;
}

/* The keys of a page; *LAST becomes its last one, NULL for an empty page. */
static int take_page(struct names *names, const struct sf_etcd_reply *reply,
		     const char *folder, bool rpc, struct sf_blob **last)
{
	const cJSON *kvs = sf_etcd_member(reply->json, "kvs"), *kv;
	struct sf_blob *key = NULL, *before = *last;
	int res = 0;

	*last = NULL;
	cJSON_ArrayForEach(kv, kvs)
	{
		sf_blob_put(key);
		key = NULL;
		res = sf_etcd_bytes(&key, kv, "key");
		if (!res)
			res = add_key(names, key, folder, rpc);
		if (res)
			break;
	}
	/* A page that does not go on would be asked for without end. */
	if (!res && key && before && before->len == key->len &&
	    !memcmp(before->data, key->data, key->len))
		res = -EBADMSG;
	if (res)
		sf_blob_put(key);
	else
		*last = key;
	sf_blob_put(before);
	return res == -ENOENT ? -EBADMSG : res;
}

static int list_error(int res, struct sf_err *err)
{
	const char *why = "the reply to a listing makes no sense";

	if (res == -ENOMEM)
		why = "out of memory";
	else if (res == -EMSGSIZE)
		why = "more segments than can be listed";
	return sf_err_set(err, res, "etcd: %s", why);
}

static int list_folder(struct names *names, const char *folder, bool rpc,
		       struct sf_err *err)
{
	struct sf_blob *last = NULL;
	struct sf_etcd_reply reply;
	const void *from = folder;
	size_t len = strlen(folder);
	bool more;
	int res;

	do {
		res = sf_etcd_run(names->etcd, "kv/range",
				  page_body(from, len, folder), &reply, err);
		if (res)
			break;
		res = take_page(names, &reply, folder, rpc, &last);
		more = cJSON_IsTrue(sf_etcd_member(reply.json, "more"));
		sf_etcd_reply_fini(&reply);
		if (res) {
			list_error(res, err);
			break;
		}
		if (last) { /* go on behind it: its NUL counts */
			from = last->data;
			len = last->len + 1;
		}
	} while (last && more);
	sf_blob_put(last);
	return res;
}

/* ---- names with slashes ---- */

static bool wants_question(const struct name *name)
{
	return name->rpc && strchr(name->text, '/');
}

/* Append the question about NAME to OUT. */
static int ask_about(FILE *out, const struct sf_etcd *etcd, const char *name,
		     bool first)
{
	char *key = sf_meta_key(etcd->cluster_id, SF_META_SEGMENT, name);
	char *text = key ? sf_etcd_base64(key, strlen(key)) : NULL;

	if (text)
		fprintf(out,
			"%s{\"request_range\":{\"key\":\"%s\","
			"\"count_only\":true}}",
			first ? "" : ",", text);
	free(key);
	free(text);
	return text ? 0 : -ENOMEM;
}

/* The body that asks about up to NR_ASK names from *I on, which end up in
 * ASKED; *I moves behind them. */
static char *ask_body(const struct names *names, size_t *i,
		      struct name *asked[], int *nr)
{
	char *body = NULL;
	size_t size;
	FILE *out = open_memstream(&body, &size);
	int res = 0;

	if (!out)
		return NULL;
	*nr = 0;
	fputs("{\"success\":[", out);
	for (; !res && *i < names->nr && *nr < NR_ASK; ++*i) {
		if (!wants_question(&names->items[*i]))
			continue;
		res = ask_about(out, names->etcd, names->items[*i].text, !*nr);
		asked[(*nr)++] = &names->items[*i];
	}
	fputs("]}", out);
	if (ferror(out))
		res = -ENOMEM;
	if (fclose(out) || res) {
		free(body);
		return NULL;
	}
	return body;
}

static void take_answers(const struct sf_etcd_reply *reply,
			 struct name *asked[], int nr)
{
	const cJSON *responses = sf_etcd_member(reply->json, "responses");
	const cJSON *range;
	int64_t count;
	int i;

	for (i = 0; i < nr; i++) {
		range = sf_etcd_member(cJSON_GetArrayItem(responses, i),
				       "response_range");
		if (!sf_etcd_int(&count, range, "count", NULL))
			asked[i]->described = count > 0;
	}
}

static int find_descriptors(struct names *names, struct sf_err *err)
{
	struct name *asked[NR_ASK];
	struct sf_etcd_reply reply;
	size_t i = 0;
	char *body;
	int nr, res;

	while (i < names->nr) {
		body = ask_body(names, &i, asked, &nr);
		if (body && !nr) {
			free(body);
			break;
		}
		res = sf_etcd_run(names->etcd, "kv/txn", body, &reply, err);
		if (res)
			return res;
		take_answers(&reply, asked, nr);
		sf_etcd_reply_fini(&reply);
	}
	return 0;
}

/* ---- the whole ---- */

static int by_name(const void *a, const void *b)
{
	const struct name *na = a, *nb = b;

	return strcmp(na->text, nb->text);
}

/* Both keys of a name have become neighbours. */
static int report(struct names *names, sf_meta_list_fn *fn, void *arg)
{
	struct name *name;
	size_t i;
	bool described;
	int res;

	if (names->nr)
		qsort(names->items, names->nr, sizeof(*name), by_name);
	for (i = 0; i < names->nr; i++) {
		name = &names->items[i];
		described = name->described;
		while (i + 1 < names->nr &&
		       !strcmp(name->text, names->items[i + 1].text))
			described |= names->items[++i].described;
		res = fn(arg, name->text, !described);
		if (res)
			return res;
	}
	return 0;
}

static int list_both(struct names *names, struct sf_err *err)
{
	char *ram = sf_etcd_format("%sram/", names->etcd->prefix);
	char *rpc = sf_etcd_format("%srpc_meta/", names->etcd->prefix);
	int res = -ENOMEM;

	if (ram && rpc) {
		res = list_folder(names, ram, false, err);
		if (!res)
			res = list_folder(names, rpc, true, err);
		if (!res)
			res = find_descriptors(names, err);
	} else {
		list_error(res, err);
	}
	free(ram);
	free(rpc);
	return res;
}

int sf_etcd_list(void *priv, sf_meta_list_fn *fn, void *arg,
		 unsigned int *skipped, struct sf_err *err)
{
	struct names names = { .etcd = priv, .skipped = skipped };
	size_t i;
	int res;

	res = list_both(&names, err);
	if (!res)
		res = report(&names, fn, arg);
	for (i = 0; i < names.nr; i++)
		free(names.items[i].text);
	free(names.items);
	return res;
}
