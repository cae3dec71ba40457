# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# The verbs of the bats tests: start a store, an exporter, a fake peer, mount,
# look. A test owns its temporary folder, its ports and its mountpoint; daemons
# run in the foreground as children with their logs in the folder; teardown ends
# them by process id and looks into the logs. Nothing here waits without a
# limit.

bats_require_minimum_version 1.5.0

SEGFS_SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ -z "${SEGFS_BUILD:-}" ]; then
	SEGFS_BUILD=$SEGFS_SRC
	[ -x "$SEGFS_SRC/build/segfs" ] && SEGFS_BUILD=$SEGFS_SRC/build
fi
LIB=$SEGFS_SRC/tests/bats/lib
PATH=$SEGFS_BUILD:$PATH:/usr/sbin:/sbin
export PATH SEGFS_BUILD SEGFS_SRC LIB
export LC_ALL=C ETCDCTL_API=3
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
unset "${!MC_@}"

# Where this test, or this file, keeps its things.
where() {
	echo "${BATS_TEST_TMPDIR:-$BATS_FILE_TMPDIR}"
}

# ---- waiting ----

# How many times longer everything may take here: an emulated CPU is slow.
SLOW=${SEGFS_TEST_SLOW:-${SEGFS_VM:+8}}
SLOW=${SLOW:-1}

# soon CMD...: it must end by itself; 124 or 137 when it did not.
soon() {
	timeout -k 2 $((${SOON:-15} * SLOW)) "$@"
}

# wait_for SECONDS CMD...: until CMD succeeds.
wait_for() {
	local limit=$(($1 * SLOW)) end
	shift
	end=$((SECONDS + limit + 1))
	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "not within $limit s: $*" >&2
			return 1
		fi
		sleep 0.05
	done
}

now_ms() {
	date +%s%3N
}

# elapsed CMD...: run it, its milliseconds go to $MS.
elapsed() {
	local start
	start=$(now_ms)
	"$@"
	local res=$?
	MS=$(($(now_ms) - start))
	return $res
}

# within MS: what elapsed measured was less.
within() {
	[ "$MS" -lt $(($1 * SLOW)) ] || {
		echo "$MS ms instead of $1 * $SLOW" >&2
		return 1
	}
}

# ---- skipping: on a feature, with its name ----

require_command() {
	local c
	for c in "$@"; do
		command -v "$c" >/dev/null || skip "$c is not installed"
	done
}

require_root() {
	[ "$(id -u)" = 0 ] || skip "needs root"
}

require_fuse() {
	[ -c /dev/fuse ] && [ -w /dev/fuse ] || skip "/dev/fuse cannot be used"
}

# ---- children ----

# spawn NAME CMD...: in the background; NAME.out and NAME.log in the folder.
spawn() {
	local name=$1 dir
	shift
	dir=$(where)
	mkdir -p "$dir/pids" "$dir/log"
	# A daemon must not hold the descriptors bats waits for.
	(cd "$dir" && exec "$@") >"$dir/log/$name.out" 2>"$dir/log/$name.log" \
		</dev/null 3>&- 4>&- &
	echo $! >"$dir/pids/$name"
}

pid_of() {
	cat "$(where)/pids/$1" 2>/dev/null || cat "$BATS_FILE_TMPDIR/pids/$1"
}

log_of() {
	echo "$(where)/log/$1.log"
}

out_of() {
	echo "$(where)/log/$1.out"
}

is_running() {
	local stat
	# Without a process of its own: this is asked often.
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
	stat=${stat##*) }
	[ "${stat:0:1}" != Z ]
}

is_gone() {
	! is_running "$1"
}

# signal NAME SIG
signal() {
	kill "-$2" "$(pid_of "$1")"
}

# stop NAME [SIG]: end it and forget it. Its status is in $STATUS.
stop() {
	local name=$1 sig=${2:-TERM} dir pid
	dir=$(where)
	[ -e "$dir/pids/$name" ] || dir=$BATS_FILE_TMPDIR
	pid=$(cat "$dir/pids/$name") || return 1
	rm -f "$dir/pids/$name"
	# In this order: a CONT that comes late takes away the STOP by which a
	# leak checker holds a process at its end, and both wait for ever.
	kill -CONT "$pid" 2>/dev/null || :
	kill "-$sig" "$pid" 2>/dev/null || :
	if ! wait_for 10 is_gone "$pid"; then
		kill -KILL "$pid" 2>/dev/null || :
		STATUS=137
		return 1
	fi
	STATUS=0
	wait "$pid" 2>/dev/null || STATUS=$?
}

# ---- bytes ----

# read_and_write_at_once FILE SIZE ROUNDS: eight threads, each in its own part
# and with its own idea of what is there.
read_and_write_at_once() {
	SOON=60 soon python3 - "$@" <<-'EOF'
	import os, random, sys, threading
	path = sys.argv[1]
	size, rounds = map(int, sys.argv[2:])
	part, failures = size // 8, []
	def work(i):
	    rng, f = random.Random(i), os.open(path, os.O_RDWR)
	    model = bytearray(os.pread(f, part, i * part))
	    for _ in range(rounds):
	        off = rng.randrange(part - 1)
	        n = rng.randrange(1, min(part - off, 400000) + 1)
	        if rng.random() < .5:
	            data = rng.randbytes(n)
	            if os.pwrite(f, data, i * part + off) != n:
	                failures.append(("write", i, off, n))
	            model[off:off + n] = data
	        elif os.pread(f, n, i * part + off) != model[off:off + n]:
	            failures.append(("read", i, off, n))
	threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
	[t.start() for t in threads]
	[t.join() for t in threads]
	assert not failures, failures
	EOF
}

# ---- the store ----

free_port() {
	python3 - <<-'EOF'
	import socket
	s = socket.socket()
	s.bind(("127.0.0.1", 0))
	print(s.getsockname()[1])
	EOF
}

# start_etcd [NAME [PORT]]: sets ETCD_PORT and ETCD (its URL for segfs).
start_etcd() {
	local name=${1:-etcd} peer dir
	dir=$(where)
	ETCD_PORT=${2:-$(free_port)}
	peer=http://127.0.0.1:$(free_port)
	spawn "$name" etcd --data-dir "$dir/$name.data" --name "$name" \
		--listen-client-urls "http://127.0.0.1:$ETCD_PORT" \
		--advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
		--listen-peer-urls "$peer" \
		--initial-advertise-peer-urls "$peer" \
		--initial-cluster "$name=$peer" --unsafe-no-fsync
	ETCD=etcd://127.0.0.1:$ETCD_PORT
	ETCDCTL_ENDPOINTS=127.0.0.1:$ETCD_PORT
	export ETCD ETCD_PORT ETCDCTL_ENDPOINTS
	wait_for 15 etcd_is_well
}

etcd_is_well() {
	curl -fsS --noproxy '*' --max-time 2 \
		"http://127.0.0.1:$ETCD_PORT/health" | grep -q '"true"'
}

# put KEY VALUE, as they are.
put() {
	if [ -n "$2" ]; then
		printf %s "$2" | soon etcdctl put -- "$1" >/dev/null
	else
		soon etcdctl put -- "$1" "" >/dev/null
	fi
}

# descriptor NAME PORT VERSION ADDR:LENGTH[:LOCATION]...: its text.
descriptor() {
	local name=$1 port=$2 version=$3 sep="" b addr len loc
	shift 3
	printf '{"buffers":['
	for b; do
		IFS=: read -r addr len loc <<<"$b"
		printf '%s{"addr":%u,"length":%u,"name":"%s"}' "$sep" \
			"$addr" "$len" "${loc:-$name}"
		sep=,
	done
	printf '],"name":"%s","protocol":"tcp","tcp_data_port":%d,' \
		"$name" "$port"
	printf '"tcp_proto_version":%d,' "$version"
	printf '"timestamp":"2026-01-02 03:04:05.000006"}\n'
}

# put_segment NAME TEXT: a descriptor; and that its owner is on loopback.
put_segment() {
	put "mooncake/rpc_meta/$1" \
		'{"ip_or_host_name":"127.0.0.1","rpc_port":1}'
	case $1 in
	*/*) put "mooncake/$1" "$2" ;;
	*) put "mooncake/ram/$1" "$2" ;;
	esac
}

del_segment() {
	soon etcdctl del -- "mooncake/ram/$1" >/dev/null
	soon etcdctl del -- "mooncake/rpc_meta/$1" >/dev/null
}

# stored NAME: the descriptor as it is in the store.
stored() {
	soon etcdctl get --print-value-only -- "mooncake/ram/$1" | sed '$d'
}

# ---- peers ----

# until_ready NAME SECONDS CMD...: CMD succeeds before the child NAME ends.
until_ready() {
	local name=$1 end=$((SECONDS + $2 + 1))
	shift 2
	until "$@" >/dev/null 2>&1; do
		if ! is_running "$(pid_of "$name")" ||
			[ "$SECONDS" -ge "$end" ]; then
			echo "$name does not get ready:" >&2
			cat "$(log_of "$name")" >&2
			return 1
		fi
		sleep 0.05
	done
}

# start_exporter NAME ARGS...: until it says ready.
start_exporter() {
	local name=$1
	shift
	spawn "$name" segfs-export --metadata "$ETCD" --name "$name" "$@"
	until_ready "$name" 30 grep -qx ready "$(out_of "$name")"
}

# address NAME [I]: where its buffer I (0) is.
address() {
	awk -v i="${2:-0}" '/^0x/ && n++ == i { print $1 }' "$(out_of "$1")"
}

# buffer NAME [I]: the path of its file.
buffer() {
	echo "$MNT/$1/$(address "$1" "${2:-0}")"
}

# start_fake NAME ARGS...: a data server that lies; sets PORT.
start_fake() {
	local name=$1
	shift
	spawn "$name" python3 "$LIB/fake_peer.py" \
		--mode-file "$(where)/$name.mode" "$@"
	wait_for 10 grep -q '^port ' "$(out_of "$name")"
	PORT=$(awk '/^port / { print $2 }' "$(out_of "$name")")
}

# start_proxy NAME ARGS...: a TCP proxy that misbehaves on demand; sets PORT.
start_proxy() {
	local name=$1
	shift
	spawn "$name" python3 "$LIB/proxy.py" \
		--mode-file "$(where)/$name.mode" "$@"
	wait_for 10 grep -q '^port ' "$(out_of "$name")"
	PORT=$(awk '/^port / { print $2 }' "$(out_of "$name")")
}

# mode NAME WORD: what a proxy or fake does from now on.
mode() {
	echo "$2" >"$(where)/$1.mode.new"
	mv "$(where)/$1.mode.new" "$(where)/$1.mode"
	sleep 0.1
}

# via NAME OF PORT: a segment NAME that is OF behind the data port PORT.
via() {
	put_segment "$1" "$(stored "$2" |
		sed -e "s/\"tcp_data_port\":[0-9]*/\"tcp_data_port\":$3/" \
		    -e "s/\"name\":\"$2\"/\"name\":\"$1\"/g")"
}

# ---- the mount ----

# mount_segfs [OPTS [ARGS...]]: at $MNT, child "segfs".
mount_segfs() {
	local opts=${1:-}
	[ $# -gt 0 ] && shift
	mkdir -p "$MNT"
	spawn segfs segfs -f ${opts:+-o "$opts"} "$@" "$ETCD" "$MNT"
	until_ready segfs 20 timeout 2 test -e "$MNT/.segfs/version"
}

mount_count() {
	grep -c " $MNT " /proc/self/mounts || :
}

unmount() {
	soon fusermount3 -u "$MNT"
	wait_for 10 is_gone "$(pid_of segfs)"
	STATUS=0
	wait "$(pid_of segfs)" || STATUS=$?
	rm -f "$(where)/pids/segfs"
	[ "$STATUS" = 0 ]
}

# status_of NAME: what the mount says of a segment.
status_of() {
	soon cat "$MNT/$1/.segfs/status"
}

# ---- looking ----

# pattern SIZE [START]: what fill=offset put there.
pattern() {
	python3 - "$1" "${2:-0}" <<-'EOF'
	import array, sys
	size, start = int(sys.argv[1]), int(sys.argv[2])
	first, end = start // 8 * 8, start + size
	at = first
	while at < end:
	    top = min(at + (1 << 23), (end + 7) // 8 * 8)
	    piece = array.array("Q", range(at, top, 8)).tobytes()
	    lo = start - at if at < start else 0
	    sys.stdout.buffer.write(piece[lo:end - at if end < top else None])
	    at = top
	EOF
}

sha() {
	sha256sum | cut -d' ' -f1
}

sha_of() {
	soon sha256sum "$1" | cut -d' ' -f1
}

# scratch NAME SIZE: a file of random bytes in the test's folder.
scratch() {
	head -c "$2" /dev/urandom >"$(where)/$1"
	echo "$(where)/$1"
}

# fails CMD...: it must fail; its standard error goes to $ERR.
fails() {
	local res=0
	ERR=$(soon "$@" 2>&1 >/dev/null) || res=$?
	if [ $res = 0 ] || [ $res = 124 ] || [ $res = 137 ]; then
		echo "status $res, error '$ERR': $*" >&2
		return 1
	fi
}

# gives_error ERRNO CMD...: CMD's message ends in the text of ERRNO.
gives_error() {
	local text
	text=$(python3 -c 'import errno, os, sys
print(os.strerror(getattr(errno, sys.argv[1])))' "$1")
	shift
	fails "$@" || return 1
	if [[ $ERR != *"$text"* ]]; then
		echo "wanted '$text', got '$ERR': $*" >&2
		return 1
	fi
}

# ---- set up, clean up ----

common_setup_file() {
	export BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-$((180 * SLOW))}
	require_fuse
	start_etcd
}

common_setup() {
	MNT=$BATS_TEST_TMPDIR/mnt
	export MNT
	mkdir -p "$BATS_TEST_TMPDIR/log"
	cd "$BATS_TEST_TMPDIR" || return 1
	if [ -e "$BATS_FILE_TMPDIR/pids/etcd" ]; then
		soon etcdctl del --prefix '' >/dev/null
	fi
}

# stop_all: every child left in the folder; complains about crashes.
stop_all() {
	local dir bad=0 f name pid
	dir=$(where)
	# The mount first: nothing must hang because its peer went first.
	for name in segfs $(ls "$dir/pids" 2>/dev/null); do
		[ -e "$dir/pids/$name" ] || continue
		pid=$(cat "$dir/pids/$name")
		if ! stop "$name" TERM; then
			echo "$name ($pid) did not end by itself" >&2
			bad=1
		fi
		case $name:$STATUS in
		*:134 | *:139 | *:135 | *:136 | *:99)
			echo "$name ended with status $STATUS" >&2
			bad=1
			;;
		esac
	done
	for f in "$dir"/log/*; do
		[ -e "$f" ] || continue
		if grep -qE -e 'ERROR: (Address|Leak|Thread)Sanitizer' \
			-e 'runtime error:|Assertion .* failed' \
			-e 'stack smashing|double free' "$f"; then
			echo "crash in $(basename "$f"):" >&2
			bad=1
		fi
	done
	if compgen -G "$dir/core*" >/dev/null; then
		echo "a core file was left" >&2
		bad=1
	fi
	return $bad
}

common_teardown() {
	local bad=0 m
	cd / || :
	stop_all || bad=1
	for m in $(awk -v d="$BATS_TEST_TMPDIR" \
		'index($2, d) == 1 { print $2 }' /proc/self/mounts); do
		if [ -z "${LEFTOVER_OK:-}" ]; then
			echo "left mounted: $m" >&2
			bad=1
		fi
		umount -l "$m" 2>/dev/null || fusermount3 -uz "$m" || :
	done
	if [ $bad != 0 ] || [ -z "${BATS_TEST_COMPLETED:-}" ]; then
		tail -n 40 "$BATS_TEST_TMPDIR"/log/*.log 2>/dev/null |
			cut -c1-400 | sed 's/^/# /' >&2 || :
	fi
	return $bad
}

common_teardown_file() {
	unset BATS_TEST_TMPDIR
	stop_all
}

setup_file() { common_setup_file; }
setup() { common_setup; }
teardown() { common_teardown; }
teardown_file() { common_teardown_file; }
