/* SPDX-License-Identifier: MIT */
/* What etcd's JSON gateway writes, read without trust: see etcd_json.h. Pure,
 * no state, knows neither HTTP nor keys. */
#include "config.h"
#include "meta/etcd_json.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "blob.h"

#define EXACT_MAX 9007199254740992.0 /* 2^53: doubles are exact below */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			       "abcdefghijklmnopqrstuvwxyz0123456789+/";

char *sf_etcd_base64(const void *data, size_t len)
{
	const unsigned char *in = data;
	char *text, *out;
	uint32_t group;
	size_t i, n;

	if (len > SIZE_MAX / 2)
		return NULL;
	text = out = malloc((len + 2) / 3 * 4 + 1);
	if (!text)
		return NULL;
	for (i = 0; i < len; i += 3) {
		n = len - i < 3 ? len - i : 3;
		group = (uint32_t)in[i] << 16;
		group |= n > 1 ? (uint32_t)in[i + 1] << 8 : 0;
		group |= n > 2 ? in[i + 2] : 0;
		*out++ = alphabet[group >> 18];
		*out++ = alphabet[group >> 12 & 63];
		*out++ = n > 1 ? alphabet[group >> 6 & 63] : '=';
		*out++ = n > 2 ? alphabet[group & 63] : '=';
	}
	*out = '\0';
	return text;
}

static int digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	if (c == '/' || c == '_')
		return 63;
	return -1;
}

int sf_etcd_unbase64(struct sf_blob **out, const char *text)
{
	size_t len = strlen(text), i, done = 0;
	struct sf_blob *blob;
	uint32_t bits = 0;
	int d;

	while (len && text[len - 1] == '=')
		len--;
	if (len % 4 == 1)
		return -EBADMSG;
	blob = sf_blob_new(NULL, len / 4 * 3 + (len % 4 ? len % 4 - 1 : 0));
	if (!blob)
		return -ENOMEM;
	for (i = 0; i < len; i++) {
		d = digit(text[i]);
		if (d < 0) {
			sf_blob_put(blob);
			return -EBADMSG;
		}
		bits = bits << 6 | (uint32_t)d;
		if (i % 4)
			blob->data[done++] = (char)(bits >> (6 - 2 * (i % 4)));
	}
	*out = blob;
	return 0;
}

char *sf_etcd_format(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : text;
}

char *sf_etcd_quote(const char *text)
{
	char *quoted = malloc(6 * strlen(text) + 3), *out = quoted;
	unsigned char c;

	if (!quoted)
		return NULL;
	*out++ = '"';
	while ((c = (unsigned char)*text++)) {
		if (c < 0x20) {
			out += sprintf(out, "\\u%04x", c);
			continue;
		}
		if (c == '"' || c == '\\')
			*out++ = '\\';
		*out++ = (char)c;
	}
	*out++ = '"';
	*out = '\0';
	return quoted;
}

/* "range_response" -> "rangeResponse" */
static void camel(char *out, size_t size, const char *snake)
{
	size_t n = 0;

	for (; *snake && n + 1 < size; snake++) {
		if (snake[0] == '_' && snake[1])
			out[n++] = (char)toupper((unsigned char)*++snake);
		else
			out[n++] = *snake;
	}
	out[n] = '\0';
}

const struct cJSON *sf_etcd_member(const struct cJSON *object,
				   const char *snake)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, snake);
	char other[32];

	if (item || !strchr(snake, '_'))
		return item;
	camel(other, sizeof(other), snake);
	return cJSON_GetObjectItemCaseSensitive(object, other);
}

const char *sf_etcd_text(const struct cJSON *object, const char *snake)
{
	return cJSON_GetStringValue(sf_etcd_member(object, snake));
}

int sf_etcd_bytes(struct sf_blob **out, const struct cJSON *object,
		  const char *snake)
{
	const cJSON *item = sf_etcd_member(object, snake);

	if (!item)
		return -ENOENT;
	if (!cJSON_IsString(item))
		return -EBADMSG;
	return sf_etcd_unbase64(out, item->valuestring);
}

/* WHOLE: nothing comes after it; else a number in JSON, but no fraction. */
static int parse_int(int64_t *out, const char *text, bool whole)
{
	long long value;
	char *end;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || end == text || (*end && (whole || strchr(".eE", *end))))
		return -EBADMSG;
	*out = value;
	return 0;
}

/* Where the value of the first member NAME begins, or NULL. */
static const char *find_raw(const char *raw, const char *name)
{
	size_t len = strlen(name);

	while ((raw = strchr(raw, '"'))) {
		raw++;
		if (strncmp(raw, name, len) || raw[len] != '"')
			continue;
		raw += len + 1;
		raw += strspn(raw, " \t\r\n");
		if (*raw == ':')
			return raw + 1;
	}
	return NULL;
}

int sf_etcd_int(int64_t *out, const struct cJSON *object, const char *snake,
		const char *raw)
{
	const cJSON *item = sf_etcd_member(object, snake);
	const char *text;

	if (!item || cJSON_IsNull(item)) {
		*out = 0;
		return 0;
	}
	if (cJSON_IsString(item))
		return parse_int(out, item->valuestring, true);
	if (!cJSON_IsNumber(item))
		return -EBADMSG;
	if (item->valuedouble > -EXACT_MAX && item->valuedouble < EXACT_MAX) {
		*out = (int64_t)item->valuedouble;
		return 0;
	}
	text = raw ? find_raw(raw, item->string) : NULL;
	return text ? parse_int(out, text, false) : -EBADMSG;
}
