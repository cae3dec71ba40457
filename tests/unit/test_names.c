/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

static void assert_encodes(const char *name, const char *file)
{
	char out[SF_NAME_MAX + 1];
	char *back = NULL;

	sf_name_encode(name, out);
	assert_string_equal(out, file);
	assert_int_equal(sf_name_decode(file, &back), 0);
	assert_string_equal(back, name);
	free(back);
}

static void ordinary_names_stand_as_they_are(void **state)
{
	static const char *const names[] = {
		"10.0.0.5:15873", "[2001:db8::1]:15001", "x y",
		"a", "...", "..a", ".a", ".segf", "segfs", "a.segfs", "~",
		"caf\xc3\xa9", "\xff\xfe", "*?[]\"'\\$",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_encodes(names[i], names[i]);
}

static void what_a_file_name_cannot_hold_is_encoded(void **state)
{
	assert_encodes("a/b", "a%2Fb");
	assert_encodes("/", "%2F");
	assert_encodes("%2F", "%252F");
	assert_encodes("fe80::1%lo", "fe80::1%25lo");
	assert_encodes("n\nl", "n%0Al");
	assert_encodes("\x01\x1f\x7f", "%01%1F%7F");
	assert_encodes(".", "%2E");
	assert_encodes("..", "%2E.");
	assert_encodes(".segfs", "%2Esegfs");
	assert_encodes(".segfs-2", "%2Esegfs-2");
}

static void other_spellings_name_nothing(void **state)
{
	static const char *const files[] = {
		"", "a%2fb", "a%", "a%2", "%GG", "%00", "%41", "%2Ea", ".",
		"..", ".segfs", ".segfs9", "a/b", "a\nb", "%2E%2E", "%252f%",
		"a%20b", "%-1", "%~", "%~0123456789abcde",
	};
	char *name = NULL;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		assert_int_equal(sf_name_decode(files[i], &name), -ENOENT);
		assert_null(name);
	}
}

static void long_names_are_cut_and_told_apart(void **state)
{
	char a[400], b[400], file_a[SF_NAME_MAX + 1], file_b[SF_NAME_MAX + 1];
	char *name = NULL;

	memset(a, 'k', 300);
	strcpy(a + 300, "1");
	memcpy(b, a, sizeof(b));
	b[300] = '2';
	sf_name_encode(a, file_a);
	sf_name_encode(b, file_b);
	assert_int_equal(strlen(file_a), 255);
	assert_int_equal(strncmp(file_a + 236, "kk%~", 4), 0);
	assert_string_not_equal(file_a, file_b);
	assert_int_equal(sf_name_decode(file_a, &name), -ENAMETOOLONG);
	assert_null(name);
}

static void the_limit_is_exact(void **state)
{
	char name[300], file[SF_NAME_MAX + 1];
	char *back;

	memset(name, 'k', 255);
	name[255] = '\0';
	assert_encodes(name, name);
	name[0] = '/';			/* encodes to 257 */
	sf_name_encode(name, file);
	assert_int_equal(sf_name_decode(file, &back), -ENAMETOOLONG);
	name[253] = '\0';		/* encodes to 255 */
	sf_name_encode(name, file);
	assert_int_equal(strlen(file), 255);
	assert_int_equal(sf_name_decode(file, &back), 0);
	assert_string_equal(back, name);
	free(back);
}

static void no_cut_is_inside_an_escape(void **state)
{
	char name[400], file[SF_NAME_MAX + 1];
	char *back;

	for (size_t lead = 0; lead < 4; lead++) {
		memset(name, 'a', lead);
		memset(name + lead, '/', 300);
		name[lead + 300] = '\0';
		sf_name_encode(name, file);
		assert_true(strlen(file) <= SF_NAME_MAX);
		assert_non_null(strstr(file, "%2F%~"));
		assert_int_equal(sf_name_decode(file, &back), -ENAMETOOLONG);
	}
}

static void a_cut_name_is_one_the_encoder_makes(void **state)
{
	char name[400], file[SF_NAME_MAX + 1], bad[SF_NAME_MAX + 2];
	char *back;

	memset(name, 'k', 300);
	name[300] = '\0';
	sf_name_encode(name, file);
	strcpy(bad, file);
	bad[254] = 'A';			/* upper case in the hash */
	assert_int_equal(sf_name_decode(bad, &back), -ENOENT);
	strcpy(bad, file);
	memcpy(bad + 235, "%4", 2);	/* an escape cut */
	assert_int_equal(sf_name_decode(bad, &back), -ENOENT);
	strcpy(bad, file);
	memcpy(bad, "%41", 3);		/* 'A' would not be encoded */
	assert_int_equal(sf_name_decode(bad, &back), -ENOENT);
	snprintf(bad, sizeof(bad), "k%s", file);	/* 256 bytes */
	assert_int_equal(sf_name_decode(bad, &back), -ENOENT);
	assert_int_equal(sf_name_decode(file + 10, &back), -ENOENT);
}

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Random names over bytes that matter; every file name must be usable, and
 * must come back as the name or, when cut, differ from every other. */
static void any_name_comes_back(void **state)
{
	static const char alphabet[] = "/%.~a0F2E\x01\x7f\xc3segf";
	char name[420], file[SF_NAME_MAX + 1];
	uint32_t seed = 1;
	char *back;

	for (int round = 0; round < 20000; round++) {
		size_t len = 1 + next(&seed) % (round % 10 ? 12 : 400);
		int rc;

		for (size_t i = 0; i < len; i++)
			name[i] = alphabet[next(&seed) %
					   (sizeof(alphabet) - 1)];
		name[len] = '\0';
		sf_name_encode(name, file);
		assert_true(strlen(file) && strlen(file) <= SF_NAME_MAX);
		assert_null(strchr(file, '/'));
		assert_string_not_equal(file, ".");
		assert_string_not_equal(file, "..");
		assert_int_not_equal(strncmp(file, ".segfs", 6), 0);
		rc = sf_name_decode(file, &back);
		if (rc == -ENAMETOOLONG) {
			assert_true(strstr(file, "%~") != NULL);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_string_equal(back, name);
		free(back);
	}
}

/* Any file name that decodes at all is the encoding of what it decodes to. */
static void no_two_files_for_one_name(void **state)
{
	static const char alphabet[] = "%%%2F0Ef7.~a";
	char file[24], again[SF_NAME_MAX + 1];
	uint32_t seed = 2;
	char *name;

	for (int round = 0; round < 50000; round++) {
		size_t len = 1 + next(&seed) % 9;

		for (size_t i = 0; i < len; i++)
			file[i] = alphabet[next(&seed) %
					   (sizeof(alphabet) - 1)];
		file[len] = '\0';
		if (sf_name_decode(file, &name))
			continue;
		sf_name_encode(name, again);
		assert_string_equal(again, file);
		free(name);
	}
}

static void assert_buffer_name(uint64_t addr, uint64_t length,
			       const char *file)
{
	char out[SF_BUFFER_NAME_MAX];
	uint64_t a = 7, n = 7;

	sf_buffer_name_format(out, addr, length);
	assert_string_equal(out, file);
	assert_int_equal(sf_buffer_name_parse(file, &a, &n), 0);
	assert_true(a == addr && n == length);
}

static void buffers_are_named_by_address(void **state)
{
	assert_buffer_name(UINT64_C(0x7f3a40000000), 0, "0x7f3a40000000");
	assert_buffer_name(UINT64_C(0x7f3a40000000), 8192,
			   "0x7f3a40000000+8192");
	assert_buffer_name(1, 0, "0x1");
	assert_buffer_name(UINT64_MAX, UINT64_MAX,
			   "0xffffffffffffffff+18446744073709551615");
}

static void other_buffer_names_are_refused(void **state)
{
	static const char *const files[] = {
		"", "0x", "x1", "1", "0X1", "0x01", "0x1A", "0xg", "0x 1",
		"0x-1", "0x+1", "0x1+", "0x1+0", "0x1+01", "0x1+-1", "0x1+ 1",
		"0x1+1a", "0x1+0x1", "0x1 ", "0x10000000000000000",
		"0x1+18446744073709551616", "0x0x1", "0x1+1+1",
		"0x1111111111111111111111111111111111111111111111111111111",
	};
	uint64_t a, n;

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		assert_int_equal(sf_buffer_name_parse(files[i], &a, &n),
				 -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ordinary_names_stand_as_they_are),
		cmocka_unit_test(what_a_file_name_cannot_hold_is_encoded),
		cmocka_unit_test(other_spellings_name_nothing),
		cmocka_unit_test(long_names_are_cut_and_told_apart),
		cmocka_unit_test(the_limit_is_exact),
		cmocka_unit_test(no_cut_is_inside_an_escape),
		cmocka_unit_test(a_cut_name_is_one_the_encoder_makes),
		cmocka_unit_test(any_name_comes_back),
		cmocka_unit_test(no_two_files_for_one_name),
		cmocka_unit_test(buffers_are_named_by_address),
		cmocka_unit_test(other_buffer_names_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
