#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ordinary programs on a file of fixed size, each as people use it.

load helper

SIZE=2097253

setup() {
	common_setup
	start_exporter one --buffer size=$SIZE,location=cpu:0,fill=offset \
		--buffer size=1M,location=cpu:0
	mount_segfs
	F=$(buffer one)
	G=$(buffer one 1)
	SRC=$(scratch src 300001)
	pattern $SIZE >before
}

# starts_with FILE: F begins with its bytes, and what follows is as before.
starts_with() {
	local n
	n=$(stat -c %s "$1")
	[ "$(stat -c %s "$F")" = $SIZE ] &&
		soon cmp -n "$n" "$1" "$F" &&
		soon cmp -i "$n" before "$F"
}

@test "ls, ls -l, find and du walk the mount" {
	run -0 soon ls -lR "$MNT"
	[[ $output == *"$(basename "$F")"* ]]
	run -0 soon find "$MNT/one" -maxdepth 1 -type f -size +1M
	[ "$output" = "$F" ]
	run -0 soon du -B1 "$F"
	[ "${output%%[[:space:]]*}" = $(((SIZE + 511) / 512 * 512)) ]
	run -0 soon ls -s --block-size=512 "$F"
	[ "${output%% *}" = $(((SIZE + 511) / 512)) ]
}

@test "df and df -i answer" {
	run -0 soon df "$F"
	run -0 soon df -i "$F"
}

@test "rm -r fails and removes nothing" {
	fails rm -r "$MNT/one"
	soon cmp before "$F"
}

@test "cat, head and tail" {
	soon cat "$F" | cmp - before
	soon head -c 1000001 "$F" | cmp - <(head -c 1000001 before)
	soon tail -c 1000001 "$F" | cmp - <(tail -c 1000001 before)
	printf '\nlast line' | soon dd of="$F" bs=10 oflag=seek_bytes \
		seek=$((SIZE - 10)) conv=notrunc status=none
	[ "$(soon tail -n1 "$F")" = "last line" ]
}

@test "cmp, md5sum, xxd and od" {
	soon cmp "$F" before
	[ "$(soon md5sum <"$F")" = "$(md5sum <before)" ]
	[ "$(soon xxd -s 65537 -l 32 "$F")" = "$(xxd -s 65537 -l 32 before)" ]
	[ "$(soon od -j 77777 -N 100 "$F")" = "$(od -j 77777 -N 100 before)" ]
}

@test "cp out copies all, also of a file that has zeros" {
	soon cp "$F" out
	cmp out before
	soon cp --sparse=always "$G" zeros
	cmp -n 1048576 zeros /dev/zero
	[ "$(stat -c %s zeros)" = 1048576 ]
}

@test "cp in writes the beginning and keeps the size" {
	soon cp "$SRC" "$F"
	starts_with "$SRC"
}

@test "cp -p and cp -a in succeed" {
	chmod 600 "$SRC"
	soon cp -p "$SRC" "$F"
	starts_with "$SRC"
	soon cp -a "$SRC" "$F"
	starts_with "$SRC"
}

@test "cp of one buffer to another inside of the mount" {
	soon cp "$G" "$F"
	soon cmp -n 1048576 "$G" "$F"
	soon cmp -i 1048576 before "$F"
	run -1 soon cp "$F" "$G"
	[[ $output == *"No space left"* ]]
	soon cmp -n 1048576 "$F" "$G"
}

@test "dd of a small file, as everybody types it" {
	soon dd if="$SRC" of="$F" status=none
	starts_with "$SRC"
	soon dd if="$SRC" of="$F" bs=7777 status=none
	starts_with "$SRC"
}

@test "dd conv=notrunc writes in the middle" {
	soon dd if="$SRC" of="$F" bs=1000 seek=3 conv=notrunc status=none
	soon cmp -n 300001 "$SRC" <(soon tail -c +3001 "$F")
	soon cmp -n 3000 "$F" before
	soon cmp -i 303001 "$F" before
}

@test "dd oflag=direct takes odd sizes" {
	soon dd if="$SRC" of="$F" bs=1001 conv=notrunc oflag=direct status=none
	starts_with "$SRC"
	soon dd if="$F" of=out bs=1001 iflag=direct status=none
	soon cmp out "$F"
}

@test "dd conv=fsync, sync and sync -d" {
	soon dd if="$SRC" of="$F" bs=64K conv=fsync,notrunc status=none
	soon dd if="$SRC" of="$F" bs=64K conv=fdatasync,notrunc status=none
	soon sync "$F"
	soon sync -d "$F"
	soon sync -f "$F"
	starts_with "$SRC"
}

@test "dd conv=excl refuses a file that is there" {
	gives_error EEXIST dd if="$SRC" of="$F" conv=excl status=none
	soon cmp "$F" before
}

@test "dd conv=sparse,notrunc skips zeros on purpose" {
	soon dd if="$G" of="$F" bs=64K conv=sparse,notrunc status=none
	soon cmp "$F" before
}

@test "tee and redirection keep the size and what is behind" {
	printf 'abc' | soon tee "$F" >/dev/null
	printf 'abc' >small
	starts_with small
	soon bash -c "printf 'defg' >'$F'"
	printf 'defg' >small
	starts_with small
}

@test "appending is ENOSPC and writes nothing anywhere" {
	run -1 soon bash -c "printf x | tee -a '$F'"
	[[ $output == *"No space left on device"* ]]
	run ! soon bash -c "echo x >>'$F'"
	[[ $output == *"No space left on device"* ]]
	soon cmp "$F" before
}

@test "truncate: shrinking is accepted, growing is File too large" {
	soon truncate -s 100 "$F"
	soon truncate -s 0 "$F"
	soon truncate -s $SIZE "$F"
	[ "$(stat -c %s "$F")" = $SIZE ]
	gives_error EFBIG truncate -s $((SIZE + 1)) "$F"
	[ "$(stat -c %s "$F")" = $SIZE ]
}

@test "truncate through one handle to 0 and up again zeros the gap" {
	soon python3 - "$F" <<-'EOF'
	import os, sys
	f = os.open(sys.argv[1], os.O_RDWR)
	os.ftruncate(f, 10)
	os.ftruncate(f, 5000)
	EOF
	soon cmp -n 10 "$F" before
	soon cmp -n 4990 -i 10:0 "$F" /dev/zero
	soon cmp -i 5000 "$F" before
}

@test "truncate=ignore keeps every byte, truncate=refuse says EPERM" {
	unmount
	mount_segfs truncate=ignore
	soon truncate -s 10 "$F"
	soon truncate -s 5000 "$F"
	soon cmp "$F" before
	unmount
	mount_segfs truncate=refuse
	gives_error EPERM cp "$SRC" "$F"
	soon cmp "$F" before
	soon dd if="$SRC" of="$F" conv=notrunc status=none
	starts_with "$SRC"
}

@test "fallocate inside is accepted and changes nothing" {
	soon fallocate -l $SIZE "$F"
	soon python3 -c 'import os, sys
f = os.open(sys.argv[1], os.O_RDWR); os.posix_fallocate(f, 0, 1 << 20)' "$F"
	soon cmp "$F" before
	gives_error ENOSPC fallocate -l $((SIZE + 1)) "$F"
	[ "$(stat -c %s "$F")" = $SIZE ]
}

@test "fallocate punches and zeros ranges" {
	soon fallocate -p -o 4096 -l 100001 "$F"
	soon cmp -n 4096 "$F" before
	soon cmp -n 100001 -i 4096:0 "$F" /dev/zero
	soon cmp -i 104097 "$F" before
	soon fallocate -z -o 1000000 -l 70000 "$F"
	soon cmp -n 70000 -i 1000000:0 "$F" /dev/zero
	soon cmp -i 1070000 "$F" before
}

@test "rsync --inplace brings in a file" {
	require_command rsync
	soon rsync --inplace "$SRC" "$F"
	starts_with "$SRC"
	soon rsync --inplace -W "$F" out
	soon cmp out "$F"
}

@test "rsync without --inplace fails and harms nothing" {
	require_command rsync
	fails rsync "$SRC" "$F"
	soon cmp "$F" before
}

@test "sed -i and vim-like swap files fail and harm nothing" {
	fails sed -i s/a/b/ "$F"
	soon cmp "$F" before
}

@test "tar and cpio-like readers archive a segment" {
	soon tar -cf out.tar -C "$MNT" "one/$(basename "$F")"
	mkdir x
	tar -xf out.tar -C x
	cmp "x/one/$(basename "$F")" before
}

@test "a private mapping reads the file" {
	soon python3 - "$F" before <<-'EOF'
	import mmap, sys
	f = open(sys.argv[1], "rb")
	m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
	assert m[:] == open(sys.argv[2], "rb").read()
	EOF
}

@test "sendfile and splice read the file" {
	soon python3 - "$F" before <<-'EOF'
	import os, sys
	f, size = os.open(sys.argv[1], os.O_RDONLY), os.path.getsize(sys.argv[2])
	out = os.open("out", os.O_RDWR | os.O_CREAT)
	at = 0
	while at < size:
	    n = os.sendfile(out, f, at, size - at)
	    assert n > 0
	    at += n
	r, w = os.pipe()
	got = b""
	while True:
	    n = os.splice(f, w, 65536)
	    if not n:
	        break
	    got += os.read(r, n)
	want = open(sys.argv[2], "rb").read()
	assert open("out", "rb").read() == want
	assert got == want or os.lseek(f, 0, 1) == size
	EOF
}

@test "copy_file_range inside of the mount copies" {
	soon python3 - "$G" "$F" <<-'EOF'
	import os, sys
	g, f = os.open(sys.argv[1], os.O_RDWR), os.open(sys.argv[2], os.O_RDWR)
	os.pwrite(g, bytes(range(256)) * 1024, 0)
	done = 0
	while done < 200000:
	    try:
	        n = os.copy_file_range(g, f, 200000 - done, 100 + done, 5 + done)
	    except OSError as e:
	        # The kernel's own fallback is as good.
	        assert e.errno in (18, 95), e
	        os.pwrite(f, os.pread(g, 200000, 100), 5)
	        n = 200000
	    assert n > 0
	    done += n
	assert os.pread(f, 200000, 5) == os.pread(g, 200000, 100)
	EOF
}

@test "SEEK_DATA and SEEK_HOLE say that all is data" {
	soon python3 - "$F" $SIZE <<-'EOF'
	import errno, os, sys
	f, size = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
	assert os.lseek(f, 1234, os.SEEK_DATA) == 1234
	assert os.lseek(f, 1234, os.SEEK_HOLE) == size
	for how in os.SEEK_DATA, os.SEEK_HOLE:
	    try:
	        os.lseek(f, size, how)
	        raise SystemExit("no error")
	    except OSError as e:
	        assert e.errno == errno.ENXIO, e
	EOF
}

@test "flock and record locks work on this host" {
	soon flock "$F" true
	soon python3 -c 'import fcntl, sys
f = open(sys.argv[1], "r+b"); fcntl.lockf(f, fcntl.LOCK_EX)' "$F"
}

@test "unknown ioctls are ENOTTY" {
	fails lsattr "$F"
	soon python3 - "$F" <<-'EOF'
	import errno, fcntl, os, sys
	f = os.open(sys.argv[1], os.O_RDONLY)
	assert not os.isatty(f)
	for request in 0x5401, 0x1277:
	    try:
	        fcntl.ioctl(f, request, b"\0" * 64)
	        raise SystemExit("no error")
	    except OSError as e:
	        assert e.errno == errno.ENOTTY, e
	EOF
}

@test "python's buffered files read and write" {
	soon python3 - "$F" before <<-'EOF'
	import sys
	want = open(sys.argv[2], "rb").read()
	with open(sys.argv[1], "rb") as f:
	    assert f.read(10) == want[:10]
	    f.seek(-5, 2)
	    assert f.read() == want[-5:]
	with open(sys.argv[1], "r+b") as f:
	    f.seek(100)
	    f.write(b"python")
	assert open(sys.argv[1], "rb").read(106) == want[:100] + b"python"
	EOF
}

@test "fio with psync, libaio and no layout of its own" {
	require_command fio
	local engine
	for engine in psync libaio; do
		soon fio --name=x --filename="$F" --rw=randrw --bs=4k \
			--io_size=1m --ioengine=$engine --iodepth=8 \
			--allow_file_create=0 >fio.out
		grep -q 'err= 0' fio.out
	done
	# A shared mapping, which older kernels have not.
	if soon grep -qx 'shared mappings: yes' "$MNT/.segfs/status"; then
		soon fio --name=x --filename="$F" --rw=read --bs=64k \
			--readonly --ioengine=mmap >fio.out
		grep -q 'err= 0' fio.out
	else
		fails fio --name=x --filename="$F" --rw=read --bs=64k \
			--readonly --ioengine=mmap
	fi
}

@test "a buffer is not a program" {
	gives_error EACCES "$F"
}

@test "the error of a rename over a buffer is EPERM too" {
	cp "$SRC" other
	fails mv other "$F"
	soon cmp "$F" before
	[ -e other ]
}
