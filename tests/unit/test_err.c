/* SPDX-License-Identifier: MIT */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "err.h"

static void text_is_one_printable_line(void **state)
{
	struct sf_err err = { 0 };

	assert_int_equal(sf_err_set(&err, -EINVAL, "bad %s", "a\nb\033c"),
			 -EINVAL);
	assert_int_equal(err.code, -EINVAL);
	assert_string_equal(err.text, "bad a?b?c");
}

static void prefix_keeps_code_and_cuts(void **state)
{
	struct sf_err err = { 0 };
	char big[2 * SF_ERR_TEXT_MAX];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	sf_err_set(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.text), SF_ERR_TEXT_MAX - 1);
	assert_int_equal(sf_err_prefix(&err, "peer %d", 7), -EIO);
	assert_int_equal(strncmp(err.text, "peer 7: xxx", 11), 0);
	assert_int_equal(strlen(err.text), SF_ERR_TEXT_MAX - 1);
}

static void null_is_allowed(void **state)
{
	assert_int_equal(sf_err_set(NULL, -ENOENT, "x"), -ENOENT);
	assert_int_equal(sf_err_prefix(NULL, "x"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_one_printable_line),
		cmocka_unit_test(prefix_keeps_code_and_cuts),
		cmocka_unit_test(null_is_allowed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
