#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What runs of skopeo that were taken over can only do in seconds.
load tool

@test "files without a byte and without end have one" {
	is "$(lie many)" 'what came is more than an image may be'
	await 30 nothing_fetched
}

@test "a hundred runs leave as many descriptors as there were" {
	local i before
	lie way >/dev/null
	before=$(fds)
	for i in $(seq 100); do
		lie way >/dev/null
	done
	await 30 eval '[ $(fds) = '"$before"' ]' || { fds; return 1; }
	await 30 nothing_fetched
}

@test "registries on forty ports of the loopback, one after the other: none is too many" {
	local i
	server_stop
	server u --registry-allow-private
	for i in $(seq 40); do
		name() { echo "localhost:$((20000 + i))/lie-$1:1"; }
		[[ $(lie way) == *'no public address'* ]] || { echo "port $i: $(lie way)"; return 1; } # of the tool: it has run
	done
}
