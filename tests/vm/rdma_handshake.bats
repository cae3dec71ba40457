#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=crossed
# The handshake of RDMA, one side of it wrong in every way there is.

load helper

# ---- the exporter, asked wrongly ----

rpc_port() {
	soon etcdctl get --print-value-only "mooncake/rpc_meta/$1" |
		head -n 1 | jq .rpc_port
}

gid_of() {
	stored "$1" | jq -r '.devices[0].gid'
}

# ask_one FILTERS: the replies to a request that "one" accepts, changed by each
# of some jq filters, separated by commas; a line each.
ask_one() {
	jq -nc --arg dev "${NIC[0]}" --arg gid "$GID" \
		'{local_nic_path: "me@nic0", peer_nic_path: ("one@" + $dev),
		  local_gid: $gid, local_lid: 0, qp_num: [1001, 1002],
		  reply_msg: "", payload: ""}'" | $1" |
		SOON=60 soon python3 "$BATS_TEST_DIRNAME/fake_handshake.py" \
			ask "$RPC" | tee /dev/stderr
}

accepts() {
	[ "$(ask_one . | jq -r .reply_msg)" = "" ]
}

asked() {
	start_exporter one --protocol rdma --nic "${NIC[0]}" \
		--buffer size=64K,location=cpu:0
	RPC=$(rpc_port one)
	GID=$(gid_of one)
}

@test "an exporter accepts: paths swapped, as many QPs, in RTS" {
	asked
	ask_one '(.qp_num = [1001]), (.qp_num = [1001, 1002]),
		(.qp_num = [1, 2, 3, 4, 5])' >replies
	[ "$(jq -c --arg dev "${NIC[0]}" --arg gid "$GID" 'select(
		.reply_msg == "" and .peer_nic_path == "me@nic0" and
		.local_nic_path == ("one@" + $dev) and .local_gid == $gid and
		(has("ready_ack") | not)) | .qp_num | length' replies |
		xargs)" = "1 2 5" ]
	# Those of the last one; each request replaced what was there.
	rdma resource show qp >&2
	[ "$(rdma resource show qp | grep -c 'type RC state RTS')" = 5 ]
}

@test "an exporter refuses with a reason what it cannot accept" {
	asked
	ask_one '(.peer_nic_path = "one"), (.peer_nic_path = "one@"),
		(.peer_nic_path = "one@nobody0"),
		(.peer_nic_path = "two@" + $dev),
		(.peer_nic_path = "@" + $dev),
		(.local_nic_path = ""), (.local_nic_path = "me"),
		(.local_nic_path = "@nic0"), (.local_nic_path = "me@"),
		(.qp_num = []), del(.qp_num),
		(.local_gid = "::ffff:10.9.0.1"), (.local_gid = "00:11"),
		(.local_gid += ":00"), (.local_gid |= "zz" + .[2:]),
		(.local_gid = ""), del(.local_gid), (.ready_ack = true)' \
		>replies
	[ "$(jq -r 'select(.reply_msg != "") | "refused"' replies |
		wc -l)" = 18 ]
	[ "$(nr_qps)" = 0 ]
	accepts
}

@test "wrong types, half frames and noise do not hurt an exporter" {
	asked
	ask_one '(.qp_num = "1,2"), (.qp_num = [-1]), (.qp_num = [1e30]),
		(.qp_num = ["1"]), (.qp_num = {}), (.qp_num = [range(300)]),
		(.local_gid = 7), (.local_nic_path = []), (.ready_ack = "yes"),
		[.], 7, null,
		(.local_nic_path = "x" * 200000 + "@y")' >replies
	[ "$(wc -l <replies)" = 13 ]
	# Refused with a reason, with null, or by closing.
	[ "$(grep -v '^closed$' replies |
		jq -r 'select(. != null and .reply_msg == "")')" = "" ]
	python3 - "$RPC" <<-'EOF'
	import os, socket, struct, sys
	port = int(sys.argv[1])
	good = b'{"local_nic_path":"me@nic0"'
	held = []
	for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00",
	              bytes(8), struct.pack("<Q", 1 << 63),
	              struct.pack("<QB", 10, 0) + b"{}",
	              struct.pack("<QB", 5, 9) + b"{}{}",
	              struct.pack("<QB", 5, 255) + b"{}{}",
	              struct.pack("<QB", 1 + len(good), 0) + good,
	              struct.pack("<QB", 200001, 0) + b"[" * 200000,
	              os.urandom(4096)):
	    s = socket.create_connection(("127.0.0.1", port), 5)
	    s.sendall(noise)
	    held.append(s)
	EOF
	accepts
}

# ---- the mount, answered wrongly ----

# lied_to [OPTIONS]: segment "one" of a real exporter, whose handshakes go
# through a liar.
lied_to() {
	start_exporter one --protocol rdma --nic "${NIC[0]}" \
		--buffer size=256K,location=cpu:0,fill=offset
	start_liar liar --forward "$(rpc_port one)" --as one
	put_like two one "$PORT"
	mount_segfs "nic=${NIC[0]},${1:-timeout=3}"
	F=$MNT/two/$(address one)
}

# refused MODE TEXT...: reading fails in time, and status says each TEXT.
refused() {
	local m=$1 text status
	shift
	mode liar "$m"
	elapsed fails dd if="$F" of=/dev/null bs=64K count=1 status=none
	within 5500
	status=$(status_of two)
	echo "$m: $ERR: $(grep -iE 'error|fail|handshake' <<<"$status" |
		head -3)" >&2
	for text; do
		[[ $status == *"$text"* ]] || {
			echo "$m: no '$text' in: $status" >&2
			return 1
		}
	done
}

# heals: an honest answer is accepted at once.
heals() {
	mode liar honest
	wait_for 15 cmp -n 65536 "$F" <(pattern 65536)
}

@test "the liar can be honest" {
	lied_to
	soon cmp "$F" <(pattern 262144)
	grep -q '^request.*"qp_num": \[' "$(out_of liar)"
	# Never an acknowledgement that was not agreed upon.
	run -1 grep -q ready_ack "$(out_of liar)"
}

@test "replies with wrong paths are refused, and the next right one is not" {
	lied_to
	local m
	for m in wrong-device wrong-server wrong-peer swapped; do
		refused $m handshake
		heals
		unmount
		mount_segfs "nic=${NIC[0]},timeout=3"
	done
}

@test "replies with another number of QPs are refused" {
	lied_to
	local m
	for m in fewer-qps more-qps no-qps big-qp text-qps; do
		refused $m handshake
	done
	heals
}

@test "a refusal that names another number of QPs is obeyed once" {
	lied_to
	mode liar wants-qps-5
	soon cmp "$F" <(pattern 262144)
	[ "$(grep '^request' "$(out_of liar)" | tail -1 | cut -d' ' -f2- |
		jq '.qp_num | length')" = 5 ]
}

@test "bad GID texts are refused" {
	lied_to
	local m
	for m in gid-15 gid-17 gid-colon gid-newline gid-text gid-letters \
		gid-wide gid-zero; do
		refused $m handshake
	done
	heals
}

@test "a reason is shown word for word, without its control bytes" {
	lied_to
	refused reject "Peer nic not found in that server"
	mode liar reject-long
	fails dd if="$F" of=/dev/null bs=64K count=1 status=none
	status_of two >status
	[ "$(wc -c <status)" -lt 20000 ]
	run -1 grep -q $'\x1b' status
	run -1 grep -q $'\x1b' "$(log_of segfs)"
	heals
}

@test "null, empty and foreign replies are refused" {
	lied_to
	local m
	for m in null empty-object empty-strings array number-path kind; do
		refused $m handshake
	done
	heals
}

# let_read_only USER: the store has users from now on, and this one only reads.
let_read_only() {
	soon etcdctl user add root:secret
	soon etcdctl user add "$1:secret"
	soon etcdctl role add reader
	soon etcdctl role grant-permission reader read --prefix=true mooncake/
	soon etcdctl user grant-role "$1" reader
	soon etcdctl user grant-role root root || {
		soon etcdctl role add root
		soon etcdctl user grant-role root root
	}
	soon etcdctl auth enable
}

@test "null from a peer and no right to write: status says what to do" {
	start_etcd users
	start_exporter one --protocol rdma --nic "${NIC[0]}" --lease 0 \
		--buffer size=256K,location=cpu:0
	start_liar liar
	put_like two one "$PORT"
	stop one
	mode liar null
	let_read_only me
	echo secret >password
	mount_segfs "nic=${NIC[0]},timeout=3,user=me,password_file=password"
	fails dd if="$MNT/two/$(address one)" of=/dev/null bs=64K count=1 \
		status=none
	status_of two | tee status >&2
	grep -q 'metadata: the peer refused and gave no reason' status
	grep -q 'permission denied' status
	[ "$(grep -c 'cannot be put' "$(log_of segfs)")" = 1 ]
	[ -z "$(soon etcdctl --user root:secret get --prefix --keys-only \
		mooncake/segfs/)" ]
	[ "$(soon etcdctl --user root:secret lease list)" = "found 0 leases" ]
}

@test "half a frame, none at all, and noise are refused" {
	lied_to
	local m
	for m in half close not-json http huge; do
		refused $m handshake
	done
	heals
}

@test "silence and one byte a time are bounded, others do not wait" {
	lied_to timeout=4
	soon head -c 8 "$(buffer one)" >/dev/null
	local m
	for m in silence late-half trickle; do
		mode liar $m
		dd if="$F" of=/dev/null bs=64K count=1 status=none 2>err 3>&- &
		local dd=$!
		elapsed soon cmp -n 65536 "$(buffer one)" <(pattern 65536)
		within 2000
		elapsed wait_for 12 is_gone $dd
		wait $dd && false
		grep -qE 'timed out|Protocol error|Input/output' err
	done
	heals
}

@test "an answer that is right but for its QPs: an error in time" {
	start_exporter one --protocol rdma --nic "${NIC[0]}" \
		--buffer size=256K,location=cpu:0,fill=offset
	start_liar liar
	put_like two one "$PORT"
	mount_segfs "nic=${NIC[0]},timeout=4"
	elapsed fails dd if="$MNT/two/$(address one)" of=/dev/null bs=64K \
		count=1 status=none
	within 8000
	status_of two >&2
	[[ $(status_of two) == *RETRY_EXC* ]]
}

# ---- segctl probe ----

# probe SEGMENT: the steps and what came of each go to $output, a line each.
probe() {
	run --separate-stderr soon segctl --metadata "$ETCD" \
		--nic "${NIC[0]}" --timeout 3 probe "$1"
	echo "$output" "$stderr" >&2
	STEPS=$(awk '/^[a-zA-Z]+ +(ok|failed) / { printf "%s %s,", $1, $2 }' \
		<<<"$output")
}

@test "probe goes through all stages" {
	lied_to
	local all="metadata ok,resolve ok,connect ok,handshake ok,INIT ok,"
	all+="RTR ok,RTS ok,completion ok,"
	probe one
	[ "$status" = 0 ]
	[ "$STEPS" = "$all" ]
	[[ $output == *"${NIC[0]} -> one@${NIC[0]}"*mtu* ]]
	probe two
	[ "$status" = 0 ]
	[ "$STEPS" = "$all" ]
	segctl --metadata "$ETCD" --nic "${NIC[0]}" probe --json one |
		jq -e '.ok and (.steps | length) == 8 and all(.steps[]; .ok)'
}

@test "probe says which stage failed, in the peer's words" {
	lied_to
	mode liar reject
	probe two
	[ "$status" = 5 ]
	[ "$STEPS" = "metadata ok,resolve ok,connect ok,handshake failed," ]
	[[ $output == *"the peer says: Peer nic not found in that server" ]]
	mode liar silence
	probe two
	[ "$status" = 5 ]
	[ "$STEPS" = "metadata ok,resolve ok,connect ok,handshake failed," ]
	# Nobody is there.
	mode liar honest
	owner_at two "$(free_port)"
	probe two
	[ "$status" = 5 ]
	[ "$STEPS" = "metadata ok,resolve ok,connect failed," ]
	[[ $output == *refused ]]
	run -5 --separate-stderr soon segctl --metadata "$ETCD" \
		--nic "${NIC[0]}" probe --json two
	jq -e '.ok == false and .steps[-1].step == "connect"' <<<"$output"
}

@test "probe of a killed exporter ends at its handshake port" {
	start_exporter one --protocol rdma --nic "${NIC[0]}" \
		--buffer size=64K,location=cpu:0
	local segment rpc
	segment=$(stored one)
	rpc=$(soon etcdctl get --print-value-only mooncake/rpc_meta/one)
	stop one KILL || :
	put mooncake/ram/one "$segment"
	put mooncake/rpc_meta/one "$rpc"
	probe one
	[ "$status" = 5 ]
	[ "$STEPS" = "metadata ok,resolve ok,connect failed," ]
	[[ $output == *refused ]]
}

@test "nothing of all this leaves a QP" {
	start_exporter one --protocol rdma --nic "${NIC[0]}" \
		--buffer size=256K,location=cpu:0,fill=offset
	start_liar liar
	put_like two one "$PORT"
	mount_segfs "nic=${NIC[0]},timeout=3"
	F=$MNT/two/$(address one)
	local m
	for m in wrong-peer more-qps gid-15 reject null half; do
		refused $m
	done
	wait_for 15 are_qps 0
}
