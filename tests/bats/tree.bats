#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What a mount shows: names, sizes, modes, links, control files.

load helper

@test "a segment is a directory and a buffer is a file named by its address" {
	start_exporter one --buffer size=1M,location=cpu:0
	start_exporter two --buffer size=4096,location=cpu:0 \
		--buffer size=12345,location=cpu:0
	mount_segfs
	run -0 ls "$MNT"
	[ "$output" = $'one\ntwo' ]
	run -0 ls "$MNT/two"
	[ "$output" = "$(printf '%s\n' "$(address two 0)" "$(address two 1)" |
		sort)" ]
	[[ $(address one) =~ ^0x[0-9a-f]+$ ]]
	[ "$(stat -c '%F %s' "$(buffer one)")" = "regular file 1048576" ]
	[ "$(stat -c '%F %s' "$(buffer two 1)")" = "regular file 12345" ]
}

@test "a glob over the mount finds segments and buffers, nothing else" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	run -0 bash -c "echo $MNT/*/*"
	[ "$output" = "$(buffer one)" ]
	run -0 ls -A "$MNT"
	[ "$output" = one ]
	run -0 ls -a "$MNT/one"
	[ "$output" = $'.\n..\n'"$(address one)" ]
	# What else there is is found by those who know its name.
	[ -d "$MNT/.segfs" ]
	[ -d "$MNT/one/.segfs" ]
}

@test "modes, owner, blocks and links of files and directories" {
	start_exporter one --buffer size=12345,location=cpu:0
	mount_segfs
	local f
	f=$(buffer one)
	[ "$(stat -c '%a %u %g %h' "$f")" = "600 $(id -u) $(id -g) 1" ]
	[ "$(stat -c '%b %o' "$f")" = "25 524288" ]
	[ "$(stat -c %a "$MNT")" = 700 ]
	[ "$(stat -c %a "$MNT/one")" = 700 ]
	[ "$(stat -c %a "$MNT/one/.segfs/segment.json")" = 400 ]
	[ "$(stat -c %h "$MNT/one")" -ge 2 ]
	[ "$(stat -c %F "$MNT/one/.segfs")" = directory ]
}

@test "uid, gid, fmask and dmask options are obeyed" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs allow_other,uid=12,gid=34,fmask=0137,dmask=0027
	[ "$(stat -c '%a %u %g' "$(buffer one)")" = "640 12 34" ]
	[ "$(stat -c '%a %u %g' "$MNT/one")" = "750 12 34" ]
}

@test "a read-only mount shows files without write permission" {
	start_exporter one --buffer size=4096,location=cpu:0,fill=offset
	mount_segfs ro
	[ "$(stat -c %a "$(buffer one)")" = 400 ]
	gives_error EROFS dd if=/dev/zero of="$(buffer one)" bs=1 count=1 \
		conv=notrunc status=none
	[ "$(sha_of "$(buffer one)")" = "$(pattern 4096 | sha)" ]
}

@test "the mount describes itself in .segfs" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs timeout=7
	run -0 ls "$MNT/.segfs"
	for f in config stats status version; do
		[[ $'\n'$output$'\n' == *$'\n'$f$'\n'* ]]
		[ -s "$MNT/.segfs/$f" ]
		[ "$(soon cat "$MNT/.segfs/$f" | wc -c)" -gt 0 ]
	done
	run -0 soon cat "$MNT/.segfs/version"
	[[ $output == *[0-9].[0-9]* ]]
	run -0 soon cat "$MNT/.segfs/config"
	[[ $output == *timeout=7* ]]
	run -0 soon cat "$MNT/.segfs/stats"
	[[ $output == *"# TYPE segfs_"* ]]
}

@test "statistics are Prometheus text and count what happens" {
	start_exporter one --buffer size=1M,location=cpu:0
	mount_segfs
	soon cat "$(buffer one)" >"$BATS_TEST_TMPDIR/x"
	run -0 soon cat "$MNT/.segfs/stats"
	# name{labels} value, or a comment.
	run ! grep -vE '^(#.*|[a-z_]+(\{[^}]*\})? [0-9.e+-]+)$' <<<"$output"
	run -0 soon grep -E 'read.*bytes|bytes.*read' "$MNT/.segfs/stats"
	[[ $output == *1048576* ]]
}

@test "control files are the same however they are read" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	local f=$MNT/one/.segfs/segment.json
	run -0 soon cat "$f"
	[ "$(soon dd if="$f" bs=1 status=none)" = "$output" ]
	[ "$(soon tail -c 20 "$f")" = "$(tail -c 20 <<<"$output")" ]
	[ "$(stat -c %s "$f")" = "$(soon cat "$f" | wc -c)" ]
	# A shell reads its lines byte by byte, and must get one.
	run -0 soon sh -c "read -r line <'$MNT/.segfs/version'; echo \"\$line\""
	[ -n "$output" ]
}

@test "segment.json and rpc.json are the stored bytes" {
	start_exporter one --buffer size=4096,location=cpu:0
	put_segment raw ' {"protocol" : "tcp",
	"buffers":[] , "extra":"\u00fc"}  // odd'
	mount_segfs
	local key
	for key in one raw; do
		etcdctl get --print-value-only "mooncake/ram/$key" |
			head -c -1 >want
		cmp want "$MNT/$key/.segfs/segment.json"
		etcdctl get --print-value-only "mooncake/rpc_meta/$key" |
			head -c -1 >want
		cmp want "$MNT/$key/.segfs/rpc.json"
	done
	soon jq -e '.protocol == "tcp" and .name == "one"' \
		"$MNT/one/.segfs/segment.json"
}

@test "by-index and by-location link to the buffers" {
	start_exporter one --buffer size=4096,location=cpu:0 \
		--buffer size=8192,location='*' \
		--buffer size=4096,location=cpu:0
	mount_segfs
	local s=$MNT/one/.segfs
	[ "$(ls "$s/by-index")" = $'0\n1\n2' ]
	for i in 0 1 2; do
		[ "$(readlink "$s/by-index/$i")" = "../../$(address one $i)" ]
		[ "$s/by-index/$i" -ef "$(buffer one $i)" ]
	done
	run -0 find "$s/by-location" -type l
	[ "${#lines[@]}" = 3 ]
	while read -r l; do
		[ "$(readlink "$l")" = "../../../$(basename "$l")" ]
		[ "$l" -ef "$MNT/one/$(basename "$l")" ]
	done <<<"$output"
}

@test "by-location has a directory for each location" {
	put_segment one "$(descriptor one 9 2 4096:4096:cpu:0)"
	put_segment two '{"protocol":"tcp","name":"two","tcp_data_port":9,
		"buffers":[{"name":"cpu:0","addr":4096,"length":4096},
		{"name":"cuda:1","addr":65536,"length":4096},
		{"name":"segments:4096:0,1","addr":131072,"length":4096},
		{"name":"*","addr":262144,"length":4096}]}'
	mount_segfs
	run -0 ls "$MNT/two/.segfs/by-location"
	[ "$output" = $'*\ncpu:0\ncuda:1\nsegments:4096:0,1' ]
	[ "$(readlink "$MNT/two/.segfs/by-location/cuda:1/0x10000")" = \
		../../../0x10000 ]
}

@test "mem is the segment as one file whose offsets are remote addresses" {
	start_exporter one --buffer size=65536,location=cpu:0,fill=offset
	mount_segfs
	local a=$(($(address one))) mem=$MNT/one/.segfs/mem
	[ "$(stat -c %s "$mem")" -ge $((a + 65536)) ]
	run -0 soon dd if="$mem" bs=4096 iflag=skip_bytes skip=$((a + 100)) \
		count=1 of=x status=none
	pattern 4096 100 | cmp - x
	printf hello | soon dd of="$mem" bs=5 oflag=seek_bytes \
		seek=$((a + 1000)) conv=notrunc status=none
	run -0 soon dd if="$(buffer one)" bs=5 iflag=skip_bytes skip=1000 \
		count=1 status=none
	[ "$output" = hello ]
}

@test "mem between buffers is an error, not zeros" {
	put_segment one "$(descriptor one 9 2 65536:4096 131072:4096)"
	mount_segfs
	fails dd if="$MNT/one/.segfs/mem" bs=16 iflag=skip_bytes skip=100000 \
		count=1 status=none
}

@test "two buffers at one address get two names" {
	start_fake peer --addr 65536 --size 8192
	put_segment one "$(descriptor one "$PORT" 2 65536:8192 65536:4096)"
	mount_segfs
	run -0 ls "$MNT/one"
	[ "$output" = $'0x10000\n0x10000+4096' ]
	[ "$(stat -c %s "$MNT/one/0x10000")" = 8192 ]
	[ "$(stat -c %s "$MNT/one/0x10000+4096")" = 4096 ]
	[ "$(sha_of "$MNT/one/0x10000+4096")" = "$(pattern 4096 | sha)" ]
}

@test "overlapping and equal buffers are all there" {
	start_fake peer --addr 65536 --size 12288
	put_segment one "$(descriptor one "$PORT" 2 \
		65536:8192 65536:8192 69632:8192)"
	mount_segfs
	run -0 ls "$MNT/one"
	[[ $output == *0x10000* ]]
	[[ $output == *0x11000* ]]
	[ "$(sha_of "$MNT/one/0x11000")" = "$(pattern 8192 4096 | sha)" ]
	[ "$(sha_of "$MNT/one/0x10000")" = "$(pattern 8192 | sha)" ]
	kill -0 "$(pid_of segfs)"
}

@test "odd segment names are listed, found and kept apart" {
	local k300 bad=$'bad\xff\xfeutf8' n names
	k300=$(printf 'k%.0s' {1..300})
	names=("a/b" ".." "." "x y" $'n\nl' "%2F" "%" "host:12345" ".segfs"
		".segfsx" "ünïcode" "$bad" "$k300" "${k300}x" "*" "-n" '"q"' "\\")
	for n in "${names[@]}"; do
		put_segment "$n" "$(descriptor x 9 2 65536:4096)"
	done
	mount_segfs
	run -0 soon ls -la "$MNT"
	soon find "$MNT" -mindepth 1 -maxdepth 1 ! -name .segfs -print0 >found
	[ "$(tr -dc '\0' <found | wc -c)" = ${#names[@]} ]
	[ "$(sort -zu found | tr -dc '\0' | wc -c)" = ${#names[@]} ]
	run -0 xargs -0 -n1 stat -c %F <found
	[ "$(sort -u <<<"$output")" = directory ]
	while IFS= read -r -d '' n; do
		[ "$(stat -c %s "$n/0x10000")" = 4096 ]
	done <found
	for n in a%2Fb %2E. %2E "x y" n%0Al %252F %25 host:12345 %2Esegfs \
		%2Esegfsx ünïcode "$bad" "*" -n '"q"' "\\"; do
		[ -d "$MNT/$n" ]
	done
}

@test "a name that no segment can have is not there" {
	put_segment "a/b" "$(descriptor x 9 2 65536:4096)"
	put_segment "plain" "$(descriptor x 9 2 65536:4096)"
	mount_segfs
	for n in nosuch a%2fb a%2 %70lain plain%00; do
		gives_error ENOENT stat "$MNT/$n"
	done
	gives_error ENOENT stat "$MNT/plain/0x20000"
	gives_error ENOENT stat "$MNT/plain/0X10000"
	gives_error ENOENT stat "$MNT/plain/0x010000"
	gives_error ENOENT stat "$MNT/plain/65536"
}

@test "sizes above 4 GiB and addresses above 2^53 are exact" {
	put_segment big '{"name":"big","protocol":"tcp","tcp_data_port":9,
		"tcp_proto_version":2,"buffers":[
		{"name":"cpu:0","addr":9007199254740993,"length":4294967297},
		{"name":"cpu:0","addr":18446744073709547520,"length":4095},
		{"name":"cpu:0","addr":4096,"length":1099511627776}]}'
	mount_segfs
	run -0 ls "$MNT/big"
	[ "$output" = $'0x1000\n0x20000000000001\n0xfffffffffffff000' ]
	[ "$(stat -c %s "$MNT/big/0x20000000000001")" = 4294967297 ]
	[ "$(stat -c %s "$MNT/big/0xfffffffffffff000")" = 4095 ]
	[ "$(stat -c %s "$MNT/big/0x1000")" = 1099511627776 ]
	[ "$(stat -c %b "$MNT/big/0x20000000000001")" = 8388609 ]
}

@test "a segment without buffers is an empty directory" {
	put_segment none "$(descriptor none 9 2)"
	put_segment null '{"name":"null","protocol":"tcp","buffers":null,
		"priority_matrix":null}'
	put_segment missing '{"name":"missing","protocol":"tcp"}'
	mount_segfs
	for n in none null missing; do
		run -0 ls "$MNT/$n"
		[ "$output" = "" ]
		[ -s "$MNT/$n/.segfs/status" ]
	done
}

@test "extended attributes tell of a buffer, and never a key" {
	put_segment rdma '{"name":"rdma","protocol":"rdma","devices":[
		{"name":"nic0","lid":0,
		"gid":"00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:0a"}],
		"buffers":[{"name":"cpu:1","addr":65536,"length":4096,
		"rkey":[4097001],"lkey":[4098002]}]}'
	mount_segfs
	run -0 soon getfattr --absolute-names -d "$MNT/rdma/0x10000"
	[[ $output == *user.segfs.*cpu:1* ]]
	[[ $output == *user.segfs.*rdma* ]]
	run -0 soon getfattr --absolute-names -d -m - "$MNT/rdma/0x10000"
	[[ $output != *409[78]00* ]]
	[[ ${output,,} != *key* ]]
	run -0 soon cat "$MNT/rdma/.segfs/status" "$MNT/.segfs/status" \
		"$MNT/.segfs/stats" "$MNT/.segfs/config"
	[[ $output != *409[78]00* ]]
	run -1 grep -q '409[78]00' "$(log_of segfs)"
}

@test "foreign attributes are not supported, ours cannot be set" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	local f
	f=$(buffer one)
	gives_error EOPNOTSUPP getfattr --absolute-names -n security.selinux "$f"
	gives_error EOPNOTSUPP getfattr --absolute-names -n trusted.x "$f"
	gives_error EOPNOTSUPP setfattr -n user.segfs.location -v x "$f"
	gives_error EOPNOTSUPP setfattr -n user.other -v x "$f"
	fails getfattr --absolute-names -n user.segfs.nosuch "$f"
	[[ $ERR == *"No such attribute"* ]]
}

@test "nothing can be made, removed or renamed" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	local f d
	f=$(buffer one)
	for d in "$MNT" "$MNT/one" "$MNT/.segfs" "$MNT/one/.segfs"; do
		gives_error EPERM touch "$d/new"
		gives_error EPERM mkdir "$d/new"
		gives_error EPERM mkfifo "$d/new"
		gives_error EPERM ln -s x "$d/new"
		gives_error EPERM ln "$f" "$d/new"
		gives_error EPERM mv "$f" "$d/new"
	done
	gives_error EPERM rm "$f"
	gives_error EPERM rmdir "$MNT/one"
	gives_error EPERM rm "$MNT/one/.segfs/by-index/0"
	[ -e "$f" ]
}

@test "mode, owner and times may be set to what they are" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	local f
	f=$(buffer one)
	soon chmod 600 "$f"
	soon chown "$(id -u):$(id -g)" "$f"
	soon touch "$f"
	soon touch -d 2001-01-01 "$f"
	gives_error EPERM chmod 644 "$f"
	gives_error EPERM chown 12345 "$f"
	[ "$(stat -c %a "$f")" = 600 ]
}

@test "df answers at once and adds up the memory known" {
	start_exporter one --buffer size=1M,location=cpu:0 \
		--buffer size=3M,location=cpu:0
	mount_segfs
	soon stat "$(buffer one)" >/dev/null
	run -0 soon df --output=size,avail -B1 "$MNT"
	[[ ${lines[1]} =~ ^\ *4194304\ +0$ ]]
	[ "$(soon stat -f -c '%l %S' "$MNT")" = "255 4096" ]
}

@test "inode numbers are unique and survive a new mount" {
	start_exporter one --buffer size=4096,location=cpu:0 \
		--buffer size=4096,location=cpu:0
	mount_segfs
	soon find "$MNT" -printf '%i %P\n' | sort >first
	[ "$(cut -d' ' -f1 first | sort | uniq -d)" = "" ]
	unmount
	mount_segfs
	soon find "$MNT" -printf '%i %P\n' | sort >second
	cmp first second
}

@test "the mount is listed as fuse.segfs, and grants nothing" {
	start_exporter one --buffer size=4096,location=cpu:0
	mount_segfs
	run -0 awk -v m="$MNT" '$2 == m { print $1, $3; print $4 }' \
		/proc/self/mounts
	[ "${lines[0]}" = "$ETCD fuse.segfs" ]
	for o in nosuid nodev noexec default_permissions; do
		[[ ,${lines[1]}, == *,$o,* ]]
	done
}

@test "a changed listing is complete while it is read" {
	local i
	for i in {1..40}; do
		put_segment "s$i" "$(descriptor x 9 2 65536:4096)"
	done
	mount_segfs
	[ "$(soon ls "$MNT" | wc -l)" = 40 ]
	[ "$(soon ls -f "$MNT" | grep -c '^s')" = 40 ]
	run -0 python3 - "$MNT" <<-'EOF'
	import os, sys
	d = os.open(sys.argv[1], os.O_RDONLY)
	first = sorted(os.listdir(d))
	os.lseek(d, 0, 0)
	print(first == sorted(os.listdir(d)) == sorted(os.listdir(sys.argv[1])))
	EOF
	[ "$output" = True ]
}
