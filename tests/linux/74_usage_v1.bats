#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Usage, and the end of a sandbox, where the server sees the first generation of control groups only: cgroup2 is hidden
# from it.

setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	V2=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
	awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { found = 1 } END { exit !found }' /proc/mounts ||
		skip "this host has no controllers of the first generation"
	[ "$V2" != /sys/fs/cgroup ] || skip "cgroup2 cannot be hidden here"
	O=${SBX_BUILD:-$PWD/build}
	D=$(mktemp -d /var/tmp/sbx-v1.XXXXXX)
	programs=$O/bin
	[[ $BATS_TEST_DESCRIPTION != *'taken over'* ]] || programs=$O/tests/attack/liars
	unshare -m sh -c '[ -z "$1" ] || umount "$1"; shift; exec "$@"' - "$V2" "$O/bin/sandboxd" \
		--listen "unix://$D/sock" --state-dir "$D/state" --libexec-dir "$programs" --image-dir "${SBX_IMAGES:-$O/images}" 2>"$D/log" 3>&- &
	SRV=$!
	for _ in $(seq 600); do
		[ "$(api -o /dev/null -w '%{http_code}' /v1/health 2>/dev/null)" = 200 ] && return 0
		kill -0 "$SRV" 2>/dev/null || break
		sleep 0.1
	done
	cat "$D/log" >&2
	return 1
}
teardown() {
	[ -n "${SRV:-}" ] || return 0
	[ -z "${S:-}" ] || api -X DELETE "/v1/sandboxes/$S"
	kill "$SRV"
	for _ in $(seq 300); do
		kill -0 "$SRV" 2>/dev/null || break
		sleep 0.1
	done
	rm -rf --one-file-system "$D"
}
api() {
	local args=("$@") path=${*: -1}
	unset 'args[${#args[@]}-1]'
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" "${args[@]}" "http://localhost$path"
}
post() { api -X POST -H 'Content-Type: application/json' -d "$2" "$1"; }
newest() { api "/v1/sandboxes/$S/metrics?last=1" | jq ".samples[-1].$1 // 0"; }
above() { awk -v a="$(newest "$1")" -v b="$2" 'BEGIN { exit !(a > b) }'; }
wait_above() {
	for _ in $(seq 200); do
		above "$@" && return 0
		sleep 0.1
	done
	api "/v1/sandboxes/$S/metrics" >&2
	return 1
}

@test "processor, memory, disk and processes are seen" {
	grep -q 'control groups v1' "$D/log"
	[ "$(api /v1/capabilities | jq .capabilities.metrics)" = true ]
	S=$(post /v1/sandboxes '{"memory_mb":256,"network":{"mode":"none"}}' | jq -r .id)
	post "/v1/sandboxes/$S/processes" '{"argv":["sh","-c","while :; do :; done"]}' >/dev/null
	post "/v1/sandboxes/$S/run" '{"argv":["sh","-c",
		"dd if=/dev/zero of=/dev/shm/x bs=1M count=32; dd if=/dev/zero of=/sandbox/home/x bs=1M count=16 conv=fsync"]}' >/dev/null
	wait_above memory_bytes 33554432
	wait_above disk_write_bytes 16777215
	wait_above cpu_percent 1
	[ "$(newest memory_limit_bytes)" = 268435456 ]
	[ "$(newest processes)" = 1 ]
}

@test "a file worker that was taken over, and does not end with its shim, ends with its sandbox" {
	S=$(post /v1/sandboxes '{"memory_mb":256,"network":{"mode":"none"}}' | jq -r .id)
	shim=$(od -An -t d4 -j 16 -N 4 "$D/state/priv/boxes/$S" | tr -d ' ')
	worker=$(pgrep -P "$shim" -x sbx-worker || pgrep -P "$shim" | tail -n 1)
	[ "$(api -o /dev/null -w '%{http_code}' "/v1/sandboxes/$S/fs/stat?path=/lie/deaf")" = 200 ]
	[ "$(api -o /dev/null -w '%{http_code}' -X DELETE "/v1/sandboxes/$S")" = 204 ]
	for _ in $(seq $((100 * ${SLOW:-1}))); do
		kill -0 "$worker" 2>/dev/null || break
		sleep 0.1
	done
	! kill -0 "$worker" 2>/dev/null || false
	S=
}
