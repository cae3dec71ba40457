#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Starting and ending: exit statuses, daemonising, signals, mount(8).

load helper

teardown() {
	# A daemon of ours is no child of ours; it ends with its mount.
	if [ "$(mount_count)" != 0 ]; then
		LEFTOVER_OK=1
	fi
	common_teardown
}

# The process that serves $MNT, when it is not a child.
daemon_pid() {
	pgrep -x -f "segfs .*$MNT( .*)?"
}

no_daemon() {
	! daemon_pid
}

@test "--help and --version go to standard output" {
	local p
	for p in segfs segfs-export segctl; do
		run -0 --separate-stderr "$p" --help
		[ -n "$output" ]
		[ -z "$stderr" ]
		[[ $output == *sage:*$p* ]]
		run -0 --separate-stderr "$p" --version
		[[ $output == *"0.1.0"* ]]
		[ -z "$stderr" ]
	done
}

@test "misuse is one line and where to find help" {
	local args
	for args in "" "$ETCD" "-o nosuch $ETCD $MNT" "--nosuch" \
		"-o timeout=x $ETCD $MNT" "-o timeout=0 $ETCD $MNT" \
		"-o lanes=1000 $ETCD $MNT" "$ETCD $MNT extra"; do
		run ! --separate-stderr timeout 10 segfs -f $args
		[ "$status" -lt 100 ]
		[ -z "$output" ]
		[ -n "$stderr" ]
		[ "$(wc -l <<<"$stderr")" -le 2 ]
		[[ $stderr == *segfs* ]]
	done
}

@test "what is wrong with the mountpoint is said" {
	run ! timeout 10 segfs -f "$ETCD" "$BATS_TEST_TMPDIR/nosuch"
	[[ $output == *"No such file"* ]]
	echo >file
	run ! timeout 10 segfs -f "$ETCD" "$BATS_TEST_TMPDIR/file"
	[[ $output == *"ot a directory"* ]]
}

@test "an unknown scheme is refused" {
	mkdir -p "$MNT"
	run ! timeout 10 segfs -f "gopher://127.0.0.1:1" "$MNT"
	[[ $output == *gopher* ]]
}

@test "the daemon reports success only when the mount answers" {
	start_exporter one --buffer size=4096,location=cpu:0
	mkdir -p "$MNT"
	run -0 timeout 15 segfs "$ETCD" "$MNT"
	[ "$output" = "" ]
	timeout 2 test -e "$(buffer one)"
	fusermount3 -u "$MNT"
	wait_for 5 no_daemon
}

@test "a daemon that cannot start says why to its parent" {
	mkdir -p "$MNT"
	run ! timeout 15 segfs "etcd://127.0.0.1:$(free_port)" "$MNT"
	[[ $output == *refused* ]]
	[ "$(mount_count)" = 0 ]
}

@test "SIGTERM, SIGINT and SIGHUP unmount and exit 0 within two seconds" {
	local sig
	start_exporter one --buffer size=4096,location=cpu:0
	for sig in TERM INT HUP; do
		mount_segfs
		soon head -c 1 "$(buffer one)" >/dev/null
		elapsed stop segfs $sig
		[ "$STATUS" = 0 ]
		within 2500
		[ "$(mount_count)" = 0 ]
	done
}

@test "the daemon ends on SIGTERM as well" {
	mkdir -p "$MNT"
	timeout 15 segfs "$ETCD" "$MNT"
	local pid
	pid=$(daemon_pid)
	kill -TERM "$pid"
	wait_for 3 is_gone "$pid"
	[ "$(mount_count)" = 0 ]
}

@test "unmounting ends the program with status 0" {
	mount_segfs
	unmount
}

@test "a busy mount is Device or resource busy; lazily it goes on to the end" {
	start_exporter one --buffer size=1M,location=cpu:0,fill=offset
	mount_segfs
	local pid
	pid=$(pid_of segfs)
	exec 8<"$(buffer one)"
	run ! fusermount3 -u "$MNT"
	[[ $output == *busy* ]]
	fusermount3 -uz "$MNT"
	[ "$(mount_count)" = 0 ]
	is_running "$pid"
	[ "$(soon cat <&8 | sha)" = "$(pattern 1048576 | sha)" ]
	exec 8<&-
	wait_for 3 is_gone "$pid"
}

@test "a stale mount in the way is explained" {
	mount_segfs
	stop segfs KILL
	run ! timeout 10 segfs -f "$ETCD" "$MNT"
	[[ $output == *"fusermount3 -uz $MNT"* ]]
	[ "$(mount_count)" = 1 ]
	fusermount3 -uz "$MNT"
}

@test "mount(8) options are understood" {
	mount_segfs rw,nosuid,nodev,noexec,noatime,_netdev,nofail,auto,x-systemd.automount
	[ -e "$MNT/.segfs/version" ]
}

@test "arguments in the order of mount(8) are understood" {
	mkdir -p "$MNT"
	timeout 15 segfs "$ETCD" "$MNT" -o ro,_netdev
	[[ $(awk -v m="$MNT" '$2 == m { print $4 }' /proc/self/mounts) == ro,* ]]
	fusermount3 -u "$MNT"
	wait_for 5 no_daemon
}

@test "mount -t fuse.segfs mounts" {
	require_root
	require_command mount.fuse3
	# mount.fuse3 looks for the program in the system's path only.
	[ ! -e /usr/bin/segfs ] || skip "/usr/bin/segfs is there already"
	mkdir -p "$MNT"
	ln -s "$SEGFS_BUILD/segfs" /usr/bin/segfs
	run timeout 20 mount -t fuse.segfs "$ETCD" "$MNT" -o ro
	rm -f /usr/bin/segfs
	[ "$status" = 0 ]
	[ -e "$MNT/.segfs/version" ]
	umount "$MNT"
	wait_for 5 no_daemon
}

@test "READY=1 is sent to the service manager when the mount answers" {
	cat >notify.py <<-'EOF'
	import os, socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind("notify.sock")
	s.settimeout(20)
	print("listening", flush=True)
	print(s.recv(100).decode(), os.path.exists(sys.argv[1]), flush=True)
	EOF
	spawn notify python3 notify.py "$MNT/.segfs/version"
	wait_for 5 grep -q listening "$(out_of notify)"
	export NOTIFY_SOCKET=$PWD/notify.sock
	mount_segfs
	wait_for 5 grep -q READY=1 "$(out_of notify)"
	grep -q 'True$' "$(out_of notify)"
}

@test "no password on the command line" {
	mkdir -p "$MNT"
	run ! timeout 10 segfs -f -o user=u,password=geheim "$ETCD" "$MNT"
	[[ $output == *password* ]]
	[[ $output != *geheim* ]]
}

@test "the exporter refuses what makes no sense, with one line" {
	local b
	for b in size=0 size=x location=cpu:0 size=1M,nosuch=1 \
		"file=$PWD/nosuch" size=1M,fill=nosuch; do
		run ! timeout 10 segfs-export --metadata "$ETCD" --name x \
			--buffer "$b"
		[ "$status" -lt 100 ]
		[[ $output == segfs-export:* ]]
	done
	run ! timeout 10 segfs-export --metadata "$ETCD" --name 'a@b' \
		--buffer size=4096,location=cpu:0
	[ "$(etcdctl get --prefix --keys-only mooncake/)" = "" ]
}
