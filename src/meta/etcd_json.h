/* SPDX-License-Identifier: MIT */
/* The forms in etcd's JSON gateway: base64, integers as text or numbers, and
 * members under either of two spellings. Pure. */
#ifndef SF_META_ETCD_JSON_H
#define SF_META_ETCD_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct sf_blob;

/* Malloc'ed, padded; NULL: out of memory. */
char *sf_etcd_base64(const void *data, size_t len);
/* The alphabets of RFC 4648 sections 4 and 5, padded or not.
 * -EBADMSG, -ENOMEM. */
int sf_etcd_unbase64(struct sf_blob **out, const char *text);

/* A malloc'ed text, such as a body; NULL: out of memory. */
char *sf_etcd_format(const char *fmt, ...)
	__attribute__((format(printf, 1, 2)));
/* TEXT as a JSON string, with its quotes. Malloc'ed; NULL: out of memory. */
char *sf_etcd_quote(const char *text);

/* Member SNAKE of OBJECT, or the same in camelCase; NULL. */
const struct cJSON *sf_etcd_member(const struct cJSON *object,
				   const char *snake);
/* Its text, or NULL when it is missing or no string. */
const char *sf_etcd_text(const struct cJSON *object, const char *snake);
/* Its bytes. -ENOENT: there is no such member; -EBADMSG, -ENOMEM. */
int sf_etcd_bytes(struct sf_blob **out, const struct cJSON *object,
		  const char *snake);
/* Its integer, sent as a string or as a number; 0 when it is missing. Numbers
 * too large for a double are looked up in RAW, the text of the reply, under
 * the first member of that name. -EBADMSG. */
int sf_etcd_int(int64_t *out, const struct cJSON *object, const char *snake,
		const char *raw);

#endif
