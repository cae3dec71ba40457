#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Peers that stop, die, or never were: who waits, for how long, and what goes on.

load helper

SIZE=16777216

setup() {
	common_setup
	start_exporter sick --buffer size=$SIZE,location=cpu:0,fill=offset
	start_exporter well --buffer size=$SIZE,location=cpu:0,fill=offset
	mount_segfs timeout=2
	SICK=$(buffer sick)
	WELL=$(buffer well)
}

# Read the well one until told to stop; its slowest read in ms.
keep_reading_well() {
	python3 - "$WELL" "$BATS_TEST_TMPDIR/enough" <<-'EOF' 3>&- &
	import os, sys, time
	f, worst, n = os.open(sys.argv[1], os.O_RDONLY), 0, 0
	while not os.path.exists(sys.argv[2]):
	    t = time.monotonic()
	    assert len(os.pread(f, 65536, n % 200 * 65536)) == 65536
	    worst, n = max(worst, time.monotonic() - t), n + 1
	    time.sleep(.005)
	open("worst", "w").write(f"{int(worst * 1000)} {n}\n")
	EOF
	WELL_PID=$!
}

well_was_well() {
	touch "$BATS_TEST_TMPDIR/enough"
	wait "$WELL_PID"
	local worst n
	read -r worst n <worst
	echo "slowest of $n reads of the other segment: $worst ms"
	[ "$n" -gt 20 ]
	[ "$worst" -lt 1000 ]
}

@test "a stopped peer costs its readers one deadline and nobody else anything" {
	keep_reading_well
	signal sick STOP
	elapsed run ! timeout -k 1 20 dd if="$SICK" of=/dev/null bs=1M
	[[ $output == *"Connection timed out"* ]]
	[ "$MS" -ge 1500 ]
	within 4500
	elapsed timeout 2 ls -l "$MNT" "$MNT/sick" "$MNT/well" >/dev/null
	within 1000
	timeout 2 df "$MNT" >/dev/null
	timeout 2 cat "$MNT/sick/.segfs/status" "$MNT/.segfs/status" >/dev/null
	well_was_well
	signal sick CONT
}

@test "a suspect peer fails fast, and works again by itself" {
	signal sick STOP
	run ! timeout -k 1 20 head -c 1 "$SICK"
	elapsed run ! timeout -k 1 20 head -c 1 "$SICK"
	[[ $output == *"timed out"* ]]
	within 1000
	run -0 status_of sick
	[[ ${output,,} == *suspect* || ${output,,} == *"timed out"* ]]
	signal sick CONT
	wait_for 5 soon head -c 1 "$SICK"
	[ "$(sha_of "$SICK")" = "$(pattern $SIZE | sha)" ]
}

@test "a transfer that a stop only delays completes" {
	signal sick STOP
	(sleep 1; kill -CONT "$(pid_of sick)") 3>&- &
	[ "$(sha_of "$SICK")" = "$(pattern $SIZE | sha)" ]
	wait $!
}

@test "Ctrl-C ends a stuck read after a second" {
	unmount
	mount_segfs timeout=30
	soon head -c 1 "$SICK" >/dev/null
	signal sick STOP
	local sig
	for sig in INT TERM KILL; do
		elapsed run timeout -s $sig -k 10 0.5 dd if="$SICK" \
			of=/dev/null bs=1M
		[ "$MS" -ge 1000 ]
		within 3500
	done
	signal sick CONT
}

@test "Ctrl-C ends a stuck write after a second" {
	unmount
	mount_segfs timeout=30
	soon head -c 1 "$SICK" >/dev/null
	signal sick STOP
	elapsed run timeout -s INT -k 10 0.5 dd if=/dev/zero of="$SICK" bs=1M \
		conv=notrunc
	within 3500
	signal sick CONT
}

@test "no transfer to others waits for those stuck on a stopped peer" {
	unmount
	mount_segfs timeout=5
	keep_reading_well
	signal sick STOP
	local i pids=()
	for i in {1..32}; do
		timeout -k 1 20 dd if="$SICK" of=/dev/null bs=1M count=1 \
			skip=$((i % 16)) 2>/dev/null 3>&- &
		pids+=($!)
	done
	sleep 2
	elapsed soon dd if="$WELL" of=/dev/null bs=1M status=none
	within 2000
	elapsed timeout 2 ls "$MNT/sick" >/dev/null
	within 1000
	for i in "${pids[@]}"; do
		wait "$i" || :
	done
	well_was_well
	signal sick CONT
}

@test "a killed peer is an error at once" {
	exec 8<"$SICK"
	soon head -c 4096 <&8 >/dev/null
	stop sick KILL
	elapsed run ! timeout -k 1 20 dd bs=1M count=1 of=/dev/null <&8
	within 4000
	[[ $output == *"Connection refused"* || $output == *"timed out"* ]]
	elapsed run ! timeout -k 1 20 head -c 1 "$SICK"
	within 4000
	exec 8<&-
	[ "$(sha_of "$WELL")" = "$(pattern $SIZE | sha)" ]
}

@test "killed in the middle of a long read" {
	(timeout -k 1 30 dd if="$SICK" of=/dev/null bs=64K 2>dd.err &&
		touch dd.ok) 3>&- &
	stop sick KILL
	wait $! || :
	# It may have been quicker than the kill, but never short and content.
	[ ! -e dd.ok ] || grep -q "$SIZE bytes" dd.err
}

@test "nobody listening is Connection refused, and later all is well" {
	local port
	port=$(free_port)
	put_segment late "$(descriptor late "$port" 2 65536:8192)"
	elapsed gives_error ECONNREFUSED head -c 1 "$MNT/late/0x10000"
	within 4000
	[ "$(stat -c %s "$MNT/late/0x10000")" = 8192 ]
	run -0 status_of late
	[[ ${output,,} == *refused* ]]
	start_fake late --port "$port" --addr 65536
	[ "$(sha_of "$MNT/late/0x10000")" = "$(pattern 8192 | sha)" ]
}

@test "a black hole times out and holds nobody up" {
	start_fake hole --black-hole
	put_segment hole "$(descriptor hole "$PORT" 2 65536:8192)"
	keep_reading_well
	elapsed run ! timeout -k 1 20 head -c 1 "$MNT/hole/0x10000"
	[[ $output == *"timed out"* ]]
	within 5000
	elapsed run timeout -s INT -k 5 0.5 head -c 1 "$MNT/hole/0x10000"
	within 3000
	timeout 2 ls -lR "$MNT/hole" >/dev/null
	well_was_well
}

@test "five black holes among ten segments freeze neither ls nor find nor df" {
	start_fake hole --black-hole
	local i pids=()
	for i in 1 2 3 4 5; do
		put_segment "hole$i" "$(descriptor x "$PORT" 2 65536:8192)"
	done
	for i in 1 2 3 4 5; do
		timeout -k 1 20 cat "$MNT/hole$i/0x10000" 2>/dev/null 3>&- &
		pids+=($!)
	done
	sleep 0.2
	elapsed timeout 3 ls -l "$MNT" >/dev/null
	elapsed timeout 3 find "$MNT" -maxdepth 2 >/dev/null
	timeout 3 df "$MNT" >/dev/null
	within 2000
	# kill -9 of a reader, and an unmount during stuck reads.
	timeout -s KILL 0.3 cat "$MNT/hole1/0x10000" || :
	timeout 3 fusermount3 -uz "$MNT"
	wait_for 10 is_gone "$(pid_of segfs)"
	for i in "${pids[@]}"; do
		wait "$i" || :
	done
}

@test "a peer that accepts and says nothing times out" {
	start_fake mute --addr 65536 --mode silent
	put_segment mute "$(descriptor mute "$PORT" 2 65536:8192)"
	elapsed gives_error ETIMEDOUT head -c 1 "$MNT/mute/0x10000"
	within 5000
	mode mute drip
	elapsed fails head -c 8192 "$MNT/mute/0x10000"
	within 5000
}

@test "SIGTERM ends the daemon while a read is stuck" {
	unmount
	mount_segfs timeout=60
	soon head -c 1 "$SICK" >/dev/null
	signal sick STOP
	timeout -k 1 30 cat "$SICK" >/dev/null 2>&1 3>&- &
	sleep 0.3
	elapsed stop segfs TERM
	[ "$STATUS" = 0 ]
	within 3500
	[ "$(mount_count)" = 0 ]
	signal sick CONT
	wait $! || :
}

@test "an exporter restarted under the same name is found, old handles are stale" {
	exec 8<"$SICK"
	soon head -c 4096 <&8 >/dev/null
	stop sick
	start_exporter sick --buffer size=$SIZE,location=cpu:0,fill=offset
	wait_for 5 test -e "$(buffer sick)"
	[ "$(sha_of "$(buffer sick)")" = "$(pattern $SIZE | sha)" ]
	gives_error ESTALE dd bs=4096 count=1 of=/dev/null status=none <&8
	exec 8<&-
}
