#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=crossed
# The RDMA initiator alone, treated as no mount would: tests/bin/rdma-torture.

load helper

setup_file() {
	export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-240}
	start_etcd
}

# torture SECONDS: against the exporter "one".
torture() {
	stored one >"$(where)/descriptor"
	soon etcdctl get --print-value-only mooncake/rpc_meta/one \
		>"$(where)/rpc"
	timeout 200 "$SEGFS_BUILD/tests/bin/rdma-torture" one \
		"$(where)/descriptor" "$(where)/rpc" "$1" "$NICS"
}

@test "reads of every kind, cancelled and closed: right bytes, then hands off" {
	start_rdma one --buffer size=16M,fill=offset
	run -0 torture 10
	echo "# ${lines[-1]}" >&3
}

@test "the same while a device goes and comes" {
	require_soft_roce
	start_rdma one --buffer size=16M,fill=offset
	for i in 1 2 3; do
		sleep 3
		link 0 down
		sleep 3
		link 0 up
	done 3>&- &
	local links=$!
	run -0 torture 18
	wait $links
	echo "# ${lines[-1]}" >&3
}
