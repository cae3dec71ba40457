#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=plain
# Bytes over RDMA, between our own two roles: every size, both directions, all
# devices, against what the exporter holds.

load helper

# exported SIZE [OPTIONS]: one exporter, one mount, $F is its file.
exported() {
	start_rdma one --buffer size="$1",location=cpu:0,fill=offset
	mount_rdma "${2:-}"
	F=$(buffer one)
}

# has_pairs N: so many are connected.
has_pairs() {
	[ "$(grep -c '^pair .*: connected' "$MNT/one/.segfs/status")" = "$1" ]
}

fsync_uses_both() {
	moved_by sync "$F"
	[ "${MOVED[0]}" -gt 0 ] && [ "${MOVED[1]}" -gt 0 ]
}

@test "every size from 1 byte to 64 MiB at odd offsets reads exactly" {
	exported 67108879
	SOON=60 soon python3 - "$F" 67108879 <<-'EOF'
	import array, os, sys
	path, size = sys.argv[1], int(sys.argv[2])
	def want(off, n):
	    first = off // 8 * 8
	    words = array.array("Q", range(first, off + n + 8, 8)).tobytes()
	    return words[off - first:off - first + n]
	sizes = {1, 2, 3, 7, 8, 9, 4095, 4096, 4097, 100001, 64 << 20}
	for shift in range(3, 27, 3):
	    sizes |= {(1 << shift) - 1, 1 << shift, (1 << shift) + 1}
	# Around the slices and the requests.
	for unit in (65536, 262144, 1048576):
	    sizes |= {unit - 1, unit, unit + 1, 3 * unit + 5}
	direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
	f = os.open(path, os.O_RDONLY)
	for n in sorted(sizes):
	    if n > size:
	        continue
	    for off in {0, 1, 4093, size - n} | {(n * 7919) % (size - n + 1)}:
	        if off + n > size or (n > 1 << 20 and off > 1):
	            continue
	        got = b""
	        while len(got) < n:
	            piece = os.pread(f, n - len(got), off + len(got))
	            assert piece, (off, n, len(got))
	            got += piece
	        assert got == want(off, n), (off, n)
	EOF
}

@test "every size from 1 byte to 64 MiB is written where it belongs" {
	exported 67108879
	SOON=60 soon python3 - "$F" 67108879 <<-'EOF'
	import os, random, sys
	path, size = sys.argv[1], int(sys.argv[2])
	rng, f = random.Random(3), os.open(path, os.O_RDWR)
	model = bytearray()
	while len(model) < size:
	    model += os.pread(f, 1 << 20, len(model))
	for n in (1, 2, 7, 8, 511, 4095, 4096, 4097, 65535, 65537, 262143,
	          262145, 1 << 20, (1 << 20) + 1, 9000001):
	    for off in (0, 1, 4091, rng.randrange(size - n), size - n):
	        data = rng.randbytes(n)
	        done = 0
	        while done < n:
	            done += os.pwrite(f, data[done:], off + done)
	        model[off:off + n] = data
	os.fsync(f)
	os.close(f)
	with open("model", "wb") as out:
	    out.write(model)
	EOF
	[ "$(sha <model)" = "$(SOON=60 sha_of "$F")" ]
	data_of one | cmp - model
}

@test "dd of 64 MiB both ways: digests equal, both devices moved half" {
	require_rdma 2
	exported 64M
	local src
	src=$(scratch src 67108864)
	moved_by soon dd if="$src" of="$F" bs=1M conv=notrunc,fsync status=none
	about_half
	moved_by soon dd if="$F" of=back bs=1M status=none
	about_half
	[ "$(sha <"$src")" = "$(sha <back)" ]
	data_of one | cmp - "$src"
}

@test "one device of two can be chosen on either side" {
	require_rdma 2
	start_exporter one --protocol rdma --nic "${NIC[1]}" \
		--buffer size=8M,location=cpu:0,fill=offset
	mount_segfs "nic=${NIC[1]}"
	moved_by soon cmp <(pattern 8388608) "$(buffer one)"
	[ "${MOVED[0]}" = 0 ]
	[ "${MOVED[1]}" -gt 1000 ]
	[ "$(stored one | jq -r '.devices[].name')" = "${NIC[1]}" ]
}

@test "status names the pairs, their GIDs, QPs and state" {
	exported 1M
	soon cat "$F" >/dev/null
	local text
	text=$(status_of one)
	echo "$text" >&2
	[[ $text == *rdma* ]]
	[[ $text == *"${NIC[0]}"* ]]
	[[ $text == *"RoCE v2"* || $text == *IB* ]]
	grep -qiE 'mtu' <<<"$text"
	grep -qiE 'qp' <<<"$text"
	# No key is shown.
	local key
	for key in $(stored one | jq -r '.buffers[].rkey[]'); do
		run -1 grep -qw "$key" <<<"$text"
	done
}

@test "a read-only buffer is not written, by whatever way" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset,ro
	mount_rdma timeout=3
	F=$(buffer one)
	soon cmp "$F" <(pattern 1048576)
	# The descriptor cannot say so: the device refuses.
	fails dd if=/dev/zero of="$F" bs=4096 count=1 conv=notrunc status=none
	echo "$ERR" >&2
	run -1 grep -q 'timed out' <<<"$ERR"
	fails bash -c "echo x | segctl --metadata $ETCD put --quiet one \
		$(address one)"
	# And reading goes on.
	soon cmp "$F" <(pattern 1048576)
	[[ $(status_of one) == *ACCESS* ]]
}

@test "many readers and writers at once do not mix up their bytes" {
	exported 8M
	read_and_write_at_once "$F" 8388608 30
}

@test "the whole segment as one file goes over several buffers" {
	start_rdma one --buffer size=100000,location=cpu:0,fill=offset \
		--buffer size=3M,location=cpu:1,fill=offset
	mount_rdma
	local i
	for i in 0 1; do
		soon dd if="$MNT/one/.segfs/mem" bs=1M iflag=skip_bytes \
			skip=$(($(address one $i))) count=1 status=none |
			head -c 100000 | cmp - <(pattern 100000)
	done
}

@test "buffers on both nodes are read whichever device is near" {
	require_rdma 2
	start_rdma one --buffer size=2M,location=cpu:0,fill=offset \
		--buffer size=2M,location=cpu:1,fill=offset
	mount_rdma
	local i
	for i in 0 1; do
		soon cmp "$(buffer one $i)" <(pattern 2097152)
	done
}

@test "segctl moves the same bytes: get, put, probe, bench" {
	start_rdma one --buffer size=5000003,location=cpu:0,fill=offset
	local a src
	a=$(address one)
	data_of one | cmp - <(pattern 5000003)
	src=$(scratch src 3000001)
	soon segctl --metadata "$ETCD" put --quiet one "$a" <"$src"
	data_of one | cmp -n 3000001 - "$src"
	run -0 soon segctl --metadata "$ETCD" probe one
	echo "$output" >&2
	[[ $output == *handshake*RTS*completion* ]]
	[[ $output != *failed* ]]
	run -0 soon segctl --metadata "$ETCD" bench --op read --block 64K \
		--jobs 2 --time 1 --json one
	[ "$(jq '.mb_per_s > 0' <<<"$output")" = true ]
}

@test "every pair of devices that works is used, slices half and half" {
	require_soft_roce
	exported 16M
	# Until both are connected one does it all.
	soon head -c 1M "$F" >/dev/null
	wait_for 10 has_pairs 2
	moved_by soon dd if="$F" of=/dev/null bs=1M iflag=direct status=none
	about_half 45
}

@test "fsync reads back over every device that wrote" {
	require_soft_roce
	exported 4M
	soon head -c 1M "$F" >/dev/null
	wait_for 10 has_pairs 2
	# Nothing was written: there is nothing to wait for.
	moved_by soon sync "$F"
	echo "before: ${MOVED[*]}" >&2
	[ "${MOVED[*]}" = "0 0" ]
	soon dd if=/dev/zero of="$F" bs=1M count=4 oflag=direct conv=notrunc \
		status=none
	moved_by soon sync "$F"
	echo "behind: ${MOVED[*]}" >&2
	[ "${MOVED[0]}" -gt 0 ] && [ "${MOVED[1]}" -gt 0 ]
	moved_by soon sync "$MNT/one/.segfs/mem"
	[ "${MOVED[0]}" -gt 0 ] && [ "${MOVED[1]}" -gt 0 ]
	# A connection that is gone is made again.
	link 0 down
	wait_for 10 port_is rxe0 DOWN
	soon sync "$F"
	link 0 up
	wait_for 10 port_is rxe0 ACTIVE
	wait_for 30 fsync_uses_both
	stop one KILL
	run ! soon sync "$F"
	[[ $output == *sync* ]]
}

@test "a mount that goes to the background has working devices" {
	start_rdma one --buffer size=1M,location=cpu:0,fill=offset
	mkdir -p "$MNT"
	soon segfs -o "nic=$NICS" "$ETCD" "$MNT"
	soon cmp "$(buffer one)" <(pattern 1048576)
	soon fusermount3 -u "$MNT"
}

@test "everything is given back when mount and exporter end" {
	local before
	before=$(resources)
	exported 1M
	soon cat "$F" >/dev/null
	resources >&2
	unmount
	stop one
	wait_for 10 resources_are "$before"
}

@test "a device that is not there is refused with its name" {
	run -1 soon segfs-export --metadata "$ETCD" --name x --protocol rdma \
		--nic nobody0 --buffer size=4096,location=cpu:0
	[[ $output == *nobody0* ]]
	mkdir -p "$MNT"
	run ! soon segfs -f -o nic=nobody0 "$ETCD" "$MNT"
	[[ $output == *nobody0* ]]
}
