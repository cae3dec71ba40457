/* SPDX-License-Identifier: MIT */
/*
 * Lenient JSON with exact integers: see json.h. Pure, no state.
 *
 * cJSON keeps numbers as doubles and knows no comments. So the text goes
 * through a scanner first, which checks all of its syntax and writes a plain
 * copy in which every number is replaced by the offset of its own digits in
 * the original text: small enough for a double to hold exactly, and the way
 * back from a cJSON item to what was written. cJSON then only builds the tree.
 */
#include "config.h"
#include "json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "vec.h"

struct scan {
	const char *text, *p, *end;
	unsigned int depth;
	unsigned int values;
	struct sf_vec out;
	struct sf_err *err;
};

static int value(struct scan *s);

static int emit(struct scan *s, const char *bytes, size_t n)
{
	char *to = sf_vec_add(&s->out, 1, n);

	if (!to)
		return sf_err_set(s->err, -ENOMEM, "out of memory");
	memcpy(to, bytes, n);
	return 0;
}

static int bad(struct scan *s, const char *what)
{
	return sf_err_set(s->err, -EBADMSG, "not valid JSON: %s at byte %zu",
			  what, (size_t)(s->p - s->text));
}

static int unexpected(struct scan *s)
{
	char what[24];

	if (s->p == s->end)
		return bad(s, "it ends early");
	if (*s->p > ' ' && *s->p < 0x7f)
		snprintf(what, sizeof(what), "unexpected '%c'", *s->p);
	else
		snprintf(what, sizeof(what), "unexpected byte 0x%02x",
			 (unsigned char)*s->p);
	return bad(s, what);
}

static bool at(const struct scan *s, const char *text)
{
	size_t n = strlen(text);

	return (size_t)(s->end - s->p) >= n && !memcmp(s->p, text, n);
}

static int comment(struct scan *s)
{
	const char *stop;

	if (at(s, "//")) {
		stop = memchr(s->p, '\n', (size_t)(s->end - s->p));
		s->p = stop ? stop + 1 : s->end;
		return 0;
	}
	if (!at(s, "/*"))
		return unexpected(s);
	stop = memmem(s->p + 2, (size_t)(s->end - s->p - 2), "*/", 2);
	if (!stop)
		return bad(s, "comment without an end");
	s->p = stop + 2;
	return 0;
}

static int space(struct scan *s)
{
	int rc;

	while (s->p < s->end) {
		switch (*s->p) {
		case ' ':
		case '\t':
		case '\n':
		case '\r':
			s->p++;
			break;
		case '/':
			rc = comment(s);
			if (rc)
				return rc;
			break;
		default:
			return 0;
		}
	}
	return 0;
}

/* The four hex digits behind "\u", or -1. */
static int hex4(const struct scan *s, const char *p)
{
	int v = 0;

	if (s->end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];

		v <<= 4;
		if (c >= '0' && c <= '9')
			v |= c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			v |= (c | 0x20) - 'a' + 10;
		else
			return -1;
	}
	return v;
}

/* At "\u". What C strings cannot hold (U+0000) and what is no character (half
 * a surrogate pair) becomes U+FFFD, so that no name is cut or misread. */
static int unicode(struct scan *s)
{
	int hi = hex4(s, s->p + 2), lo;
	size_t n = 6;

	if (hi < 0)
		return bad(s, "bad escape");
	if (hi >= 0xd800 && hi < 0xdc00 && s->end - s->p >= 12 &&
	    s->p[6] == '\\' && s->p[7] == 'u') {
		lo = hex4(s, s->p + 8);
		if (lo >= 0xdc00 && lo < 0xe000)
			n = 12;
	}
	s->p += n;
	if (!hi || (hi >= 0xd800 && hi < 0xe000 && n == 6))
		return emit(s, "\\ufffd", 6);
	return emit(s, s->p - n, n);
}

static int escape(struct scan *s)
{
	if (s->end - s->p < 2) {
		s->p = s->end;
		return unexpected(s);
	}
	if (s->p[1] == 'u')
		return unicode(s);
	if (!s->p[1] || !strchr("\"\\/bfnrt", s->p[1]))
		return bad(s, "bad escape");
	s->p += 2;
	return emit(s, s->p - 2, 2);
}

static int string(struct scan *s)
{
	const char *from = s->p++;
	int rc;

	for (;;) {
		while (s->p < s->end && *s->p != '"' && *s->p != '\\' && *s->p)
			s->p++;
		rc = emit(s, from, (size_t)(s->p - from));
		if (rc)
			return rc;
		if (s->p == s->end || !*s->p)
			return unexpected(s);
		if (*s->p == '"') {
			s->p++;
			return emit(s, "\"", 1);
		}
		rc = escape(s);
		if (rc)
			return rc;
		from = s->p;
	}
}

static bool is_number_char(char c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' ||
	       c == 'e' || c == 'E';
}

/* Any shape of number: whether it is one that a field can take is decided
 * where the field is read, so that a member nobody reads does no harm. */
static int number(struct scan *s)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%zu", (size_t)(s->p - s->text));

	while (s->p < s->end && is_number_char(*s->p))
		s->p++;
	return emit(s, text, (size_t)n);
}

static int literal(struct scan *s)
{
	static const char *const words[] = { "true", "false", "null" };

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (at(s, words[i])) {
			s->p += strlen(words[i]);
			return emit(s, words[i], strlen(words[i]));
		}
	}
	return unexpected(s);
}

static int member_name(struct scan *s)
{
	int rc;

	if (s->p == s->end || *s->p != '"')
		return unexpected(s);
	rc = string(s);
	if (!rc)
		rc = space(s);
	if (rc)
		return rc;
	if (s->p == s->end || *s->p != ':')
		return unexpected(s);
	s->p++;
	return emit(s, ":", 1);
}

/* At the opening bracket. A comma is written only once something follows. */
static int container(struct scan *s, bool object)
{
	char close = object ? '}' : ']';
	bool first = true;
	int rc;

	rc = emit(s, s->p++, 1);
	while (!rc) {
		rc = space(s);
		if (rc)
			break;
		if (s->p < s->end && *s->p == close)
			return emit(s, s->p++, 1);
		if (!first)
			rc = emit(s, ",", 1);
		if (!rc && object)
			rc = member_name(s);
		if (!rc)
			rc = value(s);
		if (!rc)
			rc = space(s);
		if (rc)
			break;
		first = false;
		if (s->p < s->end && *s->p == ',')
			s->p++;
		else if (s->p == s->end || *s->p != close)
			rc = unexpected(s);
	}
	return rc;
}

static int value(struct scan *s)
{
	int rc = space(s);

	if (rc)
		return rc;
	if (s->p == s->end)
		return unexpected(s);
	if (++s->values > SF_JSON_VALUES_MAX)
		return bad(s, "too many values");
	switch (*s->p) {
	case '{':
	case '[':
		if (s->depth == SF_JSON_DEPTH_MAX)
			return bad(s, "nested too deep");
		s->depth++;
		rc = container(s, *s->p == '{');
		s->depth--;
		return rc;
	case '"':
		return string(s);
	case '-':
	case '0' ... '9':
		return number(s);
	default:
		return literal(s);
	}
}

int sf_json_parse(struct sf_json *out, const char *text, size_t len,
		  struct sf_err *err)
{
	struct scan s = { .text = text, .p = text, .end = text + len,
			  .err = err };
	struct cJSON *root;
	int rc;

	if (len > 1u << 30)
		return sf_err_set(err, -EBADMSG, "too large: %zu bytes", len);
	if (at(&s, "\xef\xbb\xbf"))
		s.p += 3;
	rc = value(&s);
	if (!rc)
		rc = emit(&s, "", 1);
	if (!rc) {
		root = cJSON_Parse(s.out.data);
		if (root)
			*out = (struct sf_json){ root, text, len };
		else	/* the scanner left nothing else to fail */
			rc = sf_err_set(err, -ENOMEM, "out of memory");
	}
	sf_vec_free(&s.out);
	return rc;
}

void sf_json_free(struct sf_json *json)
{
	cJSON_Delete(json->root);
	json->root = NULL;
}

int sf_json_u64(const struct sf_json *json, const struct cJSON *item,
		uint64_t *out)
{
	const char *p, *end = json->text + json->len;
	uint64_t v = 0;

	if (!cJSON_IsNumber(item))
		return -EINVAL;
	p = json->text + (size_t)item->valuedouble;
	if (*p == '0' && p + 1 < end && is_number_char(p[1]))
		return -EINVAL;
	for (; p < end && is_number_char(*p); p++) {
		if (*p < '0' || *p > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, *p - '0', &v))
			return -ERANGE;
	}
	*out = v;
	return 0;
}
