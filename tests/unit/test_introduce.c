/* SPDX-License-Identifier: MIT */
/* Introductions, against a store that remembers what was done to it. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blob.h"
#include "err.h"
#include "introduce.h"
#include "log.h"
#include "meta.h"
#include "segment.h"

struct store {
	struct sf_meta *meta;
	int refuses;
	unsigned int nr_asked;
	char last[512];		/* descriptor that was put */
	char history[512];	/* "+NAME", "-NAME", "-lease" */
};

static void note(struct store *s, char what, const char *name)
{
	size_t n = strlen(s->history);

	snprintf(s->history + n, sizeof(s->history) - n, "%c%s", what, name);
}

/* The last of them only: enough for one who looks what became of it. */
static int fake_get(void *priv, const char *name, struct sf_blob **segment,
		    struct sf_blob **rpc, struct sf_err *err)
{
	struct store *s = priv;

	s->nr_asked++;
	*rpc = NULL;
	*segment = strstr(s->last, name) ?
			   sf_blob_new(s->last, strlen(s->last)) : NULL;
	return *segment ? 0 : -ENOENT;
}

static int fake_put(void *priv, enum sf_meta_kind kind, const char *name,
		    const char *value, size_t len, int64_t lease,
		    struct sf_err *err)
{
	struct store *s = priv;

	assert_int_equal(kind, SF_META_SEGMENT);
	assert_true(lease > 0);
	if (s->refuses)
		return sf_err_set(err, s->refuses, "not you");
	snprintf(s->last, sizeof(s->last), "%.*s", (int)len, value);
	note(s, '+', name);
	return 0;
}

static int fake_del(void *priv, enum sf_meta_kind kind, const char *name,
		    struct sf_err *err)
{
	assert_int_equal(kind, SF_META_SEGMENT);
	note(priv, '-', name);
	return 0;
}

static int fake_grant(void *priv, unsigned int ttl_s, int64_t *lease,
		      struct sf_err *err)
{
	assert_in_range(ttl_s, 10, 120);
	*lease = 7;
	return 0;
}

static int fake_lease(void *priv, int64_t lease, struct sf_err *err)
{
	return 0;
}

static int fake_revoke(void *priv, int64_t lease, struct sf_err *err)
{
	note(priv, '-', "lease");
	return 0;
}

static const struct sf_meta_ops fake_ops = {
	.scheme = "fake",
	.caps = SF_META_CAN_WRITE | SF_META_CAN_LEASE,
	.get = fake_get,
	.put = fake_put,
	.del = fake_del,
	.lease_grant = fake_grant,
	.lease_keepalive = fake_lease,
	.lease_revoke = fake_revoke,
};

static const struct sf_meta_ops read_only_ops = {
	.scheme = "fake",
	.get = fake_get,
};

static void drop_log(int level, enum sf_log_module module, const char *line)
{
}

static struct sf_introducer *open_store(struct store *s,
					const struct sf_meta_ops *ops)
{
	struct sf_introducer *in = NULL;

	sf_log_set_sink(drop_log);
	memset(s, 0, sizeof(*s));
	assert_int_equal(sf_meta_wrap(&s->meta, ops, s, "fake"), 0);
	assert_int_equal(sf_introducer_new(&in, s->meta), 0);
	return in;
}

static const struct sf_device nic0 = {
	.name = "nic0",
	.has_gid = true,
	.gid = { [10] = 0xff, 0xff, 10, 0, 0, 1 },
};

static void each_device_has_a_name_that_stays(void **state)
{
	struct store s;
	struct sf_introducer *in = open_store(&s, &fake_ops);
	char name[SF_INTRODUCED_MAX] = "";
	struct sf_device other = nic0;
	struct sf_err err = { 0 };

	assert_int_equal(s.nr_asked, 0);
	assert_int_equal(sf_introduce(in, "me", &nic0, name, &err), 0);
	assert_string_equal(name, "segfs/me/0");
	assert_string_equal(s.last, "{\"buffers\":[],\"devices\":[{\"gid\":"
			    "\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01"
			    "\",\"lid\":0,\"name\":\"nic0\"}],\"name\":"
			    "\"segfs/me/0\",\"priority_matrix\":{},"
			    "\"protocol\":\"rdma\",\"tcp_data_port\":0,"
			    "\"tcp_proto_version\":1,\"timestamp\":\"\"}\n");
	other.gid[15]++;
	assert_int_equal(sf_introduce(in, "me", &other, name, &err), 0);
	assert_string_equal(name, "segfs/me/1");
	other = nic0;
	other.name = "nic1";
	assert_int_equal(sf_introduce(in, "me", &other, name, &err), 0);
	assert_string_equal(name, "segfs/me/2");
	assert_int_equal(sf_introduce(in, "you", &nic0, name, &err), 0);
	assert_string_equal(name, "segfs/you/3");
	assert_int_equal(sf_introduce(in, "me", &nic0, name, &err), 0);
	assert_string_equal(name, "segfs/me/0");
	assert_string_equal(s.history, "+segfs/me/0+segfs/me/1+segfs/me/2"
			    "+segfs/you/3");
	sf_introducer_free(in);
	sf_meta_close(s.meta);
}

static void it_ends_with_the_introducer(void **state)
{
	struct store s;
	struct sf_introducer *in = open_store(&s, &fake_ops);
	char name[SF_INTRODUCED_MAX];

	assert_int_equal(sf_introduce(in, "me", &nic0, name, NULL), 0);
	sf_introducer_free(in);
	assert_string_equal(s.history, "+segfs/me/0-segfs/me/0-lease");
	sf_meta_close(s.meta);
}

static void a_store_that_refuses_is_left_alone_for_a_while(void **state)
{
	struct store s;
	struct sf_introducer *in = open_store(&s, &fake_ops);
	char name[SF_INTRODUCED_MAX];
	struct sf_err err = { 0 };
	unsigned int nr;

	s.refuses = -EACCES;
	assert_int_equal(sf_introduce(in, "me", &nic0, name, &err), -EACCES);
	assert_string_equal(err.text, "not you");
	assert_string_equal(s.history, "-lease");
	nr = s.nr_asked;
	err.text[0] = '\0';
	assert_int_equal(sf_introduce(in, "me", &nic0, name, &err), -EACCES);
	assert_string_equal(err.text, "not you");
	assert_int_equal(s.nr_asked, nr);
	sf_introducer_free(in);
	sf_meta_close(s.meta);
}

static void without_leases_there_is_no_introduction(void **state)
{
	struct store s;
	struct sf_introducer *in = open_store(&s, &read_only_ops);
	char name[SF_INTRODUCED_MAX];
	struct sf_err err = { 0 };

	assert_int_equal(sf_introduce(in, "me", &nic0, name, &err),
			 -EOPNOTSUPP);
	assert_true(*err.text);
	assert_int_equal(sf_introduce(NULL, "me", &nic0, name, &err),
			 -EOPNOTSUPP);
	assert_string_equal(s.history, "");
	sf_introducer_free(in);
	sf_meta_close(s.meta);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_device_has_a_name_that_stays),
		cmocka_unit_test(it_ends_with_the_introducer),
		cmocka_unit_test(
			a_store_that_refuses_is_left_alone_for_a_while),
		cmocka_unit_test(without_leases_there_is_no_introduction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
