#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The etcd backend alone: against a real etcd, and against one that lies.

load helper

TOOL=$SEGFS_BUILD/tests/bin/meta-tool

setup_file() {
	require_command etcd etcdctl openssl python3
	[ -x "$TOOL" ] || skip "tests/bin/meta-tool is not built"
	export BATS_TEST_TIMEOUT=120
	start_etcd
}

teardown_file() {
	stop_all
}

setup() {
	mkdir -p "$BATS_TEST_TMPDIR/log"
	cd "$BATS_TEST_TMPDIR" || return 1
	soon etcdctl del --prefix '' >/dev/null
}

teardown() {
	cd / && stop_all
}

# tool WORDS...: on the real store; at SOURCE WORDS...: on another.
tool() {
	soon "$TOOL" "$ETCD" "$@"
}

at() {
	soon "$TOOL" "$@"
}

# refuses ERRNO TEXT CMD...: it fails with that errno, and the line has TEXT.
refuses() {
	local errno=$1 text=$2 res=0
	shift 2
	ERR=$("$@" 2>&1 >/dev/null) || res=$?
	[ "$res" = 1 ] && [[ ${ERR##*$'\n'} == "$errno: "*"$text"* ]] && return
	echo "wanted '$errno ... $text', got $res '$ERR'" >&2
	return 1
}

# start_lies [MODE [ARGS...]]: the fake store; sets FAKE.
start_lies() {
	local words=${1:-}
	shift || :
	echo "$words" >"$(where)/lies.mode"
	spawn lies python3 "$LIB/fake_etcd.py" \
		--mode-file "$(where)/lies.mode" "$@"
	wait_for 10 grep -q '^port ' "$(out_of lies)"
	PORT=$(awk '/^port / { print $2 }' "$(out_of lies)")
	FAKE=etcd://127.0.0.1:$PORT
}

# asked TEXT: how many requests had TEXT in their line.
asked() {
	grep -c -- "$1" "$(out_of lies)" || :
}

# ---- keys and values ----

@test "what is put is got, also by others" {
	tool put segment node-a '{"a":1}'
	tool put rpc node-a '{"b":2}'
	[ "$(tool get node-a)" = $'segment 7 {"a":1}\nrpc 7 {"b":2}' ]
	[ "$(tool get /node-a)" = $'segment 7 {"a":1}\nrpc 7 {"b":2}' ]
	[ "$(soon etcdctl get --print-value-only mooncake/ram/node-a)" = \
		'{"a":1}' ]
	tool put rpc other ''
	[ "$(tool get other)" = $'segment missing\nrpc 0 ' ]
	tool del segment node-a
	tool del segment node-a
	[ "$(tool get node-a)" = $'segment missing\nrpc 7 {"b":2}' ]
	refuses ENOENT '"nobody"' tool get nobody
}

@test "names with slashes have their descriptor beside the folder" {
	tool put segment vol/one x
	tool put rpc vol/one y
	[ "$(soon etcdctl get --print-value-only mooncake/vol/one)" = x ]
	[ "$(tool get vol/one)" = $'segment 1 x\nrpc 1 y' ]
	tool put rpc vol/two y
	[ "$(tool list)" = $'vol/one\nvol/two (rpc only)' ]
}

@test "a listing has every name once, over many pages" {
	python3 - "$ETCD_PORT" <<-'EOF'
	import base64, json, sys, urllib.request
	def b(s):
	    return base64.b64encode(s.encode()).decode()
	opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
	for first in range(0, 2500, 50):
	    ops = [{"request_put": {"key": b("mooncake/%s/n%05d" % (d, i)),
	                            "value": b("x")}}
	           for i in range(first, first + 50)
	           for d in ("ram", "rpc_meta")]
	    opener.open("http://127.0.0.1:%s/v3/kv/txn" % sys.argv[1],
	                json.dumps({"success": ops}).encode()).read()
	EOF
	tool put rpc only x
	tool list >names
	[ "$(wc -l <names)" = 2501 ]
	[ "$(sort -u names | wc -l)" = 2501 ]
	[ "$(grep -c 'rpc only' names)" = 1 ]
}

@test "a cluster sees its own keys and nobody else's" {
	local c
	tool put segment same plain
	tool cluster=blue put segment same blue!
	tool cluster=blue2 put segment same blue22
	put mooncake/blue/ram/loose/end x
	for c in blue blue/; do
		[ "$(tool "cluster=$c" get same)" = \
			$'segment 5 blue!\nrpc missing' ]
		[ "$(tool "cluster=$c" list)" = same ]
	done
	[ "$(tool cluster= get same)" = $'segment 5 plain\nrpc missing' ]
	[ "$(tool list)" = same ]
	refuses ENOENT same tool cluster=bl get same
}

@test "a listing leaves out what is no name" {
	put mooncake/ram/ x
	put mooncake/ramble/x x
	put mooncake/tent/ram/x x
	put mooncake-store/x x
	put mooncake/ram/a/b x
	python3 - "$ETCD_PORT" <<-'EOF'
	import base64, json, sys, urllib.request
	key = base64.b64encode(b"mooncake/ram/nul\0inside").decode()
	opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
	opener.open("http://127.0.0.1:%s/v3/kv/put" % sys.argv[1],
	            json.dumps({"key": key, "value": "eA=="}).encode()).read()
	EOF
	put $'mooncake/ram/new\nline' x
	[ "$(tool list)" = $'new\nline\nskipped 1' ]
}

@test "a value over the store's limit is refused with its size" {
	refuses EMSGSIZE '2000000 bytes' tool put segment big @2000000
	refuses EMSGSIZE '1.5 MiB' tool put segment big @4000000
	refuses ENOENT big tool get big
	tool put segment big @1400000
	[[ $(tool get big) == "segment 1400000 x"* ]]
}

# ---- leases ----

@test "a lease keeps a key as long as it is kept alive" {
	local lease
	lease=$(tool grant $((6 * SLOW)))
	tool put segment leased x "$lease"
	sleep $((3 * SLOW))
	tool keepalive "$lease"
	sleep $((3 * SLOW + 1))
	tool get leased
	wait_for 10 refuses ENOENT leased tool get leased
	refuses ENOENT '' tool keepalive "$lease"
	refuses ENOENT '' tool put segment leased x "$lease"
	lease=$(tool grant 60)
	tool put segment leased x "$lease"
	tool revoke "$lease"
	refuses ENOENT '' tool get leased
}

# ---- the watch ----

watch() {
	spawn watch "$TOOL" "$@" watch 60
	wait_for 5 grep -qx sync "$(out_of watch)"
}

saw() {
	wait_for "${2:-3}" grep -q "^$1" "$(out_of watch)"
}

@test "the watch names what is written and removed, in this cluster" {
	watch "$ETCD"
	tool put segment one x
	saw 'changed one$'
	tool put rpc with/slash x
	saw 'changed with/slash$'
	tool put segment two x
	tool del segment two
	wait_for 3 bash -c "[ \$(grep -c '^changed two$' '$(out_of watch)') = 2 ]"
	put mooncakes/ram/no x
	put mooncake/loose x
	tool put segment last x
	saw 'changed last$'
	run -1 grep -qE 'no|loose' "$(out_of watch)"
	elapsed stop watch
	within 1500
}

@test "a store that goes and comes back: lost, then sync" {
	local keep=$ETCD_PORT
	start_etcd own
	watch "$ETCD"
	stop own KILL
	saw 'lost .*127.0.0.1' 5
	start_etcd own "$ETCD_PORT"
	wait_for 10 bash -c "[ \$(grep -cx sync '$(out_of watch)') = 2 ]"
	# A line a reason, not a line a try.
	[ "$(grep -c '^lost' "$(out_of watch)")" -le 3 ]
	tool put segment again x
	saw 'changed again'
	ETCD_PORT=$keep
}

@test "a store that falls silent is noticed" {
	start_etcd own
	watch "$ETCD"
	signal own STOP
	saw lost 14
	elapsed stop watch
	within 2500
	signal own CONT
}

@test "a watch moves to the endpoint that answers" {
	local first=$ETCD
	start_etcd own
	watch "$ETCD;${first#etcd://}"
	stop own KILL
	wait_for 10 bash -c "[ \$(grep -cx sync '$(out_of watch)') = 2 ]"
	at "$first" put segment moved x
	saw 'changed moved'
}

@test "streams that end, are cancelled or never begin are begun anew" {
	start_lies cut
	watch "$FAKE"
	at "$FAKE" put segment one x
	saw 'lost .*ended'
	wait_for 5 bash -c "[ \$(grep -cx sync '$(out_of watch)') = 2 ]"
	mode lies cancel
	at "$FAKE" put segment one x
	saw 'lost .*no watches today' 12
	mode lies mute
	sleep 1
	mode lies ''
	wait_for 15 bash -c "[ \$(grep -cx sync '$(out_of watch)') = 3 ]"
}

# ---- who answers ----

@test "one endpoint of several is enough, and is remembered" {
	start_lies
	elapsed at "etcd://127.0.0.1:1; 127.0.0.1:2 ,,127.0.0.1:$PORT" open
	within 1500
	refuses ECONNREFUSED '127.0.0.1:1: Connection refused; 127.0.0.1:2:' \
		at etcd://127.0.0.1:1,127.0.0.1:2 open
}

@test "an endpoint that hangs does not use up the time of the others" {
	start_etcd own
	start_lies
	signal own STOP
	elapsed at "$ETCD,127.0.0.1:$PORT" timeout=4000 put segment a x
	within 4000
	elapsed refuses ETIMEDOUT "$ETCD_PORT" at "$ETCD" timeout=1000 open
	within 2500
	signal own CONT
}

@test "names that do not resolve are unreachable hosts" {
	refuses EHOSTUNREACH 'no-such-host.invalid' \
		at etcd://no-such-host.invalid:2379 open
}

@test "the gateway is found under each of its paths" {
	local path
	for path in /v3 /v3beta /v3alpha; do
		start_lies "path=$path"
		at "$FAKE" put segment a x
		[ "$(at "$FAKE" get a)" = $'segment 1 x\nrpc missing' ]
		refuses ENOENT b at "$FAKE" get b
		stop lies
	done
	start_lies path=/v2
	refuses EPROTO 'tried /v3, /v3beta, /v3alpha' at "$FAKE" open
}

@test "numbers, strings, padding: every form is taken" {
	local lease
	start_lies 'numbers nopad'
	at "$FAKE" put segment a xy
	[ "$(at "$FAKE" get a)" = $'segment 2 xy\nrpc missing' ]
	lease=$(at "$FAKE" grant 5)
	[ "$lease" = 1152921504606846977 ]
	at "$FAKE" keepalive "$lease"
	at "$FAKE" revoke "$lease"
	refuses ENOENT ended at "$FAKE" keepalive "$lease"
	[ "$(at "$FAKE" list)" = a ]
}

@test "what is no etcd is an error, and never no such segment" {
	local how
	start_lies
	at "$FAKE" put segment a x
	mode lies html500
	refuses EIO 'status 500' at "$FAKE" open
	mode lies "redirect=http://127.0.0.1:$ETCD_PORT/v3/kv/range"
	refuses EPROTO redirects at "$FAKE" open
	mode lies hangup
	refuses EIO 'without an answer' at "$FAKE" open
	mode lies half
	refuses EIO '' at "$FAKE" open
	for how in notjson null garbage; do
		mode lies $how
		refuses EPROTO '' at "$FAKE" open
	done
	mode lies slow=3
	refuses ETIMEDOUT "127.0.0.1:$PORT" at "$FAKE" timeout=1000 open
	# The same once it is open.
	mode lies ''
	spawn gets "$TOOL" "$FAKE" timeout=2000 gets 2 a a a
	sleep 1
	mode lies html500
	sleep 2
	mode lies null
	wait_for 10 is_gone "$(pid_of gets)"
	[ "$(grep -c '^segment' "$(out_of gets)")" = 1 ]
	grep -q '^EIO: ' "$(log_of gets)"
	grep -q '^EBADMSG: ' "$(log_of gets)"
}

@test "a reply without end is cut off in bounded memory" {
	start_lies huge
	# A sanitizer's shadow does not fit into a limit.
	ldd "$TOOL" | grep -q libasan || ulimit -v 1000000
	refuses EMSGSIZE 'too long' at "$FAKE" timeout=20000 open
}

# ---- credentials ----

@test "a real etcd with users: password, wrong password, nobody" {
	start_etcd own
	soon etcdctl user add root:secret
	soon etcdctl user add "me:pa\"ss\\w" >/dev/null
	soon etcdctl role add mine
	soon etcdctl role grant-permission mine readwrite --prefix=true \
		mooncake/
	soon etcdctl user grant-role me mine
	soon etcdctl user grant-role root root || {
		soon etcdctl role add root
		soon etcdctl user grant-role root root
	}
	soon etcdctl auth enable
	tool user=me 'password=pa"ss\w' put segment a x
	[ "$(tool user=me 'password=pa"ss\w' get a)" = \
		$'segment 1 x\nrpc missing' ]
	refuses EACCES 'authentication failed' tool user=me password=no open
	refuses EACCES 'no user was given' tool open
	soon etcdctl --user root:secret role revoke-permission mine \
		--prefix=true mooncake/
	tool user=me 'password=pa"ss\w' open
	refuses EACCES 'permission denied' tool user=me 'password=pa"ss\w' \
		put segment a x
	soon etcdctl --user root:secret role grant-permission mine readwrite \
		--prefix=true mooncake/
	# Its tokens die with it.
	spawn gets "$TOOL" "$ETCD" user=me 'password=pa"ss\w' \
		gets $((5 * SLOW)) a a
	wait_for 5 grep -q '^segment' "$(out_of gets)"
	stop own
	start_etcd own "$ETCD_PORT"
	wait_for 10 is_gone "$(pid_of gets)"
	[ "$(grep -c '^segment' "$(out_of gets)")" = 2 ]
}

@test "a token that died is renewed once" {
	start_lies 'user=me:pw expire=1'
	at "$FAKE" user=me password=pw put segment a x
	spawn gets "$TOOL" "$FAKE" user=me password=pw gets 1.5 a a a
	wait_for 10 is_gone "$(pid_of gets)"
	[ "$(grep -c '^segment' "$(out_of gets)")" = 3 ]
	run -1 grep -q '^E' "$(log_of gets)"
	mode lies 'user=me:pw expire=1 refuse=old'
	at "$FAKE" user=me password=pw gets 1.5 a a >out
	[ "$(grep -c '^segment' out)" = 2 ]
	mode lies 'user=me:pw expire=1 refuse=hangup'
	at "$FAKE" user=me password=pw gets 1.5 a a >out
	[ "$(grep -c '^segment' out)" = 2 ]
}

@test "a token that is never good enough is access denied, not an endless try" {
	local how before
	start_lies
	for how in 401 hangup old; do
		mode lies "user=me:pw never refuse=$how"
		before=$(asked authenticate)
		refuses EACCES '' at "$FAKE" user=me password=pw open
		[ $(($(asked authenticate) - before)) -le 2 ]
	done
	[[ $ERR != *pw* ]]
}

@test "a user where none is wanted is let in" {
	start_lies
	at "$FAKE" user=me password=pw open
	tool user=me password=pw open
}

# ---- TLS ----

# make_certs: ca.pem, and NAME.pem with NAME.key for server, other and client.
make_certs() {
	local n san
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=testca \
		-keyout ca.key -out ca.pem 2>/dev/null
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=badca \
		-keyout badca.key -out badca.pem 2>/dev/null
	for n in server other client; do
		san=IP:127.0.0.1
		[ $n = other ] && san=DNS:elsewhere.invalid
		openssl req -newkey rsa:2048 -nodes -subj /CN=$n \
			-keyout $n.key -out $n.csr 2>/dev/null
		openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -days 2 \
			-CAcreateserial -extfile <(echo "subjectAltName=$san") \
			-out $n.pem 2>/dev/null
	done
	openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 0 \
		-CAcreateserial -out expired.pem 2>/dev/null \
		-extfile <(echo "subjectAltName=IP:127.0.0.1")
}

@test "TLS: a real etcd that wants client certificates" {
	local peer port
	make_certs
	port=$(free_port)
	peer=http://127.0.0.1:$(free_port)
	spawn own etcd --data-dir own.data --name own --unsafe-no-fsync \
		--listen-client-urls "https://127.0.0.1:$port" \
		--advertise-client-urls "https://127.0.0.1:$port" \
		--listen-peer-urls "$peer" \
		--initial-advertise-peer-urls "$peer" \
		--initial-cluster "own=$peer" \
		--cert-file server.pem --key-file server.key \
		--client-cert-auth --trusted-ca-file ca.pem
	local ok=(ca=ca.pem cert=client.pem key=client.key)
	wait_for 15 at "etcd://127.0.0.1:$port" "${ok[@]}" open
	at "etcds://127.0.0.1:$port" "${ok[@]}" put segment a x
	[ "$(at "127.0.0.1:$port" "${ok[@]}" get a)" = \
		$'segment 1 x\nrpc missing' ]
	watch "etcds://127.0.0.1:$port" "${ok[@]}"
	at "etcds://127.0.0.1:$port" "${ok[@]}" put segment b x
	saw 'changed b'
	# One file with both.
	cat client.pem client.key >both.pem
	at "etcds://127.0.0.1:$port" ca=ca.pem cert=both.pem open

	refuses EPROTO certificate at "etcds://127.0.0.1:$port" open
	refuses EPROTO certificate at "127.0.0.1:$port" ca=badca.pem \
		cert=client.pem key=client.key open
	refuses EACCES certificate at "127.0.0.1:$port" ca=ca.pem open
	refuses EACCES '' at "127.0.0.1:$port" ca=ca.pem cert=client.pem open
	refuses EINVAL 'without a certificate' at "127.0.0.1:$port" \
		ca=ca.pem key=client.key open
	refuses ENOENT missing.pem at "127.0.0.1:$port" ca=missing.pem open
	refuses EIO 'want TLS' at "127.0.0.1:$port" open
}

@test "TLS asked for is never given up" {
	make_certs
	refuses EPROTO 'TLS' at "etcds://${ETCD#etcd://}" open
	refuses EPROTO 'TLS' at "$ETCD" ca=ca.pem open
	start_lies '' --tls other.pem other.key
	refuses EPROTO 'subject name' at "$FAKE" ca=ca.pem open
	stop lies
	start_lies '' --tls expired.pem server.key
	refuses EPROTO expired at "$FAKE" ca=ca.pem open
}

# ---- surroundings ----

@test "proxies in the environment count only when asked for" {
	local v
	for v in http_proxy https_proxy all_proxy ALL_PROXY; do
		env "$v=http://127.0.0.1:9" "$TOOL" "$ETCD" open
	done
	refuses ECONNREFUSED proxy env http_proxy=http://127.0.0.1:9 \
		"$TOOL" "$ETCD" proxy=yes open
}

@test "many questions use few connections" {
	start_lies
	at "$FAKE" put segment a x
	# shellcheck disable=SC2046
	spawn gets "$TOOL" "$FAKE" gets 0 $(yes a | head -500) b
	wait_for 20 is_gone "$(pid_of gets)"
	[ "$(grep -c '^segment' "$(out_of gets)")" = 500 ]
	[ "$(ss -Htan state time-wait "sport = :$PORT" | wc -l)" -lt 10 ]
}

@test "a password is in no error and no log" {
	start_lies 'user=me:pw'
	refuses EACCES '' at "$FAKE" user=me password=hunter2 open
	[[ $ERR != *hunter2* ]]
	refuses EINVAL '' at etcd://me:hunter2@127.0.0.1:1 open
	[[ $ERR != *hunter2* ]]
	refuses EINVAL 'without a user' at "$FAKE" password=hunter2 open
	[[ $ERR != *hunter2* ]]
}
