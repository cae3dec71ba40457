#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Data servers that lie, break off, or are old (tests/bats/lib/fake_peer.py).

load helper

# fake_segment NAME VERSION ARGS...: a segment "NAME" with one buffer.
fake_segment() {
	local name=$1 version=$2
	shift 2
	start_fake "$name" --addr 65536 "$@"
	put_segment "$name" "$(descriptor "$name" "$PORT" "$version" 65536:8192)"
	F=$MNT/$name/0x10000
}

setup() {
	common_setup
	mount_segfs timeout=2
}

@test "honest peers of both versions, and one-shot ones, are read and written" {
	local src
	src=$(scratch src 5000)
	for v in 1 2; do
		for shot in "" --one-shot; do
			fake_segment "v$v$shot" $v $shot
			[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
			soon dd if="$src" of="$F" conv=notrunc status=none
			soon cmp -n 5000 "$src" "$F"
			grep -q " v$v$" "$(out_of "v$v$shot")"
		done
	done
}

@test "a descriptor without a version is spoken to in version 1" {
	start_fake old --addr 65536
	put_segment old "$(descriptor old "$PORT" 1 65536:8192 |
		sed 's/"tcp_proto_version":1,//')"
	[ "$(sha_of "$MNT/old/0x10000")" = "$(pattern 8192 | sha)" ]
	run ! grep -q v2 "$(out_of old)"
}

@test "breaking off in mid-body is an error, never zeros or a short read" {
	fake_segment one 2
	local word
	for word in reset-mid close-mid stall-mid; do
		mode one $word
		fails cat "$F"
		run ! soon dd if="$F" bs=8192 of=out
		[ ! -s out ]
	done
	mode one ok
	wait_for 6 soon cat "$F"
	[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
}

@test "one broken connection is mended inside of the deadline" {
	fake_segment one 2
	soon cat "$F" >/dev/null
	local word
	for word in reset close reset-mid close-mid; do
		mode one once-$word
		[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
	done
	printf hello >small
	for word in drop-body reset; do
		mode one once-$word
		soon dd if=small of="$F" conv=notrunc status=none
		[ "$(soon head -c 5 "$F")" = hello ]
	done
}

@test "a peer that says OK and closes is an I/O error, and others go on" {
	start_fake gpu --addr 65536 --mode close-after-ok
	put_segment gpu '{"name":"gpu","protocol":"tcp","tcp_data_port":'"$PORT"',
		"tcp_proto_version":2,"buffers":[
		{"name":"cuda:0","addr":65536,"length":8192}]}'
	fake_segment other 2
	elapsed fails cat "$MNT/gpu/0x10000"
	[[ $ERR == *"Input/output error"* || $ERR == *"reset"* ||
		$ERR == *"timed out"* ]]
	within 5000
	[[ $(status_of gpu) == *cuda:0* ]]
	[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
}

@test "a refused range is Remote I/O error, the rest reads" {
	fake_segment one 2 --mode refuse-upper
	gives_error EREMOTEIO tail -c 100 "$F"
	[ "$(soon head -c 4096 "$F" | sha)" = "$(pattern 4096 | sha)" ]
	gives_error EREMOTEIO dd if=/dev/zero of="$F" bs=100 seek=50 count=1 \
		conv=notrunc status=none
	mode one refuse-early
	gives_error EREMOTEIO dd if=/dev/zero of="$F" bs=8192 count=1 \
		conv=notrunc status=none
	mode one ok
	[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
}

@test "a refused range whose buffer is gone meanwhile is stale" {
	fake_segment one 2
	exec 8<"$F"
	soon head -c 1 <&8 >/dev/null
	mode one refuse
	put_segment one "$(descriptor one "$PORT" 2 131072:8192)"
	sleep 0.5
	gives_error ESTALE head -c 1 <&8
	exec 8<&-
}

@test "status frames that nobody defined are errors" {
	fake_segment one 2
	local word
	for word in magic unknown; do
		mode one $word
		elapsed fails cat "$F"
		within 6000
		[[ $(status_of one) == *[a-z]* ]]
	done
	mode one half-status
	elapsed gives_error ETIMEDOUT cat "$F"
	mode one ok
	wait_for 6 soon cat "$F"
}

@test "a version 1 server behind a version 2 descriptor is noticed" {
	# It streams the payload at once; its first bytes are no status.
	cat >v1.py <<-'EOF'
	import socket, struct
	s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
	print("port", s.getsockname()[1], flush=True)
	while True:
	    c, _ = s.accept()
	    h = c.recv(24)
	    c.sendall(b"p" * struct.unpack("<Q", h[:8])[0])
	EOF
	spawn v1 python3 v1.py
	wait_for 5 grep -q port "$(out_of v1)"
	put_segment v1 "$(descriptor v1 "$(awk '{print $2}' "$(out_of v1)")" 2 \
		65536:8192)"
	elapsed fails cat "$MNT/v1/0x10000"
	within 6000
	elapsed fails head -c 4 "$MNT/v1/0x10000"
	within 6000
}

@test "more bytes than asked for poison no later read" {
	fake_segment one 2 --mode extra
	soon head -c 4096 "$F" >first || :
	mode one ok
	wait_for 6 soon cat "$F"
	[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
	[ ! -s first ] || [ "$(sha <first)" = "$(pattern 4096 | sha)" ] ||
		[ "$(sha <first)" = "$(pattern 8192 | sha)" ]
}

@test "a version 1 write that was dropped is not a success" {
	fake_segment one 1
	printf abcdefghijklmnop >small
	soon dd if=small of="$F" conv=notrunc,fsync status=none
	[ "$(soon head -c 16 "$F")" = abcdefghijklmnop ]
	local word
	for word in drop-body stall-body reset; do
		mode one $word
		fails dd if=/dev/zero of="$F" bs=8192 count=1 \
			conv=notrunc,fsync status=none
	done
}

@test "a version 2 write without an acknowledgement is not a success" {
	fake_segment one 2 --mode no-ack
	elapsed gives_error ETIMEDOUT dd if=/dev/zero of="$F" bs=100 count=1 \
		conv=notrunc status=none
	within 5000
}

@test "many reads use few connections" {
	fake_segment one 2
	soon python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDONLY)
for i in range(3000):
    assert len(os.pread(f, 100, i * 2)) == 100' "$F"
	[ "$(grep -c '^read' "$(out_of one)")" = 3000 ]
	[ "$(grep -c '^connect' "$(out_of one)")" -le 8 ]
}

@test "connections that the peer closed while idle cost nothing" {
	fake_segment one 2 --idle-close 0.3
	local i
	for i in 1 2 3 4; do
		[ "$(sha_of "$F")" = "$(pattern 8192 | sha)" ]
		sleep 0.5
	done
	[ "$(soon grep -E '^segfs_.*error.* [1-9]' "$MNT/.segfs/stats" ||
		:)" = "" ]
}

@test "a peer restarted on its port is used again by an open handle" {
	fake_segment one 2
	exec 8<"$F"
	soon head -c 1 <&8 >/dev/null
	local port=$PORT
	stop one KILL
	start_fake one --addr 65536 --port "$port"
	[ "$(soon cat "$F" | sha)" = "$(pattern 8192 | sha)" ]
	[ "$(soon head -c 8 <&8 | wc -c)" = 8 ]
	exec 8<&-
}

@test "the name taken over by another process is never read by an old handle" {
	fake_segment one 2
	exec 8<"$F"
	soon head -c 1 <&8 >/dev/null
	start_fake two --addr 131072 --size 4096
	put_segment one "$(descriptor one "$PORT" 2 131072:4096)"
	sleep 0.5
	gives_error ESTALE head -c 1 <&8
	exec 8<&-
	[ "$(soon ls "$MNT/one")" = 0x20000 ]
	run -1 grep -q read "$(out_of two)"
}

@test "bytes past the end are never asked for" {
	fake_segment one 2
	soon dd if="$F" of=/dev/null bs=4M status=none
	soon dd if="$F" of=/dev/null bs=4M skip=1 status=none || :
	soon tail -c 1 "$F" >/dev/null
	awk '$1 == "read" && $2 + $3 > 8192 { bad = 1 } END { exit bad }' \
		"$(out_of one)"
}

# ---- the exporter's side ----

# send_header PORT SIZE ADDR OPCODE [BODY]: what comes back, in hex.
send_header() {
	soon python3 - "$@" <<-'EOF'
	import socket, struct, sys
	port, size, addr, opcode = (int(a, 0) for a in sys.argv[1:5])
	s = socket.create_connection(("127.0.0.1", port), 5)
	s.settimeout(1)
	s.sendall(struct.pack("<QQB7x", size, addr, opcode))
	if len(sys.argv) > 5:
	    s.sendall(sys.argv[5].encode())
	got = b""
	try:
	    while len(got) < 64:
	        d = s.recv(4096)
	        if not d:
	            got += b"EOF"
	            break
	        got += d
	except TimeoutError:
	    got += b"..."
	except ConnectionError:
	    got += b"RST"
	print(got.hex())
	EOF
}

@test "an exporter serves only what lies inside of one buffer" {
	start_exporter exp --buffer size=8192,location=cpu:0,fill=offset \
		--buffer size=8192,location=cpu:0,ro
	local port a no=010000005654434d eof=454f46
	port=$(stored exp | sed 's/.*"tcp_data_port":\([0-9]*\).*/\1/')
	a=$(($(address exp)))
	r=$(($(address exp 1)))
	SOON=8
	[[ $(send_header "$port" 16 $a 0x80) == 000000005654434d0000000000000000* ]]
	[ "$(send_header "$port" 16 $((a + 8184)) 0x80)" = $no$eof ]
	[ "$(send_header "$port" 16 4096 0x80)" = $no$eof ]
	[ "$(send_header "$port" 0 $((a + 8192)) 0x80)" = $no$eof ]
	[ "$(send_header "$port" 18446744073709551615 $a 0x80)" = $no$eof ]
	[ "$(send_header "$port" 16 $((a + 8184)) 0x00)" = $eof ]
	[[ $(send_header "$port" 4 $r 0x81 abcd) == $no* ]]
	[[ $(send_header "$port" 1 $((a + 8191)) 0x80) == 000000005654434dff* ||
		$(send_header "$port" 1 $((a + 8191)) 0x80) == 000000005654434d00* ]]
	# Opcodes that nobody defined harm nobody.
	send_header "$port" 16 $a 7
	send_header "$port" 16 $a 0x87
	[ "$(sha_of "$(buffer exp)")" = "$(pattern 8192 | sha)" ]
}
