#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kill -9 of each process and of all at once while writers and runs work: nothing acknowledged is lost,
# running sandboxes go on, ended ones leave nothing.

load helper

setup() {
	[ "$(id -u)" = 0 ] || skip "the linux backend needs root"
	crash_start
}
teardown() { crash_stop; }

new() { api -H 'Content-Type: application/json' -d "${1:-{\}}" http://localhost/v1/sandboxes | jq -r .id; }
run() { api -H 'Content-Type: application/json' -d "{\"argv\":[\"sh\",\"-c\",\"$2\"]}" "http://localhost/v1/sandboxes/$1/run"; }

# Writes numbered files until told to stop; notes each that was acknowledged.
writer() {
	local id=$1 w=$2 i=0
	while [ ! -e "$T/stop" ]; do
		i=$((i + 1))
		[ "$(echo "w$w $i" | api -o /dev/null -w '%{http_code}' -X PUT -H 'Content-Type: application/octet-stream' \
			--data-binary @- "http://localhost/v1/sandboxes/$id/files?path=/sandbox/home/w$w.$i" 2>/dev/null)" = 204 ] &&
			echo "w$w.$i" >>"$T/acked.$w"
	done
}
# Runs commands that append to a file inside; notes each whose answer came.
runner() {
	local id=$1 w=$2 i=0
	while [ ! -e "$T/stop" ]; do
		i=$((i + 1))
		[ "$(run "$id" "echo $i >> /sandbox/home/r$w" 2>/dev/null | jq -r .exit_code 2>/dev/null)" = 0 ] &&
			echo "$i" >>"$T/ran.$w"
	done
}

@test "nothing acknowledged is lost when server, broker and mount are killed in a loop" {
	id=$(new '{"name":"kept"}')
	[ -n "$id" ]
	pid=$(api -H 'Content-Type: application/json' -d '{"argv":["sh","-c","i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"]}' \
		"http://localhost/v1/sandboxes/$id/processes" | jq -r .pid)
	for w in 1 2 3 4; do
		writer "$id" $w 3>&- & jobs_[w]=$!
		runner "$id" $w 3>&- & jobs_[w + 4]=$!
	done
	for round in 1 2 3 4 5 6; do
		sleep 1
		case $((round % 3)) in
		0) kill -9 "$(broker_of)" "$(child_of sandboxd)" "$(child_of sbxfs)" ;;
		1) kill -9 "$(child_of sandboxd)" ;;
		2) kill -9 "$(broker_of)" ;;
		esac
		crash_wait_server
	done
	touch "$T/stop"
	wait "${jobs_[@]}" || true
	crash_wait_server
	for w in 1 2 3 4; do
		[ -s "$T/acked.$w" ] && [ -s "$T/ran.$w" ]
		api "http://localhost/v1/sandboxes/$id/dirs?path=/sandbox/home" | jq -r '.entries[].name' | sort >"$T/there"
		sort "$T/acked.$w" | comm -23 - "$T/there" >"$T/lost"
		[ ! -s "$T/lost" ] || { echo "lost: $(head -n3 "$T/lost")"; false; }
		api "http://localhost/v1/sandboxes/$id/files?path=/sandbox/home/r$w" | sort >"$T/there"
		sort "$T/ran.$w" | comm -23 - "$T/there" >"$T/lost"
		[ ! -s "$T/lost" ]
	done
	# The process of before runs on under the same pid, and its output has no gap.
	[ "$(api "http://localhost/v1/sandboxes/$id/processes/$pid" | jq -r .state)" = running ]
	timeout 3 curl -sSN --unix-socket "$T/sock" "http://localhost/v1/sandboxes/$id/processes/$pid/output" >"$T/out" || true
	jq -r .data <"$T/out" 2>/dev/null | while read -r l; do printf %s "$l" | base64 -d; done >"$T/numbers"
	[ "$(wc -l <"$T/numbers")" -gt 10 ]
	diff "$T/numbers" <(seq "$(wc -l <"$T/numbers")")
	# The mount came back by itself.
	crash_wait 100 test "$(cat "$T/m/kept/state")" = running
}

@test "a killed shim, init or worker ends that one sandbox only, and nothing is left" {
	crash_prime
	empty=$(leftovers)
	other=$(new)
	sleep 1
	one=$(leftovers)
	for who in shim init worker; do
		id=$(new)
		kill -9 "$(process_of "$id" $who)"
		crash_wait 100 sh -c "curl -sS --unix-socket '$T/sock' http://localhost/v1/sandboxes/$id | grep -q terminated"
		[ "$(run "$other" 'echo alive' | jq -r .stdout | base64 -d)" = alive ]
		api -X DELETE "http://localhost/v1/sandboxes/$id"
		leftovers_settle "$one"
	done
	api -X DELETE "http://localhost/v1/sandboxes/$other"
	leftovers_settle "$empty"
}

@test "a server killed while it creates and deletes leaves nothing that the next start does not remove" {
	crash_prime
	empty=$(leftovers)
	for round in 1 2 3 4 5; do
		for i in 1 2 3 4 5 6; do (id=$(new 2>/dev/null); [ -n "$id" ] && api -X DELETE "http://localhost/v1/sandboxes/$id" >/dev/null 2>&1) 3>&- & jobs_[i]=$!; done
		sleep 0.0$((round * 2 - 1))
		kill -9 "$(child_of sandboxd)"
		wait "${jobs_[@]}" 2>/dev/null || true
		crash_wait_server
	done
	for id in $(api http://localhost/v1/sandboxes | jq -r '.sandboxes[] | select(.state != "terminated") | .id'); do
		[ "$(run "$id" 'echo ok' | jq -r .exit_code)" = 0 ]
		api -X DELETE "http://localhost/v1/sandboxes/$id"
	done
	leftovers_settle "$empty"
}
