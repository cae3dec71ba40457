#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=crossed
# What breaks under RDMA, and what users notice of it. The devices of the guest
# are changed here; real ones are left alone.

load helper

setup_file() {
	common_setup_file
	export ONE_MIB=1048576
}

setup() {
	require_soft_roce
	common_setup
}

teardown() {
	local i devices=(0 1)
	# As tests/vm/rxe left them, if it did.
	[ -e /sys/class/net/veth0 ] || devices=()
	for i in "${devices[@]}"; do
		ip link set "veth$i" up mtu 4200
		link $i up
		ip addr replace 10.9.0.$((i + 1))/24 dev "veth$i"
	done
	for i in "${devices[@]}"; do
		wait_for 20 port_is "rxe$i" ACTIVE
	done
	common_teardown
}

# keep_reading NAME FILE: a child that compares FILE with its pattern for ever,
# and writes a line for each round.
keep_reading() {
	spawn "$1" python3 -u "$BATS_TEST_DIRNAME/keep_reading.py" "$2"
}

rounds() {
	wc -l <"$(out_of "$1")"
}

# more_rounds NAME N: until it has done N more.
more_rounds() {
	wait_for "${3:-20}" rounds_are "$1" $(($(rounds "$1") + $2))
}

rounds_are() {
	[ "$(rounds "$1")" -ge "$2" ]
}

@test "a device taken down under load: no error; back, and used again" {
	start_rdma one --buffer size=8M,location=cpu:0,fill=offset
	mount_rdma timeout=20
	local src
	src=$(scratch src 8388608)
	keep_reading reader "$(buffer one)"
	more_rounds reader 2
	link 0 down
	wait_for 10 port_is rxe0 DOWN
	more_rounds reader 3
	moved_by more_rounds reader 2
	[ "${MOVED[0]}" -lt 50 ]
	[ "${MOVED[1]}" -gt 1000 ]
	soon dd if="$src" of="$(buffer one)" bs=1M conv=notrunc,fsync \
		status=none
	soon cmp "$src" "$(buffer one)"
	stop reader
	run -1 grep -v '^ok' "$(out_of reader)"
	link 0 up
	wait_for 10 port_is rxe0 ACTIVE
	# It is tried again after a pause.
	wait_for 45 both_move
	echo "$(status_of one)" >&2
}

both_move() {
	moved_by soon cat "$(buffer one)" >/dev/null
	[ "${MOVED[0]}" -gt 300 ] && [ "${MOVED[1]}" -gt 300 ]
}

@test "dd goes on when a device goes down in the middle of it" {
	start_rdma one --buffer size=64M,location=cpu:0,fill=offset
	mount_rdma timeout=20
	SOON=60 soon dd if="$(buffer one)" of=copy bs=1M status=none 3>&- &
	local dd=$!
	wait_for 10 test -s copy
	link 1 down
	wait $dd
	cmp copy <(pattern 67108864)
}

@test "with every device down a read ends in an error, and recovers" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=3
	F=$(buffer one)
	soon cmp "$F" <(pattern $ONE_MIB)
	link 0 down
	link 1 down
	elapsed fails dd if="$F" of=/dev/null bs=1M status=none
	within 6000
	soon ls "$MNT" "$MNT/one" >/dev/null
	link 0 up
	link 1 up
	wait_for 45 cmp "$F" <(pattern $ONE_MIB)
}

@test "an exporter that is killed fails readers, restarted serves new ones" {
	start_rdma one --buffer size=4M,location=cpu:0,fill=offset
	mount_rdma timeout=5
	F=$(buffer one)
	keep_reading reader "$F"
	more_rounds reader 2
	stop one KILL || :
	# Held open over the restart: it is not the same memory.
	exec 9<"$F"
	wait_for 15 grep -q '^error' "$(out_of reader)"
	wait_for 60 start_rdma one --force \
		--buffer size=4M,location=cpu:0,fill=offset
	wait_for 10 test -e "$(buffer one)"
	soon cmp "$(buffer one)" <(pattern 4194304)
	run ! soon head -c 1 <&9
	[[ $output == *"Stale file handle"* ]]
	exec 9<&-
}

@test "a stopped exporter: the connected go on, new ones wait, others not" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	start_rdma two --buffer size=1M,location=cpu:0,fill=offset
	start_rdma three --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=4
	soon cmp "$(buffer one)" <(pattern $ONE_MIB)
	soon cmp "$(buffer two)" <(pattern $ONE_MIB)
	keep_reading reader "$(buffer two)"
	signal one STOP
	signal three STOP
	more_rounds reader 2
	# Its memory needs no help of its own CPU.
	soon cmp "$(buffer one)" <(pattern $ONE_MIB)
	elapsed fails dd if="$(buffer three)" of=/dev/null status=none
	within 8000
	more_rounds reader 2
	signal one CONT
	signal three CONT
	wait_for 15 cmp "$(buffer three)" <(pattern $ONE_MIB)
	run -1 grep -v '^ok' "$(out_of reader)"
}

@test "two ends with another MTU: right bytes or an error that names it" {
	start_rdma one --mtu 1024 --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=4,mtu=4096
	F=$(buffer one)
	local res=0
	soon dd if="$F" of=got bs=1M status=none 2>err || res=$?
	status_of one >&2
	if [ $res = 0 ]; then
		cmp got <(pattern $ONE_MIB)
	else
		[ $res != 124 ]
		[[ $(status_of one) == *[Mm][Tt][Uu]* ]]
	fi
	unmount
	mount_rdma timeout=4,mtu=1024
	soon cmp "$(buffer one)" <(pattern $ONE_MIB)
}

@test "an MTU that was changed under a mount is used by the next connection" {
	local i
	for i in 0 1; do
		ip link set veth$i mtu 1500
	done
	mount_rdma timeout=10
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	wait_for 10 test -e "$(buffer one)"
	soon cmp "$(buffer one)" <(pattern $ONE_MIB)
	[[ $(status_of one) == *"mtu 1024,"* ]]
	stop one
	for i in 0 1; do
		ip link set veth$i mtu 4200
	done
	start_rdma two --buffer size=1M,location=cpu:0,fill=offset
	wait_for 10 test -e "$(buffer two)"
	soon cmp "$(buffer two)" <(pattern $ONE_MIB)
	status_of two >&2
	[[ $(status_of two) == *"mtu 4096,"* ]]
	[[ $(status_of two) != *"first error"* ]]
}

# mount_locked KIB [OPTIONS]: a mount that may lock so much memory.
mount_locked() {
	mkdir -p "$MNT"
	spawn segfs bash -c 'ulimit -l "$1"; shift
		exec setpriv --bounding-set=-ipc_lock "$@"' - "$1" \
		segfs -f -o "nic=$NICS,pool=16M${2:+,$2}" "$ETCD" "$MNT"
	until_ready segfs 20 timeout 2 test -e "$MNT/.segfs/version"
}

@test "memory that one device cannot register goes through the other" {
	start_rdma one --buffer size=8M,location=cpu:0,fill=offset
	# Three of the four quarters (two nodes, two devices), and no bounce.
	mount_locked 25088 timeout=10
	grep -q 'cannot register.*memlock' "$(log_of segfs)"
	local src
	src=$(scratch src 8388608)
	soon cmp "$(buffer one)" <(pattern 8388608)
	soon fio --name=x --filename="$(buffer one)" --rw=randread --bs=256k \
		--direct=1 --ioengine=libaio --iodepth=8 --numjobs=4 --thread \
		--size=8M --loops=4 --allow_file_create=0 >fio.out 2>&1
	soon dd if="$src" of="$(buffer one)" bs=1M conv=notrunc,fsync \
		status=none
	soon cmp "$src" "$(buffer one)"
	# It is said, but not for every slice.
	[ "$(grep -c 'cannot register' "$(log_of segfs)")" -lt 50 ]
}

@test "with no memory for the pool, small pieces are registered" {
	start_rdma one --buffer size=8M,location=cpu:0,fill=offset
	mount_locked 4096 timeout=10
	local src
	src=$(scratch src 8388608)
	soon cmp "$(buffer one)" <(pattern 8388608)
	soon dd if="$src" of="$(buffer one)" bs=1M conv=notrunc,fsync \
		status=none
	soon cmp "$src" "$(buffer one)"
}

@test "with no memory at all reads end in an error that says why" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mount_locked 64 timeout=5
	elapsed fails dd if="$(buffer one)" of=/dev/null bs=64K status=none
	within 5500
	[[ $ERR == *"Cannot allocate memory"* ]]
	grep -q 'memlock' "$(log_of segfs)"
}

@test "a GID that goes away: the other device serves; it comes back" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=20
	F=$(buffer one)
	soon cmp "$F" <(pattern $ONE_MIB)
	ip addr del 10.9.0.1/24 dev veth0
	soon cmp "$F" <(pattern $ONE_MIB)
	soon cmp "$F" <(pattern $ONE_MIB)
	status_of one >&2
	ip addr add 10.9.0.1/24 dev veth0
	link 0 up
	wait_for 45 both_move_file one
}

both_move_file() {
	moved_by soon cat "$(buffer "$1")" >/dev/null
	[ "${MOVED[0]}" -gt 30 ] && [ "${MOVED[1]}" -gt 30 ]
}

# gid_like DEVICE PREFIX: the index of a GID that begins so.
gid_like() {
	local i gids=/sys/class/infiniband/$1/ports/1/gids
	for i in {0..7}; do
		if grep -q "^$2" "$gids/$i"; then
			echo "$i"
			return
		fi
	done
	return 1
}

@test "peers of two address families are both reached" {
	start_exporter one --protocol rdma --nic rxe0 \
		--gid-index "$(gid_like rxe0 fe80)" \
		--buffer size=1M,location=cpu:0,fill=offset
	start_exporter two --protocol rdma --nic rxe0 \
		--buffer size=1M,location=cpu:0,fill=offset
	mount_segfs nic=rxe0,timeout=10
	local n
	for n in one two one; do
		soon cmp "$(buffer $n)" <(pattern $ONE_MIB)
		status_of $n >&2
	done
	[[ $(status_of one) == *"gid fe:80"* ]]
	[[ $(status_of two) == *"gid 00:00"* ]]
}

@test "the only GID gone: an error in time, not a hang" {
	start_exporter one --protocol rdma --nic rxe0 \
		--buffer size=1M,location=cpu:0,fill=offset
	mount_segfs nic=rxe0,timeout=4
	F=$(buffer one)
	soon cmp "$F" <(pattern $ONE_MIB)
	ip addr flush dev veth0
	elapsed soon dd if="$F" of=/dev/null bs=1M status=none || :
	within 8000
	ip addr add 10.9.0.1/24 dev veth0
	wait_for 45 cmp "$F" <(pattern $ONE_MIB)
}

@test "another registration under an open handle is ESTALE" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=4
	F=$(buffer one)
	exec 9<"$F"
	soon head -c 4096 <&9 >/dev/null
	# Same range, other keys: what its owner says now is not what it said.
	put mooncake/ram/one "$(stored one |
		jq -c '.buffers[].rkey |= map(. + 1) |
			.buffers[].lkey |= map(. + 1)')"
	local i res=0
	for ((i = 0; i < 100; i++)); do
		res=0
		soon head -c 4096 <&9 >/dev/null 2>err || res=$?
		[ $res = 0 ] || break
		sleep 0.1
	done
	cat err >&2
	grep -q 'Stale file handle' err
	exec 9<&-
}

@test "a key that the device refuses is an error with its reason" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mount_rdma timeout=3
	put mooncake/ram/bad "$(stored one |
		jq -c '.buffers[].rkey |= map(. + 1) | .name = "one"')"
	put mooncake/ram/one "$(stored one |
		jq -c '.buffers[].rkey |= map(. + 1)')"
	wait_for 10 soon ls "$MNT/one"
	elapsed fails dd if="$(buffer one)" of=/dev/null bs=1M status=none
	echo "$ERR" >&2
	status_of one >&2
	[[ $(status_of one) == *REM_ACCESS* ]]
	[[ $ERR == *"Remote I/O error"* || $ERR == *"Stale"* ]]
}

@test "a peer that vanishes with 64 requests out: one reason, all wake up" {
	start_rdma one --buffer size=16M,location=cpu:0,fill=offset
	mount_rdma timeout=3
	F=$(buffer one)
	soon fio --name=x --filename="$F" --rw=randread --bs=256k --direct=1 \
		--ioengine=libaio --iodepth=16 --numjobs=4 --thread \
		--time_based --runtime=60 --size=16M --allow_file_create=0 \
		>fio.out 2>&1 3>&- &
	local fio=$!
	sleep 3
	stop one KILL || :
	local res=0
	wait $fio || res=$?
	[ $res != 124 ]
	[ $res != 137 ]
	status_of one >&2
	[ "$(grep -c 'WR_FLUSH' "$(log_of segfs)")" -le 1 ]
}

# crowd N: N segments that are all "one", behind a server that keeps them apart.
crowd() {
	local i port text
	port=$(etcdctl get --print-value-only mooncake/rpc_meta/one |
		jq .rpc_port)
	start_liar crowd --forward "$port" --as one
	text=$(stored one)
	python3 - "$ETCD_PORT" "$PORT" "$1" "$text" <<-'EOF'
	import base64, json, sys, urllib.request
	port, owner, n, text = sys.argv[1:]
	def put(key, value):
	    body = json.dumps({k: base64.b64encode(v.encode()).decode()
	                       for k, v in (("key", key), ("value", value))})
	    urllib.request.urlopen(f"http://127.0.0.1:{port}/v3/kv/put",
	                           body.encode(), 10).read()
	desc = json.loads(text)
	for i in range(int(n)):
	    desc["name"] = f"s{i}"
	    put(f"mooncake/rpc_meta/s{i}", json.dumps(
	        {"ip_or_host_name": "127.0.0.1", "rpc_port": int(owner)}))
	    put(f"mooncake/ram/s{i}", json.dumps(desc))
	EOF
}

# read_crowd FROM TO: the first bytes of each, one after the other.
read_crowd() {
	local a
	a=$(address one)
	soon python3 - "$MNT" "$a" "$1" "$2" <<-'EOF'
	import os, sys
	mnt, address, first, end = sys.argv[1:]
	for i in range(int(first), int(end)):
	    with open(f"{mnt}/s{i}/{address}", "rb", buffering=0) as f:
	        os.lseek(f.fileno(), 8 * i, 0)
	        got = int.from_bytes(f.read(8), "little")
	        assert got == 8 * i, (i, got)
	EOF
}

@test "many peers that do not answer hold up no other connection, nor the end" {
	start_rdma one --buffer size=64K,location=cpu:0,fill=offset
	crowd 40
	mode crowd silence
	local i a pids=()
	a=$(address one)
	mount_rdma timeout=60
	for ((i = 0; i < 40; i++)); do
		timeout 250 head -c 1 "$MNT/s$i/$a" >/dev/null 2>&1 3>&- &
		pids+=($!)
	done
	requests_are() {
		[ "$(grep -c '^request' "$(out_of crowd)")" -ge "$1" ]
	}
	wait_for 15 requests_are 40
	elapsed soon cmp "$(buffer one)" <(pattern 65536)
	within 1500
	kill "${pids[@]}"
	for i in "${pids[@]}"; do
		wait "$i" || :
	done
	# Nor the end of the mount.
	elapsed unmount
	within 2500
}

@test "200 segments are all read though few endpoints may exist" {
	start_exporter one --protocol rdma --nic rxe0 \
		--buffer size=1M,location=cpu:0,fill=offset
	crowd 200
	mount_segfs nic=rxe0,endpoints=16,timeout=20
	SOON=60 read_crowd 0 200
	# Two QPs an endpoint on our side, and all that the exporter keeps.
	local qps
	qps=$(nr_qps)
	echo "$qps QPs" >&2
	[ "$qps" -le $((2 * (16 + 200) + 8)) ]
	SOON=60 read_crowd 0 200
	stop crowd
}

@test "1,000 connects and disconnects leave nothing behind" {
	start_exporter one --protocol rdma --nic rxe0 \
		--buffer size=1M,location=cpu:0,fill=offset
	local first
	crowd 50
	mount_segfs nic=rxe0,endpoints=4,timeout=20
	SOON=60 read_crowd 0 50
	sleep 1
	first=$(resources)
	echo "at first: $first" >&2
	local i
	for ((i = 0; i < 20; i++)); do
		SOON=60 read_crowd 0 50
	done
	wait_for 10 resources_near "$first"
	[ "$(grep -c '^request' "$(out_of crowd)")" -ge 1000 ]
	unmount
	stop one
	stop crowd
	wait_for 10 are_qps 0
}

# resources_near WANT: no kind has more than WANT has, but for a QP set or two
# that is on its way.
resources_near() {
	local now=($(resources)) want=($1) i
	echo "now: ${now[*]}" >&2
	for i in 1 3 5 7; do
		[ "${now[i]}" -le $((want[i] + 4)) ] || return 1
	done
}
