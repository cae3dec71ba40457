#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ten thousand segments of twenty buffers.

load helper

SEGMENTS=10000

# In transactions of 100 segments over the store's own gateway.
load_segments() {
	python3 - "$ETCD_PORT" $SEGMENTS <<-'EOF'
	import base64, http.client, json, sys
	port, count = int(sys.argv[1]), int(sys.argv[2])
	http = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
	def b64(text):
	    return base64.b64encode(text.encode()).decode()
	def put(key, value):
	    return {"requestPut": {"key": b64(key), "value": b64(value)}}
	for first in range(0, count, 50):
	    ops = []
	    for i in range(first, min(first + 50, count)):
	        name = f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:15000"
	        ops.append(put(f"mooncake/ram/{name}", json.dumps({
	            "name": name, "protocol": "tcp", "tcp_data_port": 9,
	            "tcp_proto_version": 2, "timestamp": "",
	            "buffers": [{"name": name, "addr": 0x7f0000000000 + (b << 30),
	                         "length": 1 << 30} for b in range(20)]})))
	        ops.append(put(f"mooncake/rpc_meta/{name}", json.dumps(
	            {"ip_or_host_name": "127.0.0.1", "rpc_port": 9})))
	    http.request("POST", "/v3/kv/txn", json.dumps({"success": ops}))
	    answer = http.getresponse()
	    assert answer.status == 200, answer.read()
	    answer.read()
	EOF
}

setup_file() {
	common_setup_file
	load_segments
}

setup() {
	MNT=$BATS_TEST_TMPDIR/mnt
	mkdir -p "$BATS_TEST_TMPDIR/log"
	cd "$BATS_TEST_TMPDIR" || return 1
}

rss_kib() {
	ps -o rss= -p "$(pid_of segfs)"
}

@test "ls -f lists all, in less than 200 MiB" {
	mount_segfs
	elapsed soon ls -f "$MNT" >names
	[ "$(grep -c '^10\.' names)" = $SEGMENTS ]
	[ "$(sort names | uniq -d)" = "" ]
	within 8000
	[ -n "${ASAN:-}" ] || grep -q __asan "$SEGFS_BUILD/segfs" ||
		[ "$(rss_kib)" -lt $((200 * 1024)) ]
}

@test "ls -l of all of them and every buffer, still in less than 200 MiB" {
	mount_segfs
	SOON=100 soon find "$MNT" -maxdepth 2 -path '*:15000/0x*' >names
	[ "$(wc -l <names)" = $((SEGMENTS * 20)) ]
	grep -q __asan "$SEGFS_BUILD/segfs" ||
		[ "$(rss_kib)" -lt $((200 * 1024)) ]
}

@test "ls -l of one segment asks the store once" {
	start_proxy counting --to "127.0.0.1:$ETCD_PORT"
	ETCD=etcd://127.0.0.1:$PORT mount_segfs
	sleep 0.5
	local before after
	before=$(grep -c 'request POST.*/kv/' "$(out_of counting)" || :)
	[ "$(soon ls -l "$MNT/10.0.5.7:15000" | grep -c 0x)" = 20 ]
	after=$(grep -c 'request POST.*/kv/' "$(out_of counting)" || :)
	[ $((after - before)) = 1 ]
	soon ls -l "$MNT/10.0.5.7:15000" >/dev/null
	soon stat "$MNT/10.0.5.7:15000/0x7f0000000000" >/dev/null
	after=$(grep -c 'request POST.*/kv/' "$(out_of counting)" || :)
	[ $((after - before)) = 1 ]
}
