/* SPDX-License-Identifier: MIT */
/* The text half of an error: see err.h. Pure, no state. */
#include "config.h"
#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Arguments may hold anything a peer sent: keep the line one line. */
static void make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

int sf_err_set(struct sf_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	make_printable(err->text);
	return code;
}

int sf_err_prefix(struct sf_err *err, const char *fmt, ...)
{
	char text[SF_ERR_TEXT_MAX];
	va_list ap;
	int n;

	if (!err)
		return 0;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return err->code;
	snprintf(text + n, sizeof(text) - (size_t)n, ": %s", err->text);
	memcpy(err->text, text, sizeof(text));
	make_printable(err->text);
	return err->code;
}
