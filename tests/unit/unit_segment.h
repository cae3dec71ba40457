/* SPDX-License-Identifier: MIT */
/* Snapshots for tests: decoded from literal text, put back by the test. */
#ifndef SF_TEST_UNIT_SEGMENT_H
#define SF_TEST_UNIT_SEGMENT_H

#include "unit.h"

#include <errno.h>
#include <string.h>

#include "blob.h"
#include "segment.h"

#define RPC_META "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":15001}\n"

/* A TCP descriptor named "n" with BUFFERS, the inside of its array. */
#define TCP(buffers)                                                   \
	"{\"name\":\"n\",\"protocol\":\"tcp\",\"tcp_data_port\":16001," \
	"\"tcp_proto_version\":2,\"buffers\":[" buffers "]}"

#define GID_A "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:0a"
#define GID_B "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:0b"
#define GID_0 "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00"
#define DEVICE(name, gid) \
	"{\"name\":\"" name "\",\"lid\":0,\"gid\":\"" gid "\"}"

/* An RDMA descriptor named "n". */
#define RDMA(devices, matrix, buffers)                                  \
	"{\"name\":\"n\",\"protocol\":\"rdma\",\"tcp_data_port\":0,"   \
	"\"devices\":[" devices "],\"priority_matrix\":" matrix         \
	",\"buffers\":[" buffers "]}"

static inline struct sf_segment *decode_both(const char *name, const char *json,
					     size_t len, const char *rpc)
{
	struct sf_blob *raw = json ? sf_blob_new(json, len) : NULL;
	struct sf_blob *raw_rpc = rpc ? sf_blob_new(rpc, strlen(rpc)) : NULL;
	struct sf_segment *seg;

	assert_int_equal(sf_segment_decode(&seg, name, raw, raw_rpc), 0);
	sf_blob_put(raw);
	sf_blob_put(raw_rpc);
	return seg;
}

static inline struct sf_segment *decode(const char *json)
{
	return decode_both("n", json, strlen(json), RPC_META);
}

static inline void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

/* JSON spoils the whole descriptor, and PART says why. */
static inline void assert_spoilt(const char *json, const char *part)
{
	struct sf_segment *seg = decode(json);

	assert_int_equal(seg->error, -EBADMSG);
	assert_int_equal(seg->nr_buffers, 0);
	assert_has(seg->problems, part);
	sf_segment_put(seg);
}

/* JSON gives NR buffers and no more problem than PROBLEMS. */
static inline void assert_listed(const char *json, uint32_t nr,
				 const char *problems)
{
	struct sf_segment *seg = decode(json);

	assert_string_equal(seg->problems, problems);
	assert_int_equal(seg->error, 0);
	assert_int_equal(seg->nr_buffers, nr);
	sf_segment_put(seg);
}

#endif
