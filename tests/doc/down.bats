#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What make up and make down take for theirs.

setup() {
	T=$(mktemp -d /var/tmp/sbx-down.XXXXXX)
	mkdir "$T/run"
	export M=$T/m STATE=$T/state RUN=$T/run O=${SBX_BUILD:-$PWD/build}
}
teardown() {
	kill $STRANGER 2>/dev/null || true
	rm -rf "$T"
}

@test "a number in a pid file of before a crash is not taken for the server's" {
	sleep 600 3>&- &
	STRANGER=$!
	echo $STRANGER >"$RUN/sandboxd.pid"
	echo 999999999 >"$RUN/sbxfs.pid"
	! scripts/supervise --pid "$RUN/sandboxd.pid" || false
	run scripts/down
	[ "$status" -eq 0 ]
	kill -0 $STRANGER
	[ -z "$(ls "$RUN")" ]
}

@test "the supervisor that wrote it is found by it, and ends" {
	scripts/supervise "$RUN/sandboxd.pid" "$T/log" sleep 600 3>&- &
	pid=$!
	for _ in $(seq $((100 * ${SLOW:-1}))); do [ ! -s "$RUN/sandboxd.pid" ] || break; sleep 0.05; done
	[ "$(scripts/supervise --pid "$RUN/sandboxd.pid")" = $pid ]
	run scripts/down
	[ "$status" -eq 0 ]
	! kill -0 $pid 2>/dev/null || false
	[ -z "$(ls "$RUN")" ]
}
