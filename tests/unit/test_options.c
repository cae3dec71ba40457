/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "options.h"

struct inner {
	unsigned int depth;
};

struct opts {
	bool watch;
	bool read_only;
	unsigned int lanes;
	size_t pool, split;
	unsigned int timeout_ms;
	unsigned int umask;
	char *ca;
	int mmap;
	struct inner inner;
};

static const char *const mmap_choices[] = { "ro", "rw", "off", NULL };

static const struct sf_option inner_table[] = {
	{ .name = "queue_depth", .type = SF_OPT_UINT,
	  .offset = offsetof(struct inner, depth), .min = 1, .max = 8,
	  .value = "N", .help = "requests in flight" },
	{ 0 }
};

#define FIELD(f) .offset = offsetof(struct opts, f)

static const struct sf_option table[] = {
	{ .name = "watch", .type = SF_OPT_FLAG, FIELD(watch),
	  .help = "watch it" },
	{ .name = "ro", .type = SF_OPT_FLAG, FIELD(read_only), .help = "r" },
	{ .name = "rw", .type = SF_OPT_FLAG, FIELD(read_only), .min = 1 },
	{ .name = "lanes", .type = SF_OPT_UINT, FIELD(lanes), .min = 1,
	  .max = 64, .value = "N", .help = "connections" },
	{ .name = "pool", .type = SF_OPT_SIZE, FIELD(pool), .min = 4 << 20,
	  .max = 1ull << 40, .value = "BYTES", .help = "buffers" },
	{ .name = "split", .type = SF_OPT_SIZE, FIELD(split), .min = 4096,
	  .max = 1 << 20, .zero = true, .value = "BYTES", .help = "split" },
	{ .name = "timeout", .type = SF_OPT_SECONDS, FIELD(timeout_ms),
	  .min = 100, .max = 3600000, .value = "SECONDS", .help = "limit" },
	{ .name = "umask", .type = SF_OPT_OCTAL, FIELD(umask), .max = 0777,
	  .value = "OCTAL", .help = "mask" },
	{ .name = "ca", .type = SF_OPT_STRING, FIELD(ca), .value = "FILE",
	  .help = "certificates of the authorities" },
	{ .name = "mmap", .type = SF_OPT_ENUM, FIELD(mmap),
	  .choices = mmap_choices, .value = "MODE", .help = "mappings" },
	{ .name = "noauto", .type = SF_OPT_IGNORED },
	{ .name = "x-*", .type = SF_OPT_IGNORED },
	{ .name = "password", .type = SF_OPT_REFUSED, .value = "not here" },
	{ .name = "", .type = SF_OPT_TABLE, FIELD(inner),
	  .table = inner_table },
	{ 0 }
};

static void list_sets_every_type(void **state)
{
	struct opts o = { .read_only = true };

	assert_int_equal(sf_option_parse_list(
				 table, &o,
				 "watch,rw,lanes=8,pool=1G,split=0,"
				 "timeout=0.25,umask=027,ca=a\\,b=c,mmap=off,"
				 "noauto,x-systemd.automount=1,,queue-depth=2",
				 NULL), 0);
	assert_true(o.watch);
	assert_false(o.read_only);
	assert_int_equal(o.lanes, 8);
	assert_int_equal(o.pool, 1 << 30);
	assert_int_equal(o.split, 0);
	assert_int_equal(o.timeout_ms, 250);
	assert_int_equal(o.umask, 027);
	assert_string_equal(o.ca, "a,b=c");
	assert_int_equal(o.mmap, 2);
	assert_int_equal(o.inner.depth, 2);
	assert_int_equal(sf_option_parse_list(table, &o, "nowatch,ca=z,ro",
					      NULL), 0);
	assert_false(o.watch);
	assert_true(o.read_only);
	assert_string_equal(o.ca, "z");
	sf_option_free(table, &o);
	assert_null(o.ca);
}

/* What is typed, and the sentence that answers it. */
static const struct { const char *list, *text; } mistakes[] = {
	{ "timeout=0", "timeout=0: must be from 0.1 s to 3600 s" },
	{ "timeout=3600.001",
	  "timeout=3600.001: must be from 0.1 s to 3600 s" },
	{ "timeout=-1", "timeout=-1: not a time, such as 5, 0.5 or 500ms" },
	{ "timeout=1.0001",
	  "timeout=1.0001: not a time, such as 5, 0.5 or 500ms" },
	{ "timeout", "timeout: needs a value (timeout=SECONDS)" },
	{ "timout=3", "unknown option \"timout\" (did you mean \"timeout\"?)" },
	{ "xyzzy", "unknown option \"xyzzy\"" },
	{ "rx", "unknown option \"rx\" (did you mean \"ro\"?)" },
	{ "nolanes", "unknown option \"nolanes\" (did you mean \"lanes\"?)" },
	{ "watch=1", "watch: takes no value" },
	{ "nowatch=1", "nowatch: takes no value" },
	{ "lanes=65", "lanes=65: must be from 1 to 64" },
	{ "lanes=99999999999999999999999",
	  "lanes=99999999999999999999999: must be from 1 to 64" },
	{ "lanes= 4", "lanes= 4: not a number" },
	{ "lanes=", "lanes=: not a number" },
	{ "pool=1K", "pool=1K: must be from 4M to 1T" },
	{ "pool=1KB",
	  "pool=1KB: not a size, such as 4096, 256K or 1G" },
	{ "split=1", "split=1: must be 0 or from 4K to 1M" },
	{ "umask=8", "umask=8: not an octal number, such as 077" },
	{ "umask=7777", "umask=7777: must be from 0 to 0777" },
	{ "mmap=x", "mmap=x: must be ro, rw or off" },
	{ "password=secret", "password: not here" },
	{ "queue_depth=9", "queue_depth=9: must be from 1 to 8" },
};

static void mistakes_are_explained(void **state)
{
	struct opts o = { 0 }, before = o;
	struct sf_err err;

	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		assert_int_equal(sf_option_parse_list(table, &o,
						      mistakes[i].list, &err),
				 -EINVAL);
		assert_string_equal(err.text, mistakes[i].text);
	}
	assert_memory_equal(&o, &before, sizeof(o));
}

static void arguments_stop_at_the_first_operand(void **state)
{
	char *argv[] = { (char *)"x", (char *)"--lanes", (char *)"3",
			 (char *)"--watch", (char *)"--pool=8M",
			 (char *)"ls", (char *)"--lanes=4" };
	char *dashes[] = { (char *)"--watch", (char *)"--", (char *)"--x" };
	struct sf_err err;
	struct opts o = { 0 };
	int next = 1;

	assert_int_equal(sf_option_parse_args(table, &o, 7, argv, &next, &err),
			 0);
	assert_int_equal(next, 5);
	assert_int_equal(o.lanes, 3);
	assert_int_equal(o.pool, 8 << 20);
	assert_true(o.watch);
	next = 0;
	assert_int_equal(sf_option_parse_args(table, &o, 3, dashes, &next,
					      &err), 0);
	assert_int_equal(next, 2);
	next = 1;
	assert_int_equal(sf_option_parse_args(table, &o, 2, argv, &next, &err),
			 -EINVAL);
	assert_string_equal(err.text, "lanes: needs a value (lanes=N)");
}

static void sizes_and_numbers(void **state)
{
	char text[SF_SIZE_TEXT_MAX];
	uint64_t v;

	assert_int_equal(sf_parse_size("16777215T", &v), 0);
	assert_int_equal(sf_parse_size("16777216T", &v), -ERANGE);
	assert_int_equal(sf_parse_size("0x10k", &v), 0);
	assert_int_equal(v, 16384);
	assert_int_equal(sf_parse_size("2MiB", &v), 0);
	assert_int_equal(v, 2 << 20);
	assert_int_equal(sf_parse_size("", &v), -EINVAL);
	assert_int_equal(sf_parse_size("K", &v), -EINVAL);
	assert_int_equal(sf_parse_size("1KK", &v), -EINVAL);
	assert_int_equal(sf_parse_u64("0xffffffffffffffff", &v), 0);
	assert_true(v == UINT64_MAX);
	assert_int_equal(sf_parse_u64("18446744073709551616", &v), -ERANGE);
	assert_int_equal(sf_parse_u64("0x", &v), -EINVAL);
	assert_int_equal(sf_parse_u64("0x-1", &v), -EINVAL);
	assert_int_equal(sf_parse_u64("+1", &v), -EINVAL);
	assert_int_equal(sf_parse_seconds("90ms", &v), 0);
	assert_int_equal(v, 90);
	assert_int_equal(sf_parse_seconds("1.500s", &v), 0);
	assert_int_equal(v, 1500);
	assert_int_equal(sf_parse_seconds("1.", &v), -EINVAL);
	assert_int_equal(sf_parse_seconds("18446744073709552", &v), -ERANGE);
	sf_format_size(text, 0);
	assert_string_equal(text, "0");
	sf_format_size(text, 1000);
	assert_string_equal(text, "1000");
	sf_format_size(text, 3ull << 50);
	assert_string_equal(text, "3072T");
}

static void help_has_a_line_for_each_option(void **state)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	sf_option_help(table, "-o ", out);
	sf_option_help(inner_table, "--", out);
	fclose(out);
	assert_non_null(strstr(text, "  -o timeout=SECONDS        limit\n"));
	assert_non_null(strstr(text, "  -o watch                  watch it\n"));
	assert_non_null(strstr(text, "  --queue-depth=N           requests"));
	assert_null(strstr(text, "password"));
	assert_null(strstr(text, "noauto"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_sets_every_type),
		cmocka_unit_test(mistakes_are_explained),
		cmocka_unit_test(arguments_stop_at_the_first_operand),
		cmocka_unit_test(sizes_and_numbers),
		cmocka_unit_test(help_has_a_line_for_each_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
