#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=crossed
# The exporter over RDMA, in the guest of tests/vm/run --rdma=crossed, and the
# published Mooncake as the one who reads and writes.

load ../interop/helper

setup_file() {
	export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-300}
	start_etcd
}

setup() {
	[ -e /sys/class/infiniband/rxe0 ] || skip "no rxe0 here"
	common_setup
}

# field NAME FILTER: of its descriptor.
field() {
	soon etcdctl get --print-value-only -- "mooncake/ram/$1" |
		head -n 1 | jq -rc "$2"
}

keys() {
	soon etcdctl get --prefix --keys-only mooncake/ | grep . || :
}

# Queue pairs of user programs, and registered memory.
nr_qps() {
	rdma resource show qp -j | jq '[.[] | select(.type == "RC")] | length'
}

nr_mrs() {
	rdma resource show mr -j | jq length
}

is_qps() {
	[ "$(nr_qps)" = "$1" ]
}

# packets DEVICE: sent and received so far.
packets() {
	cat /sys/class/infiniband/"$1"/ports/1/hw_counters/{sent,rcvd}_pkts |
		awk '{ n += $1 } END { print n }'
}

rpc_port() {
	soon etcdctl get --print-value-only -- "mooncake/rpc_meta/$1" |
		head -n 1 | jq .rpc_port
}

# connect NAME JSON: one Connection request; prints the reply.
connect() {
	timeout 60 python3 - "$(rpc_port "$1")" "$2" <<-'EOF'
	import socket, struct, sys
	s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
	s.settimeout(50)
	body = sys.argv[2].encode()
	s.sendall(struct.pack("<QB", len(body) + 1, 0) + body)
	data = b""
	while piece := s.recv(65536):
	    data += piece
	print(data[9:].decode())
	EOF
}

# request FROM TO QPS [GID]: its text.
request() {
	printf '{"local_nic_path":"%s","peer_nic_path":"%s","qp_num":%s,' \
		"$1" "$2" "$3"
	printf '"local_gid":"%s","local_lid":0,"reply_msg":""}' \
		"${4-00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01}"
}

# connect_many NAME N: N connections of ten peers, one after another.
connect_many() {
	timeout 200 python3 - "$(rpc_port "$1")" "$@" <<-'EOF'
	import json, socket, struct, sys
	port, name, n = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
	for i in range(n):
	    body = json.dumps({
	        "local_nic_path": f"peer{i % 10}@rxe0",
	        "peer_nic_path": f"{name}@rxe0", "qp_num": [2 * i, 2 * i + 1],
	        "local_gid": "0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1",
	        "local_lid": 0, "reply_msg": ""}).encode()
	    s = socket.create_connection(("127.0.0.1", port), 10)
	    s.settimeout(30)
	    s.sendall(struct.pack("<QB", len(body) + 1, 0) + body)
	    data = b""
	    while piece := s.recv(65536):
	        data += piece
	    assert json.loads(data[9:])["reply_msg"] == "", data
	EOF
}

@test "the descriptor of two devices, and nothing is left afterwards" {
	local mrs
	mrs=$(nr_mrs)
	start_exporter one --protocol rdma --buffer size=1M,location=cpu:0 \
		--buffer size=5000,ro,location='*'
	[ "$(field one '[.name, .protocol, .tcp_data_port,
		.tcp_proto_version]')" = '["one","rdma",0,1]' ]
	[ "$(field one '.devices | map(.name)')" = '["rxe0","rxe1"]' ]
	local gid=00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00
	[ "$(field one '.devices | map(.gid)')" = "[\"$gid:01\",\"$gid:02\"]" ]
	[ "$(field one '.priority_matrix')" = \
'{"cpu:0":[["rxe0","rxe1"],[]],"cpu:1":[["rxe0","rxe1"],[]]}' ]
	[ "$(field one '.buffers | map(.length, .name)')" = \
		'[1048576,"cpu:0",5000,"*"]' ]
	[ "$(field one '.buffers | map(.rkey, .lkey | length)')" = '[2,2,2,2]' ]
	[ "$(field one '[.buffers[].rkey[]] | unique | length')" = 4 ]
	[ "$(field one '.buffers[0].addr')" = "$(($(address one)))" ]
	[ ! -s "$(log_of one)" ]
	[ "$(nr_mrs)" = $((mrs + 4)) ]
	stop one
	[ "$STATUS" = 0 ]
	[ "$(keys)" = "" ]
	[ "$(nr_mrs)" = "$mrs" ]
}

@test "--nic chooses devices and their order" {
	start_exporter one --protocol=rdma --nic rxe1,rxe0 --buffer size=4096
	[ "$(field one '.devices | map(.name)')" = '["rxe1","rxe0"]' ]
	start_exporter two --protocol=rdma --nic rxe1 --buffer size=4096
	[ "$(field two '.devices | map(.name)')" = '["rxe1"]' ]
	run -1 soon segfs-export --metadata "$ETCD" --name three \
		--protocol rdma --nic mlx5_7 --buffer size=4096
	[[ $output == "segfs-export: "*mlx5_7* ]]
	[ "${#lines[@]}" = 1 ]
	MC_TE_FILTERS=rxe0 start_exporter four --protocol=rdma \
		--buffer size=4096
	[ "$(field four '.devices | map(.name)')" = '["rxe0"]' ]
}

@test "no usable device: one line, nothing published" {
	run -1 soon segfs-export --metadata "$ETCD" --name one \
		--protocol rdma --ib-port 7 --buffer size=4096
	[ "${#lines[@]}" = 1 ]
	[[ $output == "segfs-export: "*port\ 7* ]]
	run -2 segfs-export --metadata "$ETCD" --name one --protocol rdma \
		--mtu 1500 --buffer size=4096
	run -2 env MC_IB_TC=many segfs-export --metadata "$ETCD" --name one \
		--buffer size=4096
	[[ $output == *MC_IB_TC* ]]
	[ "$(keys)" = "" ]
}

@test "both protocols are two segments of the same memory" {
	spawn one segfs-export --metadata "$ETCD" --name one --json \
		--protocol tcp,rdma --buffer size=8192,fill=offset
	wait_for 20 grep -q '"ready":true' "$(out_of one)"
	[ "$(field one .protocol)" = tcp ]
	[ "$(field one-rdma .protocol)" = rdma ]
	[ "$(field one-rdma .name)" = one-rdma ]
	[ "$(field one '.buffers | map(.addr, .length)')" = \
		"$(field one-rdma '.buffers | map(.addr, .length)')" ]
	[ "$(jq -c .segments "$(out_of one)")" = \
'[{"name":"one","protocol":"tcp"},{"name":"one-rdma","protocol":"rdma"}]' ]
	stop one
	[ "$(keys)" = "" ]
}

@test "what is too long for one registration is several buffers" {
	MC_MAX_MR_SIZE=10000 start_exporter one --protocol rdma \
		--buffer size=20481
	[ "$(field one '.buffers | map(.length)')" = '[8192,8192,4097]' ]
	[ "$(field one '.buffers[1].addr - .buffers[0].addr')" = 8192 ]
	[ "$(grep -c ^0x "$(out_of one)")" = 3 ]
}

@test "a mount and Mooncake read and write across such a cut" {
	local n=3145733 a
	pattern $n >/dev/shm/segfs-rdma-cut
	MC_MAX_MR_SIZE=1048576 start_exporter one --protocol rdma \
		--buffer shm=segfs-rdma-cut
	[ "$(field one '.buffers | map(.length)')" = \
		'[1048576,1048576,1048576,5]' ]
	a=$(address one)
	mount_segfs
	[ "$(soon dd if="$MNT/one/.segfs/mem" bs=1M count=$n skip=$((a)) \
		iflag=skip_bytes,count_bytes status=none | sha)" = \
		"$(pattern $n | sha)" ]
	[ "$(soon cat "$(buffer one 0)" "$(buffer one 1)" "$(buffer one 2)" \
		"$(buffer one 3)" | sha)" = "$(pattern $n | sha)" ]
	mooncake $n
	ask mc read one "$a" 0 0 $n
	[ "$(ask mc sha 0)" = "$(pattern $n | sha)" ]
	ask mc fill 0 3
	ask mc write one "$a" 0 0 $n
	[ "$(sha </dev/shm/segfs-rdma-cut)" = "$(ask mc sha 0)" ]
	pattern 2000000 | soon dd of="$MNT/one/.segfs/mem" bs=1M \
		seek=$((a + 500000)) oflag=seek_bytes conv=notrunc status=none
	[ "$(tail -c +500001 /dev/shm/segfs-rdma-cut | head -c 2000000 |
		sha)" = "$(pattern 2000000 | sha)" ]
	rm /dev/shm/segfs-rdma-cut
	stop_mooncake mc
}

@test "the limit on locked memory is named, with what is needed" {
	run -1 soon setpriv --reuid=65534 --clear-groups --bounding-set=-all \
		bash -c 'ulimit -l 64; exec segfs-export --metadata "$0" \
			--name one --protocol rdma --buffer size=1M' "$ETCD"
	[[ $output == *memlock*64K*2M*"2 devices"* ]]
	[ "${#lines[@]}" = 1 ]
	[ "$(keys)" = "" ]
}

@test "dma-bufs that cannot be registered are refused clearly" {
	run -2 soon segfs-export --metadata "$ETCD" --name one \
		--buffer dmabuf=0 </dev/zero
	[[ $output == *"RDMA only"* ]]
	head -c 65536 /dev/zero >file
	run -1 soon segfs-export --metadata "$ETCD" --name one \
		--protocol rdma --buffer dmabuf=0 <file
	[[ $output == *"dma-buf"* ]]
	[ "${#lines[@]}" = 1 ]
	[ "$(keys)" = "" ]
}

# with_dmabuf CMD...: FD in its arguments is a dma-buf of 256K.
with_dmabuf() {
	timeout 60 python3 - "$@" <<-'EOF'
	import fcntl, os, struct, sys
	card = os.open("/dev/dri/card0", os.O_RDWR)
	dumb = bytearray(struct.pack("<6IQ", 256, 256, 32, 0, 0, 0, 0))
	fcntl.ioctl(card, 0xc02064b2, dumb)	# DRM_IOCTL_MODE_CREATE_DUMB
	handle = struct.unpack_from("<I", dumb, 16)[0]
	prime = bytearray(struct.pack("<IIi", handle, 2, 0))
	fcntl.ioctl(card, 0xc00c642d, prime)	# DRM_IOCTL_PRIME_HANDLE_TO_FD
	fd = struct.unpack_from("<i", prime, 8)[0]
	os.set_inheritable(fd, True)
	os.execvp(sys.argv[1], [a.replace("FD", str(fd)) for a in sys.argv[1:]])
	EOF
}

@test "a dma-buf is measured, and refused by a device that takes none" {
	modprobe vgem || skip "no device here has dma-bufs"
	wait_for 10 test -e /dev/dri/card0
	run -2 with_dmabuf segfs-export --metadata "$ETCD" --name one \
		--protocol rdma --buffer dmabuf=FD,offset=4096,size=256K
	[[ $output == *"more than it has (262144)"* ]]
	run -2 with_dmabuf segfs-export --metadata "$ETCD" --name one \
		--protocol tcp,rdma --buffer dmabuf=FD
	[[ $output == *"RDMA only"* ]]
	run -1 with_dmabuf segfs-export --metadata "$ETCD" --name one \
		--protocol rdma --buffer dmabuf=FD,offset=4096
	[[ $output == *rxe0*"cannot register a dma-buf"* ]]
	[ "${#lines[@]}" = 1 ]
	[ "$(keys)" = "" ]
}

@test "connection requests: accepted, repeated, replaced, acknowledged" {
	local first again gid=00:00:00:00:00:00:00:00:00:00:ff:ff:0a:09:00:01
	start_exporter one --protocol rdma --buffer size=4096
	local before
	before=$(nr_qps)
	first=$(connect one "$(request x@rxe0 one@rxe0 '[101,102,103]')")
	[ "$(jq -c '[.local_nic_path, .peer_nic_path, .local_gid, .reply_msg,
		(.qp_num | length), has("ready_ack")]' <<<"$first")" = \
		'["one@rxe0","x@rxe0","'$gid'","",3,false]' ]
	is_qps $((before + 3))
	[ "$(rdma resource show qp -j | jq '[.[] | select(.rqpn == 102)] |
		map(.state)' -c)" = '["RTS"]' ]
	again=$(connect one "$(request x@rxe0 one@rxe0 '[101,102,103]')")
	[ "$first" = "$again" ]
	is_qps $((before + 3))
	again=$(connect one "$(request x@rxe0 one@rxe0 '[101,102,104]')")
	[ "$first" != "$again" ]
	wait_for 5 is_qps $((before + 3))
	again=$(connect one "$(request x@rxe0 one@rxe0 '[101,102,104]' |
		sed 's/}$/,"ready_ack":true}/')")
	[ "$(jq -c '[.reply_msg, has("ready_ack"), .qp_num]' <<<"$again")" = \
		'["",false,[]]' ]
	again=$(connect one "$(request x@rxe0 one@rxe0 '[101]' |
		sed 's/}$/,"ready_ack":true}/')")
	[[ $(jq -r .reply_msg <<<"$again") == *ready_ack* ]]
	is_qps $((before + 3))
	stop one
	is_qps "$before"
}

@test "connection requests: rejected with a reason and our own path" {
	local reply line
	start_exporter one --protocol rdma --buffer size=4096
	local before
	before=$(nr_qps)
	while IFS='|' read -r from to qps gid want; do
		reply=$(connect one "$(request "$from" "$to" "$qps" "$gid")")
		[[ $(jq -r .reply_msg <<<"$reply") == *"$want"* ]] || {
			echo "$want: $reply"
			false
		}
	done <<-'EOF'
	x@rxe0|one@nope|[1]|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|no device
	x@rxe0|two@rxe0|[1]|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|not this server's
	x@rxe0|one|[1]|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|peer_nic_path
	x|one@rxe0|[1]|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|local_nic_path
	x@rxe0|one@rxe0|[]|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|no queue pair
	x@rxe0|one@rxe0|[1]|fe80::1|not a GID
	x@rxe0|one@rxe0|[1]||local_gid is empty
	x@rxe0|one@rxe0|"1"|0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:1|qp_num
	EOF
	reply=$(connect one "$(request x@rxe0 two@rxe0 '[1]')")
	[ "$(jq -r .local_nic_path <<<"$reply")" = one@rxe0 ]
	[ "$(jq -r .peer_nic_path <<<"$reply")" = x@rxe0 ]
	is_qps "$before"
	# A TCP-only exporter says so.
	start_exporter three --buffer size=4096
	reply=$(connect three "$(request x@rxe0 three@rxe0 '[1]')")
	[[ $(jq -r .reply_msg <<<"$reply") == *"no RDMA"* ]]
}

# Soft-RoCE finds no way from an IPv4 address to this one: EINVAL at RTR.
@test "a peer's GID that leads nowhere does not change ours" {
	local q reply
	start_exporter one --protocol rdma --buffer size=4096
	q=$(request x@rxe0 one@rxe0 '[7]' fe:80:0:0:0:0:0:0:0:0:0:0:0:0:0:9)
	reply=$(connect one "$q")
	[[ $(jq -r .reply_msg <<<"$reply") == *RTR* ]]
	sleep 1
	gid_is 0 0a:09:00:01
	reply=$(connect one "$(request y@rxe0 one@rxe0 '[8]')")
	[ "$(jq -r .reply_msg <<<"$reply")" = "" ]
	[[ $(jq -r .local_gid <<<"$reply") == *ff:ff:0a:09:00:01 ]]
}

@test "an old peer's GID comes from its descriptor" {
	local reply
	start_exporter one --protocol rdma --buffer size=4096
	start_exporter old --protocol rdma --buffer size=4096
	reply=$(connect one "$(request old@rxe0 one@rxe0 '[77]' '')")
	[ "$(jq -r .reply_msg <<<"$reply")" = "" ]
	[ "$(jq '.qp_num | length' <<<"$reply")" = 1 ]
}

# mooncake BUFFERS...: a Mooncake process "mc" with both devices. An emulated
# CPU stands still for longer than a queue pair's timers now and then, and what
# is repeated makes it slower still: its transfers get more time than they need.
mooncake() {
	local b args=()
	require_mooncake
	export MC_TRANSFER_TIMEOUT=120 ASK=150
	for b; do
		args+=(--buffer "$b")
	done
	start_mooncake mc --rdma rxe0,rxe1 "${args[@]}"
}

@test "Mooncake reads what we have, over both devices" {
	local before0 before1
	start_exporter one --protocol rdma --buffer size=8M,fill=offset \
		--buffer size=100001,fill=random:5,location=cpu:1
	mooncake 8388608 100001
	before0=$(packets rxe0)
	before1=$(packets rxe1)
	ask mc read one "$(address one 0)" 0 0 8388608
	[ "$(ask mc sha 0)" = "$(pattern 8388608 | sha)" ]
	[ $(($(packets rxe0) - before0)) -gt 500 ]
	[ $(($(packets rxe1) - before1)) -gt 500 ]
	ask mc read one "$(printf '0x%x' $(($(address one 0) + 12345)))" \
		1 77 99001
	[ "$(ask mc sha 1 77 99001)" = "$(pattern 99001 12345 | sha)" ]
	stop_mooncake mc
}

@test "Mooncake writes, and what it wrote is there" {
	pattern 3000000 >/dev/shm/segfs-rdma-test
	start_exporter one --protocol rdma --buffer shm=segfs-rdma-test
	mooncake 3000000
	ask mc fill 0 9
	ask mc write one "$(address one)" 0 0 3000000
	[ "$(sha </dev/shm/segfs-rdma-test)" = "$(ask mc sha 0)" ]
	rm /dev/shm/segfs-rdma-test
	stop_mooncake mc
}

@test "read-only memory is read, never written" {
	pattern 65536 >/dev/shm/segfs-rdma-test
	start_exporter one --protocol rdma --buffer shm=segfs-rdma-test,ro \
		--buffer size=4096,ro,fill=byte:7
	mooncake 65536
	ask mc read one "$(address one 0)" 0 0 65536
	[ "$(ask mc sha 0)" = "$(pattern 65536 | sha)" ]
	ask mc fill 0 1
	run ! ask mc write one "$(address one 0)" 0 0 4096
	[ "$(sha </dev/shm/segfs-rdma-test)" = "$(pattern 65536 | sha)" ]
	# Its queue pairs are gone after that, and it connects again.
	ask mc read one "$(address one 1)" 0 0 4096
	[ "$(ask mc peek 0 0 4)" = 07070707 ]
	rm /dev/shm/segfs-rdma-test
	stop_mooncake mc
}

says() {
	connect one "$1" | jq -r .reply_msg | grep -q -- "$2"
}

@test "a port that is down takes no connections, until it is up again" {
	local q
	start_exporter one --protocol rdma --buffer size=4096
	q=$(request x@rxe0 one@rxe0 '[7]')
	says "$q" '^$'
	ip link set veth0 down
	wait_for 10 says "$q" 'port is down'
	says "$(request x@rxe1 one@rxe1 '[7]' \
		0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:2)" '^$'
	ip link set veth0 up
	wait_for 10 says "$(request x@rxe0 one@rxe0 '[8]')" '^$'
}

@test "a device whose GID is gone takes no connections until it is back" {
	start_exporter one --protocol rdma --nic rxe1 --gid-index 1 \
		--buffer size=4096
	local q
	q=$(request x@rxe1 one@rxe1 '[7]' 0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:2)
	says "$q" '^$'
	ip addr del 10.9.0.2/24 dev veth1
	wait_for 10 says "$q" 'it has no GID'
	wait_for 5 is_qps 0
	ip addr add 10.9.0.2/24 dev veth1
	wait_for 10 says "$q" '^$'
}

gid_is() {
	[ "$(field one ".devices[$1].gid")" = \
		"00:00:00:00:00:00:00:00:00:00:ff:ff:$2" ]
}

@test "another GID ends the connections of its device and is published" {
	start_exporter one --protocol rdma --buffer size=4096
	local before
	gid_is 1 0a:09:00:02
	before=$(nr_qps)
	connect one "$(request x@rxe1 one@rxe1 '[7]' \
		0:0:0:0:0:0:0:0:0:0:ff:ff:a:9:0:2)"
	connect one "$(request x@rxe0 one@rxe0 '[7]')"
	is_qps $((before + 2))
	ip addr del 10.9.0.2/24 dev veth1
	ip addr add 10.9.0.3/24 dev veth1
	wait_for 10 gid_is 1 0a:09:00:03
	gid_is 0 0a:09:00:01
	wait_for 5 is_qps $((before + 1))
	ip addr del 10.9.0.3/24 dev veth1
	ip addr add 10.9.0.2/24 dev veth1
	wait_for 10 gid_is 1 0a:09:00:02
	stop one
	[ "$(keys)" = "" ]
}

# (Soft-RoCE repeats for ever what nobody answers when told "7 times", so that a
# Mooncake that was connected before would wait for ever here.)
@test "an exporter restarted under its name and port serves new peers" {
	local port
	port=$(free_port)
	start_exporter one --protocol rdma --rpc-port "$port" --buffer size=4096
	connect one "$(request mc@rxe0 one@rxe0 '[1001,1002]')"
	stop one KILL
	wait_for 5 is_qps 0
	start_exporter one --protocol rdma --rpc-port "$port" \
		--buffer size=65536,fill=byte:2
	mooncake 65536
	ask mc read one "$(address one)" 0 0 65536
	[ "$(ask mc peek 0 65532 4)" = 02020202 ]
	stop_mooncake mc
}

@test "Mooncake restarted many times leaves one set of queue pairs" {
	local i
	start_exporter one --protocol rdma --nic rxe0 \
		--buffer size=65536,fill=offset
	export MC_TRANSFER_TIMEOUT=120 ASK=150
	for i in 1 2 3; do
		start_mooncake mc --rdma rxe0 --buffer 65536
		ask mc read one "$(address one)" 0 0 65536
		[ "$(ask mc sha 0)" = "$(pattern 65536 | sha)" ]
		stop mc KILL
		wait_for 5 is_qps 2
	done
}

@test "three hundred connections and what replaces them leave nothing" {
	local i qps mrs
	qps=$(nr_qps)
	mrs=$(nr_mrs)
	start_exporter one --protocol rdma --buffer size=65536
	connect_many one 300
	wait_for 10 is_qps $((qps + 20))
	stop one
	is_qps "$qps"
	[ "$(nr_mrs)" = "$mrs" ]
}

# Each queue pair of Soft-RoCE is two mappings of its process.
@test "where there is no room for more, the oldest connections go" {
	local i had n
	start_exporter one --protocol rdma --buffer size=4096
	had=$(cat /proc/sys/vm/max_map_count)
	n=$(wc -l <"/proc/$(pid_of one)/maps")
	echo $((n + 500)) >/proc/sys/vm/max_map_count
	for i in 1 2 3 4 5 6 7 8; do
		connect one "$(request "x$i@rxe0" one@rxe0 \
			"$(seq -s, 50 | sed 's/.*/[&]/')")"
	done >replies
	echo "$had" >/proc/sys/vm/max_map_count
	[ "$(jq -r .reply_msg replies | sort -u)" = "" ]
	n=$(nr_qps)
	[ "$n" -ge 100 ]
	[ "$n" -lt 400 ]
	[ "$(rdma resource show qp -j | jq -c "map(select(.lqpn == $(
		tail -n 1 replies | jq '.qp_num[49]'))) | map(.state)")" = \
		'["RTS"]' ]
	is_running "$(pid_of one)"
}

@test "ended while it is read: an error for the reader, nothing left" {
	local qps mrs
	qps=$(nr_qps)
	mrs=$(nr_mrs)
	start_exporter one --protocol rdma --buffer size=8M,fill=offset
	mount_segfs timeout=5
	spawn reader python3 "$SEGFS_SRC/tests/vm/keep_reading.py" \
		"$(buffer one)"
	wait_for 60 grep -q '^ok' "$(out_of reader)"
	stop one TERM
	[ "$STATUS" = 0 ]
	[ "$(keys)" = "" ]
	wait_for 30 grep -q '^error' "$(out_of reader)"
	run ! grep -q '^wrong' "$(out_of reader)"
	stop reader KILL
	unmount
	wait_for 10 is_qps "$qps"
	[ "$(nr_mrs)" = "$mrs" ]
}

@test "no key is ever in a log" {
	local k x keys
	SEGFS_DEBUG=all start_exporter one --protocol rdma --verbose \
		--buffer size=4096
	connect one "$(request x@rxe0 one@rxe0 '[7]')"
	connect one "$(request x@rxe0 one@nope '[7]')"
	keys=$(field one '.buffers[].rkey[]')
	stop one
	[ -s "$(log_of one)" ]
	for k in $keys; do
		x=$(printf %x "$k")
		run ! grep -qiwE "$k|0*$x|0x0*$x" "$(log_of one)"
	done
}
