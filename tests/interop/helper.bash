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
	local name=$1 dir polite=()
	shift
	dir=$(where)
	# Its threads never sleep while something is on its way, and in the
	# guest what is on its way is moved by the same two CPUs.
	[ -z "${SEGFS_VM:-}" ] || polite=(nice -n 19)
	rm -f "$dir/$name.in"
	mkfifo "$dir/$name.in"
	mkdir -p "$dir/pids" "$dir/log"
	env GLOG_minloglevel="${GLOG_minloglevel:-1}" \
		${polite[@]+"${polite[@]}"} "$INTEROP_VENV/bin/python" -u \
		"$SEGFS_SRC/tests/interop/peer.py" --metadata "$ETCD" \
		--name "$name" "$@" <"$dir/$name.in" \
		>"$dir/log/$name.out" 2>"$dir/log/$name.log" 3>&- 4>&- &
	echo $! >"$dir/pids/$name"
	# Kept open by this shell, so that the peer sees no end of file.
	exec {MOONCAKE_FD}>"$dir/$name.in"
	eval "MOONCAKE_FD_$name=$MOONCAKE_FD"
	wait_for 30 grep -qx ready "$dir/log/$name.out"
}

# ask NAME COMMAND...: prints what follows "ok"; fails on "error". Waits without
# looking again and again: that would take the CPU from what is waited for.
ask() {
	local name=$1 fd out had answer
	shift
	fd=MOONCAKE_FD_$name
	out=$(out_of "$name")
	had=$(wc -l <"$out")
	echo "$*" >&"${!fd}"
	answer=$(timeout "${ASK:-60}" tail -n +$((had + 1)) -f "$out" |
		sed q)
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
