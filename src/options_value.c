/* SPDX-License-Identifier: MIT */
/*
 * Option values: text to numbers and back. Pure functions on text that a person
 * typed; nothing is rounded, cut or guessed, what does not fit is an error.
 */
#include "config.h"
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Digits only: strtoull() alone would take signs and leading spaces. END is
 * where they stop. */
static int parse_digits(const char *text, int base, uint64_t *value,
			const char **end)
{
	unsigned long long v;
	char *stop;

	if (base == 16 ? !isxdigit((unsigned char)*text)
		       : !isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &stop, base);
	if (errno == ERANGE)
		return -ERANGE;
	*value = v;
	*end = stop;
	return 0;
}

static int parse_number(const char *text, uint64_t *value, const char **end)
{
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return parse_digits(text + 2, 16, value, end);
	return parse_digits(text, 10, value, end);
}

int sf_parse_u64(const char *text, uint64_t *value)
{
	const char *end;
	uint64_t v;
	int ret = parse_number(text, &v, &end);

	if (ret)
		return ret;
	if (*end)
		return -EINVAL;
	*value = v;
	return 0;
}

static const char size_units[] = "KMGT";

int sf_parse_size(const char *text, uint64_t *bytes)
{
	unsigned int shift = 0;
	const char *end, *unit;
	uint64_t v;
	int ret = parse_number(text, &v, &end);

	if (ret)
		return ret;
	if (*end) {
		unit = strchr(size_units, toupper((unsigned char)*end));
		if (!unit || (end[1] && strcmp(end + 1, "iB")))
			return -EINVAL;
		shift = 10 * (unsigned int)(unit - size_units + 1);
	}
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*bytes = v << shift;
	return 0;
}

void sf_format_size(char out[SF_SIZE_TEXT_MAX], uint64_t bytes)
{
	unsigned int unit = 0;

	while (bytes && unit < sizeof(size_units) - 1 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	if (unit)
		snprintf(out, SF_SIZE_TEXT_MAX, "%llu%c",
			 (unsigned long long)bytes, size_units[unit - 1]);
	else
		snprintf(out, SF_SIZE_TEXT_MAX, "%llu",
			 (unsigned long long)bytes);
}

/* What follows the point: thousandths. Finer ones must be zeros. */
static int parse_thousandths(const char *text, uint64_t *ms, const char **end)
{
	uint64_t v = 0;
	int n = 0;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	for (; isdigit((unsigned char)*text); text++, n++) {
		if (n < 3)
			v = v * 10 + (uint64_t)(*text - '0');
		else if (*text != '0')
			return -EINVAL;
	}
	for (; n < 3; n++)
		v *= 10;
	*ms = v;
	*end = text;
	return 0;
}

int sf_parse_seconds(const char *text, uint64_t *ms)
{
	uint64_t v, fraction = 0;
	const char *end;
	int ret = parse_digits(text, 10, &v, &end);

	if (ret)
		return ret;
	if (!strcmp(end, "ms")) {
		*ms = v;
		return 0;
	}
	if (*end == '.') {
		ret = parse_thousandths(end + 1, &fraction, &end);
		if (ret)
			return ret;
	}
	if (*end && strcmp(end, "s"))
		return -EINVAL;
	if (v > (UINT64_MAX - fraction) / 1000)
		return -ERANGE;
	*ms = v * 1000 + fraction;
	return 0;
}
