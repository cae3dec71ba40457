/* SPDX-License-Identifier: MIT */
/* The exporter against a store made of two pointers: buffers and their memory,
 * and who has the name when. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "blob.h"
#include "clock.h"
#include "err.h"
#include "export.h"
#include "export_memory.h"
#include "export_publish.h"
#include "handshake.h"
#include "log.h"
#include "meta.h"
#include "meta/backends.h"
#include "segment.h"

/* ---- a store ---- */

struct store {
	struct sf_meta *meta;
	pthread_mutex_t lock;
	struct sf_blob *value[2];	/* by enum sf_meta_kind */
	int64_t lease[2];
	int64_t granted;
	atomic_bool lease_dead;
	atomic_int keepalive_fails;
	atomic_uint keepalives;
	int put_segment_fails;
	char history[256];		/* "+rpc+seg-rpc-seg" */
};

static const char *const kinds[] = { "seg", "rpc" };

static void note(struct store *s, const char *what, const char *kind)
{
	size_t n = strlen(s->history);

	snprintf(s->history + n, sizeof(s->history) - n, "%s%s", what, kind);
}

static int fake_get(void *priv, const char *name, struct sf_blob **segment,
		    struct sf_blob **rpc, struct sf_err *err)
{
	struct store *s = priv;
	struct sf_blob **out[2] = { segment, rpc };
	int res = -ENOENT;

	pthread_mutex_lock(&s->lock);
	for (int k = 0; k < 2; k++) {
		*out[k] = s->value[k] ? sf_blob_get(s->value[k]) : NULL;
		if (s->value[k])
			res = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return res;
}

static void set(struct store *s, enum sf_meta_kind kind, const char *text,
		int64_t lease)
{
	pthread_mutex_lock(&s->lock);
	sf_blob_put(s->value[kind]);
	s->value[kind] = text ? sf_blob_new(text, strlen(text)) : NULL;
	s->lease[kind] = lease;
	pthread_mutex_unlock(&s->lock);
}

static int fake_put(void *priv, enum sf_meta_kind kind, const char *name,
		    const char *value, size_t len, int64_t lease,
		    struct sf_err *err)
{
	struct store *s = priv;

	assert_string_equal(name, "me");
	assert_int_equal(strlen(value), len);
	if (kind == SF_META_SEGMENT && s->put_segment_fails)
		return sf_err_set(err, s->put_segment_fails, "too big");
	note(s, "+", kinds[kind]);
	set(s, kind, value, lease);
	return 0;
}

static int fake_del(void *priv, enum sf_meta_kind kind, const char *name,
		    struct sf_err *err)
{
	struct store *s = priv;

	note(s, "-", kinds[kind]);
	set(s, kind, NULL, 0);
	return 0;
}

static int fake_grant(void *priv, unsigned int ttl_s, int64_t *lease,
		      struct sf_err *err)
{
	struct store *s = priv;

	s->lease_dead = false;
	*lease = ++s->granted;
	return 0;
}

static int fake_keepalive(void *priv, int64_t lease, struct sf_err *err)
{
	struct store *s = priv;

	s->keepalives++;
	if (s->keepalive_fails)
		return sf_err_set(err, s->keepalive_fails, "no answer");
	return s->lease_dead ? -ENOENT : 0;
}

static int fake_revoke(void *priv, int64_t lease, struct sf_err *err)
{
	note(priv, "-", "lease");
	return 0;
}

static const struct sf_meta_ops fake_ops = {
	.scheme = "fake",
	.caps = SF_META_CAN_WRITE | SF_META_CAN_LEASE,
	.get = fake_get,
	.put = fake_put,
	.del = fake_del,
	.lease_grant = fake_grant,
	.lease_keepalive = fake_keepalive,
	.lease_revoke = fake_revoke,
};

static void drop_log(int level, enum sf_log_module module, const char *line)
{
}

static int setup(void **state)
{
	struct store *s = calloc(1, sizeof(*s));

	sf_log_set_sink(drop_log);
	pthread_mutex_init(&s->lock, NULL);
	assert_int_equal(sf_meta_wrap(&s->meta, &fake_ops, s, "fake"), 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct store *s = *state;

	sf_meta_close(s->meta);
	set(s, SF_META_RPC, NULL, 0);
	set(s, SF_META_SEGMENT, NULL, 0);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return 0;
}

/* ---- an exporter and its rivals ---- */

static const struct sf_export_buffer small = { .size = 10000 };

static int start(struct store *s, struct sf_export **x, bool force,
		 struct sf_err *err)
{
	struct sf_export_config config = {
		.meta = s->meta,
		.name = "me",
		.lease_s = 1,
		.force = force,
		.threads = 1,
		.buffers = &small,
		.nr_buffers = 1,
	};

	return sf_export_start(x, &config, err);
}

static struct sf_export *must_start(struct store *s)
{
	struct sf_export *x = NULL;
	struct sf_err err = { 0 };

	if (start(s, &x, false, &err) < 0)
		fail_msg("%s", err.text);
	return x;
}

static char *say_yes(void *arg, enum sf_handshake_type type, const char *body,
		     size_t len)
{
	/* The oldest Mooncakes know no Probe. */
	return arg && type == SF_HANDSHAKE_PROBE ? NULL : strdup("null");
}

static struct sf_handshake_server *rival(struct store *s, bool old)
{
	struct sf_handshake_config config = {
		.handler = say_yes, .arg = old ? s : NULL,
	};
	struct sf_handshake_server *server = NULL;
	char *rpc;

	assert_int_equal(sf_handshake_serve(&server, &config, NULL), 0);
	rpc = sf_rpc_meta_encode("127.0.0.1", sf_handshake_port(server));
	set(s, SF_META_RPC, rpc, 0);
	set(s, SF_META_SEGMENT, "{\"theirs\":1}", 0);
	free(rpc);
	return server;
}

static bool holds(struct store *s, enum sf_meta_kind kind, const char *part)
{
	bool yes;

	pthread_mutex_lock(&s->lock);
	yes = s->value[kind] && strstr(s->value[kind]->data, part);
	pthread_mutex_unlock(&s->lock);
	return yes;
}

/* Within three seconds, that is some nine looks of the exporter's. */
static void wait_until_holds(struct store *s, enum sf_meta_kind kind,
			     const char *part)
{
	uint64_t end = sf_now_ms() + 3000;
	struct timespec pause = { .tv_nsec = 20000000 };

	while (!holds(s, kind, part)) {
		assert_true(sf_now_ms() < end);
		nanosleep(&pause, NULL);
	}
}

static void let_it_look(void)
{
	struct timespec pause = { .tv_nsec = 800000000 };

	nanosleep(&pause, NULL);
}

/* ---- publishing ---- */

static void keys_come_and_go_in_order(void **state)
{
	struct store *s = *state;
	struct sf_export *x = must_start(s);

	assert_string_equal(s->history, "+rpc+seg");
	assert_int_equal(s->lease[SF_META_RPC], 1);
	assert_int_equal(s->lease[SF_META_SEGMENT], 1);
	assert_true(holds(s, SF_META_SEGMENT, "\"tcp_proto_version\":2"));
	assert_true(holds(s, SF_META_SEGMENT, "\"length\":10000"));
	assert_true(holds(s, SF_META_RPC, "\"ip_or_host_name\":\"127.0.0.1\""));
	sf_export_stop(x);
	assert_string_equal(s->history, "+rpc+seg-rpc-seg-lease");
	assert_null(s->value[0]);
	assert_null(s->value[1]);
}

static void a_live_owner_keeps_its_name(void **state)
{
	struct store *s = *state;
	struct sf_handshake_server *server;
	struct sf_export *x = NULL;
	struct sf_err err = { 0 };

	for (int old = 0; old < 2; old++) {
		server = rival(s, old);
		assert_int_equal(start(s, &x, false, &err), -EEXIST);
		assert_non_null(strstr(err.text, "belongs to a process"));
		assert_null(x);
		assert_string_equal(s->history, "");
		sf_handshake_stop(server);
	}
}

static void force_takes_it_all_the_same(void **state)
{
	struct store *s = *state;
	struct sf_handshake_server *server = rival(s, false);
	struct sf_export *x = NULL;

	assert_int_equal(start(s, &x, true, NULL), 0);
	assert_true(holds(s, SF_META_SEGMENT, "10000"));
	sf_export_stop(x);
	sf_handshake_stop(server);
}

static void a_dead_owner_does_not(void **state)
{
	struct store *s = *state;
	struct sf_export *x;

	sf_handshake_stop(rival(s, false));
	x = must_start(s);
	assert_true(holds(s, SF_META_SEGMENT, "10000"));
	sf_export_stop(x);
	assert_null(s->value[0]);
}

static void nothing_is_half_published(void **state)
{
	struct store *s = *state;
	struct sf_export *x = NULL;
	struct sf_err err = { 0 };

	s->put_segment_fails = -EMSGSIZE;
	assert_int_equal(start(s, &x, false, &err), -EMSGSIZE);
	assert_string_equal(err.text, "too big");
	assert_string_equal(s->history, "+rpc-rpc-lease");
	assert_null(s->value[0]);
	assert_null(s->value[1]);
}

static void lost_keys_are_put_again(void **state)
{
	struct store *s = *state;
	struct sf_export *x = must_start(s);

	set(s, SF_META_SEGMENT, NULL, 0);
	wait_until_holds(s, SF_META_SEGMENT, "10000");
	assert_string_equal(s->history, "+rpc+seg+seg");
	set(s, SF_META_RPC, NULL, 0);
	wait_until_holds(s, SF_META_RPC, "rpc_port");
	assert_int_equal(s->granted, 1);
	sf_export_stop(x);
}

static void a_lost_lease_is_replaced(void **state)
{
	struct store *s = *state;
	struct sf_export *x = must_start(s);

	s->lease_dead = true;
	set(s, SF_META_RPC, NULL, 0);
	set(s, SF_META_SEGMENT, NULL, 0);
	wait_until_holds(s, SF_META_SEGMENT, "10000");
	assert_int_equal(s->granted, 2);
	assert_int_equal(s->lease[SF_META_RPC], 2);
	sf_export_stop(x);
}

/* It waits for the store as everything else does, and is not forgotten. */
static void a_new_descriptor_waits_for_the_store(void **state)
{
	struct store *s = *state;
	struct sf_publish_config config = {
		.meta = s->meta, .name = "me", .segment = "{\"first\":1}",
		.rpc = "{\"rpc\":1}", .lease_s = 1,
	};
	struct sf_publish *p = NULL;

	assert_int_equal(sf_publish_start(&p, &config, NULL), 0);
	assert_int_equal(sf_publish_update(p, "{\"second\":2}"), 0);
	wait_until_holds(s, SF_META_SEGMENT, "second");
	s->keepalive_fails = -ECONNREFUSED;
	s->keepalives = 0;
	assert_int_equal(sf_publish_update(p, "{\"third\":3}"), 0);
	let_it_look();
	assert_in_range(s->keepalives, 1, 4);
	assert_true(holds(s, SF_META_SEGMENT, "second"));
	s->keepalive_fails = 0;
	wait_until_holds(s, SF_META_SEGMENT, "third");
	sf_publish_stop(p);
	assert_null(s->value[SF_META_SEGMENT]);
}

static void a_foreign_owner_is_left_alone_while_it_lives(void **state)
{
	struct store *s = *state;
	struct sf_export *x = must_start(s);
	struct sf_handshake_server *server = rival(s, false);

	let_it_look();
	assert_true(holds(s, SF_META_SEGMENT, "theirs"));
	sf_handshake_stop(server);
	wait_until_holds(s, SF_META_SEGMENT, "10000");
	server = rival(s, false);
	sf_export_stop(x);
	assert_true(holds(s, SF_META_SEGMENT, "theirs"));
	assert_non_null(s->value[SF_META_RPC]);
	sf_handshake_stop(server);
}

static void bad_names_are_refused(void **state)
{
	const char *const bad[] = { "", "a@b", "/a", NULL };
	struct store *s = *state;
	struct sf_export *x = NULL;
	struct sf_export_config config = { .meta = s->meta };

	for (size_t i = 0; i < 4; i++) {
		config.name = bad[i];
		assert_int_equal(sf_export_start(&x, &config, NULL), -EINVAL);
	}
	assert_string_equal(s->history, "");
}

/* ---- the handshake channel ---- */

static void ask(struct sf_export *x, enum sf_handshake_type type,
		const char *body, const char *want)
{
	struct sf_blob *reply = NULL;

	assert_int_equal(sf_handshake_call("127.0.0.1", sf_export_rpc_port(x),
					   type, body, 1 << 20, 5000, &reply,
					   NULL), 0);
	if (!strstr(reply->data, want))
		fail_msg("%s not in %s", want, reply->data);
	sf_blob_put(reply);
}

static void handshakes_are_answered(void **state)
{
	struct sf_export *x = must_start(*state);
	const char *connect = "{\"local_nic_path\":\"a@x\","
			      "\"peer_nic_path\":\"me@y\",\"qp_num\":[1]}";

	ask(x, SF_HANDSHAKE_PROBE, "{}", "{\"status\":\"success\"}\n");
	ask(x, SF_HANDSHAKE_METADATA, "{}", "\"name\":\"me\"");
	ask(x, SF_HANDSHAKE_NOTIFY, "{\"name\":\"n\",\"notify_msg\":\"m\"}",
	    "\"notify_msg\":\"success\"");
	ask(x, SF_HANDSHAKE_NOTIFY, "[]", "success");
	ask(x, SF_HANDSHAKE_CONNECTION, connect,
	    "\"local_nic_path\":\"me@y\",\"payload\":\"\","
	    "\"peer_nic_path\":\"a@x\"");
	ask(x, SF_HANDSHAKE_CONNECTION, connect,
	    "\"reply_msg\":\"this segment has no RDMA transport\"");
	ask(x, SF_HANDSHAKE_CONNECTION, "{\"local_nic_path\":[]}",
	    "\"reply_msg\":\"the request: local_nic_path is not a string\"");
	ask(x, SF_HANDSHAKE_UNTYPED, connect, "no RDMA transport");
	sf_export_stop(x);
}

/* ---- buffers ---- */

static void buffer_texts(void **state)
{
	struct sf_export_buffer b;

	assert_int_equal(sf_export_buffer_parse(
				 "size=1G,location=segments:4096:0\\,1,huge,"
				 "fill=byte:0xab", &b, NULL), 0);
	assert_int_equal(b.source, SF_EXPORT_ANON);
	assert_int_equal(b.size, 1 << 30);
	assert_string_equal(b.location, "segments:4096:0,1");
	assert_true(b.huge && !b.read_only);
	assert_int_equal(b.fill, SF_EXPORT_FILL_BYTE);
	assert_int_equal(b.fill_seed, 0xab);
	sf_export_buffer_fini(&b);
	assert_int_equal(sf_export_buffer_parse("file=/a/b,offset=4K,ro", &b,
						NULL), 0);
	assert_int_equal(b.source, SF_EXPORT_FILE);
	assert_string_equal(b.path, "/a/b");
	assert_int_equal(b.size, 0);
	assert_int_equal(b.offset, 4096);
	assert_true(b.read_only);
	sf_export_buffer_fini(&b);
	assert_int_equal(sf_export_buffer_parse("shm=x,fill=random:7", &b,
						NULL), 0);
	assert_int_equal(b.source, SF_EXPORT_SHM);
	assert_int_equal(b.fill, SF_EXPORT_FILL_RANDOM);
	assert_int_equal(b.fill_seed, 7);
	sf_export_buffer_fini(&b);
	assert_int_equal(sf_export_buffer_parse(
				 "dmabuf=0,offset=64K,location=cuda:0", &b,
				 NULL), 0);
	assert_int_equal(b.source, SF_EXPORT_DMABUF);
	assert_int_equal(b.dmabuf, 0);
	assert_int_equal(b.offset, 65536);
	sf_export_buffer_fini(&b);
}

static void bad_buffer_texts(void **state)
{
	static const char *const bad[] = {
		"", "ro", "size=0", "size=-1", "size=1X", "size", "sice=4K",
		"size=4K,file=a,shm=b", "size=4K,offset=4K",
		"file=a,huge", "file=a,ro,fill=offset", "size=4K,fill=byte",
		"size=4K,fill=byte:256", "size=4K,fill=random:x",
		"size=4K,fill=offset:1", "size=4K,fill=zebra",
		"size=4K,location=", "dmabuf=-1", "dmabuf=x",
		"dmabuf=3,file=a", "dmabuf=3,shm=a", "dmabuf=3,huge",
		"dmabuf=3,fill=offset",
	};
	struct sf_export_buffer b = { .size = 77 };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sf_err err = { 0 };

		if (sf_export_buffer_parse(bad[i], &b, &err) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
		assert_true(err.text[0] != '\0');
		assert_int_equal(b.size, 77);
	}
}

static int map(struct sf_export_memory *m, const char *text)
{
	struct sf_export_buffer b;
	int res;

	assert_int_equal(sf_export_buffer_parse(text, &b, NULL), 0);
	res = sf_export_memory_map(m, &b, false, NULL);
	sf_export_buffer_fini(&b);
	return res;
}

/* No device is needed to see that it cannot work. Any file that can seek has a
 * size, as a dma-buf has. */
static void a_dmabuf_gets_addresses_of_its_own(void **state)
{
	struct sf_export_buffer b = { .source = SF_EXPORT_DMABUF };
	struct sf_export_memory m;
	struct sf_err err = { 0 };
	struct sf_export *x = NULL;
	struct sf_export_config config = {
		.meta = ((struct store *)*state)->meta, .name = "me",
		.buffers = &b, .nr_buffers = 1,
	};
	FILE *f = tmpfile();

	assert_int_equal(ftruncate(fileno(f), 3 * 65536), 0);
	b.dmabuf = fileno(f);
	b.offset = 65536;
	assert_int_equal(sf_export_memory_map(&m, &b, true, NULL), 0);
	assert_int_equal(m.length, 2 * 65536);
	assert_int_equal(m.dmabuf_offset, 65536);
	assert_true(m.base && m.dmabuf >= 0 && m.dmabuf != b.dmabuf);
	assert_string_equal(m.location, "*");
	sf_export_memory_unmap(&m);
	b.size = 2 * 65536 + 1;
	assert_int_equal(sf_export_memory_map(&m, &b, true, NULL), -EINVAL);
	b.size = 0;
	b.offset = 1;
	assert_int_equal(sf_export_memory_map(&m, &b, true, NULL), -EINVAL);
	b.offset = 0;
	assert_int_equal(sf_export_start(&x, &config, &err), -EINVAL);
	assert_non_null(strstr(err.text, "RDMA only"));
	fclose(f);
	b.dmabuf = 987654;
	assert_int_equal(sf_export_memory_map(&m, &b, true, NULL), -EBADF);
}

static void anonymous_memory_and_patterns(void **state)
{
	struct sf_export_memory m, again;
	uint64_t word;

	assert_int_equal(map(&m, "size=5M,fill=offset,ro,location=cpu:0"), 0);
	assert_int_equal(m.length, 5 << 20);
	assert_true(m.read_only);
	for (uint64_t at = 0; at < m.length; at += 4096 * 9 + 8) {
		memcpy(&word, m.base + at, 8);
		assert_int_equal(word, at);
	}
	sf_export_memory_unmap(&m);
	assert_int_equal(map(&m, "size=10001,fill=random:5"), 0);
	assert_int_equal(map(&again, "size=10001,fill=random:5"), 0);
	assert_memory_equal(m.base, again.base, 10001);
	memcpy(&word, m.base, 8);
	assert_true(word != 0);
	sf_export_memory_unmap(&again);
	sf_export_memory_unmap(&m);
	assert_int_equal(map(&m, "size=3,fill=byte:7"), 0);
	assert_memory_equal(m.base, "\7\7\7", 4);
	sf_export_memory_unmap(&m);
	assert_int_equal(map(&m, "size=4K,location=cpu:999"), -EINVAL);
	assert_int_equal(map(&m, "size=4K,location=cpu:"), -EINVAL);
	assert_int_equal(map(&m, "size=4K,location=cpu:0x1"), -EINVAL);
	assert_int_equal(map(&m, "size=65536T"), -ENOMEM);
}

static void files_are_mapped_and_checked(void **state)
{
	char path[] = "/tmp/segfs-export-XXXXXX", text[128];
	struct sf_export_memory m[3], bad;
	int fd = mkstemp(path);
	char got[8];

	assert_true(fd >= 0);
	snprintf(text, sizeof(text), "file=%s", path);
	assert_int_equal(map(&bad, text), -EINVAL);	/* empty */
	assert_int_equal(ftruncate(fd, 3 * 4096 + 10), 0);
	snprintf(text, sizeof(text), "file=%s,offset=4K,fill=byte:65", path);
	assert_int_equal(map(&m[0], text), 0);
	assert_int_equal(m[0].length, 2 * 4096 + 10);
	assert_int_equal(pread(fd, got, 8, 4092), 8);
	assert_memory_equal(got, "\0\0\0\0AAAA", 8);
	m[0].base[0] = 'B';		/* shared */
	assert_int_equal(pread(fd, got, 8, 4092), 8);
	assert_memory_equal(got, "\0\0\0\0BAAA", 8);

	snprintf(text, sizeof(text), "file=%s,size=4K,ro", path);
	assert_int_equal(map(&m[1], text), 0);
	assert_int_equal(sf_export_memory_overlap(m, 2, NULL), 0);
	snprintf(text, sizeof(text), "file=%s,size=4097,ro", path);
	assert_int_equal(map(&m[2], text), 0);
	assert_int_equal(sf_export_memory_overlap(m, 3, NULL), -EINVAL);

	snprintf(text, sizeof(text), "file=%s,size=16K", path);
	assert_int_equal(map(&bad, text), -EINVAL);	/* more than it has */
	snprintf(text, sizeof(text), "file=%s,offset=100", path);
	assert_int_equal(map(&bad, text), -EINVAL);	/* in a page */
	snprintf(text, sizeof(text), "file=%s,offset=16K", path);
	assert_int_equal(map(&bad, text), -EINVAL);	/* past the end */
	assert_int_equal(map(&bad, "file=/no/such/file"), -ENOENT);
	assert_int_equal(map(&bad, "shm=segfs-no-such-object"), -ENOENT);
	assert_int_equal(map(&bad, "file=/tmp,ro"), -EINVAL);
	for (int i = 0; i < 3; i++)
		sf_export_memory_unmap(&m[i]);
	close(fd);
	unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(keys_come_and_go_in_order),
		TEST(a_live_owner_keeps_its_name),
		TEST(force_takes_it_all_the_same),
		TEST(a_dead_owner_does_not),
		TEST(nothing_is_half_published),
		TEST(lost_keys_are_put_again),
		TEST(a_lost_lease_is_replaced),
		TEST(a_new_descriptor_waits_for_the_store),
		TEST(a_foreign_owner_is_left_alone_while_it_lives),
		TEST(bad_names_are_refused),
		TEST(handshakes_are_answered),
		cmocka_unit_test(buffer_texts),
		cmocka_unit_test(bad_buffer_texts),
		TEST(a_dmabuf_gets_addresses_of_its_own),
		cmocka_unit_test(anonymous_memory_and_patterns),
		cmocka_unit_test(files_are_mapped_and_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
