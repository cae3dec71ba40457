#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tests/vm/run itself, from the host: what goes in, what comes out, how it ends.

bats_require_minimum_version 1.5.0

setup() {
	cd "$BATS_TEST_TMPDIR"
	export BATS_TEST_TIMEOUT=300
	RUN=$BATS_TEST_DIRNAME/run
	export TMPDIR=$BATS_TEST_TMPDIR/tmp
	mkdir "$TMPDIR"
}

teardown() {
	# Neither files nor a machine stay behind.
	[ -z "$(ls -A "$TMPDIR")" ]
	run -1 pgrep -f "path=$TMPDIR/"
}

@test "output, errors and status of a command come back as they were" {
	cd "$BATS_TEST_TMPDIR"
	echo "of the host" >file
	mkdir shared
	run -7 --separate-stderr "$RUN" --share shared --env "A=b  c" -- \
		bash -c 'seq 1 300000; echo "$A" >&2; cat file >&2
		echo changed >file; echo given >shared/file; exit 7'
	[ "$output" = "$(seq 1 300000)" ]
	[ "$stderr" = $'b  c\nof the host' ]
	[ "$(cat file)" = "of the host" ]
	[ "$(cat shared/file)" = given ]
}

@test "the guest has two nodes, two RDMA devices, and is there within 30 s" {
	local start=$SECONDS
	run -0 "$RUN" --rdma -- bash -c 'ls -d /sys/devices/system/node/node?
		rdma link; cut -d. -f1 /proc/uptime'
	[ "${lines[0]##*/}" = node0 ]
	[ "${lines[1]##*/}" = node1 ]
	[[ ${lines[2]} == "link rxe0/1 state ACTIVE"* ]]
	[[ ${lines[3]} == "link rxe1/1 state ACTIVE"* ]]
	echo "# $((SECONDS - start)) s in all, ${lines[4]} s of uptime" >&3
	[ "${lines[4]}" -lt 30 ]
}

@test "between the RDMA devices nobody but the other one answers" {
	cat >look <<-'EOF'
	for i in 0 1; do
	    to=10.9.0.$((2 - i))
	    ip neigh flush dev veth$i
	    python3 -c 'import socket, sys
	s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
	s.bind((sys.argv[1], 0))
	s.sendto(b"x", (sys.argv[2], 9))' 10.9.0.$((i + 1)) $to
	    until ip neigh show $to dev veth$i | grep -q lladdr; do
	        sleep 0.1
	    done
	    sleep 1
	    ip neigh show $to dev veth$i | grep -c \
	        "lladdr $(cat /sys/class/net/veth$((1 - i))/address)"
	done
	EOF
	run -0 "$RUN" --rdma=crossed --timeout 200 -- bash look
	[ "$output" = $'1\n1' ]
}

@test "output is there before the command ends, and a hang is ended" {
	local start=$SECONDS
	"$RUN" --timeout 60 -- bash -c 'echo first; exec sleep 1000' \
		>out 2>err 3>&- &
	local pid=$!
	timeout 55 bash -c 'until grep -q first out; do sleep 0.5; done'
	kill -0 $pid
	local res=0
	wait $pid || res=$?
	[ $res = 124 ]
	[ $((SECONDS - start)) -lt 85 ]
	grep -q "did not end within 60 s" err
}

@test "a guest that dies says so" {
	run -125 "$RUN" --timeout 100 -- \
		bash -c 'echo c >/proc/sysrq-trigger; sleep 100'
	[[ $output == *"the guest died: Kernel panic - not syncing: sysrq"* ]]
	run -125 "$RUN" --timeout 100 -- \
		bash -c 'echo o >/proc/sysrq-trigger; sleep 100'
	[[ $output == *"left no status"* ]]
}

@test "two at once do not meet, and one that is killed leaves nothing" {
	"$RUN" --timeout 200 -- \
		bash -c 'echo one >/run/x; sleep 5; cat /run/x' \
		>one 3>&- &
	local one=$!
	"$RUN" --timeout 200 -- sleep 1000 3>&- &
	local two=$!
	run -0 "$RUN" --timeout 200 -- bash -c 'cat /run/x; echo all'
	[[ $output == *all ]]
	[[ $output != *one* ]]
	kill $two
	wait $one
	[ "$(cat one)" = one ]
	local res=0
	wait $two || res=$?
	[ $res = 143 ]
}

@test "wrong usage is status 2, and a missing kernel 125" {
	run -2 "$RUN" --what -- true
	run -2 "$RUN"
	run -2 "$RUN" --timeout soon -- true
	run -125 "$RUN" --kernel 0.0 -- true
	run -0 "$RUN" --help
}
