/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "blob.h"
#include "err.h"
#include "meta.h"
#include "meta/etcd.h"
#include "meta/etcd_json.h"

/* ---- keys ---- */

static void assert_key(const char *cluster, enum sf_meta_kind kind,
		       const char *name, const char *expected)
{
	char *key = sf_meta_key(cluster, kind, name);

	assert_string_equal(key, expected);
	free(key);
}

static void keys_are_those_of_mooncake(void **state)
{
	assert_key(NULL, SF_META_SEGMENT, "10.0.0.5:12345",
		   "mooncake/ram/10.0.0.5:12345");
	assert_key("", SF_META_RPC, "10.0.0.5:12345",
		   "mooncake/rpc_meta/10.0.0.5:12345");
	assert_key("prod", SF_META_SEGMENT, "node-a",
		   "mooncake/prod/ram/node-a");
	assert_key("prod/", SF_META_RPC, "node-a",
		   "mooncake/prod/rpc_meta/node-a");
	assert_key(NULL, SF_META_SEGMENT, "nvmeof/vol1",
		   "mooncake/nvmeof/vol1");
	assert_key(NULL, SF_META_RPC, "nvmeof/vol1",
		   "mooncake/rpc_meta/nvmeof/vol1");
	assert_key(NULL, SF_META_SEGMENT, "//node-a", "mooncake/ram/node-a");
}

static void a_prefix_ends_at_its_slash(void **state)
{
	const char *const ids[] = { "blue", "blue/" };
	char *prefix;
	size_t i;

	for (i = 0; i < 2; i++) {
		prefix = sf_meta_prefix(ids[i]);
		assert_string_equal(prefix, "mooncake/blue/");
		free(prefix);
	}
	prefix = sf_meta_prefix(NULL);
	assert_string_equal(prefix, "mooncake/");
	free(prefix);
}

static void keys_are_read_back(void **state)
{
	static const struct {
		const char *key;
		enum sf_meta_kind kind;
		const char *name;
	} cases[] = {
		{ "ram/a", SF_META_SEGMENT, "a" },
		{ "rpc_meta/a", SF_META_RPC, "a" },
		{ "rpc_meta/a/b", SF_META_RPC, "a/b" },
		{ "a/b", SF_META_SEGMENT, "a/b" },
		{ "ram/a/b", SF_META_SEGMENT, "ram/a/b" },
	};
	enum sf_meta_kind kind;
	const char *name;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_true(sf_meta_key_parse(cases[i].key, &kind, &name));
		assert_int_equal(kind, cases[i].kind);
		assert_string_equal(name, cases[i].name);
	}
	assert_false(sf_meta_key_parse("", &kind, &name));
	assert_false(sf_meta_key_parse("ram/", &kind, &name));
	assert_false(sf_meta_key_parse("rpc_meta/", &kind, &name));
	assert_false(sf_meta_key_parse("loose", &kind, &name));
	assert_false(sf_meta_key_parse("/a", &kind, &name));
}

/* ---- the gate ---- */

static int open_error(const char *source, struct sf_err *err)
{
	struct sf_meta_config config = { .source = source };
	struct sf_meta *meta;

	return sf_meta_open(&meta, &config, err);
}

static void bad_sources_are_refused_with_a_reason(void **state)
{
	static const char *const sources[] = {
		"",
		"nosuch://h:1",
		"ETCD://127.0.0.1:1",
		"etcd://",
		"etcd:// , ;",
		"h:0",
		"h:65536",
		"h:1:2",
		":2379",
		"[::1",
		"[]:1",
		"h:2379/prefix",
		"etcd://http://h:1",
		"a b:1",
		"h:+1",
	};
	struct sf_err err;
	size_t i;

	for (i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
		err.text[0] = '\0';
		assert_int_equal(open_error(sources[i], &err), -EINVAL);
		assert_int_equal(err.code, -EINVAL);
		assert_true(strlen(err.text) > 10);
	}
}

static void a_password_in_the_source_is_not_repeated(void **state)
{
	struct sf_err err;

	assert_int_equal(open_error("etcd://me:hunter2@h:1", &err), -EINVAL);
	assert_null(strstr(err.text, "hunter2"));
}

static void no_scheme_means_etcd(void **state)
{
	struct sf_err err;

	assert_int_equal(open_error("127.0.0.1:1", &err), -ECONNREFUSED);
	assert_string_equal(err.text, "etcd: 127.0.0.1:1: Connection refused");
}

static int bare_get(void *priv, const char *name, struct sf_blob **segment,
		    struct sf_blob **rpc, struct sf_err *err)
{
	assert_string_equal(name, "x");
	return -ENOENT;
}

static const struct sf_meta_ops bare = { .scheme = "bare", .get = bare_get };

static void missing_operations_are_answered_for(void **state)
{
	struct sf_meta *meta;
	struct sf_blob *a, *b;
	struct sf_err err;
	int64_t lease;

	assert_int_equal(sf_meta_wrap(&meta, &bare, NULL, "bare://"), 0);
	assert_int_equal(sf_meta_get(meta, "/x", &a, &b, &err), -ENOENT);
	assert_int_equal(sf_meta_get(meta, "/", &a, &b, &err), -ENOENT);
	assert_int_equal(sf_meta_list(meta, NULL, NULL, NULL, &err),
			 -EOPNOTSUPP);
	assert_string_equal(err.text,
			    "bare://: this store cannot list segments");
	assert_int_equal(sf_meta_watch(meta, NULL, NULL, &err), -EOPNOTSUPP);
	assert_int_equal(sf_meta_put(meta, SF_META_RPC, "x", "", 0, 0, &err),
			 -EOPNOTSUPP);
	assert_int_equal(sf_meta_delete(meta, SF_META_RPC, "x", NULL),
			 -EOPNOTSUPP);
	assert_int_equal(sf_meta_lease_grant(meta, 1, &lease, NULL),
			 -EOPNOTSUPP);
	sf_meta_unwatch(meta);
	sf_meta_close(meta);
	sf_meta_close(NULL);
}

/* ---- etcd: endpoints ---- */

static void endpoints_are_taken_apart(void **state)
{
	struct sf_etcd etcd = { 0 };

	assert_int_equal(sf_etcd_endpoints_parse(
				 &etcd, " h1:1 ,h2;;[::1]:3, [fe80::1%lo]/",
				 true, NULL),
			 0);
	assert_int_equal(etcd.nr_endpoints, 4);
	assert_string_equal(etcd.endpoints[0].where, "h1:1");
	assert_string_equal(etcd.endpoints[0].url, "https://h1:1");
	assert_string_equal(etcd.endpoints[1].where, "h2:2379");
	assert_string_equal(etcd.endpoints[2].url, "https://[::1]:3");
	assert_string_equal(etcd.endpoints[3].where, "[fe80::1%lo]:2379");
	assert_string_equal(etcd.endpoints[3].url,
			    "https://[fe80::1%25lo]:2379");
	sf_etcd_endpoints_free(&etcd);
}

/* ---- etcd: forms ---- */

static void assert_unbase64(const char *text, const char *expected, size_t len)
{
	struct sf_blob *blob;

	assert_int_equal(sf_etcd_unbase64(&blob, text), 0);
	assert_int_equal(blob->len, len);
	assert_memory_equal(blob->data, expected, len + 1);
	sf_blob_put(blob);
}

static void base64_goes_both_ways(void **state)
{
	static const char *const pairs[][2] = {
		{ "", "" },	     { "f", "Zg==" },	  { "fo", "Zm8=" },
		{ "foo", "Zm9v" },   { "foob", "Zm9vYg==" },
		{ "\xff\xfe\xfd", "//79" },
	};
	char *text;
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		text = sf_etcd_base64(pairs[i][0], strlen(pairs[i][0]));
		assert_string_equal(text, pairs[i][1]);
		free(text);
		assert_unbase64(pairs[i][1], pairs[i][0],
				strlen(pairs[i][0]));
	}
	assert_unbase64("Zg", "f", 1);
	assert_unbase64("Zm8", "fo", 2);
	assert_unbase64("__79", "\xff\xfe\xfd", 3);
	assert_unbase64("AA==", "\0", 1);
}

static void bad_base64_is_refused(void **state)
{
	static const char *const bad[] = { "Z", "Zm9vY", "Zm 9", "Zg==Zg==",
					   "Zm9\n", "\xc3\xa4" };
	struct sf_blob *blob;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(sf_etcd_unbase64(&blob, bad[i]), -EBADMSG);
}

static void integers_come_as_text_or_number(void **state)
{
	static const struct {
		const char *json;
		int res;
		int64_t value;
	} cases[] = {
		{ "{\"ID\":\"1418812174332633142\"}", 0, 1418812174332633142 },
		{ "{\"ID\":1418812174332633143}", 0, 1418812174332633143 },
		{ "{\"x\":\"ID\", \"ID\" : 9007199254740993}", 0,
		  9007199254740993 },
		{ "{\"ID\":7}", 0, 7 },
		{ "{\"ID\":\"-7\"}", 0, -7 },
		{ "{}", 0, 0 },
		{ "{\"ID\":null}", 0, 0 },
		{ "{\"ID\":\"\"}", -EBADMSG, 0 },
		{ "{\"ID\":\"1x\"}", -EBADMSG, 0 },
		{ "{\"ID\":\"99999999999999999999\"}", -EBADMSG, 0 },
		{ "{\"ID\":1e300}", -EBADMSG, 0 },
		{ "{\"ID\":[]}", -EBADMSG, 0 },
	};
	int64_t value;
	cJSON *json;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json = cJSON_Parse(cases[i].json);
		assert_non_null(json);
		value = 0;
		assert_int_equal(sf_etcd_int(&value, json, "ID",
					     cases[i].json),
				 cases[i].res);
		assert_int_equal(value, cases[i].value);
		cJSON_Delete(json);
	}
}

static void members_have_two_spellings(void **state)
{
	cJSON *json = cJSON_Parse("{\"responseRange\":{},\"cancelReason\":"
				  "\"why\"}");

	assert_non_null(sf_etcd_member(json, "response_range"));
	assert_string_equal(sf_etcd_text(json, "cancel_reason"), "why");
	assert_null(sf_etcd_member(json, "kvs"));
	assert_null(sf_etcd_member(NULL, "kvs"));
	cJSON_Delete(json);
}

static void quoting_keeps_the_text(void **state)
{
	static const char text[] = "a\"b\\c\n\x01\xc3\xa4/";
	char *quoted = sf_etcd_quote(text);
	cJSON *json = cJSON_Parse(quoted);

	assert_string_equal(cJSON_GetStringValue(json), text);
	cJSON_Delete(json);
	free(quoted);
}

/* ---- etcd: verdicts ---- */

static void error_replies_have_one_meaning_each(void **state)
{
	static const struct {
		long status;
		const char *data;
		int res;
		bool auth;
	} cases[] = {
		{ 404, "{\"error\":\"requested lease not found\",\"code\":5}",
		  -ENOENT, false },
		{ 401, "{\"error\":\"invalid auth token\",\"code\":16}",
		  -EACCES, true },
		{ 401, "<html>", -EACCES, true },
		{ 403, "no", -EACCES, false },
		{ 403, "{\"message\":\"permission denied\",\"code\":7}",
		  -EPERM, false },
		{ 500, "{\"message\":\"auth: revision in header is old\","
		       "\"code\":2}", -EACCES, true },
		{ 500, "{\"message\":\"boom\",\"code\":2}", -EIO, false },
		{ 400, "{\"message\":\"request is too large\",\"code\":3}",
		  -EMSGSIZE, false },
		{ 429, "{\"message\":\"received message larger than max\","
		       "\"code\":8}", -EMSGSIZE, false },
		{ 429, "{\"message\":\"mvcc: database space exceeded\","
		       "\"code\":8}", -ENOSPC, false },
		{ 400, "{\"message\":\"user name is empty\",\"code\":3}",
		  -EACCES, true },
		{ 412, "{\"message\":\"authentication is not enabled\","
		       "\"code\":9}", -ENOSYS, false },
		{ 503, "{\"message\":\"no leader\",\"code\":14}", -EIO,
		  false },
		{ 504, "{\"code\":4}", -ETIMEDOUT, false },
		{ 200, "{\"error\":{\"grpc_code\":16,\"message\":\"x\"}}",
		  -EACCES, true },
		{ 500, "<html>oops</html>", -EIO, false },
		{ 302, "", -EBADMSG, false },
		{ 400, "Client sent an HTTP request to an HTTPS server.",
		  -EPROTO, false },
		{ 413, "", -EMSGSIZE, false },
		{ 200, "null", -EBADMSG, false },
	};
	struct sf_etcd etcd = { 0 };
	struct sf_err err;
	bool auth;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auth = false;
		assert_int_equal(sf_etcd_verdict(&etcd, "h:1", cases[i].status,
						 cases[i].data, &auth, &err),
				 cases[i].res);
		assert_int_equal(auth, cases[i].auth);
		assert_int_equal(err.code, cases[i].res);
		assert_memory_equal(err.text, "h:1: ", 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_those_of_mooncake),
		cmocka_unit_test(a_prefix_ends_at_its_slash),
		cmocka_unit_test(keys_are_read_back),
		cmocka_unit_test(bad_sources_are_refused_with_a_reason),
		cmocka_unit_test(a_password_in_the_source_is_not_repeated),
		cmocka_unit_test(no_scheme_means_etcd),
		cmocka_unit_test(missing_operations_are_answered_for),
		cmocka_unit_test(endpoints_are_taken_apart),
		cmocka_unit_test(base64_goes_both_ways),
		cmocka_unit_test(bad_base64_is_refused),
		cmocka_unit_test(integers_come_as_text_or_number),
		cmocka_unit_test(members_have_two_spellings),
		cmocka_unit_test(quoting_keeps_the_text),
		cmocka_unit_test(error_replies_have_one_meaning_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
