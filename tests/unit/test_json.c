/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "json.h"

/* TEXT in memory of exactly its size, so that a sanitizer sees overruns. */
static int parse_bytes(const char *text, size_t len, struct sf_json *json,
		       char **copy, struct sf_err *err)
{
	*copy = malloc(len ? len : 1);
	assert_non_null(*copy);
	memcpy(*copy, text, len);
	return sf_json_parse(json, *copy, len, err);
}

/* TEXT is taken, and cJSON prints the tree as PRINTED (numbers aside). */
static void assert_reads(const char *text, const char *printed)
{
	struct sf_err err = { 0 };
	struct sf_json json;
	char *copy, *again;
	int rc = parse_bytes(text, strlen(text), &json, &copy, &err);

	if (rc)
		fail_msg("%s: %s", text, err.text);
	again = cJSON_PrintUnformatted(json.root);
	assert_string_equal(again, printed);
	cJSON_free(again);
	sf_json_free(&json);
	free(copy);
}

static void assert_refused(const char *text, size_t len, const char *why)
{
	struct sf_err err = { 0 };
	struct sf_json json;
	char *copy;
	int rc = parse_bytes(text, len, &json, &copy, &err);

	assert_int_equal(rc, -EBADMSG);
	if (!strstr(err.text, why))
		fail_msg("%s: %s", text, err.text);
	free(copy);
}

static void plain_documents_are_read(void **state)
{
	assert_reads("{\"a\":[true,false,null,\"x\"],\"b\":{}}",
		     "{\"a\":[true,false,null,\"x\"],\"b\":{}}");
	assert_reads(" \t\r\n[ ] \n", "[]");
	assert_reads("null", "null");
	assert_reads("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
		     "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
	assert_reads("\"\\u00e9\\ud83d\\ude00\"", "\"é😀\"");
}

static void what_mooncake_tolerates_is_let_through(void **state)
{
	assert_reads("\xef\xbb\xbf{}", "{}");
	assert_reads("/* a */ { // b\n \"a\" /*c*/ : /**/ [ ] // d\n }",
		     "{\"a\":[]}");
	assert_reads("{\"a\":[\"x\",],}", "{\"a\":[\"x\"]}");
	assert_reads("{} trailing \x01 bytes }]", "{}");
	assert_reads("[\"/* no */ // comment\"]", "[\"/* no */ // comment\"]");
}

static void what_is_no_character_is_replaced(void **state)
{
	assert_reads("\"a\\u0000b\"", "\"a\xef\xbf\xbd" "b\"");
	assert_reads("\"\\ud83dx\"", "\"\xef\xbf\xbdx\"");
	assert_reads("\"\\ude00\"", "\"\xef\xbf\xbd\"");
	assert_reads("\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd" "A\"");
	assert_reads("\"\\ud83d\\ud83d\\ude00\"", "\"\xef\xbf\xbd😀\"");
}

static void other_text_is_refused_with_its_place(void **state)
{
	static const char *const bad[] = {
		"", " ", "{", "[", "[1", "[1,", "{\"a\"", "{\"a\":", "{\"a\":1",
		"{\"a\":1,", "{'a':1}", "{a:1}", "[,]", "{,}", "[1,,2]",
		"[1 2]", "{\"a\" 1}", "{\"a\":}", "{1:2}", "[NaN]", "[nul]",
		"[+1]", "[.5]", "\"abc", "\"\\", "\"\\x\"", "\"\\u12\"",
		"\"\\u12g4\"", "/* open", "/", "]", "<html>",
		"metadata not found", "{\"a\":1/", "{\"a\":[}", "[{]",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_refused(bad[i], strlen(bad[i]), "not valid JSON: ");
	assert_refused("[1\0]", 4, "unexpected byte 0x00 at byte 2");
	assert_refused("\"a\0b\"", 5, "unexpected byte 0x00 at byte 2");
	assert_refused("{\"a\":x}", 7, "unexpected 'x' at byte 5");
	assert_refused("{\"a\"", 4, "it ends early at byte 4");
}

static void depth_is_bounded(void **state)
{
	char text[4 * SF_JSON_DEPTH_MAX];
	struct sf_json json;

	memset(text, '[', SF_JSON_DEPTH_MAX);
	memset(text + SF_JSON_DEPTH_MAX, ']', SF_JSON_DEPTH_MAX);
	assert_int_equal(sf_json_parse(&json, text, 2 * SF_JSON_DEPTH_MAX,
				       NULL), 0);
	sf_json_free(&json);

	memset(text, '[', SF_JSON_DEPTH_MAX + 1);
	assert_refused(text, SF_JSON_DEPTH_MAX + 1, "nested too deep");
}

static void very_deep_text_is_refused_at_once(void **state)
{
	size_t len = 5 * 100000;
	char *text = malloc(len);

	for (size_t i = 0; i < len; i += 5)
		memcpy(text + i, "{\"a\":", 5);
	assert_refused(text, len, "nested too deep");
	free(text);
}

static void number_of_values_is_bounded(void **state)
{
	size_t len = 2 * ((size_t)SF_JSON_VALUES_MAX + 1);
	struct sf_err err;
	struct sf_json json;
	char *text = malloc(len);

	for (size_t i = 0; i < len; i += 2)
		memcpy(text + i, "0,", 2);
	text[0] = '[';
	text[1] = ' ';
	assert_int_equal(sf_json_parse(&json, text, len, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "too many values"));
	free(text);
}

/* The number TEXT, as the only element of an array and with a neighbour. */
static int number(const char *text, uint64_t *value)
{
	struct sf_json json;
	char doc[128];
	int rc;

	snprintf(doc, sizeof(doc), "[ 17,%s]", text);
	assert_int_equal(sf_json_parse(&json, doc, strlen(doc), NULL), 0);
	*value = 0;
	rc = sf_json_u64(&json, json.root->child->next, value);
	sf_json_free(&json);
	return rc;
}

static void integers_are_exact(void **state)
{
	static const uint64_t values[] = {
		0, 1, 9, 10, UINT32_MAX, UINT64_C(9007199254740992),
		UINT64_C(9007199254740993), UINT64_C(9223372036854775807),
		UINT64_C(9223372036854775809), UINT64_C(18446744073709547520),
		UINT64_MAX,
	};
	char text[32];
	uint64_t v;

	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		snprintf(text, sizeof(text), "%" PRIu64, values[i]);
		assert_int_equal(number(text, &v), 0);
		assert_true(v == values[i]);
	}
	assert_int_equal(number("18446744073709551616", &v), -ERANGE);
	assert_int_equal(number("99999999999999999999999", &v), -ERANGE);
}

static void other_forms_are_not_integers(void **state)
{
	static const char *const bad[] = {
		"-1", "-0", "1.0", "1e3", "9.007199254740993e15", "1E3", "01",
		"00", "1-", "1+1", "\"1\"", "true", "null", "[1]",
		"{}",
	};
	uint64_t v;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(number(bad[i], &v), -EINVAL);
}

static void a_number_may_be_all_there_is(void **state)
{
	struct sf_json json;
	uint64_t v;
	char *copy;

	assert_int_equal(parse_bytes("0", 1, &json, &copy, NULL), 0);
	assert_int_equal(sf_json_u64(&json, json.root, &v), 0);
	assert_int_equal(v, 0);
	sf_json_free(&json);
	free(copy);
	assert_int_equal(parse_bytes("42", 2, &json, &copy, NULL), 0);
	assert_int_equal(sf_json_u64(&json, json.root, &v), 0);
	assert_int_equal(v, 42);
	sf_json_free(&json);
	free(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_documents_are_read),
		cmocka_unit_test(what_mooncake_tolerates_is_let_through),
		cmocka_unit_test(what_is_no_character_is_replaced),
		cmocka_unit_test(other_text_is_refused_with_its_place),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(very_deep_text_is_refused_at_once),
		cmocka_unit_test(number_of_values_is_bounded),
		cmocka_unit_test(integers_are_exact),
		cmocka_unit_test(other_forms_are_not_integers),
		cmocka_unit_test(a_number_may_be_all_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
