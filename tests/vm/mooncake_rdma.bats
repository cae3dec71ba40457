#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=plain
# The published Mooncake Transfer Engine over RDMA as the other side, both ways.

load helper

setup_file() {
	common_setup_file
	require_mooncake
}

SIZES="1 7 4096 65537 1048575 3000001"

@test "two Mooncake processes reach each other over these devices" {
	start_mooncake_rdma mc1 --buffer 3000000
	start_mooncake_rdma mc2 --buffer 3000000
	ask mc1 fill 0 7
	moved_by ask mc2 read mc1 "$(address mc1 0)" 0 0 3000000
	[ "$(ask mc1 sha 0)" = "$(ask mc2 sha 0)" ]
	[ $((MOVED[0] + ${MOVED[1]:-0})) -gt 500 ]
}

# ---- Mooncake is the target, we read and write ----

# mount_mooncake BUFFERS...: a Mooncake "mc" and a mount that sees it.
mount_mooncake() {
	local b args=()
	for b; do
		args+=(--buffer "$b")
	done
	start_mooncake_rdma mc "${args[@]}"
	mount_rdma timeout=10
}

@test "sha256sum of its file is the digest of its memory" {
	mount_mooncake 8000001,cpu:0 5000,cpu:1
	ask mc fill 0 1
	ask mc fill 1 2
	local i
	for i in 0 1; do
		[ "$(sha_of "$(buffer mc $i)")" = "$(ask mc sha $i)" ]
	done
	[[ $(status_of mc) == *rdma* ]]
	unmount
	segctl --metadata "$ETCD" get --quiet mc "$(address mc 0)" | sha >digest
	[ "$(cat digest)" = "$(ask mc sha 0)" ]
}

@test "what we write is in its memory, every size, nothing else" {
	mount_mooncake 4000000,cpu:0
	ask mc fill 0 3
	local n src f
	f=$(buffer mc 0)
	soon cat "$f" >model
	for n in $SIZES; do
		src=$(scratch src "$n")
		soon dd if="$src" of="$f" bs=1M oflag=seek_bytes seek=4321 \
			conv=notrunc,fsync status=none
		dd if="$src" of=model bs=1M oflag=seek_bytes seek=4321 \
			conv=notrunc status=none
		[ "$(sha <model)" = "$(ask mc sha 0)" ]
	done
}

@test "two devices carry what is read from it and written to it" {
	require_rdma 2
	mount_mooncake 16000000
	ask mc fill 0 4
	local src
	moved_by soon cp "$(buffer mc 0)" copy
	about_half 25
	[ "$(sha <copy)" = "$(ask mc sha 0)" ]
	src=$(scratch src 16000000)
	moved_by soon dd if="$src" of="$(buffer mc 0)" bs=1M \
		conv=notrunc,fsync status=none
	about_half 25
	[ "$(sha <"$src")" = "$(ask mc sha 0)" ]
}

@test "memory registered anew under an open handle is ESTALE, others are not" {
	mount_mooncake 1000000,cpu:0 1000000,cpu:1
	ask mc fill 0 5
	ask mc fill 1 6
	exec 8<"$(buffer mc 0)" 9<"$(buffer mc 1)"
	soon head -c 1000 <&8 >/dev/null
	soon head -c 1000 <&9 >/dev/null
	ask mc unregister 0
	ask mc register 0
	run ! soon head -c 4096 <&8
	[[ $output == *"Stale file handle"* ]]
	soon head -c 4096 <&9 >/dev/null
	exec 8<&- 9<&-
	[ "$(sha_of "$(buffer mc 0)")" = "$(ask mc sha 0)" ]
}

@test "restarted under an open handle: ESTALE, and a new open reads the new" {
	mount_mooncake 1000000
	ask mc fill 0 5
	[ "$(sha_of "$(buffer mc 0)")" = "$(ask mc sha 0)" ]
	exec 9<"$(buffer mc 0)"
	soon head -c 1000 <&9 >/dev/null
	stop mc KILL || :
	start_mooncake_rdma mc --buffer 1000000
	ask mc fill 0 6
	run ! soon head -c 4096 <&9
	[[ $output == *"Stale file handle"* ]]
	exec 9<&-
	wait_for 15 test -e "$(buffer mc 0)"
	[ "$(sha_of "$(buffer mc 0)")" = "$(ask mc sha 0)" ]
}

@test "a Mooncake with another number of QPs is adapted to" {
	export MC_NUM_QP_PER_EP=4
	start_mooncake_rdma mc --buffer 1000000
	unset MC_NUM_QP_PER_EP
	ask mc fill 0 7
	mount_rdma timeout=10
	[ "$(sha_of "$(buffer mc 0)")" = "$(ask mc sha 0)" ]
}

@test "Mooncake gone while we read: an error in time, not a hang" {
	mount_mooncake 1000000
	F=$(buffer mc 0)
	soon cat "$F" >/dev/null
	exec 9<"$F"
	stop mc KILL || :
	elapsed fails dd of=/dev/null bs=1M status=none <&9
	echo "$ERR" >&2
	within 15000
	exec 9<&-
}

# ---- Mooncake reads and writes what we export ----

# at ADDRESS OFFSET
at() {
	printf '%#x' $(($1 + $2))
}

@test "Mooncake reads our memory, every size, at odd addresses" {
	start_rdma one --buffer size=4M,location=cpu:0,fill=offset
	start_mooncake_rdma mc --buffer 4194304
	local n a
	a=$(address one)
	for n in $SIZES; do
		ask mc read one "$(at "$a" 333)" 0 11 "$n"
		[ "$(ask mc sha 0 11 "$n")" = "$(pattern "$n" 333 | sha)" ]
	done
}

write_pieces() {
	local at
	for ((at = 0; at < 8388608; at += 524288)); do
		ask mc write one "$(at "$1" $at)" 0 $at 524288
	done
}

@test "Mooncake writes our memory, both devices take part" {
	start_rdma one --buffer size=8M,location=cpu:0
	start_mooncake_rdma mc --buffer 8388608
	local a
	a=$(address one)
	ask mc fill 0 9
	moved_by write_pieces "$a"
	echo "moved: ${MOVED[*]}" >&2
	# It chooses a device of its own by chance for each request.
	[ "${MOVED[0]}" -gt 100 ]
	[ "${MOVED[1]:-101}" -gt 100 ]
	ask mc add 8388608
	ask mc read one "$a" 1 0 8388608
	[ "$(ask mc sha 1)" = "$(ask mc sha 0)" ]
}

@test "a mount and a Mooncake use one exporter at the same time" {
	start_rdma one --buffer size=4M,location=cpu:0,fill=offset
	start_mooncake_rdma mc --buffer 4194304
	mount_rdma
	ask mc fill 0 11
	ask mc write one "$(address one)" 0 0 2000000
	soon cat "$(buffer one)" >all
	[ "$(head -c 2000000 all | sha)" = "$(ask mc sha 0 0 2000000)" ]
	tail -c +2000001 all | cmp - <(pattern 2194304 2000000)
	head -c 100000 /dev/urandom >src
	soon dd if=src of="$(buffer one)" bs=1M conv=notrunc,fsync status=none
	ask mc read one "$(address one)" 0 0 100000
	[ "$(ask mc sha 0 0 100000)" = "$(sha <src)" ]
}
