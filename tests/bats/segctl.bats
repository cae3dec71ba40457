#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# segctl against an exporter: the same transfers without a mount.

load helper

SIZE=5000003

setup() {
	common_setup
	export SEGFS_METADATA=$ETCD
	start_exporter one --buffer size=$SIZE,location=cpu:0,fill=offset \
		--buffer size=64K,location=cpu:0
	A=$(address one)
	B=$(address one 1)
}

data_port() {
	stored one | sed 's/.*"tcp_data_port":\([0-9]*\).*/\1/'
}

# json TEXT: a Python expression of the document d on standard input.
json() {
	python3 -c "import json, sys
d = json.load(sys.stdin)
assert $1, d"
}

@test "ls prints segments and buffers, also as JSON" {
	put_segment 'odd "name"' '{"nonsense":1}'
	run -0 soon segctl ls
	[ "$output" = 'odd "name"
one' ]
	run -0 soon segctl ls --details
	[[ $output == *"tcp"*"2"*"$((SIZE + 65536))"*one* ]]
	segctl ls --json | json '[x["segment"] for x in d] == ["odd \"name\"", "one"]'
	segctl ls --json --details |
		json "d[1]['bytes'] == $((SIZE + 65536)) and 'error' in d[0]"
	run -0 soon segctl ls one
	[[ ${lines[1]} == $(printf '%s\n' "$A" "$B" | sort | head -n1)* ]]
	segctl ls --json one |
		json "sorted(b['length'] for b in d['buffers']) == [65536, $SIZE]"
	run -5 soon segctl ls 'odd "name"'
	[[ $output == *"cannot be used"* ]]
}

@test "get writes to a pipe, a file, and a place in a file" {
	[ "$(soon segctl get one "$A" | sha)" = "$(pattern $SIZE | sha)" ]
	soon segctl get -o out one "$A"
	cmp out <(pattern $SIZE)
	# What is there already is replaced, and nothing is left behind it.
	soon segctl get --output=out one "$((A + 7))" 100
	cmp out <(pattern 100 7)
	{
		printf head
		soon segctl get one "$A" 10
		printf tail
	} >out
	cmp out <(printf head && pattern 10 && printf tail)
	printf head >out
	soon segctl get one "$A" 10 >>out
	cmp out <(printf head && pattern 10)
}

@test "get takes addresses, names and lengths in all forms" {
	[ "$(soon segctl get one "$((A))" 4K | sha)" = "$(pattern 4096 | sha)" ]
	[ "$(soon segctl get one "$A" all | sha)" = "$(pattern $SIZE | sha)" ]
	[ "$(soon segctl get one "$((A + 4999999))" | wc -c)" = 4 ]
	[ "$(soon segctl get one "$A" 0 | wc -c)" = 0 ]
	run -2 soon segctl get one cpu:0
	run -2 soon segctl get one "$A" lots
}

@test "a range that is not registered moves nothing" {
	run -6 soon segctl get -o out one "$A" $((SIZE + 1))
	[ ! -e out ]
	run -6 soon segctl get -o out one 0x1000 16
	[ ! -e out ]
	run -6 soon segctl get -o out one 0xffffffffffffffff 16
	run -5 soon segctl get -o out nosuch "$A"
	[ ! -e out ]
}

@test "a range may go over buffers that touch; a long name stays in its own" {
	local p
	p=$(data_port)
	put_segment two "$(descriptor two "$p" 2 $((A)):1000001 \
		$((A + 1000001)):1500000 $((A + 2600000)):1000 $((A)):500)"
	[ "$(soon segctl get two "$A" 2500001 | sha)" = \
		"$(pattern 2500001 | sha)" ]
	[ "$(soon segctl get two "$A" | sha)" = "$(pattern 1000001 | sha)" ]
	[ "$(soon segctl get two "$A+500" | sha)" = "$(pattern 500 | sha)" ]
	run -6 soon segctl get two "$A+500" 501
	run -6 soon segctl get two "$A+501"
	run -6 soon segctl get two "$A" 2600001
	[[ $output == *"2500001 registered bytes"* ]]
}

@test "put writes what it is given and nothing else" {
	head -c 3000001 /dev/urandom >src
	soon segctl put -i src one "$((A + 5))"
	{
		pattern 5
		cat src
		pattern $((SIZE - 3000006)) 3000006
	} >want
	soon segctl get one "$A" | cmp - want
	printf short | soon segctl put one "$((A + 1))"
	[ "$(soon segctl get one "$((A + 1))" 5)" = short ]
	soon segctl put one "$A" </dev/null
	[ "$(soon segctl get one "$((A + 1))" 5)" = short ]
}

@test "put takes standard input from where it stands, and leaves it there" {
	printf 'abcdefghij' >src
	{
		dd bs=1 count=2 status=none >/dev/null
		soon segctl put one "$B"
		cat >rest
	} <src
	[ "$(soon segctl get one "$B" 8)" = cdefghij ]
	[ ! -s rest ]
}

@test "input that is too long is an error, and a file is refused at once" {
	head -c 65537 /dev/urandom >src
	run -6 soon segctl put -i src one "$B"
	[[ $output == *"nothing was written"* ]]
	soon segctl get one "$B" | cmp - <(head -c 65536 /dev/zero)
	run -6 bash -c "cat src | timeout 10 segctl put one $B"
	[[ $output == *"is longer than the 65536 bytes"* ]]
	soon segctl get one "$B" | cmp - <(head -c 65536 src)
}

@test "a local file that fails is reported, never success" {
	run -6 bash -c "timeout 10 segctl get one $A >/dev/full"
	[[ $output == *"No space left on device"* ]]
	run -1 soon segctl get -o nosuch/out one "$A"
	run -1 soon segctl put -i nosuch one "$A"
	run bash -c "timeout 10 segctl get one $A | head -c 1 >/dev/null
		exit \${PIPESTATUS[0]}"
	[ "$status" = 6 ]
}

@test "a peer that is gone is status 5, and leaves no file that looks whole" {
	stop one KILL
	run -5 soon segctl get -o out one "$A"
	[[ $output == *refused* ]]
	[ ! -e out ]
	run -5 soon segctl put -i /etc/passwd one "$A"
}

@test "a connection that keeps breaking in the middle is an error" {
	start_proxy cutter --to "127.0.0.1:$(data_port)"
	via lazy one "$PORT"
	soon segctl get -o out lazy "$A"
	cmp out <(pattern $SIZE)
	rm out
	mode cutter cut
	run -5 soon segctl get --timeout 1 -o out lazy "$A"
	[ ! -e out ]
}

@test "a peer that says nothing is given up at the deadline" {
	signal one STOP
	elapsed run soon segctl get --timeout 1 -o out one "$A"
	signal one CONT
	[ "$status" = 5 ]
	within 4000
	[ ! -e out ]
}

@test "put into a read-only region is refused by its owner" {
	start_exporter ro --buffer size=4096,location=cpu:0,ro
	run -6 soon segctl put -i /etc/passwd ro "$(address ro)"
}

@test "probe goes step by step and says which one failed" {
	run -0 soon segctl probe one
	[ "${#lines[@]}" = 5 ]
	[[ $output != *failed* ]]
	segctl probe --json one | json 'd["ok"] and [s["step"] for s in d["steps"]] == ["metadata", "resolve", "connect", "handshake", "read"]'

	run -5 soon segctl probe nosuch
	[[ ${lines[0]} == metadata*failed*"no such segment" ]]
	[ "${#lines[@]}" = 1 ]

	put_segment gone "$(descriptor gone "$(free_port)" 2 4096:4096)"
	run -5 soon segctl probe gone
	[[ ${lines[2]} == connect*failed*refused* ]]
	[[ $output != *read* ]]
	run -5 segctl probe --json gone
	json 'not d["ok"]' <<<"$output"

	run -3 soon segctl --metadata "etcd://127.0.0.1:$(free_port)" probe one
	[[ ${lines[0]} == metadata*failed*refused* ]]
}

@test "bench prints rates and latencies" {
	run -0 soon segctl bench --time 0.3 one
	[[ ${lines[1]} == *"MB/s"*"ops/s"* ]]
	[[ ${lines[2]} == *p50*p90*p99*p99.9*max* ]]
	segctl bench --time 0.3 --json --jobs 4 --lanes 1 --split 0 \
		--splice 0 --block 4K --depth 2 --offset-mode random one |
		json 'd["jobs"] == 4 and 0 < d["latency_us"]["p50"] <= d["latency_us"]["max"]'
	segctl bench --time 0.3 --json --transport null --block 4K one |
		json 'd["ops_per_s"] > 1000'
	run -6 soon segctl bench --buffer 0x1000 one
	run -2 soon segctl bench --block 8M one
}

@test "bench writes only when told that contents may go" {
	run -2 soon segctl bench --op write --time 0.2 one
	soon segctl get one "$A" | cmp - <(pattern $SIZE)
	run -0 soon segctl bench --op write --yes-overwrite --time 0.2 \
		--buffer "$B" --block 4K one
	soon segctl get one "$A" | cmp - <(pattern $SIZE)
	soon segctl get one "$B" | cmp - <(head -c 65536 /dev/zero)
}

@test "bench ends with the error when a peer goes away" {
	spawn b timeout 20 segctl bench --time 15 --timeout 1 one
	sleep 0.5
	stop one KILL
	wait_for 6 is_gone "$(pid_of b)"
	grep -q "segctl: one: " "$(log_of b)"
	rm -f "$BATS_TEST_TMPDIR/pids/b"
}
