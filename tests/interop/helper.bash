# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# More verbs: processes of the real Mooncake.

load ../bats/helper

INTEROP_VENV=${XDG_CACHE_HOME:-$HOME/.cache}/segfs-interop
INTEROP_VENV=${SEGFS_INTEROP_VENV:-$INTEROP_VENV}

require_mooncake() {
	[ -x "$INTEROP_VENV/bin/python" ] ||
		skip "no Mooncake in $INTEROP_VENV: tests/interop/venv"
}

# start_mooncake NAME ARGS...: as peer.py; its lines go to NAME.out.
start_mooncake() {
	local name=$1 dir
	shift
	dir=$(where)
	rm -f "$dir/$name.in"
	mkfifo "$dir/$name.in"
	mkdir -p "$dir/pids" "$dir/log"
	env GLOG_minloglevel=1 "$INTEROP_VENV/bin/python" -u \
		"$SEGFS_SRC/tests/interop/peer.py" --metadata "$ETCD" \
		--name "$name" "$@" <"$dir/$name.in" \
		>"$dir/log/$name.out" 2>"$dir/log/$name.log" 3>&- 4>&- &
	echo $! >"$dir/pids/$name"
	# Kept open by this shell, so that the peer sees no end of file.
	exec {MOONCAKE_FD}>"$dir/$name.in"
	eval "MOONCAKE_FD_$name=$MOONCAKE_FD"
	wait_for 30 grep -qx ready "$dir/log/$name.out"
}

# ask NAME COMMAND...: prints what follows "ok"; fails on "error".
ask() {
	local name=$1 fd out had end answer
	shift
	fd=MOONCAKE_FD_$name
	out=$(out_of "$name")
	had=$(wc -l <"$out")
	echo "$*" >&"${!fd}"
	end=$((SECONDS + ${ASK:-60}))
	until [ "$(wc -l <"$out")" -gt "$had" ]; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.02
	done
	answer=$(sed -n "$((had + 1))p" "$out")
	case $answer in
	ok) ;;
	"ok "*) echo "${answer#ok }" ;;
	*)
		echo "$name: $* -> $answer" >&2
		return 1
		;;
	esac
}

# stop_mooncake NAME: orderly, so that it removes its keys.
stop_mooncake() {
	local fd=MOONCAKE_FD_$1
	echo exit >&"${!fd}"
	wait_for 20 is_gone "$(pid_of "$1")"
	rm -f "$(where)/pids/$1"
}
