/* SPDX-License-Identifier: MIT */
/* Texts that came from elsewhere, made fit for a terminal or for JSON. */
#include "config.h"
#include "segctl.h"

void segctl_plain(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?'
								   : *text,
		      out);
}

/* Bytes of the UTF-8 sequence at S, 0 if there is none. */
static int utf8_len(const unsigned char *s)
{
	int len;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] < 0xe0)
		len = 2;
	else if (s[0] >= 0xe0 && s[0] < 0xf0)
		len = 3;
	else if (s[0] >= 0xf0 && s[0] < 0xf5)
		len = 4;
	else
		return 0;
	for (int i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* Overlong forms, surrogates, beyond the last code point. */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

void segctl_json_string(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		int len = utf8_len(s);

		if (!len)
			fputs("\\ufffd", out);
		else if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			fprintf(out, "\\u%04x", *s);
		else
			fwrite(s, 1, (size_t)len, out);
		s += len ? len : 1;
	}
	fputc('"', out);
}
