/* SPDX-License-Identifier: MIT */
/* What the RDMA side decides without a device: GIDs, NIC paths, pairs. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rdma/gidtable.h"
#include "rdma/nicpath.h"
#include "rdma/pairs.h"
#include "rdma/verdict.h"

#define NR(a) (sizeof(a) / sizeof(*(a)))

#define LINK_LOCAL { 0xfe, 0x80, [15] = 1 }
#define ULA { 0xfd, [15] = 5 }
#define V4(a, b, c, d) { [10] = 0xff, 0xff, a, b, c, d }
#define V1 SF_RDMA_GID_ROCE_V1
#define V2 SF_RDMA_GID_ROCE_V2

/* The table index of the NTH choice. */
static int chosen(const struct sf_rdma_gid *t, size_t nr, unsigned int nth)
{
	int i = sf_rdma_gid_choose(t, (unsigned int)nr, nth);

	return i < 0 ? i : (int)t[i].index;
}

static void routable_v2_comes_first(void **state)
{
	const struct sf_rdma_gid mixed[] = {
		{ 0, V1, LINK_LOCAL, "eth0" },
		{ 1, V2, LINK_LOCAL, "eth0" },
		{ 2, V1, V4(10, 0, 0, 5), "eth0" },
		{ 3, V2, V4(10, 0, 0, 5), "eth0" },
	};
	const struct sf_rdma_gid v6[] = {
		{ 0, V2, LINK_LOCAL, "eth0" },
		{ 1, V2, ULA, "eth0" },
	};

	assert_int_equal(chosen(mixed, NR(mixed), 0), 3);
	assert_int_equal(chosen(mixed, NR(mixed), 1), 1);
	assert_int_equal(chosen(mixed, NR(mixed), 2), 0);
	assert_int_equal(chosen(mixed, NR(mixed), 3), 2);
	assert_int_equal(chosen(mixed, NR(mixed), 4), -ENOENT);
	assert_int_equal(chosen(v6, NR(v6), 0), 1);
}

static void link_local_is_a_last_resort(void **state)
{
	const struct sf_rdma_gid only[] = { { 0, V2, LINK_LOCAL, "eth0" } };
	const struct sf_rdma_gid old[] = { { 4, V1, ULA, "eth0" } };

	assert_int_equal(chosen(only, 1, 0), 0);
	assert_true(sf_rdma_gid_is_dubious(&only[0]));
	assert_int_equal(chosen(old, 1, 0), 4);
	assert_true(sf_rdma_gid_is_dubious(&old[0]));
	assert_int_equal(chosen(only, 0, 0), -ENOENT);
}

static void infiniband_takes_the_first(void **state)
{
	const struct sf_rdma_gid ib[] = {
		{ 0, SF_RDMA_GID_IB, LINK_LOCAL, "" },
		{ 1, SF_RDMA_GID_IB, ULA, "" },
	};

	assert_int_equal(chosen(ib, NR(ib), 0), 0);
	assert_false(sf_rdma_gid_is_dubious(&ib[0]));
}

static void ranks_are_those_of_the_protocol(void **state)
{
	static const struct {
		unsigned int rank;
		struct sf_rdma_gid gid;
	} table[] = {
		{ 0, { 0, V2, V4(192, 168, 1, 1), "eth0" } },
		{ 0, { 0, V2, V4(172, 32, 0, 1), "eth0" } },
		{ 0, { 0, V2, V4(100, 128, 0, 1), "eth0" } },
		{ 1, { 0, V2, V4(8, 8, 8, 8), "" } },
		{ 2, { 0, V2, V4(10, 1, 1, 1), "eth0" } },
		{ 2, { 0, V2, V4(172, 16, 0, 1), "eth0" } },
		{ 2, { 0, V2, V4(172, 31, 0, 1), "eth0" } },
		{ 2, { 0, V2, V4(100, 64, 0, 1), "eth0" } },
		{ 2, { 0, V2, V4(100, 127, 0, 1), "eth0" } },
		{ 3, { 0, V2, V4(8, 8, 8, 8), "docker0" } },
		{ 3, { 0, V2, V4(8, 8, 8, 8), "cni0" } },
		{ 3, { 0, V2, V4(8, 8, 8, 8), "tunl0" } },
		{ 0, { 0, V2, V4(8, 8, 8, 8), "tunl01" } },
		{ 3, { 0, V2, LINK_LOCAL, "eth0" } },
		{ 4, { 0, V2, V4(10, 1, 1, 1), "" } },
		{ 5, { 0, V2, LINK_LOCAL, "" } },
		{ 6, { 0, V1, V4(8, 8, 8, 8), "eth0" } },
	};

	for (size_t i = 0; i < NR(table); i++)
		if (sf_rdma_gid_rank(&table[i].gid) != table[i].rank)
			fail_msg("row %zu: rank %u", i,
				 sf_rdma_gid_rank(&table[i].gid));
}

static void an_index_is_found_or_not(void **state)
{
	/* Null entries and those that cannot be asked for leave gaps. */
	const struct sf_rdma_gid t[] = {
		{ 0, V2, ULA, "eth0" },
		{ 3, V2, ULA, "eth0" },
	};

	assert_int_equal(sf_rdma_gid_find(t, NR(t), 3), 1);
	assert_int_equal(sf_rdma_gid_find(t, NR(t), 1), -ENOENT);
	assert_int_equal(sf_rdma_gid_find(t, NR(t), 9), -ENOENT);
}

static void families_are_told_apart(void **state)
{
	const uint8_t v4[16] = V4(10, 0, 0, 1), other[16] = V4(8, 8, 8, 8);
	const uint8_t local[16] = LINK_LOCAL, ula[16] = ULA;

	assert_true(sf_rdma_gid_same_family(v4, other));
	assert_true(sf_rdma_gid_same_family(local, ula));
	assert_false(sf_rdma_gid_same_family(v4, local));
	assert_false(sf_rdma_gid_same_family(ula, v4));
}

static void a_gid_is_there_only_as_it_was(void **state)
{
	const struct sf_rdma_gid t[] = {
		{ 0, V2, ULA, "eth0" },
		{ 3, V2, V4(8, 8, 8, 8), "eth0" },
	};
	struct sf_rdma_gid gid = t[1];

	assert_true(sf_rdma_gid_is_in(t, NR(t), &gid));
	gid.kind = V1;
	assert_false(sf_rdma_gid_is_in(t, NR(t), &gid));
	gid = t[1];
	gid.gid[15]++;
	assert_false(sf_rdma_gid_is_in(t, NR(t), &gid));
	gid = t[1];
	gid.index = 0;
	assert_false(sf_rdma_gid_is_in(t, NR(t), &gid));
	gid.index = 7;
	assert_false(sf_rdma_gid_is_in(t, NR(t), &gid));
	assert_false(sf_rdma_gid_is_in(t, 0, &gid));
}

static void nic_paths(void **state)
{
	char path[SF_NICPATH_MAX], big[SF_NICPATH_MAX];
	const char *device;
	size_t len;

	assert_int_equal(sf_nicpath_join(path, "10.0.0.5:15873", "mlx5_0"), 0);
	assert_string_equal(path, "10.0.0.5:15873@mlx5_0");
	assert_int_equal(sf_nicpath_split(path, &len, &device), 0);
	assert_int_equal(len, 14);
	assert_string_equal(device, "mlx5_0");
	assert_int_equal(sf_nicpath_split("a@b@c", &len, &device), 0);
	assert_int_equal(len, 1);
	assert_string_equal(device, "b@c");

	assert_int_equal(sf_nicpath_split("", &len, &device), -EINVAL);
	assert_int_equal(sf_nicpath_split("a", &len, &device), -EINVAL);
	assert_int_equal(sf_nicpath_split("@b", &len, &device), -EINVAL);
	assert_int_equal(sf_nicpath_split("a@", &len, &device), -EINVAL);
	assert_int_equal(sf_nicpath_join(path, "", "x"), -EINVAL);
	assert_int_equal(sf_nicpath_join(path, "x", ""), -EINVAL);
	assert_int_equal(sf_nicpath_join(path, "x@y", "z"), -EINVAL);
	memset(big, 'a', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(sf_nicpath_join(path, big, "x"), -ENAMETOOLONG);
}

/* ---- pairs ---- */

static const uint32_t items[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

static struct sf_pairs_list list(uint32_t nr, uint32_t preferred)
{
	return (struct sf_pairs_list){ items, nr, preferred };
}

/* Groups as text: "00 11; 01 10". */
static const char *groups(struct sf_pairs_list l, struct sf_pairs_list r)
{
	static char text[1024];
	struct sf_pairs_pair pairs[16];
	uint32_t nr;
	char *at = text;

	*at = '\0';
	for (uint32_t g = 0; (nr = sf_pairs_group(&l, &r, g, pairs, 16)); g++)
		for (uint32_t i = 0; i < nr; i++)
			at += sprintf(at, "%s%u%u", i ? " " : g ? "; " : "",
				      pairs[i].local, pairs[i].remote);
	return text;
}

static void equal_sides_use_the_diagonal(void **state)
{
	assert_string_equal(groups(list(1, 1), list(1, 1)), "00");
	assert_string_equal(groups(list(2, 2), list(2, 2)), "00 11; 01 10");
	assert_string_equal(groups(list(3, 3), list(3, 3)),
			    "00 11 22; 01 12 20; 02 10 21");
}

static void the_longer_side_is_all_used(void **state)
{
	assert_string_equal(groups(list(1, 1), list(2, 2)), "00 01");
	assert_string_equal(groups(list(3, 3), list(2, 2)),
			    "00 11 20; 01 10 21");
	assert_string_equal(groups(list(2, 2), list(3, 3)),
			    "00 11 02; 10 01 12");
}

static void what_is_not_preferred_comes_last(void **state)
{
	assert_string_equal(groups(list(2, 1), list(2, 1)),
			    "00; 00 11; 01 10");
	assert_string_equal(groups(list(2, 2), list(2, 0)), "00 11; 01 10");
	assert_string_equal(groups(list(0, 0), list(2, 2)), "");
	assert_string_equal(groups(list(2, 2), list(0, 0)), "");
}

static void every_pair_is_in_some_group(void **state)
{
	for (uint32_t l = 1; l <= 8; l++) {
		for (uint32_t r = 1; r <= 8; r++) {
			struct sf_pairs_list ll = list(l, (l + 1) / 2);
			struct sf_pairs_list rl = list(r, (r + 1) / 2);
			struct sf_pairs_pair p[16];
			bool seen[8][8] = { { false } };
			uint32_t nr;

			for (uint32_t g = 0;
			     (nr = sf_pairs_group(&ll, &rl, g, p, 16)); g++)
				for (uint32_t i = 0; i < nr; i++)
					seen[p[i].local][p[i].remote] = true;
			for (uint32_t i = 0; i < l * r; i++)
				assert_true(seen[i / r][i % r]);
		}
	}
}

static const char *name_of(void *arg, uint32_t item)
{
	return ((const char *const *)arg)[item];
}

static void equal_names_are_paired(void **state)
{
	/* Local ones are items 0.., remote ones items 4... */
	static const char *const names[] = { "mlx5_0", "mlx5_1", "", "",
					     "mlx5_1", "mlx5_0", "mlx5_9" };
	struct sf_pairs_list l = list(2, 2);
	uint32_t remote[] = { 4, 6, 5 };

	sf_pairs_align(&l, name_of, remote, 3, 3, name_of,
		       (void *)(uintptr_t)names);
	assert_int_equal(remote[0], 5);
	assert_int_equal(remote[1], 4);
	assert_int_equal(remote[2], 6);
	/* But not across the line of what is preferred. */
	remote[0] = 4;
	remote[1] = 6;
	remote[2] = 5;
	sf_pairs_align(&l, name_of, remote, 3, 2, name_of,
		       (void *)(uintptr_t)names);
	assert_int_equal(remote[0], 6);
	assert_int_equal(remote[1], 4);
	assert_int_equal(remote[2], 5);
}

static void a_refused_pair_is_set_aside_for_a_while(void **state)
{
	struct sf_pair_health h = { 0 };

	assert_false(sf_pair_is_paused(&h, 1000));
	sf_pair_refused(&h, 1000, 30000);
	assert_true(sf_pair_is_paused(&h, 30999));
	assert_false(sf_pair_is_paused(&h, 31000));
	sf_pair_refused(&h, 1000, 30000);
	sf_pair_ease(&h, 2000);
	assert_true(sf_pair_is_paused(&h, 1999));
	assert_false(sf_pair_is_paused(&h, 2000));
	sf_pair_ease(&h, 9000);
	assert_false(sf_pair_is_paused(&h, 2000));
}

static void a_broken_pair_gets_one_more_chance(void **state)
{
	struct sf_pair_health h = { 0 };

	sf_pair_connected(&h);
	sf_pair_worked(&h);
	sf_pair_broke(&h, 1000, 30000);
	assert_false(sf_pair_is_paused(&h, 1000));
	/* Connects, but nothing comes over it. */
	sf_pair_connected(&h);
	sf_pair_broke(&h, 2000, 30000);
	assert_true(sf_pair_is_paused(&h, 31999));
	sf_pair_connected(&h);
	assert_false(sf_pair_is_paused(&h, 2000));
}

/* ---- verdicts ---- */

static void an_io_ends_with_what_it_may_end_with(void **state)
{
	static const int codes[] = { -EAGAIN, -EMFILE, -EACCES, -EINVAL,
				     -EADDRNOTAVAIL, -EIO, -ENOSPC };

	for (size_t i = 0; i < NR(codes); i++)
		for (int stage = SF_RDMA_OK; stage <= SF_RDMA_RTS; stage++)
			assert_int_equal(sf_rdma_verdict_connect(stage,
								 codes[i]),
					 -EHOSTUNREACH);
	assert_int_equal(sf_rdma_verdict_connect(SF_RDMA_CONNECT,
						 -ECONNREFUSED), -ECONNREFUSED);
	assert_int_equal(sf_rdma_verdict_connect(SF_RDMA_HANDSHAKE, -EPROTO),
			 -EPROTO);
	/* A driver may say so; the peer did not. */
	assert_int_equal(sf_rdma_verdict_connect(SF_RDMA_RTR, -EPROTO),
			 -EHOSTUNREACH);
	assert_int_equal(sf_rdma_verdict_connect(SF_RDMA_RTR, -ETIMEDOUT),
			 -ETIMEDOUT);
	assert_int_equal(sf_rdma_verdict_connect(SF_RDMA_INIT, -ENOMEM),
			 -ENOMEM);
}

static void local_and_remote_errors_are_told_apart(void **state)
{
	assert_int_equal(sf_rdma_verdict_completion(IBV_WC_REM_ACCESS_ERR),
			 -EREMOTEIO);
	assert_int_equal(sf_rdma_verdict_completion(IBV_WC_LOC_PROT_ERR),
			 -EIO);
	assert_int_equal(sf_rdma_verdict_completion(IBV_WC_RETRY_EXC_ERR), 0);
	assert_int_equal(sf_rdma_verdict_completion(IBV_WC_WR_FLUSH_ERR), 0);
	assert_int_equal(sf_rdma_verdict_completion(IBV_WC_REM_OP_ERR), 0);
}

static void smaller_mtus_are_tried_and_given_up(void **state)
{
	unsigned int cap = 0;

	assert_true(sf_rdma_verdict_mtu(IBV_WC_REM_INV_REQ_ERR, 4096, &cap));
	assert_int_equal(cap, 2048);
	assert_true(sf_rdma_verdict_mtu(IBV_WC_LOC_LEN_ERR, 512, &cap));
	assert_int_equal(cap, 256);
	/* It was not that: the next connection is as the first was. */
	assert_false(sf_rdma_verdict_mtu(IBV_WC_LOC_LEN_ERR, 256, &cap));
	assert_int_equal(cap, 0);
	assert_true(sf_rdma_verdict_mtu(IBV_WC_RETRY_EXC_ERR, 4096, &cap));
	assert_int_equal(cap, 1024);
	assert_false(sf_rdma_verdict_mtu(IBV_WC_RETRY_EXC_ERR, 1024, &cap));
	assert_int_equal(cap, 0);
	cap = 512;
	assert_false(sf_rdma_verdict_mtu(IBV_WC_WR_FLUSH_ERR, 512, &cap));
	assert_int_equal(cap, 512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(routable_v2_comes_first),
		cmocka_unit_test(link_local_is_a_last_resort),
		cmocka_unit_test(infiniband_takes_the_first),
		cmocka_unit_test(ranks_are_those_of_the_protocol),
		cmocka_unit_test(an_index_is_found_or_not),
		cmocka_unit_test(families_are_told_apart),
		cmocka_unit_test(a_gid_is_there_only_as_it_was),
		cmocka_unit_test(nic_paths),
		cmocka_unit_test(equal_sides_use_the_diagonal),
		cmocka_unit_test(the_longer_side_is_all_used),
		cmocka_unit_test(what_is_not_preferred_comes_last),
		cmocka_unit_test(every_pair_is_in_some_group),
		cmocka_unit_test(equal_names_are_paired),
		cmocka_unit_test(a_refused_pair_is_set_aside_for_a_while),
		cmocka_unit_test(a_broken_pair_gets_one_more_chance),
		cmocka_unit_test(an_io_ends_with_what_it_may_end_with),
		cmocka_unit_test(local_and_remote_errors_are_told_apart),
		cmocka_unit_test(smaller_mtus_are_tried_and_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
