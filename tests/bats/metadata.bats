#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Descriptors come, change, go, are wrong, or cannot be had.

load helper

# A test that stops the store has one of its own.
own_etcd() {
	start_etcd own
}

buffers() {
	soon ls "$MNT/$1"
}

@test "a new segment is seen at once" {
	mount_segfs
	gives_error ENOENT stat "$MNT/new"
	put_segment new "$(descriptor new 9 2 65536:4096)"
	wait_for 1 stat "$MNT/new/0x10000"
	[ "$(soon ls "$MNT")" = new ]
}

@test "a change and a deletion are seen at once" {
	put_segment seg "$(descriptor seg 9 2 65536:4096)"
	mount_segfs
	[ "$(buffers seg)" = 0x10000 ]
	put_segment seg "$(descriptor seg 9 2 65536:8192 131072:4096)"
	wait_for 1 stat "$MNT/seg/0x20000"
	[ "$(stat -c %s "$MNT/seg/0x10000")" = 8192 ]
	put_segment seg "$(descriptor seg 9 2 131072:4096)"
	wait_for 1 bash -c "! stat '$MNT/seg/0x10000' 2>/dev/null"
	[ "$(buffers seg)" = 0x20000 ]
	del_segment seg
	wait_for 1 bash -c "! stat '$MNT/seg' 2>/dev/null"
	gives_error ENOENT ls "$MNT/seg"
	[ "$(soon ls "$MNT")" = "" ]
}

@test "without a watch changes are seen after the timeouts" {
	put_segment seg "$(descriptor seg 9 2 65536:4096)"
	mount_segfs nowatch,attr_timeout=0.5,entry_timeout=0.5
	[ "$(stat -c %s "$MNT/seg/0x10000")" = 4096 ]
	put_segment seg "$(descriptor seg 9 2 65536:8192)"
	wait_for 3 bash -c "[ \$(stat -c %s '$MNT/seg/0x10000') = 8192 ]"
	del_segment seg
	wait_for 3 bash -c "! stat '$MNT/seg' 2>/dev/null"
}

@test "a segment that comes back is seen, though a file of it was open" {
	put_segment seg "$(descriptor seg 9 2 65536:4096)"
	mount_segfs
	exec 8<"$MNT/seg/0x10000"
	del_segment seg
	wait_for 1 bash -c "! stat '$MNT/seg' 2>/dev/null"
	put_segment seg "$(descriptor seg 9 2 131072:4096)"
	wait_for 1 stat "$MNT/seg/0x20000"
	[ "$(buffers seg)" = 0x20000 ]
	[ -s "$MNT/seg/.segfs/status" ]
	exec 8<&-
}

@test "a lease that ends takes its segment away" {
	start_exporter one --lease 2 --buffer size=4096,location=cpu:0
	mount_segfs
	soon stat "$(buffer one)" >/dev/null
	stop one KILL
	wait_for 8 bash -c "! stat '$MNT/one' 2>/dev/null"
}

@test "with the store stopped known segments go on, and status says so" {
	own_etcd
	start_exporter one --buffer size=1M,location=cpu:0,fill=offset
	mount_segfs timeout=3
	local f
	f=$(buffer one)
	[ "$(sha_of "$f")" = "$(pattern 1048576 | sha)" ]
	stop own
	sleep 1.5
	[ "$(sha_of "$f")" = "$(pattern 1048576 | sha)" ]
	soon ls -l "$MNT/one" >/dev/null
	printf x | soon dd of="$f" conv=notrunc status=none
	run -0 soon cat "$MNT/.segfs/status"
	[[ ${output,,} == *refused* || ${output,,} == *unreachable* ||
		${output,,} == *"cannot reach"* || ${output,,} == *lost* ]]
}

@test "with the store stopped an unknown name is not No such file" {
	own_etcd
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs timeout=3
	soon stat "$(buffer one)" >/dev/null
	stop own
	fails stat "$MNT/nosuch"
	[[ $ERR != *"No such file"* ]]
	[[ $ERR == *"refused"* || $ERR == *"No route"* ]]
	soon stat "$(buffer one)" >/dev/null
}

@test "a store that hangs delays no data" {
	own_etcd
	start_exporter one --buffer size=1M,location=cpu:0,fill=offset
	mount_segfs timeout=3
	soon stat "$(buffer one)" >/dev/null
	signal own STOP
	elapsed soon sha256sum "$(buffer one)"
	within 1500
	elapsed fails stat "$MNT/nosuch"
	within 8000
	[[ $ERR != *"No such file"* ]]
	signal own CONT
	wait_for 10 bash -c "stat '$MNT/nosuch' 2>&1 | grep -q 'No such file'"
}

@test "a store that comes back is watched again" {
	own_etcd
	local port=$ETCD_PORT
	put_segment seg "$(descriptor seg 9 2 65536:4096)"
	mount_segfs timeout=3
	[ "$(buffers seg)" = 0x10000 ]
	stop own
	sleep 1
	start_etcd own "$port"
	put_segment seg "$(descriptor seg 9 2 131072:4096)"
	wait_for 15 stat "$MNT/seg/0x20000"
	put_segment seg "$(descriptor seg 9 2 196608:4096)"
	wait_for 2 stat "$MNT/seg/0x30000"
}

@test "no store at all is one line and a failure" {
	local port
	port=$(free_port)
	mkdir -p "$MNT"
	run ! timeout 20 segfs -f "etcd://127.0.0.1:$port" "$MNT"
	[ "${#lines[@]}" = 1 ]
	[[ $output == "segfs: "*"127.0.0.1:$port"*refused* ]]
	[ "$(mount_count)" = 0 ]
}

@test "several endpoints: one that answers is enough" {
	start_exporter one --buffer size=4096,location=cpu:0,fill=offset
	mkdir -p "$MNT"
	local dead
	dead=$(free_port)
	ETCD=etcd://127.0.0.1:$dead,127.0.0.1:$ETCD_PORT mount_segfs
	[ "$(sha_of "$(buffer one)")" = "$(pattern 4096 | sha)" ]
}

@test "proxy variables are ignored" {
	start_exporter one --buffer size=4096,location=cpu:0
	export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9
	mount_segfs
	soon stat "$(buffer one)" >/dev/null
}

@test "an open handle is stale once its buffer is registered anew elsewhere" {
	start_fake a --addr 65536
	local a=$PORT
	start_fake b --addr 65536
	put_segment seg "$(descriptor seg "$a" 2 65536:8192)"
	mount_segfs
	local f=$MNT/seg/0x10000
	exec 8<>"$f"
	soon head -c 1 <&8 >/dev/null
	put_segment seg "$(descriptor seg "$PORT" 2 65536:8192)"
	sleep 0.5
	gives_error ESTALE head -c 1 <&8
	gives_error ESTALE dd if=/dev/zero bs=1 count=1 of=/dev/fd/8 \
		conv=notrunc status=none || gives_error ESTALE bash -c 'echo >&8'
	# For good, even when the first is described again.
	put_segment seg "$(descriptor seg "$a" 2 65536:8192)"
	sleep 0.5
	gives_error ESTALE head -c 1 <&8
	exec 8<&-
	# The address of one was never asked of the other by the old handle.
	[ "$(sha_of "$f")" = "$(pattern 8192 | sha)" ]
}

@test "a handle survives neighbours that come and go" {
	start_fake a --addr 65536 --size 65536
	put_segment seg "$(descriptor seg "$PORT" 2 65536:4096 73728:4096 81920:4096)"
	mount_segfs
	local f=$MNT/seg/0x12000
	exec 8<"$f"
	[ "$(readlink "$MNT/seg/.segfs/by-index/1")" = ../../0x12000 ]
	put_segment seg "$(descriptor seg "$PORT" 2 73728:4096 81920:4096)"
	wait_for 2 bash -c "! stat '$MNT/seg/0x10000' 2>/dev/null"
	[ "$(soon head -c 4096 <&8 | sha)" = "$(pattern 4096 8192 | sha)" ]
	[ "$(readlink "$MNT/seg/.segfs/by-index/0")" = ../../0x12000 ]
	put_segment seg "$(descriptor seg "$PORT" 2 81920:4096)"
	sleep 0.5
	exec 9<&8
	gives_error ESTALE python3 -c 'import os; os.pread(9, 1, 0)'
	exec 8<&- 9<&-
}

@test "the same descriptor with a new timestamp disturbs nobody" {
	start_fake a --addr 65536
	put_segment seg "$(descriptor seg "$PORT" 2 65536:8192)"
	mount_segfs
	exec 8<"$MNT/seg/0x10000"
	put_segment seg "$(descriptor seg "$PORT" 2 65536:8192 |
		sed s/2026-01-02/2026-02-03/)"
	sleep 0.5
	[ "$(soon cat <&8 | sha)" = "$(pattern 8192 | sha)" ]
	exec 8<&-
}

@test "descriptors that do not parse are Bad message, with the reason" {
	local n=0 text texts=(
		'' 'null' '[]' '"text"' '{' "{'protocol':'tcp'}" 'metadata not found'
		'{"name":"x"}' '{"protocol":7,"buffers":[]}'
		'{"protocol":"tcp","buffers":{}}'
		'{"protocol":"tcp","tcp_data_port":"x","buffers":[]}'
		'{"protocol":"tcp","tcp_data_port":99999,"buffers":[]}'
		"$(printf '[%.0s' {1..1000})"
	)
	put_segment good "$(descriptor good 9 2 65536:4096)"
	for text in "${texts[@]}"; do
		n=$((n + 1))
		put_segment "bad$n" "$text"
	done
	mount_segfs
	local i
	for ((i = 1; i <= n; i++)); do
		soon stat "$MNT/bad$i/.segfs/segment.json" >/dev/null
		cmp <(soon cat "$MNT/bad$i/.segfs/segment.json") \
			<(printf %s "${texts[i - 1]}")
		[ -n "$(status_of "bad$i")" ]
		gives_error EBADMSG ls "$MNT/bad$i/.segfs/by-index" ||
			[ "$(buffers "bad$i" 2>/dev/null)" = "" ]
	done
	[ "$(buffers good)" = 0x10000 ]
}

@test "numbers that are no exact integers are refused, not rounded" {
	local n=0 v
	for v in '"65536"' 6.5536e4 65536.5 -1 18446744073709551616 true '{}'; do
		n=$((n + 1))
		put_segment "bad$n" "{\"name\":\"x\",\"protocol\":\"tcp\",
			\"tcp_data_port\":9,\"buffers\":[
			{\"name\":\"cpu:0\",\"addr\":$v,\"length\":4096},
			{\"name\":\"cpu:0\",\"addr\":131072,\"length\":4096}]}"
	done
	mount_segfs
	while [ $n -gt 0 ]; do
		[ "$(soon ls "$MNT/bad$n" | grep -cv '^0x20000$')" = 0 ]
		[[ $(status_of "bad$n") == *addr* ]]
		n=$((n - 1))
	done
}

@test "one bad buffer is reported and the good ones work" {
	start_fake a --addr 65536
	put_segment seg '{"name":"seg","protocol":"tcp","tcp_data_port":'"$PORT"',
		"tcp_proto_version":2,"buffers":[
		{"name":"cpu:0","addr":65536,"length":4096},
		{"name":"cpu:0","addr":131072,"length":0},
		{"name":"cpu:0","addr":0,"length":4096},
		{"name":"cpu:0","addr":18446744073709551615,"length":4096},
		{"name":"cpu:0","addr":69632,"length":4096}]}'
	mount_segfs
	[ "$(buffers seg)" = $'0x10000\n0x11000' ]
	[ "$(sha_of "$MNT/seg/0x11000")" = "$(pattern 4096 4096 | sha)" ]
	run -0 status_of seg
	[[ $output == *length* ]]
	# Positions are those of the descriptor.
	[ "$(readlink "$MNT/seg/.segfs/by-index/4")" = ../../0x11000 ]
}

@test "unknown protocols are listed and cannot be read" {
	put_segment weird '{"name":"weird","protocol":"flagcx","buffers":[
		{"name":"cuda:0","addr":65536,"length":4096}]}'
	put_segment nvme '{"name":"nvme","protocol":"nvlink","buffers":[
		{"name":"cuda:0","addr":65536,"length":4096,"shm_name":"0F"}]}'
	mount_segfs
	local n
	for n in weird nvme; do
		[ "$(stat -c %s "$MNT/$n/0x10000")" = 4096 ]
		gives_error EOPNOTSUPP head -c 1 "$MNT/$n/0x10000"
		soon cat "$MNT/$n/.segfs/segment.json" >/dev/null
	done
	[[ $(status_of weird) == *flagcx* ]]
}

@test "several protocols in one segment: what we speak works" {
	start_fake a --addr 65536
	put_segment multi '{"name":"multi","protocol":["tcp","hip"],
		"tcp_data_port":'"$PORT"',"tcp_proto_version":2,"buffers":[
		{"name":"m","protocol":"tcp","addr":65536,"length":4096},
		{"name":"cuda:0","protocol":"hip","addr":131072,"length":4096,
		"shm_name":"0F3A"}]}'
	put_segment single '{"name":"single","protocol":["tcp"],
		"tcp_data_port":'"$PORT"',"tcp_proto_version":2,"buffers":[
		{"name":"m","addr":65536,"length":4096}]}'
	mount_segfs
	[ "$(sha_of "$MNT/multi/0x10000")" = "$(pattern 4096 | sha)" ]
	gives_error EOPNOTSUPP head -c 1 "$MNT/multi/0x20000"
	[ "$(sha_of "$MNT/single/0x10000")" = "$(pattern 4096 | sha)" ]
}

@test "what Mooncake's parser tolerates is tolerated" {
	put_segment seg "$(printf '\xef\xbb\xbf/* c */ {"protocol":"tcp", // d
	"tcp_data_port":9,"buffers":[{"name":"a","addr":65536,"length":1,},],}
	rubbish behind')"
	mount_segfs
	[ "$(buffers seg)" = 0x10000 ]
}

@test "a missing rpc_meta is named, a missing descriptor is no segment to read" {
	start_fake a --addr 65536
	put mooncake/ram/norpc "$(descriptor norpc "$PORT" 2 65536:8192)"
	put mooncake/rpc_meta/only '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
	mount_segfs
	[ "$(buffers norpc)" = 0x10000 ]
	fails head -c 1 "$MNT/norpc/0x10000"
	[[ $(status_of norpc) == *rpc_meta* ]]
	[ "$(soon ls "$MNT/only" 2>/dev/null)" = "" ]
	put mooncake/rpc_meta/norpc '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
	wait_for 2 soon head -c 1 "$MNT/norpc/0x10000"
}

@test "tcp_data_host says where the data port is, without rpc_meta too" {
	start_fake a --addr 65536
	put mooncake/ram/host "$(descriptor host "$PORT" 2 65536:8192 | sed \
		's/"tcp_data_port"/"rdma_server_name":"","tcp_data_host":"127.0.0.1",&/')"
	put_segment both "$(descriptor both "$PORT" 2 65536:8192 | sed \
		's/"tcp_data_port"/"tcp_data_host":"127.0.0.1",&/')"
	put mooncake/rpc_meta/both '{"ip_or_host_name":"127.0.0.77","rpc_port":1}'
	mount_segfs
	[ "$(sha_of "$MNT/host/0x10000")" = "$(pattern 8192 | sha)" ]
	[ "$(sha_of "$MNT/both/0x10000")" = "$(pattern 8192 | sha)" ]
}

@test "the port in a name is not dialled" {
	start_fake decoy --addr 65536 --mode magic
	local decoy=$PORT
	start_fake real --addr 65536
	put_segment "127.0.0.1:$decoy" "$(descriptor "127.0.0.1:$decoy" "$PORT" 2 \
		65536:8192)"
	mount_segfs
	[ "$(sha_of "$MNT/127.0.0.1:$decoy/0x10000")" = "$(pattern 8192 | sha)" ]
	run -1 grep -q connect "$(out_of decoy)"
}

@test "a cluster id separates, with and without a slash" {
	put mooncake/blue/ram/seg "$(descriptor seg 9 2 65536:100)"
	put mooncake/blue2/ram/seg "$(descriptor seg 9 2 65536:200)"
	put mooncake/ram/seg "$(descriptor seg 9 2 65536:300)"
	put mooncake/ram/plain "$(descriptor plain 9 2 65536:300)"
	local opts
	for opts in cluster_id=blue cluster_id=blue/; do
		mount_segfs $opts
		[ "$(soon ls "$MNT")" = seg ]
		[ "$(stat -c %s "$MNT/seg/0x10000")" = 100 ]
		unmount
	done
	MC_METADATA_CLUSTER_ID=blue mount_segfs
	[ "$(stat -c %s "$MNT/seg/0x10000")" = 100 ]
	unmount
	mount_segfs
	[ "$(stat -c %s "$MNT/seg/0x10000")" = 300 ]
	soon stat "$MNT/plain" >/dev/null
	gives_error ENOENT stat "$MNT/blue2"
}

@test "an exporter removes its keys when it ends" {
	start_exporter one --buffer size=4096,location=cpu:0
	[ "$(etcdctl get --prefix --keys-only mooncake/ | grep -c one)" = 2 ]
	stop one
	[ "$STATUS" = 0 ]
	[ "$(etcdctl get --prefix --keys-only mooncake/)" = "" ]
}
