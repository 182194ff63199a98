#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A kernel older than the oldest that is claimed: either everything that a sandbox needs is there and one runs, or the
# server refuses to start, soon, in one sentence that names what is missing, and leaves nothing behind. Never a
# sandbox without one of its walls. For tests/vm only: nothing else may run there.

setup() {
	D=$(mktemp -d "${TMPDIR:-/var/tmp}/vm-refusal.XXXXXX")
	chmod 755 "$D"
	O=${SBX_BUILD:?}
	(umask 077; echo '{"network":{"default":{"mode":"none"},"ceiling":"none"}}' >"$D/policy")
}
teardown() {
	[ -z "${SRV:-}" ] || { kill "$SRV" 2>/dev/null; wait "$SRV" || true; }
	rm -rf --one-file-system "$D"
}
server_up() { curl -fsS --max-time $((20 * ${SLOW:-1})) --unix-socket "$D/sock" http://localhost/v1/health >/dev/null 2>&1; }
start() { # 0: it serves, 1: it ended
	timeout $((180 * ${SLOW:-1})) "$O/bin/sandboxd" --listen "unix://$D/sock" --state-dir "$D/state" --policy "$D/policy" \
		>"$D/out" 2>"$D/log" 3>&- &
	SRV=$!
	until server_up; do
		kill -0 "$SRV" 2>/dev/null || return 1
		sleep 0.1
	done
}
sandbox_runs() {
	local id
	id=$(curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" -d '{}' -H 'Content-Type: application/json' http://localhost/v1/sandboxes | jq -er .id)
	curl -sS --max-time $((60 * ${SLOW:-1})) --unix-socket "$D/sock" -H 'Content-Type: application/json' \
		-d '{"argv":["echo","runs"]}' "http://localhost/v1/sandboxes/$id/run" | jq -e '.exit_code == 0'
}

@test "the server runs sandboxes, or says in one sentence why it cannot and leaves nothing" {
	if start; then
		sandbox_runs
		echo "# it runs sandboxes" >&3
		return
	fi
	rc=0
	wait "$SRV" || rc=$?
	SRV=
	sed 's/^/# /' "$D/log" >&3
	[ "$rc" != 0 ] && [ "$rc" != 124 ] && [ "$rc" -lt 128 ]
	grep -qE 'cannot run a sandbox|sbx-priv' "$D/log"
	[ "$(wc -l <"$D/log")" -le 5 ]
	[ -z "$(find /sys/fs/cgroup -maxdepth 3 -type d -name 'sandboxd-*' 2>/dev/null)" ]
	[ "$(grep -c "$D" /proc/self/mountinfo)" = 0 ]
	[ -z "$(pgrep -x 'sbx-.*')" ]
}

@test "sbx doctor agrees with the server" {
	rc=0
	"$O/bin/sbx" doctor >"$D/doctor" 2>&1 || rc=$?
	sed 's/^/# /' "$D/doctor" >&3
	missing=$(grep -v ' server ' "$D/doctor" | grep -c '^MISSING' || true)
	if start; then
		[ "$missing" = 0 ]
	else
		[ "$missing" -gt 0 ] && [ "$rc" = 1 ]
	fi
}
