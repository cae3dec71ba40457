# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# More verbs: RDMA devices, and processes that use them. Without the guest the
# tests run with the devices of SEGFS_TEST_NICS; those that take a device down
# or change its network are for Soft-RoCE only.

load ../interop/helper

IFS=, read -ra NIC <<<"${SEGFS_TEST_NICS:-rxe0,rxe1}"
# As an option of a mount, whose own separator is the comma.
NICS=$(IFS=:; echo "${NIC[*]}")

require_rdma() {
	local n
	for n in "${NIC[@]:0:${1:-1}}"; do
		[ -e "/sys/class/infiniband/$n" ] ||
			skip "no RDMA device $n"
	done
	[ ${#NIC[@]} -ge "${1:-1}" ] || skip "needs $1 RDMA devices"
}

# Something is done to the devices that nobody does to real ones.
require_soft_roce() {
	require_rdma 2
	[ "${NIC[*]}" = "rxe0 rxe1" ] && [ -e /sys/class/net/veth0 ] ||
		skip "needs the Soft-RoCE devices of tests/vm/rxe"
}

# Each test skips by itself: bats 1.8 takes a file for failed whose setup_file
# does and that has a teardown_file.
setup() {
	require_rdma
	common_setup
}

# start_rdma NAME ARGS...: an exporter over all devices.
start_rdma() {
	local name=$1
	shift
	start_exporter "$name" --protocol rdma --nic "$NICS" "$@"
}

# mount_rdma [OPTS [ARGS...]]
mount_rdma() {
	local opts=nic=$NICS${1:+,$1}
	[ $# -gt 0 ] && shift
	mount_segfs "$opts" "$@"
}

# start_mooncake_rdma NAME ARGS...
start_mooncake_rdma() {
	start_mooncake "$@" --rdma "$(IFS=,; echo "${NIC[*]}")"
}

# ---- looking ----

# moved DEVICE: how much went through it so far; packets, or words on real ones.
moved() {
	local port=/sys/class/infiniband/$1/ports/1
	if [ -e "$port/hw_counters/sent_pkts" ]; then
		cat "$port"/hw_counters/{sent,rcvd}_pkts
	else
		cat "$port"/counters/port_{xmit,rcv}_data
	fi | awk '{ n += $1 } END { print n + 0 }'
}

# moved_by CMD...: what it moved over each device goes to ${MOVED[@]}.
moved_by() {
	local before=() i
	for i in "${!NIC[@]}"; do
		before[i]=$(moved "${NIC[i]}")
	done
	"$@" || return
	MOVED=()
	for i in "${!NIC[@]}"; do
		MOVED[i]=$(($(moved "${NIC[i]}") - before[i]))
	done
}

# about_half: of MOVED, as far as tests of a few MB can tell.
about_half() {
	local sum=$((MOVED[0] + MOVED[1]))
	echo "moved: ${MOVED[*]}" >&2
	[ $((MOVED[0] * 100)) -ge $((sum * ${1:-40})) ] &&
		[ $((MOVED[1] * 100)) -ge $((sum * ${1:-40})) ]
}

# resources: how many of each kind exist on all devices: "qp 4 mr 6 pd 2 ...".
resources() {
	rdma resource show | awk '{
		for (i = 3; i < NF; i += 2)
			n[$i] += $(i + 1)
	} END {
		print "qp", n["qp"] + 0, "mr", n["mr"] + 0, "pd", n["pd"] + 0, \
			"cq", n["cq"] + 0
	}'
}

# nr_qps [DEVICE]: of programs.
nr_qps() {
	rdma resource show qp ${1:+link "$1"} | grep -c 'type RC' || :
}

are_qps() {
	[ "$(nr_qps)" = "$1" ]
}

# The kernel frees some a moment after their owner's end.
resources_are() {
	[ "$(resources)" = "$1" ]
}

# digest_of NAME [I]: of what its owner has in memory, not over RDMA.
data_of() {
	segctl --metadata "$ETCD" --transport rdma get --quiet "$1" \
		"$(address "$1" "${2:-0}")"
}

# link NIC-INDEX up|down: of the network device below a Soft-RoCE device.
link() {
	ip link set "veth$1" "$2"
	# Routes go with the link.
	if [ "$2" = up ] && [ -n "$(ip rule list pref 1$1)" ]; then
		ip route replace 10.9.0.$((2 - $1)) dev "veth$1" \
			src 10.9.0.$(($1 + 1)) table 11"$1"
	fi
}

port_is() {
	grep -q "$2" "/sys/class/infiniband/$1/ports/1/state"
}

# ---- peers that lie ----

# start_liar NAME [ARGS...]: a fake handshake server; sets PORT.
start_liar() {
	local name=$1
	shift
	spawn "$name" python3 "$SEGFS_SRC/tests/vm/fake_handshake.py" serve \
		--mode-file "$(where)/$name.mode" "$@"
	wait_for 10 grep -q '^port ' "$(out_of "$name")"
	PORT=$(awk '/^port / { print $2 }' "$(out_of "$name")")
}

# owner_at NAME PORT: NAME's handshakes go to PORT from now on.
owner_at() {
	put "mooncake/rpc_meta/$1" \
		"{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":$2}"
}

# put_like NAME OF PORT: a segment NAME that says what OF says, whose handshakes
# go to PORT.
put_like() {
	put "mooncake/ram/$1" \
		"$(stored "$2" | sed "s/\"name\":\"$2\"/\"name\":\"$1\"/")"
	owner_at "$1" "$3"
}
