#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Command lines of segfs and segctl: help, manual, mistakes, exit statuses.

load helper

# misuse_of TEXT CMD...: status 2, TEXT, and where to find help.
misuse_of() {
	local text=$1
	shift
	run -2 --separate-stderr timeout 10 "$@"
	[ -z "$output" ]
	[ "$stderr" = "$1: $text
Try '$1 --help'." ]
}

# says STATUS TEXT CMD...: that status and just that line on standard error.
says() {
	local want=$1 text=$2
	shift 2
	run --separate-stderr timeout 20 "$@"
	[ "$status" = "$want" ]
	[ "$stderr" = "$text" ]
}

@test "--help and the manual pages name the same options and defaults" {
	local p
	for p in segfs segctl; do
		"$p" --help >"$p.help"
		run -0 python3 "$LIB/manpage.py" "$SEGFS_SRC/man/$p.1" <"$p.help"
	done
}

@test "the manual pages have all sections and no warnings" {
	require_command mandoc
	local p s
	for p in segfs segctl; do
		run -0 mandoc -T lint -W warning "$SEGFS_SRC/man/$p.1"
		for s in NAME SYNOPSIS DESCRIPTION OPTIONS "EXIT STATUS" \
			ENVIRONMENT FILES EXAMPLES "SEE ALSO"; do
			grep -qx ".Sh $s" "$SEGFS_SRC/man/$p.1"
		done
	done
	run -0 mandoc -T lint -W warning "$SEGFS_SRC/man/segfs.5"
}

@test "segctl COMMAND --help shows that command's options" {
	run -0 segctl bench --help
	[[ $output == *--jobs=N* ]]
	[[ $output == *--metadata=SOURCE* ]]
	[[ $output != *--output* ]]
}

@test "mistakes on segfs's command line are explained" {
	misuse_of "no source given" segfs
	misuse_of "no mountpoint given" segfs etcd://x
	misuse_of 'extra operand "c"' segfs a b c
	misuse_of "unknown option --foo" segfs --foo a b
	misuse_of "unknown option -x" segfs -x a b
	misuse_of "-o: needs a value" segfs a b -o
	misuse_of "timeout=0: must be from 0.1 s to 3600 s" \
		segfs a b -o timeout=0
	misuse_of 'unknown option "lane" (did you mean "lanes"?)' \
		segfs a b -o lane=2
	misuse_of "remount: a segfs mount cannot be changed; unmount it and mount anew" \
		segfs a b -o remount,ro
	misuse_of "ca=/no/such: No such file or directory" \
		segfs a b -o ca=/no/such
	SEGFS_DEBUG=foo misuse_of "SEGFS_DEBUG=foo: no such module; there are core, meta, tcp, rdma, fs and all" \
		segfs a b
}

@test "mistakes on segctl's command line are explained" {
	export SEGFS_METADATA=etcd://127.0.0.1:1
	misuse_of "no command given" segctl
	misuse_of 'unknown command "lss"' segctl lss
	misuse_of "get: needs SEGMENT ADDR [LEN]" segctl get a
	misuse_of 'ls: extra operand "b"' segctl ls a b
	misuse_of 'unknown option "depht" (did you mean "depth"?)' \
		segctl get --depht=3 a 0x1
	misuse_of 'unknown option "json"' segctl get --json a 0x1
	misuse_of "unknown option -x" segctl -x ls
	misuse_of "depth=0: must be from 1 to 256" segctl get --depth 0 a 0x1
	misuse_of "metadata: needs a value (metadata=SOURCE)" \
		segctl ls --metadata
	unset SEGFS_METADATA
	misuse_of "no metadata store: give --metadata SOURCE or set SEGFS_METADATA" \
		segctl ls
}

@test "the exit status tells what cannot be reached" {
	local port
	port=$(free_port)
	mkdir -p "$MNT"
	says 3 "segfs: etcd: 127.0.0.1:$port: Connection refused" \
		segfs "etcd://127.0.0.1:$port" "$MNT"
	says 3 "segfs: etcd: 127.0.0.1:$port: Connection refused" \
		segfs -f "etcd://127.0.0.1:$port" "$MNT"
	says 3 "segctl: etcd: 127.0.0.1:$port: Connection refused" \
		segctl --metadata "etcd://127.0.0.1:$port" ls
	says 4 "segfs: $PWD/nosuch: No such file or directory" \
		segfs "$ETCD" "$PWD/nosuch"
	echo >file
	says 4 "segfs: $PWD/file: Not a directory" segfs "$ETCD" "$PWD/file"
	says 5 "segctl: nosuch: no such segment" \
		segctl --metadata "$ETCD" ls nosuch
}

@test "a store that does not answer costs connect_timeout, not more" {
	signal etcd STOP
	mkdir -p "$MNT"
	elapsed run ! timeout 20 segfs -o timeout=1,connect_timeout=1 \
		"$ETCD" "$MNT"
	signal etcd CONT
	[ "$status" = 3 ]
	within 4000
	[[ $output == *"timed out"* ]]
	[ "$(mount_count)" = 0 ]
}

@test "an interrupt while the store does not answer ends both processes" {
	signal etcd STOP
	mkdir -p "$MNT"
	elapsed run timeout -s INT 1 segfs -o timeout=60,connect_timeout=60 \
		"$ETCD" "$MNT"
	signal etcd CONT
	within 3000
	[ "$(mount_count)" = 0 ]
}

@test "mount -f checks and does not mount" {
	mkdir -p "$MNT"
	ln -s "$SEGFS_BUILD/segfs" mount.fuse.segfs
	run -0 timeout 10 ./mount.fuse.segfs "$ETCD" "$MNT" -sfn -o rw -t fuse.segfs
	[ "$(mount_count)" = 0 ]
	run -2 timeout 10 ./mount.fuse.segfs "$ETCD" "$MNT" -f -o nosuch
}

@test "the effective options can be read in the mount" {
	mount_segfs ro,timeout=1.5,pool=64M,umask=027,nowatch
	soon cat "$MNT/.segfs/config" >config
	grep -qx timeout=1.5 config
	grep -qx pool=64M config
	grep -qx ro=yes config
	grep -qx fmask=027 config
	grep -qx watch=no config
	run ! grep -q password= config
}

@test "relative paths of options hold after the daemon has changed directory" {
	mkdir -p "$MNT"
	echo geheim >pw
	chmod 600 pw
	# etcd without users refuses any login: what matters is that it is asked.
	run timeout 20 segfs -f -o user=u,password_file=pw "$ETCD" "$MNT"
	[[ $output != *"No such file"* ]]
	[[ $output != *geheim* ]]
}

@test "no password is seen in the process list or in /proc/mounts" {
	export SEGFS_ETCD_PASSWORD=geheim
	mount_segfs
	run ! grep -q geheim "/proc/$(pid_of segfs)/cmdline" /proc/self/mounts
}

@test "signals that come together end the process all the same" {
	mount_segfs
	local pid
	pid=$(pid_of segfs)
	kill -STOP "$pid"
	kill -TERM "$pid"
	kill -INT "$pid"
	kill -CONT "$pid"
	wait_for 3 is_gone "$pid"
	fusermount3 -uz "$MNT" 2>/dev/null || :
}

@test "STOPPING=1 is sent when a signal ends the mount" {
	cat >notify.py <<-'EOF'
	import socket
	s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
	s.bind("notify.sock")
	s.settimeout(20)
	print("listening", flush=True)
	while True:
	    print(s.recv(100).decode(), flush=True)
	EOF
	spawn notify python3 notify.py
	wait_for 5 grep -q listening "$(out_of notify)"
	NOTIFY_SOCKET=$PWD/notify.sock mount_segfs
	stop segfs TERM
	wait_for 5 grep -qx STOPPING=1 "$(out_of notify)"
}
