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

# ---- Mooncake is the target, we read and write ----

# mount_mooncake BUFFERS...: a Mooncake "mc" and a mount that sees it.
mount_mooncake() {
	local b args=()
	for b; do
		args+=(--buffer "$b")
	done
	start_mooncake mc "${args[@]}"
	mount_segfs timeout=3
}

@test "a Mooncake process is a directory with its buffers" {
	mount_mooncake 4096,cpu:0 5000,cpu:1 1048576
	run -0 ls "$MNT/mc"
	[ "${#lines[@]}" = 3 ]
	[ "$(stat -c %s "$(buffer mc 0)")" = 4096 ]
	[ "$(stat -c %s "$(buffer mc 1)")" = 5000 ]
	[ "$(stat -c %s "$(buffer mc 2)")" = 1048576 ]
	cmp <(etcdctl get --print-value-only mooncake/ram/mc | head -c -1) \
		"$MNT/mc/.segfs/segment.json"
	[[ $(status_of mc) == *tcp* ]]
}

@test "we read what Mooncake has, in every size and at odd offsets" {
	local i=0 n sizes=()
	for n in $SIZES; do
		sizes+=("$n")
	done
	mount_mooncake "${sizes[@]}"
	for n in "${sizes[@]}"; do
		ask mc fill $i $((i + 1))
		[ "$(sha_of "$(buffer mc $i)")" = "$(ask mc sha $i)" ]
		if [ "$n" -gt 4000 ]; then
			soon dd if="$(buffer mc $i)" of=part bs=$((n / 3)) \
				count=1 iflag=skip_bytes skip=1237 status=none
			[ "$(sha <part)" = "$(ask mc sha $i 1237 $((n / 3)))" ]
		fi
		i=$((i + 1))
	done
}

@test "256 MiB are the same on both sides, read by us" {
	mount_mooncake 268435456
	ask mc fill 0 42
	SOON=60 soon dd if="$(buffer mc)" bs=1M of=copy status=none
	[ "$(sha <copy)" = "$(ask mc sha 0)" ]
	SOON=60 soon dd if="$(buffer mc)" bs=1000003 status=none iflag=direct \
		of=copy
	[ "$(sha <copy)" = "$(ask mc sha 0)" ]
}

@test "we write, Mooncake has it" {
	mount_mooncake 1 4097 3000001
	local i src n=(1 4097 3000001)
	for i in 0 1 2; do
		src=$(scratch src "${n[i]}")
		soon cp "$src" "$(buffer mc $i)"
		[ "$(ask mc sha $i)" = "$(sha <"$src")" ]
	done
	ask mc fill 2 5
	printf 'odd bytes' | soon dd of="$(buffer mc 2)" bs=9 count=1 \
		oflag=seek_bytes seek=1234567 conv=notrunc status=none
	[ "$(ask mc peek 2 1234567 9)" = "$(printf 'odd bytes' | xxd -p)" ]
	run -1 soon dd if=/dev/zero of="$(buffer mc 1)" bs=10 count=1 \
		oflag=seek_bytes seek=4090 conv=notrunc
	[[ $output == *"7 bytes copied"* ]]
}

@test "cp of 100 MiB in, read back by the process" {
	mount_mooncake 104857601
	local src
	src=$(scratch src 104857600)
	SOON=60 soon cp "$src" "$(buffer mc)"
	[ "$(ask mc sha 0 0 104857600)" = "$(sha <"$src")" ]
	[ "$(ask mc peek 0 104857600 1)" = 00 ]
}

@test "what Mooncake changes is read at once, what it registers is seen at once" {
	mount_mooncake 4096
	exec 8<"$(buffer mc)"
	ask mc poke 0 0 616263
	[ "$(soon head -c 3 <&8)" = abc ]
	ask mc poke 0 3 646566
	[ "$(soon head -c 3 <&8)" = def ]
	exec 8<&-
	local a
	a=$(ask mc add 8192 cpu:0 | cut -d' ' -f1)
	wait_for 2 test -e "$MNT/mc/$a"
	ask mc unregister 1
	wait_for 2 bash -c "! test -e '$MNT/mc/$a'"
	[ -e "$(buffer mc)" ]
}

@test "a buffer that was unregistered is stale for who has it open" {
	mount_mooncake 4096 8192
	exec 8<"$(buffer mc 1)"
	soon head -c 1 <&8 >/dev/null
	ask mc unregister 1
	sleep 0.5
	gives_error ESTALE head -c 1 <&8
	exec 8<&-
	soon cat "$(buffer mc 0)" >/dev/null
}

@test "a Mooncake restarted under its name is found, the old handle is stale" {
	mount_mooncake 65536
	ask mc fill 0 1
	exec 8<"$(buffer mc)"
	soon head -c 1 <&8 >/dev/null
	stop mc KILL
	start_mooncake mc --buffer 65536
	ask mc fill 0 2
	wait_for 5 test -e "$(buffer mc)"
	[ "$(sha_of "$(buffer mc)")" = "$(ask mc sha 0)" ]
	gives_error ESTALE head -c 1 <&8
	exec 8<&-
}

@test "a stopped Mooncake times out, a continued one works" {
	mount_mooncake 1048576
	ask mc fill 0 3
	soon head -c 1 "$(buffer mc)" >/dev/null
	signal mc STOP
	elapsed gives_error ETIMEDOUT cat "$(buffer mc)"
	within 6000
	timeout 2 ls "$MNT/mc" >/dev/null
	signal mc CONT
	wait_for 6 soon cat "$(buffer mc)"
	[ "$(sha_of "$(buffer mc)")" = "$(ask mc sha 0)" ]
}

@test "a segment that went away in order is gone" {
	mount_mooncake 4096
	soon stat "$(buffer mc)" >/dev/null
	stop_mooncake mc
	wait_for 3 bash -c "! stat '$MNT/mc' 2>/dev/null"
}

@test "segctl gets and puts without a mount" {
	start_mooncake mc --buffer 300001
	ask mc fill 0 9
	soon segctl --metadata "$ETCD" get mc "$(address mc)" -o out
	[ "$(sha <out)" = "$(ask mc sha 0)" ]
	scratch src 300001 >/dev/null
	soon segctl --metadata "$ETCD" put mc "$(address mc)" -i src
	[ "$(sha <src)" = "$(ask mc sha 0)" ]
	soon segctl --metadata "$ETCD" probe mc
}

# ---- our exporter is the target, Mooncake reads and writes ----

@test "Mooncake reads what we export, in every size and at odd offsets" {
	local n i=0 args=()
	for n in $SIZES; do
		args+=(--buffer "size=$n,location=cpu:0,fill=offset")
	done
	start_exporter exp "${args[@]}"
	start_mooncake mc --buffer 4000000
	[ "$(ask mc first exp)" = "$(address exp 0)" ]
	for n in $SIZES; do
		ask mc read exp "$(address exp $i)" 0 3 "$n"
		[ "$(ask mc sha 0 3 "$n")" = "$(pattern "$n" | sha)" ]
		if [ "$n" -gt 4000 ]; then
			ask mc read exp "$(($(address exp $i) + 1237))" 0 0 \
				$((n / 3))
			[ "$(ask mc sha 0 0 $((n / 3)))" = \
				"$(pattern $((n / 3)) 1237 | sha)" ]
		fi
		i=$((i + 1))
	done
}

@test "Mooncake writes, we have it" {
	start_exporter exp --buffer size=3000001,location=cpu:0,fill=offset
	start_mooncake mc --buffer 1000003
	mount_segfs
	ask mc fill 0 11
	ask mc write exp "$(address exp)" 0 0 1000003
	[ "$(soon head -c 1000003 "$(buffer exp)" | sha)" = "$(ask mc sha 0)" ]
	ask mc write exp "$(($(address exp) + 1999999))" 0 1 1000002
	[ "$(soon tail -c 1000002 "$(buffer exp)" | sha)" = \
		"$(ask mc sha 0 1 1000002)" ]
	ask mc write exp "$(($(address exp) + 1500000))" 0 0 1
	[ "$(soon dd if="$(buffer exp)" bs=1 count=1 iflag=skip_bytes \
		skip=1500000 status=none | xxd -p)" = "$(ask mc peek 0 0 1)" ]
}

@test "256 MiB are the same on both sides, moved by Mooncake" {
	start_exporter exp --buffer size=256M,location=cpu:0,fill=offset
	start_mooncake mc --buffer 268435456
	ask mc read exp "$(address exp)" 0 0 268435456
	[ "$(ask mc sha 0)" = "$(pattern 268435456 | sha)" ]
	ask mc fill 0 12
	ask mc write exp "$(address exp)" 0 0 268435456
	SOON=60 soon segctl --metadata "$ETCD" get exp "$(address exp)" -o copy
	[ "$(sha <copy)" = "$(ask mc sha 0)" ]
}

@test "Mooncake is refused what we do not export" {
	start_exporter exp --buffer size=8192,location=cpu:0,fill=offset \
		--buffer size=8192,location=cpu:0,ro
	start_mooncake mc --buffer 65536
	run -1 ask mc read exp "$(($(address exp) + 1))" 0 0 8192
	run -1 ask mc read exp 0x10000 0 0 16
	run -1 ask mc write exp "$(address exp 1)" 0 0 16
	ask mc read exp "$(address exp 1)" 0 0 8192
	ask mc read exp "$(address exp 0)" 0 0 8192
}

@test "our exporter answers Mooncake's probe" {
	start_exporter exp --buffer size=8192,location=cpu:0
	start_mooncake mc --buffer 4096
	ask mc probe exp
}

@test "both at once: Mooncake writes while we read elsewhere" {
	start_exporter exp --buffer size=64M,location=cpu:0,fill=offset
	start_mooncake mc --buffer 33554432
	mount_segfs
	ask mc fill 0 13
	(for _ in 1 2 3; do
		soon dd if="$(buffer exp)" bs=1M count=32 status=none | sha
	done >shas) 3>&- &
	local reader=$!
	for _ in 1 2 3; do
		ask mc write exp "$(($(address exp) + 33554432))" 0 0 33554432
	done
	wait $reader
	[ "$(sort -u shas)" = "$(pattern 33554432 | sha)" ]
	[ "$(soon tail -c 33554432 "$(buffer exp)" | sha)" = "$(ask mc sha 0)" ]
}
