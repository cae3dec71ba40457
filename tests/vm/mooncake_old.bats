#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Guest: --rdma=plain
# The last Mooncake that looks its initiators up in the store (0.3.10.post2), as
# the target of a mount and of segctl.

load helper

INTEROP_VENV=$INTEROP_VENV-old

setup_file() {
	common_setup_file
	require_mooncake
	require_rdma
}

# mount_old: an old Mooncake "mc", and a mount.
mount_old() {
	start_mooncake_rdma mc --buffer 4000000
	mount_rdma timeout=10
}

# introduced: the keys of initiators in the store.
introduced() {
	soon etcdctl get --prefix --keys-only mooncake/segfs/ | grep . || :
}

nobody_is_introduced() {
	[ -z "$(introduced)" ]
}

# reads_mc: the mount's bytes are those that Mooncake has.
reads_mc() {
	[ "$(sha_of "$(buffer mc 0)")" = "$(ask mc sha 0)" ]
}

@test "an old Mooncake is read and written" {
	mount_old
	ask mc fill 0 1
	reads_mc
	local src
	src=$(scratch src 1000001)
	soon dd if="$src" of="$(buffer mc 0)" bs=1M oflag=seek_bytes seek=4321 \
		conv=notrunc,fsync status=none
	[ "$(ask mc sha 0 4321 1000001)" = "$(sha <"$src")" ]
	status_of mc >&2
	[[ $(status_of mc) == *"in the store as segfs/"* ]]
}

@test "both devices carry what is read from an old Mooncake" {
	require_rdma 2
	mount_old
	ask mc fill 0 2
	# Pairs that find no way to each other are known then.
	reads_mc
	moved_by reads_mc
	about_half 20
}

@test "segctl reads an old Mooncake and leaves nothing in the store" {
	start_mooncake_rdma mc --buffer 4000000
	ask mc fill 0 3
	segctl --metadata "$ETCD" get --quiet mc "$(address mc 0)" | sha >digest
	[ "$(cat digest)" = "$(ask mc sha 0)" ]
	nobody_is_introduced
}

@test "only who needs it finds us in the store; it is no segment, and ends" {
	start_rdma one --buffer size=1M,location=cpu:0
	mount_old
	soon cat "$(buffer one)" >/dev/null
	nobody_is_introduced
	soon cat "$(buffer mc 0)" >/dev/null
	introduced >&2
	# One a device, however many peers there are.
	[ "$(introduced | wc -l)" -le ${#NIC[@]} ]
	[ "$(introduced | wc -l)" -ge 1 ]
	[ -z "$(soon etcdctl get --prefix --keys-only \
		mooncake/rpc_meta/segfs)" ]
	local key
	for key in $(introduced); do
		soon etcdctl get -w json -- "$key" >entry
		[ "$(jq '.kvs[0].lease > 0' entry)" = true ]
		jq -r '.kvs[0].value' entry | base64 -d | jq -e \
			'(.devices | length) == 1 and .buffers == []'
	done
	[ "$(soon ls "$MNT" | xargs)" = "mc one" ]
	[ "$(segctl --metadata "$ETCD" ls | awk '{ print $1 }' |
		grep -c segfs)" = 0 ]
	unmount
	nobody_is_introduced
}

@test "after a kill the store forgets us" {
	mount_old
	soon cat "$(buffer mc 0)" >/dev/null
	[ -n "$(introduced)" ]
	stop segfs KILL || :
	fusermount3 -u -z "$MNT" || :
	wait_for 45 nobody_is_introduced
}

@test "an old Mooncake that was restarted is read again" {
	mount_old
	ask mc fill 0 4
	reads_mc
	stop mc KILL || :
	# It would add its devices to those that it finds there.
	del_segment mc
	start_mooncake_rdma mc --buffer 4000000
	ask mc fill 0 5
	wait_for 15 test -e "$(buffer mc 0)"
	reads_mc
}
