/* SPDX-License-Identifier: MIT */
/*
 * Tokens: name and password in, a bare token for the Authorization header out.
 * Simple tokens die after some minutes, so any call may find that it needs a
 * new one. The lock guards the fields and is not held while asking; two threads
 * may ask at once, and the later token stays.
 */
#include "config.h"
#include "meta/etcd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "err.h"
#include "meta/etcd_json.h"

void sf_etcd_secret_free(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

static char *auth_body(const struct sf_etcd *etcd)
{
	static const char form[] = "{\"name\":%s,\"password\":%s}";
	char *name = sf_etcd_quote(etcd->user);
	char *password = sf_etcd_quote(etcd->password ? etcd->password : "");
	char *body = NULL;
	size_t size;

	if (name && password) {
		size = sizeof(form) + strlen(name) + strlen(password);
		body = malloc(size);
		if (body)
			snprintf(body, size, form, name, password);
	}
	free(name);
	sf_etcd_secret_free(password);
	return body;
}

/* A token goes into a header: nothing that could end the line. */
static bool token_ok(const char *token)
{
	if (!token || !*token)
		return false;
	for (; *token; token++)
		if (*token <= 0x20 || *token >= 0x7f)
			return false;
	return true;
}

static int take_token(struct sf_etcd_reply *reply, const char *where,
		      char **out, struct sf_err *err)
{
	const cJSON *item = sf_etcd_member(reply->json, "token");
	char *token = cJSON_GetStringValue(item);
	int res = 0;

	if (!token_ok(token))
		res = sf_err_set(err, -EBADMSG, "%s: gives no token", where);
	else if (!(*out = strdup(token)))
		res = sf_err_set(err, -ENOMEM, "out of memory");
	if (token)
		explicit_bzero(token, strlen(token));
	return res;
}

/* *OUT stays NULL when the store wants no users. */
static int authenticate(struct sf_etcd *etcd, unsigned int i,
			const struct sf_etcd_call *call, char **out,
			struct sf_err *err)
{
	struct sf_etcd_call ask = *call;
	struct sf_etcd_reply reply;
	char *body = auth_body(etcd);
	bool auth = false;
	int res;

	if (!body)
		return sf_err_set(err, -ENOMEM, "out of memory");
	ask.method = "auth/authenticate";
	ask.body = body;
	ask.len = 0;
	res = sf_etcd_exchange(etcd, i, &ask, NULL, &reply, &auth, err);
	sf_etcd_secret_free(body);
	if (res == -ENOSYS)
		return 0;
	if (res)
		return res;
	res = take_token(&reply, etcd->endpoints[i].where, out, err);
	sf_etcd_reply_fini(&reply);
	return res;
}

static void store_token(struct sf_etcd *etcd, const char *token,
			unsigned int *nr)
{
	char *copy = token ? strdup(token) : NULL;

	pthread_mutex_lock(&etcd->lock);
	sf_etcd_secret_free(etcd->token);
	etcd->token = copy;
	etcd->no_auth = !token;
	*nr = token ? ++etcd->token_nr : 0;
	pthread_mutex_unlock(&etcd->lock);
}

int sf_etcd_token(struct sf_etcd *etcd, unsigned int i,
		  const struct sf_etcd_call *call, char **token,
		  unsigned int *nr, struct sf_err *err)
{
	bool have;
	int res;

	*token = NULL;
	*nr = 0;
	if (!etcd->user)
		return 0;
	pthread_mutex_lock(&etcd->lock);
	have = etcd->token || etcd->no_auth;
	if (etcd->token) {
		*token = strdup(etcd->token);
		*nr = etcd->token_nr;
	}
	pthread_mutex_unlock(&etcd->lock);
	if (have)
		return *nr && !*token
			       ? sf_err_set(err, -ENOMEM, "out of memory")
			       : 0;
	res = authenticate(etcd, i, call, token, err);
	if (!res)
		store_token(etcd, *token, nr);
	return res;
}

void sf_etcd_token_refused(struct sf_etcd *etcd, unsigned int nr)
{
	pthread_mutex_lock(&etcd->lock);
	etcd->no_auth = false;
	if (nr == etcd->token_nr) {
		sf_etcd_secret_free(etcd->token);
		etcd->token = NULL;
	}
	pthread_mutex_unlock(&etcd->lock);
}
