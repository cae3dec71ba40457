#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# segfs-export by itself: what it prints, publishes, serves and leaves behind.

load helper

# No mount here, so no FUSE is needed.
setup_file() {
	export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-120}
	start_etcd
}

keys() {
	soon etcdctl get --prefix --keys-only mooncake/ | grep . || :
}

no_keys() {
	[ "$(keys)" = "" ]
}

both_keys() {
	[ "$(keys)" = "mooncake/ram/$1
mooncake/rpc_meta/$1" ]
}

# field NAME MEMBER, or NAME [MEMBER, ...]: of what is in the store.
field() {
	local filter=$2
	[ "${filter:0:1}" = "[" ] || filter=.$filter
	soon etcdctl get --print-value-only -- "mooncake/ram/$1" |
		head -n 1 | jq -r "$filter"
}

rpc_port() {
	soon etcdctl get --print-value-only -- "mooncake/rpc_meta/$1" |
		head -n 1 | jq -r .rpc_port
}

# wire NAME read|write ADDR LEN: one request of version 2; payload to or from
# the standard streams; prints "status N" to standard error.
wire() {
	timeout 20 python3 -c 'import socket, struct, sys
port, op, addr, n = sys.argv[1:]
addr, n = int(addr, 0), int(n)
s = socket.create_connection(("127.0.0.1", int(port)), 10)
def get(n):
    data = b""
    while len(data) < n:
        piece = s.recv(n - len(data))
        if not piece:
            raise SystemExit("closed")
        data += piece
    return data
s.sendall(struct.pack("<QQB7x", n, addr, 0x81 if op == "write" else 0x80))
if op == "write":
    s.sendall(sys.stdin.buffer.read())
code, magic = struct.unpack("<I4s", get(8))
if magic != b"VTCM" or code:
    raise SystemExit("status %d" % code)
if op == "read":
    sys.stdout.buffer.write(get(n))' "$(field "$1" tcp_data_port)" "${@:2}"
}

# shift_by ADDR OFFSET
shift_by() {
	printf '0x%x' $(($1 + $2))
}

@test "one line a buffer, then ready, and the two keys" {
	start_exporter one --buffer size=1M,location=cpu:0 \
		--buffer=size=5000,ro,location='*'
	run -0 cat "$(out_of one)"
	[[ ${lines[0]} =~ ^0x[0-9a-f]+\ 1048576\ cpu:0$ ]]
	[[ ${lines[1]} =~ ^0x[0-9a-f]+\ 5000\ \*\ ro$ ]]
	[ "${lines[2]}" = ready ]
	[ "${#lines[@]}" = 3 ]
	both_keys one
	[ "$(field one 'buffers[0].addr')" = "$(($(address one)))" ]
	[ "$(field one 'buffers | map(.length, .name) | @csv')" = \
		'1048576,"cpu:0",5000,"*"' ]
	[ "$(field one '[.name, .protocol, .tcp_proto_version] | @csv')" = \
		'"one","tcp",2' ]
	[ ! -s "$(log_of one)" ]
	stop one
	[ "$STATUS" = 0 ]
	no_keys
}

@test "--json is one line that says it all" {
	spawn one segfs-export --metadata "$ETCD" --name one --json \
		--buffer size=4096,location='a"b',ro
	wait_for 10 grep -q '"ready":true' "$(out_of one)"
	[ "$(wc -l <"$(out_of one)")" = 1 ]
	[ "$(jq -c '[.name, .ready, (.buffers[0] |
		.length, .location, .read_only)]' "$(out_of one)")" = \
		'["one",true,4096,"a\"b",true]' ]
	[ "$(jq .rpc_port "$(out_of one)")" = "$(rpc_port one)" ]
	[ "$(jq .data_port "$(out_of one)")" = "$(field one tcp_data_port)" ]
}

@test "ports are Mooncake's range, or as told" {
	start_exporter one --buffer size=4096
	[ "$(rpc_port one)" -ge 15000 ]
	[ "$(rpc_port one)" -le 17000 ]
	local a b
	a=$(free_port)
	b=$(free_port)
	start_exporter two --rpc-port "$a" --data-port="$b" --buffer size=4096
	[ "$(rpc_port two)" = "$a" ]
	[ "$(field two tcp_data_port)" = "$b" ]
	run -1 soon segfs-export --metadata "$ETCD" --name three \
		--rpc-port "$a" --buffer size=4096
	[[ $output == *"$a"*"in use"* ]]
	[ "$(keys | grep -c three)" = 0 ]
}

@test "a killed exporter vanishes with its lease" {
	start_exporter one --lease 2 --buffer size=4096
	both_keys one
	stop one KILL
	wait_for 8 no_keys
}

@test "without a lease its keys stay, and the next one takes them over" {
	start_exporter one --lease=0 --rpc-port 15999 --buffer size=4096
	stop one KILL
	sleep 1
	both_keys one
	# Its own new handshake port must not pass for the old owner.
	start_exporter one --lease=0 --rpc-port 15999 --buffer size=8192
	[ "$(field one 'buffers[0].length')" = 8192 ]
	stop one
	no_keys
}

@test "a living owner keeps its name unless forced" {
	start_exporter one --buffer size=4096
	run -1 soon segfs-export --metadata "$ETCD" --name one \
		--buffer size=8192
	[[ $output == "segfs-export: segment one belongs to"* ]]
	[ "${#lines[@]}" = 1 ]
	spawn two segfs-export --metadata "$ETCD" --name one --force \
		--buffer size=8192
	wait_for 10 grep -qx ready "$(out_of two)"
	[ "$(field one 'buffers[0].length')" = 8192 ]
	# The loser sees it, and takes nothing away when it goes.
	stop one
	[ "$(field one 'buffers[0].length')" = 8192 ]
}

@test "deleted keys come back" {
	start_exporter one --lease 3 --buffer size=4096
	soon etcdctl del mooncake/ram/one
	wait_for 3 both_keys one
	soon etcdctl del mooncake/rpc_meta/one
	wait_for 3 both_keys one
	soon etcdctl del --prefix mooncake/
	wait_for 3 both_keys one
	[[ $(cat "$(log_of one)") == *"published again"* ]]
}

@test "a store that comes back empty is told again" {
	local port
	start_etcd own
	port=$ETCD_PORT
	start_exporter one --lease 3 --buffer size=4096,fill=offset
	stop own KILL
	sleep 4
	[ "$(grep -c 'cannot keep' "$(log_of one)")" = 1 ]
	rm -rf own.data
	start_etcd own "$port"
	wait_for 10 both_keys one
	[ "$(wire one read "$(address one)" 4096 | sha)" = \
		"$(pattern 4096 | sha)" ]
	stop one
	no_keys
}

@test "no store: status 3 and one line" {
	run -3 soon segfs-export --metadata "etcd://127.0.0.1:1" --name one \
		--buffer size=4096
	[ "${#lines[@]}" = 1 ]
	[[ $output == segfs-export:*refused* ]]
}

@test "misuse is status 2 and says where to find help" {
	local args
	for args in "" "--name x --buffer size=1" \
		"--metadata etcd://x --buffer size=1" \
		"--metadata etcd://x --name x" "--nosuch" "--lease=x" \
		"--password=geheim" "--rpc-port=65536" "extra" \
		"--metadata $ETCD --name x --buffer size=4K,location=cpu:99"; do
		# shellcheck disable=SC2086
		run -2 env -u SEGFS_METADATA segfs-export $args
		[[ ${lines[0]} == segfs-export:* ]]
		[[ $output != *geheim* ]]
	done
	run -2 segfs-export --nosuch
	[[ ${lines[1]} == *"segfs-export --help"* ]]
	no_keys
}

@test "what is written to a file's buffer is in the file" {
	local a
	pattern 100000 >file
	run -1 soon segfs-export --metadata "$ETCD" --name x \
		--buffer "file=$PWD/nosuch"
	[[ $output == *"No such file"* ]]
	start_exporter one --buffer "file=$PWD/file,location=cpu:0"
	a=$(address one)
	[ "$(wire one read "$a" 100000 | sha)" = "$(sha_of file)" ]
	printf hello | wire one write "$(shift_by "$a" 4094)" 5
	[ "$(dd if=file bs=1 skip=4094 count=5 status=none)" = hello ]
	stop one KILL
	[ "$(dd if=file bs=1 skip=4094 count=5 status=none)" = hello ]
}

@test "another program's shared memory, a part of it, read-only" {
	local a shm=segfs-bats-$$
	pattern 20480 >/dev/shm/$shm
	start_exporter one --buffer "shm=$shm,offset=4K,size=8K,ro"
	rm /dev/shm/$shm
	a=$(address one)
	[ "$(wire one read "$a" 8192 | sha)" = "$(pattern 8192 4096 | sha)" ]
	run ! wire one write "$a" 5 <<<hell
	[ "$output" = "status 1" ]
	run ! wire one read "$a" 8193
	[ "$output" = "status 1" ]
}

@test "patterns are what they say" {
	start_exporter one --fill offset --buffer size=5000001 \
		--buffer size=1000,fill=byte:0x41 \
		--buffer size=999,fill=random:1 --buffer size=999,fill=random:1
	[ "$(wire one read "$(address one 0)" 5000001 | sha)" = \
		"$(pattern 5000001 | sha)" ]
	[ "$(wire one read "$(address one 1)" 1000 | tr -d A | wc -c)" = 0 ]
	[ "$(wire one read "$(address one 2)" 999 | sha)" = \
		"$(wire one read "$(address one 3)" 999 | sha)" ]
}

@test "a file that is cut short costs no more than what is gone" {
	local a n
	pattern 1048576 >file
	start_exporter one --buffer "file=$PWD/file"
	a=$(address one)
	truncate -s 8192 file
	run ! wire one read "$a" 1048576
	head -c 65536 /dev/zero >zeros
	run ! wire one write "$(shift_by "$a" 8000)" 65536 <zeros
	run ! wire one write "$(shift_by "$a" 8000)" 1000 < <(head -c 1000 zeros)
	[ "$(wire one read "$a" 4096 | sha)" = "$(pattern 4096 | sha)" ]
	# Not a line each, if they come at once.
	n=$(grep -c 'truncated' "$(log_of one)")
	[ "$n" -ge 1 ] && [ "$n" -le $((SLOW > 1 ? 3 : 1)) ]
	stop one
	[ "$STATUS" = 0 ]
}

@test "buffers may not share bytes of a file" {
	head -c 16384 /dev/zero >file
	run -2 soon segfs-export --metadata "$ETCD" --name x \
		--buffer "file=$PWD/file,size=8K" \
		--buffer "file=$PWD/file,offset=4K"
	[[ $output == *"share bytes"* ]]
	start_exporter one --buffer "file=$PWD/file,size=8K" \
		--buffer "file=$PWD/file,offset=8K"
}

@test "huge pages that are not there are asked for by name" {
	[ "$(cat /proc/sys/vm/nr_hugepages)" = 0 ] ||
		skip "this machine has huge pages"
	run -1 soon segfs-export --metadata "$ETCD" --name x \
		--buffer size=4M,huge
	[[ $output == *"/proc/sys/vm/nr_hugepages"* ]]
	no_keys
}

@test "a descriptor too big for the store is not half published" {
	local args=() i
	# A store with little room, as 30,000 buffers take an emulated CPU long.
	ETCD_MAX_REQUEST_BYTES=65536 start_etcd small
	for ((i = 0; i < 1500; i++)); do
		args+=(--buffer=size=4K)
	done
	run -3 soon segfs-export --metadata "$ETCD" --name big "${args[@]}"
	[[ $output =~ [0-9]{5} ]]
	no_keys
}

@test "garbage on both ports disturbs nobody" {
	local rpc data
	start_exporter one --buffer size=4096,fill=offset
	rpc=$(rpc_port one)
	data=$(field one tcp_data_port)
	python3 - "$rpc" "$data" <<-'EOF'
	import os, socket, sys
	for port in map(int, sys.argv[1:]):
	    for junk in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01",
	                 b"\0" * 8, b"\xff" * 64, os.urandom(4096)):
	        s = socket.create_connection(("127.0.0.1", port))
	        s.sendall(junk)
	        s.close()
	keep = [socket.create_connection(("127.0.0.1", p))
	        for p in map(int, sys.argv[1:]) for i in range(40)]
	s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 3)
	s.sendall(b"\x03\0\0\0\0\0\0\0\x03{}")
	assert b"success" in s.recv(100)
	EOF
	[ "$(wire one read "$(address one)" 4096 | sha)" = \
		"$(pattern 4096 | sha)" ]
	[ "$(wc -l <"$(log_of one)")" -le 2 ]
}

@test "it listens on loopback unless told" {
	start_exporter one --buffer size=4096
	run -0 ss -Hltn "sport = :$(rpc_port one) or sport = :$(field one tcp_data_port)"
	[ "${#lines[@]}" = 2 ]
	[[ ${lines[0]} == *127.0.0.1:* && ${lines[1]} == *127.0.0.1:* ]]
	start_exporter two --listen :: --advertise ::1 --buffer size=4096
	[ "$(field two tcp_data_host)" = ::1 ]
}
