#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What went wrong in other remote filesystems, tried here. Each name says what must
# hold.

load helper

SIZE=10485883

setup() {
	common_setup
	start_exporter one --buffer size=$SIZE,location=cpu:0 \
		--buffer size=65537,location=cpu:0,ro,fill=offset
	mount_segfs "${OPTS:-}"
	F=$(buffer one)
	R=$(buffer one 1)
	S=$MNT/one
}

text_into_f() {
	yes | head -c 1M | soon dd of="$F" conv=notrunc status=none
}

@test "a sparse file copied over old bytes leaves none of them in its holes" {
	truncate -s 1M sp
	printf E | dd of=sp bs=1 seek=900000 conv=notrunc status=none
	text_into_f
	soon cp sp "$F"
	soon cmp -n 1048576 sp "$F"
	[ "$(stat -c %s "$F")" = $SIZE ]
	if command -v rsync >/dev/null; then
		text_into_f
		soon rsync --inplace -S sp "$F"
		soon cmp -n 1048576 sp "$F"
	fi
	# tar replaces files unless told not to.
	text_into_f
	mkdir tree
	cp --sparse=always sp "tree/$(basename "$F")"
	tar -cSf sp.tar -C tree "$(basename "$F")"
	soon tar -xSf sp.tar -C "$S" --overwrite --no-same-owner -m \
		--no-same-permissions || :
	if soon cmp -s -n 1048576 sp "$F"; then
		:
	else
		# Refusing is fine, half of it is not.
		soon cmp -n 1048576 "$F" <(yes)
	fi
	[ "$(stat -c %s "$F")" = $SIZE ]
}

@test "dd seek= works inside, and says File too large outside" {
	run -0 soon dd if=/dev/zero of="$F" bs=4k count=1 seek=2 status=none
	[ "$output" = "" ]
	run soon dd if=/dev/zero of="$F" bs=1M count=0 \
		seek=$((SIZE / 1048576 + 5)) status=none
	[[ $output == *"File too large"* ]]
	[ "${#lines[@]}" = 1 ]
	[ "$(stat -c %s "$F")" = $SIZE ]
	require_command fio
	soon fio --name=r --filename="$F" --rw=randread --bs=4k --size=1m \
		--readonly >fio.out
	grep -q 'err= 0' fio.out
}

@test "a failed grow leaves the content alone" {
	text_into_f
	local h
	h=$(soon md5sum <"$F")
	gives_error EFBIG truncate -s +1M "$F"
	run ! soon python3 -c "import os; os.truncate('$F', 2 * $SIZE)"
	[[ $output == *"File too large"* ]]
	run ! soon fio --name=w --filename="$F" --rw=write --bs=64k \
		--size=$((SIZE * 2))
	[ "$h" = "$(soon md5sum <"$F")" ]
}

@test "a write across the end returns, short and then ENOSPC" {
	run -1 timeout -k 1 5 dd if=/dev/zero of="$F" bs=1M count=1 \
		seek=$((SIZE - 10)) oflag=seek_bytes conv=notrunc
	[[ $output == *"10 bytes copied"* ]]
	[[ $output == *"No space left on device"* ]]
	run -1 timeout -k 1 5 dd if=/dev/zero of="$F" bs=10 count=1 \
		seek=$SIZE oflag=seek_bytes conv=notrunc
	[[ $output == *"0 bytes copied"* ]]
	[[ $output == *"No space left on device"* ]]
}

@test "offsets far behind the end neither wrap nor grow the daemon" {
	local before pid
	pid=$(pid_of segfs)
	before=$(ps -o rss= -p "$pid")
	run -0 soon python3 -c "import os; f = os.open('$F', os.O_RDWR)
print([len(os.pread(f, 4096, o)) for o in ($SIZE - 1, $SIZE, $SIZE + 1,
       1 << 40, 1 << 62, (1 << 63) - 4097)])"
	[ "$output" = "[1, 0, 0, 0, 0, 0]" ]
	for o in '1 << 40' '1 << 62' '(1 << 63) - 4097'; do
		run ! soon python3 -c "import os; f = os.open('$F', os.O_RDWR)
os.pwrite(f, b'x' * 8, $o)"
		[[ $output == *"No space left on device"* ]]
	done
	[ "$(stat -c %s "$F")" = $SIZE ]
	is_running "$pid"
	[ "$(ps -o rss= -p "$pid")" -lt $((before + 20000)) ]
}

@test "bytes around 2 GiB and 4 GiB are where they belong" {
	truncate -s 5G big
	start_exporter big --buffer "file=$PWD/big,location=cpu:0"
	local o f
	f=$(buffer big)
	[ "$(stat -c %s "$f")" = 5368709120 ]
	for o in 2147483647 2147483648 4294967295 4294967296; do
		printf %s $o | soon dd of="$f" bs=10 oflag=seek_bytes \
			seek=$o conv=notrunc status=none
	done
	for o in 2147483648 4294967296; do
		run -0 soon dd if="$f" bs=10 iflag=skip_bytes skip=$o count=1 \
			status=none
		[ "$output" = $o ]
	done
	for o in 2147483647 4294967295; do
		run -0 soon dd if="$f" bs=1 iflag=skip_bytes skip=$o count=1 \
			status=none
		[ "$output" = ${o:0:1} ]
	done
	soon dd if="$f" of=x bs=1M iflag=skip_bytes skip=4294901760 count=1 \
		status=none
	cmp x <(tail -c +4294901761 big | head -c 1M)
	soon tail -c 100 "$f" | cmp - <(head -c 100 /dev/zero)
}

@test "a hung peer costs one deadline, then answers fast, then recovers" {
	unmount
	mount_segfs timeout=2
	text_into_f
	signal one STOP
	elapsed run ! timeout -k 1 20 dd if="$F" of=/dev/null bs=1M
	[[ $output == *"timed out"* ]]
	within 5000
	timeout 2 ls -l "$S" >/dev/null
	timeout 2 df "$S" >/dev/null
	elapsed run ! timeout 3 cat "$F"
	within 2000
	elapsed run ! timeout 3 dd if="$F" of=/dev/null bs=1M iflag=direct
	within 2000
	signal one CONT
	wait_for 5 soon cat "$F"
}

@test "Ctrl-C works though more readers are stuck than there are threads" {
	unmount
	mount_segfs timeout=15
	signal one STOP
	local i pids=()
	for i in {1..12}; do
		timeout -k 1 20 cat "$F" >/dev/null 2>&1 3>&- &
		pids+=($!)
	done
	sleep 0.3
	elapsed run timeout -s INT -k 10 1 dd if="$F" of=/dev/null bs=1M
	within 4000
	elapsed run timeout -s KILL 1 cat "$F"
	within 4000
	timeout 2 ls "$S" >/dev/null
	[ "$(ps -eo stat,args | grep -v grep | grep -c "^D.*$F")" = 0 ]
	signal one CONT
	for i in "${pids[@]}"; do
		wait "$i"
	done
}

@test "harmless signals do not break reads" {
	cat >alarm.pl <<-'EOF'
	use POSIX; use Time::HiRes qw(setitimer ITIMER_REAL);
	sigaction(SIGALRM, POSIX::SigAction->new(sub {}, POSIX::SigSet->new,
	                                         SA_RESTART));
	setitimer(ITIMER_REAL, .0005, .0005);
	open F, "<", shift or die;
	while ($r = sysread F, $b, 1 << 20) { $n += $r }
	die "read: $!\n" unless defined $r;
	print "$n\n";
	EOF
	run -0 soon perl alarm.pl "$F"
	[ "$output" = $SIZE ]
	# And with 5 ms more on every transfer.
	start_proxy slow --to "127.0.0.1:$(stored one |
		sed 's/.*"tcp_data_port":\([0-9]*\).*/\1/')"
	via slowly one "$PORT"
	mode slow delay-5
	run -0 soon perl alarm.pl "$MNT/slowly/$(basename "$F")"
	[ "$output" = $SIZE ]
}

@test "a listing of 20,000 buffers is complete and has nothing twice" {
	python3 - >many <<-'EOF'
	import json
	print(json.dumps({"name": "many", "protocol": "tcp", "tcp_data_port": 9,
	    "buffers": [{"name": "m", "addr": 65536 + 4096 * i, "length": 4096}
	                for i in range(20000)]}, separators=(",", ":")))
	EOF
	etcdctl put mooncake/ram/many <many >/dev/null
	put mooncake/rpc_meta/many '{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
	S=$MNT/many
	[ "$(soon ls -U "$S" | wc -l)" = 20000 ]
	[ "$(soon find "$S" -mindepth 1 -maxdepth 1 -printf '%f\n' |
		sort | uniq -d | wc -l)" = 0 ]
	elapsed soon ls -l "$S" >/dev/null
	within 8000
	run -0 soon python3 -c "import os; d = os.open('$S', os.O_RDONLY)
a = os.listdir(d); b = os.listdir('$S')
print(len(a) == len(set(a)) == 20000, set(a) == set(b))"
	[ "$output" = "True True" ]
	# And while it is published again and again.
	(for _ in {1..10}; do
		etcdctl put mooncake/ram/many <many >/dev/null
	done) 3>&- &
	for _ in 1 2 3; do
		[ "$(soon ls -U "$S" | sort -u | wc -l)" = 20000 ]
	done
	wait $!
}

@test "with allow_other other users still get nothing by default" {
	require_root
	unmount
	mount_segfs allow_other
	# The way there must not be what keeps them out.
	chmod a+rx "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR/test" \
		"$BATS_TEST_TMPDIR" 2>/dev/null || :
	local as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
	run ! soon "${as[@]}" head -c1 "$F"
	[[ $output == *"Permission denied"* ]]
	run ! soon "${as[@]}" dd if=/dev/zero of="$F" bs=1 count=1 \
		conv=notrunc status=none
	[[ $output == *"Permission denied"* ]]
	run soon "${as[@]}" getfattr -d -m - "$F"
	[[ ${output,,} != *rkey* ]]
	[ "$(findmnt -no OPTIONS -T "$F" | tr , '\n' |
		grep -cx -e default_permissions -e nosuid -e nodev)" = 3 ]
}

@test "a buffer registered anew has the new size, the old handle is stale" {
	start_fake peer --addr 65536 --size 100000
	put_segment seg "$(descriptor seg "$PORT" 2 65536:50000)"
	local f=$MNT/seg/0x10000
	exec 8<"$f"
	[ "$(soon head -c 4096 <&8 | wc -c)" = 4096 ]
	[ "$(stat -c %s "$f")" = 50000 ]
	put_segment seg "$(descriptor seg "$PORT" 2 65536:20000)"
	sleep 1.5
	[ "$(stat -c %s "$f")" = 20000 ]
	[ "$(soon wc -c <"$f")" = 20000 ]
	[ "$(sha_of "$f")" = "$(pattern 20000 | sha)" ]
	gives_error ESTALE head -c 4096 <&8
	fails dd if=/dev/zero of="$f" bs=1 count=1 oflag=seek_bytes \
		seek=49999 conv=notrunc status=none
	exec 8<&-
	put_segment seg "$(descriptor seg "$PORT" 2 65536:90000)"
	sleep 1.5
	[ "$(sha_of "$f")" = "$(pattern 90000 | sha)" ]
}

# Before Linux 6.6 a file with direct I/O had no shared mappings.
shared_mappings() {
	soon grep -qx 'shared mappings: yes' "$MNT/.segfs/status"
}

@test "a shared mapping may be read, and writing it is refused by default" {
	text_into_f
	if ! shared_mappings; then
		no_shared_mapping
		return
	fi
	run -0 soon python3 -c "import mmap; f = open('$F', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(len(m) == $SIZE, m[-1:] == open('$F', 'rb').read()[-1:],
      m[:4] == b'y\ny\n')"
	[ "$output" = "True True True" ]
	local h
	h=$(sha_of "$F")
	run ! soon python3 -c "import mmap; f = open('$F', 'r+b')
m = mmap.mmap(f.fileno(), 0); m[-1:] = b'Z'; m.flush()"
	[ "$(stat -c %s "$F")" = $SIZE ]
	[ "$(sha_of "$F")" = "$h" ]
}

no_shared_mapping() {
	run ! soon python3 -c "import mmap; f = open('$F', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"
	[[ $output == *"No such device"* ]]
}

@test "mmap=rw writes through, mmap=off refuses shared mappings" {
	unmount
	mount_segfs mmap=rw
	if shared_mappings; then
		soon python3 -c "import mmap; f = open('$F', 'r+b')
m = mmap.mmap(f.fileno(), 0); m[-1:] = b'Z'; m.flush()"
		[ "$(soon tail -c1 "$F")" = Z ]
	else
		no_shared_mapping
	fi
	[ "$(stat -c %s "$F")" = $SIZE ]
	unmount
	mount_segfs mmap=off
	run -1 shared_mappings
	no_shared_mapping
}

@test "SIGTERM ends the daemon and the mount though a file is open" {
	local pid
	pid=$(pid_of segfs)
	exec 9<"$F"
	kill -TERM "$pid"
	wait_for 2 is_gone "$pid"
	exec 9<&-
	[ "$(mount_count)" = 0 ]
}

@test "after a kill the next mount says what to type, and does not stack" {
	stop segfs KILL
	run ! timeout 10 segfs "$ETCD" "$MNT"
	[[ $output == *"fusermount3 -uz $MNT"* ]]
	[ "$(mount_count)" = 1 ]
	fusermount3 -uz "$MNT"
	mount_segfs
	[ "$(mount_count)" = 1 ]
	soon head -c 1 "$F" >/dev/null
}

@test "a read-only region cannot be written through the mount" {
	fails dd if=/dev/zero of="$R" bs=1 count=1 conv=notrunc status=none
	[ "$(sha_of "$R")" = "$(pattern 65537 | sha)" ]
}
