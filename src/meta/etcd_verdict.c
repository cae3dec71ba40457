/* SPDX-License-Identifier: MIT */
/*
 * What an answer that is no success means: gRPC codes and HTTP statuses become
 * a negative errno and one sentence. Pure.
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "meta/etcd_json.h"

/* gRPC status codes, as the gateway passes them on. */
enum {
	CODE_UNKNOWN = 2,
	CODE_INVALID_ARGUMENT = 3,
	CODE_DEADLINE_EXCEEDED = 4,
	CODE_NOT_FOUND = 5,
	CODE_PERMISSION_DENIED = 7,
	CODE_RESOURCE_EXHAUSTED = 8,
	CODE_FAILED_PRECONDITION = 9,
	CODE_UNIMPLEMENTED = 12,
	CODE_UNAVAILABLE = 14,
	CODE_UNAUTHENTICATED = 16,
};

static int code_exhausted(const char *message)
{
	if (strstr(message, "larger than") || strstr(message, "too large"))
		return -EMSGSIZE;
	return strstr(message, "space exceeded") ? -ENOSPC : -EIO;
}

static int code_invalid(const char *message, bool *auth)
{
	if (strstr(message, "too large"))
		return -EMSGSIZE;
	/* No token came along: of use when the store began to want one. */
	if (strstr(message, "user name is empty")) {
		*auth = true;
		return -EACCES;
	}
	return strstr(message, "authentication failed") ? -EACCES : -EIO;
}

static int code_errno(int code, const char *message, bool *auth)
{
	switch (code) {
	case CODE_UNKNOWN:
		if (!strstr(message, "revision") || !strstr(message, "old"))
			return -EIO;
		*auth = true;
		return -EACCES;
	case CODE_INVALID_ARGUMENT:
		return code_invalid(message, auth);
	case CODE_DEADLINE_EXCEEDED:
		return -ETIMEDOUT;
	case CODE_NOT_FOUND:
		return -ENOENT;
	case CODE_PERMISSION_DENIED:
		return -EPERM;
	case CODE_RESOURCE_EXHAUSTED:
		return code_exhausted(message);
	case CODE_FAILED_PRECONDITION:
		return strstr(message, "not enabled") ? -ENOSYS : -EIO;
	case CODE_UNIMPLEMENTED:
		return -EPROTO;
	case CODE_UNAVAILABLE:
		return strstr(message, "timed out") ? -ETIMEDOUT : -EIO;
	case CODE_UNAUTHENTICATED:
		*auth = true;
		return -EACCES;
	default:
		return -EIO;
	}
}

/*
 * {"error":TEXT,"message":TEXT,"code":N}, newer {"code":N,"message":TEXT}, in
 * streams {"error":{"grpc_code":N,"message":TEXT}}.
 */
static bool parse_error(const cJSON *json, int *code, const char **message)
{
	const cJSON *error = sf_etcd_member(json, "error"), *number;

	if (cJSON_IsObject(error))
		json = error;
	number = sf_etcd_member(json, "grpc_code");
	if (!number)
		number = sf_etcd_member(json, "code");
	if (!cJSON_IsNumber(number))
		return false;
	*code = number->valueint;
	*message = sf_etcd_text(json, "message");
	if (!*message)
		*message = sf_etcd_text(json, "error");
	if (!*message)
		*message = "no reason given";
	return true;
}

static int no_etcd(const char *where, long status, const char *data, bool *auth,
		   struct sf_err *err)
{
	int len = (int)strcspn(data, "\r\n");

	if (len > 80)
		len = 80;
	if (status == 401) {
		*auth = true;
		return sf_err_set(err, -EACCES, "%s: asks for credentials",
				  where);
	}
	if (status == 403)
		return sf_err_set(err, -EACCES, "%s: forbidden", where);
	if (status == 413)
		return sf_err_set(err, -EMSGSIZE, "%s: too large", where);
	if (status >= 300 && status < 400)
		return sf_err_set(err, -EBADMSG,
				  "%s: redirects (status %ld), which is not "
				  "followed",
				  where, status);
	if (strstr(data, "HTTP request to an HTTPS server"))
		return sf_err_set(err, -EPROTO, "%s: wants TLS (etcds://)",
				  where);
	return sf_err_set(err, status >= 500 ? -EIO : -EBADMSG,
			  "%s: not an answer of etcd (status %ld): %.*s", where,
			  status, len, data);
}

/* Why a user that was not given is missing, for those who expect that their
 * certificate says it. */
static const char *hint(const struct sf_etcd *etcd, int res, bool auth)
{
	if (res != -EACCES || !auth || etcd->user)
		return "";
	return etcd->has_cert ? " (its JSON gateway does not take the user "
				"from a client certificate: give user and "
				"password)"
			      : " (no user was given)";
}

int sf_etcd_verdict(struct sf_etcd *etcd, const char *where, long status,
		    const char *data, bool *auth, struct sf_err *err)
{
	cJSON *json = cJSON_Parse(data);
	const char *message;
	int code, res;

	if (parse_error(json, &code, &message)) {
		res = code_errno(code, message, auth);
		if (status == 401)
			*auth = true;
		sf_err_set(err, res, "%s: %.300s%s", where, message,
			   hint(etcd, res, *auth));
	} else {
		res = no_etcd(where, status, data, auth, err);
	}
	cJSON_Delete(json);
	return res;
}
