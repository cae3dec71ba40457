#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The published Mooncake Transfer Engine as the other side, both ways.

load helper

setup_file() {
	common_setup_file
	require_mooncake
}

# As many bytes as a bigger test would need, so that odd ones are among them.
SIZES="1 7 4096 65537 1048575 3000001"

@test "two Mooncake processes understand the test's own peer program" {
	start_mooncake mc1 --buffer 100000 --buffer 4096
	start_mooncake mc2 --buffer 100000
	ask mc1 fill 0 7
	ask mc2 read mc1 "$(address mc1 0)" 0 0 100000
	[ "$(ask mc1 sha 0)" = "$(ask mc2 sha 0)" ]
	run -1 ask mc2 read mc1 "$(address mc1 0)" 0 0 100001
	stop_mooncake mc1
	run -0 etcdctl get --prefix mooncake/ram/mc1
	[ "$output" = "" ]
}
