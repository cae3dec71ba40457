#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The walls of the house: which folder may include what, and what stays out of
# the source altogether. No mount and no store are needed.

load helper

setup_file() { :; }
teardown_file() { :; }
setup() { cd "$SEGFS_SRC"; }
teardown() { :; }

# included PATTERN FILE...: lines that include such a header.
included() {
	local pattern=$1
	shift
	grep -nE "^[ 	]*#[ 	]*include[ 	]*[<\"]($pattern)" "$@" /dev/null
}

sources() {
	find "$@" -name '*.[ch]'
}

@test "fs/ knows no curl, no cJSON, no verbs" {
	run -1 included 'curl/|cjson/|cJSON|infiniband/|rdma/' $(sources fs)
}

@test "the core knows no FUSE" {
	run -1 included 'fuse' $(sources src)
}

@test "only the main program looks into fs/, and only at fs.h" {
	run included 'fs/' $(sources src)
	while read -r line; do
		[ -z "$line" ] || [[ $line == src/segfs.c:*'"fs/fs.h"' ]]
	done <<<"$output"
}

@test "the core knows no verbs" {
	run -1 included 'infiniband/|rdma/' $(sources src)
}

@test "rdma/ knows no FUSE, no curl, no cJSON, and not who calls it" {
	run -1 included 'fuse|fs/|curl/|cjson/|cJSON' $(sources rdma)
	run -1 included 'meta|directory|engine|transfer|export' $(sources rdma)
}

@test "verbs are known in rdma/ only, and whether they are there in one place" {
	run -1 included 'infiniband/|rdma/rdma_' $(sources src fs tests)
	run -0 grep -lE '^[[:blank:]]*#.*HAVE_RDMA' $(sources src fs rdma)
	[ "$output" = src/transport.c ]
}

@test "libcurl is known in one place" {
	run included 'curl/' $(sources src)
	while read -r line; do
		[[ -z $line || $line == src/meta/curl*.[ch]:* ]]
	done <<<"$output"
}

@test "cJSON is known by the decoders only" {
	run included 'cjson/|cJSON' $(sources src)
	while read -r line; do
		[[ -z $line || $line == *json*.[ch]:* ||
			$line == *segment*.[ch]:* || $line == *etcd*.[ch]:* ||
			$line == *handshake*.[ch]:* ||
			$line == *topology*.[ch]:* ||
			$line == src/segfs-export.c:* ||
			$line == src/export_tell.c:* ]]
	done <<<"$output"
}

@test "each source file says its licence in one line, and no more" {
	local f
	for f in $(sources src fs rdma tests); do
		[ "$(head -n1 "$f")" = "/* SPDX-License-Identifier: MIT */" ]
	done
	run -1 grep -rniE 'copyright|all rights reserved|permission is hereby' \
		src fs rdma tests --include='*.[ch]' --include='*.py'
}

@test "each source file opens with what it is" {
	local f
	for f in $(sources src fs rdma); do
		[[ $(sed -n 2p "$f") == "/*"* ]] || {
			echo "$f"
			false
		}
	done
}

@test "a .c file includes config.h first, then its own header" {
	local f first
	for f in $(find src fs rdma -name '*.c'); do
		first=$(grep -m1 '^#include' "$f")
		[ "$first" = '#include "config.h"' ] || {
			echo "$f: $first"
			false
		}
	done
}

@test "the core neither exits nor aborts" {
	run -1 grep -nE '\b(exit|_exit|abort)\(' $(sources src fs rdma |
		grep -vE '^src/(segfs|segfs-export|segctl|daemon)[^/]*\.c$')
}

@test "struct typedefs do not exist" {
	run -1 grep -nE '^typedef (struct|union|enum)\b' $(sources src fs rdma)
}

@test "no test denies a command where that has no effect" {
	# set -e does not see "! cmd" unless a function ends with it.
	run -0 awk 'denial && !/^}/ { print denial }
		{ denial = /^\t+! / ? FILENAME ":" FNR ":" $0 : "" }' \
		$(find tests -name '*.bats' -o -name '*.bash')
	[ -z "$output" ]
}

# What other people read: all but the bats files that hold long JSON.
scripts() {
	find contrib tests -type f ! -name '*.[ch]' ! -name '*.pyc' \
		! -path 'tests/bats/*.bats' ! -path 'tests/interop/*.bats'
}

@test "lines fit 80 columns, of which a tab takes 8" {
	run -0 bash -c 'for f; do
		expand "$f" | LC_ALL=C.UTF-8 grep -nE --label="$f" -H "^.{81}"
	done; true' _ $(sources src fs rdma tests) $(scripts)
	[ -z "$output" ]
}
