#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Bytes: every size, offset and end, in and out, against what the exporter holds.

load helper

SIZE=10485883		# no multiple of anything

setup() {
	common_setup
	start_exporter one --buffer size=$SIZE,location=cpu:0,fill=offset
	mount_segfs
	F=$(buffer one)
}

@test "a whole buffer reads as the exporter filled it" {
	pattern $SIZE >want
	soon cmp want "$F"
	[ "$(sha_of "$F")" = "$(sha <want)" ]
	soon cp "$F" copy
	cmp want copy
}

@test "every block size gives the same bytes" {
	local want bs
	want=$(pattern $SIZE | sha)
	for bs in 4000 4096 65536 100001 512K 1M 1048577 4M 16M; do
		[ "$(soon dd if="$F" bs=$bs status=none | sha)" = "$want" ]
		[ "$(soon dd if="$F" bs=$bs iflag=direct status=none | sha)" = \
			"$want" ]
	done
}

@test "odd offsets and lengths read exactly" {
	soon python3 - "$F" $SIZE <<-'EOF'
	import os, random, struct, sys
	path, size = sys.argv[1], int(sys.argv[2])
	rng = random.Random(1)
	def want(off, n):
	    first = off // 8 * 8
	    words = range(first, off + n + 8, 8)
	    return struct.pack(f"<{len(words)}Q", *words)[off - first:][:n]
	f = os.open(path, os.O_RDONLY)
	cases = [(0, 1), (size - 1, 1), (7, 1), (4095, 2), (1 << 20, 1 << 20),
	         ((1 << 20) - 1, (1 << 20) + 2), (1, 262144), (3, 524291),
	         (65536, 65537), (size - 4097, 4097)]
	cases += [(rng.randrange(size - (3 << 20)), rng.randrange(1, 3 << 20))
	          for _ in range(25)]
	cases += [(rng.randrange(size - 5000), rng.randrange(1, 5000))
	          for _ in range(200)]
	for off, n in cases:
	    assert os.pread(f, n, off) == want(off, n), (off, n)
	EOF
}

@test "reads at the end are short, reads behind it empty" {
	soon python3 - "$F" $SIZE <<-'EOF'
	import os, sys
	f, size = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2])
	got = [len(os.pread(f, 4096, o)) for o in (
	    size - 1, size, size + 1, 1 << 40, 1 << 62, (1 << 63) - 4097)]
	assert got == [1, 0, 0, 0, 0, 0], got
	assert len(os.pread(f, 2 << 20, size - 1000003)) == 1000003
	EOF
}

@test "head, tail, xxd and od see the right bytes" {
	[ "$(soon head -c 16 "$F" | xxd -p)" = 00000000000000000800000000000000 ]
	[ "$(soon tail -c 3 "$F" | xxd -p)" = "$(pattern $SIZE | tail -c 3 |
		xxd -p)" ]
	run -0 soon xxd -s 0x1000 -l 16 "$F"
	[[ $output == "00001000: 0010 0000 0000 0000 0810 0000 0000 0000"* ]]
	run -0 soon od -A d -j 4099 -N 5 -t x1 "$F"
	[[ ${lines[0]} == "0004099 00 00 00 00 00" ]]
	[ "$(soon wc -c <"$F")" = $SIZE ]
}

@test "what is written is in the exporter's memory" {
	local src
	src=$(scratch src 3000001)
	soon dd if="$src" of="$F" bs=1M conv=notrunc status=none
	soon cmp -n 3000001 "$src" "$F"
	# And what was behind stays.
	soon cmp -i 3000001 "$F" <(pattern $SIZE)
	soon segctl --metadata "$ETCD" get one "$(address one)" -o whole
	cmp -n 3000001 "$src" whole
	[ "$(stat -c %s whole)" = $SIZE ]
}

@test "odd writes change what they name and nothing else" {
	soon python3 - "$F" $SIZE <<-'EOF'
	import os, random, sys
	path, size = sys.argv[1], int(sys.argv[2])
	rng = random.Random(2)
	f = os.open(path, os.O_RDWR)
	model = bytearray(open(path, "rb").read())
	assert len(model) == size
	cases = [(0, 1), (size - 1, 1), (4095, 2), (1, 1 << 20),
	         (5, (1 << 20) + 3), (size - 70001, 70001)]
	cases += [(rng.randrange(size - (2 << 20)), rng.randrange(1, 2 << 20))
	          for _ in range(15)]
	cases += [(rng.randrange(size - 9000), rng.randrange(1, 9000))
	          for _ in range(100)]
	for off, n in cases:
	    data = rng.randbytes(n)
	    assert os.pwrite(f, data, off) == n
	    model[off:off + n] = data
	os.close(f)
	assert open(path, "rb").read() == model
	EOF
}

@test "a write across the end stops there, one behind it is ENOSPC" {
	run -1 soon dd if=/dev/zero of="$F" bs=1M count=1 oflag=seek_bytes \
		seek=$((SIZE - 10)) conv=notrunc
	[[ $output == *"No space left on device"* ]]
	[[ $output == *"10 bytes copied"* ]]
	run -1 soon dd if=/dev/zero of="$F" bs=10 count=1 oflag=seek_bytes \
		seek=$SIZE conv=notrunc
	[[ $output == *"No space left on device"* ]]
	[ "$(soon tail -c 10 "$F" | xxd -p)" = 00000000000000000000 ]
	[ "$(stat -c %s "$F")" = $SIZE ]
}

@test "a page or more of a copy in is exactly where it belongs" {
	local src n
	for n in 1 4095 4097 131073 1048577 $SIZE; do
		src=$(scratch src "$n")
		soon cp "$src" "$F"
		soon cmp -n "$n" "$src" "$F"
		[ "$(stat -c %s "$F")" = $SIZE ]
	done
}

@test "many readers and writers at once do not mix up their bytes" {
	read_and_write_at_once "$F" $SIZE 60
}

@test "fio verifies what it wrote" {
	require_command fio
	SOON=60 soon fio --name=v --filename="$F" --rw=randwrite --bs=4k \
		--size=4m --direct=1 --verify=crc32c --do_verify=1 \
		--ioengine=libaio --iodepth=16 --allow_file_create=0 >fio.out
	grep -q 'err= 0' fio.out
	SOON=60 soon fio --name=v --filename="$F" --rw=write --bs=1m \
		--size=10m --direct=1 --verify=crc32c --do_verify=1 \
		--allow_file_create=0 >fio.out
	grep -q 'err= 0' fio.out
}

@test "every read sees the memory as it is at that time" {
	local a
	a=$(address one)
	exec 7<"$F"
	[ "$(head -c 5 <&7 | xxd -p)" = 0000000000 ]
	printf fresh >new
	soon segctl --metadata "$ETCD" put one "$a" -i new
	run -0 soon python3 -c 'import os; print(os.pread(7, 5, 0).decode())'
	[ "$output" = fresh ]
	[ "$(soon head -c 5 "$F")" = fresh ]
	exec 7<&-
}

@test "without splitting and without splicing the bytes are the same" {
	unmount
	local want opts
	want=$(pattern $SIZE | sha)
	for opts in lanes=1,split=0,splice=0 lanes=1,splice=4096 \
		lanes=8,split=4096,splice=0 lanes=2,split=65536,splice=64K; do
		mount_segfs "$opts"
		[ "$(soon dd if="$F" bs=1M status=none | sha)" = "$want" ]
		[ "$(soon dd if="$F" bs=777777 status=none | sha)" = "$want" ]
		unmount
	done
}

@test "a read-only region refuses to be written and reads well" {
	start_exporter two --buffer size=8192,location=cpu:0,ro,fill=offset
	[ "$(sha_of "$(buffer two)")" = "$(pattern 8192 | sha)" ]
	fails dd if=/dev/zero of="$(buffer two)" bs=16 count=1 conv=notrunc \
		status=none
	[ "$(sha_of "$(buffer two)")" = "$(pattern 8192 | sha)" ]
}

@test "buffers of every size from one byte are whole" {
	local i=0 n args=()
	for n in 1 2 7 4095 4096 4097 65537; do
		args+=(--buffer "size=$n,location=cpu:0,fill=offset")
	done
	start_exporter many "${args[@]}"
	for n in 1 2 7 4095 4096 4097 65537; do
		[ "$(stat -c %s "$(buffer many $i)")" = $n ]
		[ "$(sha_of "$(buffer many $i)")" = "$(pattern $n | sha)" ]
		i=$((i + 1))
	done
}

@test "an exported file is the memory of the mount" {
	local src
	src=$(scratch src 100001)
	cp "$src" exported
	start_exporter file --buffer "file=$PWD/exported,location=cpu:0"
	soon cmp "$src" "$(buffer file)"
	printf changed | soon dd of="$(buffer file)" bs=7 seek=99994 \
		oflag=seek_bytes conv=notrunc status=none
	[ "$(tail -c 7 exported)" = changed ]
}
