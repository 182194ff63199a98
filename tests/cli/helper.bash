# SPDX-License-Identifier: MIT
# A server without isolation for one file of scenarios, and the sbx that talks to it.

cli_start() {
	O=${SBX_BUILD:-$PWD/build}
	T=$(mktemp -d "${TMPDIR:-/tmp}/sbx-cli.XXXXXX")
	export O T SBX_ENDPOINT=unix://$T/sock HOME=$T
	unset SBX_TOKEN SBX_TOKEN_FILE SBX_CA XDG_RUNTIME_DIR
	cli_server "$@"
}
# Starts the server, or starts it again.
cli_server() {
	"$O/bin/sandboxd" --backend "${CLI_BACKEND:-fake}" --listen "$SBX_ENDPOINT" --state-dir "$T/state" "$@" \
		>"$T/log" 2>&1 3>&- &
	echo $! >"$T/pid"
	cli_wait "$O/bin/sbx" api GET /v1/health || { cat "$T/log" >&2; return 1; }
}
cli_stop() {
	[ -n "${T:-}" ] || return 0
	for b in $("$O/bin/sbx" ls -q 2>/dev/null); do "$O/bin/sbx" rm "$b" || true; done
	[ -s "$T/pid" ] && kill "$(cat "$T/pid")" 2>/dev/null
	cli_wait cli_gone || true
	rm -rf "$T"
}
cli_gone() { ! kill -0 "$(cat "$T/pid")" 2>/dev/null; }
# cli_wait COMMAND...: until it succeeds, ten seconds at most, SLOW times as long.
cli_wait() {
	local n=$((200 * ${SLOW:-1}))
	while ! "$@" >/dev/null 2>&1; do
		n=$((n - 1))
		[ "$n" -gt 0 ] || return 1
		sleep 0.05
	done
}
sbx() { "$O/bin/sbx" "$@"; }
