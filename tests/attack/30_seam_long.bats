#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The patient lies of the seam (30_seam.bats): whoever waits for them waits for its deadline, and nobody else does.
load seam

samples() { api "/v1/sandboxes/$1/metrics" | jq '.samples | length'; }
has_more() { [ "$(samples neighbour)" -gt "$1" ]; }

@test "figures of one go on while another's egress process stalls" {
	local n
	for _ in 1 2 3; do begin "$(new "$(network stall)")" 'while sleep 0.1; do :; done' >/dev/null; done
	begin neighbour 'for i in $(seq 600); do sleep 0.1; done' >/dev/null
	n=$(samples neighbour)
	await 60 has_more "$((n + 2))"
	teardown
	as_before
}

# As many requests as a sandbox may have at a time hang in its files; each ends at its deadline.
@test "a worker that stalls or trickles holds what asks it, until the deadline, and nothing else" {
	local id lie n=0
	for lie in stall trickle; do
		id=$(new)
		for _ in $(seq 20); do
			code --max-time 120 "/v1/sandboxes/$id/fs/list?path=/lie/$lie" >"$T/code.$((n += 1))" &
		done
		for _ in $(seq 10); do neighbour; done
		wait $(jobs -p)
	done
	never grep -l 000 "$T"/code.*
	never grep -l 200 "$T"/code.*
	teardown
	as_before
}

@test "a worker that tells without end what happened to files does not fill the log" {
	local id before after
	id=$(new)
	api -o /dev/null "/v1/sandboxes/$id/fs/stat?path=/lie/set/endless" || true
	# a stream, on which the front asks the worker once a second
	{ printf 'GET /v1/sandboxes/%s/fs HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: sbx-fs/1\r\n\r\n' "$id"
		sleep 45; } | socat -t 1 - "UNIX-CONNECT:$D/sock" >"$T/stream" &
	sleep 25 # what it may tell of at once is over
	before=$(api "/v1/events?after=0" | tail -n 1 | jq .seq)
	sleep 10
	after=$(api "/v1/events?after=0" | tail -n 1 | jq .seq)
	neighbour
	wait
	grep -aq '101 Switching' "$T/stream"
	[ $((after - before)) -le 60000 ] || { echo "$before $after" >&2; return 1; }
	teardown
	as_before
}

@test "an egress process that trickles has the time of one question, not of each byte" {
	local id began=$SECONDS
	id=$(new "$(network trickle)")
	[[ $(code -X PATCH -H 'Content-Type: application/json' -d "$(network honest)" "/v1/sandboxes/$id") == 5?? ]]
	[ $((SECONDS - began)) -lt 60 ]
	neighbour
	teardown
	as_before
}

@test "a folder of a worker's that has no end: an error, or a stream that its reader ends" {
	local id
	id=$(new)
	[[ $(code --max-time 60 "/v1/sandboxes/$id/dirs?path=/lie/endless") == [05]* ]]
	neighbour
	code --max-time 10 "/v1/sandboxes/$id/fs/list?path=/lie/endless" >/dev/null
	neighbour
	del "$id"
	teardown
	as_before
}
